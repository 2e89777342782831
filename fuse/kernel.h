/* SPDX-License-Identifier: BSD-2-Clause */
/* kernel -- the connection to the kernel: mounting, INIT, one descriptor per worker */
#ifndef RBLK_FUSE_KERNEL_H
#define RBLK_FUSE_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/uio.h>

#include "frontend.h"

/*
 * A request as read from the descriptor: the kernel puts this many bytes of headers before the data
 * of a WRITE (struct fuse_in_header and struct fuse_write_in of linux/fuse.h).
 */
#define KERNEL_WRITE_HEADER 80u
/* Bytes that one read of the descriptor may return. */
#define KERNEL_REQUEST_MAX (KERNEL_WRITE_HEADER + FRONTEND_MAX_IO)

/*
 * Mounts f->mountpoint and answers the kernel's first request, so the disk is usable as soon as
 * workers run. 0, or -errno with one line in err and nothing mounted.
 */
int kernel_open(struct frontend *f, char *err, size_t errlen);
/* A non-blocking descriptor of the connection for one worker, which the caller closes; or -errno.
 */
int kernel_clone(const struct frontend *f);
/* Descriptor that replies of the calling thread go to: the one that the request was read from. */
void kernel_reply_to(int fd);
/*
 * Has replies of the calling thread offered to take(), which returns whether it will write the
 * reply itself, later; it sees parts of the reply that are gone when it returns. NULL: none any
 * more.
 */
void kernel_offer_replies(bool (*take)(void *opaque, const struct iovec *iov, int count),
                          void *opaque);
/*
 * Takes the mount away, if it is still there. Open files of a busy one get errors from when the
 * workers end. Nothing when the session was never opened.
 */
void kernel_unmount(struct frontend *f);
/* Closes and frees. */
void kernel_close(struct frontend *f);

#endif
