/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * slots.c -- tables of type-stable slots with references that cost one compare-and-swap
 *
 * A slot's memory is never freed, so a stale handle is always safe to look at. The lock guards the
 * free list only; lookups take no lock.
 */
#include "softrdma.h"

#include <sched.h>
#include <stdlib.h>
#include <time.h>

static struct soft_slot *slot_at(struct soft_slots *slots, uint32_t index)
{
    struct soft_slot *chunk;

    if (index == 0 || index > slots->capacity)
        return NULL;
    chunk = atomic_load_explicit(&slots->chunks[index / SOFT_CHUNK_SLOTS], memory_order_acquire);
    return chunk != NULL ? &chunk[index % SOFT_CHUNK_SLOTS] : NULL;
}

static int grow(struct soft_slots *slots, uint32_t index)
{
    struct soft_slot *_Atomic *chunk = &slots->chunks[index / SOFT_CHUNK_SLOTS];
    struct soft_slot *fresh;

    if (atomic_load_explicit(chunk, memory_order_relaxed) != NULL)
        return 0;
    fresh = calloc(SOFT_CHUNK_SLOTS, sizeof(*fresh));
    if (fresh == NULL)
        return -ENOMEM;
    atomic_store_explicit(chunk, fresh, memory_order_release);
    return 0;
}

/*
 * Take a free slot for object; nobody can look it up before soft_slots_publish().
 * *generation differs from the slot's last use. Returns 0 or -ENOMEM. Thread-safe.
 */
int soft_slots_reserve(struct soft_slots *slots, void *object, uint32_t *index, uint8_t *generation)
{
    struct soft_slot *slot;
    uint32_t taken;
    int r = -ENOMEM;

    pthread_mutex_lock(&slots->lock);
    if (slots->high < slots->capacity && (slots->free_head == 0 || slots->high < 64)) {
        /* Fresh slots first, a few: a number that was just in use is not used at once again. */
        taken = slots->high + 1;
        if (grow(slots, taken) < 0)
            goto out;
        slots->high = taken;
        slot = slot_at(slots, taken);
    } else if (slots->free_head != 0) {
        taken = slots->free_head;
        slot = slot_at(slots, taken);
        slots->free_head = slot->next_free;
        if (slots->free_head == 0)
            slots->free_tail = 0;
    } else {
        goto out;
    }
    slot->next_free = 0;
    slot->object = object;
    *generation = ++slot->generation;
    *index = taken;
    r = 0;
out:
    pthread_mutex_unlock(&slots->lock);
    return r;
}

/* Make a reserved slot visible under a tag, which must not be 0. */
void soft_slots_publish(struct soft_slots *slots, uint32_t index, uint32_t tag)
{
    atomic_store_explicit(&slot_at(slots, index)->word, (uint64_t)tag << 32, memory_order_release);
}

/* Refer to the object published under index and tag: NULL if there is none (any more). */
void *soft_slots_get(struct soft_slots *slots, uint32_t index, uint32_t tag)
{
    struct soft_slot *slot = slot_at(slots, index);
    uint64_t word;

    if (slot == NULL || tag == 0)
        return NULL;
    word = atomic_load_explicit(&slot->word, memory_order_relaxed);
    do {
        if (word >> 32 != tag)
            return NULL;
    } while (!atomic_compare_exchange_weak_explicit(&slot->word, &word, word + 1,
                                                    memory_order_acquire, memory_order_relaxed));
    return slot->object;
}

/* Give a reference back. */
void soft_slots_put(struct soft_slots *slots, uint32_t index)
{
    atomic_fetch_sub_explicit(&slot_at(slots, index)->word, 1, memory_order_release);
}

/*
 * Unpublish, wait until nobody refers to the object, and free the slot (published or only
 * reserved). References last one non-blocking pass, so the wait is short; the caller must hold
 * none itself, nor a lock that a holder may want.
 */
void soft_slots_retire(struct soft_slots *slots, uint32_t index)
{
    struct soft_slot *slot = slot_at(slots, index);
    const struct timespec nap = {.tv_nsec = 50000};

    atomic_fetch_and_explicit(&slot->word, UINT32_MAX, memory_order_acq_rel);
    for (unsigned int i = 0; atomic_load_explicit(&slot->word, memory_order_acquire) != 0; i++) {
        if (i < 100)
            sched_yield();
        else
            nanosleep(&nap, NULL);
    }
    pthread_mutex_lock(&slots->lock);
    slot->object = NULL;
    slot->next_free = 0;
    if (slots->free_tail != 0)
        slot_at(slots, slots->free_tail)->next_free = index;
    else
        slots->free_head = index;
    slots->free_tail = index;
    pthread_mutex_unlock(&slots->lock);
}
