/* SPDX-License-Identifier: BSD-2-Clause */
/* extent -- which parts of the volume can be read with RDMA, and where they are (see extent.h) */
#include "extent.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

int rblk_extents_init(struct rblk_extents *e, uint64_t size, uint64_t extent_size)
{
    struct rblk_extents fresh = {.size = size, .extent_size = extent_size};
    void *table;

    if (size == 0 || extent_size < 4096 || (extent_size & (extent_size - 1)) != 0)
        return -EINVAL;
    fresh.shift = (unsigned int)__builtin_ctzll(extent_size);
    fresh.count = ((size - 1) >> fresh.shift) + 1;
    if (fresh.count > SIZE_MAX / sizeof(struct rblk_extent))
        return -ENOMEM;
    fresh.table_len = (size_t)fresh.count * sizeof(struct rblk_extent);
    /* Fresh pages are zero, which is RBLK_EXTENT_UNMAPPED. */
    table = mmap(NULL, fresh.table_len, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (table == MAP_FAILED)
        return -errno;
    fresh.entry = table;
    *e = fresh;
    return 0;
}

void rblk_extents_free(struct rblk_extents *e)
{
    if (e->entry)
        munmap(e->entry, e->table_len);
    free(e->mapped);
    e->entry = NULL;
    e->mapped = NULL;
    e->count = 0;
    e->mapped_count = e->mapped_capacity = 0;
    atomic_store_explicit(&e->held, 0, memory_order_relaxed);
}

uint64_t rblk_extents_length(const struct rblk_extents *e, uint64_t index)
{
    uint64_t left = e->size - (index << e->shift);

    return left < e->extent_size ? left : e->extent_size;
}

uint32_t rblk_extents_stamp(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
    return (uint32_t)(((uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec) >> 26);
}

bool rblk_extents_lookup(struct rblk_extents *e, uint64_t offset, uint32_t stamp, uint64_t *addr,
                         uint32_t *rkey, uint64_t *left)
{
    uint64_t index = offset >> e->shift;
    uint64_t within = rblk_extents_within(e, offset);
    struct rblk_extent *entry = &e->entry[index];

    if (atomic_load_explicit(&entry->state, memory_order_acquire) != RBLK_EXTENT_MAPPED)
        return false;
    /* Read before writing: a line that all queues use stays shared between their cores. */
    if (atomic_load_explicit(&entry->stamp, memory_order_relaxed) != stamp)
        atomic_store_explicit(&entry->stamp, stamp, memory_order_relaxed);
    *addr = entry->addr + within;
    *rkey = entry->rkey;
    *left = rblk_extents_length(e, index) - within;
    return true;
}

enum rblk_extent_state rblk_extents_state(const struct rblk_extents *e, uint64_t index)
{
    return (enum rblk_extent_state)atomic_load_explicit(&e->entry[index].state,
                                                        memory_order_acquire);
}

bool rblk_extents_request(struct rblk_extents *e, uint64_t index)
{
    if (rblk_extents_state(e, index) != RBLK_EXTENT_UNMAPPED)
        return false;
    atomic_store_explicit(&e->entry[index].state, RBLK_EXTENT_REQUESTED, memory_order_release);
    return true;
}

int rblk_extents_publish(struct rblk_extents *e, uint64_t index,
                         const struct rblk_extent_entry *entry, uint32_t stamp)
{
    if (index >= e->count || rblk_extents_state(e, index) != RBLK_EXTENT_REQUESTED ||
        entry->length != rblk_extents_length(e, index) ||
        entry->addr > UINT64_MAX - (entry->length - 1))
        return -EPROTO;
    if (e->mapped_count == e->mapped_capacity) {
        size_t capacity = e->mapped_capacity ? e->mapped_capacity * 2 : 64;
        uint64_t *grown = reallocarray(e->mapped, capacity, sizeof(*grown));

        if (!grown)
            return -ENOMEM;
        e->mapped = grown;
        e->mapped_capacity = capacity;
    }
    e->mapped[e->mapped_count++] = index;
    atomic_store_explicit(&e->held, e->mapped_count, memory_order_relaxed);
    e->entry[index].addr = entry->addr;
    e->entry[index].rkey = entry->rkey;
    atomic_store_explicit(&e->entry[index].stamp, stamp, memory_order_relaxed);
    atomic_store_explicit(&e->entry[index].state, RBLK_EXTENT_MAPPED, memory_order_release);
    return 0;
}

void rblk_extents_forget(struct rblk_extents *e, uint64_t index)
{
    atomic_store_explicit(&e->entry[index].state, RBLK_EXTENT_UNMAPPED, memory_order_release);
}

uint32_t rblk_extents_revoke(struct rblk_extents *e, uint32_t count, uint64_t *index)
{
    uint32_t now = rblk_extents_stamp();
    uint32_t taken = 0;

    /* A recall names few extents, so a search for each beats sorting all of them. */
    while (taken < count && e->mapped_count) {
        size_t oldest = 0;
        uint32_t oldest_age = 0;

        for (size_t i = 0; i < e->mapped_count; i++) {
            /* The clock wraps after nine years; a difference does not care. */
            uint32_t age =
                now - atomic_load_explicit(&e->entry[e->mapped[i]].stamp, memory_order_relaxed);

            /* A use after `now` was taken makes the age negative: that one is young. */
            if (age > UINT32_MAX / 2)
                age = 0;
            if (i == 0 || age > oldest_age) {
                oldest = i;
                oldest_age = age;
            }
        }
        index[taken] = e->mapped[oldest];
        e->mapped[oldest] = e->mapped[--e->mapped_count];
        atomic_store_explicit(&e->entry[index[taken]].state, RBLK_EXTENT_REVOKING,
                              memory_order_release);
        taken++;
    }
    atomic_store_explicit(&e->held, e->mapped_count, memory_order_relaxed);
    return taken;
}
