/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * write -- writes and flushes: commands in slots, data in the message or in staging memory
 *
 * The list is served in order: when the request at its head lacks a slot, a staging run or memory
 * to copy through, those behind it wait too. So nothing is starved, and what a caller submitted
 * first goes out first. A FLUSH needs no more order than that: it covers the writes that were
 * complete when it was submitted.
 */
#include <errno.h>
#include <rdma/rdma_verbs.h>
#include <string.h>

#include "queue.h"

uint32_t rblk_write_piece(uint64_t len, uint32_t max_io, uint32_t max_inline, bool copied,
                          bool has_staging)
{
    uint64_t limit = has_staging ? max_io : (max_io < max_inline ? max_io : max_inline);

    /* In-message data is copied into the slot, whatever its length. */
    if (copied && limit > RBLK_BOUNCE_MAX && limit > max_inline)
        limit = RBLK_BOUNCE_MAX > max_inline ? RBLK_BOUNCE_MAX : max_inline;
    return (uint32_t)(len < limit ? len : limit);
}

static uint8_t *slot_message(struct rblk_queue *q, uint16_t slot)
{
    return q->messages + (size_t)slot * q->slot_stride;
}

/*
 * Adds the SEND of the command in a slot, with `data` behind it when it is not NULL. A command alone
 * travels in the work request: the device need not fetch it, and kernel siw (6.1) loses the
 * connection now and then when it does (tests/vm/README.md).
 */
static void add_send(struct rblk_queue *q, uint16_t slot, uint32_t message_len, const uint8_t *data,
                     uint32_t data_len, uint32_t data_lkey)
{
    struct rblk_batch *b = &q->batch;

    b->sge[b->count][0] = (struct ibv_sge){
        .addr = (uintptr_t)slot_message(q, slot),
        .length = message_len,
        .lkey = q->mr->lkey,
    };
    b->sge[b->count][1] = (struct ibv_sge){
        .addr = (uintptr_t)data,
        .length = data_len,
        .lkey = data_lkey,
    };
    b->wr[b->count] = (struct ibv_send_wr){
        .sg_list = b->sge[b->count],
        .num_sge = data ? 2 : 1,
        .opcode = IBV_WR_SEND,
        .send_flags =
            q->sends_inline && !data && message_len <= RBLK_COMMAND_LEN ? IBV_SEND_INLINE : 0u,
    };
    memset(&q->sq[(q->sq_posted + b->count) % q->sq_size], 0, sizeof(*q->sq));
    b->count++;
}

static void add_rdma_write(struct rblk_queue *q, const uint8_t *data, uint32_t len, uint32_t lkey,
                           uint32_t staging_offset)
{
    struct rblk_batch *b = &q->batch;

    b->sge[b->count][0] = (struct ibv_sge){
        .addr = (uintptr_t)data,
        .length = len,
        .lkey = lkey,
    };
    b->wr[b->count] = (struct ibv_send_wr){
        .sg_list = b->sge[b->count],
        .num_sge = 1,
        .opcode = IBV_WR_RDMA_WRITE,
        .wr.rdma = {.remote_addr = q->staging_addr + staging_offset, .rkey = q->staging_rkey},
    };
    memset(&q->sq[(q->sq_posted + b->count) % q->sq_size], 0, sizeof(*q->sq));
    b->count++;
}

static struct rblk_slot *take_slot(struct rblk_queue *q, struct rblk_request *r, uint16_t *number)
{
    struct rblk_slot *slot;

    *number = q->free_slot[--q->free_slots];
    slot = &q->slot[*number];
    *slot = (struct rblk_slot){.used = true, .request = r};
    r->outstanding++;
    return slot;
}

static void issue_flush(struct rblk_queue *q, struct rblk_request *r)
{
    struct rblk_command command = {.opcode = RBLK_OP_FLUSH};

    take_slot(q, r, &command.slot);
    rblk_command_encode(slot_message(q, command.slot), &command);
    add_send(q, command.slot, RBLK_COMMAND_LEN, NULL, 0, 0);
}

static void issue_inline(struct rblk_queue *q, struct rblk_request *r, struct rblk_command *command)
{
    const uint8_t *data = r->buf + r->issued;

    take_slot(q, r, &command->slot);
    command->flags |= RBLK_CMD_INLINE;
    rblk_command_encode(slot_message(q, command->slot), command);
    if (r->copied) {
        memcpy(slot_message(q, command->slot) + RBLK_COMMAND_LEN, data, command->length);
        add_send(q, command->slot, RBLK_COMMAND_LEN + command->length, NULL, 0, 0);
    } else {
        add_send(q, command->slot, RBLK_COMMAND_LEN, data, command->length, r->lkey);
    }
}

