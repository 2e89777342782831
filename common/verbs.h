/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * verbs -- the set-up of rdma-core objects that target and initiator share
 *
 * Only what both need: bounded waits for CM events, queue pair creation with explicit limits, and
 * explicit connection parameters. Nothing here logs.
 */
#ifndef RBLK_COMMON_VERBS_H
#define RBLK_COMMON_VERBS_H

#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdint.h>

/* Sets O_NONBLOCK on a descriptor: 0 or -errno. */
int rblk_fd_nonblock(int fd);

/*
 * Waits until `deadline_ns` (rblk_now_ns clock) for the next event of the (non-blocking) channel.
 * 0 and *event (to be acked by the caller), -ETIMEDOUT, or -errno. With a deadline of 0 it only
 * looks.
 */
int rblk_cm_wait(struct rdma_event_channel *channel, uint64_t deadline_ns,
                 struct rdma_cm_event **event);

/* Everything that sizes a queue pair. */
struct rblk_qp_limits {
    uint32_t send_wr, recv_wr, send_sge, recv_sge; /* counts of work requests and entries */
    uint32_t inline_data;                          /* bytes */
};

/*
 * Creates an RC queue pair on id in pd with the CQs given (sq_sig_all = 0). Limits are compared
 * with ibv_query_device(3) first, because drivers answer a plain EINVAL: -E2BIG when send_wr or
 * recv_wr is more than the device's max_qp_wr, -EMSGSIZE when send_sge or recv_sge is more than its
 * max_sge, -EINVAL when id is not bound to a device yet, else what rdma_create_qp(3) failed with. 0
 * or -errno. inline_data is a wish, for which no device attribute exists: it is 0 afterwards when
 * the queue pair was to be had without only.
 */
int rblk_qp_create(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_cq *send_cq,
                   struct ibv_cq *recv_cq, struct rblk_qp_limits *limits);

/*
 * Fills a conn_param with everything explicit (DESIGN section 4): reads that this side issues
 * (initiator_depth), reads that it serves (responder_resources), retry_count 7, rnr_retry_count 6,
 * flow_control 1. The private data is not copied: it must stay until rdma_connect or rdma_accept.
 */
void rblk_conn_param(struct rdma_conn_param *p, uint8_t initiator_depth,
                     uint8_t responder_resources, const void *private_data, uint8_t private_len);

/*
 * Takes the completion event of cq, the only one on a non-blocking channel, and acknowledges it.
 * Returns whether there was one. A queue raises one event each time it is armed, so there is no other
 * to look for. Source: man ibv_req_notify_cq, ibv_get_cq_event.
 */
bool rblk_cq_event_take(struct ibv_comp_channel *channel, struct ibv_cq *cq);

/*
 * Posts an empty RDMA WRITE, which no end takes notice of, without asking for a completion: should it
 * be flushed, wr_id names it. Why: see control.c of the initiator. 0 or -errno.
 */
int rblk_qp_nudge(struct ibv_qp *qp, uint64_t wr_id);

/* Soft RLIMIT_MEMLOCK in bytes (UINT64_MAX: unlimited); CAP_IPC_LOCK would lift it unseen. */
uint64_t rblk_memlock_limit(void);

#endif
