/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_softrdma_errors.c -- protection, flushes and teardown of the software RDMA device
 */
#include "suite.h"
#include "test_softrdma_pair.h"

static void expect_dead(struct pair *pair)
{
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;

    expect_event(pair->channel, RDMA_CM_EVENT_DISCONNECTED);
    expect_event(pair->channel, RDMA_CM_EVENT_DISCONNECTED);
    ck_assert_int_eq(ibv_query_qp(pair->a.id->qp, &attr, IBV_QP_STATE, &init), 0);
    ck_assert_int_eq(attr.qp_state, IBV_QPS_ERR);
    ck_assert_int_eq(ibv_query_qp(pair->b.id->qp, &attr, IBV_QP_STATE, &init), 0);
    ck_assert_int_eq(attr.qp_state, IBV_QPS_ERR);
}

/* Two good reads, the bad one, two more that are flushed, a receive that is flushed. */
static void bad_read(const struct pair_options *options, uint64_t offset, uint32_t length,
                     uint32_t key_change)
{
    struct ibv_send_wr wr[3], *bad;
    struct ibv_sge sge[3];
    struct pair pair;

    pair_open(&pair, options);
    memset(pair.a.memory, 0xaa, 65536);
    ck_assert_int_eq(post_recv(&pair.a, 77, 0, 16), 0);
    if (key_change == 0 && options == NULL)
        for (uint64_t i = 1; i <= 2; i++)
            ck_assert_int_eq(post(&pair.a, i, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, 0, 4096,
                                  at(&pair.b, 0), pair.b.mr->rkey),
                             0);
    for (uint32_t i = 0; i < 3; i++) {
        sge[i] = (struct ibv_sge){at(&pair.a, 8192), i == 0 ? length : 4096, pair.a.mr->lkey};
        wr[i] = (struct ibv_send_wr){.wr_id = 3 + i,
                                     .opcode = IBV_WR_RDMA_READ,
                                     .sg_list = &sge[i],
                                     .num_sge = 1,
                                     .next = i < 2 ? &wr[i + 1] : NULL};
        wr[i].wr.rdma.remote_addr = at(&pair.b, i == 0 ? offset : 0);
        wr[i].wr.rdma.rkey = pair.b.mr->rkey ^ (i == 0 ? key_change : 0);
    }
    ck_assert_int_eq(ibv_post_send(pair.a.id->qp, wr, &bad), 0);
    if (key_change == 0 && options == NULL) {
        expect_wc(&pair.a, 1, IBV_WC_SUCCESS);
        expect_wc(&pair.a, 2, IBV_WC_SUCCESS);
    }
    expect_wc(&pair.a, 3, IBV_WC_REM_ACCESS_ERR);
    expect_wc(&pair.a, 4, IBV_WC_WR_FLUSH_ERR);
    expect_wc(&pair.a, 5, IBV_WC_WR_FLUSH_ERR);
    expect_wc(&pair.a, 77, IBV_WC_WR_FLUSH_ERR);
    ck_assert_uint_eq(pair.a.memory[8192], 0xaa);
    expect_dead(&pair);
    /* What is posted now is flushed too. */
    ck_assert_int_eq(post(&pair.a, 6, IBV_WR_SEND, 0, 0, 8, 0, 0), 0);
    expect_wc(&pair.a, 6, IBV_WC_WR_FLUSH_ERR);
    ck_assert_int_eq(post_recv(&pair.a, 7, 0, 8), 0);
    expect_wc(&pair.a, 7, IBV_WC_WR_FLUSH_ERR);
    pair_close(&pair);
}

START_TEST(read_past_the_end)
{
    bad_read(NULL, (4u << 20) - 100, 101, 0);
}
END_TEST

START_TEST(read_before_the_begin)
{
    bad_read(NULL, (uint64_t)-1, 16, 0);
}
END_TEST

START_TEST(read_with_wrong_key)
{
    bad_read(NULL, 0, 4096, 1);
}
END_TEST

START_TEST(read_with_wrong_index)
{
    bad_read(NULL, 0, 4096, 0x100);
}
END_TEST

START_TEST(read_without_right)
{
    const struct pair_options options = {.access_b =
                                             IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE};
    bad_read(&options, 0, 4096, 0);
}
END_TEST

