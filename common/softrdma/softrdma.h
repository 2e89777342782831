/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * softrdma.h -- types shared inside the software RDMA device, and its rules for threads and locks
 *
 * Threads
 *   Application threads call the verbs and the connection manager. Provider workers (1 by default,
 *   RBLK_SOFTRDMA_WORKERS), started at first use, each wait on an epoll descriptor. A queue pair's
 *   socket belongs to one worker for life. Worker 0 also owns listeners, MPA handshakes and
 *   connects in progress. All signals are blocked in workers.
 *
 *   Whoever holds a queue pair's rx_lock drives its receive side: its worker on EPOLLIN, or an
 *   application thread inside ibv_poll_cq or ibv_get_cq_event. A socket whose completions an
 *   application thread waits for is *delegated*: taken out of the worker's epoll and (for a
 *   completion channel with O_NONBLOCK) put into the channel's, so that data wakes that thread
 *   directly. The worker's tick takes a socket back that sits unattended or idle.
 *
 * Lifetime
 *   Memory regions, queue pairs and connection ids live in slot tables. A reference is one
 *   compare-and-swap on {tag, users}; destroying an object clears the tag and waits for users to
 *   reach 0. References are held only around one non-blocking pass, so that wait is short.
 *
 * Locks, in the order in which they may be taken
 *   1. soft_cm_id.lock       state of a connection id, its socket and handshake
 *   2. soft_qp.rx_lock       receive state machine of a queue pair
 *   3. soft_qp.tx_lock       send queue, transmit state, epoll registration, delegation
 *   4. leaves, never held together except as written:
 *      soft_rq.lock          a receive queue
 *      soft_cq.lock          completion ring, armed state; may take soft_channel.lock
 *      soft_channel.lock     queue of completion events
 *      soft_cm_id.event_lock event counters; may take soft_event_channel.lock
 *      soft_event_channel.lock  queue of connection events
 *      soft_worker.lock, soft_slots.lock, soft_context.async_lock
 *   Queue pair state changes need rx_lock and tx_lock; either suffices to read it.
 *   Nothing waits for the network with a lock held: all sockets are non-blocking.
 *
 * fork: a child cannot use the device (its threads are gone): every call answers EIO there.
 */
#ifndef SOFTRDMA_H
#define SOFTRDMA_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "iwarp.h"

/* Limits of the device. */
enum {
    SOFT_MAX_QP = 65536 - 1, /* 16-bit slot index in the queue pair number */
    SOFT_MAX_QP_WR = 16384,
    SOFT_MAX_SGE = 16,
    SOFT_MAX_CQE = 1 << 20,
    SOFT_MAX_MR = 1 << 20,
    SOFT_MAX_RD_ATOMIC = 128, /* outstanding reads each way, as siw */
    SOFT_MAX_INLINE = 1024,
    SOFT_MAX_PRIVATE = 255, /* rdma_conn_param.private_data_len is a byte */
    SOFT_MAX_ASYNC_EVENTS = 1024,
    SOFT_MAX_WORKERS = 64,
    SOFT_MIN_BACKLOG = 16,
    SOFT_MAX_BACKLOG = 1024,
};

/* Sizes of the data path. */
enum {
    SOFT_STAGING = 64 * 1024,       /* receive staging buffer of a queue pair */
    SOFT_DIRECT_MIN = 4096,         /* payload left from which it is received in place */
    SOFT_LARGE = 16 * 1024,         /* messages from here on are expected to come in place */
    SOFT_HEADER_PEEK = 128,         /* staging bytes asked for when a large message is expected */
    SOFT_LARGE_MEMORY = 4,          /* segments after a large one for which another is expected */
    SOFT_FPDU_PAYLOAD = 65520 - 48, /* multiple of 8 that fits the 16-bit length with any header */
    SOFT_FPDU_PAYLOAD_MIN = 128,
    SOFT_BATCH_FPDUS = 64,
    SOFT_BATCH_SEGMENTS = 192,
    SOFT_BATCH_BYTES = 1 << 20,   /* payload gathered for one sendmsg */
    SOFT_BATCH_HEADERS = 8192,    /* headers, trailers and copied small payload of a batch */
    SOFT_COPY_INLINE = 256,       /* inline payload up to here is copied beside its header */
    SOFT_TX_BUDGET = 4 << 20,     /* bytes one turn may send before other sockets get theirs */
    SOFT_RX_ROUNDS = 32,          /* receive calls of one turn */
    SOFT_RX_BYTES = 2 << 20,      /* bytes after which a turn ends */
    SOFT_RX_HAND_OVER = 1 << 19,  /* bytes after which it ends when something is complete */
    SOFT_SOCKET_BUFFER = 2 << 20, /* two large messages; more of it falls out of the caches */
};

