/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * qp.c -- queue pairs: create, query, modify, post, fail, destroy
 */
#include "softrdma.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <netinet/in.h>
#include <netinet/tcp.h>

static struct soft_slots pairs = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .capacity = SOFT_MAX_QP,
};

/* Refer to a queue pair by number: NULL if there is none. Give it back with soft_qp_put(). */
struct soft_qp *soft_qp_get(uint32_t handle)
{
    return handle != 0 ? soft_slots_get(&pairs, handle >> 8, handle) : NULL;
}

/* Give a reference back. */
void soft_qp_put(struct soft_qp *qp)
{
    soft_slots_put(&pairs, qp->slot);
}

static int check_init(const struct ibv_pd *pd, const struct ibv_qp_init_attr *init)
{
    const struct ibv_qp_cap *cap = &init->cap;

    if (pd == NULL || init->send_cq == NULL || init->recv_cq == NULL)
        return EINVAL;
    if (init->qp_type != IBV_QPT_RC)
        return EOPNOTSUPP;
    if (cap->max_send_wr > SOFT_MAX_QP_WR || cap->max_recv_wr > SOFT_MAX_QP_WR ||
        cap->max_send_sge > SOFT_MAX_SGE || cap->max_recv_sge > SOFT_MAX_SGE ||
        cap->max_inline_data > SOFT_MAX_INLINE)
        return EINVAL;
    return 0;
}

static int alloc_queues(struct soft_qp *qp)
{
    struct soft_tx *tx = &qp->tx;
    uint32_t ring = 1;

    tx->size = qp->cap.max_send_wr;
    while (ring < tx->size)
        ring *= 2;
    tx->mask = ring - 1;
    tx->max_sge = qp->cap.max_send_sge;
    tx->max_inline = qp->cap.max_inline_data;
    tx->wqe = calloc(ring, sizeof(*tx->wqe));
    tx->sge = calloc((size_t)ring * tx->max_sge, sizeof(*tx->sge));
    tx->inline_data = calloc(ring, tx->max_inline);
    tx->batch = calloc(1, sizeof(*tx->batch));
    qp->inbound = calloc(SOFT_MAX_RD_ATOMIC, sizeof(*qp->inbound));
    qp->rx.staging = malloc(SOFT_STAGING);
    if (tx->wqe == NULL || tx->sge == NULL || tx->inline_data == NULL || tx->batch == NULL ||
        qp->inbound == NULL || qp->rx.staging == NULL)
        return -ENOMEM;
    if (qp->srq != NULL) {
        qp->rq = &qp->srq->rq;
        return 0;
    }
    qp->rq = &qp->own_rq;
    return soft_rq_init(&qp->own_rq, qp->cap.max_recv_wr, qp->cap.max_recv_sge);
}

static void free_queues(struct soft_qp *qp)
{
    soft_rq_destroy(&qp->own_rq);
    free(qp->tx.wqe);
    free(qp->tx.sge);
    free(qp->tx.inline_data);
    free(qp->tx.batch);
    free(qp->tx.bounce);
    free(qp->inbound);
    free(qp->rx.staging);
}

static void round_capabilities(struct ibv_qp_cap *cap)
{
    if (cap->max_send_wr == 0)
        cap->max_send_wr = 1;
    if (cap->max_send_sge == 0)
        cap->max_send_sge = 1;
    if (cap->max_recv_sge == 0)
        cap->max_recv_sge = 1;
    cap->max_inline_data = (cap->max_inline_data + 63u) & ~63u;
    if (cap->max_inline_data == 0)
        cap->max_inline_data = 64;
}

/*
 * man ibv_create_qp: reliable connected only. init->cap is raised to what was granted.
 * Thread-safe.
 */
struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
    struct soft_qp *qp;
    uint8_t generation;
    int error = soft_usable() ? check_init(pd, init) : EIO;

    if (error != 0)
        goto fail;
    error = ENOMEM;
    qp = calloc(1, sizeof(*qp));
    if (qp == NULL)
        goto fail;
    qp->cap = init->cap;
    round_capabilities(&qp->cap);
    qp->srq = (struct soft_srq *)init->srq;
    if (alloc_queues(qp) < 0 || soft_slots_reserve(&pairs, qp, &qp->slot, &generation) < 0) {
        free_queues(qp);
        free(qp);
        goto fail;
    }
    init->cap = qp->cap;
    qp->handle = qp->slot << 8 | generation;
    qp->fd = -1;
    qp->tx.signal_all = init->sq_sig_all != 0;
    qp->tx.send_msn = qp->tx.read_msn = 1;
    qp->rx.send_msn = qp->rx.read_msn = 1;
    qp->send_cq = (struct soft_cq *)init->send_cq;
    qp->recv_cq = (struct soft_cq *)init->recv_cq;
    qp->worker = soft_worker_next();
    pthread_mutex_init(&qp->rx_lock, NULL);
    pthread_mutex_init(&qp->tx_lock, NULL);
    qp->ibv.context = pd->context;
    qp->ibv.qp_context = init->qp_context;
    qp->ibv.pd = pd;
    qp->ibv.send_cq = init->send_cq;
    qp->ibv.recv_cq = init->recv_cq;
    qp->ibv.srq = init->srq;
    qp->ibv.handle = qp->handle;
    qp->ibv.qp_num = qp->handle;
    qp->ibv.qp_type = IBV_QPT_RC;
    qp->ibv.state = IBV_QPS_RESET;
    atomic_store(&qp->state, IBV_QPS_RESET);
    pthread_mutex_init(&qp->ibv.mutex, NULL);
    pthread_cond_init(&qp->ibv.cond, NULL);
    atomic_fetch_add(&((struct soft_pd *)pd)->users, 1);
    if (qp->srq != NULL)
        atomic_fetch_add(&qp->srq->users, 1);
    soft_slots_publish(&pairs, qp->slot, qp->handle);
    soft_cq_attach(qp->send_cq, qp->handle);
    if (qp->recv_cq != qp->send_cq)
        soft_cq_attach(qp->recv_cq, qp->handle);
    return &qp->ibv;
fail:
    errno = error;
    return NULL;
}

/*
 * man ibv_destroy_qp: when it returns, nothing touches memory or completion queues on the queue
 * pair's behalf, and its completions that nobody polled are gone.
 */
int ibv_destroy_qp(struct ibv_qp *ibqp)
{
    struct soft_qp *qp = (struct soft_qp *)ibqp;

    if (qp == NULL)
        return EINVAL;
    if (!soft_usable())
        return EIO;
    soft_slots_retire(&pairs, qp->slot);
    soft_worker_tick_remove(qp->worker, qp);
    pthread_mutex_lock(&qp->rx_lock);
    pthread_mutex_lock(&qp->tx_lock);
    soft_tx_drop_holds(qp);
    if (qp->fd >= 0) {
        soft_qp_close_socket(qp);
        close(qp->fd);
        qp->fd = -1;
        if (!qp->cm_told)
            soft_cm_qp_closed(qp->cm_handle);
    }
    pthread_mutex_unlock(&qp->tx_lock);
    pthread_mutex_unlock(&qp->rx_lock);
    soft_cq_detach(qp->send_cq, qp->handle);
    if (qp->recv_cq != qp->send_cq)
        soft_cq_detach(qp->recv_cq, qp->handle);
    soft_async_forget(ibqp->context, qp);
    if (qp->srq != NULL)
        atomic_fetch_sub(&qp->srq->users, 1);
    atomic_fetch_sub(&((struct soft_pd *)ibqp->pd)->users, 1);
    pthread_mutex_destroy(&qp->rx_lock);
    pthread_mutex_destroy(&qp->tx_lock);
    pthread_mutex_destroy(&ibqp->mutex);
    pthread_cond_destroy(&ibqp->cond);
    free_queues(qp);
    free(qp);
    return 0;
}

/* man ibv_query_qp: everything it knows, whatever the mask. */
int ibv_query_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask,
                 struct ibv_qp_init_attr *init)
{
    struct soft_qp *qp = (struct soft_qp *)ibqp;

    (void)mask;
    memset(attr, 0, sizeof(*attr));
    memset(init, 0, sizeof(*init));
    pthread_mutex_lock(&qp->tx_lock);
    attr->qp_state = (enum ibv_qp_state)atomic_load(&qp->state);
    attr->max_rd_atomic = (uint8_t)qp->ord;
    attr->max_dest_rd_atomic = (uint8_t)qp->ird;
    pthread_mutex_unlock(&qp->tx_lock);
    attr->cur_qp_state = attr->qp_state;
    attr->path_mtu = IBV_MTU_4096;
    attr->qp_access_flags =
        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    attr->cap = qp->cap;
    attr->port_num = 1;
    init->qp_context = ibqp->qp_context;
    init->send_cq = ibqp->send_cq;
    init->recv_cq = ibqp->recv_cq;
    init->srq = ibqp->srq;
    init->cap = qp->cap;
    init->qp_type = IBV_QPT_RC;
    init->sq_sig_all = qp->tx.signal_all;
    return 0;
}

