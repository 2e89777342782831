/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * write_now -- buffered writes that the reactor makes itself, where io_uring would use another thread
 *
 * io_uring executes a buffered write in the submitting thread only on file systems that can write
 * without waiting (RWF_NOWAIT: XFS, Btrfs, block devices). On the others (ext4, tmpfs) it hands each
 * write to a kernel thread, and two wake-ups cost more than a copy into the page cache. There the
 * reactor calls pwrite(2) instead, as long as that does not wait:
 *
 *   - only for whole pages, which never have to be read first;
 *   - a write that took long (the kernel throttled it, or it waited for the journal) gives the
 *     volume back to io_uring for a while, the longer the more often that happens.
 *
 * So a slow disk delays the other volumes of a reactor by one write now and then. Source: man
 * pwritev2(2), RWF_NOWAIT; man io_uring_enter(2), IOSQE_ASYNC.
 */
#ifndef RBLK_TARGET_WRITE_NOW_H
#define RBLK_TARGET_WRITE_NOW_H

#include <stdatomic.h>
#include <stdint.h>

enum write_way {
    WRITE_WAY_UNKNOWN,
    WRITE_WAY_RING, /* io_uring writes in the submitting thread */
    WRITE_WAY_NOW,
};

/* What is known of a volume; advice only, so races are harmless. Zeroed: nothing yet. */
struct write_pace {
    _Atomic int way;                /* enum write_way */
    _Atomic uint64_t not_before_ns; /* rblk_now_ns clock; until then io_uring writes */
    _Atomic uint32_t pause_ms;      /* the last time it was given back; 0: never */
};

/*
 * Writes length bytes at offset of fd now, if that is the better way. Returns the bytes written
 * (perhaps fewer), a negative errno, or -EAGAIN: nothing was tried, io_uring shall do it. Any thread.
 */
int64_t write_now(struct write_pace *pace, int fd, const void *data, uint32_t length,
                  uint64_t offset);

/* Tells how long a write of length bytes took that began at start_ns. For write_now and its test. */
void write_now_learn(struct write_pace *pace, uint32_t length, uint64_t start_ns, uint64_t end_ns);

#endif
