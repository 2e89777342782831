/* SPDX-License-Identifier: BSD-2-Clause */
/* mountpoint -- is there anything in the way of a mount? */

#include "mountpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "child.h"
#include "mounts.h"

/* A living mount process answers a getattr within this time. */
#define PROBE_MS 2000

static int check_device(char *err, size_t errlen)
{
    int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    int rc;

    if (fd >= 0) {
        close(fd);
        return 0;
    }
    rc = -errno;
    if (rc == -ENOENT || rc == -ENODEV || rc == -ENXIO)
        snprintf(err, errlen,
                 "/dev/fuse is missing: load the kernel module (modprobe fuse), or give the "
                 "container the "
                 "device (--device /dev/fuse --cap-add SYS_ADMIN)");
    else
        snprintf(err, errlen,
                 "/dev/fuse cannot be opened: %s; it should be readable and writable by "
                 "everybody, and a "
                 "container needs --device /dev/fuse",
                 strerror(-rc));
    return rc;
}

static bool in_path(const char *program)
{
    const char *path = getenv("PATH");
    char *copy = strdup(path ? path : "/usr/bin:/bin"), *saved = NULL;
    char full[PATH_MAX];
    bool found = access("/usr/bin/fusermount3", X_OK) == 0;

    if (!copy)
        return false;
    for (char *dir = strtok_r(copy, ":", &saved); dir && !found;
         dir = strtok_r(NULL, ":", &saved)) {
        snprintf(full, sizeof(full), "%s/%s", dir, program);
        found = access(full, X_OK) == 0;
    }
    free(copy);
    return found;
}

/* "user_allow_other" alone on a line of /etc/fuse.conf lets users other than root say allow_other.
 */
static bool user_allow_other(void)
{
    char line[256];
    bool allowed = false;
    FILE *f = fopen("/etc/fuse.conf", "re");

    if (!f)
        return false;
    while (!allowed && fgets(line, sizeof(line), f)) {
        line[strcspn(line, " \t\r\n")] = '\0';
        allowed = strcmp(line, "user_allow_other") == 0;
    }
    fclose(f);
    return allowed;
}

static int check_helper(bool allow_other, char *err, size_t errlen)
{
    if (geteuid() == 0)
        return 0;
    if (!in_path("fusermount3")) {
        snprintf(err, errlen,
                 "fusermount3 is missing, and only root can mount without it; install the "
                 "package fuse3");
        return -ENOENT;
    }
    if (allow_other && !user_allow_other()) {
        snprintf(
            err, errlen,
            "allow-other is not permitted to you: add the line user_allow_other to /etc/fuse.conf");
        return -EPERM;
    }
    return 0;
}

static int look(const void *path)
{
    struct statx st;

    return statx(AT_FDCWD, path, AT_STATX_FORCE_SYNC, STATX_BASIC_STATS, &st) < 0 ? -errno : 0;
}

/*
 * Has the process behind a mount ended? The kernel answers stat(2) from its cache for a while, so it
 * is told to ask; a process that lives but does not answer must not hang us.
 */
static bool is_dead(const char *path)
{
    int rc = rblk_child_call(look, path, PROBE_MS);

    return rc == -ENOTCONN || rc == -ECONNABORTED;
}

/* What is mounted there already? A dead mount of ours goes; a living one is in the way. */
static int check_mounted(const char *path, char *err, size_t errlen)
{
    struct rblk_mount *mount = malloc(sizeof(*mount));
    int rc;

    if (!mount) {
        snprintf(err, errlen, "out of memory");
        return -ENOMEM;
    }
    rc = rblk_mount_find(mount, path);
    if (rc < 0) {
        rc = 0; /* nothing, or no /proc: the kernel will have the last word */
    } else if (strcmp(mount->type, RBLK_MOUNT_TYPE) != 0) {
        rc = 0;
    } else if (!is_dead(path)) {
        snprintf(err, errlen,
                 "%s has %s mounted on it already; rblk unmount %s, or choose another place", path,
                 mount->source, path);
        rc = -EBUSY;
    } else {
        rc = rblk_mount_remove(path, RBLK_REMOVE_LAZY, err, errlen);
    }
    free(mount);
    return rc;
}

static int check_path(const struct mountpoint *m, const char *path, struct stat *st, char *err,
                      size_t errlen)
{
    int rc;

    if (stat(m->path, st) < 0) {
        rc = -errno;
        snprintf(err, errlen, "mountpoint %s: %s", path, strerror(-rc));
        return rc;
    }
    if (!S_ISDIR(st->st_mode) && !S_ISREG(st->st_mode)) {
        snprintf(err, errlen, "mountpoint %s is neither a folder nor a regular file", path);
        return -ENOTDIR;
    }
    if (geteuid() != 0 && access(m->path, W_OK) < 0) {
        rc = -errno;
        snprintf(err, errlen,
                 "mountpoint %s is not yours to write to (%s), so fusermount3 refuses it", path,
                 strerror(-rc));
        return rc;
    }
    return 0;
}

int mountpoint_check(struct mountpoint *out, const char *path, bool allow_other, char *err,
                     size_t errlen)
{
    struct mountpoint m;
    struct stat st;
    int rc;

    rc = rblk_mount_path(m.path, path);
    if (rc < 0) {
        if (rc == -ENOENT)
            snprintf(
                err, errlen,
                "mountpoint %s does not exist; create a folder (mkdir) or a file (touch) there",
                path);
        else
            snprintf(err, errlen, "mountpoint %s: %s", path, strerror(-rc));
        return rc;
    }
    rc = check_mounted(m.path, err, errlen);
    if (rc == 0)
        rc = check_path(&m, path, &st, err, errlen);
    if (rc == 0)
        rc = check_device(err, errlen);
    if (rc == 0)
        rc = check_helper(allow_other, err, errlen);
    if (rc < 0)
        return rc;
    m.on_file = S_ISREG(st.st_mode);
    *out = m;
    return 0;
}
