/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * extent -- which parts of the volume can be read with RDMA, and where they are
 *
 * Owners and locks. Only the control thread changes a state (and before it runs, the thread that
 * connects). Publication needs no lock: address and rkey are written first and MAPPED is stored
 * with release; the data path loads the state with acquire. Taking an extent back is made safe by
 * the queues' locks: a queue looks an extent up and posts the read under one hold of its lock, so
 * once the state is REVOKING and that lock was taken once, every read that used the extent has been
 * counted (mapping.c).
 *
 * The table is mapped lazily, so one for a sparse volume of many TiB costs what is used of it.
 */
#ifndef RBLK_INITIATOR_EXTENT_H
#define RBLK_INITIATOR_EXTENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/wire.h"

enum rblk_extent_state {
    RBLK_EXTENT_UNMAPPED,  /* the target has not been asked for it */
    RBLK_EXTENT_REQUESTED, /* an EXTENT_MAP that covers it is on its way */
    RBLK_EXTENT_MAPPED,    /* addr and rkey may be used */
    RBLK_EXTENT_REVOKING,  /* being given back: no new read may use it */
};

struct rblk_extent {
    _Atomic uint32_t state;
    uint32_t rkey;
    uint64_t addr;          /* remote address of the first byte */
    _Atomic uint32_t stamp; /* coarse time of the last use */
};

struct rblk_extents {
    struct rblk_extent *entry;
    uint64_t count;
    uint64_t size;        /* of the volume, bytes */
    uint64_t extent_size; /* bytes, a power of two */
    unsigned int shift;   /* log2(extent_size) */
    size_t table_len;     /* bytes mapped at entry */
    /* Indexes of the mapped extents in no order; the control thread's alone. */
    uint64_t *mapped;
    size_t mapped_count, mapped_capacity;
    _Atomic uint64_t held; /* mapped_count for other threads */
};

/* size >= 1; extent_size a power of two >= 4096. 0, -EINVAL or -ENOMEM. */
int rblk_extents_init(struct rblk_extents *e, uint64_t size, uint64_t extent_size);
void rblk_extents_free(struct rblk_extents *e);

/* Bytes of an extent: extent_size, less for the last one. index < count. */
uint64_t rblk_extents_length(const struct rblk_extents *e, uint64_t index);

/* The clock of rblk_extents_lookup: ticks of 67 ms. */
uint32_t rblk_extents_stamp(void);

/* Bytes of byte `offset`'s extent that come before it. */
static inline uint64_t rblk_extents_within(const struct rblk_extents *e, uint64_t offset)
{
    return offset & (e->extent_size - 1);
}

/*
 * Data path, under a queue's lock: the remote address and key of byte `offset` (< size) and how
 * many bytes from there on lie in the same extent. False when the extent is not mapped.
 */
bool rblk_extents_lookup(struct rblk_extents *e, uint64_t offset, uint32_t stamp, uint64_t *addr,
                         uint32_t *rkey, uint64_t *left);

enum rblk_extent_state rblk_extents_state(const struct rblk_extents *e, uint64_t index);
/* UNMAPPED becomes REQUESTED: true. False in any other state. */
bool rblk_extents_request(struct rblk_extents *e, uint64_t index);
/*
 * REQUESTED becomes MAPPED. -EPROTO when what the target said cannot be right (length, address
 * wrap-around), -ENOMEM; the state is unchanged then.
 */
int rblk_extents_publish(struct rblk_extents *e, uint64_t index,
                         const struct rblk_extent_entry *entry, uint32_t stamp);
/* REQUESTED or REVOKING becomes UNMAPPED. */
void rblk_extents_forget(struct rblk_extents *e, uint64_t index);
/*
 * Takes up to `count` least recently used extents out of use: they become REVOKING and their
 * indexes go to index[]. Returns how many.
 */
uint32_t rblk_extents_revoke(struct rblk_extents *e, uint32_t count, uint64_t *index);

#endif
