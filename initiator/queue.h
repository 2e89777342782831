/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * queue -- one I/O queue: requests, send queue accounting, wake-ups
 *
 * Owners and locks
 * - q->lock guards everything in struct rblk_queue that is not marked otherwise, and posting to the
 *   queue pair and polling the completion queue. Callbacks run without it.
 * - Whoever calls rblk_queue_poll drives the queue. The control thread only takes completions
 *   (rblk_link_reap) when a recall or a failure needs it and nobody else does; it moves finished
 *   requests to `done` and kicks the queue's descriptor, so callbacks still run in a poller.
 * - sync_lock guards what the synchronous calls share (sync.c); it is a leaf.
 *
 * Life of a request
 *   FREE -> WAITING   accepted, in `reads` or `writes`; parts of it may have been posted
 *        -> PARKED    a read whose next extent is not mapped, in `parked`; later WAITING again
 *        -> ISSUED    every part is posted, `outstanding` of them are not complete
 *        -> DONE      in `done`, waits for its callback
 * A request is kept whole until its callback: buf, offset, len and flags say all that is needed to
 * issue it again.
 *
 * Send queue. Every work request has a serial number, which is its wr_id and its place in the ring
 * `sq`. Work completes in order, so one completion accounts for all before it. Only the last read
 * of a request in a batch is signalled, and of the rest one in sq_signal; sq_signal is at most a
 * quarter of the ring, so the part that no completion is due for can never fill it.
 *
 * Buffers. A slot's message, its staging run and the copied data of a write are reused when the
 * completion message of the slot arrives: the target sends it after it received the command, and a
 * reliable connection delivers in order, so command and data have left these buffers for good
 * (a late retransmission is discarded by the receiver as a duplicate). Only the ring entries wait
 * for a work completion.
 */
#ifndef RBLK_INITIATOR_QUEUE_H
#define RBLK_INITIATOR_QUEUE_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/run_alloc.h"
#include "endpoint.h"
#include "handle.h"
#include "pool.h"

#define RBLK_QUEUE_REQUESTS 256u     /* requests accepted at once */
#define RBLK_QUEUE_READS 256u        /* reads posted at once; the device starts as many as it may */
#define RBLK_BATCH_MAX 64u           /* work requests of one ibv_post_send */
#define RBLK_REAP_MAX 32             /* completions of one ibv_poll_cq */
#define RBLK_RECEIVE_STRIDE 64u      /* bytes of one receive buffer */
#define RBLK_RECEIVE_WR (1ull << 63) /* wr_id of receives */

enum rblk_request_kind { RBLK_REQUEST_READ, RBLK_REQUEST_WRITE, RBLK_REQUEST_FLUSH };

enum rblk_request_state {
    RBLK_REQUEST_FREE,
    RBLK_REQUEST_WAITING,
    RBLK_REQUEST_PARKED,
    RBLK_REQUEST_ISSUED,
    RBLK_REQUEST_DONE,
};

struct rblk_request {
    struct rblk_request *next;
    enum rblk_request_state state;
    enum rblk_request_kind kind;
    unsigned int flags; /* RBLK_FUA */
    uint8_t *buf;
    uint64_t len, offset; /* bytes */
    uint64_t issued;      /* bytes that are posted */
    uint32_t outstanding; /* parts posted and not complete */
    int error;            /* the first one: 0 or negative errno */
    bool copied;          /* buf is not registered */
    uint32_t lkey;        /* of buf when it is */
    int region;           /* index of the caller's region, or -1 */
    rblk_callback callback;
    void *opaque;
};

struct rblk_request_list {
    struct rblk_request *head, *tail;
};

/* What a ring entry of the send queue stands for; request NULL: a part of a write. */
struct rblk_sq_entry {
    struct rblk_request *request;
    uint8_t *copy;            /* pool run that the read goes to, or NULL */
    uint32_t fetched, before; /* bytes in it, and how many of them come before what was asked for */
    uint8_t *dest;            /* where its bytes belong */
    uint32_t len;
};

struct rblk_slot {
    bool used;
    struct rblk_request *request;
    uint32_t staging_first, staging_units;
    uint8_t *copy; /* pool run that the data was copied to, or NULL */
    uint32_t len;
};

struct rblk_batch {
    uint32_t count;
    struct ibv_send_wr wr[RBLK_BATCH_MAX];
    struct ibv_sge sge[RBLK_BATCH_MAX][2];
};

