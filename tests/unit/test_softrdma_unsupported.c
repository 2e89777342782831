/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_softrdma_unsupported.c -- what the software RDMA device does not have answers with an error
 *
 * The answers are those that the man pages give for an operation that a device does not support:
 * NULL or -1 with errno, or the errno itself, EOPNOTSUPP. None may reach rdma-core's libraries, which
 * would take the objects for their own.
 */
#include "suite.h"
#include "test_softrdma_pair.h"

#include <infiniband/verbs.h>
#include <rdma/rsocket.h>

#undef ibv_query_port

/* No installed header declares it. */
int ibv_read_sysfs_file(const char *folder, const char *file, char *buffer, size_t size);

static struct pair pair;

/* A call that answers NULL or -1 and sets errno. */
#define ck_unsupported_errno(failed)         \
    do {                                     \
        errno = 0;                           \
        ck_assert(failed);                   \
        ck_assert_int_eq(errno, EOPNOTSUPP); \
    } while (0)

static void setup(void)
{
    pair_open(&pair, NULL);
}

static void teardown(void)
{
    pair_close(&pair);
}

START_TEST(registration)
{
    struct ibv_pd *pd = pair.a.pd;
    struct ibv_context *context = pd->context;

    errno = 0;
    ck_assert_int_eq(ibv_rereg_mr(pair.a.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0),
                     IBV_REREG_MR_ERR_INPUT);
    ck_assert_int_eq(errno, EOPNOTSUPP);
    ck_unsupported_errno(ibv_reg_dmabuf_mr(pd, 0, 4096, 0, 0, 0) == NULL);
    ck_unsupported_errno(ibv_import_device(0) == NULL);
    ck_unsupported_errno(ibv_import_pd(context, 0) == NULL);
    ck_unsupported_errno(ibv_import_mr(pd, 0) == NULL);
    ck_unsupported_errno(ibv_import_dm(context, 0) == NULL);
    ck_unsupported_errno(ibv_reg_mr(pd, pair.a.memory, 4096, IBV_ACCESS_ON_DEMAND) == NULL);
    ck_unsupported_errno(ibv_reg_mr(pd, pair.a.memory, 4096,
                                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC) == NULL);
    ck_unsupported_errno(
        ibv_reg_mr(pd, pair.a.memory, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND) == NULL);
    ck_unsupported_errno(ibv_reg_mr(pd, pair.a.memory, 4096, IBV_ACCESS_ZERO_BASED) == NULL);
    /* Optional flags ask for nothing that must be given. */
    {
        struct ibv_mr *mr = ibv_reg_mr(pd, pair.a.memory, 4096, IBV_ACCESS_RELAXED_ORDERING);

        ck_assert_ptr_nonnull(mr);
        ck_assert_int_eq(ibv_dereg_mr(mr), 0);
    }
    /* These return nothing; they must not touch what they are given. */
    ibv_unimport_pd(NULL);
    ibv_unimport_mr(NULL);
    ibv_unimport_dm(NULL);
}
END_TEST

START_TEST(windows)
{
    struct ibv_mw_bind bind = {.wr_id = 1};

    ck_unsupported_errno(ibv_alloc_mw(pair.a.pd, IBV_MW_TYPE_1) == NULL);
    ck_unsupported_errno(ibv_alloc_mw(pair.a.pd, IBV_MW_TYPE_2) == NULL);
    /* The inline wrappers look into the window, so the operations are called as they would. */
    ck_assert_int_eq(pair.a.pd->context->ops.bind_mw(pair.a.id->qp, NULL, &bind), EOPNOTSUPP);
    ck_assert_int_eq(pair.a.pd->context->ops.dealloc_mw(NULL), EOPNOTSUPP);
}
END_TEST

