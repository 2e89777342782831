/* SPDX-License-Identifier: BSD-2-Clause */
/* wake -- what it costs on this machine to wake a sleeping thread, and how long to spin instead */
#ifndef RBLK_COMMON_WAKE_H
#define RBLK_COMMON_WAKE_H

#include <stdint.h>

#include "spin.h"

/* Bounds of what rblk_spin_limit_ns returns where it is worth to spin, nanoseconds. */
#define RBLK_SPIN_LIMIT_MIN_NS 50000u
#define RBLK_SPIN_LIMIT_MAX_NS 1000000u

/*
 * Nanoseconds from a write(2) to an eventfd until a thread that slept on it runs: the median of a
 * few tries, made once in a process by whoever asks first, which takes him a millisecond or so (in
 * a virtual machine ten). When it cannot be measured, what most machines need. Any thread.
 */
uint64_t rblk_wake_cost_ns(void);

/*
 * How long a wait may spin before it sleeps, nanoseconds, unless the user says otherwise. Spinning
 * is worth what it saves, so the limit grows with the cost of a wake-up. It is a multiple of that,
 * because whoever we wait for often sleeps until our last answer wakes him: his wake-up and his
 * work lie inside our wait. 0: never, because the calling thread has only one CPU to run on, where
 * a spin keeps the others from the work it waits for (sched_getaffinity(2)). Any thread.
 */
uint64_t rblk_spin_limit_ns(void);

/* What the user says of the longest spin when he says nothing. */
#define RBLK_SPIN_AUTO UINT32_MAX

/*
 * Prepares a spin for the calling thread, or one that is as free to move. longest_us: microseconds,
 * or RBLK_SPIN_AUTO for rblk_spin_limit_ns(); with one CPU it never spins, whatever that is.
 */
void rblk_spin_init(struct spin *s, uint64_t longest_us);

#endif
