/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_softrdma_data.c -- data path of the software RDMA device: send, write, read, order, events
 */
#include "common/softrdma/softrdma.h"
#include "suite.h"
#include "test_softrdma_pair.h"

#include <sys/resource.h>

static const uint32_t sizes[] = {
    0,    1,     3,     4,     5,     255,   256,    257,      4095,          4096,
    4097, 16383, 16384, 65471, 65472, 65473, 131072, 1u << 20, (1u << 20) + 3};
#define SIZES ((int)(sizeof(sizes) / sizeof(sizes[0])))

static void round_of_size(struct pair *pair, uint32_t size)
{
    const size_t guard = 64;
    struct ibv_wc wc;

    /* read: a from b */
    fill(pair->b.memory, size + guard, size);
    memset(pair->a.memory, 0xee, size + guard);
    ck_assert_int_eq(post(&pair->a, 1, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, 0, size,
                          at(&pair->b, 0), pair->b.mr->rkey),
                     0);
    wc = wait_wc(&pair->a);
    ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
    ck_assert_int_eq(wc.opcode, IBV_WC_RDMA_READ);
    ck_assert_uint_eq(wc.byte_len, size);
    ck_assert_int_eq(memcmp(pair->a.memory, pair->b.memory, size), 0);
    for (size_t i = 0; i < guard; i++)
        ck_assert_uint_eq(pair->a.memory[size + i], 0xee);

    /* write: a to b, followed by a Send that says so */
    fill(pair->a.memory, size, size + 1);
    memset(pair->b.memory, 0xdd, size + guard);
    ck_assert_int_eq(post_recv(&pair->b, 9, 2u << 20, size + 8), 0);
    ck_assert_int_eq(post(&pair->a, 2, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 0, size,
                          at(&pair->b, 0), pair->b.mr->rkey),
                     0);
    ck_assert_int_eq(post(&pair->a, 3, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, size, 0, 0), 0);
    expect_wc(&pair->a, 2, IBV_WC_SUCCESS);
    expect_wc(&pair->a, 3, IBV_WC_SUCCESS);
    wc = wait_wc(&pair->b);
    ck_assert_uint_eq(wc.wr_id, 9);
    ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
    ck_assert_int_eq(wc.opcode, IBV_WC_RECV);
    ck_assert_uint_eq(wc.byte_len, size);
    ck_assert_int_eq(memcmp(pair->a.memory, pair->b.memory, size), 0);
    ck_assert_int_eq(memcmp(pair->a.memory, pair->b.memory + (2u << 20), size), 0);
    for (size_t i = 0; i < guard; i++)
        ck_assert_uint_eq(pair->b.memory[size + i], 0xdd);
}

static void all_sizes(void)
{
    struct pair pair;

    pair_open(&pair, NULL);
    for (int i = 0; i < SIZES; i++)
        round_of_size(&pair, sizes[i]);
    pair_close(&pair);
}

START_TEST(sizes_plain)
{
    all_sizes();
}
END_TEST

START_TEST(sizes_with_crc)
{
    setenv("RBLK_SOFTRDMA_CRC", "1", 1);
    all_sizes();
}
END_TEST

START_TEST(sizes_in_small_fpdus)
{
    setenv("RBLK_SOFTRDMA_FPDU", "1400", 1);
    all_sizes();
}
END_TEST

START_TEST(sizes_in_mss_fpdus_with_crc)
{
    setenv("RBLK_SOFTRDMA_FPDU", "mss", 1);
    setenv("RBLK_SOFTRDMA_CRC", "1", 1);
    all_sizes();
}
END_TEST

