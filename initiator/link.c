/* SPDX-License-Identifier: BSD-2-Clause */
/* link -- the connection of one I/O queue: queue pair, completions, and how it ends (see queue.h)
 * */
#include <errno.h>
#include <rdma/rdma_verbs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "common/clock.h"
#include "common/verbs.h"
#include "connect.h"
#include "control.h"
#include "queue.h"

/* -- receives -------------------------------------------------------------------------------- */

/* Posts the receives whose indexes are given, in one call. */
static int post_receives(struct rblk_queue *q, const uint32_t *index, uint32_t count)
{
    struct ibv_recv_wr wr[RBLK_REAP_MAX], *bad;
    struct ibv_sge sge[RBLK_REAP_MAX];
    int rc;

    for (uint32_t i = 0; i < count; i++) {
        sge[i] = (struct ibv_sge){
            .addr = (uintptr_t)(q->receives + (size_t)index[i] * RBLK_RECEIVE_STRIDE),
            .length = RBLK_RECEIVE_STRIDE,
            .lkey = q->mr->lkey,
        };
        wr[i] = (struct ibv_recv_wr){
            .wr_id = RBLK_RECEIVE_WR | index[i],
            .next = i + 1 < count ? &wr[i + 1] : NULL,
            .sg_list = &sge[i],
            .num_sge = 1,
        };
    }
    rc = ibv_post_recv(q->endpoint.id->qp, wr, &bad);
    if (rc)
        return -rc;
    q->receives_posted += count;
    return 0;
}

static int post_all_receives(struct rblk_queue *q)
{
    uint32_t index[RBLK_REAP_MAX];

    for (uint32_t next = 0; next < q->depth;) {
        uint32_t n = 0;
        int rc;

        while (n < RBLK_REAP_MAX && next < q->depth)
            index[n++] = next++;
        rc = post_receives(q, index, n);
        if (rc)
            return rc;
    }
    return 0;
}

/* -- set-up ---------------------------------------------------------------------------------- */

/* Memory of the queue: pool and message buffers in one registration, kept for later connections. */
static int prepare_memory(struct rblk_queue *q)
{
    size_t messages, extra;
    int rc;

    q->slot_stride = (RBLK_COMMAND_LEN + q->max_inline + 63u) / 64u * 64u;
    messages = (size_t)q->slot_stride * q->depth;
    extra = messages + (size_t)RBLK_RECEIVE_STRIDE * q->depth;
    if (!q->pool.base) {
        rc = rblk_pool_init(&q->pool, q->h->options.pool_size, extra);
        if (rc)
            return rblk_fail(q->h, rc, "queue %u: no memory for its buffers: %s", q->index,
                             strerror(-rc));
    }
    if (!q->mr) {
        q->mr = rdma_reg_msgs(q->endpoint.id, q->pool.base, q->pool.len);
        if (!q->mr)
            return rblk_fail_register(q->h, -errno, q->pool.len);
    }
    q->messages = q->pool.extra;
    q->receives = q->pool.extra + messages;
    return 0;
}

/* Completion queue with its channel in the queue's epoll set. */
static int prepare_cq(struct rblk_queue *q, uint32_t entries)
{
    struct epoll_event event = {.events = EPOLLIN};
    int rc;

    q->channel = ibv_create_comp_channel(q->endpoint.id->verbs);
    if (!q->channel)
        return -errno;
    rc = rblk_fd_nonblock(q->channel->fd);
    if (rc)
        return rc;
    q->cq = ibv_create_cq(q->endpoint.id->verbs, (int)entries, q, q->channel, 0);
    if (!q->cq)
        return -errno;
    if (epoll_ctl(q->fd, EPOLL_CTL_ADD, q->channel->fd, &event))
        return -errno;
    return 0;
}

