/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * tx.c -- transmit side: send queue and read responses into batches of FPDUs, one sendmsg each
 *
 * Everything here runs with tx_lock held. A batch is a list of segments: headers and trailers in
 * the batch's own buffer, payload straight from registered memory. References to memory regions
 * are held only around the sendmsg call; a batch that the socket takes only in part validates its
 * memory again before it goes on.
 */
#include "softrdma.h"

#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

/* Room that one more FPDU may need in a batch. */
#define FPDU_SEGMENTS (SOFT_MAX_SGE + 3)
#define FPDU_HEADERS (IWARP_TERMINATE_MAX + SOFT_COPY_INLINE + 8)

/* What an FPDU that cannot be finished takes back. */
struct mark {
    uint32_t segments, holds, header_used, bytes, bounce_used;
    struct soft_tx_segment last;
};

static struct mark mark_batch(const struct soft_tx_batch *batch)
{
    struct mark mark = {
        .segments = batch->segments,
        .holds = batch->holds,
        .header_used = batch->header_used,
        .bytes = batch->bytes,
        .bounce_used = batch->bounce_used,
    };

    if (batch->segments > 0)
        mark.last = batch->segment[batch->segments - 1];
    return mark;
}

static void take_back(struct soft_tx_batch *batch, const struct mark *mark)
{
    while (batch->holds > mark->holds)
        soft_mr_put(batch->hold[--batch->holds]);
    batch->segments = mark->segments;
    batch->header_used = mark->header_used;
    batch->bytes = mark->bytes;
    batch->bounce_used = mark->bounce_used;
    if (batch->segments > 0)
        batch->segment[batch->segments - 1] = mark->last;
}

static void add_own(struct soft_tx_batch *batch, void *base, uint32_t length)
{
    struct soft_tx_segment *last =
        batch->segments > 0 ? &batch->segment[batch->segments - 1] : NULL;

    if (length == 0)
        return;
    if (last != NULL && last->stag == 0 && (char *)last->base + last->length == (char *)base) {
        last->length += length;
        return;
    }
    batch->segment[batch->segments++] = (struct soft_tx_segment){.base = base, .length = length};
}

static void hold(struct soft_tx_batch *batch, struct soft_mr *mr)
{
    batch->held = true;
    if (batch->holds > 0 && batch->hold[batch->holds - 1] == mr)
        soft_mr_put(mr);
    else
        batch->hold[batch->holds++] = mr;
}

/* Drop the batch's references to memory regions. tx_lock held. */
void soft_tx_drop_holds(struct soft_qp *qp)
{
    struct soft_tx_batch *batch = qp->tx.batch;

    while (batch->holds > 0)
        soft_mr_put(batch->hold[--batch->holds]);
    batch->held = false;
}

/* Copy registered memory; a page that a truncated file lost makes this fail, not the process. */
static bool copy_guarded(void *to, const void *from, size_t length)
{
    struct iovec local = {.iov_base = to, .iov_len = length};
    struct iovec remote = {.iov_base = (void *)(uintptr_t)from, .iov_len = length};
    ssize_t n = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);

    if (n == (ssize_t)length)
        return true;
    if (n < 0 && (errno == EPERM || errno == ENOSYS)) {
        soft_dma_copy(to, from, length);
        return true;
    }
    return false;
}

static bool add_payload(struct soft_qp *qp, uint64_t address, uint32_t length, uint32_t stag,
                        unsigned int access)
{
    struct soft_tx_batch *batch = qp->tx.batch;
    struct soft_mr *mr;

    if (length == 0)
        return true;
    if (soft_mr_get(qp->ibv.pd, stag, address, length, access, &mr) != SOFT_MR_OK)
        return false;
    if (qp->crc) {
        /* What the CRC covers must not change before it is sent. */
        void *copy = qp->tx.bounce + batch->bounce_used;
        bool ok = copy_guarded(copy, soft_mr_pointer(mr, address), length);

        soft_mr_put(mr);
        if (!ok)
            return false;
        batch->bounce_used += length;
        add_own(batch, copy, length);
    } else {
        batch->segment[batch->segments++] = (struct soft_tx_segment){
            .base = soft_mr_pointer(mr, address),
            .address = address,
            .length = length,
            .stag = stag,
            .access = access,
        };
        hold(batch, mr);
    }
    batch->bytes += length;
    return true;
}

