/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * reactor -- a thread that runs the data path of the queues it was given
 *
 * A round: take io_uring results, take work completions, take orders, post what came of it (one
 * list per queue), submit to io_uring in one system call. After a round without work the thread
 * spins briefly, if spinning has been worth it lately (spin.h), and then sleeps in io_uring, which
 * also polls the completion channels and the mailbox.
 */
#include "reactor.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/poll.h>

#include "clock.h"
#include "config.h"
#include "device.h"
#include "io.h"
#include "log.h"
#include "queue.h"
#include "verbs.h"
#include "volume.h"
#include "wake.h"
#include "wr_id.h"

#define RING_ENTRIES 1024
#define RING_CQ_ENTRIES 8192
#define POLL_BATCH 32
#define ROUND_POLLS 8 /* batches taken from one completion queue in a round */
#define RING_BATCH 64
#define CQ_ENTRIES 16384 /* of a completion queue; a device with less gives less */
#define DRAIN_CHECK_NS 10000000

/* What an io_uring result belongs to: a pointer whose low bits tell of what kind it is. */
enum { TAG_REQUEST = 0, TAG_CQ = 1, TAG_ORDERS = 2, TAG_MASK = 7 };

/* -- completion queues ---------------------------------------------------------------------- */

static struct queue *find_queue(struct reactor *r, uint64_t wr_id)
{
    uint32_t index = wr_id_index(wr_id);
    struct queue *q = index < REACTOR_QUEUES_MAX ? r->table[index] : NULL;

    if (q && (q->generation & WR_ID_GENERATION_MASK) == wr_id_generation(wr_id))
        return q;
    return NULL;
}

static void adopt(struct reactor *r, struct queue *q)
{
    r->table[q->index] = q;
    if (!q->cq->polled) {
        q->cq->polled = true;
        r->polled[r->polled_count++] = q->cq;
    }
}

static bool take_orders(struct reactor *r)
{
    unsigned int orders;
    struct mail *mail;
    bool any = false;

    while ((mail = mailbox_take(&r->orders, &orders)) != NULL) {
        struct queue *q = (struct queue *)((char *)mail - offsetof(struct queue, to_reactor));

        any = true;
        if (orders & QUEUE_ORDER_ADOPT)
            adopt(r, q);
        io_order(q, orders);
    }
    return any;
}

static unsigned int poll_cq(struct reactor *r, struct reactor_cq *cq)
{
    struct ibv_wc wc[POLL_BATCH];
    unsigned int total = 0;

    for (int round = 0; round < ROUND_POLLS; round++) {
        int n = ibv_poll_cq(cq->cq, POLL_BATCH, wc);

        for (int i = 0; i < n; i++) {
            struct queue *q = find_queue(r, wc[i].wr_id);

            /* The peer may be faster than the order to adopt its queue. */
            if (!q && mailbox_pending(&r->orders) && take_orders(r))
                q = find_queue(r, wc[i].wr_id);
            if (q)
                io_completion(q, &wc[i]);
        }
        if (n > 0)
            total += (unsigned int)n;
        if (n < POLL_BATCH)
            break;
    }
    return total;
}

static unsigned int poll_all(struct reactor *r)
{
    unsigned int total = 0;

    for (unsigned int i = 0; i < r->polled_count; i++)
        total += poll_cq(r, r->polled[i]);
    return total;
}

static void take_cq_event(struct reactor_cq *cq)
{
    cq->watched = false;
    if (rblk_cq_event_take(cq->channel, cq->cq))
        cq->armed = false;
}

/* -- io_uring ------------------------------------------------------------------------------- */

struct io_uring_sqe *reactor_sqe(struct reactor *r)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&r->ring);

    if (sqe)
        return sqe;
    io_uring_submit(&r->ring);
    return io_uring_get_sqe(&r->ring);
}

static void ring_result(struct reactor *r, uint64_t data, int result)
{
    void *object = (void *)(uintptr_t)(data & ~(uint64_t)TAG_MASK);

    switch (data & TAG_MASK) {
    case TAG_REQUEST:
        io_ring_done(object, result);
        break;
    case TAG_CQ:
        take_cq_event(object);
        break;
    case TAG_ORDERS:
        r->orders_watched = false;
        mailbox_clear(&r->orders);
        break;
    }
}