START_TEST(scatter_gather)
{
    struct pair pair;
    struct ibv_sge from[3], to[3];
    struct ibv_send_wr wr = {.wr_id = 5,
                             .opcode = IBV_WR_SEND,
                             .send_flags = IBV_SEND_SIGNALED,
                             .sg_list = from,
                             .num_sge = 3},
                       *bad;
    struct ibv_recv_wr rwr = {.wr_id = 6, .sg_list = to, .num_sge = 3}, *rbad;
    struct ibv_wc wc;

    pair_open(&pair, NULL);
    fill(pair.a.memory, 1u << 20, 4);
    for (int i = 0; i < 3; i++) {
        from[i] = (struct ibv_sge){at(&pair.a, (size_t)i * 100000), 70001, pair.a.mr->lkey};
        to[i] = (struct ibv_sge){at(&pair.b, (size_t)i * 200000), 70000u + (uint32_t)i * 30000u,
                                 pair.b.mr->lkey};
    }
    ck_assert_int_eq(ibv_post_recv(pair.b.id->qp, &rwr, &rbad), 0);
    ck_assert_int_eq(ibv_post_send(pair.a.id->qp, &wr, &bad), 0);
    expect_wc(&pair.a, 5, IBV_WC_SUCCESS);
    wc = wait_wc(&pair.b);
    ck_assert_uint_eq(wc.byte_len, 210003);
    ck_assert_mem_eq(pair.b.memory, pair.a.memory, 70000);
    ck_assert_mem_eq(pair.b.memory + 200000, pair.a.memory + 70000, 1);
    ck_assert_int_eq(memcmp(pair.b.memory + 200001, pair.a.memory + 100000, 70001), 0);

    /* A read with several sinks. */
    wr.opcode = IBV_WR_RDMA_READ;
    wr.wr_id = 7;
    for (int i = 0; i < 3; i++)
        from[i].length = 30000;
    wr.wr.rdma.remote_addr = at(&pair.b, 1u << 20);
    wr.wr.rdma.rkey = pair.b.mr->rkey;
    fill(pair.b.memory + (1u << 20), 90000, 77);
    ck_assert_int_eq(ibv_post_send(pair.a.id->qp, &wr, &bad), 0);
    expect_wc(&pair.a, 7, IBV_WC_SUCCESS);
    for (size_t i = 0; i < 3; i++)
        ck_assert_int_eq(
            memcmp(pair.a.memory + i * 100000, pair.b.memory + (1u << 20) + i * 30000, 30000), 0);
    pair_close(&pair);
}
END_TEST

START_TEST(inline_data_may_be_overwritten)
{
    struct pair pair;
    uint8_t text[200];
    struct ibv_sge sge = {(uintptr_t)text, sizeof(text), 0};
    struct ibv_send_wr wr = {.wr_id = 1,
                             .opcode = IBV_WR_SEND,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE},
                       *bad;

    pair_open(&pair, NULL);
    for (uint32_t i = 0; i < 32; i++)
        ck_assert_int_eq(post_recv(&pair.b, i, i * 256, 256), 0);
    for (uint32_t i = 0; i < 32; i++) {
        memset(text, (int)i, sizeof(text));
        ck_assert_int_eq(ibv_post_send(pair.a.id->qp, &wr, &bad), 0);
        memset(text, 0xff, sizeof(text));
    }
    for (uint32_t i = 0; i < 32; i++) {
        expect_wc(&pair.b, i, IBV_WC_SUCCESS);
        ck_assert_uint_eq(pair.b.memory[i * 256], i);
        ck_assert_uint_eq(pair.b.memory[i * 256 + 199], i);
    }
    sge.length = 257; /* more than was granted? then refused at once */
    if (sge.length > 256)
        ck_assert_int_ne(ibv_post_send(pair.a.id->qp, &wr, &bad), 0);
    pair_close(&pair);
}
END_TEST