/* Padding and CRC field. mark: the batch as it was before this FPDU; header: where it begins. */
static void add_trailer(struct soft_qp *qp, const uint8_t *header, uint32_t header_length,
                        uint32_t payload, const void *payload_copy)
{
    struct soft_tx_batch *batch = qp->tx.batch;
    uint32_t padding = iwarp_padding(header_length + payload);
    uint8_t *trailer = batch->header + batch->header_used;

    memset(trailer, 0, padding + IWARP_TRAILER);
    if (qp->crc) {
        uint32_t crc = iwarp_crc32c(0, header, header_length);

        crc = iwarp_crc32c(crc, payload_copy, payload);
        crc = iwarp_crc32c(crc, trailer, padding);
        iwarp_crc_store(trailer + padding, crc);
    }
    batch->header_used += padding + IWARP_TRAILER;
    add_own(batch, trailer, padding + IWARP_TRAILER);
    batch->fpdus++;
}

static bool has_room(const struct soft_qp *qp)
{
    const struct soft_tx_batch *batch = qp->tx.batch;

    return batch->fpdus < SOFT_BATCH_FPDUS &&
           batch->segments + FPDU_SEGMENTS <= SOFT_BATCH_SEGMENTS &&
           batch->header_used + FPDU_HEADERS <= SOFT_BATCH_HEADERS &&
           batch->bytes < SOFT_BATCH_BYTES &&
           (!qp->crc || batch->bounce_used + qp->fpdu_payload <= 4 * SOFT_FPDU_PAYLOAD);
}

static struct soft_send_wqe *wqe_at(const struct soft_qp *qp, uint32_t position)
{
    return &qp->tx.wqe[position & qp->tx.mask];
}

static struct ibv_sge *sges_at(const struct soft_qp *qp, uint32_t position)
{
    return &qp->tx.sge[(size_t)(position & qp->tx.mask) * qp->tx.max_sge];
}

static bool gather_inline(struct soft_qp *qp, uint32_t length)
{
    struct soft_tx *tx = &qp->tx;
    struct soft_tx_batch *batch = tx->batch;
    uint8_t *from = tx->inline_data + (size_t)(tx->next & tx->mask) * tx->max_inline + tx->offset;
    uint8_t *to = batch->header + batch->header_used;

    if (qp->crc) {
        memcpy(tx->bounce + batch->bounce_used, from, length);
        add_own(batch, tx->bounce + batch->bounce_used, length);
        batch->bounce_used += length;
    } else if (length <= SOFT_COPY_INLINE) {
        memcpy(to, from, length);
        batch->header_used += length;
        add_own(batch, to, length);
    } else {
        add_own(batch, from, length);
    }
    batch->bytes += length;
    return true;
}

/* Payload of the current send queue entry, from where it stands. */
static bool gather(struct soft_qp *qp, const struct soft_send_wqe *wqe, uint32_t length)
{
    struct soft_tx *tx = &qp->tx;
    const struct ibv_sge *sge = sges_at(qp, tx->next);

    if (wqe->inline_length > 0)
        return gather_inline(qp, length);
    while (length > 0) {
        uint32_t left = sge[tx->current_sge].length - tx->current_sge_offset;
        uint32_t n = length < left ? length : left;

        if (!add_payload(qp, sge[tx->current_sge].addr + tx->current_sge_offset, n,
                         sge[tx->current_sge].lkey, 0))
            return false;
        tx->current_sge_offset += n;
        if (n == left) {
            tx->current_sge++;
            tx->current_sge_offset = 0;
        }
        length -= n;
    }
    return true;
}

static void fault(struct soft_qp *qp, enum ibv_wc_status status, int error)
{
    qp->tx.fault = true;
    qp->tx.fault_status = status;
    qp->tx.error = error;
}

static uint8_t send_opcode(const struct soft_send_wqe *wqe)
{
    bool invalidate = wqe->opcode == IBV_WR_SEND_WITH_INV;

    if (wqe->opcode == IBV_WR_RDMA_WRITE)
        return IWARP_WRITE;
    if (wqe->solicited)
        return invalidate ? IWARP_SEND_SOLICITED_INVALIDATE : IWARP_SEND_SOLICITED;
    return invalidate ? IWARP_SEND_INVALIDATE : IWARP_SEND;
}

