/* SPDX-License-Identifier: BSD-2-Clause */
/* runtime -- the folder in which the mounts of this machine keep their status sockets */
#ifndef RBLK_COMMON_RUNTIME_H
#define RBLK_COMMON_RUNTIME_H

#include <stddef.h>

/* A mount process PID listens on PID.sock: SOCK_STREAM, answers each connection with one JSON
 * object. */
#define RBLK_STATUS_SUFFIX ".sock"
/* Beside it PID.mount: a symbolic link to the mountpoint, which tells whose process does not answer. */
#define RBLK_MOUNT_LINK_SUFFIX ".mount"

/*
 * Writes the folder's path: $RBLK_RUNTIME_DIR, else /run/rblk for root, else $XDG_RUNTIME_DIR/rblk,
 * else /tmp/rblk-UID. Creates nothing. 0 or -ENAMETOOLONG.
 */
int rblk_runtime_dir(char *buf, size_t len);

/*
 * The same, and creates the folder (mode 0700). Refuses one that belongs to another user. 0, or a
 * negative errno with one line in err.
 */
int rblk_runtime_prepare(char *buf, size_t len, char *err, size_t errlen);

#endif
