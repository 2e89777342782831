/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_softrdma_protection.c -- errors of the software RDMA device are those of hardware
 *
 * For every way to name memory that may not be touched, and for READ, WRITE, SEND and receive: the
 * status of the work request to blame, flush errors for all others in order, both queue pairs in error,
 * and the asynchronous event at each end.
 *
 * What an iWARP requester learns (RFC 5040, sections 5.5 and 7): a READ that the peer refuses
 * completes with IBV_WC_REM_ACCESS_ERR, as the Terminate quotes its header. A WRITE or a SEND is
 * complete once the stream has taken it, so it succeeds even when the peer refuses it afterwards; then
 * everything behind it is flushed and the queue pair fails with an asynchronous event. There is no
 * RNR retry: a SEND without a receive ends the stream.
 */
#include "suite.h"
#include "test_softrdma_pair.h"

#include <signal.h>

#define REGION (64u << 10) /* bytes of the region that is misused */

enum misuse {
    WRONG_KEY,
    WRONG_INDEX,
    PAST_THE_END,
    BEFORE_THE_BEGIN,
    WRAPS_AROUND,
    NO_RIGHT,
    OTHER_DOMAIN,
    DEREGISTERED,
    MISUSES
};

/* A region of an end's memory, named in a way that must be refused. */
struct region {
    struct ibv_pd *pd; /* OTHER_DOMAIN */
    struct ibv_mr *mr;
    uint64_t address;
    uint32_t length, key;
};

static struct pair pair;

static void setup(void)
{
    pair_open(&pair, NULL);
}

static void teardown(void)
{
    pair_close(&pair);
}

/* right: the access that the region has except with NO_RIGHT. */
static void region_open(struct region *region, struct end *end, enum misuse misuse, int right)
{
    struct ibv_pd *pd = end->pd;

    memset(region, 0, sizeof(*region));
    if (misuse == OTHER_DOMAIN) {
        region->pd = pd = ibv_alloc_pd(end->id->verbs);
        ck_assert_ptr_nonnull(pd);
    }
    if (misuse == NO_RIGHT)
        right = right == IBV_ACCESS_REMOTE_READ
                    ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE
                    : (right & IBV_ACCESS_REMOTE_WRITE ? IBV_ACCESS_LOCAL_WRITE : 0) |
                          IBV_ACCESS_REMOTE_READ;
    region->mr = ibv_reg_mr(pd, end->memory + REGION, REGION, right);
    ck_assert_ptr_nonnull(region->mr);
    region->address = at(end, REGION);
    region->length = 4096;
    region->key = region->mr->rkey;
    switch (misuse) {
    case WRONG_KEY:
        region->key ^= 1;
        break;
    case WRONG_INDEX:
        region->key ^= 0x100;
        break;
    case PAST_THE_END:
        region->address += REGION - 4095;
        break;
    case BEFORE_THE_BEGIN:
        region->address -= 1;
        break;
    case WRAPS_AROUND:
        region->address = UINT64_MAX - 100;
        break;
    case DEREGISTERED:
        ck_assert_int_eq(ibv_dereg_mr(region->mr), 0);
        region->mr = NULL;
        break;
    default:
        break;
    }
}

static void region_close(struct region *region)
{
    if (region->mr != NULL)
        ck_assert_int_eq(ibv_dereg_mr(region->mr), 0);
    if (region->pd != NULL)
        ck_assert_int_eq(ibv_dealloc_pd(region->pd), 0);
}

/* What the test has filled with 0xaa at the end that is the target of a misuse. */
static void expect_untouched(void)
{
    for (size_t i = 0; i < 3 * REGION; i++)
        ck_assert_uint_eq(pair.b.memory[i], 0xaa);
}

/* The next asynchronous event of the device, bounded. */
static struct ibv_async_event next_async(int timeout_ms)
{
    struct ibv_context *context = pair.a.id->verbs;
    struct pollfd wait = {.fd = context->async_fd, .events = POLLIN};
    struct ibv_async_event event = {.event_type = IBV_EVENT_DEVICE_FATAL};

