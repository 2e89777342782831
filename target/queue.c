/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * queue -- making, connecting and ending I/O queues (the control thread's part; the data path is
 * io.c)
 */
#include "queue.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "config.h"
#include "connection.h"
#include "device.h"
#include "listener.h"
#include "log.h"
#include "memory.h"
#include "reactor.h"
#include "session.h"
#include "verbs.h"
#include "wr_id.h"

#define ESTABLISH_TIMEOUT_MS 5000
#define DISCONNECT_TIMEOUT_MS \
    1000                 /* for the peer to disconnect too, after the last answer was sent */
#define MESSAGE_ALIGN 64 /* a cache line, so that two messages never share one */

/* Sends: as many unanswered again as the peer may have commands, and the marker. */
static uint32_t send_requests(uint32_t depth)
{
    return 2 * depth + 1;
}

static uint32_t work_requests(uint32_t depth)
{
    return depth + send_requests(depth);
}

/* -- memory --------------------------------------------------------------------------------- */

static int create_messages(struct queue *q, struct ibv_pd *pd)
{
    size_t receives = (size_t)q->depth * q->stride;

    q->messages_len = receives + (size_t)q->depth * RBLK_COMMAND_LEN;
    q->messages = rblk_memory_map(q->messages_len);
    if (!q->messages)
        return -ENOMEM;
    if (!q->sends_inline)
        q->completions = q->messages + receives;
    q->messages_mr = ibv_reg_mr(pd, q->messages, q->messages_len, IBV_ACCESS_LOCAL_WRITE);
    return q->messages_mr ? 0 : -errno;
}