static unsigned int reap_ring(struct reactor *r)
{
    struct io_uring_cqe *cqes[RING_BATCH];
    unsigned int n = io_uring_peek_batch_cqe(&r->ring, cqes, RING_BATCH);

    for (unsigned int i = 0; i < n; i++)
        ring_result(r, cqes[i]->user_data, cqes[i]->res);
    if (n)
        io_uring_cq_advance(&r->ring, n);
    return n;
}

static bool watch(struct reactor *r, int fd, uint64_t data)
{
    struct io_uring_sqe *sqe = reactor_sqe(r);

    if (!sqe)
        return false;
    io_uring_prep_poll_add(sqe, fd, POLLIN);
    io_uring_sqe_set_data64(sqe, data);
    return true;
}

/* Fewer features on older kernels: DEFER_TASKRUN is in 6.1, COOP_TASKRUN in 5.19. */
static int create_ring(struct reactor *r)
{
    static const unsigned int choices[] = {
        IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
        IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
        0,
    };
    int rc = -EINVAL;

    for (size_t i = 0; i < sizeof(choices) / sizeof(choices[0]) && rc == -EINVAL; i++) {
        struct io_uring_params params = {
            .flags = choices[i] | IORING_SETUP_CQSIZE,
            .cq_entries = RING_CQ_ENTRIES,
        };

        rc = io_uring_queue_init_params(RING_ENTRIES, &r->ring, &params);
    }
    return rc;
}

static int register_volumes(struct reactor *r)
{
    unsigned int count = r->target->volume_count;
    int *fds = calloc(count, sizeof(*fds));
    int rc;

    if (!fds)
        return -ENOMEM;
    for (unsigned int i = 0; i < count; i++)
        fds[i] = r->target->volumes[i].fd;
    rc = io_uring_register_files(&r->ring, fds, count);
    free(fds);
    return rc;
}

/* -- the loop ------------------------------------------------------------------------------- */

void reactor_mark_dirty(struct reactor *r, struct queue *q)
{
    if (q->dirty)
        return;
    q->dirty = true;
    q->dirty_next = r->dirty;
    r->dirty = q;
}

static void post_round(struct reactor *r)
{
    struct queue *q = r->dirty, *next;

    r->dirty = NULL;
    for (; q; q = next) {
        next = q->dirty_next;
        q->dirty = false;
        io_post_round(q);
    }
}

void reactor_forget(struct reactor *r, struct queue *q)
{
    r->table[q->index] = NULL;
    mailbox_post(&r->target->reports, &q->to_control, QUEUE_REPORT_DRAINED);
}

static void check_draining(struct reactor *r)
{
    uint64_t now = rblk_now_ns();

    for (unsigned int i = 0; i < REACTOR_QUEUES_MAX; i++)
        if (r->table[i] && r->table[i]->state == QUEUE_DRAINING)
            io_check_drained(r->table[i], now);
}

/* Asks for wake-ups from everything that has none pending. False: work has come in between. */
static bool prepare_sleep(struct reactor *r)
{
    for (unsigned int i = 0; i < r->polled_count; i++) {
        struct reactor_cq *cq = r->polled[i];

        if (!cq->armed)
            cq->armed = ibv_req_notify_cq(cq->cq, 0) == 0;
        if (!cq->watched)
            cq->watched = watch(r, cq->channel->fd, (uint64_t)(uintptr_t)cq | TAG_CQ);
    }
    if (!r->orders_watched)
        r->orders_watched = watch(r, r->orders.event_fd, TAG_ORDERS);
    return poll_all(r) == 0;
}

static void reactor_sleep(struct reactor *r)
{
    struct __kernel_timespec drain = {.tv_nsec = DRAIN_CHECK_NS};
    struct io_uring_cqe *cqe;

    if (!prepare_sleep(r) || r->dirty)
        return;
    io_uring_submit_and_wait_timeout(&r->ring, &cqe, 1, r->draining ? &drain : NULL, NULL);
}

/*
 * One round; returns how much was done. The ring comes first: its result that a channel is readable
 * takes the event with the data that caused it. A completion queue that is polled while it is armed
 * would raise one more.
 */