/* Set the read limits from the connection's parameters. */
void soft_qp_set_limits(struct soft_qp *qp, uint32_t ird, uint32_t ord)
{
    pthread_mutex_lock(&qp->rx_lock);
    pthread_mutex_lock(&qp->tx_lock);
    qp->ird = ird;
    qp->ord = ord;
    pthread_mutex_unlock(&qp->tx_lock);
    pthread_mutex_unlock(&qp->rx_lock);
}

/*
 * man ibv_modify_qp. The connection manager does the real work; what matters here is the way
 * through INIT, RTR and RTS of a queue pair that the application made itself, and ERR.
 */
int ibv_modify_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask)
{
    struct soft_qp *qp = (struct soft_qp *)ibqp;
    int state, r = 0;

    if (!soft_usable())
        return EIO;
    if (!(mask & IBV_QP_STATE))
        return 0;
    if (attr->qp_state == IBV_QPS_ERR) {
        soft_qp_fail(qp, 0, 0, false);
        ibqp->state = IBV_QPS_ERR;
        return 0;
    }
    if (attr->qp_state == IBV_QPS_SQD || attr->qp_state == IBV_QPS_SQE)
        return attr->qp_state == IBV_QPS_SQD ? (soft_qp_disconnect(qp), 0) : EINVAL;
    pthread_mutex_lock(&qp->rx_lock);
    pthread_mutex_lock(&qp->tx_lock);
    state = atomic_load(&qp->state);
    if (state == IBV_QPS_ERR && attr->qp_state != IBV_QPS_RESET)
        r = EINVAL;
    else if (qp->fd >= 0 && attr->qp_state == IBV_QPS_RESET)
        r = EINVAL;
    else if (qp->fd < 0 || (int)attr->qp_state > state)
        atomic_store(&qp->state, (int)attr->qp_state);
    if (r == 0)
        ibqp->state = (enum ibv_qp_state)atomic_load(&qp->state);
    pthread_mutex_unlock(&qp->tx_lock);
    pthread_mutex_unlock(&qp->rx_lock);
    return r;
}

/* ---------------------------------------------------------------- posting */

static enum ibv_wc_opcode completion_opcode(uint8_t opcode)
{
    switch (opcode) {
    case IBV_WR_RDMA_READ:
        return IBV_WC_RDMA_READ;
    case IBV_WR_RDMA_WRITE:
        return IBV_WC_RDMA_WRITE;
    default:
        return IBV_WC_SEND;
    }
}

/* Completion of a send queue entry. */
void soft_complete_send(struct soft_qp *qp, const struct soft_send_wqe *wqe,
                        enum ibv_wc_status status)
{
    const struct ibv_wc wc = {
        .wr_id = wqe->wr_id,
        .status = status,
        .opcode = completion_opcode(wqe->opcode),
        .byte_len = wqe->length,
        .qp_num = qp->handle,
    };

    soft_cq_push(qp->send_cq, &wc, false);
}

/* Completion of a receive. length: bytes placed. */
void soft_complete_recv(struct soft_qp *qp, uint64_t wr_id, uint32_t length, bool solicited,
                        enum ibv_wc_status status)
{
    const struct ibv_wc wc = {
        .wr_id = wr_id,
        .status = status,
        .opcode = IBV_WC_RECV,
        .byte_len = length,
        .qp_num = qp->handle,
    };

    soft_cq_push(qp->recv_cq, &wc, solicited);
}

