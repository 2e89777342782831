/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * histogram -- latencies in logarithmic buckets, and counters that one thread writes
 *
 * One thread writes, any thread reads: relaxed atomics, so a reader may see one counter an event
 * ahead of another and never a torn value.
 */
#ifndef RBLK_COMMON_HISTOGRAM_H
#define RBLK_COMMON_HISTOGRAM_H

#include <stdatomic.h>
#include <stdint.h>

/*
 * Logarithmic buckets: each power of two of nanoseconds is divided in 32, so a bucket is at
 * most 3.2 % wide. Values below 32 ns have one bucket each; the last bucket also takes everything
 * above.
 */
#define HISTOGRAM_SUB_BITS 5
#define HISTOGRAM_POWERS 40 /* 2^40 ns: 18 minutes */
#define HISTOGRAM_BUCKETS (HISTOGRAM_POWERS << HISTOGRAM_SUB_BITS)

struct histogram {
    _Atomic uint64_t count[HISTOGRAM_BUCKETS];
    _Atomic uint64_t max_ns;
};

/* The only writer is the calling thread: no locked instruction is needed. */
static inline void counter_add(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

static inline uint64_t counter_get(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

/* The bucket that a value belongs to, and the largest value of a bucket, both ns. */
unsigned int histogram_bucket(uint64_t ns);
uint64_t histogram_bucket_end(unsigned int bucket);

/* Writer only. */
void histogram_record(struct histogram *h, uint64_t ns);

/* A plain copy, several histograms added up. */
struct histogram_sum {
    uint64_t count[HISTOGRAM_BUCKETS];
    uint64_t total;
    uint64_t max_ns;
};

void histogram_add(struct histogram_sum *sum, const struct histogram *h);

/* The value that `share` (0 to 1) of all values do not exceed, ns; 0 when there are none. */
uint64_t histogram_percentile(const struct histogram_sum *sum, double share);

#endif