/* A thousand reads with an ORD of 4 all complete, in order, with the right data. */
START_TEST(reads_beyond_ord_wait)
{
    const struct pair_options options = {.depth = 4};
    struct pair pair;

    pair_open(&pair, &options);
    fill(pair.b.memory, 4u << 20, 5);
    for (uint32_t i = 0; i < 1000; i++)
        ck_assert_int_eq(post(&pair.a, i, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, (size_t)i * 4096,
                              4096, at(&pair.b, (size_t)(999 - i) * 4096), pair.b.mr->rkey),
                         0);
    for (uint32_t i = 0; i < 1000; i++)
        expect_wc(&pair.a, i, IBV_WC_SUCCESS);
    for (uint32_t i = 0; i < 1000; i++)
        ck_assert_int_eq(memcmp(pair.a.memory + (size_t)i * 4096,
                                pair.b.memory + (size_t)(999 - i) * 4096, 4096),
                         0);
    pair_close(&pair);
}
END_TEST

START_TEST(unsignaled_requests_free_their_slots)
{
    const struct pair_options options = {.sq_depth = 16};
    struct pair pair;

    pair_open(&pair, &options);
    for (uint32_t i = 0; i < 5000; i++) {
        unsigned int flags = i % 8 == 7 ? IBV_SEND_SIGNALED : 0;

        ck_assert_int_eq(post(&pair.a, i, i & 1 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, flags, 0,
                              512, at(&pair.b, 4096), pair.b.mr->rkey),
                         0);
        if (flags)
            expect_wc(&pair.a, i, IBV_WC_SUCCESS);
    }
    pair_close(&pair);
}
END_TEST

START_TEST(full_send_queue_is_enomem)
{
    const struct pair_options options = {.sq_depth = 8, .depth = 1};
    struct pair pair;
    int r = 0, posted = 0;

    pair_open(&pair, &options);
    while (posted < 1000) {
        r = post(&pair.a, (uint64_t)posted, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, 0, 1u << 20,
                 at(&pair.b, 0), pair.b.mr->rkey);
        if (r != 0)
            break;
        posted++;
    }
    ck_assert_int_eq(r, ENOMEM);
    ck_assert_int_ge(posted, 8);
    for (int i = 0; i < posted; i++)
        expect_wc(&pair.a, (uint64_t)i, IBV_WC_SUCCESS);
    pair_close(&pair);
}
END_TEST

/* A fenced Send may only leave when the reads before it are complete. */
START_TEST(fence_waits_for_reads)
{
    struct pair pair;

    pair_open(&pair, NULL);
    for (int round = 0; round < 50; round++) {
        fill(pair.b.memory, 1u << 20, (uint32_t)round);
        ck_assert_int_eq(post_recv(&pair.b, 3, 2u << 20, 1u << 20), 0);
        ck_assert_int_eq(
            post(&pair.a, 1, IBV_WR_RDMA_READ, 0, 0, 1u << 20, at(&pair.b, 0), pair.b.mr->rkey), 0);
        ck_assert_int_eq(
            post(&pair.a, 2, IBV_WR_SEND, IBV_SEND_SIGNALED | IBV_SEND_FENCE, 0, 1u << 20, 0, 0),
            0);
        expect_wc(&pair.a, 2, IBV_WC_SUCCESS);
        expect_wc(&pair.b, 3, IBV_WC_SUCCESS);
        ck_assert_int_eq(memcmp(pair.b.memory + (2u << 20), pair.b.memory, 1u << 20), 0);
    }
    pair_close(&pair);
}
END_TEST

static void *blocking_echo(void *argument)
{
    struct pair *pair = argument;
    struct ibv_cq *cq;
    void *context;
    int got = 0;

    while (got < 500) {
        struct ibv_wc wc;

        ck_assert_int_eq(ibv_req_notify_cq(pair->b.cq, 0), 0);
        while (ibv_poll_cq(pair->b.cq, 1, &wc) > 0) {
            ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
            if (wc.opcode != IBV_WC_RECV)
                continue;
            ck_assert_int_eq(post_recv(&pair->b, wc.wr_id, wc.wr_id * 64, 64), 0);
            ck_assert_int_eq(
                post(&pair->b, 1000, IBV_WR_SEND, IBV_SEND_SIGNALED, wc.wr_id * 64, 64, 0, 0), 0);
            got++;
        }
        if (got >= 500)
            break;
        ck_assert_int_eq(ibv_get_cq_event(pair->b.comp, &cq, &context), 0);
        ck_assert_ptr_eq(cq, pair->b.cq);
        ck_assert_ptr_eq(context, &pair->b);
        ibv_ack_cq_events(cq, 1);
    }
    return NULL;
}

