/* SPDX-License-Identifier: BSD-2-Clause */
/* test_verbs -- common/verbs.c on the software provider: waits, queue pair limits, parameters */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/verbs.h"
#include "suite.h"

#define PATIENCE_MS 10000 /* far more than anything here takes, far less than for ever */

static struct rdma_event_channel *channel;
static struct rdma_cm_id *id;

static void make_channel(void)
{
    channel = rdma_create_event_channel();
    ck_assert_msg(channel != NULL, "rdma_create_event_channel: %s", strerror(errno));
    ck_assert_int_eq(rblk_fd_nonblock(channel->fd), 0);
}

static void destroy_channel(void)
{
    if (id)
        ck_assert_int_eq(rdma_destroy_id(id), 0);
    id = NULL;
    rdma_destroy_event_channel(channel);
}

/* An id whose address is being resolved on the loopback device: an event is on its way. */
static void resolve(void)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_port = htons(7470),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };

    ck_assert_int_eq(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
    ck_assert_int_eq(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, PATIENCE_MS), 0);
}

static void resolve_and_wait(void)
{
    struct rdma_cm_event *event;

    resolve();
    ck_assert_int_eq(rblk_cm_wait(channel, rblk_deadline_ms(PATIENCE_MS), &event), 0);
    ck_assert_int_eq(event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
    ck_assert_int_eq(rdma_ack_cm_event(event), 0);
}

/* -- waits --------------------------------------------------------------------------------- */

START_TEST(wait_ends_at_its_deadline)
{
    struct rdma_cm_event *event = (void *)1;
    uint64_t start = rblk_now_ns();

    ck_assert_int_eq(rblk_cm_wait(channel, rblk_deadline_ms(50), &event), -ETIMEDOUT);
    ck_assert_uint_ge(rblk_now_ns() - start, 50000000);
    ck_assert_ptr_eq(event, (void *)1);
    ck_assert_int_eq(rblk_cm_wait(channel, 0, &event), -ETIMEDOUT);
}
END_TEST

START_TEST(wait_returns_the_event)
{
    resolve_and_wait();
}
END_TEST

START_TEST(wait_looks_even_after_the_deadline)
{
    struct rdma_cm_event *event;
    uint64_t deadline = rblk_deadline_ms(PATIENCE_MS);

    resolve();
    while (rblk_cm_wait(channel, 0, &event) < 0) {
        ck_assert_uint_lt(rblk_now_ns(), deadline);
        usleep(1000);
    }
    ck_assert_int_eq(rdma_ack_cm_event(event), 0);
}
END_TEST

/* Nobody may spin on a descriptor that can never bring an event. */
START_TEST(wait_notices_a_bad_descriptor)
{
    struct rdma_event_channel bad = {.fd = 1000000};
    struct rdma_cm_event *event;

    ck_assert_int_eq(rblk_cm_wait(&bad, rblk_deadline_ms(PATIENCE_MS), &event), -EBADF);
}
END_TEST

START_TEST(nonblock)
{
    int fds[2];
    char byte;

    ck_assert_int_eq(pipe(fds), 0);
    ck_assert_int_eq(rblk_fd_nonblock(fds[0]), 0);
    ck_assert_int_eq(read(fds[0], &byte, 1), -1);
    ck_assert_int_eq(errno, EAGAIN);
    close(fds[0]);
    close(fds[1]);
    ck_assert_int_eq(rblk_fd_nonblock(-1), -EBADF);
}
END_TEST

/* -- queue pairs --------------------------------------------------------------------------- */

START_TEST(qp_limits)
{
    struct rblk_qp_limits limits = {16, 16, 1, 1, 0};
    struct ibv_device_attr attr;
    struct ibv_pd *pd;
    struct ibv_cq *cq;

    resolve_and_wait();
    ck_assert_int_eq(ibv_query_device(id->verbs, &attr), 0);
    pd = ibv_alloc_pd(id->verbs);
    cq = ibv_create_cq(id->verbs, 64, NULL, NULL, 0);
    ck_assert_ptr_nonnull(pd);
    ck_assert_ptr_nonnull(cq);

    limits.send_wr = (uint32_t)attr.max_qp_wr + 1;
    ck_assert_int_eq(rblk_qp_create(id, pd, cq, cq, &limits), -E2BIG);
    limits.send_wr = UINT32_MAX;
    ck_assert_int_eq(rblk_qp_create(id, pd, cq, cq, &limits), -E2BIG);
    limits.send_wr = 16;
    limits.recv_wr = (uint32_t)attr.max_qp_wr + 1;
    ck_assert_int_eq(rblk_qp_create(id, pd, cq, cq, &limits), -E2BIG);
    limits.recv_wr = 16;
    limits.send_sge = (uint32_t)attr.max_sge + 1;
    ck_assert_int_eq(rblk_qp_create(id, pd, cq, cq, &limits), -EMSGSIZE);
    limits.send_sge = 1;
    limits.recv_sge = (uint32_t)attr.max_sge + 1;
    ck_assert_int_eq(rblk_qp_create(id, pd, cq, cq, &limits), -EMSGSIZE);
    limits.recv_sge = 1;
    ck_assert_ptr_null(id->qp);

    ck_assert_int_eq(rblk_qp_create(id, pd, cq, cq, &limits), 0);
    ck_assert_ptr_nonnull(id->qp);
    ck_assert_int_eq(id->qp->qp_type, IBV_QPT_RC);
    ck_assert_ptr_eq(id->qp->pd, pd);
    ck_assert_ptr_eq(id->qp->send_cq, cq);
    rdma_destroy_qp(id);

    limits.inline_data = 32;
    ck_assert_int_eq(rblk_qp_create(id, pd, cq, cq, &limits), 0);
    ck_assert_uint_eq(limits.inline_data, 32);
    rdma_destroy_qp(id);
    /* More than any device takes: a queue pair without is the answer. */
    limits.inline_data = 1u << 20;
    ck_assert_int_eq(rblk_qp_create(id, pd, cq, cq, &limits), 0);
    ck_assert_uint_eq(limits.inline_data, 0);
    ck_assert_ptr_nonnull(id->qp);
    rdma_destroy_qp(id);
    ck_assert_int_eq(ibv_destroy_cq(cq), 0);
    ck_assert_int_eq(ibv_dealloc_pd(pd), 0);
}
END_TEST

START_TEST(qp_needs_a_device)
{
    struct rblk_qp_limits limits = {16, 16, 1, 1, 0};

    ck_assert_int_eq(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
    ck_assert_ptr_null(id->verbs);
    ck_assert_int_eq(rblk_qp_create(id, NULL, NULL, NULL, &limits), -EINVAL);
}
END_TEST

/* -- parameters ---------------------------------------------------------------------------- */

START_TEST(conn_param_is_explicit)
{
    static const uint8_t data[3] = {1, 2, 3};
    struct rdma_conn_param p;

    memset(&p, 0x5a, sizeof p);
    rblk_conn_param(&p, 16, 4, data, sizeof data);
    ck_assert_ptr_eq(p.private_data, data);
    ck_assert_uint_eq(p.private_data_len, 3);
    ck_assert_uint_eq(p.initiator_depth, 16);
    ck_assert_uint_eq(p.responder_resources, 4);
    ck_assert_uint_eq(p.flow_control, 1);
    ck_assert_uint_eq(p.retry_count, 7);
    ck_assert_uint_eq(p.rnr_retry_count, 6);
    ck_assert_uint_eq(p.srq, 0);
    ck_assert_uint_eq(p.qp_num, 0);
}
END_TEST

START_TEST(memlock)
{
    struct rlimit limit;

    ck_assert_int_eq(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
    limit.rlim_cur = 65536;
    ck_assert_int_eq(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
    ck_assert_uint_eq(rblk_memlock_limit(), 65536);
    if (limit.rlim_max == RLIM_INFINITY) {
        limit.rlim_cur = RLIM_INFINITY;
        ck_assert_int_eq(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
        ck_assert_uint_eq(rblk_memlock_limit(), UINT64_MAX);
    }
}
END_TEST

static Suite *verbs_suite(void)
{
    Suite *suite = suite_create("verbs");
    TCase *device = tcase_create("device");
    TCase *plain = tcase_create("plain");

    tcase_set_timeout(device, 30);
    tcase_add_checked_fixture(device, make_channel, destroy_channel);
    tcase_add_test(device, wait_ends_at_its_deadline);
    tcase_add_test(device, wait_returns_the_event);
    tcase_add_test(device, wait_looks_even_after_the_deadline);
    tcase_add_test(device, qp_limits);
    tcase_add_test(device, qp_needs_a_device);
    suite_add_tcase(suite, device);

    tcase_add_test(plain, wait_notices_a_bad_descriptor);
    tcase_add_test(plain, nonblock);
    tcase_add_test(plain, conn_param_is_explicit);
    tcase_add_test(plain, memlock);
    suite_add_tcase(suite, plain);
    return suite;
}

int main(void)
{
    return suite_run(verbs_suite());
}
