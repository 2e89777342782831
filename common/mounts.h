/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mounts -- what is mounted where, from /proc/self/mountinfo (man 5 proc), and taking it away
 *
 * Nothing here looks into the mount itself, so a dead or hanging one cannot make it wait.
 */
#ifndef RBLK_COMMON_MOUNTS_H
#define RBLK_COMMON_MOUNTS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/* The type under which the kernel lists a mount of ours. */
#define RBLK_MOUNT_TYPE "fuse.rblk"

struct rblk_mount {
    char path[PATH_MAX];
    char type[64];
    char source[1024];
    unsigned int major, minor; /* device number; the minor names a FUSE connection */
};

/* Parses one line of mountinfo. 0 or -EINVAL; *mount is untouched on failure. */
int rblk_mount_parse(struct rblk_mount *mount, const char *line);

/* The topmost mount at exactly this absolute path: 0, -ENOENT, or -errno. */
int rblk_mount_find(struct rblk_mount *mount, const char *path);

/*
 * Calls back for every mount of type RBLK_MOUNT_TYPE, oldest first, until the callback returns
 * non-zero, and returns that; 0 at the end; -errno.
 */
int rblk_mount_each(int (*callback)(void *opaque, const struct rblk_mount *mount), void *opaque);

/*
 * The absolute path without symbolic links, as mountinfo would show it. Works for a dead mount too.
 * 0 or -errno.
 */
int rblk_mount_path(char out[PATH_MAX], const char *path);

enum rblk_remove {
    RBLK_REMOVE_NORMAL, /* refused while in use */
    RBLK_REMOVE_LAZY,   /* gone from the tree at once, for open files later */
    RBLK_REMOVE_FORCE,  /* aborts a FUSE connection first, where the caller's rights allow it */
};

/*
 * Unmounts a FUSE mount: umount2(2), or fusermount3 for who is not root. 0, or a negative errno
 * (-EBUSY: in use) with one line in err.
 */
int rblk_mount_remove(const char *path, enum rblk_remove how, char *err, size_t errlen);

#endif
