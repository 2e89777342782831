/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * reactor -- a thread that runs the data path of the queues it was given
 *
 * It has an io_uring of its own and completion queues of its own, and sleeps in one wait for both.
 * It takes no lock but that of its mailbox, and that only when mail is there.
 *
 * Owners: as struct reactor says.
 */
#ifndef RBLK_TARGET_REACTOR_H
#define RBLK_TARGET_REACTOR_H

#include <infiniband/verbs.h>
#include <liburing.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>

#include "mailbox.h"
#include "spin.h"
#include "stats.h"
#include "wire.h"

struct device;
struct queue;
struct target;

#define REACTOR_QUEUES_MAX 4096
#define REACTOR_CQS_MAX 64

/*
 * A completion queue of a reactor. Queues are placed so that all their work requests fit in, so it
 * cannot overrun; when one is full the reactor gets another.
 */
struct reactor_cq {
    struct device *device;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    uint32_t capacity;
    uint32_t committed; /* control thread: entries promised to queues */
    bool polled;        /* reactor: in its table */
    bool armed;         /* reactor: an event is asked for */
    bool watched;       /* reactor: io_uring polls the channel */
};

/* Work requests that are posted at the end of a round, one list for each queue. */
struct reactor_lists {
    struct ibv_recv_wr receive[RBLK_QUEUE_DEPTH_MAX];
    struct ibv_sge receive_sge[RBLK_QUEUE_DEPTH_MAX];
    struct ibv_send_wr send[RBLK_QUEUE_DEPTH_MAX];
    struct ibv_sge send_sge[RBLK_QUEUE_DEPTH_MAX];
    uint8_t completion[RBLK_QUEUE_DEPTH_MAX][RBLK_COMPLETION_LEN];
};

struct reactor {
    /* Read-only once started. */
    struct target *target;
    unsigned int number;
    pthread_t thread;

    struct mailbox orders;
    atomic_bool stop;
    struct counters counters; /* written by the reactor */

    /* Control thread: where queues are placed. */
    bool index_used[REACTOR_QUEUES_MAX];
    uint32_t next_index, generation, queue_count;
    struct reactor_cq *cqs[REACTOR_CQS_MAX];
    unsigned int cq_count;

    /* Reactor. */
    struct io_uring ring;
    struct queue *table[REACTOR_QUEUES_MAX];
    struct reactor_cq *polled[REACTOR_CQS_MAX];
    unsigned int polled_count;
    struct queue *dirty;
    unsigned int draining; /* queues whose drain deadline has to be watched */
    bool orders_watched;
    struct spin spin;
    uint64_t writing_ns; /* spent in this round on writes of its own (write_now.h) */
    struct reactor_lists lists;

    /* Between start and the thread's first round. */
    sem_t started;
    int start_rc;
    const char *start_step;
};

/* Starts a thread. 0, or a negative errno and one line in err. */
int reactor_start(struct reactor **out, struct target *t, unsigned int number, char *err,
                  size_t errlen);
/*
 * Asks the thread to end and waits until `deadline_ns`; it must have no queues any more. 0, or
 * -ETIMEDOUT: then the reactor and what it uses must not be freed.
 */
int reactor_stop(struct reactor *r, uint64_t deadline_ns);
/* Frees what is left after reactor_stop. NULL is allowed. */
void reactor_free(struct reactor *r);

/*
 * Finds a place for a queue with so many work requests: an index with its generation, and room in
 * a completion queue. 0, -ENOSPC, or a negative errno of the verbs. Control thread.
 */
int reactor_place(struct reactor *r, struct device *device, uint32_t work_requests, uint32_t *index,
                  uint32_t *generation, struct reactor_cq **out);
/* Gives the place back. Control thread. */
void reactor_unplace(struct reactor *r, uint32_t index, struct reactor_cq *cq,
                     uint32_t work_requests);

/* For io.c, on the reactor's thread: */

/* A submission entry, submitting what is queued when the ring is full; NULL when it stays full. */
struct io_uring_sqe *reactor_sqe(struct reactor *r);
/* Has io_post_round called for the queue at the end of the round. */
void reactor_mark_dirty(struct reactor *r, struct queue *q);
/* Takes a drained queue out of the table and reports it. */
void reactor_forget(struct reactor *r, struct queue *q);

#endif
