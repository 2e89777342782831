/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_softrdma_pair.h -- a connected pair of queue pairs in one process, for tests of the device
 *
 * Everything goes through the public rdma-core API. Every wait has a bound.
 */
#ifndef TEST_SOFTRDMA_PAIR_H
#define TEST_SOFTRDMA_PAIR_H

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#define PAIR_WAIT_MS 8000
#define PAIR_DEPTH 2048

struct end {
    struct rdma_cm_id *id;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_comp_channel *comp;
    struct ibv_mr *mr;
    uint8_t *memory;
    size_t size;
};

struct pair {
    struct rdma_event_channel *channel;
    struct rdma_cm_id *listener;
    struct end a, b; /* a connects, b accepts */
};

struct pair_options {
    size_t size; /* bytes of memory per end */
    int access_a, access_b;
    int depth; /* outstanding reads; -1 = 0 */
    int sq_depth, rq_depth;
    int sq_sig_all;
    int cqe;
};

static inline uint64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u;
}

/* The next event of a channel, which must be of the type; the caller acks. */
static inline struct rdma_cm_event *next_event(struct rdma_event_channel *channel)
{
    struct pollfd wait = {.fd = channel->fd, .events = POLLIN};
    struct rdma_cm_event *event = NULL;

    ck_assert_msg(poll(&wait, 1, 12000) == 1, "no connection event came");
    ck_assert_int_eq(rdma_get_cm_event(channel, &event), 0);
    return event;
}

static inline void expect_event(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
    struct rdma_cm_event *event = next_event(channel);

    ck_assert_msg(event->event == type, "wanted %s, got %s (status %d)", rdma_event_str(type),
                  rdma_event_str(event->event), event->status);
    rdma_ack_cm_event(event);
}

static inline struct rdma_cm_id *listen_any(struct rdma_event_channel *channel)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct rdma_cm_id *id;

    ck_assert_int_eq(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
    ck_assert_int_eq(rdma_bind_addr(id, (struct sockaddr *)&address), 0);
    ck_assert_int_eq(rdma_listen(id, 128), 0);
    ck_assert_int_ne(rdma_get_src_port(id), 0);
    return id;
}

static inline struct rdma_cm_id *resolve(struct rdma_event_channel *channel, uint16_t port_be)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = port_be, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct rdma_cm_id *id;

    ck_assert_int_eq(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
    ck_assert_int_eq(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 1000), 0);
    expect_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    ck_assert_int_eq(rdma_resolve_route(id, 1000), 0);
    expect_event(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
    return id;
}