START_TEST(read_from_another_domain)
{
    struct pair pair;
    struct ibv_pd *pd;
    struct ibv_mr *mr;

    pair_open(&pair, NULL);
    pd = ibv_alloc_pd(pair.b.id->verbs);
    mr = ibv_reg_mr(pd, pair.b.memory, 4096, IBV_ACCESS_REMOTE_READ);
    ck_assert_ptr_nonnull(mr);
    ck_assert_int_eq(ibv_dealloc_pd(pd), EBUSY);
    ck_assert_int_eq(post(&pair.a, 1, IBV_WR_RDMA_READ, 0, 0, 4096, at(&pair.b, 0), mr->rkey), 0);
    expect_wc(&pair.a, 1, IBV_WC_REM_ACCESS_ERR);
    expect_dead(&pair);
    ck_assert_int_eq(ibv_dereg_mr(mr), 0);
    ck_assert_int_eq(ibv_dealloc_pd(pd), 0);
    pair_close(&pair);
}
END_TEST

static void bad_write(const struct pair_options *options, uint64_t offset, uint32_t key_change)
{
    struct pair pair;

    pair_open(&pair, options);
    memset(pair.b.memory, 0x11, 4096);
    ck_assert_int_eq(post_recv(&pair.b, 8, 0, 64), 0);
    ck_assert_int_eq(post(&pair.a, 1, IBV_WR_RDMA_WRITE, 0, 0, 4096, at(&pair.b, offset),
                          pair.b.mr->rkey ^ key_change),
                     0);
    expect_wc(&pair.b, 8, IBV_WC_WR_FLUSH_ERR);
    expect_dead(&pair);
    for (size_t i = 0; i < 4096; i++)
        ck_assert_uint_eq(pair.b.memory[i], 0x11);
    pair_close(&pair);
}

START_TEST(write_past_the_end)
{
    bad_write(NULL, (4u << 20) - 4095, 0);
}
END_TEST

START_TEST(write_with_wrong_key)
{
    bad_write(NULL, 0, 0x80);
}
END_TEST

START_TEST(write_without_right)
{
    const struct pair_options options = {.access_b =
                                             IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ};
    bad_write(&options, 0, 0);
}
END_TEST

START_TEST(send_without_receive)
{
    struct pair pair;

    pair_open(&pair, NULL);
    ck_assert_int_eq(post(&pair.a, 1, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 64, 0, 0), 0);
    expect_wc(&pair.a, 1, IBV_WC_SUCCESS); /* iWARP: complete once the stream has it */
    ck_assert_int_eq(post_recv(&pair.a, 2, 0, 64), 0);
    expect_dead(&pair);
    expect_wc(&pair.a, 2, IBV_WC_WR_FLUSH_ERR);
    pair_close(&pair);
}
END_TEST

START_TEST(receive_too_small)
{
    struct pair pair;

    pair_open(&pair, NULL);
    ck_assert_int_eq(post_recv(&pair.b, 1, 0, 63), 0);
    ck_assert_int_eq(post_recv(&pair.b, 2, 0, 63), 0);
    ck_assert_int_eq(post(&pair.a, 1, IBV_WR_SEND, 0, 0, 64, 0, 0), 0);
    expect_wc(&pair.b, 1, IBV_WC_LOC_LEN_ERR);
    expect_wc(&pair.b, 2, IBV_WC_WR_FLUSH_ERR);
    expect_dead(&pair);
    pair_close(&pair);
}
END_TEST

START_TEST(local_keys_are_checked)
{
    struct pair pair;
    uint32_t key;

    pair_open(&pair, NULL);
    key = pair.a.mr->lkey;
    ck_assert_int_eq(post(&pair.a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 0, 64, at(&pair.b, 0),
                          pair.b.mr->rkey),
                     0);
    expect_wc(&pair.a, 1, IBV_WC_SUCCESS);
    pair.a.mr->lkey ^= 4;
    ck_assert_int_eq(post(&pair.a, 2, IBV_WR_SEND, 0, 0, 64, 0, 0), 0);
    pair.a.mr->lkey = key;
    expect_wc(&pair.a, 2, IBV_WC_LOC_PROT_ERR);
    expect_dead(&pair);
    pair_close(&pair);
}
END_TEST

