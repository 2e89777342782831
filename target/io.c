/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * io -- the data path of an I/O queue: commands in, the file written, completions out
 *
 * A receive buffer carries its command until that is executed (inline write data is written to the
 * file straight from it); then the receive is posted again, and only after that the completion is
 * sent. So the peer, which takes the completion as leave to use the slot again, always finds a
 * receive.
 *
 * Everything here runs on the queue's reactor.
 */
#include "io.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "log.h"
#include "reactor.h"
#include "volume.h"
#include "wr_id.h"

#define DRAIN_TIMEOUT_MS \
    1000 /* for the device to flush a queue pair in error; destroying it ends the rest */
#define ROUND_WRITING_NS 2000000 /* that a reactor writes itself in a round, and one write more */
#define RETRIES_MAX 64           /* of one operation that io_uring answers with EAGAIN or EINTR */

static bool is_working(const struct queue *q)
{
    return q->state == QUEUE_SERVING || q->state == QUEUE_FINISHING;
}

static void broken(struct queue *q)
{
    if (!is_working(q))
        return;
    q->state = QUEUE_BROKEN;
    mailbox_post(&q->target->reports, &q->to_control, QUEUE_REPORT_BROKEN);
}

/*
 * The peer broke the protocol: said once, because no command of this queue is looked at
 * afterwards.
 */
__attribute__((format(printf, 2, 3))) static void violation(struct queue *q, const char *fmt, ...)
{
    char text[128];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    log_warning("client %s, volume %s: %s; its I/O queue %u is disconnected", q->peer,
                q->volume->name, text, q->queue_id);
    counter_add(&q->reactor->counters.protocol_errors, 1);
    broken(q);
}

static bool slot_in_use(const struct queue *q, uint16_t slot)
{
    return q->slots_in_use[slot / 64] >> (slot % 64) & 1u;
}

static void set_slot(struct queue *q, uint16_t slot, bool in_use)
{
    uint64_t bit = (uint64_t)1 << (slot % 64);

    if (in_use)
        q->slots_in_use[slot / 64] |= bit;
    else
        q->slots_in_use[slot / 64] &= ~bit;
}

/* -- finishing requests -------------------------------------------------------------------- */

static void finish(struct request *request, enum rblk_status status)
{
    struct queue *q = request->queue;
    uint32_t place = (q->reply_first + q->reply_count) % q->depth;

    request->state = REQUEST_FINISHED;
    if (status != RBLK_STATUS_OK)
        counter_add(&q->reactor->counters.errors, 1);
    q->replies[place].slot = request->slot;
    q->replies[place].status = (uint16_t)status;
    q->reply_count++;
    q->reposts[q->repost_count++] = request->receive;
    reactor_mark_dirty(q->reactor, q);
}

/* The first failed sync is the last: what the kernel has dropped cannot be known any more. */
static void sync_failed(struct queue *q, int error)
{
    if (volume_latch_failed(q->volume))
        log_error(
            "volume %s: %s could not be synced: %s; the volume is FAILED, writes and flushes are "
            "refused until rblkd is started again; check the device below it first",
            q->volume->name, q->volume->path, strerror(error));
}

static bool must_sync(const struct request *request)
{
    return request->opcode == RBLK_OP_FLUSH ||
           ((request->flags & RBLK_CMD_FUA) && request->done == request->length);
}

/*
 * Queues the request's next operation: the write, or what is left of it, and then, for FUA, the
 * sync of what it has written. Not both at once with RWF_DSYNC: of an error it does not tell
 * whether the write was refused, which concerns nobody else, or the sync failed, which uses up
 * the kernel's one report of a failed write-back (man fsync, EIO and ENOSPC alike).
 */
static void submit(struct request *request)
{
    struct queue *q = request->queue;
    struct io_uring_sqe *sqe = reactor_sqe(q->reactor);

    if (!sqe) {
        finish(request, RBLK_STATUS_NO_MEMORY);
        return;
    }
    if (must_sync(request)) {
        request->state = REQUEST_SYNCING;
        io_uring_prep_fsync(sqe, (int)q->volume->index, IORING_FSYNC_DATASYNC);
        /* Of a flush both are 0, which means the whole file. */
        sqe->off = request->offset;
        sqe->len = request->length;
    } else {
        request->state = REQUEST_WRITING;
        atomic_fetch_add_explicit(&q->volume->pace.in_ring, 1, memory_order_relaxed);
        io_uring_prep_write(sqe, (int)q->volume->index, request->data + request->done,
                            request->length - request->done, request->offset + request->done);
    }
    sqe->flags |= IOSQE_FIXED_FILE;
    io_uring_sqe_set_data(sqe, request);
    q->ring_operations++;
}

