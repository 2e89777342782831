/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mapping -- asks the target for extents and gives them back
 *
 * All of it runs in the control thread and keeps its state in struct rblk_mapping; only `wanted` is
 * set by the queues. See extent.h for how the data path learns of the result.
 */
#ifndef RBLK_INITIATOR_MAPPING_H
#define RBLK_INITIATOR_MAPPING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/wire.h"

#define RBLK_MAPS_MAX 4u /* EXTENT_MAP requests under way at once */
/*
 * Extents asked for ahead of a reader, and the largest volume (in extents) for which that is done:
 * in a small one the reader will want them, in a huge sparse one they would pin memory for nothing.
 */
#define RBLK_READ_AHEAD 8u
#define RBLK_READ_AHEAD_VOLUME 256u

struct rblk_conn;
struct rblk_call;

enum rblk_recall_state {
    RBLK_RECALL_NONE,
    RBLK_RECALL_DRAINING,  /* extents are REVOKING, reads that used them are under way */
    RBLK_RECALL_RELEASING, /* EXTENT_RELEASE sent */
};

struct rblk_mapping {
    _Atomic bool wanted; /* a queue has parked a request for an extent that is not mapped */
    struct {
        uint64_t first;
        uint32_t count; /* 0: no request under way */
        bool ahead;     /* nobody waits for it */
    } map[RBLK_MAPS_MAX];
    bool read_ahead;      /* the target has memory to spare as far as is known */
    uint64_t ahead_first; /* extents to ask for when nothing else is to do */
    uint32_t ahead_count;
    enum rblk_recall_state recall;
    uint64_t recall_backlog; /* extents recalled and not yet chosen */
    uint32_t recall_count;
    uint64_t recall_index[RBLK_EXTENTS_PER_MESSAGE];
    uint64_t recall_mark[RBLK_QUEUES_MAX]; /* what each queue must have completed */
};

void rblk_mapping_init(struct rblk_mapping *m);
/* Does what can be done now; returns true when it wants to be called again within a millisecond. */
bool rblk_mapping_progress(struct rblk_conn *conn);
/* The target wants `count` extents back. */
void rblk_mapping_recall(struct rblk_conn *conn, uint32_t count);
/* Replies. status, detail: of a refusal; RBLK_STATUS_OK with the message otherwise. */
void rblk_mapping_mapped(struct rblk_conn *conn, unsigned int slot, uint16_t status,
                         const struct rblk_call *call);
void rblk_mapping_released(struct rblk_conn *conn, uint16_t status);

#endif
