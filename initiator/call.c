/* SPDX-License-Identifier: BSD-2-Clause */
/* call -- requests on the control connection and the messages that come back (see control.h) */
#include <errno.h>
#include <rdma/rdma_verbs.h>
#include <string.h>

#include "common/clock.h"
#include "common/memory.h"
#include "common/verbs.h"
#include "connect.h"
#include "control.h"

/* wr_id: what kind of buffer, and which. */
#define WR_MESSAGE 0x100u
#define WR_ACK 0x200u
#define WR_RECEIVE 0x300u
#define WR_NUDGE 0x400u
#define WR_KIND 0xf00u
#define WR_INDEX 0x0ffu

/* The registered memory is an array of buffers of RBLK_CONTROL_MAX bytes. */
#define ACK_BUFFERS RBLK_CONTROL_REQUESTS
#define RECEIVE_BUFFERS (RBLK_CONTROL_REQUESTS + RBLK_CONTROL_EVENTS)
#define BUFFERS (RECEIVE_BUFFERS + RBLK_CONTROL_RECEIVES)

static uint8_t *buffer(struct rblk_conn *conn, unsigned int i)
{
    return conn->memory + (size_t)i * RBLK_CONTROL_MAX;
}

static int post_receive(struct rblk_conn *conn, unsigned int i)
{
    struct ibv_sge sge = {
        .addr = (uintptr_t)buffer(conn, RECEIVE_BUFFERS + i),
        .length = RBLK_CONTROL_MAX,
        .lkey = conn->mr->lkey,
    };
    struct ibv_recv_wr wr = {.wr_id = WR_RECEIVE | i, .sg_list = &sge, .num_sge = 1};
    struct ibv_recv_wr *bad;

    return -ibv_post_recv(conn->endpoint.id->qp, &wr, &bad);
}

int rblk_calls_setup(struct rblk_conn *conn)
{
    if (!conn->memory) {
        conn->memory_len = (size_t)BUFFERS * RBLK_CONTROL_MAX;
        conn->memory = rblk_memory_map(conn->memory_len);
        if (!conn->memory)
            return rblk_fail(conn->h, -errno, "no memory for control messages: %s",
                             strerror(errno));
        for (unsigned int i = 0; i < RBLK_CONTROL_REQUESTS; i++)
            conn->call[i].message = buffer(conn, i);
    }
    conn->mr = rdma_reg_msgs(conn->endpoint.id, conn->memory, conn->memory_len);
    if (!conn->mr)
        return rblk_fail_register(conn->h, -errno, conn->memory_len);
    for (unsigned int i = 0; i < RBLK_CONTROL_RECEIVES; i++) {
        int rc = post_receive(conn, i);

        if (rc)
            return rblk_fail(conn->h, rc, "cannot post receives: %s", strerror(-rc));
    }
    return 0;
}

/* conn->lock held, which orders the posts of all threads. */
static int post_send(struct rblk_conn *conn, uint64_t wr_id, uint8_t *message, size_t len)
{
    struct ibv_sge sge = {
        .addr = (uintptr_t)message,
        .length = (uint32_t)len,
        .lkey = conn->mr->lkey,
    };
    struct ibv_send_wr wr = {
        .wr_id = wr_id,
        .sg_list = &sge,
        .num_sge = 1,
        .opcode = IBV_WR_SEND,
        .send_flags = IBV_SEND_SIGNALED,
    };
    struct ibv_send_wr *bad;

    return -ibv_post_send(conn->endpoint.id->qp, &wr, &bad);
}

/* -- requests -------------------------------------------------------------------------------- */

/* conn->lock held. */
static bool reserve(struct rblk_conn *conn, unsigned int slot)
{
    struct rblk_call *call = &conn->call[slot];

    if (call->state != RBLK_CALL_FREE || call->sending)
        return false;
    call->state = RBLK_CALL_RESERVED;
    call->tag = ++conn->serial * RBLK_CONTROL_REQUESTS + slot;
    return true;
}

struct rblk_call *rblk_call_take(struct rblk_conn *conn, unsigned int slot)
{
    bool taken;

    pthread_mutex_lock(&conn->lock);
    taken = reserve(conn, slot);
    pthread_mutex_unlock(&conn->lock);
    return taken ? &conn->call[slot] : NULL;
}