static void put_invalidate(uint8_t *header, uint32_t stag)
{
    stag = __builtin_bswap32(stag);
    memcpy(header + 4, &stag, sizeof(stag));
}

/* One FPDU of a Send or Write. */
static bool emit_send_or_write(struct soft_qp *qp, struct soft_send_wqe *wqe)
{
    struct soft_tx *tx = &qp->tx;
    struct soft_tx_batch *batch = tx->batch;
    struct mark mark = mark_batch(batch);
    uint32_t left = wqe->length - tx->offset;
    uint32_t payload = left < qp->fpdu_payload ? left : qp->fpdu_payload;
    bool last = payload == left;
    uint8_t *header = batch->header + batch->header_used;
    const uint8_t *copy = qp->crc ? tx->bounce + batch->bounce_used : NULL;
    uint32_t header_length;

    if (wqe->opcode == IBV_WR_RDMA_WRITE) {
        header_length = iwarp_tagged_encode(header, IWARP_WRITE, last, wqe->rkey,
                                            wqe->remote_address + tx->offset, payload);
    } else {
        header_length = iwarp_untagged_encode(header, send_opcode(wqe), last, IWARP_QUEUE_SEND,
                                              tx->send_msn, tx->offset, payload);
        if (wqe->opcode == IBV_WR_SEND_WITH_INV)
            put_invalidate(header, wqe->rkey);
    }
    batch->header_used += header_length;
    add_own(batch, header, header_length);
    if (!gather(qp, wqe, payload)) {
        take_back(batch, &mark);
        fault(qp, IBV_WC_LOC_PROT_ERR, -EFAULT);
        return false;
    }
    add_trailer(qp, header, header_length, payload, copy);
    batch->has_send_queue_data = true;
    tx->offset += payload;
    tx->current = last ? SOFT_TX_NONE : SOFT_TX_WQE;
    if (last) {
        tx->next++;
        if (wqe->opcode != IBV_WR_RDMA_WRITE)
            tx->send_msn++;
    }
    return true;
}

static bool sink_valid(struct soft_qp *qp, const struct soft_send_wqe *wqe,
                       const struct ibv_sge *sge)
{
    for (uint32_t i = 0; i < wqe->sges; i++) {
        struct soft_mr *mr;

        if (sge[i].length == 0)
            continue;
        if (soft_mr_get(qp->ibv.pd, sge[i].lkey, sge[i].addr, sge[i].length, IBV_ACCESS_LOCAL_WRITE,
                        &mr) != SOFT_MR_OK)
            return false;
        soft_mr_put(mr);
    }
    return true;
}

/*
 * A read request. The sink named on the wire is the first sge; the peer only echoes it, and the
 * response is placed along the list of sges.
 */
static bool emit_read_request(struct soft_qp *qp, struct soft_send_wqe *wqe)
{
    struct soft_tx *tx = &qp->tx;
    struct soft_tx_batch *batch = tx->batch;
    const struct ibv_sge *sge = sges_at(qp, tx->next);
    uint32_t tail = atomic_load_explicit(&qp->outstanding_tail, memory_order_relaxed);
    uint8_t *header = batch->header + batch->header_used;
    uint32_t length;

    if (!sink_valid(qp, wqe, sge)) {
        fault(qp, IBV_WC_LOC_PROT_ERR, -EFAULT);
        return false;
    }
    length = iwarp_read_request_encode(header, tx->read_msn++, wqe->sges > 0 ? sge->lkey : 0,
                                       wqe->sges > 0 ? sge->addr : 0, wqe->length, wqe->rkey,
                                       wqe->remote_address);
    batch->header_used += length;
    add_own(batch, header, length);
    add_trailer(qp, header, length, 0, NULL);
    qp->outstanding[tail % SOFT_MAX_RD_ATOMIC] = tx->next++;
    atomic_store_explicit(&qp->outstanding_tail, tail + 1, memory_order_release);
    return true;
}

static void terminate_response(struct soft_qp *qp, const struct soft_inbound_read *read)
{
    const struct iwarp_error error = {IWARP_LAYER_RDMAP, IWARP_RDMAP_PROTECTION,
                                      IWARP_PROTECTION_STAG};

    qp->tx.terminate_length =
        iwarp_terminate_encode(qp->tx.terminate, &error, read->header, IWARP_READ_REQUEST_HEADER);
    qp->tx.current = SOFT_TX_NONE;
    qp->tx.error = -EACCES;
    /* Responses go out in order: those behind this one never will. */
    atomic_store_explicit(&qp->inbound_head,
                          atomic_load_explicit(&qp->inbound_tail, memory_order_acquire),
                          memory_order_release);
}

