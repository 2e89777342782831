/* SPDX-License-Identifier: BSD-2-Clause */
/* queue -- one I/O queue: requests, polling, sleeping (owners and locks: queue.h) */
#include "queue.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/verbs.h"
#include "common/wake.h"
#include "control.h"

/* Callbacks that are run between two holds of the queue's lock. */
#define CALLBACKS_MAX 64
/* Longest sleep of rblk_queue_wait before it looks again, milliseconds: nothing relies on it, it
 * only bounds what an unforeseen lost wake-up could cost. */
#define SLEEP_MAX_MS 1000

int rblk_queue_create(struct rblk_queue **out, struct rblk *h, unsigned int index)
{
    struct rblk_queue *q = calloc(1, sizeof(*q));
    struct epoll_event event = {.events = EPOLLIN};
    int rc;

    if (!q)
        return -ENOMEM;
    q->h = h;
    q->index = index;
    q->state = RBLK_QUEUE_DEAD;
    q->kick_fd = -1;
    q->spin_limit_ns = rblk_spin_limit_ns();
    pthread_mutex_init(&q->lock, NULL);
    pthread_mutex_init(&q->sync_lock, NULL);
    for (unsigned int i = 0; i < RBLK_QUEUE_REQUESTS; i++)
        rblk_requests_push(&q->free, &q->request[i]);
    q->fd = epoll_create1(EPOLL_CLOEXEC);
    if (q->fd < 0)
        goto fail;
    q->kick_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (q->kick_fd < 0)
        goto fail;
    if (epoll_ctl(q->fd, EPOLL_CTL_ADD, q->kick_fd, &event))
        goto fail;
    *out = q;
    return 0;

fail:
    rc = -errno;
    rblk_queue_free(q);
    return rc;
}

void rblk_queue_free(struct rblk_queue *q)
{
    if (!q)
        return;
    if (q->mr)
        ibv_dereg_mr(q->mr);
    rblk_pool_free(&q->pool);
    if (q->kick_fd >= 0)
        close(q->kick_fd);
    if (q->fd >= 0)
        close(q->fd);
    pthread_mutex_destroy(&q->sync_lock);
    pthread_mutex_destroy(&q->lock);
    free(q);
}

void rblk_queue_kick(struct rblk_queue *q)
{
    uint64_t one = 1;

    /* First the descriptor, then the flag: a poller that sees the flag finds something to read. */
    if (write(q->kick_fd, &one, sizeof(one)) < 0) {
        /* Only a counter at its limit refuses, and then the descriptor is readable. */
    }
    atomic_store_explicit(&q->kicked, true, memory_order_release);
}

/* Lock held: empties what made the descriptor readable. */
static void clear_wakeups(struct rblk_queue *q)
{
    uint64_t count;

    if (atomic_exchange_explicit(&q->kicked, false, memory_order_acquire) &&
        read(q->kick_fd, &count, sizeof(count)) < 0) {
        /* EAGAIN: another kick is between its two steps and will be seen by the next poll. */
    }
    if (!q->slept)
        return;
    q->slept = false;
    if (q->channel && rblk_cq_event_take(q->channel, q->cq))
        q->armed = false;
}

/* -- requests -------------------------------------------------------------------------------- */

void rblk_request_finish(struct rblk_queue *q, struct rblk_request *r)
{
    rblk_region_done(q, r);
    if (r->error)
        q->stats.errors++;
    r->state = RBLK_REQUEST_DONE;
    rblk_requests_push(&q->done, r);
}

void rblk_request_part_done(struct rblk_queue *q, struct rblk_request *r, int error)
{
    if (error && !r->error)
        r->error = error;
    r->outstanding--;
    /* A failed request issues nothing more: reads and writes drop it from their lists. */
    if (r->state == RBLK_REQUEST_ISSUED && r->outstanding == 0)
        rblk_request_finish(q, r);
}

void rblk_queue_pump(struct rblk_queue *q)
{
    if (q->state != RBLK_QUEUE_LIVE || rblk_conn_failed(q->conn))
        return;
    do {
        q->batch.count = 0;
        rblk_write_issue(q);
        rblk_read_issue(q);
        if (q->batch.count)
            rblk_link_post(q);
    } while (q->batch.count && q->state == RBLK_QUEUE_LIVE && !rblk_conn_failed(q->conn));
}