static void ping_pong(bool nonblocking)
{
    struct pair pair;
    pthread_t thread;
    struct ibv_cq *cq;
    void *context;

    pair_open(&pair, NULL);
    for (uint32_t i = 0; i < 8; i++)
        ck_assert_int_eq(post_recv(&pair.b, i, i * 64, 64), 0);
    if (nonblocking)
        fcntl(pair.a.comp->fd, F_SETFL, O_NONBLOCK);
    ck_assert_int_eq(pthread_create(&thread, NULL, blocking_echo, &pair), 0);
    for (uint32_t i = 0; i < 500; i++) {
        bool answered = false;

        memset(pair.a.memory + 4096, (int)i, 64);
        ck_assert_int_eq(post_recv(&pair.a, i, 8192, 64), 0);
        ck_assert_int_eq(post(&pair.a, 5000, IBV_WR_SEND, 0, 4096, 64, 0, 0), 0);
        while (!answered) {
            struct pollfd wait = {.fd = pair.a.comp->fd, .events = POLLIN};
            struct ibv_wc wc;

            ck_assert_int_eq(ibv_req_notify_cq(pair.a.cq, 0), 0);
            while (ibv_poll_cq(pair.a.cq, 1, &wc) > 0) {
                ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
                ck_assert_uint_eq(wc.wr_id, i);
                answered = true;
            }
            if (answered)
                break;
            ck_assert_msg(poll(&wait, 1, PAIR_WAIT_MS) == 1, "no completion event");
            if (ibv_get_cq_event(pair.a.comp, &cq, &context) == 0)
                ibv_ack_cq_events(cq, 1);
            else
                ck_assert_int_eq(errno, EAGAIN);
        }
        ck_assert_uint_eq(pair.a.memory[8192], (uint8_t)i);
    }
    pthread_join(thread, NULL);
    pair_close(&pair);
}

START_TEST(completion_events_blocking)
{
    ping_pong(false);
}
END_TEST

START_TEST(completion_events_nonblocking)
{
    ping_pong(true);
}
END_TEST

START_TEST(solicited_events_only)
{
    struct pair pair;
    struct pollfd wait;
    struct ibv_cq *cq;
    void *context;

    pair_open(&pair, NULL);
    wait = (struct pollfd){.fd = pair.b.comp->fd, .events = POLLIN};
    for (uint32_t i = 0; i < 4; i++)
        ck_assert_int_eq(post_recv(&pair.b, i, i * 64, 64), 0);
    ck_assert_int_eq(ibv_req_notify_cq(pair.b.cq, 1), 0);
    ck_assert_int_eq(post(&pair.a, 1, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 64, 0, 0), 0);
    expect_wc(&pair.a, 1, IBV_WC_SUCCESS);
    expect_wc(&pair.b, 0, IBV_WC_SUCCESS);
    ck_assert_int_eq(poll(&wait, 1, 50), 0);
    ck_assert_int_eq(
        post(&pair.a, 2, IBV_WR_SEND, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED, 0, 64, 0, 0), 0);
    ck_assert_int_eq(poll(&wait, 1, PAIR_WAIT_MS), 1);
    ck_assert_int_eq(ibv_get_cq_event(pair.b.comp, &cq, &context), 0);
    ibv_ack_cq_events(cq, 1);
    expect_wc(&pair.b, 1, IBV_WC_SUCCESS);
    pair_close(&pair);
}
END_TEST