int rblk_call_post(struct rblk_conn *conn, struct rblk_call *call, size_t len)
{
    struct rblk_header header;
    int rc = rblk_header_decode(&header, call->message, len);

    pthread_mutex_lock(&conn->lock);
    if (rc == 0) {
        call->type = header.type;
        call->state = RBLK_CALL_SENT;
        call->sent_ns = rblk_now_ns();
        rc = post_send(conn, WR_MESSAGE | (uint64_t)(call - conn->call), call->message, len);
    }
    /* Otherwise the slot stays its owner's, who ends the call. */
    if (rc == 0)
        call->sending = true;
    else
        call->state = RBLK_CALL_RESERVED;
    pthread_mutex_unlock(&conn->lock);
    if (rc)
        rblk_conn_fail(conn, -EIO, "%s: cannot send a control message: %s", conn->address,
                       strerror(-rc));
    return rc;
}

int rblk_call_begin(struct rblk_conn *conn, struct rblk_call **out, uint64_t deadline_ns)
{
    int rc = 0;

    pthread_mutex_lock(&conn->lock);
    for (;;) {
        unsigned int slot = RBLK_CALL_FIRST;

        rc = rblk_conn_failed(conn);
        if (rc)
            break;
        while (slot < RBLK_CONTROL_REQUESTS && !reserve(conn, slot))
            slot++;
        if (slot < RBLK_CONTROL_REQUESTS) {
            *out = &conn->call[slot];
            break;
        }
        rc = rblk_conn_wait(conn, deadline_ns);
        if (rc)
            break;
    }
    pthread_mutex_unlock(&conn->lock);
    return rc;
}

static int take_status(const struct rblk_call *call, uint16_t *status, char *detail)
{
    struct rblk_header header;
    int rc = rblk_header_decode(&header, call->reply, call->reply_len);

    if (rc)
        return rc;
    *status = header.status;
    if (header.status == RBLK_STATUS_OK)
        return 0;
    rc = rblk_error_decode(detail, call->reply, call->reply_len);
    return rc ? rc : -rblk_status_to_errno(header.status);
}

int rblk_call_exchange(struct rblk_conn *conn, struct rblk_call *call, size_t len,
                       uint64_t deadline_ns, uint16_t *status, char *detail)
{
    int rc;

    detail[0] = '\0';
    *status = RBLK_STATUS_OK;
    rc = rblk_call_post(conn, call, len);
    if (rc)
        return rc;
    pthread_mutex_lock(&conn->lock);
    while (call->state == RBLK_CALL_SENT) {
        rc = rblk_conn_failed(conn);
        if (rc == 0)
            rc = rblk_conn_wait(conn, deadline_ns);
        if (rc)
            break;
    }
    /* An answer that came with the failure or the deadline still counts. */
    if (call->state == RBLK_CALL_ANSWERED)
        rc = 0;
    else if (call->state == RBLK_CALL_SENT)
        call->state = RBLK_CALL_ABANDONED;
    pthread_mutex_unlock(&conn->lock);
    return rc ? rc : take_status(call, status, detail);
}

void rblk_call_end(struct rblk_conn *conn, struct rblk_call *call)
{
    pthread_mutex_lock(&conn->lock);
    if (call->state != RBLK_CALL_ABANDONED)
        call->state = RBLK_CALL_FREE;
    pthread_cond_broadcast(&conn->cond);
    pthread_mutex_unlock(&conn->lock);
}

/* -- what comes back ------------------------------------------------------------------------- */

/* The reply to one of our requests, or -EPROTO. The receive is posted again before the slot is
 * free. */
static int take_reply(struct rblk_conn *conn, unsigned int index, const struct rblk_header *header,
                      const uint8_t *message, size_t len)
{
    unsigned int slot = (unsigned int)(header->tag % RBLK_CONTROL_REQUESTS);
    struct rblk_call *call = &conn->call[slot];
    bool own = slot < RBLK_CALL_FIRST;
    int rc = 0;

    pthread_mutex_lock(&conn->lock);
    if ((call->state != RBLK_CALL_SENT && call->state != RBLK_CALL_ABANDONED) ||
        call->tag != header->tag || header->type != (call->type | RBLK_REPLY)) {
        rc = -EPROTO;
    } else {
        memcpy(call->reply, message, len);
        call->reply_len = len;
        call->answered_ns = rblk_now_ns();
        rc = post_receive(conn, index);
        call->state = call->state == RBLK_CALL_SENT ? RBLK_CALL_ANSWERED : RBLK_CALL_FREE;
        pthread_cond_broadcast(&conn->cond);
    }
    pthread_mutex_unlock(&conn->lock);
    if (rc == 0 && own) {
        rblk_control_reply(conn, slot, call);
        rblk_call_end(conn, call);
    }
    return rc;
}

