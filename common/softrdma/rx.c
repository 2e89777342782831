/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rx.c -- receive side: from the socket into registered memory
 *
 * Runs with rx_lock held. Small messages are read in bulk into a staging buffer and copied;
 * payload that is large is received straight into its destination. Read completions are
 * collected during a pass and settled under tx_lock at its end, together with the answers to the
 * peer's reads: one lock, one sendmsg.
 */
#include "softrdma.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* One-sided FPDUs in a row after which a delegated socket goes back to its worker. */
#define ONE_SIDED_MAX 64u
/* Read requests of one pass after which they are answered, before more is received. */
#define REQUESTS_MAX 32u
/* FPDUs of one pass after which other sockets get their turn. */
#define FPDUS_MAX 4096u
/* Completions that follow each other within this time come often. */
#define OFTEN_US 10000u
/* Receive calls that look for a last word of the peer when sending failed. */
#define LAST_ROUNDS 256
/* What fill() says at the end of the stream. */
#define END_OF_STREAM (-ENODATA)

static uint8_t *staged(struct soft_rx *rx)
{
    return rx->staging + rx->begin;
}

static const struct soft_send_wqe *oldest_read(const struct soft_qp *qp, uint32_t *position)
{
    uint32_t tail = atomic_load_explicit(&qp->outstanding_tail, memory_order_acquire);

    if (qp->outstanding_rx == tail)
        return NULL;
    *position = qp->outstanding[qp->outstanding_rx % SOFT_MAX_RD_ATOMIC] & qp->tx.mask;
    return &qp->tx.wqe[*position];
}

/* Refuse the segment at hand: Terminate to the peer, queue pair to error. Returns -EPROTO. */
static int refuse(struct soft_qp *qp, struct iwarp_error error, int send_status, int recv_status,
                  bool read_failed)
{
    struct soft_rx *rx = &qp->rx;
    bool known = rx->segment.header_length > 0;

    soft_debug("qp %u refuses opcode %u: terminate %u/%u/%u", qp->handle, rx->segment.opcode,
               error.layer, error.type, error.code);
    rx->terminate_length = iwarp_terminate_encode(rx->terminate, &error, known ? rx->header : NULL,
                                                  rx->segment.header_length);
    soft_qp_fail_locked(qp, send_status, recv_status, read_failed);
    return -EPROTO;
}

static struct iwarp_error protection_error(enum soft_mr_error error)
{
    struct iwarp_error out = {IWARP_LAYER_RDMAP, IWARP_RDMAP_PROTECTION, IWARP_PROTECTION_STAG};

    if (error == SOFT_MR_BOUNDS)
        out.code = IWARP_PROTECTION_BOUNDS;
    else if (error == SOFT_MR_ACCESS)
        out.code = IWARP_PROTECTION_ACCESS;
    else if (error == SOFT_MR_PD)
        out.code = IWARP_PROTECTION_NOT_ASSOCIATED;
    return out;
}

static struct iwarp_error tagged_error(enum soft_mr_error error)
{
    struct iwarp_error out = {IWARP_LAYER_DDP, IWARP_DDP_TAGGED, IWARP_TAGGED_STAG};

    if (error == SOFT_MR_ACCESS)
        return protection_error(error);
    if (error == SOFT_MR_BOUNDS)
        out.code = IWARP_TAGGED_BOUNDS;
    else if (error == SOFT_MR_PD)
        out.code = IWARP_TAGGED_NOT_ASSOCIATED;
    return out;
}

static struct iwarp_error untagged_error(uint8_t code)
{
    return (struct iwarp_error){IWARP_LAYER_DDP, IWARP_DDP_UNTAGGED, code};
}

static int access_refused(struct soft_qp *qp, struct iwarp_error error)
{
    qp->was_access_error = true;
    return refuse(qp, error, 0, 0, false);
}

/* Retire reads that are complete, and transmit what that (or the peer's requests) allows. */
static int settle(struct soft_qp *qp)
{
    struct soft_rx *rx = &qp->rx;
    struct soft_tx *tx = &qp->tx;
    int r;

    if (rx->reads_done == 0 && rx->requests == 0)
        return 0;
    pthread_mutex_lock(&qp->tx_lock);
    for (; rx->reads_done > 0; rx->reads_done--) {
        uint32_t at = tx->outstanding_head++ % SOFT_MAX_RD_ATOMIC;

        tx->wqe[qp->outstanding[at] & tx->mask].done = true;
    }
    rx->requests = 0;
    soft_tx_retire(qp);
    r = tx->error != 0 ? tx->error : 0;
    if (r == 0 && !tx->want_writable)
        r = soft_tx_progress_within(qp, &rx->send_budget);
    pthread_mutex_unlock(&qp->tx_lock);
    return r;
}

/* ---------------------------------------------------------------- headers */

