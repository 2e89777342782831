/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * control -- one connection to a target: its control thread, requests, events, and its end
 *
 * Owners and locks
 * - The control thread alone reads the event channel and the control completion queue, sends
 *   heartbeats, changes extent states, and takes failed queues down. It never runs a caller's
 *   callback.
 * - conn->lock guards the calls (slots of requests), the endpoints' states, the text of the failure
 *   and the posting of control messages. It is a leaf for the data path: a thread may hold a
 *   queue's lock when it takes it, never the reverse.
 * - `failure` is set once, with release, after its text was written.
 * - mapping is the control thread's alone.
 *
 * Credits. At most RBLK_CONTROL_REQUESTS requests are unanswered (the slots) and the target sends
 * at most RBLK_CONTROL_EVENTS events that are not acknowledged; that many receives of each are
 * posted, and one is re-posted before the answer that gives its credit back is sent or the slot is
 * reused.
 */
#ifndef RBLK_INITIATOR_CONTROL_H
#define RBLK_INITIATOR_CONTROL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "common/wire.h"
#include "endpoint.h"
#include "handle.h"
#include "mapping.h"

/* The first slots are the control thread's own; they can always be had. */
#define RBLK_CALL_HEARTBEAT 0u
#define RBLK_CALL_MAP_FIRST 1u
#define RBLK_CALL_RELEASE (RBLK_CALL_MAP_FIRST + RBLK_MAPS_MAX)
#define RBLK_CALL_FIRST (RBLK_CALL_RELEASE + 1u)
#define RBLK_CONTROL_RECEIVES (RBLK_CONTROL_REQUESTS + RBLK_CONTROL_EVENTS)
/* Heartbeat intervals without an answer after which a peer is dead. */
#define RBLK_SILENT_INTERVALS 3u
/* A queue with I/O outstanding and no completion for this many time-outs is dead too, but never
 * sooner than an fdatasync of a busy disk may take. */
#define RBLK_STALLED_TIMEOUTS 6u
#define RBLK_STALLED_MIN_MS 60000u
/* Empty writes at most that follow the first message of a connection (control.c, nudge). */
#define RBLK_NUDGES 4u
/* How long flushed work requests are waited for before the queue pair is destroyed anyway. */
#define RBLK_DRAIN_MS 500u

enum rblk_call_state {
    RBLK_CALL_FREE,
    RBLK_CALL_RESERVED,  /* its owner encodes the message */
    RBLK_CALL_SENT,      /* waits for the reply */
    RBLK_CALL_ANSWERED,  /* the reply is here, its owner decodes it */
    RBLK_CALL_ABANDONED, /* its owner left; the reply is still due and keeps the slot */
};

struct rblk_call {
    enum rblk_call_state state;
    bool sending; /* the SEND is not complete: the buffer must not change */
    uint8_t type;
    uint64_t tag;     /* serial number * 16 + slot */
    uint8_t *message; /* RBLK_CONTROL_MAX registered bytes */
    size_t reply_len;
    uint64_t sent_ns, answered_ns;
    uint8_t reply[RBLK_CONTROL_MAX];
};

struct rblk_conn {
    struct rblk *h;
    pthread_mutex_t lock;
    pthread_cond_t cond; /* a call was answered, a slot became free, an endpoint moved, a failure */

    pthread_t thread;
    bool thread_started;
    bool stop;             /* the thread shall end */
    bool closing;          /* rblk_close runs: the end of a connection is no failure */
    bool live;             /* the control connection is up: cq belongs to the control thread */
    uint64_t keepalive_ns; /* heartbeat interval, 0: none yet */
    bool serving;          /* volume attached and queues open: mapping and queues may be touched */
    int wake_fd;
    _Atomic int failure; /* 0 or the negative errno of why the connection is no more */
    char failure_text[RBLK_ERROR_TEXT_MAX];

    struct rdma_event_channel *events;
    struct rblk_endpoint endpoint;
    struct sockaddr_storage peer;
    socklen_t peer_len;
    char address[80]; /* peer as text, host:port */
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    uint8_t *memory; /* page aligned: call messages, acknowledgements, receives */
    size_t memory_len;
    struct ibv_mr *mr;
    struct rblk_hello_reply hello;