static int prepare_qp(struct rblk_queue *q)
{
    struct rblk_qp_limits limits = {
        .recv_wr = q->depth,
        .send_sge = 2,
        .recv_sge = 1,
        .inline_data = RBLK_COMMAND_LEN,
    };
    int rc;

    q->sq_size = 2 * q->depth + RBLK_QUEUE_READS;
    q->sq_signal = q->sq_size / 4;
    limits.send_wr = q->sq_size + RBLK_NUDGES;
    q->sq = calloc(q->sq_size, sizeof(*q->sq));
    if (!q->sq)
        return rblk_fail(q->h, -ENOMEM, "queue %u: no memory for its send queue", q->index);
    rc = prepare_cq(q, limits.send_wr + limits.recv_wr);
    if (rc)
        return rblk_fail(q->h, rc, "queue %u: %s refuses a completion queue of %u entries: %s",
                         q->index, ibv_get_device_name(q->endpoint.id->verbs->device),
                         limits.send_wr + limits.recv_wr, strerror(-rc));
    rc = rblk_qp_create(q->endpoint.id, q->h->pd, q->cq, q->cq, &limits);
    if (rc)
        return rblk_fail(q->h, rc,
                         "queue %u: %s refuses a queue pair with %u sends and %u receives: %s; "
                         "ask for a smaller queue depth",
                         q->index, ibv_get_device_name(q->endpoint.id->verbs->device),
                         limits.send_wr, limits.recv_wr, strerror(-rc));
    q->sends_inline = limits.inline_data != 0;
    return 0;
}

/* Reads outstanding at once: what the target's device serves and ours can issue. */
static uint8_t read_limit(struct rblk_queue *q)
{
    struct ibv_device_attr attr;
    uint32_t reads = q->h->volume.max_reads;

    if (reads > UINT8_MAX)
        reads = UINT8_MAX;
    if (ibv_query_device(q->endpoint.id->verbs, &attr) == 0 && attr.max_qp_init_rd_atom > 0 &&
        reads > (uint32_t)attr.max_qp_init_rd_atom)
        reads = (uint32_t)attr.max_qp_init_rd_atom;
    return reads ? (uint8_t)reads : 1;
}

/* A queue of a writer without staging memory and without in-message data could write nothing. */
static bool can_write(const struct rblk_queue *q, const struct rblk_accept *grant)
{
    bool read_only = q->h->options.mode == RBLK_MODE_RO || (q->h->volume.flags & RBLK_VOLUME_RO);

    return read_only || grant->staging_len != 0 || q->max_inline != 0;
}

/* Takes over what the target granted in its answer. */
static int take_grant(struct rblk_queue *q)
{
    const struct rblk_endpoint *ep = &q->endpoint;
    struct rblk_accept grant;
    uint32_t units;

    if (rblk_accept_decode(&grant, ep->private_data, ep->private_len) ||
        grant.kind != RBLK_KIND_IO || grant.queue_depth == 0 || grant.queue_depth > q->depth ||
        grant.staging_len % RBLK_STAGING_GRANULE != 0 ||
        grant.staging_addr > UINT64_MAX - grant.staging_len || !can_write(q, &grant))
        return rblk_fail(q->h, -EPROTO,
                         "%s: the answer to queue %u breaks the protocol; do both ends have the "
                         "same version?",
                         q->conn->address, q->index);
    q->depth = grant.queue_depth;
    units = grant.staging_len / RBLK_STAGING_GRANULE;
    if (units > RBLK_RUN_UNITS_MAX)
        units = RBLK_RUN_UNITS_MAX;
    q->staging_addr = grant.staging_addr;
    q->staging_rkey = grant.staging_rkey;
    q->staging_units = units;
    if (units)
        rblk_run_alloc_init(&q->staging, units);
    if (q->max_io > units * RBLK_STAGING_GRANULE && units)
        q->max_io = units * RBLK_STAGING_GRANULE;
    q->free_slots = 0;
    for (uint32_t i = q->depth; i > 0; i--)
        q->free_slot[q->free_slots++] = (uint16_t)(i - 1);
    return 0;
}

