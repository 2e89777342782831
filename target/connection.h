/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * connection -- a control connection: its queue pair, its message buffers, its deadlines
 *
 * What the messages mean is control.c's. Owner: the control thread.
 */
#ifndef RBLK_TARGET_CONNECTION_H
#define RBLK_TARGET_CONNECTION_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "queue.h"
#include "target.h"

/* Requests and acknowledgements that the peer may send before we have taken one. */
#define CONNECTION_RECEIVES (RBLK_CONTROL_REQUESTS + RBLK_CONTROL_EVENTS)
/* Replies and events on their way, and one more. */
#define CONNECTION_SENDS (RBLK_CONTROL_REQUESTS + RBLK_CONTROL_EVENTS + 1)
#define CONNECTION_WORK_REQUESTS (CONNECTION_RECEIVES + CONNECTION_SENDS)

enum connection_state {
    CONNECTION_ACCEPTED,  /* HELLO has not come */
    CONNECTION_OPEN,      /* HELLO is answered; heartbeats are watched */
    CONNECTION_LINGERING, /* the last message is on its way; nothing more is read */
    CONNECTION_CLOSING,   /* disconnect asked for; the peer has not confirmed */
    CONNECTION_DRAINING,  /* the queue pair is in error; its work requests come back */
};

struct connection {
    struct cm_owner owner;
    struct target *target;
    struct device *device;
    struct rdma_cm_id *id;
    uint32_t index, generation; /* in target->connections */
    enum connection_state state;
    uint8_t *buffers; /* CONNECTION_RECEIVES of RBLK_CONTROL_MAX bytes, then CONNECTION_SENDS */
    struct ibv_mr *mr;
    uint32_t receives_posted, sends_posted;
    uint64_t send_busy; /* one bit for each send buffer */
    char peer[PEER_TEXT_LEN];
    char client[RBLK_NAME_LEN]; /* what it calls itself; empty before HELLO */
    uint64_t deadline_ns;       /* of the state, or of the next sign of life */
    uint32_t keepalive_ms;
    uint64_t events_sent; /* number of the last event */
    uint32_t events_unacknowledged;
    struct session *session; /* NULL: no volume attached */
    bool leaving;            /* GOODBYE was said: finish when the session is gone */

    /* Requests that are answered later. */
    bool detach_pending, attach_pending;
    uint64_t detach_tag, attach_tag, attach_deadline_ns;
    struct rblk_attach attach;
};

/*
 * Connect request for a control connection: RBLK_STATUS_OK when accepted, else why it is to be
 * rejected.
 */
enum rblk_status connection_connect(struct target *t, struct rdma_cm_id *id);
void connection_established(struct connection *c);
void connection_disconnected(struct connection *c);
/* A work completion of some control connection. */
void connection_completion(struct target *t, const struct ibv_wc *wc);

/*
 * A free send buffer of RBLK_CONTROL_MAX bytes; NULL: the peer takes no replies, and the
 * connection was closed.
 */
uint8_t *connection_buffer(struct connection *c);
/* Sends the buffer that connection_buffer returned last. */
void connection_send(struct connection *c, const uint8_t *buffer, size_t len);
/* The peer broke the protocol: says so once, closes the connection. */
__attribute__((format(printf, 2, 3))) void connection_violation(struct connection *c,
                                                                const char *fmt, ...);
/* Closes as soon as what was sent has gone out. */
void connection_finish(struct connection *c);
/* Closes at once. */
void connection_close(struct connection *c);

/* The connection's session has been freed. */
void connection_session_gone(struct connection *c);
/* A session has been freed: attaches that waited for it are tried again. */
void connection_retry_attaches(struct target *t);
/* Looks at the deadlines of all connections, frees the ones that are done. */
void connection_tick(struct target *t, uint64_t now_ns);
/* Says goodbye to every client and finishes the connections (their sessions end by themselves). */
void connection_goodbye_all(struct target *t);

#endif