/* Times. */
enum {
    SOFT_CONNECT_MS = 10000,     /* TCP connect plus MPA reply, as siw */
    SOFT_REQUEST_MS = 5000,      /* MPA request after accept, as siw */
    SOFT_DRAIN_MS = 3000,        /* rdma_disconnect waits so long for the send queue */
    SOFT_LINGER_MS = 2000,       /* a queue pair in error discards input so long */
    SOFT_TCP_TIMEOUT_MS = 10000, /* default TCP_USER_TIMEOUT */
    SOFT_TICK_MS = 4,            /* watchdog of delegated sockets */
    SOFT_IDLE_TICKS = 50,        /* a delegated socket idle so long goes back to its worker */
    SOFT_SLOW_TICK_MS = 50,      /* deadlines of handshakes, drains and lingers */
    SOFT_SPIN_US = 50,           /* default of RBLK_SOFTRDMA_SPIN_US */
    SOFT_NUDGE_MS = 10,          /* silence after the initiator's first frame; doubles each time */
    SOFT_NUDGES = 6,
};

/* ------------------------------------------------------------------------------------------
 * Slot tables (slots.c): type-stable slots, never freed.
 */
struct soft_slot {
    _Atomic uint64_t word; /* tag << 32 | users; tag 0 = not published */
    void *object;          /* written before the tag is published */
    uint32_t next_free;    /* under soft_slots.lock */
    uint8_t generation;    /* under soft_slots.lock */
};

#define SOFT_CHUNK_SLOTS 1024u
#define SOFT_CHUNKS 1024u

struct soft_slots {
    pthread_mutex_t lock;
    uint32_t capacity; /* indexes 1 .. capacity */
    uint32_t high;     /* highest index ever used */
    uint32_t free_head, free_tail;
    struct soft_slot *_Atomic chunks[SOFT_CHUNKS];
};

int soft_slots_reserve(struct soft_slots *slots, void *object, uint32_t *index,
                       uint8_t *generation);
void soft_slots_publish(struct soft_slots *slots, uint32_t index, uint32_t tag);
void *soft_slots_get(struct soft_slots *slots, uint32_t index, uint32_t tag);
void soft_slots_put(struct soft_slots *slots, uint32_t index);
void soft_slots_retire(struct soft_slots *slots, uint32_t index);

/* ------------------------------------------------------------------------------------------
 * Device and process (device.c).
 */
struct soft_async_event {
    struct soft_async_event *next;
    struct ibv_async_event event;
};

struct soft_context {
    pthread_mutex_t async_lock; /* the next three */
    struct soft_async_event *async_head, *async_tail;
    unsigned int async_count;
    struct verbs_context verbs; /* must be last: it ends with the ibv_context */
};

struct soft_config {
    unsigned int workers;
    unsigned int spin_us;
    unsigned int tcp_timeout_ms;
    int socket_buffer;      /* bytes, 0 leaves the kernel's tuning alone */
    const char *congestion; /* TCP's congestion control: NULL is our choice, "" the system's */
    uint32_t fpdu_payload;  /* bytes, 0 = follow the TCP segment size */
    bool crc;
    bool debug;
    bool delegate;
    bool single_cpu;
};

extern struct soft_config soft_config;

int soft_start(void);
bool soft_usable(void);
struct ibv_context *soft_default_context(void);
struct ibv_pd *soft_default_pd(void);
uint64_t soft_now_us(void);
void soft_random(void *out, size_t length);
void soft_debug(const char *format, ...) __attribute__((format(printf, 1, 2)));
void soft_async_push(struct ibv_context *context, enum ibv_event_type type, void *element);
void soft_async_forget(struct ibv_context *context, const void *element);