static void copy_inline(uint8_t *to, const struct ibv_send_wr *wr)
{
    for (int i = 0; i < wr->num_sge; i++) {
        memcpy(to, (const void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
        to += wr->sg_list[i].length;
    }
}

/* Check a work request and put it into the ring. Returns an errno. tx_lock held. */
static int enqueue(struct soft_qp *qp, const struct ibv_send_wr *wr)
{
    struct soft_tx *tx = &qp->tx;
    uint32_t position = tx->tail & tx->mask;
    struct soft_send_wqe *wqe = &tx->wqe[position];
    bool read = wr->opcode == IBV_WR_RDMA_READ;
    bool one_sided = read || wr->opcode == IBV_WR_RDMA_WRITE;
    bool inline_data = wr->send_flags & IBV_SEND_INLINE;
    uint64_t length = 0;

    if (!one_sided && wr->opcode != IBV_WR_SEND && wr->opcode != IBV_WR_SEND_WITH_INV)
        return EOPNOTSUPP;
    if (wr->num_sge < 0 || (!inline_data && (uint32_t)wr->num_sge > tx->max_sge))
        return EINVAL;
    for (int i = 0; i < wr->num_sge; i++)
        length += wr->sg_list[i].length;
    if (length > INT32_MAX || (inline_data && (read || length > tx->max_inline)))
        return EINVAL;
    if (tx->tail - tx->head >= tx->size)
        return ENOMEM;
    wqe->wr_id = wr->wr_id;
    wqe->opcode = (uint8_t)wr->opcode;
    wqe->length = (uint32_t)length;
    wqe->signaled = tx->signal_all || (wr->send_flags & IBV_SEND_SIGNALED);
    wqe->solicited = wr->send_flags & IBV_SEND_SOLICITED;
    wqe->fence = wr->send_flags & IBV_SEND_FENCE;
    wqe->done = false;
    wqe->sges = 0;
    wqe->inline_length = 0;
    if (one_sided) {
        wqe->remote_address = wr->wr.rdma.remote_addr;
        wqe->rkey = wr->wr.rdma.rkey;
    } else if (wr->opcode == IBV_WR_SEND_WITH_INV) {
        wqe->rkey = wr->invalidate_rkey;
    }
    if (inline_data) {
        copy_inline(tx->inline_data + (size_t)position * tx->max_inline, wr);
        wqe->inline_length = (uint32_t)length;
    } else {
        wqe->sges = (uint16_t)wr->num_sge;
        for (int i = 0; i < wr->num_sge; i++)
            tx->sge[(size_t)position * tx->max_sge + (uint32_t)i] = wr->sg_list[i];
    }
    tx->tail++;
    return 0;
}

/* A queue pair in error completes whatever is posted with a flush error. */
static void flush_posted(struct soft_qp *qp)
{
    struct soft_tx *tx = &qp->tx;

    for (; tx->head != tx->tail; tx->head++)
        soft_complete_send(qp, &tx->wqe[tx->head & tx->mask], IBV_WC_WR_FLUSH_ERR);
    tx->next = tx->sent = tx->head;
}

/*
 * The post_send operation: man ibv_post_send. The whole list goes out in as few sendmsg calls as
 * the socket allows, from the calling thread. Thread-safe; never blocks.
 */
int soft_qp_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    struct soft_qp *qp = (struct soft_qp *)ibqp;
    int error = 0, failed = 0, state;

    if (!soft_usable()) {
        *bad = wr;
        return EIO;
    }
    pthread_mutex_lock(&qp->tx_lock);
    state = atomic_load_explicit(&qp->state, memory_order_relaxed);
    if (state != IBV_QPS_RTS && state != IBV_QPS_ERR)
        error = EINVAL;
    for (; wr != NULL && error == 0; wr = wr->next) {
        error = enqueue(qp, wr);
        if (error != 0)
            break;
        if (state == IBV_QPS_ERR)
            flush_posted(qp);
    }
    if (error != 0)
        *bad = wr;
    if (state == IBV_QPS_RTS && !qp->tx.want_writable && qp->tx.error == 0)
        failed = soft_tx_progress(qp);
    pthread_mutex_unlock(&qp->tx_lock);
    if (failed < 0)
        soft_qp_tx_failed(qp);
    return error;
}

static void flush_receives(struct soft_qp *qp)
{
    struct soft_recv_wqe wqe;

    if (qp->srq != NULL)
        return;
    while (soft_rq_pop(qp->rq, &wqe, NULL))
        soft_complete_recv(qp, wqe.wr_id, 0, false, IBV_WC_WR_FLUSH_ERR);
}

/* The post_recv operation: man ibv_post_recv. Thread-safe; never blocks. */
int soft_qp_post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    struct soft_qp *qp = (struct soft_qp *)ibqp;
    int r;

    if (!soft_usable() || qp->srq != NULL ||
        atomic_load_explicit(&qp->state, memory_order_relaxed) == IBV_QPS_RESET) {
        *bad = wr;
        return soft_usable() ? EINVAL : EIO;
    }
    r = soft_rq_post(qp->rq, wr, bad);
    if (atomic_load(&qp->state) == IBV_QPS_ERR) {
        pthread_mutex_lock(&qp->tx_lock);
        flush_receives(qp);
        pthread_mutex_unlock(&qp->tx_lock);
    }
    return r;
}