/* One FPDU of the current read response. */
static bool emit_response(struct soft_qp *qp)
{
    struct soft_tx *tx = &qp->tx;
    struct soft_tx_batch *batch = tx->batch;
    struct mark mark = mark_batch(batch);
    struct soft_inbound_read *read = &tx->response;
    uint32_t left = read->length - tx->offset;
    uint32_t payload = left < qp->fpdu_payload ? left : qp->fpdu_payload;
    bool last = payload == left;
    uint8_t *header = batch->header + batch->header_used;
    const uint8_t *copy = qp->crc ? tx->bounce + batch->bounce_used : NULL;
    uint32_t length = iwarp_tagged_encode(header, IWARP_READ_RESPONSE, last, read->sink_stag,
                                          read->sink_offset + tx->offset, payload);

    batch->header_used += length;
    add_own(batch, header, length);
    if (!add_payload(qp, read->source_offset + tx->offset, payload, read->source_stag,
                     IBV_ACCESS_REMOTE_READ)) {
        take_back(batch, &mark);
        terminate_response(qp, read);
        return false;
    }
    add_trailer(qp, header, length, payload, copy);
    tx->offset += payload;
    tx->current = last ? SOFT_TX_NONE : SOFT_TX_RESPONSE;
    return true;
}

static bool emit_terminate(struct soft_qp *qp)
{
    struct soft_tx_batch *batch = qp->tx.batch;
    uint8_t *to = batch->header + batch->header_used;
    uint32_t length = qp->tx.terminate_length;

    memcpy(to, qp->tx.terminate, length);
    if (qp->crc)
        iwarp_crc_store(to + length - IWARP_TRAILER, iwarp_crc32c(0, to, length - IWARP_TRAILER));
    batch->header_used += length;
    add_own(batch, to, length);
    batch->fpdus++;
    batch->terminate = true;
    return true;
}

/* An empty Write: it names no region, and a receiver does not look at its STag. */
static void emit_nudge(struct soft_qp *qp)
{
    struct soft_tx_batch *batch = qp->tx.batch;
    uint8_t *header = batch->header + batch->header_used;
    uint32_t length = iwarp_tagged_encode(header, IWARP_WRITE, true, 0, 0, 0);

    batch->header_used += length;
    add_own(batch, header, length);
    add_trailer(qp, header, length, 0, NULL);
    qp->tx.nudge_pending = false;
}

static bool inbound_waiting(const struct soft_qp *qp)
{
    return atomic_load_explicit(&qp->inbound_tail, memory_order_acquire) !=
           atomic_load_explicit(&qp->inbound_head, memory_order_relaxed);
}

/* May the next send queue entry begin? */
static bool send_queue_ready(struct soft_qp *qp)
{
    struct soft_tx *tx = &qp->tx;
    const struct soft_send_wqe *wqe = wqe_at(qp, tx->next);
    uint32_t outstanding;

    if (tx->next == (tx->closing ? tx->closing_tail : tx->tail) ||
        atomic_load_explicit(&qp->state, memory_order_relaxed) != IBV_QPS_RTS)
        return false;
    outstanding =
        atomic_load_explicit(&qp->outstanding_tail, memory_order_relaxed) - tx->outstanding_head;
    if (wqe->fence && outstanding > 0)
        return false;
    if (wqe->opcode != IBV_WR_RDMA_READ)
        return true;
    if (qp->ord == 0)
        fault(qp, IBV_WC_LOC_QP_OP_ERR, -EINVAL);
    return outstanding < qp->ord;
}

/* Begin the next message. False when there is none that may. */
static bool begin(struct soft_qp *qp)
{
    struct soft_tx *tx = &qp->tx;
    bool response = inbound_waiting(qp);
    bool own = send_queue_ready(qp);

    if (!response && !own)
        return false;
    tx->offset = 0;
    tx->current_sge = 0;
    tx->current_sge_offset = 0;
    if (response && (!own || !tx->responded_last)) {
        uint32_t head = atomic_load_explicit(&qp->inbound_head, memory_order_relaxed);

        tx->response = qp->inbound[head % SOFT_MAX_RD_ATOMIC];
        /* Freed before the response is sent: the peer may ask again as soon as it has it. */
        atomic_store_explicit(&qp->inbound_head, head + 1, memory_order_release);
        tx->current = SOFT_TX_RESPONSE;
        tx->responded_last = true;
    } else {
        tx->current = SOFT_TX_WQE;
        tx->responded_last = false;
    }
    return true;
}