int rblk_queue_run_callbacks(struct rblk_queue *q)
{
    struct {
        rblk_callback callback;
        void *opaque;
        int error;
    } due[CALLBACKS_MAX];
    int total = 0, n = 0;

    for (;;) {
        pthread_mutex_lock(&q->lock);
        /* Only now, so that whoever sees none in flight knows that no callback runs any more. */
        q->inflight -= (unsigned int)n;
        /* Bounded, whatever the callbacks submit that is done at once. */
        for (n = 0; n < CALLBACKS_MAX && total < (int)RBLK_QUEUE_REQUESTS; n++) {
            struct rblk_request *r = rblk_requests_pop(&q->done);

            if (!r)
                break;
            due[n].callback = r->callback;
            due[n].opaque = r->opaque;
            due[n].error = r->error;
            /* Free before the callback, so that it finds room to submit again. */
            r->state = RBLK_REQUEST_FREE;
            rblk_requests_push(&q->free, r);
            q->finished++;
        }
        if (n == 0 && total)
            rblk_queue_pump(q); /* what the callbacks have submitted */
        pthread_mutex_unlock(&q->lock);
        if (n == 0)
            return total;
        for (int i = 0; i < n; i++)
            due[i].callback(due[i].opaque, due[i].error);
        total += n;
    }
}

static int accept_request(struct rblk_queue *q, enum rblk_request_kind kind, void *buf, size_t len,
                          uint64_t offset, unsigned int flags, rblk_callback callback, void *opaque)
{
    struct rblk_request *r;
    int rc = 0;

    pthread_mutex_lock(&q->lock);
    if (q->state != RBLK_QUEUE_LIVE || rblk_conn_failed(q->conn)) {
        rc = -EIO;
        goto out;
    }
    r = rblk_requests_pop(&q->free);
    if (!r) {
        rc = -EAGAIN;
        goto out;
    }
    *r = (struct rblk_request){
        .state = RBLK_REQUEST_WAITING,
        .kind = kind,
        .flags = flags,
        .buf = buf,
        .len = len,
        .offset = offset,
        .region = -1,
        .callback = callback,
        .opaque = opaque,
    };
    q->inflight++;
    if (kind == RBLK_REQUEST_READ) {
        q->stats.reads++;
        q->stats.read_bytes += len;
    } else if (kind == RBLK_REQUEST_WRITE) {
        q->stats.writes++;
        q->stats.write_bytes += len;
    } else {
        q->stats.flushes++;
    }
    if (kind != RBLK_REQUEST_FLUSH && len == 0) {
        rblk_request_finish(q, r);
    } else {
        if (kind != RBLK_REQUEST_FLUSH)
            rblk_region_use(q, r);
        rblk_requests_push(kind == RBLK_REQUEST_READ ? &q->reads : &q->writes, r);
    }

out:
    pthread_mutex_unlock(&q->lock);
    return rc;
}

static int submit_failed(struct rblk_queue *q, int error)
{
    int rc;

    if (error == -EAGAIN)
        return rblk_fail(q->h, error, "queue %u: %u requests are in flight; poll it first",
                         q->index, RBLK_QUEUE_REQUESTS);
    rc = rblk_check_volume(q->h);
    return rc ? rc : rblk_fail(q->h, error, "queue %u is closed", q->index);
}

static int check_range(struct rblk_queue *q, const void *buf, size_t len, uint64_t offset)
{
    uint64_t size = q->h->volume.size;

    if (offset > size || len > size - offset)
        return rblk_fail(
            q->h, -EINVAL, "%s: %zu bytes at offset %llu go beyond its end (%llu bytes)",
            q->h->uri.volume, len, (unsigned long long)offset, (unsigned long long)size);
    if (!buf && len)
        return rblk_fail(q->h, -EINVAL, "the buffer is NULL");
    return 0;
}

int rblk_aio_read(struct rblk_queue *q, void *buf, size_t len, uint64_t offset, rblk_callback cb,
                  void *opaque)
{
    int rc = check_range(q, buf, len, offset);

    if (rc)
        return rc;
    rc = accept_request(q, RBLK_REQUEST_READ, buf, len, offset, 0, cb, opaque);
    return rc ? submit_failed(q, rc) : 0;
}

static int check_writable(struct rblk_queue *q)
{
    if (q->h->options.mode == RBLK_MODE_RO || (q->h->volume.flags & RBLK_VOLUME_RO))
        return rblk_fail(q->h, -EROFS, "%s is attached read-only; attach it read-write to write",
                         q->h->uri.volume);
    return 0;
}

int rblk_aio_write(struct rblk_queue *q, const void *buf, size_t len, uint64_t offset,
                   unsigned int flags, rblk_callback cb, void *opaque)
{
    int rc = check_range(q, buf, len, offset);

    if (rc)
        return rc;
    if (flags & ~RBLK_FUA)
        return rblk_fail(q->h, -EINVAL, "unknown write flags 0x%x; RBLK_FUA is the only one",
                         flags);
    rc = check_writable(q);
    if (rc)
        return rc;
    /* A write only reads the buffer; the request is the same for both directions. */
    rc = accept_request(q, RBLK_REQUEST_WRITE, (void *)(uintptr_t)buf, len, offset, flags, cb,
                        opaque);
    return rc ? submit_failed(q, rc) : 0;
}

