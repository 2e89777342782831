/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pool -- the registered memory of one queue
 *
 * One page-aligned region, registered once: units that callers take with rblk_buffer_get and that
 * unregistered buffers are copied through; a small reserve that only the library uses, so that a
 * caller who holds the whole pool cannot stop copied requests for ever; and the queue's message
 * buffers behind them.
 *
 * Not thread safe: the queue's lock guards it.
 */
#ifndef RBLK_INITIATOR_POOL_H
#define RBLK_INITIATOR_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/run_alloc.h"

#define RBLK_POOL_UNIT 65536u                 /* bytes */
#define RBLK_BOUNCE_MAX (4u * RBLK_POOL_UNIT) /* largest piece that is copied at once, bytes */
#define RBLK_BOUNCE_RUNS 4u                   /* pieces of that size in the reserve */

struct rblk_pool {
    uint8_t *base;
    size_t len;     /* bytes of the whole region */
    uint8_t *extra; /* the message buffers */
    struct rblk_run_alloc units, reserve;
};

/* bytes: of the pool, 1..64 MiB, rounded up to whole units; extra: bytes of message buffers. 0 or
 * -errno. */
int rblk_pool_init(struct rblk_pool *p, size_t bytes, size_t extra);
void rblk_pool_free(struct rblk_pool *p);
/* A run of len >= 1 bytes, page aligned, or NULL. */
void *rblk_pool_take(struct rblk_pool *p, size_t len);
/* The same for copying, 1 <= len <= RBLK_BOUNCE_MAX: from the reserve when the pool has none. */
void *rblk_pool_take_bounce(struct rblk_pool *p, size_t len);
/* Gives back a run taken by either, with the same len. */
void rblk_pool_give(struct rblk_pool *p, void *addr, size_t len);
/* True when the range lies within what rblk_pool_take hands out. */
bool rblk_pool_contains(const struct rblk_pool *p, const void *addr, size_t len);

#endif