enum rblk_queue_state {
    RBLK_QUEUE_LIVE,
    RBLK_QUEUE_DRAINING, /* queue pair in error, flushed work requests are collected */
    RBLK_QUEUE_DEAD,     /* no request is left, and nothing can touch a buffer */
};

/* A user's memory as this queue sees it: a copy, so that the data path shares no lock. */
struct rblk_queue_region {
    const uint8_t *addr;
    size_t len;
    uint32_t lkey, users; /* users: requests in flight that use it */
};

struct rblk_waiter;

struct rblk_queue {
    pthread_mutex_t lock;
    struct rblk *h;
    struct rblk_conn *conn;
    unsigned int index;
    enum rblk_queue_state state;

    struct rblk_request_list free, reads, writes, parked, done;
    unsigned int inflight; /* accepted and callback not yet returned */
    uint64_t finished;     /* requests that got a callback, ever */
    uint64_t progress;     /* completions taken, ever */
    struct rblk_request request[RBLK_QUEUE_REQUESTS];

    struct rblk_pool pool;
    struct ibv_mr *mr; /* of the pool's region */
    struct rblk_queue_region region[RBLK_REGIONS_MAX];
    unsigned int region_count; /* entries that may be in use */

    /* The connection's part. */
    struct rblk_endpoint endpoint;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    uint32_t max_io, max_inline; /* bytes */
    bool sends_inline;           /* commands without data travel in the work request */

    struct rblk_sq_entry *sq;
    uint64_t sq_posted, sq_completed; /* serial numbers */
    uint64_t sq_signalled;            /* one past the last signalled */
    uint64_t sq_read;                 /* one past the last read */
    uint32_t sq_size, sq_signal, sq_unsignalled;

    struct rblk_slot slot[RBLK_QUEUE_DEPTH_MAX];
    uint16_t free_slot[RBLK_QUEUE_DEPTH_MAX];
    uint32_t free_slots, depth;
    uint32_t slot_stride; /* bytes of a slot's message buffer */
    uint8_t *messages, *receives;
    uint32_t receives_posted;
    struct rblk_run_alloc staging;
    uint64_t staging_addr;
    uint32_t staging_rkey, staging_units;
    struct rblk_batch batch;

    /* Wake-ups. */
    int fd;      /* epoll: completion channel and kick_fd */
    int kick_fd; /* eventfd */
    _Atomic bool kicked;
    _Atomic unsigned int sleepers; /* threads in rblk_queue_wait */
    bool armed;                    /* an event of the completion queue is due or in the channel */
    bool slept;                    /* armed since the last poll: the channel may be readable */

    /* Control thread only: for finding a queue that makes no progress. */
    uint64_t stalled_progress, stalled_since_ns; /* since: 0 when it was not found stalled */

    /* Synchronous calls (sync.c), under sync_lock. */
    pthread_mutex_t sync_lock;
    struct rblk_waiter *waiters;
    bool has_leader;
    pthread_t leader;

    /* Adaptive spinning; the score is advice only: races are harmless, accesses relaxed. */
    uint64_t spin_limit_ns; /* set at creation; 0: never */
    _Atomic int spin_score;

    /* Counters, under lock. */
    struct rblk_stats stats;
};

/* -- queue.c --------------------------------------------------------------------------------- */

/* Allocates a queue with everything that outlives a connection, and its fd. 0 or -errno. */
int rblk_queue_create(struct rblk_queue **out, struct rblk *h, unsigned int index);
/* Frees; the queue is DEAD or never was connected. NULL is allowed. */
void rblk_queue_free(struct rblk_queue *q);
/* Makes rblk_queue_fd readable. */
void rblk_queue_kick(struct rblk_queue *q);
/* Runs the callbacks of finished requests, a bounded number: how many. No lock held. */
int rblk_queue_run_callbacks(struct rblk_queue *q);
/* Lock held: what the request still owns goes back, and it waits for its callback. */
void rblk_request_finish(struct rblk_queue *q, struct rblk_request *r);
/* Lock held: one part of the request is complete. */
void rblk_request_part_done(struct rblk_queue *q, struct rblk_request *r, int error);
/* Lock held: posts what can be posted of the waiting requests. */
void rblk_queue_pump(struct rblk_queue *q);

static inline void rblk_requests_push(struct rblk_request_list *l, struct rblk_request *r)
{
    r->next = NULL;
    if (l->head)
        l->tail->next = r;
    else
        l->head = r;
    l->tail = r;
}