static int create_staging(struct queue *q, struct ibv_pd *pd, uint32_t len)
{
    if (len == 0)
        return 0;
    q->staging = rblk_memory_map(len);
    if (!q->staging)
        return -ENOMEM;
    q->staging_len = len;
    q->staging_mr =
        ibv_reg_mr(pd, q->staging, len, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    return q->staging_mr ? 0 : -errno;
}

static int create_tables(struct queue *q)
{
    q->requests = calloc(q->depth, sizeof(*q->requests));
    q->replies = calloc(q->depth, sizeof(*q->replies));
    q->reposts = calloc(q->depth, sizeof(*q->reposts));
    if (!q->requests || !q->replies || !q->reposts)
        return -ENOMEM;
    for (uint16_t i = 0; i < q->depth; i++) {
        q->requests[i].queue = q;
        q->requests[i].receive = i;
    }
    q->send_limit = send_requests(q->depth) - 1;
    return 0;
}

/* A device without room for a completion inside the work request sends it from memory. */
static int create_queue_pair(struct queue *q, struct ibv_pd *pd)
{
    struct rblk_qp_limits limits = {
        .send_wr = send_requests(q->depth),
        .recv_wr = q->depth,
        .send_sge = 1,
        .recv_sge = 1,
        .inline_data = RBLK_COMPLETION_LEN,
    };
    int rc = rblk_qp_create(q->id, pd, q->cq->cq, q->cq->cq, &limits);

    q->sends_inline = limits.inline_data != 0;
    if (rc == 0)
        q->qp = q->id->qp;
    return rc;
}

static int post_all_receives(struct queue *q)
{
    for (uint32_t i = 0; i < q->depth; i++) {
        struct ibv_sge sge = {
            .addr = (uint64_t)(uintptr_t)(q->messages + (size_t)i * q->stride),
            .length = RBLK_COMMAND_LEN + q->max_inline,
            .lkey = q->messages_mr->lkey,
        };
        struct ibv_recv_wr wr =
                               {
                                   .wr_id = wr_id_make(WR_RECEIVE, i, q->index, q->generation),
                                   .sg_list = &sge,
                                   .num_sge = 1,
                               },
                           *bad;
        int rc = ibv_post_recv(q->qp, &wr, &bad);

        if (rc)
            return -rc;
        q->receives_posted++;
    }
    return 0;
}

/* -- making ---------------------------------------------------------------------------------- */

/*
 * Destroys in order: queue pair, memory regions, memory, place, and the id unless it stays with
 * the caller.
 */
static void queue_free(struct queue *q, bool destroy_id)
{
    if (!q)
        return;
    if (q->qp)
        rdma_destroy_qp(q->id);
    if (q->staging_mr && ibv_dereg_mr(q->staging_mr))
        log_warning("client %s: staging memory cannot be deregistered: %s", q->peer,
                    strerror(errno));
    if (q->messages_mr && ibv_dereg_mr(q->messages_mr))
        log_warning("client %s: message memory cannot be deregistered: %s", q->peer,
                    strerror(errno));
    rblk_memory_unmap(q->staging, q->staging_len);
    rblk_memory_unmap(q->messages, q->messages_len);
    if (q->cq)
        reactor_unplace(q->reactor, q->index, q->cq, work_requests(q->depth));
    if (destroy_id)
        rdma_destroy_id(q->id);
    free(q->requests);
    free(q->replies);
    free(q->reposts);
    free(q);
}

static struct reactor *least_loaded(const struct target *t)
{
    struct reactor *best = t->reactors[0];

    for (unsigned int i = 1; i < t->reactor_count; i++)
        if (t->reactors[i]->queue_count < best->queue_count)
            best = t->reactors[i];
    return best;
}

static int queue_create(struct target *t, struct session *s, struct rdma_cm_id *id,
                        const struct rblk_connect *m, struct queue **out)
{
    const struct config *config = t->config;
    struct queue *q = calloc(1, sizeof(*q));
    int rc;

    if (!q)
        return -ENOMEM;
    q->owner.kind = OWNER_QUEUE;
    q->target = t;
    q->session = s;
    q->volume = s->volume;
    q->reactor = least_loaded(t);
    q->id = id;
    q->queue_id = m->queue_id;
    q->depth =
        m->queue_depth < config->queue_depth ? m->queue_depth : (uint16_t)config->queue_depth;
    q->read_only = s->mode == RBLK_ATTACH_RO;
    q->max_inline = (uint32_t)config->inline_size;
    q->max_io = session_max_io(s);
    q->stride = (RBLK_COMMAND_LEN + q->max_inline + MESSAGE_ALIGN - 1) & ~(MESSAGE_ALIGN - 1u);
    q->deadline_ns = rblk_deadline_ms(ESTABLISH_TIMEOUT_MS);
    listener_peer_text(id, q->peer, sizeof(q->peer));
    rc = reactor_place(q->reactor, s->domain->device, work_requests(q->depth), &q->index,
                       &q->generation, &q->cq);
    if (rc == 0)
        rc = create_tables(q);
    if (rc == 0)
        rc = create_queue_pair(q, s->domain->pd);
    if (rc == 0)
        rc = create_messages(q, s->domain->pd);
    if (rc == 0)
        rc = create_staging(q, s->domain->pd, session_staging_len(s));
    if (rc == 0)
        rc = post_all_receives(q);
    if (rc) {
        queue_free(q, false);
        return rc;
    }
    *out = q;
    return 0;
}

static enum rblk_status check_request(const struct target *t, const struct session *s,
                                      const struct rdma_cm_id *id, const struct rblk_connect *m)
{
    if (m->queue_id >= t->config->max_queues)
        return RBLK_STATUS_LIMIT;
    /* The memory of the session is registered with one device. */
    if (id->verbs != s->domain->device->verbs)
        return RBLK_STATUS_TOKEN;
    for (const struct queue *q = t->queues; q; q = q->next)
        if (q->session == s && q->queue_id == m->queue_id)
            return RBLK_STATUS_BUSY;
    return RBLK_STATUS_OK;
}

enum rblk_status queue_connect(struct target *t, struct session *s, struct rdma_cm_id *id,
                               const struct rblk_connect *m, const struct rdma_conn_param *request)
{
    enum rblk_status status = check_request(t, s, id, m);
    uint8_t reads = device_max_reads(s->domain->device);
    uint8_t private_data[RBLK_ACCEPT_LEN];
    struct rdma_conn_param param;
    struct rblk_accept accept;
    struct queue *q = NULL;
    int rc;

    if (status != RBLK_STATUS_OK)
        return status;
    rc = queue_create(t, s, id, m, &q);
    if (rc) {
        char peer[PEER_TEXT_LEN];

        listener_peer_text(id, peer, sizeof(peer));
        log_warning("client %s: no I/O queue for it: %s", peer, strerror(-rc));
        return rc == -ENOSPC ? RBLK_STATUS_LIMIT : RBLK_STATUS_NO_MEMORY;
    }
    accept = (struct rblk_accept){
        .version = RBLK_WIRE_VERSION,
        .kind = RBLK_KIND_IO,
        .queue_depth = q->depth,
        .staging_rkey = q->staging_mr ? q->staging_mr->rkey : 0,
        .staging_addr = (uint64_t)(uintptr_t)q->staging,
        .staging_len = q->staging_len,
    };
    rblk_accept_encode(private_data, &accept);
    if (request->responder_resources < reads)
        reads = request->responder_resources;
    rblk_conn_param(&param, 0, reads, private_data, sizeof(private_data));

    id->context = q;
    q->next = t->queues;
    t->queues = q;
    s->queues++;
    counter_add(&t->counters.queues, 1);
    /* Before accepting: the first command may come at once. */
    mailbox_post(&q->reactor->orders, &q->to_reactor, QUEUE_ORDER_ADOPT);
    target_deadline(t, q->deadline_ns);
    if (rdma_accept(id, &param)) {
        log_warning("client %s: its I/O queue cannot be accepted: %s", q->peer, strerror(errno));
        queue_close(q, true);
    }
    return RBLK_STATUS_OK;
}

/* -- ending ---------------------------------------------------------------------------------- */

/* The queue pair goes into error, which flushes its work requests; the reactor collects them. */
static void enter_error(struct queue *q)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

    if (q->in_error)
        return;
    q->in_error = true;
    q->deadline_ns = UINT64_MAX;
    if (ibv_modify_qp(q->qp, &attr, IBV_QP_STATE))
        log_debug("client %s: queue pair of queue %u: %s", q->peer, q->queue_id, strerror(errno));
    mailbox_post(&q->reactor->orders, &q->to_reactor, QUEUE_ORDER_DRAIN);
}