static bool emit(struct soft_qp *qp)
{
    struct soft_send_wqe *wqe;

    if (qp->tx.current == SOFT_TX_RESPONSE)
        return emit_response(qp);
    wqe = wqe_at(qp, qp->tx.next);
    if (wqe->opcode != IBV_WR_RDMA_READ)
        return emit_send_or_write(qp, wqe);
    qp->tx.current = SOFT_TX_NONE;
    return emit_read_request(qp, wqe);
}

static void build(struct soft_qp *qp)
{
    struct soft_tx *tx = &qp->tx;
    struct soft_tx_batch *batch = tx->batch;

    if (tx->nudge_pending && tx->current == SOFT_TX_NONE)
        emit_nudge(qp);
    while (has_room(qp) && tx->error == 0) {
        if (tx->current == SOFT_TX_NONE && !begin(qp))
            break;
        if (!emit(qp))
            break;
    }
    if (tx->terminate_pending && tx->current == SOFT_TX_NONE && !batch->terminate &&
        !inbound_waiting(qp) && has_room(qp))
        emit_terminate(qp);
    batch->sq_after = tx->next;
}

/* A batch that was sent in part: is its memory still what it was? */
static bool hold_again(struct soft_qp *qp)
{
    struct soft_tx_batch *batch = qp->tx.batch;

    for (uint32_t i = batch->next; i < batch->segments; i++) {
        const struct soft_tx_segment *segment = &batch->segment[i];
        struct soft_mr *mr;

        if (segment->stag == 0)
            continue;
        if (soft_mr_get(qp->ibv.pd, segment->stag, segment->address, segment->length,
                        segment->access, &mr) != SOFT_MR_OK)
            return false;
        hold(batch, mr);
    }
    batch->held = true;
    return true;
}

static void advance(struct soft_tx_batch *batch, size_t sent)
{
    while (batch->next < batch->segments) {
        size_t left = batch->segment[batch->next].length - batch->next_sent;

        if (sent < left) {
            batch->next_sent += (uint32_t)sent;
            return;
        }
        sent -= left;
        batch->next++;
        batch->next_sent = 0;
    }
}