static int begin_write(struct soft_qp *qp)
{
    struct soft_rx *rx = &qp->rx;
    const struct iwarp_segment *s = &rx->segment;
    enum soft_mr_error error;
    struct soft_mr *mr;

    if (rx->read_offset > 0)
        return refuse(
            qp,
            (struct iwarp_error){IWARP_LAYER_RDMAP, IWARP_RDMAP_OPERATION, IWARP_OPERATION_STREAM},
            0, 0, false);
    rx->write_open = !s->last;
    if (s->payload_length == 0)
        return 0;
    error = soft_mr_get(qp->ibv.pd, s->stag, s->offset, s->payload_length, IBV_ACCESS_REMOTE_WRITE,
                        &mr);
    if (error != SOFT_MR_OK)
        return access_refused(qp, tagged_error(error));
    soft_mr_put(mr);
    return 0;
}

static int begin_read_response(struct soft_qp *qp)
{
    struct soft_rx *rx = &qp->rx;
    const struct iwarp_segment *s = &rx->segment;
    uint32_t position;
    const struct soft_send_wqe *wqe = oldest_read(qp, &position);
    const struct ibv_sge *sge;
    uint64_t sink_offset;
    uint32_t sink_stag;

    if (wqe == NULL || rx->write_open)
        return refuse(qp,
                      (struct iwarp_error){IWARP_LAYER_DDP, IWARP_DDP_TAGGED, IWARP_TAGGED_STAG}, 0,
                      0, false);
    sge = &qp->tx.sge[(size_t)position * qp->tx.max_sge];
    sink_stag = wqe->sges > 0 ? sge->lkey : 0;
    sink_offset = (wqe->sges > 0 ? sge->addr : 0) + rx->read_offset;
    if (s->stag != sink_stag || s->offset != sink_offset ||
        s->payload_length > wqe->length - rx->read_offset ||
        s->last != (s->payload_length == wqe->length - rx->read_offset))
        return refuse(qp,
                      (struct iwarp_error){IWARP_LAYER_DDP, IWARP_DDP_TAGGED, IWARP_TAGGED_BOUNDS},
                      IBV_WC_BAD_RESP_ERR, 0, true);
    return 0;
}

static int begin_read_request(struct soft_qp *qp)
{
    struct soft_rx *rx = &qp->rx;
    const struct iwarp_segment *s = &rx->segment;
    uint32_t tail = atomic_load_explicit(&qp->inbound_tail, memory_order_relaxed);
    uint32_t head = atomic_load_explicit(&qp->inbound_head, memory_order_acquire);
    struct soft_inbound_read *read = &qp->inbound[tail % SOFT_MAX_RD_ATOMIC];

    if (s->msn != rx->read_msn)
        return refuse(qp, untagged_error(IWARP_UNTAGGED_MSN), 0, 0, false);
    if (tail - head >= qp->ird)
        return refuse(
            qp,
            (struct iwarp_error){IWARP_LAYER_RDMAP, IWARP_RDMAP_OPERATION, IWARP_OPERATION_STREAM},
            0, 0, false);
    if (s->read_length > 0) {
        enum soft_mr_error error;
        struct soft_mr *mr;

        if (s->source_offset + s->read_length < s->source_offset)
            return access_refused(qp,
                                  (struct iwarp_error){IWARP_LAYER_RDMAP, IWARP_RDMAP_PROTECTION,
                                                       IWARP_PROTECTION_WRAP});
        error = soft_mr_get(qp->ibv.pd, s->source_stag, s->source_offset, s->read_length,
                            IBV_ACCESS_REMOTE_READ, &mr);
        if (error != SOFT_MR_OK)
            return access_refused(qp, protection_error(error));
        soft_mr_put(mr);
    }
    read->sink_stag = s->sink_stag;
    read->sink_offset = s->sink_offset;
    read->source_stag = s->source_stag;
    read->source_offset = s->source_offset;
    read->length = s->read_length;
    memcpy(read->header, rx->header, sizeof(read->header));
    return 0;
}

static int take_receive(struct soft_qp *qp)
{
    struct soft_rx *rx = &qp->rx;
    bool limit = false;

    if (!soft_rq_pop(qp->rq, &rx->recv, qp->srq != NULL ? &limit : NULL))
        return refuse(qp, untagged_error(IWARP_UNTAGGED_NO_BUFFER), 0, 0, false);
    if (limit)
        soft_async_push(qp->ibv.context, IBV_EVENT_SRQ_LIMIT_REACHED, qp->srq);
    rx->recv_open = true;
    rx->recv_offset = 0;
    rx->recv_sge = 0;
    rx->recv_sge_offset = 0;
    return 0;
}