/* ---------------------------------------------------------------- connection */

static uint32_t payload_of_segment_size(int fd)
{
    int mss = 0;
    socklen_t length = sizeof(mss);
    uint32_t payload;

    if (getsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &mss, &length) < 0 || mss < 512)
        mss = 512;
    payload = ((uint32_t)mss & ~7u) - IWARP_UNTAGGED_HEADER - IWARP_TRAILER;
    return payload < SOFT_FPDU_PAYLOAD ? payload & ~7u : SOFT_FPDU_PAYLOAD;
}

/*
 * Give a connected stream to the queue pair: it reaches RTS, and what was posted is sent. Takes
 * the descriptor over on success. Returns 0, -EISCONN, -ENOMEM or what epoll says.
 */
int soft_qp_attach(struct soft_qp *qp, const struct soft_attach *attach)
{
    int r = 0;

    pthread_mutex_lock(&qp->rx_lock);
    pthread_mutex_lock(&qp->tx_lock);
    if (qp->fd >= 0 || atomic_load(&qp->state) == IBV_QPS_ERR) {
        r = -EISCONN;
        goto out;
    }
    if (attach->crc) {
        qp->tx.bounce = malloc(5 * (size_t)SOFT_FPDU_PAYLOAD);
        if (qp->tx.bounce == NULL) {
            r = -ENOMEM;
            goto out;
        }
    }
    qp->fd = attach->fd;
    qp->crc = attach->crc;
    qp->ird = attach->ird < SOFT_MAX_RD_ATOMIC ? attach->ird : SOFT_MAX_RD_ATOMIC;
    qp->ord = attach->ord < SOFT_MAX_RD_ATOMIC ? attach->ord : SOFT_MAX_RD_ATOMIC;
    qp->cm_handle = attach->cm_handle;
    qp->establish_on_first = attach->establish_on_first;
    qp->tx.nudges = attach->passive ? 0 : SOFT_NUDGES;
    qp->tx.nudge_ms = SOFT_NUDGE_MS;
    qp->fpdu_payload =
        soft_config.fpdu_payload != 0 ? soft_config.fpdu_payload : payload_of_segment_size(qp->fd);
    qp->owner = SOFT_OWNER_WORKER;
    atomic_store(&qp->state, IBV_QPS_RTS);
    soft_qp_epoll_update(qp);
    if (!qp->epoll_registered) {
        qp->fd = -1;
        atomic_store(&qp->state, IBV_QPS_INIT);
        r = -ENOMEM;
        goto out;
    }
    soft_tx_progress(qp);
out:
    pthread_mutex_unlock(&qp->tx_lock);
    pthread_mutex_unlock(&qp->rx_lock);
    return r;
}

static bool is_send(const struct soft_tx *tx, uint32_t position)
{
    uint8_t opcode = tx->wqe[position & tx->mask].opcode;

    return opcode != IBV_WR_RDMA_READ && opcode != IBV_WR_RDMA_WRITE;
}

/*
 * Which entry of the send queue the peer's Terminate speaks of, by the header that it quotes; tail
 * when that entry has completed already, as a Write or Send has once the stream took it (RFC 5040
 * section 5.5: its completion says nothing about the peer), or when none is quoted.
 */