/* Returns 0 when the whole batch is sent, -EAGAIN when the socket is full, or an error. */
static int send_batch(struct soft_qp *qp)
{
    struct soft_tx_batch *batch = qp->tx.batch;
    struct msghdr message = {.msg_iov = batch->iov};
    ssize_t sent;
    int r;

    if (!batch->held && !hold_again(qp)) {
        soft_tx_drop_holds(qp);
        return -EFAULT; /* in the middle of an FPDU: the stream cannot go on */
    }
    for (uint32_t i = batch->next; i < batch->segments; i++) {
        uint32_t skip = i == batch->next ? batch->next_sent : 0;

        batch->iov[message.msg_iovlen].iov_base = (char *)batch->segment[i].base + skip;
        batch->iov[message.msg_iovlen++].iov_len = batch->segment[i].length - skip;
    }
    do {
        sent = soft_dma_send(qp->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    r = sent < 0 ? -errno : 0;
    soft_tx_drop_holds(qp);
    if (r < 0)
        return r == -EWOULDBLOCK ? -EAGAIN : r;
    advance(batch, (size_t)sent);
    return batch->next < batch->segments ? -EAGAIN : 0;
}

static void reset_batch(struct soft_tx_batch *batch)
{
    memset(batch, 0, offsetof(struct soft_tx_batch, hold));
}

/* Complete what is finished, oldest first. tx_lock held. */
void soft_tx_retire(struct soft_qp *qp)
{
    struct soft_tx *tx = &qp->tx;

    while (tx->head != tx->sent) {
        struct soft_send_wqe *wqe = wqe_at(qp, tx->head);

        if (wqe->opcode == IBV_WR_RDMA_READ && !wqe->done)
            break;
        if (wqe->signaled)
            soft_complete_send(qp, wqe, IBV_WC_SUCCESS);
        tx->head++;
    }
}

/* Is everything that was posted before rdma_disconnect() finished? tx_lock held. */
bool soft_tx_drained(const struct soft_qp *qp)
{
    return qp->tx.batch->segments == 0 && qp->tx.current == SOFT_TX_NONE &&
           qp->tx.head == qp->tx.closing_tail && !inbound_waiting(qp);
}

static void want_writable(struct soft_qp *qp, bool want)
{
    if (qp->tx.want_writable == want)
        return;
    qp->tx.want_writable = want;
    soft_qp_epoll_update(qp);
}

/* The initiator's first frame is out: from now on the peer's silence is watched. */
static void expect_answer(struct soft_qp *qp)
{
    qp->tx.nudge_us = soft_now_us() + qp->tx.nudge_ms * 1000u;
    soft_worker_tick_add(qp->worker, qp);
}

/*
 * Kernel siw as the passive side sends its MPA reply before it has the socket call it for data
 * (siw_accept, siw_qp_socket_assoc): a frame that arrives in between lies there unseen until more
 * data comes, and both sides wait for ever. So while the peer has not said anything since the
 * connection was made, an empty RDMA Write follows the first frame now and then; it is
 * one of RFC 6581's ready-to-receive frames, and means nothing to a peer that is only slow.
 * tx_lock held. Returns whether another look is needed; tx.error as after soft_tx_progress().
 */
bool soft_tx_nudge(struct soft_qp *qp, uint64_t now_us)
{
    struct soft_tx *tx = &qp->tx;

    if (tx->nudge_us == 0)
        return false;
    if (tx->nudges == 0 || tx->closing ||
        atomic_load_explicit(&qp->rx.first_seen, memory_order_relaxed) ||
        atomic_load_explicit(&qp->state, memory_order_relaxed) != IBV_QPS_RTS) {
        tx->nudge_us = 0;
        tx->nudges = 0;
        return false;
    }
    if (now_us < tx->nudge_us)
        return true;
    tx->nudges--;
    tx->nudge_ms *= 2;
    tx->nudge_us = now_us + tx->nudge_ms * 1000u;
    tx->nudge_pending = true;
    if (!tx->want_writable)
        soft_tx_progress(qp);
    return true;
}

static void shut(struct soft_qp *qp)
{
    qp->tx.closed = true;
    shutdown(qp->fd, SHUT_WR);
}

/*
 * Send what can be sent now, *budget bytes or little more, which are taken from it; what is left goes
 * out when the socket is writable again. tx_lock held. Returns 0, or a negative errno that is also
 * kept in tx.error: the caller then calls soft_qp_tx_failed() once it holds no lock. -ESHUTDOWN:
 * closing, and all is sent.
 */
int soft_tx_progress_within(struct soft_qp *qp, uint32_t *budget)
{
    struct soft_tx *tx = &qp->tx;
    struct soft_tx_batch *batch = tx->batch;

    if (qp->fd < 0 || tx->closed)
        return 0;
    for (;;) {
        int r;

        if (*budget == 0) {
            want_writable(qp, true);
            return 0;
        }
        if (batch->segments == 0)
            build(qp);
        if (batch->segments == 0)
            break;
        r = send_batch(qp);
        if (r == -EAGAIN) {
            want_writable(qp, true);
            return 0;
        }
        if (r < 0) {
            tx->error = r;
            return r;
        }
        tx->sent = batch->sq_after;
        if (tx->nudges == SOFT_NUDGES && tx->nudge_us == 0)
            expect_answer(qp);
        *budget -= batch->bytes < *budget ? batch->bytes : *budget;
        if (batch->terminate) {
            tx->terminate_pending = false;
            shut(qp);
        }
        reset_batch(batch);
        soft_tx_retire(qp);
        if (tx->closed)
            break;
    }
    want_writable(qp, false);
    if (tx->error == 0 && tx->closing && !tx->closed && soft_tx_drained(qp)) {
        shut(qp);
        tx->error = -ESHUTDOWN;
    }
    return atomic_load_explicit(&qp->state, memory_order_relaxed) == IBV_QPS_RTS ? tx->error : 0;
}

/* As soft_tx_progress_within(), with the budget of one turn. */
int soft_tx_progress(struct soft_qp *qp)
{
    uint32_t budget = SOFT_TX_BUDGET;

    return soft_tx_progress_within(qp, &budget);
}
