/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * queue -- an I/O queue: its connection, its memory, its requests
 *
 * Owners: the control thread makes a queue, hands it to one reactor for life and takes it back
 * when the reactor reports it drained. In between each field has the owner that its group names;
 * no lock guards them. The control thread owns everything of rdma_cm (queue.c); the reactor posts
 * work requests, takes completions and runs the requests (io.c).
 */
#ifndef RBLK_TARGET_QUEUE_H
#define RBLK_TARGET_QUEUE_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "target.h"

#define PEER_TEXT_LEN 80

/* What the control thread orders (mail to_reactor). */
#define QUEUE_ORDER_ADOPT 1u  /* serve it from now on */
#define QUEUE_ORDER_FINISH 2u /* the target stops: begin nothing, answer what is in flight */
#define QUEUE_ORDER_DRAIN 4u /* the queue pair is in error: collect everything, then give it back */

/* What the reactor reports (mail to_control). */
#define QUEUE_REPORT_BROKEN 1u   /* the connection failed, or the peer broke the protocol */
#define QUEUE_REPORT_FINISHED 2u /* everything in flight is answered */
#define QUEUE_REPORT_DRAINED 4u  /* the reactor has forgotten the queue */

/* How far the reactor is with a queue. */
enum queue_state {
    QUEUE_SERVING,   /* commands are executed */
    QUEUE_FINISHING, /* commands in flight are finished and answered, new ones are not begun */
    QUEUE_BROKEN,    /* nothing is posted any more; the control thread has been told */
    QUEUE_DRAINING,  /* waits for every work request and every io_uring operation to come back */
};

/* Life of a request, which is also that of its receive buffer. */
enum request_state {
    REQUEST_RECEIVING, /* its receive is posted */
    REQUEST_WRITING,   /* io_uring writes its data, or what the reactor has left of it */
    REQUEST_SYNCING,   /* io_uring runs its fdatasync: a flush, or the second half of FUA */
    REQUEST_FINISHED,  /* its reply waits to be sent, its receive to be posted again */
};

struct request {
    struct queue *queue;
    uint16_t receive; /* number of its receive buffer */
    uint16_t retries; /* times that io_uring asked to try again */
    enum request_state state;
    uint8_t opcode, flags; /* of the command */
    uint16_t slot;
    uint32_t done, length; /* bytes written, and to be written */
    uint64_t offset;       /* in the volume, bytes */
    const uint8_t *data;   /* in the message or in staging memory */
};

struct reply {
    uint16_t slot, status;
};

struct queue {
    struct cm_owner owner;

    /* Set before the hand-over, then read-only for both. */
    struct target *target;
    struct session *session;
    struct volume *volume;
    struct reactor *reactor;
    struct reactor_cq *cq;
    struct rdma_cm_id *id;
    struct ibv_qp *qp;
    uint32_t index, generation; /* in the reactor's table */
    uint16_t queue_id, depth;
    bool read_only, sends_inline;
    uint32_t max_inline; /* bytes of write data in a message */
    uint32_t max_io;     /* bytes of one write */
    uint32_t stride;     /* bytes from one receive buffer to the next */
    uint8_t *messages;   /* depth receive buffers, then depth completions when not sent inline */
    size_t messages_len;
    uint8_t *completions; /* inside messages; NULL when sent inline */
    struct ibv_mr *messages_mr;
    uint8_t *staging;     /* remotely writable; NULL for readers */
    uint32_t staging_len; /* bytes */
    struct ibv_mr *staging_mr;
    char peer[PEER_TEXT_LEN];

    struct mail to_reactor, to_control; /* guarded by the mailboxes' locks */

    /* Control thread. */
    struct queue *next; /* in target->queues */
    bool established, disconnected, closing, in_error;
    uint64_t
        deadline_ns; /* of being established, or of the peer's disconnecting; UINT64_MAX: none */

    /* Reactor (initialised before the hand-over). */
    enum queue_state state;
    struct request *requests; /* depth of them */
    uint64_t slots_in_use[4]; /* one bit for each slot of the peer */
    struct reply *replies;    /* ring of depth entries: finished, not sent */
    uint32_t reply_first, reply_count;
    uint16_t *reposts; /* receive buffers to be posted again */
    uint32_t repost_count;
    uint32_t receives_posted;
    uint32_t sends_posted;      /* not known to be complete */
    uint32_t sends_unsignalled; /* posted since the last signalled one */
    uint32_t sends_signalled;   /* signalled ones not complete */
    uint32_t send_limit;        /* room of the send queue */
    uint32_t ring_operations;   /* in io_uring now */
    bool marker_pending;
    bool reported_finished;
    bool dirty; /* in the reactor's list of queues with something to post */
    struct queue *dirty_next;
    uint64_t drain_deadline_ns;
};

/*
 * Connect request for an I/O queue of this session: 0 when it was accepted, else why it is to be
 * rejected.
 */
enum rblk_status queue_connect(struct target *t, struct session *s, struct rdma_cm_id *id,
                               const struct rblk_connect *m, const struct rdma_conn_param *request);
/* The connection is up. */
void queue_established(struct queue *q);
/* The peer or the device has ended the connection. */
void queue_disconnected(struct queue *q);
/*
 * Ends a queue; it is gone when its reactor has drained it. With `abrupt` the queue pair goes into
 * error at once, otherwise when the peer has disconnected too, or after a bounded time. May be
 * called again.
 */
void queue_close(struct queue *q, bool abrupt);
/* The target stops: lets the queue finish what is in flight, then close. */
void queue_finish(struct queue *q);
/* A reactor's report; may free the queue. */
void queue_report(struct target *t, struct mail *mail, unsigned int flags);
/* Looks at the deadlines of all queues. */
void queue_tick(struct target *t, uint64_t now_ns);

#endif
