/* SPDX-License-Identifier: BSD-2-Clause */
/* write_now -- buffered writes that the reactor makes itself (write_now.h says when and why) */
#include "write_now.h"

#include <errno.h>
#include <linux/magic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "clock.h"

/* A write that took longer than this, and 2 ns a byte, waited for something. */
#define SLOW_NS 1000000u
#define SLOW_NS_PER_BYTE 2u

/* How long after a slow write the next ones are looked at. */
#define SUSPECT_NS 1000000000u

#define PAUSE_MIN_MS 100u
#define PAUSE_MAX_MS 10000u
/* A pause after another one within so many lengths of that is twice as long. */
#define PAUSE_REMEMBERED 10u

bool write_now_slow(uint32_t length, uint64_t took_ns)
{
    return took_ns > SLOW_NS + (uint64_t)length * SLOW_NS_PER_BYTE;
}

void write_now_learn(struct write_pace *pace, uint64_t start_ns, uint64_t end_ns, bool waited)
{
    uint64_t since = atomic_load_explicit(&pace->not_before_ns, memory_order_relaxed);
    uint32_t pause = atomic_load_explicit(&pace->pause_ms, memory_order_relaxed);

    atomic_store_explicit(&pace->suspect_until_ns, end_ns + SUSPECT_NS, memory_order_relaxed);
    if (!waited)
        return;
    if (pause && start_ns < since + (uint64_t)pause * PAUSE_REMEMBERED * 1000000u)
        pause = pause < PAUSE_MAX_MS / 2 ? pause * 2 : PAUSE_MAX_MS;
    else
        pause = PAUSE_MIN_MS;
    atomic_store_explicit(&pace->pause_ms, pause, memory_order_relaxed);
    atomic_store_explicit(&pace->not_before_ns, end_ns + (uint64_t)pause * 1000000u,
                          memory_order_relaxed);
    atomic_store_explicit(&pace->given_back, true, memory_order_relaxed);
}

/* How often this thread has given up the CPU to wait (man getrusage: ru_nvcsw). */
static long waits_so_far(void)
{
    struct rusage usage;

    return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nvcsw : 0;
}

/* Where a buffered write is a copy into memory of this machine. */
static bool is_local(int fd, const struct stat *st)
{
    struct statfs fs;

    if (S_ISBLK(st->st_mode))
        return true;
    return fstatfs(fd, &fs) == 0 && (fs.f_type == TMPFS_MAGIC || fs.f_type == EXT4_SUPER_MAGIC);
}

void write_pace_init(struct write_pace *pace, int fd)
{
    uint32_t page = (uint32_t)sysconf(_SC_PAGESIZE);
    struct stat st;

    *pace = (struct write_pace){.unit = page, .way = WRITE_WAY_RING};
    if (fstat(fd, &st) < 0)
        return;
    if (st.st_blksize > (blksize_t)page)
        pace->unit = (uint32_t)st.st_blksize;
    if (is_local(fd, &st))
        pace->way = WRITE_WAY_UNKNOWN;
}

/* The first write finds out, without waiting, whether that can be done on this file. */
static int64_t find_way(struct write_pace *pace, int fd, const void *data, uint32_t length,
                        uint64_t offset)
{
    struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = length};
    ssize_t n = pwritev2(fd, &iov, 1, (off_t)offset, RWF_NOWAIT);
    bool refused = n < 0 && errno == EOPNOTSUPP;

    if (n < 0 && !refused && errno != EAGAIN && errno != EINVAL)
        return -EAGAIN; /* says nothing about the way; io_uring tells the error */
    atomic_store_explicit(&pace->way, refused ? WRITE_WAY_NOW : WRITE_WAY_RING,
                          memory_order_relaxed);
    return n < 0 ? -EAGAIN : n;
}

/* A volume that had to be given back stays so while there is a queue of writes to wait behind. */
static bool paused(struct write_pace *pace, uint64_t now_ns)
{
    if (!atomic_load_explicit(&pace->given_back, memory_order_relaxed))
        return false;
    if (now_ns < atomic_load_explicit(&pace->not_before_ns, memory_order_relaxed) ||
        atomic_load_explicit(&pace->in_ring, memory_order_relaxed) > 0)
        return true;
    atomic_store_explicit(&pace->given_back, false, memory_order_relaxed);
    return false;
}

int64_t write_now(struct write_pace *pace, int fd, const void *data, uint32_t length,
                  uint64_t offset, uint64_t *spent_ns)
{
    int way = atomic_load_explicit(&pace->way, memory_order_relaxed);
    uint64_t start, end;
    int64_t result;
    bool suspect;
    long waits;

    if (way == WRITE_WAY_RING || offset % pace->unit || length % pace->unit)
        return -EAGAIN;
    if (way == WRITE_WAY_UNKNOWN)
        return find_way(pace, fd, data, length, offset);
    start = rblk_now_ns();
    if (paused(pace, start))
        return -EAGAIN;
    suspect = start < atomic_load_explicit(&pace->suspect_until_ns, memory_order_relaxed);
    waits = suspect ? waits_so_far() : 0;
    result = pwrite(fd, data, length, (off_t)offset);
    if (result < 0)
        result = errno == EINTR ? -EAGAIN : -errno;
    end = rblk_now_ns();
    if (write_now_slow(length, end - start))
        write_now_learn(pace, start, end, suspect && waits_so_far() != waits);
    *spent_ns += end - start;
    return result;
}
