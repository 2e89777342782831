/* SPDX-License-Identifier: BSD-2-Clause */
/* helper -- what the helper programs of the integration tests share: ends, time, random numbers */
#ifndef RBLK_TESTS_HELPER_H
#define RBLK_TESTS_HELPER_H

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/provider.h"
#include "common/size.h"

/* Exit statuses that scripts tell apart. */
enum helper_status {
    HELPER_FAILED = 1, /* what was tested is wrong */
    HELPER_USAGE = 2,
    HELPER_IO_ERROR = 3, /* an I/O call failed, which some tests want */
};

/* Ends the program with one line on standard error. */
__attribute__((noreturn, format(printf, 2, 3))) static inline void helper_end(int status,
                                                                              const char *format,
                                                                              ...)
{
    va_list arguments;

    fflush(stdout);
    va_start(arguments, format);
    fprintf(stderr, "%s: ", program_invocation_short_name);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(status);
}

#define helper_fail(...) helper_end(HELPER_FAILED, __VA_ARGS__)

/* First thing in main() of a helper that uses RDMA: puts it onto the provider that is in use. */
static inline void helper_select_provider(char **argv)
{
    enum rblk_provider chosen;
    char error[512] = "";

    if (rblk_provider_select(&chosen, NULL, argv, error, sizeof(error)) != 0)
        helper_fail("%s", error);
}

/* An unsigned number or size ("64M"); anything else ends the program. */
static inline uint64_t helper_number(const char *text)
{
    uint64_t value;

    if (rblk_size_parse(&value, text) != 0)
        helper_end(HELPER_USAGE, "\"%s\" is not a number", text);
    return value;
}

/* Nanoseconds of the monotonic clock. */
static inline uint64_t helper_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline void helper_sleep_ms(unsigned int milliseconds)
{
    struct timespec time = {milliseconds / 1000, (long)(milliseconds % 1000) * 1000000};

    nanosleep(&time, NULL);
}

/* splitmix64 (Steele, Lea, Flood 2014): the next number of the sequence that *state stands in. */
static inline uint64_t helper_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* A number below limit, which is not 0. */
static inline uint64_t helper_below(uint64_t *state, uint64_t limit)
{
    return helper_random(state) % limit;
}

static inline void helper_random_bytes(uint64_t *state, void *buffer, size_t length)
{
    unsigned char *bytes = buffer;

    while (length > 0) {
        uint64_t word = helper_random(state);
        size_t part = length < sizeof(word) ? length : sizeof(word);

        memcpy(bytes, &word, part);
        bytes += part;
        length -= part;
    }
}

#endif