static int begin_send(struct soft_qp *qp)
{
    struct soft_rx *rx = &qp->rx;
    const struct iwarp_segment *s = &rx->segment;

    if (s->msn != rx->send_msn)
        return refuse(qp, untagged_error(IWARP_UNTAGGED_MSN), 0, 0, false);
    if (rx->recv_open ? s->message_offset != rx->recv_offset : s->message_offset != 0)
        return refuse(qp, untagged_error(IWARP_UNTAGGED_MO), 0, 0, false);
    if (s->opcode == IWARP_SEND_INVALIDATE || s->opcode == IWARP_SEND_SOLICITED_INVALIDATE)
        return refuse(qp,
                      (struct iwarp_error){IWARP_LAYER_RDMAP, IWARP_RDMAP_OPERATION,
                                           IWARP_OPERATION_INVALIDATE},
                      0, 0, false);
    if (!rx->recv_open) {
        int r = take_receive(qp);

        if (r < 0)
            return r;
    }
    if (s->payload_length > rx->recv.length - rx->recv_offset)
        return refuse(qp, untagged_error(IWARP_UNTAGGED_TOO_LONG), 0, IBV_WC_LOC_LEN_ERR, false);
    return 0;
}

static int begin_segment(struct soft_qp *qp)
{
    struct soft_rx *rx = &qp->rx;

    if (!atomic_load_explicit(&rx->first_seen, memory_order_relaxed)) {
        atomic_store_explicit(&rx->first_seen, true, memory_order_relaxed);
        if (qp->establish_on_first)
            soft_cm_qp_first_fpdu(qp->cm_handle);
    }
    switch (rx->segment.opcode) {
    case IWARP_WRITE:
        return begin_write(qp);
    case IWARP_READ_RESPONSE:
        return begin_read_response(qp);
    case IWARP_READ_REQUEST:
        return begin_read_request(qp);
    case IWARP_TERMINATE:
        if (rx->segment.payload_length > sizeof(rx->terminate))
            return refuse(qp, untagged_error(IWARP_UNTAGGED_TOO_LONG), 0, 0, false);
        return 0;
    default:
        return begin_send(qp);
    }
}

/* ---------------------------------------------------------------- payload */

/* Where the next bytes of payload go: at most want of them, contiguous. */
struct piece {
    void *to;
    uint32_t length;
    struct soft_mr *mr; /* held; NULL for the provider's own memory */
};

static enum soft_mr_error sge_piece(struct soft_qp *qp, const struct ibv_sge *sges, uint32_t *index,
                                    uint32_t *offset, uint32_t want, struct piece *piece)
{
    const struct ibv_sge *sge = &sges[*index];
    enum soft_mr_error error;

    while (*offset == sge->length) {
        sge = &sges[++*index];
        *offset = 0;
    }
    piece->length = want < sge->length - *offset ? want : sge->length - *offset;
    error = soft_mr_get(qp->ibv.pd, sge->lkey, sge->addr + *offset, piece->length,
                        IBV_ACCESS_LOCAL_WRITE, &piece->mr);
    if (error == SOFT_MR_OK)
        piece->to = soft_mr_pointer(piece->mr, sge->addr + *offset);
    return error;
}

static int local_refused(struct soft_qp *qp, bool read)
{
    const struct iwarp_error error = {IWARP_LAYER_RDMAP, IWARP_RDMAP_LOCAL, 0};

    qp->was_access_error = true;
    return refuse(qp, error, read ? IBV_WC_LOC_PROT_ERR : 0, read ? 0 : IBV_WC_LOC_PROT_ERR, read);
}

static int next_piece(struct soft_qp *qp, uint32_t want, struct piece *piece)
{
    struct soft_rx *rx = &qp->rx;
    struct iwarp_segment *s = &rx->segment;
    enum soft_mr_error error;
    uint32_t position = 0;

    switch (s->opcode) {
    case IWARP_WRITE:
        error =
            soft_mr_get(qp->ibv.pd, s->stag, s->offset, want, IBV_ACCESS_REMOTE_WRITE, &piece->mr);
        if (error != SOFT_MR_OK)
            return access_refused(qp, tagged_error(error));
        piece->to = soft_mr_pointer(piece->mr, s->offset);
        piece->length = want;
        return 0;
    case IWARP_READ_RESPONSE:
        oldest_read(qp, &position);
        error = sge_piece(qp, &qp->tx.sge[(size_t)position * qp->tx.max_sge], &rx->read_sge,
                          &rx->read_sge_offset, want, piece);
        return error == SOFT_MR_OK ? 0 : local_refused(qp, true);
    case IWARP_TERMINATE:
        piece->to = rx->terminate + (s->payload_length - rx->payload_left);
        piece->length = want;
        piece->mr = NULL;
        return 0;
    default:
        error = sge_piece(qp, rx->recv.sge, &rx->recv_sge, &rx->recv_sge_offset, want, piece);
        return error == SOFT_MR_OK ? 0 : local_refused(qp, false);
    }
}

