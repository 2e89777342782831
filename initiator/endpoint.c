/* SPDX-License-Identifier: BSD-2-Clause */
/* endpoint -- one rdma_cm_id on its way to a connection (see endpoint.h) */
#include "endpoint.h"

#include <errno.h>
#include <string.h>

#include "common/clock.h"
#include "common/verbs.h"
#include "control.h"

/* Waits until the endpoint has come to `wanted`: 0, -EIO when it failed, -ETIMEDOUT, -ECANCELED
 * when the whole connection failed meanwhile. */
static int wait_for(struct rblk_endpoint *ep, enum rblk_endpoint_state wanted, uint64_t deadline_ns)
{
    struct rblk_conn *conn = ep->conn;
    int rc = 0;

    pthread_mutex_lock(&conn->lock);
    while (ep->state != wanted) {
        if (ep->state == RBLK_ENDPOINT_FAILED || ep->state == RBLK_ENDPOINT_GONE)
            rc = -EIO;
        else if (rblk_conn_failed(conn))
            rc = -ECANCELED;
        else
            rc = rblk_conn_wait(conn, deadline_ns);
        if (rc)
            break;
    }
    pthread_mutex_unlock(&conn->lock);
    return rc;
}

int rblk_endpoint_open(struct rblk_endpoint *ep, struct rblk_conn *conn,
                       const struct sockaddr *address, uint64_t deadline_ns)
{
    int left = rblk_deadline_left_ms(deadline_ns);
    int rc;

    memset(ep, 0, sizeof(*ep));
    ep->conn = conn;
    if (left == 0)
        return -ETIMEDOUT;
    if (rdma_create_id(conn->events, &ep->id, ep, RDMA_PS_TCP)) {
        rc = -errno;
        ep->id = NULL;
        return rc;
    }
    if (rdma_resolve_addr(ep->id, NULL, (struct sockaddr *)address, left))
        return -errno;
    rc = wait_for(ep, RBLK_ENDPOINT_ADDRESS, deadline_ns);
    if (rc)
        return rc;
    left = rblk_deadline_left_ms(deadline_ns);
    if (left == 0)
        return -ETIMEDOUT;
    if (rdma_resolve_route(ep->id, left))
        return -errno;
    return wait_for(ep, RBLK_ENDPOINT_ROUTE, deadline_ns);
}

int rblk_endpoint_connect(struct rblk_endpoint *ep, uint8_t reads, const void *private_data,
                          uint8_t private_len, uint64_t deadline_ns)
{
    struct rdma_conn_param param;

    /* The target issues no reads, so none are served. */
    rblk_conn_param(&param, reads, 0, private_data, private_len);
    if (rdma_connect(ep->id, &param))
        return -errno;
    return wait_for(ep, RBLK_ENDPOINT_CONNECTED, deadline_ns);
}

void rblk_endpoint_destroy_qp(struct rblk_endpoint *ep)
{
    if (ep->id && ep->id->qp)
        rdma_destroy_qp(ep->id);
}

void rblk_endpoint_close(struct rblk_endpoint *ep)
{
    if (!ep->id)
        return;
    rblk_endpoint_destroy_qp(ep);
    rdma_destroy_id(ep->id);
    ep->id = NULL;
}

static void keep_private_data(struct rblk_endpoint *ep, const struct rdma_conn_param *param)
{
    ep->private_len = 0;
    if (!param->private_data)
        return;
    ep->private_len = param->private_data_len < sizeof(ep->private_data) ? param->private_data_len
                                                                         : sizeof(ep->private_data);
    memcpy(ep->private_data, param->private_data, ep->private_len);
}

bool rblk_endpoint_event(struct rblk_endpoint *ep, const struct rdma_cm_event *event)
{
    struct rblk_conn *conn = ep->conn;
    bool lost = false;

    pthread_mutex_lock(&conn->lock);
    switch (event->event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
        ep->state = RBLK_ENDPOINT_ADDRESS;
        break;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
        ep->state = RBLK_ENDPOINT_ROUTE;
        break;
    case RDMA_CM_EVENT_ESTABLISHED:
        keep_private_data(ep, &event->param.conn);
        ep->state = RBLK_ENDPOINT_CONNECTED;
        break;
    case RDMA_CM_EVENT_REJECTED:
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_CONNECT_ERROR:
        if (event->event == RDMA_CM_EVENT_REJECTED)
            keep_private_data(ep, &event->param.conn);
        ep->event = event->event;
        ep->status = event->status;
        ep->state = RBLK_ENDPOINT_FAILED;
        break;
    case RDMA_CM_EVENT_DISCONNECTED:
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
        lost = ep->state == RBLK_ENDPOINT_CONNECTED;
        ep->event = event->event;
        ep->status = event->status;
        ep->state = RBLK_ENDPOINT_GONE;
        break;
    default:
        /* ADDR_CHANGE and TIMEWAIT_EXIT tell nothing that a connection here depends on. */
        break;
    }
    pthread_cond_broadcast(&conn->cond);
    pthread_mutex_unlock(&conn->lock);
    return lost;
}
