/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * peer -- one end of a raw RDMA connection, for helpers that play a client or a target by hand
 *
 * Single-threaded. Every wait has a deadline. The last completion of a connection that closed shows
 * as flushed receives, so nobody needs to look at connection events for that.
 */
#ifndef RBLK_TESTS_PEER_H
#define RBLK_TESTS_PEER_H

#include <netdb.h>
#include <rdma/rdma_cma.h>
#include <sys/socket.h>

#include "common/clock.h"
#include "common/verbs.h"
#include "common/wire.h"
#include "helper.h"

#define PEER_RECEIVES 24                  /* posted; more than any protocol limit that is tested */
#define PEER_RECEIVE_LEN RBLK_CONTROL_MAX /* bytes of each */
#define PEER_SENDS 64                     /* work requests outstanding */
#define PEER_OUT_LEN (256u << 10)         /* bytes of the send area */
#define PEER_PATIENCE_MS 10000

struct peer {
    struct rdma_event_channel *channel; /* NULL at the passive end: the listener's is used */
    struct rdma_cm_id *id;
    struct ibv_cq *send_cq, *recv_cq;
    struct ibv_mr *mr;
    unsigned char *memory; /* receives, then the send area */
    unsigned char *out;    /* the send area */
    unsigned int sends;    /* posted, completion not yet seen */
    bool closed;
    /* What the passive end answered. */
    bool rejected;
    int status; /* of the event that ended the attempt */
    unsigned char answer[256];
    size_t answer_len;
};

static inline int peer_post_receive(struct peer *p, unsigned int slot)
{
    struct ibv_sge sge = {(uintptr_t)p->memory + slot * PEER_RECEIVE_LEN, PEER_RECEIVE_LEN,
                          p->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = &sge, .num_sge = 1}, *bad;

    return ibv_post_recv(p->id->qp, &wr, &bad);
}

/* Makes queue pair, memory and receives on an id that has a device. */
static inline int peer_prepare(struct peer *p)
{
    size_t length = PEER_RECEIVES * PEER_RECEIVE_LEN + PEER_OUT_LEN;
    struct ibv_qp_init_attr attr = {
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = PEER_SENDS,
                .max_recv_wr = PEER_RECEIVES,
                .max_send_sge = 1,
                .max_recv_sge = 1},
    };

    p->send_cq = ibv_create_cq(p->id->verbs, PEER_SENDS + 1, NULL, NULL, 0);
    p->recv_cq = ibv_create_cq(p->id->verbs, PEER_RECEIVES + 1, NULL, NULL, 0);
    if (p->send_cq == NULL || p->recv_cq == NULL)
        return -errno;
    attr.send_cq = p->send_cq;
    attr.recv_cq = p->recv_cq;
    if (rdma_create_qp(p->id, NULL, &attr) != 0)
        return -errno;
    if (posix_memalign((void **)&p->memory, 4096, length) != 0)
        return -ENOMEM;
    memset(p->memory, 0, length);
    p->out = p->memory + PEER_RECEIVES * PEER_RECEIVE_LEN;
    p->mr = ibv_reg_mr(p->id->pd, p->memory, length,
                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    if (p->mr == NULL)
        return -errno;
    for (unsigned int i = 0; i < PEER_RECEIVES; i++)
        if (peer_post_receive(p, i) != 0)
            return -EIO;
    return 0;
}

static inline void peer_close(struct peer *p)
{
    if (p->id != NULL) {
        if (p->id->qp != NULL) {
            rdma_disconnect(p->id);
            rdma_destroy_qp(p->id);
        }
        if (p->mr != NULL)
            ibv_dereg_mr(p->mr);
        if (p->send_cq != NULL)
            ibv_destroy_cq(p->send_cq);
        if (p->recv_cq != NULL)
            ibv_destroy_cq(p->recv_cq);
        rdma_destroy_id(p->id);
    }
    if (p->channel != NULL)
        rdma_destroy_event_channel(p->channel);
    free(p->memory);
    memset(p, 0, sizeof(*p));
}

/* -- the active end ---------------------------------------------------------------------------- */

/* Takes the next event, keeps what it says, and returns its kind; ends the program without one. */
static inline enum rdma_cm_event_type peer_event(struct peer *p, const char *what)
{
    struct rdma_cm_event *event;
    enum rdma_cm_event_type kind;
    int error = rblk_cm_wait(p->channel, rblk_deadline_ms(PEER_PATIENCE_MS), &event);

    if (error != 0)
        helper_fail("%s: no answer: %s", what, strerror(-error));
    kind = event->event;
    p->status = event->status;
    p->answer_len = event->param.conn.private_data_len;
    if (kind != RDMA_CM_EVENT_ESTABLISHED && kind != RDMA_CM_EVENT_REJECTED)
        p->answer_len = 0;
    if (p->answer_len > 0)
        memcpy(p->answer, event->param.conn.private_data, p->answer_len);
    rdma_ack_cm_event(event);
    return kind;
}

/*
 * Connects with the private data given. True: accepted. False: rejected (p->rejected) or refused by
 * the transport; p->answer has the private data of the answer.
 */
