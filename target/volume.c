/* SPDX-License-Identifier: BSD-2-Clause */
/* volume -- a backing file or block device and what is exported of it */
#include "volume.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <uuid/uuid.h>

#include "clock.h"

#define IDENTITY_XATTR "user.rblk.uuid"

/* How long a lock that somebody else holds is waited for. */
#define LOCK_WAIT_MS 3000
#define LOCK_PAUSE_MS 20

/* Name space of identities made from a name and a file (RFC 4122 section 4.3, version 5). */
static const uuid_t identity_space = {0x6b, 0x2e, 0x0d, 0x5c, 0x93, 0x51, 0x4f, 0x0a,
                                      0x8d, 0x5e, 0x72, 0x62, 0x6c, 0x6b, 0x64, 0x01};

__attribute__((format(printf, 5, 6))) static int fail(const struct volume *v, char *err,
                                                      size_t errlen, int rc, const char *fmt, ...)
{
    int used = snprintf(err, errlen, "volume %s: %s ", v->name, v->path);
    va_list ap;

    if (used > 0 && (size_t)used < errlen) {
        va_start(ap, fmt);
        vsnprintf(err + used, errlen - (size_t)used, fmt, ap);
        va_end(ap);
    }
    return rc;
}

static int open_failed(const struct volume *v, int error, char *err, size_t errlen)
{
    switch (error) {
    case ENOENT:
        return fail(v, err, errlen, -error,
                    "does not exist; create it, for example: "
                    "truncate -s 10G %s",
                    v->path);
    case EISDIR:
        return fail(v, err, errlen, -error, "is a directory; name a file or a block device");
    case EACCES:
    case EPERM:
    case EROFS:
        if (!v->read_only)
            return fail(v, err, errlen, -error,
                        "is not writable (%s); grant write permission, or "
                        "export it read-only: %s=%s,ro",
                        strerror(error), v->name, v->path);
        return fail(v, err, errlen, -error, "is not readable (%s); grant read permission",
                    strerror(error));
    case EBUSY:
        return fail(v, err, errlen, -error,
                    "is in use by this system; unmount it, or export it "
                    "read-only: %s=%s,ro",
                    v->name, v->path);
    default:
        return fail(v, err, errlen, -error, "cannot be opened: %s", strerror(error));
    }
}