/* A list of requests is one call; all complete in the order posted. */
START_TEST(lists_complete_in_order)
{
    struct pair pair;
    struct ibv_sge sge[64];
    struct ibv_send_wr wr[64], *bad;

    pair_open(&pair, NULL);
    fill(pair.b.memory, 1u << 20, 6);
    for (uint32_t i = 0; i < 64; i++) {
        sge[i] = (struct ibv_sge){at(&pair.a, (size_t)i * 8192), 8192, pair.a.mr->lkey};
        wr[i] = (struct ibv_send_wr){.wr_id = i,
                                     .sg_list = &sge[i],
                                     .num_sge = 1,
                                     .next = i < 63 ? &wr[i + 1] : NULL,
                                     .opcode = i % 3 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
                                     .send_flags = IBV_SEND_SIGNALED};
        wr[i].wr.rdma.remote_addr = at(&pair.b, (i % 3 ? 0 : 2u << 20) + (size_t)i * 8192);
        wr[i].wr.rdma.rkey = pair.b.mr->rkey;
    }
    for (int round = 0; round < 100; round++) {
        ck_assert_int_eq(ibv_post_send(pair.a.id->qp, wr, &bad), 0);
        for (uint32_t i = 0; i < 64; i++)
            expect_wc(&pair.a, i, IBV_WC_SUCCESS);
    }
    for (size_t i = 0; i < 64; i++)
        if (i % 3)
            ck_assert_int_eq(memcmp(pair.a.memory + i * 8192, pair.b.memory + i * 8192, 8192), 0);
    pair_close(&pair);
}
END_TEST

struct load {
    struct end *self, *peer;
    uint32_t seed;
};

static void *both_ways(void *argument)
{
    struct load *load = argument;
    uint32_t seed = load->seed;

    for (int i = 0; i < 2000; i++) {
        uint32_t length;

        seed = seed * 1664525u + 1013904223u;
        length = (seed >> 8) % 40000;
        ck_assert_int_eq(post(load->self, (uint64_t)i, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED,
                              2u << 20, length, at(load->peer, 0), load->peer->mr->rkey),
                         0);
        expect_wc(load->self, (uint64_t)i, IBV_WC_SUCCESS);
    }
    return NULL;
}

/* Both ends read from each other at once, each in its own thread. */
START_TEST(both_ends_read_at_once)
{
    struct pair pair;
    pthread_t thread;
    struct load a, b;

    pair_open(&pair, NULL);
    a = (struct load){&pair.a, &pair.b, 1};
    b = (struct load){&pair.b, &pair.a, 2};
    ck_assert_int_eq(pthread_create(&thread, NULL, both_ways, &b), 0);
    both_ways(&a);
    pthread_join(thread, NULL);
    pair_close(&pair);
}
END_TEST

/* A peer that only one-sided operations touch makes progress without its application. */
START_TEST(one_sided_needs_no_application)
{
    struct pair pair;

    pair_open(&pair, NULL);
    for (int i = 0; i < 3000; i++) {
        ck_assert_int_eq(post(&pair.a, 1, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, 0, 4096,
                              at(&pair.b, 0), pair.b.mr->rkey),
                         0);
        expect_wc(&pair.a, 1, IBV_WC_SUCCESS);
    }
    pair_close(&pair);
}
END_TEST

