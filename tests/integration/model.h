/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * model -- what a disk must contain: a map of 4 KiB blocks, zero where nothing was written
 *
 * A disk of a TiB costs what is written of it. Thread safe: one lock around each call.
 */
#ifndef RBLK_TESTS_MODEL_H
#define RBLK_TESTS_MODEL_H

#include <pthread.h>

#include "helper.h"

#define MODEL_BLOCK 4096u

struct model_block {
    uint64_t number;
    uint8_t *data; /* NULL: table entry free */
};

struct model {
    pthread_mutex_t lock;
    struct model_block *table; /* open addressing; capacity a power of two, at most half full */
    size_t capacity, used;
};

static inline void model_init(struct model *m)
{
    memset(m, 0, sizeof(*m));
    pthread_mutex_init(&m->lock, NULL);
    m->capacity = 1024;
    m->table = calloc(m->capacity, sizeof(*m->table));
    if (!m->table)
        helper_fail("no memory for the model");
}

static inline void model_free(struct model *m)
{
    for (size_t i = 0; i < m->capacity; i++)
        free(m->table[i].data);
    free(m->table);
    pthread_mutex_destroy(&m->lock);
}

static inline struct model_block *model_find(struct model *m, uint64_t number)
{
    uint64_t hash = number;
    size_t at = (size_t)helper_random(&hash) & (m->capacity - 1);

    while (m->table[at].data && m->table[at].number != number)
        at = (at + 1) & (m->capacity - 1);
    return &m->table[at];
}

static inline void model_grow(struct model *m)
{
    struct model old = *m;

    m->capacity *= 2;
    m->table = calloc(m->capacity, sizeof(*m->table));
    if (!m->table)
        helper_fail("no memory for the model");
    for (size_t i = 0; i < old.capacity; i++)
        if (old.table[i].data)
            *model_find(m, old.table[i].number) = old.table[i];
    free(old.table);
}

static inline uint8_t *model_make(struct model *m, uint64_t number)
{
    struct model_block *block = model_find(m, number);

    if (block->data)
        return block->data;
    if (m->used * 2 >= m->capacity) {
        model_grow(m);
        block = model_find(m, number);
    }
    block->number = number;
    block->data = calloc(1, MODEL_BLOCK);
    if (!block->data)
        helper_fail("no memory for the model");
    m->used++;
    return block->data;
}

static inline size_t model_part(uint64_t offset, size_t len)
{
    size_t part = MODEL_BLOCK - (size_t)(offset % MODEL_BLOCK);

    return part < len ? part : len;
}

static inline void model_write(struct model *m, uint64_t offset, const void *data, size_t len)
{
    const uint8_t *from = data;

    pthread_mutex_lock(&m->lock);
    while (len) {
        size_t part = model_part(offset, len);

        memcpy(model_make(m, offset / MODEL_BLOCK) + offset % MODEL_BLOCK, from, part);
        offset += part;
        from += part;
        len -= part;
    }
    pthread_mutex_unlock(&m->lock);
}

/* The offset of the first byte that differs, or UINT64_MAX. */
static inline uint64_t model_differs(struct model *m, uint64_t offset, const void *data, size_t len)
{
    static const uint8_t zero[MODEL_BLOCK];
    const uint8_t *is = data;
    uint64_t result = UINT64_MAX;

    pthread_mutex_lock(&m->lock);
    while (len && result == UINT64_MAX) {
        size_t part = model_part(offset, len);
        const struct model_block *block = model_find(m, offset / MODEL_BLOCK);
        const uint8_t *want = (block->data ? block->data : zero) + offset % MODEL_BLOCK;

        if (memcmp(want, is, part) != 0)
            for (size_t i = 0; i < part && result == UINT64_MAX; i++)
                if (want[i] != is[i])
                    result = offset + i;
        offset += part;
        is += part;
        len -= part;
    }
    pthread_mutex_unlock(&m->lock);
    return result;
}

#endif