static uint32_t refused_by_peer(const struct soft_qp *qp)
{
    const struct iwarp_terminate *refusal = &qp->rx.refusal;
    const struct soft_tx *tx = &qp->tx;
    uint32_t begun = tx->next + (tx->current == SOFT_TX_WQE ? 1 : 0);
    uint32_t outstanding, index, msn = tx->send_msn;

    if (!refusal->has_header || refusal->opcode == IWARP_READ_RESPONSE)
        return tx->tail;
    if (refusal->opcode == IWARP_READ_REQUEST) {
        outstanding = atomic_load_explicit(&qp->outstanding_tail, memory_order_relaxed) -
                      tx->outstanding_head;
        index = refusal->msn - 1; /* sequence numbers begin with 1 */
        return index - tx->outstanding_head < outstanding
                   ? qp->outstanding[index % SOFT_MAX_RD_ATOMIC]
                   : tx->tail;
    }
    if (refusal->opcode == IWARP_WRITE) {
        for (uint32_t at = tx->head; at != begun; at++) {
            const struct soft_send_wqe *wqe = &tx->wqe[at & tx->mask];

            if (wqe->opcode == IBV_WR_RDMA_WRITE && wqe->rkey == refusal->stag &&
                refusal->offset - wqe->remote_address < wqe->length)
                return at;
        }
        return tx->tail;
    }
    for (uint32_t at = tx->head; at != tx->next; at++)
        if (is_send(tx, at))
            msn--;
    for (uint32_t at = tx->head; at != begun; at++)
        if (is_send(tx, at) && msn++ == refusal->msn)
            return at;
    return tx->tail;
}

/* Which entry of the send queue is to blame, or tail for none. */
static uint32_t blamed(const struct soft_qp *qp, bool read_failed)
{
    const struct soft_tx *tx = &qp->tx;

    if (tx->fault)
        return tx->next;
    if (!read_failed)
        return refused_by_peer(qp);
    if (tx->outstanding_head == atomic_load_explicit(&qp->outstanding_tail, memory_order_relaxed))
        return tx->tail;
    return qp->outstanding[tx->outstanding_head % SOFT_MAX_RD_ATOMIC];
}

static void flush_sends(struct soft_qp *qp, int send_status, bool read_failed)
{
    struct soft_tx *tx = &qp->tx;
    uint32_t guilty;

    for (; qp->rx.reads_done > 0; qp->rx.reads_done--)
        tx->wqe[qp->outstanding[tx->outstanding_head++ % SOFT_MAX_RD_ATOMIC] & tx->mask].done =
            true;
    soft_tx_retire(qp);
    guilty = blamed(qp, read_failed);
    if (tx->fault)
        send_status = tx->fault_status;
    for (; tx->head != tx->tail; tx->head++) {
        enum ibv_wc_status status = IBV_WC_WR_FLUSH_ERR;

        if (tx->head == guilty && send_status != 0)
            status = (enum ibv_wc_status)send_status;
        soft_complete_send(qp, &tx->wqe[tx->head & tx->mask], status);
    }
    tx->next = tx->sent = tx->head;
    tx->batch->sq_after = tx->head;
    if (tx->current == SOFT_TX_WQE)
        tx->current = SOFT_TX_NONE;
}

/* May a Terminate still go out in order? Discards a batch of which nothing was sent. */
static bool can_terminate(struct soft_qp *qp)
{
    struct soft_tx *tx = &qp->tx;
    struct soft_tx_batch *batch = tx->batch;

    if (qp->fd < 0 || tx->closed)
        return false;
    if (tx->error != 0 && tx->error != -EACCES && !tx->fault)
        return false; /* the socket failed */
    if (batch->segments > 0 && batch->has_send_queue_data) {
        if (batch->next > 0 || batch->next_sent > 0)
            return false; /* the application's memory may change now: the message is lost */
        soft_tx_drop_holds(qp);
        memset(batch, 0, offsetof(struct soft_tx_batch, hold));
        batch->sq_after = tx->head;
    }
    return true;
}

/*
 * As siw: IBV_EVENT_QP_ACCESS_ERR where memory was to be touched that may not be (by the peer, or
 * by what the peer sends in answer), IBV_EVENT_QP_FATAL for other errors and for a Terminate that
 * the peer sent; nothing for a stream that only ended, which the connection's event tells.
 */
static void announce_failure(struct soft_qp *qp, bool fatal)
{
    if (qp->was_access_error)
        soft_async_push(qp->ibv.context, IBV_EVENT_QP_ACCESS_ERR, qp);
    else if (fatal)
        soft_async_push(qp->ibv.context, IBV_EVENT_QP_FATAL, qp);
    if (qp->srq != NULL)
        soft_async_push(qp->ibv.context, IBV_EVENT_QP_LAST_WQE_REACHED, qp);
}

/*
 * Queue pair to error: everything outstanding completes in order, the peer is told why if that is
 * possible, the connection id learns that it is disconnected. rx_lock held, tx_lock not.
 * send_status: of the work request to blame (the oldest read if read_failed, else the one that the
 * peer's Terminate quotes, if any), 0 for none; recv_status: of a receive that was being filled, 0
 * for a flush error.
 */