START_TEST(read_sink_needs_local_write)
{
    const struct pair_options options = {.access_a = IBV_ACCESS_REMOTE_READ};
    struct pair pair;

    pair_open(&pair, &options);
    ck_assert_int_eq(post(&pair.a, 2, IBV_WR_RDMA_READ, 0, 0, 64, at(&pair.b, 0), pair.b.mr->rkey),
                     0);
    expect_wc(&pair.a, 2, IBV_WC_LOC_PROT_ERR);
    expect_dead(&pair);
    pair_close(&pair);
}
END_TEST

START_TEST(receive_into_foreign_memory)
{
    struct pair pair;
    uint32_t key;

    pair_open(&pair, NULL);
    key = pair.b.mr->lkey;
    pair.b.mr->lkey ^= 2;
    ck_assert_int_eq(post_recv(&pair.b, 1, 0, 64), 0);
    pair.b.mr->lkey = key;
    ck_assert_int_eq(post(&pair.a, 2, IBV_WR_SEND, 0, 0, 64, 0, 0), 0);
    expect_wc(&pair.b, 1, IBV_WC_LOC_PROT_ERR);
    expect_dead(&pair);
    pair_close(&pair);
}
END_TEST

START_TEST(no_reads_were_agreed)
{
    const struct pair_options options = {.depth = -1};
    struct pair pair;

    pair_open(&pair, &options);
    ck_assert_int_eq(post(&pair.a, 2, IBV_WR_RDMA_READ, 0, 0, 64, at(&pair.b, 0), pair.b.mr->rkey),
                     0);
    expect_wc(&pair.a, 2, IBV_WC_LOC_QP_OP_ERR);
    expect_dead(&pair);
    pair_close(&pair);
}
END_TEST

START_TEST(registration_is_checked)
{
    struct pair pair;
    struct ibv_mr *many[300];
    uint8_t *hole;

    pair_open(&pair, NULL);
    ck_assert_ptr_null(ibv_reg_mr(pair.a.pd, pair.a.memory, 4096, IBV_ACCESS_REMOTE_WRITE));
    ck_assert_int_eq(errno, EINVAL);
    ck_assert_ptr_null(ibv_reg_mr(pair.a.pd, pair.a.memory, 4096, IBV_ACCESS_REMOTE_ATOMIC));
    hole = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(hole + 4096, 4096);
    ck_assert_ptr_null(ibv_reg_mr(pair.a.pd, hole, 4097, IBV_ACCESS_REMOTE_READ));
    ck_assert_int_eq(errno, EFAULT);
    munmap(hole, 4096);
    for (int i = 0; i < 300; i++) {
        many[i] = ibv_reg_mr(pair.a.pd, pair.a.memory + i, 1, IBV_ACCESS_REMOTE_READ);
        ck_assert_ptr_nonnull(many[i]);
        ck_assert_uint_eq(many[i]->lkey, many[i]->rkey);
        for (int j = 0; j < i; j++)
            ck_assert_uint_ne(many[i]->rkey >> 8, many[j]->rkey >> 8);
    }
    for (int i = 0; i < 300; i++)
        ck_assert_int_eq(ibv_dereg_mr(many[i]), 0);
    ck_assert_int_eq(ibv_destroy_cq(pair.a.cq), EBUSY);
    pair_close(&pair);
}
END_TEST

