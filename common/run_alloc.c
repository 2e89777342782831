/* SPDX-License-Identifier: BSD-2-Clause */
/* run_alloc -- hands out runs of equal units from a fixed region (staging memory, buffer pools) */
#include "run_alloc.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#define WORD_BITS 64u

static bool in_use(const struct rblk_run_alloc *a, uint32_t unit)
{
    return a->used[unit / WORD_BITS] >> (unit % WORD_BITS) & 1;
}

int rblk_run_alloc_init(struct rblk_run_alloc *a, uint32_t units)
{
    if (units < 1 || units > RBLK_RUN_UNITS_MAX)
        return -EINVAL;
    memset(a, 0, sizeof *a);
    a->units = units;
    a->free_units = units;
    return 0;
}

/*
 * Looks for a run that starts in [from, to). The run itself may reach beyond `to`. Returns its
 * first unit, or `to` when there is none.
 */
static uint32_t find_run(const struct rblk_run_alloc *a, uint32_t from, uint32_t to, uint32_t count)
{
    uint32_t start = from;
    uint32_t unit = from;

    while (start < to && start < a->units && count <= a->units - start) {
        if (unit % WORD_BITS == 0 && a->used[unit / WORD_BITS] == UINT64_MAX) {
            unit += WORD_BITS;
            start = unit;
        } else if (in_use(a, unit)) {
            start = ++unit;
        } else if (++unit - start == count) {
            return start;
        }
    }
    return to;
}

int rblk_run_alloc_take(struct rblk_run_alloc *a, uint32_t count, uint32_t *first)
{
    uint32_t start;

    if (count < 1 || count > a->free_units)
        return -ENOSPC;
    start = find_run(a, a->next, a->units, count);
    if (start == a->units) {
        start = find_run(a, 0, a->next, count);
        if (start == a->next)
            return -ENOSPC;
    }
    for (uint32_t unit = start; unit < start + count; unit++)
        a->used[unit / WORD_BITS] |= UINT64_C(1) << (unit % WORD_BITS);
    a->free_units -= count;
    a->next = start + count < a->units ? start + count : 0;
    *first = start;
    return 0;
}

void rblk_run_alloc_give(struct rblk_run_alloc *a, uint32_t first, uint32_t count)
{
    for (uint32_t unit = first; unit < a->units && unit - first < count; unit++) {
        if (!in_use(a, unit))
            continue;
        a->used[unit / WORD_BITS] &= ~(UINT64_C(1) << (unit % WORD_BITS));
        a->free_units++;
    }
}
