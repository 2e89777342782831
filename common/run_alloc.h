/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * run_alloc -- hands out runs of equal units from a fixed region (staging memory, buffer pools)
 *
 * First fit over a bitmap, starting where the last search ended; no allocation after init.
 * Not thread safe: the owner of the region locks.
 */
#ifndef RBLK_COMMON_RUN_ALLOC_H
#define RBLK_COMMON_RUN_ALLOC_H

#include <stdint.h>

#define RBLK_RUN_UNITS_MAX 1024

struct rblk_run_alloc {
    uint64_t used[RBLK_RUN_UNITS_MAX / 64]; /* bit set: unit in use */
    uint32_t units;
    uint32_t next; /* where the next search starts */
    uint32_t free_units;
};

/* 1 <= units <= RBLK_RUN_UNITS_MAX: 0, or -EINVAL. */
int rblk_run_alloc_init(struct rblk_run_alloc *a, uint32_t units);
/* Takes `count` (>= 1) units in a row: 0 and *first, or -ENOSPC. */
int rblk_run_alloc_take(struct rblk_run_alloc *a, uint32_t count, uint32_t *first);
/* Gives back a run taken before. */
void rblk_run_alloc_give(struct rblk_run_alloc *a, uint32_t first, uint32_t count);

#endif