/* Reads of a region that goes away meanwhile: success before, access error or flush after. */
START_TEST(deregistration_during_reads)
{
    for (int round = 0; round < 20; round++) {
        struct pair pair;
        struct ibv_mr *mr;
        bool failed = false;

        pair_open(&pair, NULL);
        memset(pair.b.memory, 0x5a, 1u << 20);
        mr = ibv_reg_mr(pair.b.pd, pair.b.memory, 1u << 20, IBV_ACCESS_REMOTE_READ);
        for (uint64_t i = 0; i < 100; i++)
            ck_assert_int_eq(post(&pair.a, i, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, 0, 1u << 20,
                                  at(&pair.b, 0), mr->rkey),
                             0);
        for (int i = 0; i < round; i++)
            expect_wc(&pair.a, (uint64_t)i, IBV_WC_SUCCESS);
        ck_assert_int_eq(ibv_dereg_mr(mr), 0);
        memset(pair.b.memory, 0xff, 1u << 20); /* nobody may see these */
        for (uint64_t i = (uint64_t)round; i < 100; i++) {
            struct ibv_wc wc = wait_wc(&pair.a);

            ck_assert_uint_eq(wc.wr_id, i);
            ck_assert(!failed || wc.status == IBV_WC_WR_FLUSH_ERR);
            if (wc.status != IBV_WC_SUCCESS)
                failed = true;
        }
        ck_assert(failed);
        for (size_t i = 0; i < 1u << 20; i += 511)
            ck_assert_uint_ne(pair.a.memory[i], 0xff);
        pair_close(&pair);
    }
}
END_TEST

/* The backing file of registered memory is cut: the connection ends, the process does not. */
static void truncated_file(void)
{
    char name[] = "/tmp/test_softrdma_XXXXXX";
    int file = mkstemp(name);
    struct pair pair;
    struct ibv_mr *mr;
    struct ibv_wc wc;
    uint8_t *memory;

    ck_assert_int_ge(file, 0);
    unlink(name);
    ck_assert_int_eq(ftruncate(file, 1 << 20), 0);
    pair_open(&pair, NULL);
    memory = mmap(NULL, 1 << 20, PROT_READ, MAP_SHARED, file, 0);
    mr = ibv_reg_mr(pair.b.pd, memory, 1 << 20, IBV_ACCESS_REMOTE_READ);
    ck_assert_ptr_nonnull(mr);
    ck_assert_int_eq(post(&pair.a, 1, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, 0, 1 << 20,
                          (uintptr_t)memory, mr->rkey),
                     0);
    expect_wc(&pair.a, 1, IBV_WC_SUCCESS);
    ck_assert_int_eq(ftruncate(file, 4096), 0);
    ck_assert_int_eq(post(&pair.a, 2, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, 0, 1 << 20,
                          (uintptr_t)memory, mr->rkey),
                     0);
    wc = wait_wc(&pair.a);
    ck_assert_uint_eq(wc.wr_id, 2);
    ck_assert_int_ne(wc.status, IBV_WC_SUCCESS);
    expect_dead(&pair);
    ck_assert_int_eq(ibv_dereg_mr(mr), 0);
    munmap(memory, 1 << 20);
    close(file);
    pair_close(&pair);
}

START_TEST(truncated_file_is_no_crash)
{
    truncated_file();
}
END_TEST

START_TEST(truncated_file_is_no_crash_with_crc)
{
    setenv("RBLK_SOFTRDMA_CRC", "1", 1);
    truncated_file();
}
END_TEST

START_TEST(disconnect_sends_what_was_posted)
{
    struct pair pair;

    pair_open(&pair, NULL);
    fill(pair.a.memory, 4u << 20, 3);
    ck_assert_int_eq(post_recv(&pair.b, 1, 0, 4u << 20), 0);
    ck_assert_int_eq(post_recv(&pair.b, 2, 0, 4u << 20), 0);
    ck_assert_int_eq(post(&pair.a, 5, IBV_WR_SEND, 0, 0, 4u << 20, 0, 0), 0);
    ck_assert_int_eq(rdma_disconnect(pair.a.id), 0);
    expect_wc(&pair.b, 1, IBV_WC_SUCCESS);
    expect_wc(&pair.b, 2, IBV_WC_WR_FLUSH_ERR);
    expect_dead(&pair);
    ck_assert_int_eq(memcmp(pair.a.memory, pair.b.memory, 4u << 20), 0);
    pair_close(&pair);
}
END_TEST

START_TEST(modify_to_error_flushes)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    struct pair pair;

    pair_open(&pair, NULL);
    for (uint64_t i = 0; i < 4; i++)
        ck_assert_int_eq(post_recv(&pair.a, i, 0, 64), 0);
    ck_assert_int_eq(ibv_modify_qp(pair.a.id->qp, &attr, IBV_QP_STATE), 0);
    for (uint64_t i = 0; i < 4; i++)
        expect_wc(&pair.a, i, IBV_WC_WR_FLUSH_ERR);
    expect_dead(&pair);
    pair_close(&pair);
}
END_TEST