int rblk_link_open(struct rblk_queue *q, struct rblk_conn *conn, uint64_t deadline_ns)
{
    const struct rblk_attach_reply *volume = &q->h->volume;
    struct rblk_connect hello = {
        .version = RBLK_WIRE_VERSION,
        .kind = RBLK_KIND_IO,
        .queue_id = (uint16_t)q->index,
    };
    uint8_t private_data[RBLK_CONNECT_LEN];
    int rc;

    q->conn = conn;
    q->max_io = volume->max_io;
    q->max_inline = volume->max_inline;
    q->depth = q->h->options.queue_depth < volume->max_queue_depth ? q->h->options.queue_depth
                                                                   : volume->max_queue_depth;
    rc = rblk_endpoint_open(&q->endpoint, conn, (struct sockaddr *)&conn->peer, deadline_ns);
    if (rc)
        return rblk_fail_connect(q->h, conn->address, &q->endpoint, rc);
    if (q->endpoint.id->verbs != q->h->verbs)
        return rblk_fail(q->h, -ENODEV,
                         "%s: queue %u would use another RDMA device than the control connection; "
                         "name an address that belongs to one device",
                         conn->address, q->index);
    rc = prepare_qp(q);
    if (rc)
        return rc;
    rc = prepare_memory(q);
    if (rc)
        return rc;
    rc = post_all_receives(q);
    if (rc)
        return rblk_fail(q->h, rc, "queue %u: cannot post receives: %s", q->index, strerror(-rc));
    hello.queue_depth = (uint16_t)q->depth;
    memcpy(hello.token, volume->token, RBLK_TOKEN_LEN);
    rblk_connect_encode(private_data, &hello);
    rc = rblk_endpoint_connect(&q->endpoint, read_limit(q), private_data, sizeof(private_data),
                               deadline_ns);
    if (rc)
        return rblk_fail_connect(q->h, conn->address, &q->endpoint, rc);
    rc = take_grant(q);
    if (rc)
        return rc;
    pthread_mutex_lock(&q->lock);
    q->state = RBLK_QUEUE_LIVE;
    pthread_mutex_unlock(&q->lock);
    return 0;
}

void rblk_link_close(struct rblk_queue *q)
{
    rblk_endpoint_close(&q->endpoint);
    if (q->cq) {
        ibv_destroy_cq(q->cq);
        q->cq = NULL;
    }
    if (q->channel) {
        epoll_ctl(q->fd, EPOLL_CTL_DEL, q->channel->fd, NULL);
        ibv_destroy_comp_channel(q->channel);
        q->channel = NULL;
    }
    free(q->sq);
    q->sq = NULL;
    q->armed = q->slept = false;
}

/* -- posting --------------------------------------------------------------------------------- */

void rblk_link_post(struct rblk_queue *q)
{
    struct rblk_batch *b = &q->batch;
    struct ibv_send_wr *bad = NULL;
    uint64_t signalled = q->sq_signalled;
    int rc;

    for (uint32_t i = 0; i < b->count; i++) {
        struct ibv_send_wr *wr = &b->wr[i];

        wr->wr_id = q->sq_posted + i;
        wr->next = i + 1 < b->count ? wr + 1 : NULL;
        if (++q->sq_unsignalled >= q->sq_signal)
            wr->send_flags |= IBV_SEND_SIGNALED;
        if (wr->send_flags & IBV_SEND_SIGNALED) {
            q->sq_unsignalled = 0;
            signalled = wr->wr_id + 1;
        }
        if (wr->opcode == IBV_WR_RDMA_READ) {
            q->sq_read = wr->wr_id + 1;
            q->stats.rdma_reads++;
        }
    }
    rc = ibv_post_send(q->endpoint.id->qp, b->wr, &bad);
    /* All of them get a serial number, so that the end of the connection finds what they hold. */
    q->sq_posted += b->count;
    if (rc == 0) {
        q->sq_signalled = signalled;
        return;
    }
    /* Some may have been posted: only the end of the queue pair says when none is under way. */
    q->sq_signalled = UINT64_MAX;
    rblk_conn_fail(q->conn, -EIO, "%s: queue %u cannot post work requests: %s", q->conn->address,
                   q->index, strerror(rc));
}

/* -- completions ----------------------------------------------------------------------------- */

static void return_copy(struct rblk_queue *q, struct rblk_sq_entry *entry, bool good)
{
    if (!entry->copy)
        return;
    if (good)
        memcpy(entry->dest, entry->copy + entry->before, entry->len);
    rblk_pool_give(&q->pool, entry->copy, entry->fetched);
    entry->copy = NULL;
}