static unsigned int reactor_round(struct reactor *r)
{
    unsigned int work;

    r->writing_ns = 0;
    work = reap_ring(r);
    work += poll_all(r);
    if (mailbox_pending(&r->orders))
        work += take_orders(r);
    post_round(r);
    if (r->draining)
        check_draining(r);
    if (io_uring_sq_ready(&r->ring))
        io_uring_submit(&r->ring);
    return work;
}

static bool stopping(struct reactor *r)
{
    return atomic_load_explicit(&r->stop, memory_order_acquire);
}

/* Goes on with rounds until one finds something (true) or the bound is reached. */
static bool spin_rounds(struct reactor *r, uint64_t start_ns)
{
    do {
        /* Whoever could end this wait may need this very core. */
        sched_yield();
        if (reactor_round(r) > 0)
            return true;
    } while (rblk_now_ns() - start_ns < r->spin.limit_ns && !stopping(r));
    return false;
}

static void reactor_wait(struct reactor *r)
{
    uint64_t start = rblk_now_ns();
    bool spun = spin_is_worth(&r->spin);

    if (spun && spin_rounds(r, start)) {
        spin_learn(&r->spin, rblk_now_ns() - start, false);
        return;
    }
    reactor_sleep(r);
    /* A spin in vain counts as a long wait, however soon the sleep after it ended. */
    spin_learn(&r->spin, spun ? UINT64_MAX : rblk_now_ns() - start, true);
}

static void reactor_loop(struct reactor *r)
{
    while (!stopping(r))
        if (reactor_round(r) == 0)
            reactor_wait(r);
}

static int reactor_prepare(struct reactor *r)
{
    int rc = create_ring(r);

    if (rc) {
        r->start_step = "io_uring cannot be set up";
        return rc;
    }
    rc = register_volumes(r);
    if (rc) {
        r->start_step = "io_uring cannot take the volumes' files";
        io_uring_queue_exit(&r->ring);
    }
    return rc;
}

static void *reactor_main(void *opaque)
{
    struct reactor *r = opaque;
    char name[16];

    snprintf(name, sizeof(name), "reactor-%u", r->number);
    pthread_setname_np(pthread_self(), name);
    /* The ring is made here because only the thread that made it may submit (SINGLE_ISSUER). */
    r->start_rc = reactor_prepare(r);
    sem_post(&r->started);
    if (r->start_rc)
        return NULL;
    reactor_loop(r);
    io_uring_queue_exit(&r->ring);
    return NULL;
}

/* -- start and end -------------------------------------------------------------------------- */

static void explain_start(const struct reactor *r, int rc, char *err, size_t errlen)
{
    if (rc == -EPERM)
        snprintf(err, errlen,
                 "io_uring is forbidden here (EPERM); allow io_uring_setup in the "
                 "container's seccomp profile, or set the sysctl kernel.io_uring_disabled to 0");
    else if (rc == -ENOSYS)
        snprintf(err, errlen,
                 "this kernel has no io_uring (ENOSYS); rblkd needs Linux 5.11 or later "
                 "with io_uring, allowed by the container's seccomp profile");
    else if (rc == -ENOMEM)
        snprintf(err, errlen,
                 "%s: out of memory; if the limit of locked memory is low, raise it "
                 "(LimitMEMLOCK=infinity, ulimit -l unlimited)",
                 r->start_step);
    else
        snprintf(err, errlen, "%s: %s", r->start_step, strerror(-rc));
}

int reactor_start(struct reactor **out, struct target *t, unsigned int number, char *err,
                  size_t errlen)
{
    struct reactor *r = calloc(1, sizeof(*r));
    int rc;

    if (!r) {
        snprintf(err, errlen, "out of memory");
        return -ENOMEM;
    }
    r->target = t;
    r->number = number;
    rblk_spin_init(&r->spin, t->config->spin_us);
    rc = mailbox_init(&r->orders);
    if (rc) {
        snprintf(err, errlen, "cannot create an eventfd: %s", strerror(-rc));
        free(r);
        return rc;
    }
    sem_init(&r->started, 0, 0);
    rc = -pthread_create(&r->thread, NULL, reactor_main, r);
    if (rc) {
        snprintf(err, errlen, "cannot start a thread: %s", strerror(-rc));
        goto fail;
    }
    while (sem_wait(&r->started) < 0 && errno == EINTR)
        ;
    rc = r->start_rc;
    if (rc) {
        pthread_join(r->thread, NULL);
        explain_start(r, rc, err, errlen);
        goto fail;
    }
    *out = r;
    return 0;

fail:
    reactor_free(r);
    return rc;
}

