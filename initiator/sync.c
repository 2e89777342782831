/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sync -- pread, pwrite and flush: the asynchronous calls and a wait
 *
 * Threads that wait on the same queue have one leader, who polls the queue (and sleeps on its
 * descriptor); the others sleep on a condition of their own until their request is done or they are
 * to lead. q->sync_lock guards the list of waiters and who leads.
 *
 * Before the leader sleeps it may spin, for a time that depends on what a wake-up costs
 * (common/wake.h) and only while that has paid lately. A spin that gets long lets others have the
 * core in between.
 */
#include <errno.h>
#include <sched.h>

#include "common/clock.h"
#include "common/wake.h"
#include "queue.h"

#define SPIN_BEST 8      /* how far the memory of good spins goes */
#define SPIN_MISS 2      /* what a spin for nothing costs of it */
#define SPIN_PAUSE (-64) /* sleeps before another spin is tried */
#define LEADER_MS 1000   /* one turn of the leader */
#define ROOM_MS 10       /* between looks for a free request */

struct rblk_waiter {
    struct rblk_waiter *next, *previous;
    struct rblk_queue *q;
    pthread_cond_t cond;
    bool done;
    int error;
};

/* -- spinning -------------------------------------------------------------------------------- */

int rblk_queue_spin(struct rblk_queue *q)
{
    int score = atomic_load_explicit(&q->spin_score, memory_order_relaxed);
    uint64_t start, now;
    int n = 0;

    if (score < 0 || q->spin_limit_ns == 0) {
        atomic_store_explicit(&q->spin_score, score + 1, memory_order_relaxed);
        return 0;
    }
    start = now = rblk_now_ns();
    while ((n = rblk_queue_poll(q)) == 0) {
        now = rblk_now_ns();
        if (now - start >= q->spin_limit_ns)
            break;
        if (now - start >= RBLK_SPIN_LIMIT_MIN_NS)
            sched_yield();
    }
    if (n > 0)
        score = score < SPIN_BEST ? score + 1 : SPIN_BEST;
    else
        score = score < SPIN_MISS ? SPIN_PAUSE : score - SPIN_MISS;
    atomic_store_explicit(&q->spin_score, score, memory_order_relaxed);
    return n;
}

/* -- waiting --------------------------------------------------------------------------------- */

static void request_done(void *opaque, int error)
{
    struct rblk_waiter *w = opaque;
    struct rblk_queue *q = w->q;

    /* The waiter lives on the stack of a thread that needs this lock before it can return. */
    pthread_mutex_lock(&q->sync_lock);
    w->error = error;
    w->done = true;
    pthread_cond_signal(&w->cond);
    pthread_mutex_unlock(&q->sync_lock);
}

static void link_waiter(struct rblk_queue *q, struct rblk_waiter *w)
{
    w->previous = NULL;
    w->next = q->waiters;
    if (w->next)
        w->next->previous = w;
    q->waiters = w;
}

static void unlink_waiter(struct rblk_queue *q, struct rblk_waiter *w)
{
    if (w->previous)
        w->previous->next = w->next;
    else
        q->waiters = w->next;
    if (w->next)
        w->next->previous = w->previous;
}

/* Somebody who still waits has to lead from now on. */
static void pass_lead(struct rblk_queue *q)
{
    for (struct rblk_waiter *w = q->waiters; w; w = w->next)
        if (!w->done) {
            pthread_cond_signal(&w->cond);
            return;
        }
}

static void lead(struct rblk_queue *q, struct rblk_waiter *w)
{
    q->has_leader = true;
    q->leader = pthread_self();
    while (!w->done) {
        pthread_mutex_unlock(&q->sync_lock);
        rblk_queue_wait(q, LEADER_MS);
        pthread_mutex_lock(&q->sync_lock);
    }
    q->has_leader = false;
}

/* Waits until the request is done: its result. It always ends, because a connection that makes no
 * progress fails (control.c), and with it every request. */
static int wait_for(struct rblk_queue *q, struct rblk_waiter *w)
{
    pthread_mutex_lock(&q->sync_lock);
    link_waiter(q, w);
    while (!w->done) {
        if (q->has_leader)
            pthread_cond_wait(&w->cond, &q->sync_lock);
        else
            lead(q, w);
    }
    unlink_waiter(q, w);
    if (!q->has_leader)
        pass_lead(q);
    pthread_mutex_unlock(&q->sync_lock);
    pthread_cond_destroy(&w->cond);
    return w->error;
}

static bool called_from_callback(struct rblk_queue *q)
{
    bool yes;

    pthread_mutex_lock(&q->sync_lock);
    yes = q->has_leader && pthread_equal(q->leader, pthread_self());
    pthread_mutex_unlock(&q->sync_lock);
    return yes;
}

/* Each thread stays with one queue, and threads spread over the queues. */
static struct rblk_queue *choose_queue(struct rblk *h)
{
    static _Atomic unsigned int threads;
    static _Thread_local unsigned int number;

    if (number == 0)
        number = atomic_fetch_add_explicit(&threads, 1, memory_order_relaxed) + 1;
    return h->queue[number % h->queue_count];
}

enum operation { READ, WRITE, FLUSH };

static int submit(struct rblk_waiter *w, enum operation operation, void *buf, size_t len,
                  uint64_t offset, unsigned int flags)
{
    switch (operation) {
    case READ:
        return rblk_aio_read(w->q, buf, len, offset, request_done, w);
    case WRITE:
        return rblk_aio_write(w->q, buf, len, offset, flags, request_done, w);
    default:
        return rblk_aio_flush(w->q, request_done, w);
    }
}

static int run(struct rblk *h, enum operation operation, void *buf, size_t len, uint64_t offset,
               unsigned int flags)
{
    struct rblk_waiter w = {.error = 0};
    int rc = rblk_check_volume(h);

    if (rc)
        return rc;
    w.q = choose_queue(h);
    if (called_from_callback(w.q))
        return rblk_fail(h, -EDEADLK,
                         "a synchronous call inside a callback would wait for itself; "
                         "use the asynchronous calls there");
    pthread_cond_init(&w.cond, NULL);
    while ((rc = submit(&w, operation, buf, len, offset, flags)) == -EAGAIN)
        rblk_queue_wait(w.q, ROOM_MS);
    if (rc) {
        pthread_cond_destroy(&w.cond);
        return rc;
    }
    rblk_queue_submit(w.q);
    rc = wait_for(w.q, &w);
    if (rc == 0)
        return 0;
    if (rblk_check_volume(h))
        return rc; /* which has left the connection's own text */
    return rblk_fail(h, rc,
                     "%s: the target reports an error for %s of %zu bytes at offset %llu: "
                     "%s",
                     h->uri.volume,
                     operation == READ    ? "a read"
                     : operation == WRITE ? "a write"
                                          : "a flush",
                     len, (unsigned long long)offset, strerrordesc_np(-rc));
}

int rblk_pread(struct rblk *h, void *buf, size_t len, uint64_t offset)
{
    return run(h, READ, buf, len, offset, 0);
}

int rblk_pwrite(struct rblk *h, const void *buf, size_t len, uint64_t offset, unsigned int flags)
{
    return run(h, WRITE, (void *)(uintptr_t)buf, len, offset, flags);
}

int rblk_flush(struct rblk *h)
{
    return run(h, FLUSH, NULL, 0, 0, 0);
}