START_TEST(datagrams)
{
    struct ibv_pd *pd = pair.a.pd;
    struct ibv_ah_attr attr = {.port_num = 1};
    union ibv_gid gid = {0};
    struct ibv_wc wc = {0};
    struct ibv_grh grh = {0};
    uint8_t mac[6];
    uint16_t vlan;

    ck_unsupported_errno(ibv_create_ah(pd, &attr) == NULL);
    ck_unsupported_errno(ibv_create_ah_from_wc(pd, &wc, &grh, 1) == NULL);
    ck_unsupported_errno(ibv_init_ah_from_wc(pd->context, 1, &wc, &grh, &attr) == -1);
    ck_assert_int_eq(ibv_destroy_ah(NULL), EOPNOTSUPP);
    ck_assert_int_eq(ibv_attach_mcast(pair.a.id->qp, &gid, 0), EOPNOTSUPP);
    ck_assert_int_eq(ibv_detach_mcast(pair.a.id->qp, &gid, 0), EOPNOTSUPP);
    ck_unsupported_errno(ibv_resolve_eth_l2_from_gid(pd->context, &attr, mac, &vlan) == -1);
}
END_TEST

START_TEST(queues)
{
    struct ibv_cq_init_attr_ex cq = {.cqe = 4};
    struct ibv_srq_init_attr_ex srq = {.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
                                       .srq_type = IBV_SRQT_XRC,
                                       .pd = pair.a.pd};
    struct ibv_srq_attr resize = {.max_wr = 32};
    struct ibv_srq_init_attr basic = {.attr = {.max_wr = 16, .max_sge = 1}};
    struct ibv_modify_cq_attr moderate = {.attr_mask = IBV_CQ_ATTR_MODERATE};
    struct ibv_context *context = pair.a.pd->context;
    struct ibv_srq *shared;
    uint32_t number;

    ck_assert_int_eq(ibv_resize_cq(pair.a.cq, 8192), EOPNOTSUPP);
    ck_unsupported_errno(ibv_create_cq_ex(context, &cq) == NULL);
    ck_assert_int_eq(ibv_modify_cq(pair.a.cq, &moderate), EOPNOTSUPP);
    ck_unsupported_errno(ibv_create_srq_ex(context, &srq) == NULL);
    shared = ibv_create_srq(pair.a.pd, &basic);
    ck_assert_ptr_nonnull(shared);
    ck_assert_int_eq(ibv_modify_srq(shared, &resize, IBV_SRQ_MAX_WR), EOPNOTSUPP);
    ck_assert_int_eq(ibv_get_srq_num(shared, &number), EOPNOTSUPP);
    ck_assert_int_eq(ibv_destroy_srq(shared), 0);
}
END_TEST

START_TEST(queue_pairs)
{
    struct ibv_qp *qp = pair.a.id->qp;
    struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_UD,
                                    .send_cq = pair.a.cq,
                                    .recv_cq = pair.a.cq,
                                    .cap = {.max_send_wr = 1, .max_recv_wr = 1}};
    struct ibv_qp_init_attr_ex extended = {.qp_type = IBV_QPT_RC,
                                           .send_cq = pair.a.cq,
                                           .recv_cq = pair.a.cq,
                                           .cap = {.max_send_wr = 1, .max_recv_wr = 1},
                                           .comp_mask = IBV_QP_INIT_ATTR_PD |
                                                        IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
                                           .pd = pair.a.pd};
    struct ibv_ece ece = {0};
    struct ibv_qp *basic;

    ck_unsupported_errno(ibv_create_qp(pair.a.pd, &init) == NULL);
    init.qp_type = IBV_QPT_UC;
    ck_unsupported_errno(ibv_create_qp(pair.a.pd, &init) == NULL);
    init.qp_type = IBV_QPT_RAW_PACKET;
    ck_unsupported_errno(ibv_create_qp(pair.a.pd, &init) == NULL);
    ck_unsupported_errno(ibv_create_qp_ex(pair.a.pd->context, &extended) == NULL);
    extended.comp_mask = IBV_QP_INIT_ATTR_PD; /* nothing extended in it: an ordinary queue pair */
    basic = ibv_create_qp_ex(pair.a.pd->context, &extended);
    ck_assert_ptr_nonnull(basic);
    ck_assert_int_eq(ibv_destroy_qp(basic), 0);
    ck_unsupported_errno(ibv_qp_to_qp_ex(qp) == NULL);
    ck_assert_int_eq(ibv_query_ece(qp, &ece), EOPNOTSUPP);
    ck_assert_int_eq(ibv_set_ece(qp, &ece), EOPNOTSUPP);
    ck_assert_int_eq(ibv_query_qp_data_in_order(qp, IBV_WR_RDMA_WRITE, 0), 0);
}
END_TEST

