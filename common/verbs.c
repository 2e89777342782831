/* SPDX-License-Identifier: BSD-2-Clause */
/* verbs -- the set-up of rdma-core objects that target and initiator share */
#include "verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/resource.h>

#include "clock.h"

int rblk_fd_nonblock(int fd)
{
    int flags = fcntl(fd, F_GETFL);

    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
        return -errno;
    return 0;
}

int rblk_cm_wait(struct rdma_event_channel *channel, uint64_t deadline_ns,
                 struct rdma_cm_event **event)
{
    for (;;) {
        struct pollfd pfd = {.fd = channel->fd, .events = POLLIN};
        struct rdma_cm_event *got;
        int rc = poll(&pfd, 1, rblk_deadline_left_ms(deadline_ns));

        if (rc == 0)
            return -ETIMEDOUT;
        if (rc < 0 && errno != EINTR)
            return -errno;
        if (rc < 0)
            continue;
        if (!(pfd.revents & POLLIN))
            return pfd.revents & POLLNVAL ? -EBADF : -EIO;
        if (rdma_get_cm_event(channel, &got) == 0) {
            *event = got;
            return 0;
        }
        /* Another thread took the event, or a signal came: wait for the next one. */
        if (errno != EAGAIN && errno != EINTR)
            return -errno;
    }
}

static int check_limits(struct ibv_context *device, const struct rblk_qp_limits *limits)
{
    struct ibv_device_attr attr;
    int rc = ibv_query_device(device, &attr); /* returns a positive errno */

    if (rc != 0)
        return rc > 0 ? -rc : -EIO;
    if (limits->send_wr > (uint32_t)attr.max_qp_wr || limits->recv_wr > (uint32_t)attr.max_qp_wr)
        return -E2BIG;
    if (limits->send_sge > (uint32_t)attr.max_sge || limits->recv_sge > (uint32_t)attr.max_sge)
        return -EMSGSIZE;
    return 0;
}

int rblk_qp_create(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_cq *send_cq,
                   struct ibv_cq *recv_cq, struct rblk_qp_limits *limits)
{
    struct ibv_qp_init_attr attr = {
        .send_cq = send_cq,
        .recv_cq = recv_cq,
        .cap =
            {
                .max_send_wr = limits->send_wr,
                .max_recv_wr = limits->recv_wr,
                .max_send_sge = limits->send_sge,
                .max_recv_sge = limits->recv_sge,
                .max_inline_data = limits->inline_data,
            },
        .qp_type = IBV_QPT_RC,
        .sq_sig_all = 0,
    };
    int rc;

    if (!id->verbs)
        return -EINVAL;
    rc = check_limits(id->verbs, limits);
    if (rc < 0)
        return rc;
    rc = rdma_create_qp(id, pd, &attr);
    if (rc && limits->inline_data) {
        limits->inline_data = attr.cap.max_inline_data = 0;
        rc = rdma_create_qp(id, pd, &attr);
    }
    return rc ? -errno : 0;
}

void rblk_conn_param(struct rdma_conn_param *p, uint8_t initiator_depth,
                     uint8_t responder_resources, const void *private_data, uint8_t private_len)
{
    memset(p, 0, sizeof *p);
    p->private_data = private_data;
    p->private_data_len = private_len;
    p->initiator_depth = initiator_depth;
    p->responder_resources = responder_resources;
    p->flow_control = 1;
    p->retry_count = 7;     /* the most that its 3 bits hold */
    p->rnr_retry_count = 6; /* 7 would mean for ever; credits make sure that none is needed */
}

bool rblk_cq_event_take(struct ibv_comp_channel *channel, struct ibv_cq *cq)
{
    struct ibv_cq *which;
    void *context;

    if (ibv_get_cq_event(channel, &which, &context) != 0)
        return false;
    ibv_ack_cq_events(cq, 1);
    return true;
}

int rblk_qp_nudge(struct ibv_qp *qp, uint64_t wr_id)
{
    struct ibv_send_wr wr = {.wr_id = wr_id, .opcode = IBV_WR_RDMA_WRITE}, *bad;

    return -ibv_post_send(qp, &wr, &bad);
}

uint64_t rblk_memlock_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_MEMLOCK, &limit) < 0)
        return 0;
    return limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit.rlim_cur;
}