/* False when there is no staging run or no memory to copy through. */
static bool issue_staged(struct rblk_queue *q, struct rblk_request *r, struct rblk_command *command)
{
    uint32_t units = (command->length - 1) / RBLK_STAGING_GRANULE + 1;
    const uint8_t *data = r->buf + r->issued;
    struct rblk_slot *slot;
    uint8_t *copy = NULL;
    uint32_t first;

    if (rblk_run_alloc_take(&q->staging, units, &first))
        return false;
    if (r->copied) {
        copy = rblk_pool_take_bounce(&q->pool, command->length);
        if (!copy) {
            rblk_run_alloc_give(&q->staging, first, units);
            return false;
        }
        memcpy(copy, data, command->length);
    }
    slot = take_slot(q, r, &command->slot);
    slot->staging_first = first;
    slot->staging_units = units;
    slot->copy = copy;
    slot->len = command->length;
    command->staging_offset = first * RBLK_STAGING_GRANULE;
    rblk_command_encode(slot_message(q, command->slot), command);
    add_rdma_write(q, copy ? copy : data, command->length, copy ? q->mr->lkey : r->lkey,
                   command->staging_offset);
    add_send(q, command->slot, RBLK_COMMAND_LEN, NULL, 0, 0);
    return true;
}

/* Issues the next part of a write: false when something it needs is not free. */
static bool issue_part(struct rblk_queue *q, struct rblk_request *r)
{
    struct rblk_command command = {
        .opcode = RBLK_OP_WRITE,
        .flags = r->flags & RBLK_FUA ? RBLK_CMD_FUA : 0,
        .length = rblk_write_piece(r->len - r->issued, q->max_io, q->max_inline, r->copied,
                                   q->staging_units != 0),
        .offset = r->offset + r->issued,
    };

    if (command.length <= q->max_inline)
        issue_inline(q, r, &command);
    else if (!issue_staged(q, r, &command))
        return false;
    r->issued += command.length;
    return true;
}

/* A write takes one or two work requests. */
static bool has_room(const struct rblk_queue *q)
{
    return q->free_slots && q->batch.count + 2 <= RBLK_BATCH_MAX && rblk_link_room(q) >= 2;
}

static bool issue_request(struct rblk_queue *q, struct rblk_request *r)
{
    if (r->kind == RBLK_REQUEST_FLUSH) {
        if (!has_room(q))
            return false;
        issue_flush(q, r);
        return true;
    }
    /* After an error of one part the rest would only do more harm. */
    while (r->issued < r->len && !r->error)
        if (!has_room(q) || !issue_part(q, r))
            return false;
    return true;
}

void rblk_write_issue(struct rblk_queue *q)
{
    while (q->writes.head) {
        struct rblk_request *r = q->writes.head;

        if (!issue_request(q, r))
            return;
        rblk_requests_pop(&q->writes);
        r->state = RBLK_REQUEST_ISSUED;
        if (r->outstanding == 0)
            rblk_request_finish(q, r);
    }
}

int rblk_write_complete(struct rblk_queue *q, const uint8_t *message, size_t len)
{
    struct rblk_completion completion;
    struct rblk_request *r;
    struct rblk_slot *slot;

    if (rblk_completion_decode(&completion, message, len) || completion.slot >= q->depth ||
        !q->slot[completion.slot].used)
        return -EPROTO;
    /*
     * What was acknowledged and not flushed is lost. A target that restarts has ended the
     * connection, so this does not happen; if it does, the next flush must not succeed.
     */
    if (completion.write_verifier != q->h->volume.write_verifier)
        return -EPROTO;
    slot = &q->slot[completion.slot];
    r = slot->request;
    if (slot->staging_units)
        rblk_run_alloc_give(&q->staging, slot->staging_first, slot->staging_units);
    if (slot->copy)
        rblk_pool_give(&q->pool, slot->copy, slot->len);
    slot->used = false;
    q->free_slot[q->free_slots++] = completion.slot;
    rblk_request_part_done(q, r, completion.status ? -rblk_status_to_errno(completion.status) : 0);
    return 0;
}
