/* SPDX-License-Identifier: BSD-2-Clause */
/* mountpoint -- is there anything in the way of a mount? */
#ifndef RBLK_FUSE_MOUNTPOINT_H
#define RBLK_FUSE_MOUNTPOINT_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

struct mountpoint {
    char path[PATH_MAX]; /* absolute, without symbolic links */
    bool on_file;        /* a regular file, not a folder */
};

/*
 * Looks at everything that a mount needs on this side: the mountpoint (a dead mount of ours on it
 * is taken away), /dev/fuse, fusermount3 for who is not root. 0; or -errno with one line in err and
 * *m untouched.
 */
int mountpoint_check(struct mountpoint *m, const char *path, bool allow_other, char *err,
                     size_t errlen);

#endif