/* Everything up to the serial number is complete. */
static void sends_done(struct rblk_queue *q, uint64_t serial, bool good)
{
    while (q->sq_completed <= serial && q->sq_completed < q->sq_posted) {
        struct rblk_sq_entry *entry = &q->sq[q->sq_completed++ % q->sq_size];

        return_copy(q, entry, good);
        if (good && entry->request)
            rblk_request_part_done(q, entry->request, 0);
        entry->request = NULL;
    }
}

static void completion_failed(struct rblk_queue *q, const struct ibv_wc *wc)
{
    if (wc->status == IBV_WC_WR_FLUSH_ERR)
        rblk_conn_fail(q->conn, -EIO, "%s closed the connection of queue %u; does rblkd still run?",
                       q->conn->address, q->index);
    else
        rblk_conn_fail(q->conn, -EIO, "%s: queue %u failed: %s (%s)", q->conn->address, q->index,
                       ibv_wc_status_str(wc->status),
                       wc->wr_id & RBLK_RECEIVE_WR ? "receive" : "send");
}

static void receive_done(struct rblk_queue *q, const struct ibv_wc *wc, uint32_t *again,
                         uint32_t *again_count)
{
    uint32_t index = (uint32_t)(wc->wr_id & ~RBLK_RECEIVE_WR);

    q->receives_posted--;
    if (wc->status != IBV_WC_SUCCESS || q->state != RBLK_QUEUE_LIVE)
        return;
    if (rblk_write_complete(q, q->receives + (size_t)index * RBLK_RECEIVE_STRIDE, wc->byte_len)) {
        rblk_conn_fail(q->conn, -EPROTO, "%s: queue %u received a message that breaks the protocol",
                       q->conn->address, q->index);
        return;
    }
    again[(*again_count)++] = index;
}

int rblk_link_reap(struct rblk_queue *q)
{
    struct ibv_wc wc[RBLK_REAP_MAX];
    uint32_t again[RBLK_REAP_MAX];
    int total = 0;

    for (;;) {
        uint32_t again_count = 0;
        int n = q->cq ? ibv_poll_cq(q->cq, RBLK_REAP_MAX, wc) : 0;
        int rc;

        if (n < 0) {
            rblk_conn_fail(q->conn, -EIO, "%s: the completion queue of queue %u failed",
                           q->conn->address, q->index);
            return total;
        }
        for (int i = 0; i < n; i++) {
            if (wc[i].status != IBV_WC_SUCCESS)
                completion_failed(q, &wc[i]);
            if (wc[i].wr_id & RBLK_RECEIVE_WR)
                receive_done(q, &wc[i], again, &again_count);
            else
                sends_done(q, wc[i].wr_id, wc[i].status == IBV_WC_SUCCESS);
        }
        /* The slots just freed are the target's credit: their receives are back before any is used.
         * */
        rc = again_count && q->state == RBLK_QUEUE_LIVE ? post_receives(q, again, again_count) : 0;
        if (rc)
            rblk_conn_fail(q->conn, -EIO, "%s: queue %u cannot post receives: %s", q->conn->address,
                           q->index, strerror(-rc));
        total += n;
        q->progress += (uint64_t)n;
        if (n < RBLK_REAP_MAX)
            return total;
    }
}

void rblk_link_nudge(struct rblk_queue *q)
{
    pthread_mutex_lock(&q->lock);
    if (q->state == RBLK_QUEUE_LIVE && q->sq_posted > 0 && q->progress == 0) {
        /* Work requests complete in order: its completion is that of everything before it. */
        int rc = rblk_qp_nudge(q->endpoint.id->qp, q->sq_posted - 1);

        if (rc)
            rblk_conn_fail(q->conn, -EIO, "%s: queue %u cannot post work requests: %s",
                           q->conn->address, q->index, strerror(-rc));
    }
    pthread_mutex_unlock(&q->lock);
}

