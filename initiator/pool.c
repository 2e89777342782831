/* SPDX-License-Identifier: BSD-2-Clause */
/* pool -- the registered memory of one queue (see pool.h) */
#include "pool.h"

#include <errno.h>

#include "common/memory.h"

static uint32_t units_for(size_t len)
{
    return (uint32_t)((len - 1) / RBLK_POOL_UNIT + 1);
}

static uint8_t *reserve_base(const struct rblk_pool *p)
{
    return p->base + (size_t)p->units.units * RBLK_POOL_UNIT;
}

int rblk_pool_init(struct rblk_pool *p, size_t bytes, size_t extra)
{
    struct rblk_pool fresh = {0};
    size_t page = 4096;
    int rc;

    if (bytes == 0 || bytes > (size_t)RBLK_RUN_UNITS_MAX * RBLK_POOL_UNIT)
        return -EINVAL;
    rc = rblk_run_alloc_init(&fresh.units, units_for(bytes));
    if (rc)
        return rc;
    rc = rblk_run_alloc_init(&fresh.reserve, RBLK_BOUNCE_RUNS * (RBLK_BOUNCE_MAX / RBLK_POOL_UNIT));
    if (rc)
        return rc;
    fresh.len = ((size_t)fresh.units.units + fresh.reserve.units) * RBLK_POOL_UNIT +
                (extra + page - 1) / page * page;
    fresh.base = rblk_memory_map(fresh.len);
    if (!fresh.base)
        return -errno;
    fresh.extra = reserve_base(&fresh) + (size_t)fresh.reserve.units * RBLK_POOL_UNIT;
    *p = fresh;
    return 0;
}

void rblk_pool_free(struct rblk_pool *p)
{
    rblk_memory_unmap(p->base, p->len);
    p->base = NULL;
}

static void *take(struct rblk_run_alloc *a, uint8_t *base, size_t len)
{
    uint32_t first;

    if (len > (size_t)RBLK_RUN_UNITS_MAX * RBLK_POOL_UNIT ||
        rblk_run_alloc_take(a, units_for(len), &first))
        return NULL;
    return base + (size_t)first * RBLK_POOL_UNIT;
}

void *rblk_pool_take(struct rblk_pool *p, size_t len)
{
    return take(&p->units, p->base, len);
}

void *rblk_pool_take_bounce(struct rblk_pool *p, size_t len)
{
    void *run = take(&p->units, p->base, len);

    return run ? run : take(&p->reserve, reserve_base(p), len);
}

void rblk_pool_give(struct rblk_pool *p, void *addr, size_t len)
{
    uint8_t *at = addr;

    if (at < reserve_base(p))
        rblk_run_alloc_give(&p->units, (uint32_t)((size_t)(at - p->base) / RBLK_POOL_UNIT),
                            units_for(len));
    else
        rblk_run_alloc_give(&p->reserve,
                            (uint32_t)((size_t)(at - reserve_base(p)) / RBLK_POOL_UNIT),
                            units_for(len));
}

bool rblk_pool_contains(const struct rblk_pool *p, const void *addr, size_t len)
{
    uintptr_t start = (uintptr_t)p->base, end = (uintptr_t)reserve_base(p), at = (uintptr_t)addr;

    return at >= start && at <= end && len <= end - at;
}