/*
 * A sync that succeeded proves nothing when another one on the volume has failed: the kernel tells
 * of a failed write-back once for each descriptor, so the failure that concerned this sync's data
 * may have been told to the other.
 */
static enum rblk_status durable(struct queue *q)
{
    return volume_has_failed(q->volume) ? RBLK_STATUS_FAILED : RBLK_STATUS_OK;
}

/* The operation did not happen, which is no failure of what is below the file. */
static bool not_done(int result)
{
    return result == -EAGAIN || result == -EINTR;
}

static bool may_retry(struct request *request, int result)
{
    return not_done(result) && request->retries++ < RETRIES_MAX;
}

static void sync_done(struct request *request, int result)
{
    struct queue *q = request->queue;
    struct counters *counters = &q->reactor->counters;

    if (request->opcode == RBLK_OP_FLUSH)
        counter_add(&counters->fdatasyncs, 1);
    if (result < 0) {
        sync_failed(q, -result);
        finish(request, rblk_status_from_errno(-result));
        return;
    }
    counter_add(request->opcode == RBLK_OP_FLUSH ? &counters->flushes : &counters->fua_writes, 1);
    finish(request, durable(q));
}

static void write_done(struct request *request, int result)
{
    struct queue *q = request->queue;
    struct counters *counters = &q->reactor->counters;

    if (result <= 0) {
        finish(request, rblk_status_from_errno(result < 0 ? -result : EIO));
        return;
    }
    request->done += (uint32_t)result;
    if (request->done < request->length) {
        submit(request);
        return;
    }
    counter_add(&counters->writes, 1);
    counter_add(&counters->write_bytes, request->length);
    if (request->flags & RBLK_CMD_FUA)
        submit(request);
    else
        finish(request, RBLK_STATUS_OK);
}

/* The first step of a write: by the reactor itself when it can, otherwise by io_uring. */
static void begin_write(struct request *request)
{
    struct reactor *r = request->queue->reactor;
    struct volume *v = request->queue->volume;
    int64_t n = -EAGAIN;

    if (r->writing_ns < ROUND_WRITING_NS)
        n = write_now(&v->pace, v->fd, request->data, request->length, request->offset,
                      &r->writing_ns);
    if (n == -EAGAIN)
        submit(request);
    else
        write_done(request, (int)n);
}

void io_ring_done(struct request *request, int result)
{
    struct queue *q = request->queue;
    bool alive = is_working(q);

    q->ring_operations--;
    if (request->state == REQUEST_WRITING)
        atomic_fetch_sub_explicit(&q->volume->pace.in_ring, 1, memory_order_relaxed);
    if (alive && may_retry(request, result)) {
        submit(request);
        return;
    }
    if (!alive) {
        /* Nobody is left to be told, but a failed sync concerns the whole volume. */
        if (request->state == REQUEST_SYNCING && result < 0 && !not_done(result))
            sync_failed(q, -result);
        return;
    }
    if (request->state == REQUEST_SYNCING)
        sync_done(request, result);
    else
        write_done(request, result);
}

/* -- commands ------------------------------------------------------------------------------ */

/* What forbids the command, as far as the volume is concerned. */
static enum rblk_status check(const struct queue *q, const struct rblk_command *m)
{
    const struct volume *v = q->volume;

    if (m->opcode == RBLK_OP_FLUSH)
        return volume_has_failed(q->volume) ? RBLK_STATUS_FAILED : RBLK_STATUS_OK;
    if (q->read_only)
        return RBLK_STATUS_READ_ONLY;
    if (m->offset > v->size || m->length > v->size - m->offset)
        return RBLK_STATUS_RANGE;
    if (!(m->flags & RBLK_CMD_INLINE) &&
        (m->length > q->max_io || m->staging_offset > q->staging_len ||
         m->length > q->staging_len - m->staging_offset))
        return RBLK_STATUS_RANGE;
    return volume_has_failed(q->volume) ? RBLK_STATUS_FAILED : RBLK_STATUS_OK;
}

