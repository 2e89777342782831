/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * register -- memory of the caller that may be used without a copy
 *
 * The handle's table (under rblk.lock) owns the registrations; every queue has a copy of address
 * and key under its own lock, so that the data path shares none.
 */
#include <errno.h>
#include <rdma/rdma_verbs.h>
#include <string.h>

#include "connect.h"
#include "control.h"
#include "queue.h"

void rblk_region_use(struct rblk_queue *q, struct rblk_request *r)
{
    uintptr_t at = (uintptr_t)r->buf;

    if (rblk_pool_contains(&q->pool, r->buf, r->len)) {
        r->lkey = q->mr->lkey;
        return;
    }
    for (unsigned int i = 0; i < q->region_count; i++) {
        struct rblk_queue_region *region = &q->region[i];
        uintptr_t start = (uintptr_t)region->addr;

        if (!region->addr || at < start || at - start > region->len ||
            r->len > region->len - (at - start))
            continue;
        r->lkey = region->lkey;
        r->region = (int)i;
        region->users++;
        return;
    }
    r->copied = true;
    q->stats.bounced++;
}

void rblk_region_done(struct rblk_queue *q, struct rblk_request *r)
{
    if (r->region >= 0)
        q->region[r->region].users--;
    r->region = -1;
}

static void tell_queues(struct rblk *h, unsigned int i, const struct rblk_region *region)
{
    for (unsigned int n = 0; n < h->queue_count; n++) {
        struct rblk_queue *q = h->queue[n];

        pthread_mutex_lock(&q->lock);
        q->region[i] = (struct rblk_queue_region){
            .addr = region->addr,
            .len = region->len,
            .lkey = region->mr ? region->mr->lkey : 0,
        };
        if (region->addr && q->region_count <= i)
            q->region_count = i + 1;
        pthread_mutex_unlock(&q->lock);
    }
}

int rblk_register(struct rblk *h, void *addr, size_t len)
{
    struct rblk_region *region = NULL;
    unsigned int i;
    int rc = rblk_check_volume(h);

    if (rc)
        return rc;
    if (!addr || len == 0)
        return rblk_fail(h, -EINVAL, "there is no memory to register: address %p, %zu bytes", addr,
                         len);
    pthread_mutex_lock(&h->lock);
    for (i = 0; i < RBLK_REGIONS_MAX && h->region[i].addr; i++)
        ;
    if (i == RBLK_REGIONS_MAX) {
        rc = rblk_fail(h, -ENOSPC,
                       "%d memory regions are registered, that is the most; unregister "
                       "one or register larger pieces",
                       RBLK_REGIONS_MAX);
        goto out;
    }
    region = &h->region[i];
    region->mr = rdma_reg_msgs(h->conn->endpoint.id, addr, len);
    if (!region->mr) {
        rc = rblk_fail_register(h, -errno, len);
        goto out;
    }
    region->addr = addr;
    region->len = len;
    tell_queues(h, i, region);
out:
    pthread_mutex_unlock(&h->lock);
    return rc;
}

/* Shows the region's address to the queues' next requests, or hides it with NULL. True when requests
 * in flight use the region. */
static bool show(struct rblk *h, unsigned int i, const uint8_t *addr)
{
    bool used = false;

    for (unsigned int n = 0; n < h->queue_count; n++) {
        pthread_mutex_lock(&h->queue[n]->lock);
        h->queue[n]->region[i].addr = addr;
        used |= h->queue[n]->region[i].users != 0;
        pthread_mutex_unlock(&h->queue[n]->lock);
    }
    return used;
}

int rblk_unregister(struct rblk *h, void *addr)
{
    unsigned int i;
    int rc = 0;

    if (atomic_load_explicit(&h->state, memory_order_acquire) != RBLK_HANDLE_VOLUME)
        return rblk_check_volume(h);
    pthread_mutex_lock(&h->lock);
    for (i = 0; i < RBLK_REGIONS_MAX && (!addr || h->region[i].addr != addr); i++)
        ;
    if (i == RBLK_REGIONS_MAX) {
        rc = rblk_fail(h, -EINVAL, "no memory region is registered at %p", addr);
    } else if (show(h, i, NULL)) {
        show(h, i, h->region[i].addr);
        rc = rblk_fail(h, -EBUSY, "requests in flight use the memory region at %p; wait for them",
                       addr);
    } else {
        struct ibv_mr *mr = h->region[i].mr;

        memset(&h->region[i], 0, sizeof(h->region[i]));
        tell_queues(h, i, &h->region[i]);
        rdma_dereg_mr(mr);
    }
    pthread_mutex_unlock(&h->lock);
    return rc;
}