    if (poll(&wait, 1, timeout_ms) != 1)
        return event;
    ck_assert_int_eq(ibv_get_async_event(context, &event), 0);
    ibv_ack_async_event(&event);
    return event;
}

static enum ibv_qp_state state_of(const struct end *end)
{
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;

    ck_assert_int_eq(ibv_query_qp(end->id->qp, &attr, IBV_QP_STATE, &init), 0);
    return attr.qp_state;
}

/* Both ends are disconnected and in error; first and then second told so, and nothing else is told. */
static void expect_failed(const struct end *first, enum ibv_event_type first_type,
                          const struct end *second, enum ibv_event_type second_type)
{
    struct ibv_async_event event;

    expect_event(pair.channel, RDMA_CM_EVENT_DISCONNECTED);
    expect_event(pair.channel, RDMA_CM_EVENT_DISCONNECTED);
    ck_assert_int_eq(state_of(&pair.a), IBV_QPS_ERR);
    ck_assert_int_eq(state_of(&pair.b), IBV_QPS_ERR);
    event = next_async(PAIR_WAIT_MS);
    ck_assert_msg(event.event_type == first_type && event.element.qp == first->id->qp,
                  "first event: %s", ibv_event_type_str(event.event_type));
    event = next_async(PAIR_WAIT_MS);
    ck_assert_msg(event.event_type == second_type && event.element.qp == second->id->qp,
                  "second event: %s", ibv_event_type_str(event.event_type));
    event = next_async(0);
    ck_assert_msg(event.event_type == IBV_EVENT_DEVICE_FATAL, "one event too many: %s",
                  ibv_event_type_str(event.event_type));
}

static void expect_flushed(struct end *end, uint64_t from, uint64_t to)
{
    struct ibv_wc wc;

    for (uint64_t id = from; id <= to; id++)
        expect_wc(end, id, IBV_WC_WR_FLUSH_ERR);
    ck_assert_int_eq(ibv_poll_cq(end->cq, 1, &wc), 0);
}

static void post_receives(struct end *end, uint64_t from, uint64_t to)
{
    for (uint64_t id = from; id <= to; id++)
        ck_assert_int_eq(post_recv(end, id, 0, 4096), 0);
}

/* A send work request and its scatter list. */
struct request {
    struct ibv_send_wr wr;
    struct ibv_sge sge;
};

static void request(struct request *r, uint64_t id, enum ibv_wr_opcode opcode, uint32_t length)
{
    *r = (struct request){.wr = {.wr_id = id, .opcode = opcode, .num_sge = 1},
                          .sge = {at(&pair.a, 0), length, pair.a.mr->lkey}};
    r->wr.wr.rdma.remote_addr = at(&pair.b, 0);
    r->wr.wr.rdma.rkey = pair.b.mr->rkey;
}

/* Post all at once, from a: they go out in one piece. */
static void post_all(struct request *r, size_t count)
{
    struct ibv_send_wr *bad;

    for (size_t i = 0; i < count; i++) {
        r[i].wr.sg_list = &r[i].sge;
        r[i].wr.next = i + 1 < count ? &r[i + 1].wr : NULL;
    }
    ck_assert_int_eq(ibv_post_send(pair.a.id->qp, &r[0].wr, &bad), 0);
}