    uint64_t serial;
    struct rblk_call call[RBLK_CONTROL_REQUESTS];
    bool ack_sending[RBLK_CONTROL_EVENTS];
    /* Events received whose acknowledgement has no free buffer yet. */
    uint64_t ack_waiting[RBLK_CONTROL_EVENTS];
    uint32_t ack_waiting_count;

    /* Control thread only. */
    uint64_t heard_ns, ping_due_ns;
    struct rblk_nudging {
        unsigned int done;
        uint64_t due_ns; /* of the next; 0: no time yet, UINT64_MAX: there is none */
    } nudging, queue_nudging;
    bool armed, draining, drained;
    uint64_t drain_deadline_ns;
    struct rblk_mapping mapping;
};

/* -- control.c: life ------------------------------------------------------------------------- */

/* Makes the event channel and starts the control thread. 0 or -errno with the text kept on h. */
int rblk_conn_create(struct rblk_conn **out, struct rblk *h);
/* Ends the control thread. Afterwards everything of the connection is the caller's alone. */
void rblk_conn_stop(struct rblk_conn *conn);
/* Frees everything but the queues; rblk_conn_stop was called. NULL is allowed. */
void rblk_conn_free(struct rblk_conn *conn);
/* The control connection is established: the control thread takes its completion queue over. */
void rblk_conn_go_live(struct rblk_conn *conn);
/* HELLO is done: heartbeats begin. */
void rblk_conn_keep_alive(struct rblk_conn *conn, uint32_t interval_ms);
/* Queues and extent table stand. */
void rblk_conn_serve(struct rblk_conn *conn);

/* -- control.c: from any thread -------------------------------------------------------------- */

/* Marks the connection failed (the first reason stays) and wakes the control thread, which takes
 * the queues down. error: negative errno. Any lock but conn->lock may be held. */
__attribute__((format(printf, 3, 4))) void rblk_conn_fail(struct rblk_conn *conn, int error,
                                                          const char *fmt, ...);
static inline int rblk_conn_failed(const struct rblk_conn *conn)
{
    return atomic_load_explicit(&conn->failure, memory_order_acquire);
}
/* Makes the control thread look at queues and flags. */
void rblk_conn_wake(struct rblk_conn *conn);
/* Waits for conn->cond, conn->lock held: 0 (look again), or -ETIMEDOUT. */
int rblk_conn_wait(struct rblk_conn *conn, uint64_t deadline_ns);

/* -- call.c: requests ------------------------------------------------------------------------ */

/* Allocates and registers the message buffers and posts every receive; the queue pair exists. 0 or
 * -errno. */
int rblk_calls_setup(struct rblk_conn *conn);
/*
 * A request of the calling thread: reserve a slot, encode into call->message with call->tag, send
 * and wait, decode call->reply, end. begin: 0, -ETIMEDOUT, or the connection's failure. exchange:
 * 0, the errno of a refusing status with the target's words in detail[RBLK_DETAIL_MAX + 1],
 * -ETIMEDOUT, or the connection's failure (detail empty). After either outcome rblk_call_end is
 * due.
 */
int rblk_call_begin(struct rblk_conn *conn, struct rblk_call **out, uint64_t deadline_ns);
int rblk_call_exchange(struct rblk_conn *conn, struct rblk_call *call, size_t len,
                       uint64_t deadline_ns, uint16_t *status, char *detail);
void rblk_call_end(struct rblk_conn *conn, struct rblk_call *call);
/* The control thread's own requests: takes a slot of its own when that is free; the reply comes to
 * rblk_control_reply. */
struct rblk_call *rblk_call_take(struct rblk_conn *conn, unsigned int slot);
int rblk_call_post(struct rblk_conn *conn, struct rblk_call *call, size_t len);
/* The control thread: takes completions of the control connection. */
void rblk_calls_progress(struct rblk_conn *conn);
/* The control thread: an empty write on the control connection. */
void rblk_calls_nudge(struct rblk_conn *conn);

/* -- control.c: the control thread's half of call.c ------------------------------------------ */

/* A reply to one of the control thread's own requests; slot says which. */
void rblk_control_reply(struct rblk_conn *conn, unsigned int slot, const struct rblk_call *call);
/* An event of the target; its acknowledgement is sent already. */
void rblk_control_event(struct rblk_conn *conn, uint8_t type, const uint8_t *message, size_t len);

#endif
