/* SPDX-License-Identifier: BSD-2-Clause */
/* clock -- monotonic time and deadlines */
#ifndef RBLK_COMMON_CLOCK_H
#define RBLK_COMMON_CLOCK_H

#include <stdint.h>
#include <time.h>

/* CLOCK_MONOTONIC in nanoseconds. */
static inline uint64_t rblk_now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* A deadline `ms` milliseconds from now, in the same clock. */
static inline uint64_t rblk_deadline_ms(uint64_t ms)
{
    return rblk_now_ns() + ms * 1000000u;
}

/* Milliseconds left until a deadline, rounded up, 0 when it has passed, for poll(2). */
static inline int rblk_deadline_left_ms(uint64_t deadline_ns)
{
    uint64_t now = rblk_now_ns();
    uint64_t left;

    if (now >= deadline_ns)
        return 0;
    left = (deadline_ns - now + 999999u) / 1000000u;
    return left > 2000000000u ? 2000000000 : (int)left;
}

#endif