void soft_qp_fail_locked(struct soft_qp *qp, int send_status, int recv_status, bool read_failed)
{
    struct soft_rx *rx = &qp->rx;
    struct soft_tx *tx = &qp->tx;
    bool graceful, terminate;

    pthread_mutex_lock(&qp->tx_lock);
    if (atomic_load(&qp->state) == IBV_QPS_ERR)
        goto out;
    soft_debug("qp %u to error: send status %d, receive status %d, transmit error %d", qp->handle,
               send_status, recv_status, tx->error);
    graceful = tx->error == -ESHUTDOWN;
    if (tx->fault && rx->terminate_length == 0) {
        const struct iwarp_error local = {IWARP_LAYER_RDMAP, IWARP_RDMAP_LOCAL, 0};

        rx->terminate_length = iwarp_terminate_encode(rx->terminate, &local, NULL, 0);
    }
    if (rx->terminate_length > 0) {
        memcpy(tx->terminate, rx->terminate, rx->terminate_length);
        tx->terminate_length = rx->terminate_length;
    }
    rx->ended = true;
    atomic_store(&qp->state, IBV_QPS_ERR);
    terminate = tx->terminate_length > 0 && can_terminate(qp);
    flush_sends(qp, send_status, read_failed);
    if (rx->recv_open)
        soft_complete_recv(qp, rx->recv.wr_id, 0, false,
                           recv_status != 0 ? (enum ibv_wc_status)recv_status
                                            : IBV_WC_WR_FLUSH_ERR);
    rx->recv_open = false;
    flush_receives(qp);
    announce_failure(qp, send_status != 0 || recv_status != 0 || tx->terminate_length > 0);
    tx->error = 0;
    tx->fault = false;
    if (qp->fd >= 0) {
        if (qp->owner != SOFT_OWNER_WORKER)
            soft_qp_undelegate(qp);
        if (terminate || graceful) {
            qp->deadline_us = soft_now_us() + SOFT_LINGER_MS * 1000u;
            soft_worker_tick_add(qp->worker, qp);
            tx->terminate_pending = terminate;
            soft_tx_progress(qp);
        } else {
            soft_qp_close_socket(qp);
        }
        if (!qp->cm_told)
            soft_cm_qp_closed(qp->cm_handle);
        qp->cm_told = true;
    }
out:
    pthread_mutex_unlock(&qp->tx_lock);
}

/* As soft_qp_fail_locked(), with no lock held. */
void soft_qp_fail(struct soft_qp *qp, int send_status, int recv_status, bool read_failed)
{
    pthread_mutex_lock(&qp->rx_lock);
    soft_qp_fail_locked(qp, send_status, recv_status, read_failed);
    pthread_mutex_unlock(&qp->rx_lock);
}

/* soft_tx_progress() failed and no lock is held any more. */
void soft_qp_tx_failed(struct soft_qp *qp)
{
    pthread_mutex_lock(&qp->rx_lock);
    if (!qp->rx.ended) {
        int error;

        pthread_mutex_lock(&qp->tx_lock);
        error = qp->tx.error;
        pthread_mutex_unlock(&qp->tx_lock);
        /* The peer's Terminate, which says why, may be waiting in the socket. */
        if (error == -EPIPE || error == -ECONNRESET)
            soft_rx_pass(qp);
        soft_qp_fail_locked(qp, 0, 0, false);
    }
    pthread_mutex_unlock(&qp->rx_lock);
}

/*
 * rdma_disconnect(): finish what was posted, half-close, then error. With a deadline, so that a
 * peer that does not answer holds nothing up.
 */
void soft_qp_disconnect(struct soft_qp *qp)
{
    int r = 0;

    pthread_mutex_lock(&qp->tx_lock);
    if (qp->fd >= 0 && !qp->tx.closing && atomic_load(&qp->state) == IBV_QPS_RTS) {
        qp->tx.closing = true;
        qp->tx.closing_tail = qp->tx.tail;
        qp->deadline_us = soft_now_us() + SOFT_DRAIN_MS * 1000u;
        soft_worker_tick_add(qp->worker, qp);
        r = qp->tx.want_writable ? 0 : soft_tx_progress(qp);
    }
    pthread_mutex_unlock(&qp->tx_lock);
    if (r < 0)
        soft_qp_tx_failed(qp);
}
