/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * endpoint -- one rdma_cm_id on its way to a connection
 *
 * Owners and locks. The thread that connects makes the calls and waits; the control thread, which
 * alone reads the event channel, turns events into states under rblk_conn.lock and acknowledges
 * each at once, so that rdma_destroy_id never waits for anybody but it.
 */
#ifndef RBLK_INITIATOR_ENDPOINT_H
#define RBLK_INITIATOR_ENDPOINT_H

#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdint.h>

struct rblk_conn;
struct rblk_queue;

enum rblk_endpoint_state {
    RBLK_ENDPOINT_IDLE,
    RBLK_ENDPOINT_ADDRESS,   /* the peer's address is resolved: the device is known */
    RBLK_ENDPOINT_ROUTE,     /* the route is resolved: ready for rdma_connect */
    RBLK_ENDPOINT_CONNECTED, /* accepted: private_data is what the target answered */
    RBLK_ENDPOINT_FAILED,    /* event and status say why; private_data of a reject */
    RBLK_ENDPOINT_GONE,      /* was connected */
};

#define RBLK_ENDPOINT_PRIVATE_MAX 64 /* bytes of the answer that are kept */

struct rblk_endpoint {
    struct rblk_conn *conn;
    struct rdma_cm_id *id;
    enum rblk_endpoint_state state;
    enum rdma_cm_event_type event;
    int status;
    uint8_t private_data[RBLK_ENDPOINT_PRIVATE_MAX];
    size_t private_len;
};

/*
 * Makes the id and resolves address and route. 0, -ETIMEDOUT, -EIO when an event said no
 * (ep->event, ep->status), or the errno of a call. On failure rblk_endpoint_close is still due.
 */
int rblk_endpoint_open(struct rblk_endpoint *ep, struct rblk_conn *conn,
                       const struct sockaddr *address, uint64_t deadline_ns);
/* Connects; the queue pair stands. Errors as above. */
int rblk_endpoint_connect(struct rblk_endpoint *ep, uint8_t reads, const void *private_data,
                          uint8_t private_len, uint64_t deadline_ns);
/* Destroys the queue pair, if there is one. */
void rblk_endpoint_destroy_qp(struct rblk_endpoint *ep);
/* Destroys queue pair and id. Allowed on what never opened. */
void rblk_endpoint_close(struct rblk_endpoint *ep);
/*
 * The control thread hands over one event of this endpoint (not yet acknowledged). True: an
 * established connection is lost.
 */
bool rblk_endpoint_event(struct rblk_endpoint *ep, const struct rdma_cm_event *event);

#endif