/* n bytes of the current segment's payload are in place. */
static void in_place(struct soft_rx *rx, uint32_t n)
{
    rx->payload_left -= n;
    switch (rx->segment.opcode) {
    case IWARP_WRITE:
        rx->segment.offset += n;
        break;
    case IWARP_READ_RESPONSE:
        rx->read_offset += n;
        rx->read_sge_offset += n;
        break;
    case IWARP_TERMINATE:
        break;
    default:
        rx->recv_offset += n;
        rx->recv_sge_offset += n;
        break;
    }
}

/* n bytes of the piece are in place: release it and move on. */
static void placed(struct soft_qp *qp, const struct piece *piece, uint32_t n)
{
    if (qp->crc)
        qp->rx.crc = iwarp_crc32c(qp->rx.crc, piece->to, n);
    if (piece->mr != NULL)
        soft_mr_put(piece->mr);
    in_place(&qp->rx, n);
}

/* ---------------------------------------------------------------- ends */

static void end_read_response(struct soft_qp *qp)
{
    struct soft_rx *rx = &qp->rx;

    if (!rx->segment.last)
        return;
    qp->outstanding_rx++;
    rx->read_offset = 0;
    rx->read_sge = 0;
    rx->read_sge_offset = 0;
    rx->reads_done++;
    rx->completions++;
    rx->one_sided = 0;
}

static int end_send(struct soft_qp *qp)
{
    struct soft_rx *rx = &qp->rx;
    bool solicited = rx->segment.opcode == IWARP_SEND_SOLICITED;
    int r;

    if (!rx->segment.last)
        return 0;
    rx->send_msn++;
    rx->recv_open = false;
    rx->completions++;
    rx->one_sided = 0;
    /* What the peer answered before this message is completed before it. */
    r = rx->reads_done > 0 ? settle(qp) : 0;
    soft_complete_recv(qp, rx->recv.wr_id, rx->recv_offset, solicited, IBV_WC_SUCCESS);
    return r;
}

static int end_terminate(struct soft_qp *qp)
{
    struct soft_rx *rx = &qp->rx;
    struct iwarp_terminate t = {0};
    int status = IBV_WC_WR_FLUSH_ERR;

    if (iwarp_terminate_decode(rx->terminate, rx->segment.payload_length, &t) == 0) {
        if ((t.error.layer == IWARP_LAYER_RDMAP && t.error.type == IWARP_RDMAP_PROTECTION) ||
            (t.error.layer == IWARP_LAYER_DDP && t.error.type == IWARP_DDP_TAGGED))
            status = IBV_WC_REM_ACCESS_ERR;
        else if (t.error.layer == IWARP_LAYER_DDP && t.error.type == IWARP_DDP_UNTAGGED)
            status = t.error.code == IWARP_UNTAGGED_TOO_LONG ? IBV_WC_REM_INV_REQ_ERR
                                                             : IBV_WC_REM_OP_ERR;
        else if (t.error.layer == IWARP_LAYER_RDMAP)
            status = IBV_WC_REM_OP_ERR;
    }
    soft_debug("qp %u got terminate %u/%u/%u opcode %d", qp->handle, t.error.layer, t.error.type,
               t.error.code, t.has_header ? t.opcode : -1);
    rx->refusal = t;
    rx->terminate_length = 0;
    soft_qp_fail_locked(qp, status, 0, false);
    return -ECONNABORTED;
}

static int end_segment(struct soft_qp *qp)
{
    struct soft_rx *rx = &qp->rx;
    int r = 0;

    rx->fpdus++;
    if (rx->segment.payload_length >= SOFT_LARGE)
        rx->large = SOFT_LARGE_MEMORY;
    else if (rx->large > 0)
        rx->large--;
    switch (rx->segment.opcode) {
    case IWARP_READ_RESPONSE:
        end_read_response(qp);
        break;
    case IWARP_READ_REQUEST:
        /* The slot was filled by begin_read_request(); now the CRC has been checked too. */
        rx->read_msn++;
        rx->requests++;
        rx->one_sided++;
        atomic_store_explicit(&qp->inbound_tail,
                              atomic_load_explicit(&qp->inbound_tail, memory_order_relaxed) + 1,
                              memory_order_release);
        if (rx->requests >= REQUESTS_MAX)
            r = settle(qp);
        break;
    case IWARP_WRITE:
        rx->one_sided++;
        break;
    case IWARP_TERMINATE:
        return end_terminate(qp);
    default:
        r = end_send(qp);
        break;
    }
    rx->segment.header_length = 0;
    return r;
}

/* ---------------------------------------------------------------- the machine */

