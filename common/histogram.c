/* SPDX-License-Identifier: BSD-2-Clause */
/* histogram -- latencies in logarithmic buckets */

#include "histogram.h"

#define SUB (1u << HISTOGRAM_SUB_BITS)

unsigned int histogram_bucket(uint64_t ns)
{
    unsigned int power, bucket;

    if (ns < SUB)
        return (unsigned int)ns;
    power = 63u - (unsigned int)__builtin_clzll(ns);
    bucket = ((power - HISTOGRAM_SUB_BITS + 1) << HISTOGRAM_SUB_BITS) +
             (unsigned int)((ns >> (power - HISTOGRAM_SUB_BITS)) & (SUB - 1));
    return bucket < HISTOGRAM_BUCKETS ? bucket : HISTOGRAM_BUCKETS - 1;
}

uint64_t histogram_bucket_end(unsigned int bucket)
{
    unsigned int shift;

    if (bucket < SUB)
        return bucket;
    shift = (bucket >> HISTOGRAM_SUB_BITS) - 1;
    return ((uint64_t)(SUB + (bucket & (SUB - 1)) + 1) << shift) - 1;
}

void histogram_record(struct histogram *h, uint64_t ns)
{
    counter_add(&h->count[histogram_bucket(ns)], 1);
    if (ns > counter_get(&h->max_ns))
        atomic_store_explicit(&h->max_ns, ns, memory_order_relaxed);
}

void histogram_add(struct histogram_sum *sum, const struct histogram *h)
{
    uint64_t max = counter_get(&h->max_ns);

    for (unsigned int i = 0; i < HISTOGRAM_BUCKETS; i++) {
        uint64_t n = counter_get(&h->count[i]);

        sum->count[i] += n;
        sum->total += n;
    }
    if (max > sum->max_ns)
        sum->max_ns = max;
}

uint64_t histogram_percentile(const struct histogram_sum *sum, double share)
{
    uint64_t wanted = (uint64_t)(share * (double)sum->total + 0.5);
    uint64_t seen = 0;

    if (wanted < 1)
        wanted = 1;
    for (unsigned int i = 0; i < HISTOGRAM_BUCKETS && sum->total > 0; i++) {
        seen += sum->count[i];
        if (seen >= wanted) {
            uint64_t end = histogram_bucket_end(i);

            return end < sum->max_ns ? end : sum->max_ns;
        }
    }
    return sum->total > 0 ? sum->max_ns : 0;
}