static inline struct soft_context *soft_context_of(struct ibv_context *context)
{
    return (struct soft_context *)((char *)context - offsetof(struct soft_context, verbs.context));
}

/* Set errno and answer -1, or 0. */
static inline int soft_errno(int error)
{
    if (error == 0)
        return 0;
    errno = error;
    return -1;
}

/* ------------------------------------------------------------------------------------------
 * Protection domains and memory regions (pd_mr.c).
 */
struct soft_pd {
    struct ibv_pd ibv;
    atomic_int users; /* objects that refer to it */
};

struct soft_mr {
    struct ibv_mr ibv;
    uint32_t index;
    uint64_t iova; /* address by which the region is named on the wire and in sges */
    unsigned int access;
};

enum soft_mr_error {
    SOFT_MR_OK = 0,
    SOFT_MR_STAG = -1,
    SOFT_MR_BOUNDS = -2,
    SOFT_MR_ACCESS = -3,
    SOFT_MR_PD = -4,
};

enum soft_mr_error soft_mr_get(const struct ibv_pd *pd, uint32_t stag, uint64_t address,
                               uint64_t length, unsigned int access, struct soft_mr **mr);
void soft_mr_put(struct soft_mr *mr);

static inline void *soft_mr_pointer(const struct soft_mr *mr, uint64_t address)
{
    return (char *)mr->ibv.addr + (address - mr->iova);
}

/* ------------------------------------------------------------------------------------------
 * Completion queues and channels (cq.c, channel.c).
 */
struct soft_cq;

struct soft_channel {
    struct ibv_comp_channel ibv; /* fd is an epoll descriptor */
    int event_fd;                /* in that epoll; readable when signalled */
    pthread_mutex_t lock;        /* all below up to the atomics */
    struct soft_cq *head, *tail; /* queues with an event to fetch */
    bool signalled;
    unsigned int deferred; /* threads that will look at the list themselves */
    unsigned int cqs;
    atomic_uint delegated; /* sockets in the epoll */
};

#define SOFT_NEAR_QPS 8

struct soft_cq {
    struct ibv_cq ibv;
    struct soft_channel *channel;
    pthread_mutex_t lock; /* ring, armed, failed */
    struct ibv_wc *ring;
    uint32_t mask;
    uint32_t head;
    atomic_uint count;
    enum { SOFT_CQ_UNARMED, SOFT_CQ_SOLICITED, SOFT_CQ_ARMED } armed;
    atomic_bool failed;
    atomic_int users;           /* queue pairs */
    struct soft_cq *event_next; /* under soft_channel.lock, as the next two */
    bool event_queued;
    uint32_t events_delivered;
    _Atomic uint32_t near[SOFT_NEAR_QPS]; /* queue pairs that polling may drive; 0 = none */
    atomic_uint near_used;                /* slots of near[] in use, counted from the first */
    atomic_uint strangers;                /* queue pairs that found no slot of near[] free */
    atomic_uint turn;                     /* where the next look at near[] begins */
    _Atomic uint32_t delegate_hint;       /* queue pair whose worker produced completions */
    atomic_uint empty_polls;              /* in a row */
    atomic_uint polled;                   /* queue pairs delegated to polling, not to a channel */
};

void soft_cq_push(struct soft_cq *cq, const struct ibv_wc *wc, bool solicited);
void soft_cq_attach(struct soft_cq *cq, uint32_t handle);
void soft_cq_detach(struct soft_cq *cq, uint32_t handle);
int soft_cq_poll(struct ibv_cq *ibcq, int entries, struct ibv_wc *wc);
int soft_cq_notify(struct ibv_cq *ibcq, int solicited_only);

void soft_channel_push(struct soft_channel *channel, struct soft_cq *cq);
void soft_channel_forget(struct soft_channel *channel, struct soft_cq *cq);
int soft_channel_drive(struct soft_channel *channel);
bool soft_fd_nonblocking(int fd);

/* ------------------------------------------------------------------------------------------
 * Receive queues, a queue pair's own or shared (rq.c).
 */
struct soft_recv_wqe {
    uint64_t wr_id;
    uint32_t sges;
    uint32_t length;
    struct ibv_sge sge[SOFT_MAX_SGE];
};