uint64_t rblk_link_stalled_ns(struct rblk_queue *q, uint64_t now_ns)
{
    uint64_t stalled;
    bool finished;

    pthread_mutex_lock(&q->lock);
    if (q->state == RBLK_QUEUE_LIVE)
        rblk_link_reap(q);
    if (q->state != RBLK_QUEUE_LIVE || q->progress != q->stalled_progress ||
        (q->free_slots == q->depth && q->sq_completed >= q->sq_read && !q->parked.head)) {
        q->stalled_progress = q->progress;
        q->stalled_since_ns = 0;
    } else if (q->stalled_since_ns == 0) {
        /* Counted from here, because the work may have begun a moment ago. */
        q->stalled_since_ns = now_ns;
    }
    stalled = q->stalled_since_ns ? now_ns - q->stalled_since_ns : 0;
    finished = q->done.head != NULL;
    pthread_mutex_unlock(&q->lock);
    if (finished)
        rblk_queue_kick(q);
    return stalled;
}

/* -- the end --------------------------------------------------------------------------------- */

void rblk_link_break(struct rblk_queue *q)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

    pthread_mutex_lock(&q->lock);
    if (q->state == RBLK_QUEUE_LIVE) {
        q->state = RBLK_QUEUE_DRAINING;
        /* Both may fail when the peer was first; the queue pair is in error then. */
        rdma_disconnect(q->endpoint.id);
        ibv_modify_qp(q->endpoint.id->qp, &attr, IBV_QP_STATE);
    }
    pthread_mutex_unlock(&q->lock);
}

/* Every request that is not done yet ends with `error`. */
static void fail_requests(struct rblk_queue *q, int error)
{
    for (unsigned int i = 0; i < RBLK_QUEUE_REQUESTS; i++) {
        struct rblk_request *r = &q->request[i];

        if (r->state == RBLK_REQUEST_FREE || r->state == RBLK_REQUEST_DONE)
            continue;
        if (!r->error)
            r->error = error;
        r->outstanding = 0;
        rblk_request_finish(q, r);
    }
    q->reads.head = q->writes.head = q->parked.head = NULL;
}

/* What the lost work requests and commands held goes back to the pool. */
static void release_resources(struct rblk_queue *q)
{
    if (q->sq_posted > q->sq_completed)
        sends_done(q, q->sq_posted - 1, false);
    for (uint32_t i = 0; i < RBLK_QUEUE_DEPTH_MAX; i++) {
        struct rblk_slot *slot = &q->slot[i];

        if (slot->used && slot->copy)
            rblk_pool_give(&q->pool, slot->copy, slot->len);
        memset(slot, 0, sizeof(*slot));
    }
}

/* Lock held: nothing of what was posted touches a buffer any more. */
static void end_requests(struct rblk_queue *q, int error)
{
    release_resources(q);
    fail_requests(q, error);
    q->state = RBLK_QUEUE_DEAD;
    rblk_queue_kick(q);
}

bool rblk_link_drain(struct rblk_queue *q, int error)
{
    bool dead;

    pthread_mutex_lock(&q->lock);
    if (q->state == RBLK_QUEUE_DRAINING) {
        rblk_link_reap(q);
        /*
         * Every receive and every signalled send has come back, among them all reads, the last of
         * each batch being signalled: nothing writes to our memory any more. Unsignalled sends may
         * get no completion when they are flushed; a queue pair in error does not send them.
         */
        if (!q->receives_posted && q->sq_completed >= q->sq_signalled)
            end_requests(q, error);
    }
    dead = q->state == RBLK_QUEUE_DEAD;
    pthread_mutex_unlock(&q->lock);
    return dead;
}

void rblk_link_destroy(struct rblk_queue *q, int error)
{
    struct ibv_wc wc[RBLK_REAP_MAX];

    /* Without the lock: whoever waits for a request needs it, and this may take a minute. */
    rblk_endpoint_destroy_qp(&q->endpoint);
    pthread_mutex_lock(&q->lock);
    if (q->state == RBLK_QUEUE_DRAINING) {
        while (ibv_poll_cq(q->cq, RBLK_REAP_MAX, wc) > 0)
            ;
        end_requests(q, error);
    }
    pthread_mutex_unlock(&q->lock);
}