START_TEST(read_refused)
{
    struct region region;
    struct request r[5];

    region_open(&region, &pair.b, (enum misuse)_i, IBV_ACCESS_REMOTE_READ);
    memset(pair.a.memory, 0x55, 4096);
    post_receives(&pair.a, 10, 12);
    post_receives(&pair.b, 20, 23);
    for (uint64_t i = 0; i < 5; i++)
        request(&r[i], 1 + i, i == 4 ? IBV_WR_SEND : IBV_WR_RDMA_READ, 4096);
    r[0].wr.send_flags = IBV_SEND_SIGNALED;
    r[0].sge.addr = at(&pair.a, 2 * REGION);
    r[1].sge.length = region.length;
    r[1].wr.wr.rdma.remote_addr = region.address;
    r[1].wr.wr.rdma.rkey = region.key;
    post_all(r, 5);
    expect_wc(&pair.a, 1, IBV_WC_SUCCESS);
    expect_wc(&pair.a, 2, IBV_WC_REM_ACCESS_ERR);
    expect_wc(&pair.a, 3, IBV_WC_WR_FLUSH_ERR);
    expect_wc(&pair.a, 4, IBV_WC_WR_FLUSH_ERR);
    expect_wc(&pair.a, 5, IBV_WC_WR_FLUSH_ERR);
    expect_flushed(&pair.a, 10, 12);
    expect_flushed(&pair.b, 20, 23);
    expect_failed(&pair.b, IBV_EVENT_QP_ACCESS_ERR, &pair.a, IBV_EVENT_QP_FATAL);
    for (size_t i = 0; i < 4096; i++)
        ck_assert_uint_eq(pair.a.memory[i], 0x55);
    region_close(&region);
}
END_TEST