static void command_received(struct queue *q, uint32_t receive, uint32_t length)
{
    struct request *request = &q->requests[receive];
    uint8_t *message = q->messages + (size_t)receive * q->stride;
    struct rblk_command m;
    enum rblk_status status;

    counter_add(&q->reactor->counters.io_messages, 1);
    if (q->state != QUEUE_SERVING)
        return;
    if (rblk_command_decode(&m, message, length)) {
        violation(q, "malformed command of %u bytes", length);
        return;
    }
    if (m.slot >= q->depth) {
        violation(q, "command in slot %u of a queue of depth %u", m.slot, q->depth);
        return;
    }
    if (slot_in_use(q, m.slot)) {
        violation(q, "command in slot %u, which is in use", m.slot);
        return;
    }
    set_slot(q, m.slot, true);
    request->opcode = m.opcode;
    request->flags = m.flags;
    request->slot = m.slot;
    request->offset = m.offset;
    request->length = m.length;
    request->done = 0;
    request->retries = 0;
    status = check(q, &m);
    if (status != RBLK_STATUS_OK) {
        finish(request, status);
        return;
    }
    /* Without staging memory (read-only) there are no writes, and no pointer to add to. */
    if (m.flags & RBLK_CMD_INLINE)
        request->data = message + RBLK_COMMAND_LEN;
    else
        request->data = q->staging ? q->staging + m.staging_offset : NULL;
    if (m.opcode == RBLK_OP_FLUSH)
        submit(request);
    else
        begin_write(request);
}

/* -- completions --------------------------------------------------------------------------- */

/* The end of a connection flushes what is posted; anything else is a fault, which is told once. */
static void failed(struct queue *q, const struct ibv_wc *wc, const char *what)
{
    if (wc->status != IBV_WC_WR_FLUSH_ERR && is_working(q))
        log_warning("client %s, volume %s: I/O queue %u failed: %s (%s); it is disconnected",
                    q->peer, q->volume->name, q->queue_id, ibv_wc_status_str(wc->status), what);
    broken(q);
}

static void receive_completed(struct queue *q, const struct ibv_wc *wc)
{
    q->receives_posted--;
    if (wc->status == IBV_WC_SUCCESS)
        command_received(q, wr_id_item(wc->wr_id), wc->byte_len);
    else if (wc->status == IBV_WC_LOC_LEN_ERR) /* once: the queue pair is in error now */
        violation(q, "message longer than %u bytes", RBLK_COMMAND_LEN + q->max_inline);
    else
        failed(q, wc, "receive");
}

static void send_completed(struct queue *q, const struct ibv_wc *wc)
{
    if (wc->status != IBV_WC_SUCCESS) {
        failed(q, wc, "send");
        return;
    }
    q->sends_posted -= wr_id_item(wc->wr_id);
    q->sends_signalled--;
    if (q->reply_count || q->state == QUEUE_FINISHING)
        reactor_mark_dirty(q->reactor, q);
}

void io_completion(struct queue *q, const struct ibv_wc *wc)
{
    switch (wr_id_kind(wc->wr_id)) {
    case WR_RECEIVE:
        receive_completed(q, wc);
        break;
    case WR_SEND:
        send_completed(q, wc);
        break;
    case WR_MARKER:
        q->marker_pending = false;
        break;
    }
}

/* -- posting ------------------------------------------------------------------------------- */

static int post_receives(struct queue *q)
{
    struct reactor_lists *l = &q->reactor->lists;
    struct ibv_recv_wr *bad;
    uint32_t n = q->repost_count;

    for (uint32_t i = 0; i < n; i++) {
        uint16_t receive = q->reposts[i];

        l->receive_sge[i] = (struct ibv_sge){
            .addr = (uint64_t)(uintptr_t)(q->messages + (size_t)receive * q->stride),
            .length = RBLK_COMMAND_LEN + q->max_inline,
            .lkey = q->messages_mr->lkey,
        };
        l->receive[i] = (struct ibv_recv_wr){
            .wr_id = wr_id_make(WR_RECEIVE, receive, q->index, q->generation),
            .next = i + 1 < n ? &l->receive[i + 1] : NULL,
            .sg_list = &l->receive_sge[i],
            .num_sge = 1,
        };
        q->requests[receive].state = REQUEST_RECEIVING;
    }
    q->repost_count = 0;
    if (n == 0)
        return 0;
    q->receives_posted += n;
    return ibv_post_recv(q->qp, l->receive, &bad);
}