static inline struct rblk_request *rblk_requests_pop(struct rblk_request_list *l)
{
    struct rblk_request *r = l->head;

    if (r)
        l->head = r->next;
    return r;
}

/* -- link.c: the queue's connection ---------------------------------------------------------- */

/*
 * Connects the queue: queue pair, completion queue, receives, and what the target granted. 0 or
 * -errno with the text kept.
 */
int rblk_link_open(struct rblk_queue *q, struct rblk_conn *conn, uint64_t deadline_ns);
/* Lock held: takes what completed. Returns how many completions there were. */
int rblk_link_reap(struct rblk_queue *q);
/* Lock held: posts the batch, with serial numbers and selective signalling. */
void rblk_link_post(struct rblk_queue *q);
/* Lock held: ring entries that are free. */
static inline uint32_t rblk_link_room(const struct rblk_queue *q)
{
    return q->sq_size - (uint32_t)(q->sq_posted - q->sq_completed) - q->batch.count;
}
/* Takes the queue pair to the error state; LIVE becomes DRAINING. */
void rblk_link_break(struct rblk_queue *q);
/*
 * Collects flushed work requests. When all are here every request ends with `error`, and the queue
 * is DEAD. Returns true when it is. For the thread that takes the connection down; so is the next.
 */
bool rblk_link_drain(struct rblk_queue *q, int error);
/*
 * Destroys the queue pair, which ends what could not be drained: the queue is DEAD. Some kernels
 * take long over it when packets are stuck in a network device (rxe, 50 s in Linux 6.1), so drain
 * all queues first.
 */
void rblk_link_destroy(struct rblk_queue *q, int error);
/* Control thread: an empty write, when work is outstanding and nothing has ever completed. */
void rblk_link_nudge(struct rblk_queue *q);
/*
 * Control thread, now and then: takes completions that nobody polls for. Nanoseconds for which work
 * has been outstanding without any completion.
 */
uint64_t rblk_link_stalled_ns(struct rblk_queue *q, uint64_t now_ns);
/* Frees what rblk_link_open made; the queue is DEAD or nobody else knows it. */
void rblk_link_close(struct rblk_queue *q);

/* -- read.c, write.c ------------------------------------------------------------------------- */

/* How many bytes of a read of `len` bytes one work request takes. left: in this extent. */
uint64_t rblk_read_piece(uint64_t len, uint64_t left, uint32_t max_io, bool copied);
/*
 * How many bytes the READ for a part of `len` bytes asks for: `len`, or more around it when that is
 * few (see read.c). within, left: bytes before and from the part's begin in its extent. before: how
 * many come before the part.
 */
uint32_t rblk_read_widen(uint32_t len, uint64_t within, uint64_t left, uint32_t *before);
/* Lock held: adds work requests for the waiting reads to the batch. */
void rblk_read_issue(struct rblk_queue *q);
/* Control thread: extents that parked reads want and that nobody has asked for become REQUESTED and
 * go to index[] in the order found; returns how many. */
uint32_t rblk_read_wanted(struct rblk_queue *q, uint64_t *index, uint32_t max);
/* Control thread: lets parked reads try again, and kicks. Those whose next extent is one of `count`
 * from `first` fail with error when that is not 0. */
void rblk_read_resume(struct rblk_queue *q, uint64_t first, uint32_t count, int error);
/* The serial number that must be complete before all reads posted so far are, and whether it is. */
uint64_t rblk_read_mark(struct rblk_queue *q);
bool rblk_read_drained(struct rblk_queue *q, uint64_t mark);

/* How many bytes of a write one command takes. */
uint32_t rblk_write_piece(uint64_t len, uint32_t max_io, uint32_t max_inline, bool copied,
                          bool has_staging);
/* Lock held: adds work requests for the waiting writes and flushes to the batch. */
void rblk_write_issue(struct rblk_queue *q);
/* Lock held: a completion message. -EPROTO when it cannot be right. */
int rblk_write_complete(struct rblk_queue *q, const uint8_t *message, size_t len);

/* -- register.c ------------------------------------------------------------------------------ */

/* Lock held: finds the registration that covers a request's buffer and counts it as a user. */
void rblk_region_use(struct rblk_queue *q, struct rblk_request *r);
void rblk_region_done(struct rblk_queue *q, struct rblk_request *r);

/* -- sync.c ---------------------------------------------------------------------------------- */

/* Polls the queue for a short while when that has paid lately: what rblk_queue_poll returned, 0
 * when nothing came. */
int rblk_queue_spin(struct rblk_queue *q);

#endif