static inline bool peer_connect(struct peer *p, const struct sockaddr *address, const void *data,
                                size_t length)
{
    struct rdma_conn_param param;
    enum rdma_cm_event_type kind;
    int error;

    memset(p, 0, sizeof(*p));
    p->channel = rdma_create_event_channel();
    if (p->channel == NULL || rblk_fd_nonblock(p->channel->fd) != 0 ||
        rdma_create_id(p->channel, &p->id, NULL, RDMA_PS_TCP) != 0)
        helper_fail("no connection id: %s", strerror(errno));
    if (rdma_resolve_addr(p->id, NULL, (struct sockaddr *)(uintptr_t)address, 2000) != 0 ||
        peer_event(p, "resolve address") != RDMA_CM_EVENT_ADDR_RESOLVED ||
        rdma_resolve_route(p->id, 2000) != 0 ||
        peer_event(p, "resolve route") != RDMA_CM_EVENT_ROUTE_RESOLVED)
        helper_fail("the address cannot be resolved");
    error = peer_prepare(p);
    if (error != 0)
        helper_fail("no queue pair: %s", strerror(-error));
    rblk_conn_param(&param, 16, 16, data, (uint8_t)length);
    if (rdma_connect(p->id, &param) != 0)
        helper_fail("rdma_connect: %s", strerror(errno));
    kind = peer_event(p, "connect");
    p->rejected = kind == RDMA_CM_EVENT_REJECTED;
    return kind == RDMA_CM_EVENT_ESTABLISHED;
}

/* -- sending and receiving ----------------------------------------------------------------------- */

/* Takes finished sends. False: one has failed. */
static inline bool peer_reap_sends(struct peer *p, enum ibv_wc_status *status)
{
    struct ibv_wc wc;

    while (ibv_poll_cq(p->send_cq, 1, &wc) > 0) {
        p->sends--;
        if (wc.status != IBV_WC_SUCCESS) {
            p->closed = true;
            if (status != NULL)
                *status = wc.status;
            return false;
        }
    }
    return true;
}

/* Posts one work request and does not wait. offset: of its memory in the send area. */
static inline bool peer_post(struct peer *p, enum ibv_wr_opcode opcode, size_t offset,
                             size_t length, uint64_t remote_addr, uint32_t rkey)
{
    struct ibv_sge sge = {(uintptr_t)p->out + offset, (uint32_t)length, p->mr->lkey};
    struct ibv_send_wr wr, *bad;

    memset(&wr, 0, sizeof(wr));
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.sg_list = &sge;
    wr.num_sge = length > 0 ? 1 : 0;
    wr.wr.rdma.remote_addr = remote_addr;
    wr.wr.rdma.rkey = rkey;
    if (ibv_post_send(p->id->qp, &wr, &bad) != 0)
        return false;
    p->sends++;
    return true;
}

/* The other end has closed the connection: receives are flushed. Drops what had been received. */
static inline bool peer_was_flushed(struct peer *p)
{
    struct ibv_wc wc;

    while (!p->closed && ibv_poll_cq(p->recv_cq, 1, &wc) > 0)
        p->closed = wc.status != IBV_WC_SUCCESS;
    return p->closed;
}

/*
 * Posts one work request, waits for all that are outstanding, and tells how they ended. siw (Linux
 * 6.1) may never end one that is posted while the other end closes.
 */
static inline enum ibv_wc_status peer_run(struct peer *p, enum ibv_wr_opcode opcode, size_t offset,
                                          size_t length, uint64_t remote_addr, uint32_t rkey)
{
    enum ibv_wc_status status = IBV_WC_SUCCESS;
    uint64_t deadline = rblk_deadline_ms(PEER_PATIENCE_MS);

    if (!peer_post(p, opcode, offset, length, remote_addr, rkey))
        return IBV_WC_GENERAL_ERR;
    while (p->sends > 0) {
        if (!peer_reap_sends(p, &status))
            return status;
        if (rblk_now_ns() > deadline) {
            if (peer_was_flushed(p))
                return IBV_WC_WR_FLUSH_ERR;
            helper_fail("a work request does not end");
        }
        if (p->sends > 0)
            helper_sleep_ms(1);
    }
    return status;
}

/* Sends the first bytes of the send area. */
static inline bool peer_send(struct peer *p, size_t length)
{
    return peer_run(p, IBV_WR_SEND, 0, length, 0, 0) == IBV_WC_SUCCESS;
}

/*
 * The next message, copied to buffer[PEER_RECEIVE_LEN]: its length; -ETIMEDOUT; -ECONNRESET when
 * the connection has closed. timeout_ms 0: does not wait.
 */
static inline int peer_receive(struct peer *p, void *buffer, uint64_t timeout_ms)
{
    uint64_t deadline = rblk_deadline_ms(timeout_ms);
    struct ibv_wc wc;

    for (;;) {
        if (ibv_poll_cq(p->recv_cq, 1, &wc) > 0) {
            if (wc.status != IBV_WC_SUCCESS) {
                p->closed = true;
                return -ECONNRESET;
            }
            memcpy(buffer, p->memory + wc.wr_id * PEER_RECEIVE_LEN, wc.byte_len);
            peer_post_receive(p, (unsigned int)wc.wr_id);
            return (int)wc.byte_len;
        }
        if (timeout_ms == 0 || rblk_now_ns() > deadline)
            return -ETIMEDOUT;
        helper_sleep_ms(1);
    }
}

/* True when the other end closes the connection in time, whatever it says before. */
static inline bool peer_is_closed(struct peer *p, uint64_t timeout_ms)
{
    unsigned char buffer[PEER_RECEIVE_LEN];
    uint64_t deadline = rblk_deadline_ms(timeout_ms);

    while (rblk_now_ns() < deadline) {
        if (peer_receive(p, buffer, 50) == -ECONNRESET)
            return true;
    }
    return false;
}

/* Address of a numeric host and port; ends the program when it is none. */
static inline struct sockaddr_storage peer_address(const char *host, const char *port)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST}, *list;
    struct sockaddr_storage address;

    if (getaddrinfo(host, port, &hints, &list) != 0)
        helper_end(HELPER_USAGE, "%s:%s is not an address", host, port);
    memset(&address, 0, sizeof(address));
    memcpy(&address, list->ai_addr, list->ai_addrlen);
    freeaddrinfo(list);
    return address;
}

#endif