/* Opens the descriptor. A block device is opened exclusively, so that a mounted one is refused. */
static int open_file(struct volume *v, struct stat *st, char *err, size_t errlen)
{
    int flags = (v->read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;

    if (stat(v->path, st) < 0)
        return open_failed(v, errno, err, errlen);
    if (S_ISDIR(st->st_mode))
        return open_failed(v, EISDIR, err, errlen);
    if (!S_ISREG(st->st_mode) && !S_ISBLK(st->st_mode))
        return fail(v, err, errlen, -EINVAL, "is neither a regular file nor a block device");
    if (S_ISBLK(st->st_mode) && !v->read_only)
        flags |= O_EXCL;
    v->fd = open(v->path, flags);
    if (v->fd < 0)
        return open_failed(v, errno, err, errlen);
    /* Only the opening must not block; io_uring would take the flag at its word. */
    if (fcntl(v->fd, F_SETFL, 0) < 0 || fstat(v->fd, st) < 0)
        return open_failed(v, errno, err, errlen);
    return 0;
}

static int find_size(struct volume *v, const struct stat *st, char *err, size_t errlen)
{
    if (S_ISBLK(st->st_mode)) {
        if (ioctl(v->fd, BLKGETSIZE64, &v->size) < 0)
            return fail(v, err, errlen, -errno, "does not tell its size: %s", strerror(errno));
    } else {
        v->size = (uint64_t)st->st_size;
    }
    if (v->size == 0)
        return fail(v, err, errlen, -EINVAL,
                    "is empty; give it a size, for example: "
                    "truncate -s 10G %s",
                    v->path);
    return 0;
}

/*
 * flock(2) rather than fcntl locks: it can be exclusive on a read-only descriptor, and it belongs
 * to the open file, so it also catches one file given under two names. The kernel takes an io_uring
 * apart some time after its process has ended, and until then the file of a killed target stays
 * locked: a restart right after it has to wait.
 */
static int lock_file(struct volume *v, char *err, size_t errlen)
{
    uint64_t deadline = rblk_deadline_ms(LOCK_WAIT_MS);
    int rc;

    while ((rc = flock(v->fd, LOCK_EX | LOCK_NB)) < 0 && errno == EWOULDBLOCK &&
           rblk_deadline_left_ms(deadline) > 0)
        poll(NULL, 0, LOCK_PAUSE_MS);
    if (rc == 0)
        return 0;
    if (errno == EWOULDBLOCK)
        return fail(v, err, errlen, -EBUSY,
                    "is served already, by another rblkd or under another "
                    "name; stop that one first");
    return fail(v, err, errlen, -errno, "cannot be locked: %s", strerror(errno));
}

/*
 * The identity must survive restarts and moving the file, so it is kept with the file where
 * extended attributes can be written, and otherwise made from where the file is. The name goes in,
 * so that a copy of the file (which takes the attribute along) under another name is another
 * volume.
 */
static void make_identity(struct volume *v, const struct stat *st, bool trial)
{
    char text[UUID_STR_LEN] = "";
    uuid_t base;
    ssize_t len = fgetxattr(v->fd, IDENTITY_XATTR, text, sizeof(text) - 1);

    if (len != UUID_STR_LEN - 1 || uuid_parse(text, base) != 0) {
        uuid_generate(base);
        uuid_unparse_lower(base, text);
        if (trial || v->read_only ||
            fsetxattr(v->fd, IDENTITY_XATTR, text, UUID_STR_LEN - 1, 0) < 0) {
            char where[64];
            int n =
                S_ISBLK(st->st_mode)
                    ? snprintf(where, sizeof(where), "block:%llx", (unsigned long long)st->st_rdev)
                    : snprintf(where, sizeof(where), "file:%llx:%llx",
                               (unsigned long long)st->st_dev, (unsigned long long)st->st_ino);

            uuid_generate_sha1(base, identity_space, where, (size_t)n);
        }
    }
    uuid_generate_sha1(v->uuid, base, v->name, strlen(v->name));
}

static int map_file(struct volume *v, char *err, size_t errlen)
{
    void *map;

    if (v->size > SIZE_MAX / 2)
        return fail(v, err, errlen, -EFBIG, "is too large for this machine's address space");
    map = mmap(NULL, (size_t)v->size, PROT_READ, MAP_SHARED | MAP_NORESERVE, v->fd, 0);
    if (map == MAP_FAILED)
        return fail(v, err, errlen, -errno, "cannot be mapped: %s", strerror(errno));
    v->map = map;
    /* A core dump is for our own state, not for the disk. */
    madvise(map, (size_t)v->size, MADV_DONTDUMP);
    return 0;
}

int volume_open(struct volume *v, const struct config_volume *c, unsigned int index, bool trial,
                char *err, size_t errlen)
{
    struct stat st;
    int rc;

    memset(v, 0, sizeof(*v));
    v->fd = -1;
    v->index = index;
    v->read_only = c->read_only;
    snprintf(v->name, sizeof(v->name), "%s", c->name);
    v->path = strdup(c->path);
    if (!v->path) {
        snprintf(err, errlen, "volume %s: out of memory", c->name);
        return -ENOMEM;
    }
    rc = open_file(v, &st, err, errlen);
    if (!rc)
        rc = find_size(v, &st, err, errlen);
    if (!rc && !trial)
        rc = lock_file(v, err, errlen);
    if (!rc)
        rc = map_file(v, err, errlen);
    if (!rc)
        write_pace_init(&v->pace, v->fd);
    if (rc) {
        volume_close(v);
        return rc;
    }
    make_identity(v, &st, trial);
    return 0;
}

void volume_close(struct volume *v)
{
    if (!v || !v->path)
        return;
    if (v->map)
        munmap(v->map, (size_t)v->size);
    if (v->fd >= 0) {
        flock(v->fd, LOCK_UN); /* not only when the kernel has let go of the last reference */
        close(v->fd);
    }
    free(v->path);
    v->map = NULL;
    v->path = NULL;
    v->fd = -1;
}

int volume_map_writable(struct volume *v)
{
    int prot = PROT_READ | PROT_WRITE;

    if (v->map_writable)
        return -EALREADY;
    if (v->read_only) {
        /* Its descriptor cannot back a writable mapping. */
        char self[64];
        void *map;
        int fd;

        snprintf(self, sizeof(self), "/proc/self/fd/%d", v->fd);
        fd = open(self, O_RDWR | O_CLOEXEC);
        if (fd < 0)
            return -errno;
        map = mmap(v->map, (size_t)v->size, prot, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, 0);
        close(fd);
        if (map == MAP_FAILED)
            return -errno;
    } else if (mprotect(v->map, (size_t)v->size, prot) < 0) {
        return -errno;
    }
    v->map_writable = true;
    return 0;
}

bool volume_latch_failed(struct volume *v)
{
    return !atomic_exchange_explicit(&v->failed, true, memory_order_acq_rel);
}

uint32_t volume_flags(struct volume *v)
{
    uint32_t flags = 0;

    if (v->read_only)
        flags |= RBLK_VOLUME_RO;
    if (volume_has_failed(v))
        flags |= RBLK_VOLUME_FAILED;
    if (v->writers)
        flags |= RBLK_VOLUME_ATTACHED;
    return flags;
}

bool volume_modes_conflict(enum rblk_attach_mode a, enum rblk_attach_mode b)
{
    if (a == RBLK_ATTACH_RO || b == RBLK_ATTACH_RO)
        return false;
    return a == RBLK_ATTACH_RW || b == RBLK_ATTACH_RW;
}

int volume_sync(struct volume *v)
{
    return fdatasync(v->fd) < 0 ? -errno : 0;
}
