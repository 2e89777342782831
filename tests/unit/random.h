/* SPDX-License-Identifier: BSD-2-Clause */
/* random -- seeds of randomised tests, and numbers that are the same on every machine */
#ifndef RBLK_TESTS_RANDOM_H
#define RBLK_TESTS_RANDOM_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/clock.h"

/* A seed, never 0: $RBLK_TEST_SEED, else another one each time. It is printed. */
static inline uint64_t random_seed(void)
{
    const char *text = getenv("RBLK_TEST_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 0) : rblk_now_ns();

    seed = seed ? seed : 1;
    printf("%s: RBLK_TEST_SEED=%llu\n", program_invocation_short_name, (unsigned long long)seed);
    fflush(stdout);
    return seed;
}

/* xorshift64* (Vigna). *state begins with a seed. */
static inline uint64_t random_next(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(2685821657736338717);
}

#endif