START_TEST(completion_queue_overflow_is_told)
{
    const struct pair_options options = {.cqe = 4};
    struct ibv_async_event event;
    struct pair pair;
    struct ibv_wc wc[8];

    pair_open(&pair, &options);
    for (uint64_t i = 0; i < 8; i++)
        post(&pair.a, i, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 0, 64, at(&pair.b, 0),
             pair.b.mr->rkey);
    ck_assert_int_eq(ibv_get_async_event(pair.a.id->verbs, &event), 0);
    ck_assert_int_eq(event.event_type, IBV_EVENT_CQ_ERR);
    ck_assert_ptr_eq(event.element.cq, pair.a.cq);
    ibv_ack_async_event(&event);
    ck_assert_int_eq(ibv_poll_cq(pair.a.cq, 8, wc), 4);
    ck_assert_int_lt(ibv_poll_cq(pair.a.cq, 8, wc), 0);
    pair_close(&pair);
}
END_TEST

START_TEST(shared_receive_queue)
{
    struct pair pair;
    struct ibv_srq_init_attr init = {.attr = {.max_wr = 16, .max_sge = 1}};
    struct ibv_srq *srq;
    struct ibv_sge sge;
    struct ibv_recv_wr wr = {.wr_id = 42, .sg_list = &sge, .num_sge = 1}, *bad;
    struct ibv_qp_init_attr qp_init = {.qp_type = IBV_QPT_RC,
                                       .cap = {.max_send_wr = 4, .max_send_sge = 1}};
    struct ibv_qp *qp;

    pair_open(&pair, NULL);
    srq = ibv_create_srq(pair.b.pd, &init);
    ck_assert_ptr_nonnull(srq);
    sge = (struct ibv_sge){at(&pair.b, 0), 64, pair.b.mr->lkey};
    for (int i = 0; i < 16; i++)
        ck_assert_int_eq(ibv_post_srq_recv(srq, &wr, &bad), 0);
    ck_assert_int_eq(ibv_post_srq_recv(srq, &wr, &bad), ENOMEM);
    qp_init.send_cq = qp_init.recv_cq = pair.b.cq;
    qp_init.srq = srq;
    qp = ibv_create_qp(pair.b.pd, &qp_init);
    ck_assert_ptr_nonnull(qp);
    ck_assert_int_eq(ibv_destroy_srq(srq), EBUSY);
    ck_assert_int_eq(ibv_destroy_qp(qp), 0);
    ck_assert_int_eq(ibv_destroy_srq(srq), 0);
    pair_close(&pair);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("softrdma_errors");
    TCase *tcase = tcase_create("errors");

    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, read_past_the_end);
    tcase_add_test(tcase, read_before_the_begin);
    tcase_add_test(tcase, read_with_wrong_key);
    tcase_add_test(tcase, read_with_wrong_index);
    tcase_add_test(tcase, read_without_right);
    tcase_add_test(tcase, read_from_another_domain);
    tcase_add_test(tcase, write_past_the_end);
    tcase_add_test(tcase, write_with_wrong_key);
    tcase_add_test(tcase, write_without_right);
    tcase_add_test(tcase, send_without_receive);
    tcase_add_test(tcase, receive_too_small);
    tcase_add_test(tcase, local_keys_are_checked);
    tcase_add_test(tcase, read_sink_needs_local_write);
    tcase_add_test(tcase, receive_into_foreign_memory);
    tcase_add_test(tcase, no_reads_were_agreed);
    tcase_add_test(tcase, registration_is_checked);
    tcase_add_test(tcase, deregistration_during_reads);
    tcase_add_test(tcase, truncated_file_is_no_crash);
    tcase_add_test(tcase, truncated_file_is_no_crash_with_crc);
    tcase_add_test(tcase, disconnect_sends_what_was_posted);
    tcase_add_test(tcase, modify_to_error_flushes);
    tcase_add_test(tcase, completion_queue_overflow_is_told);
    tcase_add_test(tcase, shared_receive_queue);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