static inline void end_open(struct end *end, struct rdma_cm_id *id,
                            const struct pair_options *options, int access)
{
    struct ibv_qp_init_attr init = {
        .qp_type = IBV_QPT_RC,
        .sq_sig_all = options->sq_sig_all,
        .cap = {.max_send_wr = (uint32_t)options->sq_depth,
                .max_recv_wr = (uint32_t)options->rq_depth,
                .max_send_sge = 4,
                .max_recv_sge = 4,
                .max_inline_data = 256},
    };

    end->id = id;
    end->pd = ibv_alloc_pd(id->verbs);
    ck_assert_ptr_nonnull(end->pd);
    end->comp = ibv_create_comp_channel(id->verbs);
    ck_assert_ptr_nonnull(end->comp);
    end->cq = ibv_create_cq(id->verbs, options->cqe, end, end->comp, 0);
    ck_assert_ptr_nonnull(end->cq);
    init.send_cq = init.recv_cq = end->cq;
    ck_assert_int_eq(rdma_create_qp(id, end->pd, &init), 0);
    end->size = options->size;
    end->memory = mmap(NULL, end->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(end->memory, MAP_FAILED);
    end->mr = ibv_reg_mr(end->pd, end->memory, end->size, access);
    ck_assert_ptr_nonnull(end->mr);
}

static inline void end_close(struct end *end)
{
    if (end->id != NULL && end->id->qp != NULL)
        rdma_destroy_qp(end->id);
    if (end->mr != NULL)
        ck_assert_int_eq(ibv_dereg_mr(end->mr), 0);
    if (end->cq != NULL)
        ck_assert_int_eq(ibv_destroy_cq(end->cq), 0);
    if (end->comp != NULL)
        ck_assert_int_eq(ibv_destroy_comp_channel(end->comp), 0);
    if (end->pd != NULL)
        ck_assert_int_eq(ibv_dealloc_pd(end->pd), 0);
    if (end->id != NULL)
        ck_assert_int_eq(rdma_destroy_id(end->id), 0);
    if (end->memory != NULL)
        munmap(end->memory, end->size);
    memset(end, 0, sizeof(*end));
}

static inline void pair_open(struct pair *pair, const struct pair_options *given)
{
    struct pair_options options = given != NULL ? *given : (struct pair_options){0};
    struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
    struct rdma_cm_event *event;
    struct rdma_cm_id *child;

    if (options.size == 0)
        options.size = 4u << 20;
    if (options.access_a == 0)
        options.access_a =
            IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
    if (options.access_b == 0)
        options.access_b =
            IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
    if (options.depth == 0)
        options.depth = 16;
    if (options.depth < 0)
        options.depth = 0;
    if (options.sq_depth == 0)
        options.sq_depth = PAIR_DEPTH;
    if (options.rq_depth == 0)
        options.rq_depth = 256;
    if (options.cqe == 0)
        options.cqe = options.sq_depth + options.rq_depth;
    memset(pair, 0, sizeof(*pair));
    param.responder_resources = param.initiator_depth = (uint8_t)options.depth;
    pair->channel = rdma_create_event_channel();
    ck_assert_ptr_nonnull(pair->channel);
    pair->listener = listen_any(pair->channel);
    end_open(&pair->a, resolve(pair->channel, rdma_get_src_port(pair->listener)), &options,
             options.access_a);
    ck_assert_int_eq(rdma_connect(pair->a.id, &param), 0);
    event = next_event(pair->channel);
    ck_assert_int_eq(event->event, RDMA_CM_EVENT_CONNECT_REQUEST);
    child = event->id;
    end_open(&pair->b, child, &options, options.access_b);
    ck_assert_int_eq(rdma_accept(child, &param), 0);
    rdma_ack_cm_event(event);
    expect_event(pair->channel, RDMA_CM_EVENT_ESTABLISHED);
    expect_event(pair->channel, RDMA_CM_EVENT_ESTABLISHED);
}

static inline void pair_close(struct pair *pair)
{
    end_close(&pair->a);
    end_close(&pair->b);
    rdma_destroy_id(pair->listener);
    rdma_destroy_event_channel(pair->channel);
}

/* Poll for one completion, bounded. */
static inline struct ibv_wc wait_wc(struct end *end)
{
    uint64_t limit = now_ms() + PAIR_WAIT_MS;
    struct ibv_wc wc;
    int n;

    while ((n = ibv_poll_cq(end->cq, 1, &wc)) == 0)
        ck_assert_msg(now_ms() < limit, "no completion came");
    ck_assert_int_eq(n, 1);
    return wc;
}

static inline void expect_wc(struct end *end, uint64_t wr_id, enum ibv_wc_status status)
{
    struct ibv_wc wc = wait_wc(end);

    ck_assert_msg(wc.wr_id == wr_id && wc.status == status,
                  "wanted wr %llu %s, got wr %llu %s (opcode %d)", (unsigned long long)wr_id,
                  ibv_wc_status_str(status), (unsigned long long)wc.wr_id,
                  ibv_wc_status_str(wc.status), wc.opcode);
}

static inline int post(struct end *from, uint64_t wr_id, enum ibv_wr_opcode opcode,
                       unsigned int flags, size_t local, uint32_t length, uint64_t remote,
                       uint32_t rkey)
{
    struct ibv_sge sge = {
        .addr = (uintptr_t)from->memory + local, .length = length, .lkey = from->mr->lkey};
    struct ibv_send_wr wr = {.wr_id = wr_id,
                             .opcode = opcode,
                             .send_flags = flags,
                             .sg_list = &sge,
                             .num_sge = 1},
                       *bad;

    wr.wr.rdma.remote_addr = remote;
    wr.wr.rdma.rkey = rkey;
    return ibv_post_send(from->id->qp, &wr, &bad);
}

static inline int post_recv(struct end *at, uint64_t wr_id, size_t local, uint32_t length)
{
    struct ibv_sge sge = {
        .addr = (uintptr_t)at->memory + local, .length = length, .lkey = at->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1}, *bad;

    return ibv_post_recv(at->id->qp, &wr, &bad);
}

static inline uint64_t at(const struct end *end, size_t offset)
{
    return (uintptr_t)end->memory + offset;
}

static inline void fill(uint8_t *memory, size_t length, uint32_t seed)
{
    for (size_t i = 0; i < length; i++) {
        seed = seed * 1664525u + 1013904223u;
        memory[i] = (uint8_t)(seed >> 24);
    }
}

#endif
