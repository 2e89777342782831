/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * kernel -- the connection to the kernel: mounting, INIT, one descriptor per worker
 *
 * Everything here runs in the main thread, but for kernel_reply_to and the hooks below it, which
 * run in the thread that answers a request.
 */

#define FUSE_USE_VERSION 312

#include "kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <fuse3/fuse_lowlevel.h>
#include <linux/fuse.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "clock.h"
#include "log.h"
#include "mounts.h"
#include "operations.h"

_Static_assert(sizeof(struct fuse_in_header) + sizeof(struct fuse_write_in) == KERNEL_WRITE_HEADER,
               "data of a WRITE starts where the buffers expect it");

/* FUSE_DIRECT_IO_ALLOW_MMAP, newer than the headers of Debian 12: Linux 6.6, bit 36. */
#define MMAP_MINOR 39
#define FLAGS2_DIRECT_IO_ALLOW_MMAP (1u << 4)

/* The kernel sends INIT at once. */
#define INIT_TIMEOUT_MS 10000

static __thread int reply_fd = -1;

static __thread struct {
    bool (*take)(void *opaque, const struct iovec *iov, int count);
    void *opaque;
} offer;

/* Why libfuse could not mount. Main thread, while it mounts. */
static char mount_message[256];

void kernel_reply_to(int fd)
{
    reply_fd = fd;
}

void kernel_offer_replies(bool (*take)(void *opaque, const struct iovec *iov, int count),
                          void *opaque)
{
    offer.take = take;
    offer.opaque = opaque;
}

static ssize_t total(const struct iovec *iov, int count)
{
    size_t n = 0;

    for (int i = 0; i < count; i++)
        n += iov[i].iov_len;
    return (ssize_t)n;
}

/*
 * Asks for shared mappings of files that are otherwise not cached, which libfuse 3.14 has no name
 * for: bit 36 of the flags in the reply to INIT. Not when others write to the volume: a mapping is
 * a cache.
 */
static void allow_mmap(const struct frontend *f, const struct iovec *iov, int count)
{
    struct fuse_init_out *out;

    if (f->kernel_minor < MMAP_MINOR || f->options->mode == RBLK_MODE_SHARED || count != 2 ||
        iov[1].iov_len < sizeof(*out))
        return;
    out = iov[1].iov_base;
    out->flags |= FUSE_INIT_EXT;
    out->flags2 |= FLAGS2_DIRECT_IO_ALLOW_MMAP;
}

static ssize_t hook_writev(int fd, struct iovec *iov, int count, void *userdata)
{
    struct frontend *f = userdata;
    ssize_t n;

    if (!f->answered_init && f->initialised) {
        allow_mmap(f, iov, count);
        f->answered_init = true;
    }
    if (offer.take && offer.take(offer.opaque, iov, count))
        return total(iov, count);
    n = writev(reply_fd >= 0 ? reply_fd : fd, iov, count);
    /* Unmounted meanwhile: nobody waits for the answer, and libfuse would complain on stderr. */
    return n < 0 && errno == ENODEV ? total(iov, count) : n;
}

static ssize_t hook_read(int fd, void *buf, size_t len, void *userdata)
{
    (void)userdata;
    return read(fd, buf, len);
}

static void log_libfuse(enum fuse_log_level level, const char *fmt, va_list ap)
{
    char text[256];
    size_t len;

    (void)level;
    vsnprintf(text, sizeof(text), fmt, ap);
    len = strcspn(text, "\n");
    text[len] = '\0';
    log_debug("libfuse: %s", text);
    if (len > 0 && reply_fd < 0)
        snprintf(mount_message, sizeof(mount_message), "%s", text);
}

/* Adds a comma-separated option to list; commas and backslashes of value are escaped as libfuse
 * wants it. */
static void add_option(char *list, size_t size, const char *name, const char *value)
{
    size_t used = strlen(list);

    used += (size_t)snprintf(list + used, size - used, "%s%s", used ? "," : "", name);
    for (; value && *value && used + 2 < size; value++) {
        if (*value == ',' || *value == '\\')
            list[used++] = '\\';
        list[used++] = *value;
        list[used] = '\0';
    }
}

static struct fuse_session *new_session(struct frontend *f)
{
    char list[4096] = "", number[32];
    char *argv[] = {"rblk-fuse", "-o", list, NULL};
    struct fuse_args args = FUSE_ARGS_INIT(3, argv);
    struct fuse_session *session;

    add_option(list, sizeof(list), "subtype=", "rblk");
    add_option(list, sizeof(list), "fsname=", f->options->uri);
    add_option(list, sizeof(list), "default_permissions", NULL);
    snprintf(number, sizeof(number), "%u", FRONTEND_MAX_IO);
    add_option(list, sizeof(list), "max_read=", number);
    if (f->read_only)
        add_option(list, sizeof(list), "ro", NULL);
    if (f->options->allow_other)
        add_option(list, sizeof(list), "allow_other", NULL);
    if (f->options->mount_options[0])
        add_option(list, sizeof(list), f->options->mount_options, NULL);
    session = fuse_session_new(&args, &frontend_operations, sizeof(frontend_operations), f);
    fuse_opt_free_args(&args);
    return session;
}