int rblk_aio_flush(struct rblk_queue *q, rblk_callback cb, void *opaque)
{
    int rc = accept_request(q, RBLK_REQUEST_FLUSH, NULL, 0, 0, 0, cb, opaque);

    return rc ? submit_failed(q, rc) : 0;
}

/* -- driving the queue ----------------------------------------------------------------------- */

int rblk_queue_submit(struct rblk_queue *q)
{
    bool finished;

    pthread_mutex_lock(&q->lock);
    rblk_queue_pump(q);
    finished = q->done.head != NULL;
    pthread_mutex_unlock(&q->lock);
    /* Nothing on the wire will wake a thread that sleeps on the queue for these. */
    if (finished && atomic_load_explicit(&q->sleepers, memory_order_relaxed))
        rblk_queue_kick(q);
    return 0;
}

int rblk_queue_poll(struct rblk_queue *q)
{
    bool idle;
    int n;

    pthread_mutex_lock(&q->lock);
    clear_wakeups(q);
    rblk_link_reap(q);
    rblk_queue_pump(q);
    idle = q->inflight == 0;
    pthread_mutex_unlock(&q->lock);
    if (idle && rblk_conn_failed(q->conn))
        return rblk_check_volume(q->h);

    n = rblk_queue_run_callbacks(q);
    if (n && atomic_load_explicit(&q->sleepers, memory_order_relaxed))
        rblk_queue_kick(q);
    return n;
}

unsigned int rblk_queue_inflight(struct rblk_queue *q)
{
    unsigned int n;

    pthread_mutex_lock(&q->lock);
    n = q->inflight;
    pthread_mutex_unlock(&q->lock);
    return n;
}

int rblk_queue_fd(const struct rblk_queue *q)
{
    return q->fd;
}

int rblk_queue_arm(struct rblk_queue *q)
{
    int rc;

    pthread_mutex_lock(&q->lock);
    if (q->state == RBLK_QUEUE_LIVE) {
        if (!q->armed && ibv_req_notify_cq(q->cq, 0) == 0)
            q->armed = true;
        q->slept = true;
        /* What completed before the request raises no event. */
        rblk_link_reap(q);
        rblk_queue_pump(q);
        if (!q->armed)
            rblk_conn_fail(q->conn, -EIO, "%s: queue %u cannot be armed for completion events",
                           q->conn->address, q->index);
    }
    rc = q->done.head != NULL;
    pthread_mutex_unlock(&q->lock);
    return rc;
}

static uint64_t finished_so_far(struct rblk_queue *q, unsigned int *inflight)
{
    uint64_t n;

    pthread_mutex_lock(&q->lock);
    n = q->finished;
    *inflight = q->inflight;
    pthread_mutex_unlock(&q->lock);
    return n;
}

int rblk_queue_wait(struct rblk_queue *q, int timeout_ms)
{
    uint64_t deadline = timeout_ms < 0 ? UINT64_MAX : rblk_deadline_ms((uint64_t)timeout_ms);
    unsigned int inflight;
    uint64_t before = finished_so_far(q, &inflight);
    bool may_spin = true;

    for (;;) {
        struct pollfd pfd = {.fd = q->fd, .events = POLLIN};
        int n = rblk_queue_poll(q);
        int left;

        if (n != 0)
            return n;
        /* Another thread may have run the callbacks that this one waits for. */
        if (finished_so_far(q, &inflight) != before || inflight == 0)
            return 0;
        left = rblk_deadline_left_ms(deadline);
        if (left == 0)
            return 0;
        if (may_spin) {
            n = rblk_queue_spin(q);
            if (n != 0)
                return n;
            may_spin = false;
        }
        atomic_fetch_add_explicit(&q->sleepers, 1, memory_order_seq_cst);
        if (rblk_queue_arm(q) == 0 && finished_so_far(q, &inflight) == before)
            poll(&pfd, 1, left < SLEEP_MAX_MS ? left : SLEEP_MAX_MS);
        atomic_fetch_sub_explicit(&q->sleepers, 1, memory_order_seq_cst);
    }
}

void *rblk_buffer_get(struct rblk_queue *q, size_t len)
{
    void *buf;

    if (len == 0)
        return NULL;
    pthread_mutex_lock(&q->lock);
    buf = rblk_pool_take(&q->pool, len);
    pthread_mutex_unlock(&q->lock);
    return buf;
}

void rblk_buffer_put(struct rblk_queue *q, void *buf, size_t len)
{
    if (!buf || len == 0 || !rblk_pool_contains(&q->pool, buf, len))
        return;
    pthread_mutex_lock(&q->lock);
    rblk_pool_give(&q->pool, buf, len);
    pthread_mutex_unlock(&q->lock);
}