void queue_close(struct queue *q, bool abrupt)
{
    if (!q->closing) {
        q->closing = true;
        rdma_disconnect(q->id);
        q->deadline_ns = rblk_deadline_ms(DISCONNECT_TIMEOUT_MS);
        target_deadline(q->target, q->deadline_ns);
    }
    if (abrupt || q->disconnected)
        enter_error(q);
}

void queue_established(struct queue *q)
{
    q->established = true;
    if (!q->closing)
        q->deadline_ns = UINT64_MAX;
    log_debug("client %s: I/O queue %u of volume %s, depth %u", q->peer, q->queue_id,
              q->volume->name, q->depth);
}

void queue_disconnected(struct queue *q)
{
    if (!q->closing)
        log_debug("client %s: I/O queue %u of volume %s: disconnected", q->peer, q->queue_id,
                  q->volume->name);
    q->disconnected = true;
    queue_close(q, true);
}

void queue_finish(struct queue *q)
{
    /* Nothing may follow the order to drain: the reactor forgets the queue then. */
    if (q->closing)
        return;
    mailbox_post(&q->reactor->orders, &q->to_reactor, QUEUE_ORDER_FINISH);
}

static void queue_gone(struct target *t, struct queue *q)
{
    struct session *s = q->session;
    struct queue **link = &t->queues;

    while (*link != q)
        link = &(*link)->next;
    *link = q->next;
    counter_sub(&t->counters.queues, 1);
    queue_free(q, true);
    session_queue_gone(s);
}

void queue_report(struct target *t, struct mail *mail, unsigned int flags)
{
    struct queue *q = (struct queue *)((char *)mail - offsetof(struct queue, to_control));

    if (flags & QUEUE_REPORT_DRAINED) {
        queue_gone(t, q);
        return;
    }
    queue_close(q, flags & QUEUE_REPORT_BROKEN);
}

void queue_tick(struct target *t, uint64_t now_ns)
{
    for (struct queue *q = t->queues; q; q = q->next) {
        if (q->deadline_ns <= now_ns)
            queue_close(q, true);
        target_deadline(t, q->deadline_ns);
    }
}
