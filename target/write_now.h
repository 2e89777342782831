/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * write_now -- buffered writes that the reactor makes itself, where io_uring would use another
 * thread
 *
 * io_uring executes a buffered write in the submitting thread only where that can be done without
 * waiting (RWF_NOWAIT: XFS, Btrfs). For ext4, tmpfs and block devices it hands each write to a
 * kernel thread, and two wake-ups cost more than a copy into the page cache. There the reactor
 * calls pwrite(2) instead, as long as that does not wait:
 *
 *   - only on these, where such a write is a copy into local memory: what is behind NFS or FUSE may
 *     hang;
 *   - only for whole pages, which never have to be read first;
 *   - only for a bounded time in each round of the reactor, so that the others get their turn;
 *   - a write that took long because it waited (the kernel throttled it, or the journal was busy)
 *     gives the volume back to io_uring for a while, the longer the more often that happens.
 *
 * A write also takes long when another thread gets the CPU meanwhile, which says nothing about the
 * file. What tells the two apart is a system call, so writes are only looked at in this way for
 * some time after a slow one: the first slow write makes suspicious, the next that waits decides.
 *
 * So a slow disk delays the other volumes of a reactor by one write now and then. A file system
 * that is frozen (fsfreeze) holds up the reactor that writes to it until it thaws. Source: man
 * pwritev2, RWF_NOWAIT; ext4_buffered_write_iter and blkdev_write_iter of Linux.
 */
#ifndef RBLK_TARGET_WRITE_NOW_H
#define RBLK_TARGET_WRITE_NOW_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum write_way {
    WRITE_WAY_UNKNOWN,
    WRITE_WAY_RING, /* io_uring does it */
    WRITE_WAY_NOW,
};

/* What is known of a volume; advice only, so races are harmless. */
struct write_pace {
    uint32_t unit;            /* bytes: what can be written without reading; set at the start */
    _Atomic int way;          /* enum write_way */
    _Atomic uint32_t in_ring; /* writes that io_uring has now */
    _Atomic uint64_t suspect_until_ns; /* rblk_now_ns clock; until then waits are looked for */
    _Atomic uint64_t not_before_ns;    /* the same clock; until then io_uring writes */
    _Atomic uint32_t pause_ms;         /* the last time it was given back; 0: never */
    _Atomic bool given_back;           /* io_uring still has writes from the pause, or may have */
};

/* What the kind of fd's file allows. Before the reactors know it. */
void write_pace_init(struct write_pace *pace, int fd);

/*
 * Writes length bytes at offset of fd now, if that is the better way, and adds the time it took to
 * *spent_ns. Returns the bytes written (perhaps fewer), a negative errno, or -EAGAIN: nothing was
 * tried, io_uring shall do it. Any thread.
 */
int64_t write_now(struct write_pace *pace, int fd, const void *data, uint32_t length,
                  uint64_t offset, uint64_t *spent_ns);

/* Does a write of length bytes that took so long count as slow? For write_now and its test. */
bool write_now_slow(uint32_t length, uint64_t took_ns);
/*
 * Tells of a slow write. waited: it is known that it waited, and not that another thread had the
 * CPU. For write_now and its test.
 */
void write_now_learn(struct write_pace *pace, uint64_t start_ns, uint64_t end_ns, bool waited);

#endif