/* Work requests that iWARP or this device does not have are refused as they are posted. */
START_TEST(work_requests)
{
    static const enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_WRITE_WITH_IMM,
                                                 IBV_WR_SEND_WITH_IMM,
                                                 IBV_WR_ATOMIC_CMP_AND_SWP,
                                                 IBV_WR_ATOMIC_FETCH_AND_ADD,
                                                 IBV_WR_LOCAL_INV,
                                                 IBV_WR_BIND_MW,
                                                 IBV_WR_TSO};

    for (size_t i = 0; i < sizeof(opcodes) / sizeof(opcodes[0]); i++) {
        struct ibv_sge sge = {at(&pair.a, 0), 8, pair.a.mr->lkey};
        struct ibv_send_wr wr = {.wr_id = i, .opcode = opcodes[i], .sg_list = &sge, .num_sge = 1};
        struct ibv_send_wr *bad = NULL;

        ck_assert_int_eq(ibv_post_send(pair.a.id->qp, &wr, &bad), EOPNOTSUPP);
        ck_assert_ptr_eq(bad, &wr);
    }
    /* The connection is none the worse for it. */
    ck_assert_int_eq(post(&pair.a, 99, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 0, 8, at(&pair.b, 0),
                          pair.b.mr->rkey),
                     0);
    expect_wc(&pair.a, 99, IBV_WC_SUCCESS);
}
END_TEST

/* Verbs that exist only in the extended table, through their inline wrappers. */
START_TEST(extended_verbs)
{
    struct ibv_context *context = pair.a.pd->context;
    struct ibv_xrcd_init_attr xrcd = {0};
    struct ibv_alloc_dm_attr dm = {.length = 64};
    struct ibv_td_init_attr td = {0};
    struct ibv_parent_domain_init_attr parent = {.pd = pair.a.pd};
    struct ibv_wq_init_attr wq = {0};
    struct ibv_rwq_ind_table_init_attr table = {0};
    struct ibv_flow_attr flow = {0};
    struct ibv_counters_init_attr counters = {0};
    struct ibv_qp_rate_limit_attr limit = {0};
    struct ibv_qp_open_attr open = {0};
    struct ibv_values_ex values = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};
    struct ibv_sge sge = {at(&pair.a, 0), 4096, pair.a.mr->lkey};

    ck_unsupported_errno(ibv_open_xrcd(context, &xrcd) == NULL);
    ck_unsupported_errno(ibv_alloc_dm(context, &dm) == NULL);
    ck_unsupported_errno(ibv_alloc_td(context, &td) == NULL);
    ck_unsupported_errno(ibv_alloc_parent_domain(context, &parent) == NULL);
    ck_unsupported_errno(ibv_alloc_null_mr(pair.a.pd) == NULL);
    ck_unsupported_errno(ibv_create_wq(context, &wq) == NULL);
    ck_unsupported_errno(ibv_create_rwq_ind_table(context, &table) == NULL);
    ck_unsupported_errno(ibv_create_flow(pair.a.id->qp, &flow) == NULL);
    ck_unsupported_errno(ibv_create_counters(context, &counters) == NULL);
    ck_unsupported_errno(ibv_open_qp(context, &open) == NULL);
    ck_assert_int_eq(ibv_modify_qp_rate_limit(pair.a.id->qp, &limit), EOPNOTSUPP);
    ck_assert_int_eq(ibv_query_rt_values_ex(context, &values), EOPNOTSUPP);
    ck_assert_int_eq(ibv_advise_mr(pair.a.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1),
                     EOPNOTSUPP);
}
END_TEST