/* Writes the i-th work request of the list, for the oldest reply. */
static void prepare_send(struct queue *q, uint32_t i, bool last)
{
    struct reactor_lists *l = &q->reactor->lists;
    struct reply reply = q->replies[q->reply_first];
    uint8_t *buffer =
        q->sends_inline ? l->completion[i] : q->completions + (size_t)reply.slot * RBLK_COMMAND_LEN;
    struct rblk_completion m = {
        .slot = reply.slot,
        .status = reply.status,
        .write_verifier = q->target->write_verifier,
    };
    /* A signalled send is needed to learn that the ones before it have left the send queue. */
    bool signalled =
        q->sends_unsignalled + 1 >= (q->depth + 1u) / 2 || (last && q->state == QUEUE_FINISHING);

    rblk_completion_encode(buffer, &m);
    q->sends_unsignalled++;
    l->send_sge[i] = (struct ibv_sge){
        .addr = (uint64_t)(uintptr_t)buffer,
        .length = RBLK_COMPLETION_LEN,
        .lkey = q->sends_inline ? 0 : q->messages_mr->lkey,
    };
    l->send[i] = (struct ibv_send_wr){
        .wr_id = wr_id_make(WR_SEND, q->sends_unsignalled, q->index, q->generation),
        .next = last ? NULL : &l->send[i + 1],
        .sg_list = &l->send_sge[i],
        .num_sge = 1,
        .opcode = IBV_WR_SEND,
        .send_flags =
            (signalled ? IBV_SEND_SIGNALED : 0u) | (q->sends_inline ? IBV_SEND_INLINE : 0u),
    };
    if (signalled) {
        q->sends_unsignalled = 0;
        q->sends_signalled++;
    }
    set_slot(q, reply.slot, false);
    q->reply_first = (q->reply_first + 1) % q->depth;
    q->reply_count--;
}

static int post_replies(struct queue *q)
{
    uint32_t room = q->send_limit - q->sends_posted;
    uint32_t n = q->reply_count < room ? q->reply_count : room;
    struct ibv_send_wr *bad;

    if (n == 0)
        return 0;
    for (uint32_t i = 0; i < n; i++)
        prepare_send(q, i, i + 1 == n);
    q->sends_posted += n;
    return ibv_post_send(q->qp, q->reactor->lists.send, &bad);
}

void io_post_round(struct queue *q)
{
    if (!is_working(q))
        return;
    if (post_receives(q) || post_replies(q)) {
        broken(q);
        return;
    }
    if (q->state == QUEUE_FINISHING && !q->reported_finished && q->ring_operations == 0 &&
        q->reply_count == 0 && q->sends_signalled == 0) {
        q->reported_finished = true;
        mailbox_post(&q->target->reports, &q->to_control, QUEUE_REPORT_FINISHED);
    }
}

/* -- the end ------------------------------------------------------------------------------- */

/*
 * A queue pair in error flushes what was posted in order, so when the marker comes back everything
 * before it has, signalled or not.
 */
static void start_draining(struct queue *q)
{
    struct ibv_send_wr marker =
                           {
                               .wr_id = wr_id_make(WR_MARKER, 0, q->index, q->generation),
                               .opcode = IBV_WR_SEND,
                               .send_flags = IBV_SEND_SIGNALED,
                           },
                       *bad;

    q->state = QUEUE_DRAINING;
    q->marker_pending = ibv_post_send(q->qp, &marker, &bad) == 0;
    q->drain_deadline_ns = rblk_deadline_ms(DRAIN_TIMEOUT_MS);
    q->reactor->draining++;
}

void io_order(struct queue *q, unsigned int orders)
{
    if ((orders & QUEUE_ORDER_FINISH) && q->state == QUEUE_SERVING) {
        q->state = QUEUE_FINISHING;
        reactor_mark_dirty(q->reactor, q);
    }
    if ((orders & QUEUE_ORDER_DRAIN) && q->state != QUEUE_DRAINING)
        start_draining(q);
}

void io_check_drained(struct queue *q, uint64_t now_ns)
{
    bool flushed = q->receives_posted == 0 && !q->marker_pending;

    /*
     * Operations on the file are waited for without limit: a late write must not outlive its
     * client.
     */
    if (q->ring_operations == 0 && (flushed || now_ns >= q->drain_deadline_ns)) {
        q->reactor->draining--;
        reactor_forget(q->reactor, q);
    }
}