START_TEST(write_refused)
{
    struct region region;
    struct request r[4];

    region_open(&region, &pair.b, (enum misuse)_i,
                IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    memset(pair.a.memory, 0x55, 4096);
    memset(pair.b.memory, 0xaa, 3 * REGION);
    post_receives(&pair.a, 10, 12);
    post_receives(&pair.b, 20, 23);
    request(&r[0], 1, IBV_WR_RDMA_WRITE, 4096);
    request(&r[1], 2, IBV_WR_RDMA_READ, 4096);
    request(&r[2], 3, IBV_WR_RDMA_WRITE, 4096);
    request(&r[3], 4, IBV_WR_SEND, 4096);
    r[0].wr.send_flags = IBV_SEND_SIGNALED;
    r[0].wr.wr.rdma.remote_addr = region.address;
    r[0].wr.wr.rdma.rkey = region.key;
    post_all(r, 4);
    expect_wc(&pair.a, 1, IBV_WC_SUCCESS); /* see the head of this file */
    expect_wc(&pair.a, 2, IBV_WC_WR_FLUSH_ERR);
    expect_wc(&pair.a, 3, IBV_WC_WR_FLUSH_ERR);
    expect_wc(&pair.a, 4, IBV_WC_WR_FLUSH_ERR);
    expect_flushed(&pair.a, 10, 12);
    expect_flushed(&pair.b, 20, 23);
    expect_failed(&pair.b, IBV_EVENT_QP_ACCESS_ERR, &pair.a, IBV_EVENT_QP_FATAL);
    expect_untouched();
    region_close(&region);
}
END_TEST

/* A write that is still being sent when the peer refuses it may be told so, or has just ended. */
START_TEST(long_write_refused)
{
    struct request r[2];
    struct ibv_wc wc;

    request(&r[0], 1, IBV_WR_RDMA_WRITE, 4u << 20);
    request(&r[1], 2, IBV_WR_RDMA_READ, 4096);
    r[0].wr.send_flags = IBV_SEND_SIGNALED;
    r[0].wr.wr.rdma.rkey ^= 1;
    post_all(r, 2);
    wc = wait_wc(&pair.a);
    ck_assert_uint_eq(wc.wr_id, 1);
    ck_assert(wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_REM_ACCESS_ERR);
    expect_flushed(&pair.a, 2, 2);
    expect_failed(&pair.b, IBV_EVENT_QP_ACCESS_ERR, &pair.a, IBV_EVENT_QP_FATAL);
}
END_TEST

START_TEST(send_without_receive)
{
    struct request r[3];

    post_receives(&pair.a, 10, 11);
    request(&r[0], 1, IBV_WR_SEND, 64);
    request(&r[1], 2, IBV_WR_RDMA_READ, 4096);
    request(&r[2], 3, IBV_WR_SEND, 64);
    r[0].wr.send_flags = IBV_SEND_SIGNALED;
    post_all(r, 3);
    expect_wc(&pair.a, 1, IBV_WC_SUCCESS);
    expect_wc(&pair.a, 2, IBV_WC_WR_FLUSH_ERR);
    expect_wc(&pair.a, 3, IBV_WC_WR_FLUSH_ERR);
    expect_flushed(&pair.a, 10, 11);
    expect_failed(&pair.b, IBV_EVENT_QP_FATAL, &pair.a, IBV_EVENT_QP_FATAL);
}
END_TEST

START_TEST(send_too_long)
{
    struct request r[2];

    post_receives(&pair.b, 20, 22); /* of 4096 bytes */
    request(&r[0], 1, IBV_WR_SEND, 4097);
    request(&r[1], 2, IBV_WR_RDMA_READ, 4096);
    r[0].wr.send_flags = IBV_SEND_SIGNALED;
    post_all(r, 2);
    expect_wc(&pair.a, 1, IBV_WC_SUCCESS);
    expect_flushed(&pair.a, 2, 2);
    expect_wc(&pair.b, 20, IBV_WC_LOC_LEN_ERR);
    expect_flushed(&pair.b, 21, 22);
    expect_failed(&pair.b, IBV_EVENT_QP_FATAL, &pair.a, IBV_EVENT_QP_FATAL);
}
END_TEST

/* Another message too long by its second FPDU only: the receive is open already. */
START_TEST(long_send_too_long)
{
    struct request r[1];

    ck_assert_int_eq(post_recv(&pair.b, 20, 0, 100000), 0);
    post_receives(&pair.b, 21, 22);
    request(&r[0], 1, IBV_WR_SEND, 100001);
    post_all(r, 1);
    expect_wc(&pair.b, 20, IBV_WC_LOC_LEN_ERR);
    expect_flushed(&pair.b, 21, 22);
    expect_failed(&pair.b, IBV_EVENT_QP_FATAL, &pair.a, IBV_EVENT_QP_FATAL);
}
END_TEST

/* Local memory that may not be used: nothing of the request reaches the peer but a Terminate. */
static void local_refused(enum ibv_wr_opcode opcode, enum misuse misuse)
{
    struct region region;
    struct request r[4];

    if (misuse == NO_RIGHT && opcode != IBV_WR_RDMA_READ)
        return; /* every region may be sent from */
    region_open(&region, &pair.a, misuse, IBV_ACCESS_LOCAL_WRITE);
    memset(pair.b.memory, 0xaa, 4096);
    post_receives(&pair.a, 10, 12);
    post_receives(&pair.b, 20, 23);
    request(&r[0], 1, IBV_WR_RDMA_WRITE, 64);
    r[0].wr.send_flags = IBV_SEND_SIGNALED;
    r[0].wr.wr.rdma.remote_addr = at(&pair.b, REGION);
    request(&r[1], 2, opcode, region.length);
    r[1].sge.addr = region.address;
    r[1].sge.lkey = region.key;
    request(&r[2], 3, IBV_WR_SEND, 64);
    request(&r[3], 4, IBV_WR_RDMA_READ, 64);
    post_all(r, 4);
    expect_wc(&pair.a, 1, IBV_WC_SUCCESS);
    expect_wc(&pair.a, 2, IBV_WC_LOC_PROT_ERR);
    expect_wc(&pair.a, 3, IBV_WC_WR_FLUSH_ERR);
    expect_wc(&pair.a, 4, IBV_WC_WR_FLUSH_ERR);
    expect_flushed(&pair.a, 10, 12);
    expect_flushed(&pair.b, 20, 23);
    expect_failed(&pair.a, IBV_EVENT_QP_FATAL, &pair.b, IBV_EVENT_QP_FATAL);
    for (size_t i = 0; i < 4096; i++)
        ck_assert_uint_eq(pair.b.memory[i], 0xaa);
    region_close(&region);
}

START_TEST(local_read_sink)
{
    local_refused(IBV_WR_RDMA_READ, (enum misuse)_i);
}
END_TEST

START_TEST(local_write_source)
{
    local_refused(IBV_WR_RDMA_WRITE, (enum misuse)_i);
}
END_TEST

START_TEST(local_send_source)
{
    local_refused(IBV_WR_SEND, (enum misuse)_i);
}
END_TEST

START_TEST(receive_buffer)
{
    struct region region;
    struct ibv_sge sge;
    struct ibv_recv_wr wr = {.wr_id = 20, .sg_list = &sge, .num_sge = 1}, *bad;
    struct request r[2];

    region_open(&region, &pair.b, (enum misuse)_i, IBV_ACCESS_LOCAL_WRITE);
    memset(pair.b.memory, 0xaa, 3 * REGION);
    sge = (struct ibv_sge){region.address, region.length, region.key};
    ck_assert_int_eq(ibv_post_recv(pair.b.id->qp, &wr, &bad), 0);
    post_receives(&pair.b, 21, 22);
    post_receives(&pair.a, 10, 11);
    request(&r[0], 1, IBV_WR_SEND, region.length);
    request(&r[1], 2, IBV_WR_RDMA_READ, 4096);
    r[0].wr.send_flags = IBV_SEND_SIGNALED;
    post_all(r, 2);
    expect_wc(&pair.b, 20, IBV_WC_LOC_PROT_ERR);
    expect_flushed(&pair.b, 21, 22);
    expect_wc(&pair.a, 1, IBV_WC_SUCCESS);
    expect_wc(&pair.a, 2, IBV_WC_WR_FLUSH_ERR);
    expect_flushed(&pair.a, 10, 11);
    expect_failed(&pair.b, IBV_EVENT_QP_ACCESS_ERR, &pair.a, IBV_EVENT_QP_FATAL);
    expect_untouched();
    region_close(&region);
}
END_TEST

/* What is posted to a queue pair in error is flushed, and not before what was posted earlier. */
START_TEST(posted_in_error)
{
    struct request r[3];

    request(&r[0], 1, IBV_WR_SEND, 64);
    post_all(r, 1); /* there is no receive */
    expect_failed(&pair.b, IBV_EVENT_QP_FATAL, &pair.a, IBV_EVENT_QP_FATAL);
    request(&r[0], 2, IBV_WR_RDMA_READ, 64);
    request(&r[1], 3, IBV_WR_RDMA_WRITE, 64);
    request(&r[2], 4, IBV_WR_SEND, 64);
    post_all(r, 3);
    post_receives(&pair.a, 5, 6);
    expect_flushed(&pair.a, 2, 6);
    post_receives(&pair.b, 7, 8);
    expect_flushed(&pair.b, 7, 8);
}
END_TEST

/* ---------------------------------------------------------------- a peer that is killed */

/* The peer: connects to the port that comes down the pipe, says so, and waits to be killed. */
static int peer_main(int in, int out)
{
    struct ibv_qp_init_attr init = {
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1}};
    struct rdma_conn_param param = {.responder_resources = 16, .initiator_depth = 16};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    static uint8_t memory[4096];
    struct rdma_cm_id *id;
    struct ibv_mr *mr;
    uint64_t where[2];

    if (read(in, &address.sin_port, sizeof(address.sin_port)) != sizeof(address.sin_port) ||
        rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) < 0 ||
        rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 1000) < 0 ||
        rdma_resolve_route(id, 1000) < 0 || rdma_create_qp(id, NULL, &init) < 0)
        return 1;
    mr = ibv_reg_mr(id->pd, memory, sizeof(memory),
                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
    if (mr == NULL || rdma_connect(id, &param) < 0)
        return 1;
    where[0] = (uintptr_t)memory;
    where[1] = mr->rkey;
    if (write(out, where, sizeof(where)) != sizeof(where))
        return 1;
    for (;;)
        pause();
}

