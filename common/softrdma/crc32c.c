/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * crc32c.c -- CRC32c (Castagnoli), by the SSE4.2 instruction where the CPU has it, else by table
 */
#include "iwarp.h"

#include <string.h>

#define POLYNOMIAL_REFLECTED 0x82f63b78u

static uint32_t table[256];

static void __attribute__((constructor)) build_table(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;

        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ POLYNOMIAL_REFLECTED : crc >> 1;
        table[i] = crc;
    }
}

/*
 * Table-driven CRC32c. crc: 0 to begin, or the result so far (initial and final complement are
 * inside). Returns the new result. Thread-safe.
 */
__attribute__((no_sanitize("thread"))) uint32_t iwarp_crc32c_table(uint32_t crc, const void *data,
                                                                   size_t length)
{
    const uint8_t *p = data;

    crc = ~crc;
    while (length-- > 0)
        crc = table[(crc ^ *p++) & 0xff] ^ crc >> 8;
    return ~crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"), no_sanitize("thread"))) /* dma.c says why */
static uint32_t
crc32c_sse42(uint32_t crc, const void *data, size_t length)
{
    const uint8_t *p = data;
    uint64_t wide = ~crc;

    for (; length >= 8; length -= 8, p += 8) {
        uint64_t word;

        memcpy(&word, p, sizeof(word));
        wide = __builtin_ia32_crc32di(wide, word);
    }
    for (; length > 0; length--)
        wide = __builtin_ia32_crc32qi((uint32_t)wide, *p++);
    return ~(uint32_t)wide;
}
#endif

/* CRC32c by the fastest means; the contract of iwarp_crc32c_table(). */
uint32_t iwarp_crc32c(uint32_t crc, const void *data, size_t length)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2"))
        return crc32c_sse42(crc, data, length);
#endif
    return iwarp_crc32c_table(crc, data, length);
}