/* conn->lock held: acknowledges an event, now or when a buffer is free. */
static int acknowledge(struct rblk_conn *conn, uint64_t number)
{
    for (unsigned int i = 0; i < RBLK_CONTROL_EVENTS; i++) {
        uint8_t *message = buffer(conn, ACK_BUFFERS + i);
        size_t len;

        if (conn->ack_sending[i])
            continue;
        len = rblk_empty_encode(message, RBLK_EVENT_ACK, number);
        conn->ack_sending[i] = true;
        return post_send(conn, WR_ACK | i, message, len);
    }
    /* More events than may be unacknowledged are more than the target may send. */
    if (conn->ack_waiting_count == RBLK_CONTROL_EVENTS)
        return -EPROTO;
    conn->ack_waiting[conn->ack_waiting_count++] = number;
    return 0;
}

static int take_event(struct rblk_conn *conn, unsigned int index, const struct rblk_header *header,
                      const uint8_t *message, size_t len)
{
    uint8_t copy[RBLK_CONTROL_MAX];
    int rc;

    if (header->type != RBLK_EVENT_EXTENT_RECALL && header->type != RBLK_EVENT_GOODBYE)
        return -EPROTO;
    memcpy(copy, message, len);
    pthread_mutex_lock(&conn->lock);
    rc = post_receive(conn, index);
    if (rc == 0)
        rc = acknowledge(conn, header->tag);
    pthread_mutex_unlock(&conn->lock);
    if (rc)
        return rc;
    rblk_control_event(conn, header->type, copy, len);
    return 0;
}

static void receive_done(struct rblk_conn *conn, unsigned int index, size_t len)
{
    const uint8_t *message = buffer(conn, RECEIVE_BUFFERS + index);
    struct rblk_header header;
    int rc = rblk_header_decode(&header, message, len);

    conn->heard_ns = rblk_now_ns();
    if (rc == 0 && (header.type & RBLK_REPLY))
        rc = take_reply(conn, index, &header, message, len);
    else if (rc == 0)
        rc = take_event(conn, index, &header, message, len);
    if (rc)
        rblk_conn_fail(conn, rc,
                       "%s sent a control message that breaks the protocol; is it rblkd "
                       "of this version?",
                       conn->address);
}

static void send_done(struct rblk_conn *conn, uint64_t wr_id)
{
    unsigned int index = (unsigned int)(wr_id & WR_INDEX);
    int rc = 0;

    pthread_mutex_lock(&conn->lock);
    if ((wr_id & WR_KIND) == WR_MESSAGE) {
        conn->call[index].sending = false;
        pthread_cond_broadcast(&conn->cond);
    } else {
        conn->ack_sending[index] = false;
        if (conn->ack_waiting_count) {
            uint64_t number = conn->ack_waiting[0];

            conn->ack_waiting_count--;
            memmove(conn->ack_waiting, conn->ack_waiting + 1,
                    conn->ack_waiting_count * sizeof(number));
            rc = acknowledge(conn, number);
        }
    }
    pthread_mutex_unlock(&conn->lock);
    if (rc)
        rblk_conn_fail(conn, rc, "%s: cannot acknowledge an event: %s", conn->address,
                       strerror(-rc));
}

static void connection_lost(struct rblk_conn *conn, enum ibv_wc_status status)
{
    if (status == IBV_WC_WR_FLUSH_ERR)
        rblk_conn_fail(conn, -EIO, "%s closed the connection; does rblkd still run?",
                       conn->address);
    else
        rblk_conn_fail(conn, -EIO, "%s: the control connection failed: %s", conn->address,
                       ibv_wc_status_str(status));
}

void rblk_calls_progress(struct rblk_conn *conn)
{
    struct ibv_wc wc;
    int n;

    if (rblk_cq_event_take(conn->channel, conn->cq))
        conn->armed = false;
    /* Asked for before polling, so that nothing falls between the two. */
    if (!conn->armed && ibv_req_notify_cq(conn->cq, 0) == 0)
        conn->armed = true;
    while ((n = ibv_poll_cq(conn->cq, 1, &wc)) == 1) {
        if (wc.status != IBV_WC_SUCCESS)
            connection_lost(conn, wc.status);
        else if ((wc.wr_id & WR_KIND) == WR_RECEIVE)
            receive_done(conn, (unsigned int)(wc.wr_id & WR_INDEX), wc.byte_len);
        else
            send_done(conn, wc.wr_id);
    }
    if (n < 0)
        rblk_conn_fail(conn, -EIO, "%s: the completion queue of the control connection failed",
                       conn->address);
}

void rblk_calls_nudge(struct rblk_conn *conn)
{
    int rc;

    pthread_mutex_lock(&conn->lock);
    rc = rblk_qp_nudge(conn->endpoint.id->qp, WR_NUDGE);
    pthread_mutex_unlock(&conn->lock);
    if (rc)
        rblk_conn_fail(conn, -EIO, "%s: cannot post on the control connection: %s", conn->address,
                       strerror(-rc));
}