/*
 * Mounts with what libfuse and fusermount3 say on stderr caught, for it is the reason of a failure.
 * Returns what fuse_session_mount does.
 */
static int mount_quietly(struct frontend *f, char *said, size_t saidlen)
{
    int catcher = memfd_create("stderr", MFD_CLOEXEC);
    int saved = catcher < 0 ? -1 : fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    int rc;
    ssize_t n = 0;

    fflush(stderr);
    if (saved >= 0)
        dup2(catcher, STDERR_FILENO);
    mount_message[0] = '\0';
    rc = fuse_session_mount(f->session, f->mountpoint);
    if (saved >= 0) {
        fflush(stderr);
        dup2(saved, STDERR_FILENO);
        close(saved);
        n = pread(catcher, said, saidlen - 1, 0);
    }
    if (catcher >= 0)
        close(catcher);
    said[n > 0 ? n : 0] = '\0';
    said[strcspn(said, "\n")] = '\0';
    if (!said[0])
        snprintf(said, saidlen, "%s", mount_message);
    return rc;
}

/* Answers requests until INIT has been one of them. */
static int answer_init(struct frontend *f, char *err, size_t errlen)
{
    uint64_t deadline = rblk_deadline_ms(INIT_TIMEOUT_MS);
    int fd = fuse_session_fd(f->session), rc = 0;
    char *memory = malloc(KERNEL_REQUEST_MAX);

    if (!memory) {
        snprintf(err, errlen, "%s: out of memory", f->mountpoint);
        return -ENOMEM;
    }
    while (rc == 0 && !f->initialised) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        struct fuse_buf buf = {.mem = memory};
        ssize_t n;

        rc = poll(&p, 1, rblk_deadline_left_ms(deadline));
        if (rc == 0) {
            rc = -ETIMEDOUT;
        } else if (rc > 0) {
            rc = 0;
            n = read(fd, memory, KERNEL_REQUEST_MAX);
            if (n < 0) {
                if (errno != EINTR && errno != EAGAIN && errno != ENOENT)
                    rc = -errno;
                continue;
            }
            buf.size = (size_t)n;
            fuse_session_process_buf(f->session, &buf);
            if (fuse_session_exited(f->session))
                rc = -EPROTO;
        } else {
            rc = errno == EINTR ? 0 : -errno;
        }
    }
    free(memory);
    if (rc < 0)
        snprintf(err, errlen, "%s: the kernel's FUSE does not answer as expected (%s)",
                 f->mountpoint, strerror(-rc));
    return rc;
}

int kernel_open(struct frontend *f, char *err, size_t errlen)
{
    static const struct fuse_custom_io io = {.writev = hook_writev, .read = hook_read};
    struct rblk_mount *mount;
    char said[256];
    int rc;

    fuse_set_log_func(log_libfuse);
    mount_message[0] = '\0';
    f->session = new_session(f);
    if (!f->session) {
        snprintf(err, errlen, "libfuse refused the options: %s", mount_message);
        return -EINVAL;
    }
    if (mount_quietly(f, said, sizeof(said)) != 0) {
        snprintf(err, errlen, "%s cannot be mounted: %s", f->mountpoint,
                 said[0] ? said : "libfuse gave no reason");
        rc = -EIO;
        goto destroy;
    }
    rc = fuse_session_custom_io(f->session, &io, fuse_session_fd(f->session));
    if (rc < 0)
        goto unmount;
    rc = answer_init(f, err, errlen);
    if (rc < 0)
        goto unmount;
    mount = malloc(sizeof(*mount));
    if (mount && rblk_mount_find(mount, f->mountpoint) == 0)
        f->device_minor = mount->minor;
    free(mount);
    return 0;

unmount:
    fuse_session_unmount(f->session);
destroy:
    fuse_session_destroy(f->session);
    f->session = NULL;
    return rc;
}

int kernel_clone(const struct frontend *f)
{
    uint32_t original = (uint32_t)fuse_session_fd(f->session);
    int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC | O_NONBLOCK);
    int rc;

    if (fd < 0)
        return -errno;
    if (ioctl(fd, FUSE_DEV_IOC_CLONE, &original) < 0) {
        rc = -errno;
        close(fd);
        return rc;
    }
    return fd;
}

void kernel_unmount(struct frontend *f)
{
    struct rblk_mount *mount;
    char err[256];

    if (!f->session)
        return;
    fuse_session_unmount(f->session);
    /* libfuse leaves it alone when the connection was aborted: it would stay as a dead mount. */
    mount = malloc(sizeof(*mount));
    if (mount && rblk_mount_find(mount, f->mountpoint) == 0 &&
        strcmp(mount->type, RBLK_MOUNT_TYPE) == 0 && mount->minor == f->device_minor &&
        rblk_mount_remove(f->mountpoint, RBLK_REMOVE_LAZY, err, sizeof(err)) < 0)
        log_warning("%s", err);
    free(mount);
}

void kernel_close(struct frontend *f)
{
    if (!f->session)
        return;
    fuse_session_destroy(f->session);
    f->session = NULL;
}
