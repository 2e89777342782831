/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * stats -- the target's counters
 *
 * Each thread has a set of its own and is its only writer, so counting takes no locked instruction;
 * the control thread reads them all, relaxed, when a client asks.
 */
#ifndef RBLK_TARGET_STATS_H
#define RBLK_TARGET_STATS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "wire.h"

typedef _Atomic uint64_t counter;

/* Meanings: struct rblk_stats_reply. Aligned: no two threads share a cache line. */
struct counters {
    _Alignas(64) counter control_messages;
    counter io_messages, writes, write_bytes, flushes, fua_writes, fdatasyncs, errors;
    counter extents_mapped, extent_bytes, sessions, queues, protocol_errors;
};

/* Adds n (which may be a wrapped negative number). The owner of the counter only. */
static inline void counter_add(counter *c, uint64_t n)
{
    atomic_store_explicit(c, atomic_load_explicit(c, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

static inline void counter_sub(counter *c, uint64_t n)
{
    counter_add(c, (uint64_t)0 - n);
}

/* Adds one thread's counters to the sum. Any thread. */
void stats_add(struct rblk_stats_reply *sum, const struct counters *counters);

#endif