int reactor_stop(struct reactor *r, uint64_t deadline_ns)
{
    struct timespec until;
    int left_ms = rblk_deadline_left_ms(deadline_ns);

    atomic_store_explicit(&r->stop, true, memory_order_release);
    mailbox_wake(&r->orders);
    /* Not the monotonic pthread_clockjoin_np: ThreadSanitizer does not know that it joins. */
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += left_ms / 1000;
    until.tv_nsec += left_ms % 1000 * 1000000L;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_nsec -= 1000000000L;
        until.tv_sec++;
    }
    return -pthread_timedjoin_np(r->thread, NULL, &until);
}

void reactor_free(struct reactor *r)
{
    if (!r)
        return;
    for (unsigned int i = 0; i < r->cq_count; i++) {
        ibv_destroy_cq(r->cqs[i]->cq);
        ibv_destroy_comp_channel(r->cqs[i]->channel);
        free(r->cqs[i]);
    }
    mailbox_destroy(&r->orders);
    sem_destroy(&r->started);
    free(r);
}

/* -- placing queues (control thread) -------------------------------------------------------- */

static int create_cq(struct device *device, struct reactor_cq **out)
{
    struct reactor_cq *cq = calloc(1, sizeof(*cq));
    int rc = -ENOMEM;

    if (!cq)
        return rc;
    cq->device = device;
    cq->capacity = CQ_ENTRIES;
    if (cq->capacity > (uint32_t)device->limits.max_cqe)
        cq->capacity = (uint32_t)device->limits.max_cqe;
    cq->channel = ibv_create_comp_channel(device->verbs);
    if (!cq->channel) {
        rc = -errno;
        goto fail;
    }
    rc = rblk_fd_nonblock(cq->channel->fd);
    if (rc)
        goto fail_channel;
    cq->cq = ibv_create_cq(device->verbs, (int)cq->capacity, cq, cq->channel, 0);
    if (!cq->cq) {
        rc = -errno;
        goto fail_channel;
    }
    *out = cq;
    return 0;

fail_channel:
    ibv_destroy_comp_channel(cq->channel);
fail:
    free(cq);
    return rc;
}

static int find_cq(struct reactor *r, struct device *device, uint32_t work_requests,
                   struct reactor_cq **out)
{
    struct reactor_cq *cq = NULL;
    int rc;

    for (unsigned int i = 0; i < r->cq_count; i++) {
        cq = r->cqs[i];
        if (cq->device == device && cq->capacity - cq->committed >= work_requests) {
            *out = cq;
            return 0;
        }
    }
    if (r->cq_count == REACTOR_CQS_MAX)
        return -ENOSPC;
    rc = create_cq(device, &cq);
    if (rc)
        return rc;
    r->cqs[r->cq_count++] = cq;
    *out = cq;
    return cq->capacity >= work_requests ? 0 : -ENOSPC;
}

int reactor_place(struct reactor *r, struct device *device, uint32_t work_requests, uint32_t *index,
                  uint32_t *generation, struct reactor_cq **out)
{
    uint32_t place = r->next_index;
    struct reactor_cq *cq;
    int rc;

    if (r->queue_count == REACTOR_QUEUES_MAX)
        return -ENOSPC;
    rc = find_cq(r, device, work_requests, &cq);
    if (rc)
        return rc;
    while (r->index_used[place])
        place = (place + 1) % REACTOR_QUEUES_MAX;
    r->index_used[place] = true;
    r->next_index = (place + 1) % REACTOR_QUEUES_MAX;
    r->queue_count++;
    cq->committed += work_requests;
    *index = place;
    *generation = ++r->generation;
    *out = cq;
    return 0;
}

void reactor_unplace(struct reactor *r, uint32_t index, struct reactor_cq *cq,
                     uint32_t work_requests)
{
    r->index_used[index] = false;
    r->queue_count--;
    cq->committed -= work_requests;
}