/* A Terminate that refuses a DDP or RDMAP header shows it, as far as it came; one of MPA does not. */
static void keep_refused_header(struct soft_rx *rx, const struct iwarp_error *error)
{
    uint32_t available = rx->end - rx->begin;
    uint32_t length = iwarp_header_tagged(staged(rx)) ? IWARP_TAGGED_HEADER : IWARP_UNTAGGED_HEADER;

    if (error->layer == IWARP_LAYER_LLP || available < length)
        return;
    memcpy(rx->header, staged(rx), length);
    rx->segment.header_length = length;
}

static int step_header(struct soft_qp *qp)
{
    struct soft_rx *rx = &qp->rx;
    struct iwarp_error error;
    int n;

    rx->segment.header_length = 0;
    n = iwarp_segment_decode(staged(rx), rx->end - rx->begin, &rx->segment, &error);
    if (n < 0) {
        keep_refused_header(rx, &error);
        qp->was_access_error = error.layer == IWARP_LAYER_DDP && error.type == IWARP_DDP_TAGGED &&
                               error.code == IWARP_TAGGED_WRAP;
        return refuse(qp, error, 0, 0, false);
    }
    if (n == 0)
        return 0;
    memcpy(rx->header, staged(rx), (size_t)n);
    rx->crc = qp->crc ? iwarp_crc32c(0, rx->header, (size_t)n) : 0;
    rx->begin += (uint32_t)n;
    rx->payload_left = rx->segment.payload_length;
    rx->state = SOFT_RX_PAYLOAD;
    n = begin_segment(qp);
    return n < 0 ? n : 1;
}

static int step_payload(struct soft_qp *qp)
{
    struct soft_rx *rx = &qp->rx;

    while (rx->payload_left > 0) {
        uint32_t available = rx->end - rx->begin;
        struct piece piece;
        int r;

        if (available == 0)
            return 0;
        r = next_piece(qp, available < rx->payload_left ? available : rx->payload_left, &piece);
        if (r < 0)
            return r;
        soft_dma_copy(piece.to, staged(rx), piece.length);
        rx->begin += piece.length;
        placed(qp, &piece, piece.length);
    }
    rx->state = SOFT_RX_TRAILER;
    return 1;
}

static int step_trailer(struct soft_qp *qp)
{
    struct soft_rx *rx = &qp->rx;
    uint32_t padding = rx->segment.padding;
    int r;

    if (rx->end - rx->begin < padding + IWARP_TRAILER)
        return 0;
    if (qp->crc &&
        iwarp_crc32c(rx->crc, staged(rx), padding) != iwarp_crc_load(staged(rx) + padding)) {
        rx->segment.header_length = 0;
        return refuse(qp, (struct iwarp_error){IWARP_LAYER_LLP, IWARP_LLP_MPA, IWARP_MPA_ERROR_CRC},
                      0, 0, false);
    }
    rx->begin += padding + IWARP_TRAILER;
    rx->state = SOFT_RX_HEADER;
    r = end_segment(qp);
    return r < 0 ? r : 1;
}

/* Consume what is staged. Returns 0 when more is needed, or a negative errno. */
static int parse(struct soft_qp *qp)
{
    struct soft_rx *rx = &qp->rx;
    int r;

    do {
        if (rx->state == SOFT_RX_HEADER)
            r = step_header(qp);
        else if (rx->state == SOFT_RX_PAYLOAD)
            r = step_payload(qp);
        else
            r = step_trailer(qp);
    } while (r > 0);
    return r;
}

/* Is a large message likely to follow? Then nothing of it should be staged, only its header. */
static bool expect_large(struct soft_qp *qp)
{
    uint32_t position;
    const struct soft_send_wqe *read;

    if (qp->rx.large > 0)
        return true;
    read = oldest_read(qp, &position);
    return read != NULL && read->length >= SOFT_LARGE;
}

/*
 * Bytes to ask for beside the payload that goes straight to its place: none that a large message
 * would have to be copied from, or as many as the staging buffer takes. direct: bytes of the
 * current payload that go straight.
 */
static uint32_t staging_wanted(struct soft_qp *qp, uint32_t direct)
{
    const struct soft_rx *rx = &qp->rx;
    uint32_t room = SOFT_STAGING - rx->end, wanted = SOFT_HEADER_PEEK;

    if (rx->state == SOFT_RX_PAYLOAD) {
        if (direct > 0 && direct < rx->payload_left)
            return 0;
        /* Small segments, of however large a message, are best taken many at a time. */
        if (direct == 0 && rx->large == 0)
            return room;
        wanted += rx->payload_left - direct;
    }
    if (rx->state == SOFT_RX_PAYLOAD && direct > 0 && !rx->segment.last)
        return wanted < room ? wanted : room;
    return wanted < room && expect_large(qp) ? wanted : room;
}

/* Makes room in the staging buffer. What is left there is a partial header or trailer at most. */
static void compact(struct soft_rx *rx)
{
    if (rx->begin < rx->end && rx->begin > 0)
        memmove(rx->staging, staged(rx), rx->end - rx->begin);
    rx->end -= rx->begin;
    rx->begin = 0;
}

