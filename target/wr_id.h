/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * wr_id -- what a work request carries so that its completion finds its owner
 *
 * Not a pointer: some drivers leave completions of a destroyed queue pair in a shared completion
 * queue. An index into the owner's table together with a generation makes such a late completion
 * harmless.
 */
#ifndef RBLK_TARGET_WR_ID_H
#define RBLK_TARGET_WR_ID_H

#include <stdint.h>

enum wr_kind {
    WR_RECEIVE = 1, /* item: number of the receive buffer */
    WR_SEND = 2,    /* item: control connections: number of the send buffer; I/O queues: how many
                       sends this signalled one retires */
    WR_MARKER = 3, /* posted last of all, on a queue pair in error: flushed after everything else */
};

#define WR_ID_GENERATION_MASK 0xfffffffu

/* item < 65536, index < 65536; the generation is cut to 28 bits. */
static inline uint64_t wr_id_make(enum wr_kind kind, uint32_t item, uint32_t index,
                                  uint32_t generation)
{
    return (uint64_t)(item & 0xffffu) | (uint64_t)kind << 16 | (uint64_t)(index & 0xffffu) << 20 |
           (uint64_t)(generation & WR_ID_GENERATION_MASK) << 36;
}

static inline uint32_t wr_id_item(uint64_t id)
{
    return id & 0xffffu;
}

static inline enum wr_kind wr_id_kind(uint64_t id)
{
    return (enum wr_kind)(id >> 16 & 0xfu);
}

static inline uint32_t wr_id_index(uint64_t id)
{
    return id >> 20 & 0xffffu;
}

static inline uint32_t wr_id_generation(uint64_t id)
{
    return (uint32_t)(id >> 36);
}

#endif
