/* SPDX-License-Identifier: BSD-2-Clause */
/* read -- reads: one-sided RDMA READs from mapped extents, parking until an extent is mapped */
#include <errno.h>
#include <rdma/rdma_verbs.h>

#include "control.h"
#include "queue.h"

/*
 * Kernel siw (6.1: siw_try_1seg) copies a response that fits beside its header, up to 32 bytes, by
 * a path that takes wrong bytes when the source crosses a page, and that may fail for no fault of
 * ours, after which siw gives up the connection (tests/vm/README.md). So no response is that short,
 * on any device: what is asked for is at least this long, but for an extent that is shorter, which
 * does not cross a page.
 */
#define READ_LEAST 64u

uint64_t rblk_read_piece(uint64_t len, uint64_t left, uint32_t max_io, bool copied)
{
    uint64_t piece = len < left ? len : left;
    uint64_t limit = copied && max_io > RBLK_BOUNCE_MAX ? RBLK_BOUNCE_MAX : max_io;

    return piece < limit ? piece : limit;
}

uint32_t rblk_read_widen(uint32_t len, uint64_t within, uint64_t left, uint32_t *before)
{
    uint32_t missing;

    *before = 0;
    if (len >= READ_LEAST)
        return len;
    if (left >= READ_LEAST)
        return READ_LEAST;
    missing = READ_LEAST - (uint32_t)left;
    *before = within < missing ? (uint32_t)within : missing;
    return *before + (uint32_t)left;
}

/* The next part of a read as a work request: true, or false when the queue has no room for it. */
static bool issue_part(struct rblk_queue *q, struct rblk_request *r, uint64_t addr, uint32_t rkey,
                       uint64_t left)
{
    struct rblk_batch *b = &q->batch;
    uint32_t len = (uint32_t)rblk_read_piece(r->len - r->issued, left, q->max_io, r->copied);
    uint64_t within = rblk_extents_within(&q->h->extents, r->offset + r->issued);
    uint32_t before, fetched = rblk_read_widen(len, within, left, &before);
    uint8_t *dest = r->buf + r->issued, *copy = NULL;

    if (b->count == RBLK_BATCH_MAX || rblk_link_room(q) == 0)
        return false;
    if (r->copied || fetched > len) {
        copy = rblk_pool_take_bounce(&q->pool, fetched);
        if (!copy)
            return false;
    }
    /* The work request of rdma_post_read; built here because several go out in one call. */
    b->sge[b->count][0] = (struct ibv_sge){
        .addr = (uintptr_t)(copy ? copy : dest),
        .length = fetched,
        .lkey = copy ? q->mr->lkey : r->lkey,
    };
    b->wr[b->count] = (struct ibv_send_wr){
        .sg_list = b->sge[b->count],
        .num_sge = 1,
        .opcode = IBV_WR_RDMA_READ,
        .wr.rdma = {.remote_addr = addr - before, .rkey = rkey},
    };
    q->sq[(q->sq_posted + b->count) % q->sq_size] = (struct rblk_sq_entry){
        .request = r,
        .copy = copy,
        .fetched = fetched,
        .before = before,
        .dest = dest,
        .len = len,
    };
    b->count++;
    r->issued += len;
    r->outstanding++;
    return true;
}

enum issued { ISSUED_ALL, ISSUED_NO_ROOM, ISSUED_NOT_MAPPED };

static enum issued issue_request(struct rblk_queue *q, struct rblk_request *r, uint32_t stamp)
{
    uint32_t first = q->batch.count;
    enum issued result = ISSUED_ALL;

    while (r->issued < r->len) {
        uint64_t addr, left;
        uint32_t rkey;

        if (!rblk_extents_lookup(&q->h->extents, r->offset + r->issued, stamp, &addr, &rkey,
                                 &left)) {
            result = ISSUED_NOT_MAPPED;
            break;
        }
        if (!issue_part(q, r, addr, rkey, left)) {
            result = ISSUED_NO_ROOM;
            break;
        }
    }
    /* One completion for all the parts that go out together. */
    if (q->batch.count > first)
        q->batch.wr[q->batch.count - 1].send_flags |= IBV_SEND_SIGNALED;
    return result;
}

static void park(struct rblk_queue *q, struct rblk_request *r)
{
    r->state = RBLK_REQUEST_PARKED;
    rblk_requests_push(&q->parked, r);
    if (!atomic_exchange_explicit(&q->conn->mapping.wanted, true, memory_order_acq_rel))
        rblk_conn_wake(q->conn);
}

void rblk_read_issue(struct rblk_queue *q)
{
    uint32_t stamp;

    if (!q->reads.head)
        return;
    stamp = rblk_extents_stamp();
    while (q->reads.head) {
        struct rblk_request *r = q->reads.head;
        enum issued result = issue_request(q, r, stamp);

        if (result == ISSUED_NO_ROOM)
            return;
        rblk_requests_pop(&q->reads);
        if (result == ISSUED_NOT_MAPPED)
            park(q, r);
        else
            r->state = RBLK_REQUEST_ISSUED;
    }
}

uint32_t rblk_read_wanted(struct rblk_queue *q, uint64_t *index, uint32_t max)
{
    struct rblk_extents *e = &q->h->extents;
    uint32_t n = 0;

    pthread_mutex_lock(&q->lock);
    for (struct rblk_request *r = q->parked.head; r && n < max; r = r->next) {
        uint64_t at = (r->offset + r->issued) >> e->shift;
        uint64_t last = (r->offset + r->len - 1) >> e->shift;

        for (; at <= last && n < max; at++)
            if (rblk_extents_request(e, at))
                index[n++] = at;
    }
    pthread_mutex_unlock(&q->lock);
    return n;
}

void rblk_read_resume(struct rblk_queue *q, uint64_t first, uint32_t count, int error)
{
    struct rblk_extents *e = &q->h->extents;
    struct rblk_request_list parked;
    struct rblk_request *r;
    bool kick;

    pthread_mutex_lock(&q->lock);
    kick = q->parked.head != NULL;
    parked = q->parked;
    q->parked.head = NULL;
    while ((r = rblk_requests_pop(&parked))) {
        uint64_t at = (r->offset + r->issued) >> e->shift;

        if (error && at >= first && at - first < count) {
            if (!r->error)
                r->error = error;
            r->issued = r->len;
            r->state = RBLK_REQUEST_ISSUED;
            if (r->outstanding == 0)
                rblk_request_finish(q, r);
        } else {
            r->state = RBLK_REQUEST_WAITING;
            rblk_requests_push(&q->reads, r);
        }
    }
    pthread_mutex_unlock(&q->lock);
    if (kick)
        rblk_queue_kick(q);
}

uint64_t rblk_read_mark(struct rblk_queue *q)
{
    uint64_t mark;

    pthread_mutex_lock(&q->lock);
    mark = q->sq_read;
    pthread_mutex_unlock(&q->lock);
    return mark;
}

bool rblk_read_drained(struct rblk_queue *q, uint64_t mark)
{
    bool drained, finished;

    pthread_mutex_lock(&q->lock);
    if (q->state == RBLK_QUEUE_LIVE)
        rblk_link_reap(q);
    drained = q->state == RBLK_QUEUE_DEAD || q->sq_completed >= mark;
    finished = q->done.head != NULL;
    pthread_mutex_unlock(&q->lock);
    if (finished)
        rblk_queue_kick(q);
    return drained;
}