static void stage(struct soft_rx *rx, const void *bytes, uint32_t n)
{
    memcpy(rx->staging + rx->end, bytes, n);
    rx->end += n;
}

/* One receive call. *received: bytes. The result is that of fill(). */
static int receive(struct soft_qp *qp, struct msghdr *message, size_t asked, size_t *received)
{
    ssize_t n;

    *received = 0;
    do {
        n = soft_dma_receive(qp->fd, message, MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    if (n > 0) {
        *received = (size_t)n;
        qp->rx.received += (uint32_t)n;
        return (size_t)n < asked ? 2 : 1;
    }
    if (n == 0)
        return END_OF_STREAM;
    return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -errno;
}

/* ---------------------------------------------------------------- segments ahead */

/*
 * The segments of a long read response are all alike, and where their payload belongs is known: so
 * several are received by one call, headers and trailers into gaps between the payloads. Each
 * header is then decoded and checked as ever. When one says something else than expected, what was
 * received after it lies in the wrong place, which is still inside the read's own destination and
 * will be overwritten before the read completes: it is taken from there and goes through the
 * staging buffer. From then on the queue pair takes its segments one by one.
 */
#define AHEAD 7u /* segments beside the current one */
#define GAP_MAX (IWARP_TRAILER + 3 + IWARP_TAGGED_HEADER)

struct ahead {
    uint8_t *base;      /* where the rest of the read goes */
    uint32_t remaining; /* bytes of it */
    uint32_t count;     /* segments ahead */
    uint32_t length[AHEAD], gap_length[AHEAD];
    uint8_t gap[AHEAD][GAP_MAX];
    uint8_t peek[SOFT_HEADER_PEEK];
    struct iovec iov[2 + 2 * AHEAD];
    struct msghdr message;
};

/* The read whose long response is being received into one piece of memory, or NULL. */
static const struct ibv_sge *long_response(struct soft_qp *qp, uint32_t *remaining)
{
    const struct soft_rx *rx = &qp->rx;
    const struct soft_send_wqe *wqe;
    const struct ibv_sge *sge;
    uint32_t position;

    if (rx->state != SOFT_RX_PAYLOAD || rx->segment.opcode != IWARP_READ_RESPONSE ||
        rx->segment.last || qp->crc || rx->unforeseen || rx->begin != rx->end ||
        rx->segment.payload_length < SOFT_LARGE || rx->payload_left < SOFT_DIRECT_MIN)
        return NULL;
    wqe = oldest_read(qp, &position);
    if (wqe == NULL)
        return NULL;
    sge = &qp->tx.sge[(size_t)position * qp->tx.max_sge + rx->read_sge];
    *remaining = wqe->length - rx->read_offset;
    return sge->length - rx->read_sge_offset >= *remaining ? sge : NULL;
}

/* Where everything should go. Returns the bytes asked for. */
static size_t plan(struct soft_qp *qp, struct ahead *a)
{
    struct soft_rx *rx = &qp->rx;
    uint32_t at = rx->payload_left, before = rx->segment.padding;
    size_t asked = at;

    a->message = (struct msghdr){.msg_iov = a->iov};
    a->iov[a->message.msg_iovlen++] = (struct iovec){a->base, at};
    for (a->count = 0; a->count < AHEAD && at < a->remaining; a->count++) {
        uint32_t left = a->remaining - at;
        uint32_t n = left < rx->segment.payload_length ? left : rx->segment.payload_length;
        uint32_t i = a->count;

        a->length[i] = n;
        a->gap_length[i] = before + IWARP_TRAILER + IWARP_TAGGED_HEADER;
        a->iov[a->message.msg_iovlen++] = (struct iovec){a->gap[i], a->gap_length[i]};
        a->iov[a->message.msg_iovlen++] = (struct iovec){a->base + at, n};
        asked += a->gap_length[i] + n;
        before = iwarp_padding(IWARP_TAGGED_HEADER + n);
        at += n;
    }
    a->iov[a->message.msg_iovlen++] = (struct iovec){a->peek, sizeof(a->peek)};
    return asked + sizeof(a->peek);
}

/* The rest of what was received, from piece i on, goes through the staging buffer. */
static int restage(struct soft_qp *qp, const struct ahead *a, uint32_t i, size_t rest)
{
    struct soft_rx *rx = &qp->rx;
    uint8_t *copy = malloc(rest);
    size_t length = 0, done = 0;
    int r = 0;

    if (copy == NULL)
        return -ENOMEM;
    rx->unforeseen = true;
    for (size_t k = 2 + 2 * (size_t)i; length < rest; k++) {
        size_t n = a->iov[k].iov_len < rest - length ? a->iov[k].iov_len : rest - length;

        soft_dma_copy(copy + length, a->iov[k].iov_base, n);
        length += n;
    }
    while (done < rest && r >= 0) {
        size_t n = rest - done;

        compact(rx);
        if (n > SOFT_STAGING - rx->end)
            n = SOFT_STAGING - rx->end;
        stage(rx, copy + done, (uint32_t)n);
        done += n;
        r = parse(qp);
    }
    free(copy);
    return r;
}

/* Puts what was received to account. Returns 0 or a negative errno. */
static int take_ahead(struct soft_qp *qp, const struct ahead *a, size_t rest)
{
    struct soft_rx *rx = &qp->rx;
    uint32_t n = rest < rx->payload_left ? (uint32_t)rest : rx->payload_left;

    in_place(rx, n);
    rest -= n;
    for (uint32_t i = 0; i < a->count && rest > 0; i++) {
        int r;

        compact(rx);
        n = rest < a->gap_length[i] ? (uint32_t)rest : a->gap_length[i];
        stage(rx, a->gap[i], n);
        rest -= n;
        if (n < a->gap_length[i])
            return 0;
        r = parse(qp);
        if (r < 0)
            return r;
        if (rx->state != SOFT_RX_PAYLOAD || rx->segment.opcode != IWARP_READ_RESPONSE ||
            rx->payload_left != a->length[i] || rx->begin != rx->end)
            return rest > 0 ? restage(qp, a, i, rest) : 0;
        n = rest < a->length[i] ? (uint32_t)rest : a->length[i];
        in_place(rx, n);
        rest -= n;
    }
    compact(rx);
    stage(rx, a->peek, (uint32_t)rest);
    return 0;
}

static int fill_ahead(struct soft_qp *qp, const struct ibv_sge *sge, uint32_t remaining)
{
    struct soft_rx *rx = &qp->rx;
    struct ahead a = {.remaining = remaining};
    struct soft_mr *mr;
    size_t received;
    int result, r;

    if (soft_mr_get(qp->ibv.pd, sge->lkey, sge->addr + rx->read_sge_offset, remaining,
                    IBV_ACCESS_LOCAL_WRITE, &mr) != SOFT_MR_OK)
        return local_refused(qp, true);
    a.base = soft_mr_pointer(mr, sge->addr + rx->read_sge_offset);
    result = receive(qp, &a.message, plan(qp, &a), &received);
    r = take_ahead(qp, &a, received);
    soft_mr_put(mr);
    if (result == -EFAULT)
        return local_refused(qp, true);
    return r < 0 ? r : result;
}

/* ---------------------------------------------------------------- one call */

/*
 * One receive call. Returns 1 when data came and more may be there, 2 when the socket is empty
 * after it, 0 when it was empty before, END_OF_STREAM, or another negative errno.
 */
static int fill(struct soft_qp *qp)
{
    struct soft_rx *rx = &qp->rx;
    struct iovec iov[2];
    struct msghdr message = {.msg_iov = iov};
    struct piece piece = {0};
    const struct ibv_sge *sge;
    uint32_t room, remaining;
    size_t received;
    int result;

    compact(rx);
    sge = long_response(qp, &remaining);
    if (sge != NULL)
        return fill_ahead(qp, sge, remaining);
    if (rx->state == SOFT_RX_PAYLOAD && rx->payload_left >= SOFT_DIRECT_MIN) {
        int r = next_piece(qp, rx->payload_left, &piece);

        if (r < 0)
            return r;
        iov[message.msg_iovlen++] = (struct iovec){piece.to, piece.length};
    }
    room = staging_wanted(qp, piece.length);
    if (room > 0)
        iov[message.msg_iovlen++] = (struct iovec){rx->staging + rx->end, room};
    result = receive(qp, &message, (size_t)piece.length + room, &received);
    if (piece.length > 0) {
        uint32_t direct = received < piece.length ? (uint32_t)received : piece.length;

        placed(qp, &piece, direct);
        received -= direct;
        if (result == -EFAULT)
            return local_refused(qp, rx->segment.opcode == IWARP_READ_RESPONSE);
    }
    rx->end += (uint32_t)received;
    return result;
}

/* A queue pair in error throws away what still arrives, so that its Terminate is not lost. */
static bool discard(struct soft_qp *qp)
{
    bool closed = false;

    if (qp->fd < 0)
        return false;
    for (int i = 0; i < 4 && !closed; i++) {
        ssize_t n = recv(qp->fd, qp->rx.staging, SOFT_STAGING, MSG_DONTWAIT);

        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
            break;
        closed = n <= 0;
    }
    if (closed) {
        pthread_mutex_lock(&qp->tx_lock);
        soft_qp_close_socket(qp);
        pthread_mutex_unlock(&qp->tx_lock);
    }
    return false;
}

static void transmit_failed(struct soft_qp *qp, int error)
{
    /* The peer may have said why: -EPROTO and the like have been handled where they arose. */
    soft_debug("qp %u transmit: %s", qp->handle, strerror(-error));
    if (error != -ESHUTDOWN && error != -EACCES && error != -EFAULT && error != -EINVAL) {
        for (int round = 0; round < LAST_ROUNDS; round++)
            if (fill(qp) <= 0 || parse(qp) < 0)
                break;
    }
    soft_qp_fail_locked(qp, 0, 0, false);
}

/* The stream ended or broke: the peer is told when it ended within a message (RFC 5044 section 8). */
static void stream_ended(struct soft_qp *qp, int error)
{
    struct soft_rx *rx = &qp->rx;
    bool torn = rx->state != SOFT_RX_HEADER || rx->begin != rx->end || rx->recv_open ||
                rx->write_open || rx->read_offset > 0;

    if (error == END_OF_STREAM && torn) {
        rx->segment.header_length = 0;
        refuse(qp, (struct iwarp_error){IWARP_LAYER_LLP, IWARP_LLP_MPA, IWARP_MPA_ERROR_LOST}, 0, 0,
               false);
    } else {
        soft_qp_fail_locked(qp, 0, 0, false);
    }
}

/*
 * A large message that is complete ends the turn: whoever waits for it works on it, out of a warm
 * cache, while the peer goes on sending. Taking all that is there would have each side wait for the
 * other in turn.
 */
static bool turn_is_over(const struct soft_rx *rx, uint32_t completions_before)
{
    return rx->fpdus >= FPDUS_MAX || rx->received >= SOFT_RX_BYTES ||
           (rx->received >= SOFT_RX_HAND_OVER && rx->completions != completions_before);
}

/*
 * Receive what is there, bounded. rx_lock held, tx_lock not. Returns whether data was received.
 */
bool soft_rx_pass(struct soft_qp *qp)
{
    struct soft_rx *rx = &qp->rx;
    uint32_t completions = rx->completions;
    bool productive = false;
    int r = 0;

    atomic_fetch_add_explicit(&qp->passes, 1, memory_order_relaxed);
    if (qp->fd < 0)
        return false;
    if (rx->ended)
        return discard(qp);
    rx->send_budget = SOFT_TX_BUDGET;
    rx->fpdus = 0;
    rx->received = 0;
    for (int round = 0; round < SOFT_RX_ROUNDS && !turn_is_over(rx, completions); round++) {
        int got = fill(qp);

        if (got <= 0) {
            r = got;
            break;
        }
        productive = true;
        r = parse(qp);
        if (r < 0 || got == 2)
            break;
    }
    if (!rx->ended) {
        int t = settle(qp);

        if (t < 0)
            transmit_failed(qp, t);
        else if (r < 0)
            stream_ended(qp, r);
        else if (atomic_load_explicit(&qp->send_cq->failed, memory_order_relaxed) ||
                 atomic_load_explicit(&qp->recv_cq->failed, memory_order_relaxed))
            soft_qp_fail_locked(qp, 0, 0, false);
    }
    if (rx->one_sided >= ONE_SIDED_MAX && !rx->ended) {
        rx->one_sided = ONE_SIDED_MAX / 2;
        pthread_mutex_lock(&qp->tx_lock);
        if (qp->owner != SOFT_OWNER_WORKER)
            soft_qp_undelegate(qp);
        pthread_mutex_unlock(&qp->tx_lock);
    }
    return productive;
}

/*
 * A socket is worth handing to the application only while it is busy: a heartbeat now and then is
 * not worth the watch over it.
 */
static bool completes_often(struct soft_rx *rx)
{
    uint64_t now = soft_now_us(), before = rx->completed_us;

    rx->completed_us = now;
    return now - before < OFTEN_US;
}

/*
 * Receive on behalf of the calling thread. wait: the worker, which must get its turn; an
 * application thread leaves it to whoever is at it already. Returns whether data was received.
 */
bool soft_rx_drive(struct soft_qp *qp, bool wait)
{
    uint32_t before;
    bool productive;

    if (wait)
        pthread_mutex_lock(&qp->rx_lock);
    else if (pthread_mutex_trylock(&qp->rx_lock) != 0)
        return false;
    before = qp->rx.completions;
    productive = soft_rx_pass(qp);
    if (wait && qp->rx.completions != before) {
        atomic_store_explicit(&qp->polls, 0, memory_order_relaxed);
        if (completes_often(&qp->rx)) {
            atomic_store_explicit(&qp->send_cq->delegate_hint, qp->handle, memory_order_relaxed);
            atomic_store_explicit(&qp->recv_cq->delegate_hint, qp->handle, memory_order_relaxed);
        }
    }
    pthread_mutex_unlock(&qp->rx_lock);
    return productive;
}
