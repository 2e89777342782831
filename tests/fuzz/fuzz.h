/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fuzz.h -- what the libFuzzer targets share: checks, a cursor over the input
 */
#ifndef RBLK_TESTS_FUZZ_H
#define RBLK_TESTS_FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A property that holds whatever the input is; libFuzzer keeps the input when it does not. */
#define FUZZ_CHECK(condition)                                                       \
    do {                                                                            \
        if (!(condition)) {                                                         \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            abort();                                                                \
        }                                                                           \
    } while (0)

/* The part of the input that has not been used. */
struct fuzz_input {
    const uint8_t *data;
    size_t left;
};

/* One byte, or zero when none is left. */
static inline uint8_t fuzz_byte(struct fuzz_input *in)
{
    if (in->left == 0)
        return 0;
    in->left--;
    return *in->data++;
}

/* A number that decides something small, from a state that the input seeds. */
static inline uint32_t fuzz_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 16;
}

/* A copy of exactly the size, so that the sanitizer sees a read beyond its end. */
static inline uint8_t *fuzz_copy(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size > 0 ? size : 1);

    FUZZ_CHECK(copy != NULL);
    if (size > 0)
        memcpy(copy, data, size);
    return copy;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