START_TEST(peer_killed)
{
    struct pair_options options = {.size = 1u << 20, .sq_depth = 64, .rq_depth = 64, .cqe = 128};
    struct rdma_conn_param param = {.responder_resources = 16, .initiator_depth = 16};
    struct rdma_cm_event *event;
    struct ibv_async_event async;
    int down[2], up[2], status;
    uint64_t where[2];
    uint16_t port;
    pid_t peer;

    ck_assert_int_eq(pipe(down), 0);
    ck_assert_int_eq(pipe(up), 0);
    peer = fork(); /* before this process uses the device */
    ck_assert_int_ge(peer, 0);
    if (peer == 0)
        _exit(peer_main(down[0], up[1]));
    pair.channel = rdma_create_event_channel();
    ck_assert_ptr_nonnull(pair.channel);
    pair.listener = listen_any(pair.channel);
    port = rdma_get_src_port(pair.listener);
    ck_assert_int_eq(write(down[1], &port, sizeof(port)), sizeof(port));
    event = next_event(pair.channel);
    ck_assert_int_eq(event->event, RDMA_CM_EVENT_CONNECT_REQUEST);
    end_open(&pair.a, event->id, &options, IBV_ACCESS_LOCAL_WRITE);
    ck_assert_int_eq(rdma_accept(event->id, &param), 0);
    rdma_ack_cm_event(event);
    expect_event(pair.channel, RDMA_CM_EVENT_ESTABLISHED);
    ck_assert_int_eq(read(up[0], where, sizeof(where)), sizeof(where));

    post_receives(&pair.a, 10, 12);
    ck_assert_int_eq(post(&pair.a, 1, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, 0, 4096, where[0],
                          (uint32_t)where[1]),
                     0);
    expect_wc(&pair.a, 1, IBV_WC_SUCCESS);
    ck_assert_int_eq(kill(peer, SIGSTOP), 0);
    ck_assert_int_eq(waitpid(peer, &status, WUNTRACED), peer);
    for (uint64_t id = 2; id <= 4; id++)
        ck_assert_int_eq(post(&pair.a, id, id == 3 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, 0, 0,
                              4096, where[0], (uint32_t)where[1]),
                         0);
    ck_assert_int_eq(kill(peer, SIGKILL), 0);
    ck_assert_int_eq(waitpid(peer, &status, 0), peer);
    ck_assert(WIFSIGNALED(status));
    expect_wc(&pair.a, 2, IBV_WC_WR_FLUSH_ERR);
    expect_wc(&pair.a, 3, IBV_WC_WR_FLUSH_ERR);
    expect_wc(&pair.a, 4, IBV_WC_WR_FLUSH_ERR);
    expect_flushed(&pair.a, 10, 12);
    expect_event(pair.channel, RDMA_CM_EVENT_DISCONNECTED);
    ck_assert_int_eq(state_of(&pair.a), IBV_QPS_ERR);
    /* As with siw, the connection's event is all: the queue pair itself has had no error. */
    async = next_async(0);
    ck_assert_int_eq(async.event_type, IBV_EVENT_DEVICE_FATAL);
    pair_close(&pair);
    for (int i = 0; i < 2; i++) {
        close(up[i]);
        close(down[i]);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("softrdma_protection");
    TCase *connected = tcase_create("protection");
    TCase *alone = tcase_create("killed");

    tcase_set_timeout(connected, 60);
    tcase_add_checked_fixture(connected, setup, teardown);
    tcase_add_loop_test(connected, read_refused, 0, MISUSES);
    tcase_add_loop_test(connected, write_refused, 0, MISUSES);
    tcase_add_test(connected, long_write_refused);
    tcase_add_test(connected, send_without_receive);
    tcase_add_test(connected, send_too_long);
    tcase_add_test(connected, long_send_too_long);
    tcase_add_loop_test(connected, local_read_sink, 0, MISUSES);
    tcase_add_loop_test(connected, local_write_source, 0, MISUSES);
    tcase_add_loop_test(connected, local_send_source, 0, MISUSES);
    tcase_add_loop_test(connected, receive_buffer, 0, MISUSES);
    tcase_add_test(connected, posted_in_error);
    suite_add_tcase(suite, connected);
    tcase_set_timeout(alone, 60);
    tcase_add_test(alone, peer_killed);
    suite_add_tcase(suite, alone);
    return suite_run(suite);
}