static uint64_t cpu_us(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000u +
           (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

/* A connection that was busy a while ago costs nothing: no spinning, no timers. */
START_TEST(idle_uses_no_processor)
{
    struct pair pair;
    uint64_t before;

    pair_open(&pair, NULL);
    for (int i = 0; i < 200; i++) {
        ck_assert_int_eq(post(&pair.a, 1, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, 0, 4096,
                              at(&pair.b, 0), pair.b.mr->rkey),
                         0);
        expect_wc(&pair.a, 1, IBV_WC_SUCCESS);
    }
    usleep(600000);
    before = cpu_us();
    usleep(1000000);
    ck_assert_uint_lt(cpu_us() - before, 3000);
    pair_close(&pair);
}
END_TEST

/*
 * The peer sends, and the first poll after the data is there looks at the socket that the channel
 * watches.
 */
static bool poll_receives(struct pair *pair, uint64_t wr_id)
{
    struct soft_qp *qp = (struct soft_qp *)pair->b.id->qp;
    struct pollfd arrived = {.fd = qp->fd, .events = POLLIN};
    struct ibv_wc wc;
    bool received;

    ck_assert_int_eq(post_recv(&pair->b, wr_id, 0, 64), 0);
    soft_qp_delegate(qp, (struct soft_channel *)pair->b.comp);
    ck_assert_int_eq(post(&pair->a, wr_id, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 4, 0, 0), 0);
    poll(&arrived, 1, 100); /* the worker may have received it already */
    received = ibv_poll_cq(pair->b.cq, 1, &wc) == 1;
    if (!received)
        wc = wait_wc(&pair->b);
    ck_assert_uint_eq(wc.wr_id, wr_id);
    expect_wc(&pair->a, wr_id, IBV_WC_SUCCESS);
    pthread_mutex_lock(&qp->tx_lock);
    received = received && qp->owner == SOFT_OWNER_CHANNEL;
    pthread_mutex_unlock(&qp->tx_lock);
    return received;
}

/*
 * A completion queue remembers few queue pairs to look at when it is polled. The others are not
 * forgotten when these go. The device's thread takes a socket that nobody looks at, so one success
 * shows it.
 */
START_TEST(polling_drives_queue_pairs_beyond_the_near_ones)
{
    struct ibv_qp_init_attr init = {
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
    };
    struct ibv_qp *near[SOFT_NEAR_QPS];
    unsigned int received = 0;
    struct soft_cq *cq;
    struct pair pair;

    pair_open(&pair, NULL);
    cq = (struct soft_cq *)pair.b.cq;
    ck_assert_int_eq(fcntl(pair.b.comp->fd, F_SETFL, fcntl(pair.b.comp->fd, F_GETFL) | O_NONBLOCK),
                     0);
    init.send_cq = init.recv_cq = pair.b.cq;
    soft_cq_detach(cq, pair.b.id->qp->qp_num);
    for (size_t i = 0; i < SOFT_NEAR_QPS; i++) {
        near[i] = ibv_create_qp(pair.b.pd, &init);
        ck_assert_ptr_nonnull(near[i]);
    }
    soft_cq_attach(cq, pair.b.id->qp->qp_num);
    for (size_t i = 0; i < SOFT_NEAR_QPS; i++)
        ck_assert_int_eq(ibv_destroy_qp(near[i]), 0);
    for (uint64_t i = 0; i < 50 && received == 0; i++)
        received += poll_receives(&pair, i);
    ck_assert_uint_gt(received, 0);
    pair_close(&pair);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("softrdma_data");
    TCase *tcase = tcase_create("data");

    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, sizes_plain);
    tcase_add_test(tcase, sizes_with_crc);
    tcase_add_test(tcase, sizes_in_small_fpdus);
    tcase_add_test(tcase, sizes_in_mss_fpdus_with_crc);
    tcase_add_test(tcase, scatter_gather);
    tcase_add_test(tcase, inline_data_may_be_overwritten);
    tcase_add_test(tcase, reads_beyond_ord_wait);
    tcase_add_test(tcase, unsignaled_requests_free_their_slots);
    tcase_add_test(tcase, full_send_queue_is_enomem);
    tcase_add_test(tcase, fence_waits_for_reads);
    tcase_add_test(tcase, completion_events_blocking);
    tcase_add_test(tcase, completion_events_nonblocking);
    tcase_add_test(tcase, solicited_events_only);
    tcase_add_test(tcase, lists_complete_in_order);
    tcase_add_test(tcase, both_ends_read_at_once);
    tcase_add_test(tcase, one_sided_needs_no_application);
    tcase_add_test(tcase, idle_uses_no_processor);
    tcase_add_test(tcase, polling_drives_queue_pairs_beyond_the_near_ones);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