START_TEST(connections)
{
    struct sockaddr_in group = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0xe0000101)};
    struct rdma_cm_join_mc_attr_ex join = {.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS};
    struct ibv_qp_init_attr_ex extended = {.qp_type = IBV_QPT_RC,
                                           .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD,
                                           .pd = pair.a.pd};
    struct ibv_srq_init_attr_ex srq = {.comp_mask = IBV_SRQ_INIT_ATTR_TYPE,
                                       .srq_type = IBV_SRQT_XRC};
    struct rdma_cm_id *id, *fresh;
    struct ibv_ece ece = {0};
    int value = 0;

    id = pair.a.id;
    ck_unsupported_errno(rdma_join_multicast(id, (struct sockaddr *)&group, NULL) == -1);
    ck_unsupported_errno(rdma_join_multicast_ex(id, &join, NULL) == -1);
    ck_unsupported_errno(rdma_leave_multicast(id, (struct sockaddr *)&group) == -1);
    ck_unsupported_errno(rdma_set_local_ece(id, &ece) == -1);
    ck_unsupported_errno(rdma_get_remote_ece(id, &ece) == -1);
    ck_unsupported_errno(rdma_create_srq_ex(id, &srq) == -1);
    ck_assert_int_eq(rdma_create_id(pair.channel, &fresh, NULL, RDMA_PS_UDP), -1);
    ck_assert_int_eq(errno, EPROTONOSUPPORT);
    ck_assert_int_eq(rdma_create_id(pair.channel, &fresh, NULL, RDMA_PS_IB), -1);
    ck_assert_int_eq(errno, EPROTONOSUPPORT);
    ck_assert_int_eq(rdma_create_id(pair.channel, &fresh, NULL, RDMA_PS_IPOIB), -1);
    ck_assert_int_eq(errno, EPROTONOSUPPORT);
    ck_assert_int_eq(rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &value, 4), -1);
    ck_assert_int_eq(errno, ENOSYS);
    ck_assert_int_eq(rdma_set_option(id, RDMA_OPTION_ID, 99, &value, 4), -1);
    ck_assert_int_eq(errno, EINVAL);
    ck_assert_int_eq(rdma_notify(id, IBV_EVENT_COMM_EST), 0);
    fresh = resolve(pair.channel, rdma_get_src_port(pair.listener));
    ck_unsupported_errno(rdma_create_qp_ex(fresh, &extended) == -1);
    /* Nothing to refuse: the id holds no request. */
    ck_assert_int_eq(rdma_reject_ece(fresh, NULL, 0), -1);
    ck_assert_int_eq(errno, EINVAL);
    ck_assert_int_eq(rdma_destroy_id(fresh), 0);
}
END_TEST

START_TEST(helpers)
{
    struct pollfd ends[1];
    char text[64];
    int pipes[2];

    ck_unsupported_errno(rsocket(AF_INET, SOCK_STREAM, 0) == -1);
    ck_assert_int_eq(pipe(pipes), 0);
    ends[0] = (struct pollfd){.fd = pipes[0], .events = POLLIN};
    ck_assert_int_eq(rpoll(ends, 1, 0), 0);
    ck_assert_int_eq(write(pipes[1], "x", 1), 1);
    ck_assert_int_eq(rpoll(ends, 1, 1000), 1);
    ck_assert_int_eq(ends[0].revents, POLLIN);
    close(pipes[0]);
    close(pipes[1]);
    {
        int ibv_read_sysfs_file(const char *, const char *, char *, size_t);

        ck_assert_int_eq(
            ibv_read_sysfs_file("/sys/class/infiniband/softrdma0", "board_id", text, sizeof(text)),
            -1);
        ck_assert_int_gt(ibv_read_sysfs_file("/proc/sys/kernel", "ostype", text, sizeof(text)), 0);
        ck_assert_str_eq(text, "Linux");
    }
    ck_assert_int_eq(ibv_fork_init(), 0);
    ck_assert_int_eq(ibv_is_fork_initialized(), IBV_FORK_UNNEEDED);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("softrdma_unsupported");
    TCase *tcase = tcase_create("unsupported");

    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, registration);
    tcase_add_test(tcase, windows);
    tcase_add_test(tcase, datagrams);
    tcase_add_test(tcase, queues);
    tcase_add_test(tcase, queue_pairs);
    tcase_add_test(tcase, work_requests);
    tcase_add_test(tcase, extended_verbs);
    tcase_add_test(tcase, connections);
    tcase_add_test(tcase, helpers);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