struct soft_rq {
    pthread_mutex_t lock; /* all below */
    uint32_t size, mask;  /* entries asked for; ring size - 1 */
    uint32_t head, tail;
    uint32_t max_sge;
    uint32_t limit; /* shared queues: announce when fewer are left; 0 = no */
    struct soft_recv_entry {
        uint64_t wr_id;
        uint32_t sges, length;
    } * entry;
    struct ibv_sge *sge; /* max_sge for each entry */
};

struct soft_srq {
    struct ibv_srq ibv;
    struct soft_rq rq;
    atomic_int users;
};

int soft_rq_init(struct soft_rq *rq, uint32_t size, uint32_t max_sge);
void soft_rq_destroy(struct soft_rq *rq);
int soft_rq_post(struct soft_rq *rq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
bool soft_rq_pop(struct soft_rq *rq, struct soft_recv_wqe *wqe, bool *limit_reached);
int soft_srq_post(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* ------------------------------------------------------------------------------------------
 * Queue pairs (qp.c, tx.c, rx.c).
 */
struct soft_send_wqe {
    uint64_t wr_id;
    uint64_t remote_address;
    uint32_t rkey;
    uint32_t length;
    uint32_t inline_length; /* > 0: payload lies in the inline area */
    uint16_t sges;
    uint8_t opcode; /* enum ibv_wr_opcode */
    bool signaled, solicited, fence;
    bool done; /* a read whose response is complete */
};

/* A read that the peer asked for. */
struct soft_inbound_read {
    uint32_t sink_stag, source_stag;
    uint64_t sink_offset, source_offset;
    uint32_t length;
    uint8_t header[IWARP_READ_REQUEST_HEADER]; /* for a Terminate that names it */
};

/* A piece of a batch. stag 0: the provider's own memory. */
struct soft_tx_segment {
    void *base;
    uint64_t address;
    uint32_t length;
    uint32_t stag;
    unsigned int access;
};

struct soft_tx_batch {
    uint32_t fpdus;
    uint32_t segments;
    uint32_t next;      /* first segment not wholly sent */
    uint32_t next_sent; /* bytes of it that are sent */
    uint32_t header_used;
    uint32_t bytes;
    uint32_t bounce_used;
    uint32_t sq_after; /* send queue position once all of it is sent */
    bool has_send_queue_data;
    bool terminate; /* it ends with a Terminate */
    bool held;      /* references for segment[].stag are held */
    uint32_t holds;
    struct soft_mr *hold[SOFT_BATCH_SEGMENTS];
    struct soft_tx_segment segment[SOFT_BATCH_SEGMENTS];
    struct iovec iov[SOFT_BATCH_SEGMENTS];
    uint8_t header[SOFT_BATCH_HEADERS];
};

enum soft_tx_current { SOFT_TX_NONE, SOFT_TX_WQE, SOFT_TX_RESPONSE };

/* Where a socket's input is waited for. */
enum soft_rx_owner { SOFT_OWNER_WORKER, SOFT_OWNER_CHANNEL, SOFT_OWNER_POLLER };

struct soft_tx {
    struct soft_send_wqe *wqe; /* send queue ring */
    struct ibv_sge *sge;
    uint8_t *inline_data;
    uint32_t size, mask, max_sge, max_inline;
    bool signal_all;
    uint32_t head; /* oldest entry not retired */
    uint32_t sent; /* entries before it are wholly sent */
    uint32_t next; /* next entry to begin */
    uint32_t tail; /* next free entry */
    enum soft_tx_current current;
    uint32_t offset; /* of the current message */
    uint32_t current_sge, current_sge_offset;
    struct soft_inbound_read response;
    bool responded_last;
    uint32_t send_msn, read_msn;
    uint32_t outstanding_head; /* reads retired */
    int error;                 /* negative errno: the socket or a work request failed */
    bool fault;                /* fault_status names the failure of entry next */
    enum ibv_wc_status fault_status;
    bool terminate_pending;
    uint8_t terminate[IWARP_TERMINATE_MAX];
    uint32_t terminate_length;
    bool want_writable;
    unsigned int nudges;   /* empty Writes that may still be sent, see soft_tx_nudge() */
    unsigned int nudge_ms; /* silence before the next one */
    uint64_t nudge_us;     /* when that is over; 0 = nothing has been sent yet, or all answered */
    bool nudge_pending;    /* the next batch begins with one */
    bool closing;          /* rdma_disconnect: half-close when drained */
    uint32_t closing_tail; /* entries from here on are only to be flushed */
    bool closed;           /* our direction is shut */
    uint8_t *bounce;       /* payload copies, with CRC only */
    struct soft_tx_batch *batch;
};

enum soft_rx_state { SOFT_RX_HEADER, SOFT_RX_PAYLOAD, SOFT_RX_TRAILER };

struct soft_rx {
    uint8_t *staging;
    uint32_t begin, end; /* unread bytes of staging */
    enum soft_rx_state state;
    struct iwarp_segment segment;
    uint8_t header[IWARP_HEADER_MAX];
    uint32_t payload_left;
    uint32_t crc;
    bool write_open;             /* a Write message is unfinished */
    uint64_t completed_us;       /* when the worker last received something that completed */
    uint8_t large;               /* segments for which a large payload is expected still */
    uint32_t send_msn, read_msn; /* expected next */
    bool recv_open;              /* recv holds the request of an unfinished Send */
    struct soft_recv_wqe recv;
    uint32_t recv_offset; /* bytes placed */
    uint32_t recv_sge, recv_sge_offset;
    uint32_t read_offset; /* bytes placed of the oldest outstanding read */
    uint32_t read_sge, read_sge_offset;
    uint32_t reads_done;    /* finished in this pass, not yet retired */
    uint32_t requests;      /* inbound reads queued in this pass */
    uint32_t completions;   /* completions produced, ever */
    uint32_t one_sided;     /* FPDUs since the last completion */
    atomic_bool first_seen; /* an FPDU has arrived; also read without rx_lock */
    bool ended;             /* end of stream or discarding */
    uint32_t send_budget;   /* bytes that this pass may still send */
    uint32_t fpdus;         /* of this pass */
    uint32_t received;      /* bytes of this pass */
    bool unforeseen;        /* one of a long response was not as expected: for good */
    uint8_t terminate[IWARP_TERMINATE_MAX];
    uint32_t terminate_length;
    struct iwarp_terminate refusal; /* what the peer's Terminate said */
};

struct soft_worker;

struct soft_qp {
    struct ibv_qp ibv;
    uint32_t handle; /* qp_num */
    uint32_t slot;
    struct soft_cq *send_cq, *recv_cq;
    struct soft_srq *srq;
    struct soft_rq own_rq;
    struct soft_rq *rq;
    struct soft_worker *worker;
    struct ibv_qp_cap cap;
    pthread_mutex_t rx_lock, tx_lock;
    _Atomic int state; /* enum ibv_qp_state; written under both locks */
    bool was_access_error;
    /* Set by soft_qp_attach() under both locks. */
    int fd;
    bool crc;
    uint32_t ird, ord, fpdu_payload;
    uint32_t cm_handle;      /* connection id to tell about the end; 0 = none */
    bool establish_on_first; /* report ESTABLISHED at the first FPDU (peer-to-peer mode) */
    bool cm_told;
    /* Read queues: single producer, single consumer. */
    uint32_t outstanding[SOFT_MAX_RD_ATOMIC]; /* send queue positions of reads sent */
    _Atomic uint32_t outstanding_tail;        /* producer: tx */
    uint32_t outstanding_rx;                  /* consumer: rx */
    struct soft_inbound_read *inbound;        /* SOFT_MAX_RD_ATOMIC entries */
    _Atomic uint32_t inbound_tail;            /* producer: rx */
    _Atomic uint32_t inbound_head;            /* consumer: tx */
    struct soft_tx tx;                        /* tx_lock */
    struct soft_rx rx;                        /* rx_lock */
    /* Who waits for input; tx_lock. */
    _Atomic int owner; /* enum soft_rx_owner */
    struct soft_channel *owner_channel;
    uint32_t epoll_events; /* registered with the worker */
    bool epoll_registered;
    uint64_t deadline_us;      /* drain or linger; 0 = none */
    uint64_t no_delegation_us; /* not delegated before */
    uint32_t tick_passes, tick_idle, tick_stale;
    atomic_uint passes; /* receive passes */
    atomic_uint polls;  /* productive passes by polling in a row */
    /* Under soft_worker.lock. */
    bool tick_listed;
    struct soft_qp *tick_next, *tick_previous;
};

struct soft_attach {
    int fd;
    bool crc;
    uint32_t ird, ord;
    uint32_t cm_handle;
    bool establish_on_first;
    bool passive;
};

struct soft_qp *soft_qp_get(uint32_t handle);
void soft_qp_put(struct soft_qp *qp);
int soft_qp_attach(struct soft_qp *qp, const struct soft_attach *attach);
void soft_qp_set_limits(struct soft_qp *qp, uint32_t ird, uint32_t ord);
void soft_qp_disconnect(struct soft_qp *qp);
void soft_qp_fail(struct soft_qp *qp, int send_status, int recv_status, bool read_failed);
void soft_qp_fail_locked(struct soft_qp *qp, int send_status, int recv_status, bool read_failed);
void soft_qp_tx_failed(struct soft_qp *qp);
void soft_qp_close_socket(struct soft_qp *qp);
void soft_qp_epoll_update(struct soft_qp *qp);
bool soft_qp_delegate(struct soft_qp *qp, struct soft_channel *channel);
void soft_qp_undelegate(struct soft_qp *qp);
bool soft_qp_tick(struct soft_qp *qp, uint64_t now_us);
void soft_qp_event(struct soft_qp *qp, uint32_t events);

int soft_qp_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int soft_qp_post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int soft_tx_progress(struct soft_qp *qp);
int soft_tx_progress_within(struct soft_qp *qp, uint32_t *budget);
void soft_tx_retire(struct soft_qp *qp);
void soft_tx_drop_holds(struct soft_qp *qp);
bool soft_tx_drained(const struct soft_qp *qp);
bool soft_tx_nudge(struct soft_qp *qp, uint64_t now_us);
bool soft_rx_pass(struct soft_qp *qp);
bool soft_rx_drive(struct soft_qp *qp, bool wait);
void soft_complete_send(struct soft_qp *qp, const struct soft_send_wqe *wqe,
                        enum ibv_wc_status status);
void soft_complete_recv(struct soft_qp *qp, uint64_t wr_id, uint32_t length, bool solicited,
                        enum ibv_wc_status status);

/* ------------------------------------------------------------------------------------------
 * Access to registered memory (dma.c).
 */
ssize_t soft_dma_send(int fd, const struct msghdr *message, int flags);
ssize_t soft_dma_receive(int fd, struct msghdr *message, int flags);
void soft_dma_copy(void *to, const void *from, size_t length);

/* ------------------------------------------------------------------------------------------
 * Workers (worker.c).
 */
enum soft_poll_kind { SOFT_POLL_WAKE = 0, SOFT_POLL_QP = 1, SOFT_POLL_CM = 2 };

struct soft_worker {
    int epoll_fd, wake_fd;
    unsigned int number;
    pthread_t thread;
    pthread_mutex_t lock; /* tick list */
    struct soft_qp *ticks;
    atomic_bool cm_waiting; /* worker 0: handshakes with deadlines exist */
    /* The worker's own. */
    int spin_score;
    unsigned int direct; /* looks in a row at one queue pair that found data */
};

static inline uint64_t soft_poll_data(enum soft_poll_kind kind, uint32_t handle)
{
    return (uint64_t)kind << 32 | handle;
}

int soft_workers_start(void);
struct soft_worker *soft_worker_next(void);
struct soft_worker *soft_worker_cm(void);
void soft_worker_wake(struct soft_worker *worker);
void soft_worker_tick_add(struct soft_worker *worker, struct soft_qp *qp);
void soft_worker_tick_remove(struct soft_worker *worker, struct soft_qp *qp);

/* ------------------------------------------------------------------------------------------
 * Connection manager (cm*.c): see cm.h.
 */
void soft_cm_event(uint32_t handle, uint32_t events);
bool soft_cm_deadlines(uint64_t now_us);
void soft_cm_qp_closed(uint32_t handle);
void soft_cm_qp_first_fpdu(uint32_t handle);

#endif
