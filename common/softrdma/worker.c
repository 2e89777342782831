/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * worker.c -- provider threads
 *
 * Each waits on its epoll descriptor. Before it sleeps it spins, when recent waits ended within
 * the spin window, and lets others have the core all the while. Without delegated sockets and
 * deadlines there is no timer: an idle process sleeps.
 */
#include "softrdma.h"

#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define EVENTS 32
#define TICK_BATCH 4096u
#define SPIN_SCORE_MAX 8
/* A wait that was slept through is longer by our wake-up, and by that of whoever we wait for. */
#define SLEPT_US 50u
/* A spin looks at the last busy queue pair this often between looks at all sockets. */
#define SPIN_DIRECT 8u
/* So often in a row may that one have data: then it is the turn of all. A peer that sends without end
 * would starve the others. */
#define DIRECT_MAX 4u

static struct soft_worker workers[SOFT_MAX_WORKERS];
static unsigned int worker_count;
static atomic_uint next_worker;

/* The worker for a new queue pair, round robin. */
struct soft_worker *soft_worker_next(void)
{
    return &workers[atomic_fetch_add(&next_worker, 1) % worker_count];
}

/* The worker that owns listeners and handshakes. */
struct soft_worker *soft_worker_cm(void)
{
    return &workers[0];
}

/* Make a worker look at its lists again. Thread-safe. */
void soft_worker_wake(struct soft_worker *worker)
{
    const uint64_t one = 1;

    if (write(worker->wake_fd, &one, sizeof(one)) < 0)
        soft_debug("worker wake-up: %s", strerror(errno));
}

/* Ask for periodic soft_qp_tick() calls. The queue pair's tx_lock is held. */
void soft_worker_tick_add(struct soft_worker *worker, struct soft_qp *qp)
{
    bool first;

    pthread_mutex_lock(&worker->lock);
    first = worker->ticks == NULL;
    if (!qp->tick_listed) {
        qp->tick_listed = true;
        qp->tick_previous = NULL;
        qp->tick_next = worker->ticks;
        if (worker->ticks != NULL)
            worker->ticks->tick_previous = qp;
        worker->ticks = qp;
    }
    pthread_mutex_unlock(&worker->lock);
    if (first)
        soft_worker_wake(worker);
}

/* No more of them. */
void soft_worker_tick_remove(struct soft_worker *worker, struct soft_qp *qp)
{
    pthread_mutex_lock(&worker->lock);
    if (qp->tick_listed) {
        qp->tick_listed = false;
        if (qp->tick_previous != NULL)
            qp->tick_previous->tick_next = qp->tick_next;
        else
            worker->ticks = qp->tick_next;
        if (qp->tick_next != NULL)
            qp->tick_next->tick_previous = qp->tick_previous;
    }
    pthread_mutex_unlock(&worker->lock);
}

static void run_ticks(struct soft_worker *worker, uint64_t now_us)
{
    uint32_t handles[TICK_BATCH];
    uint32_t count = 0;

    pthread_mutex_lock(&worker->lock);
    for (struct soft_qp *qp = worker->ticks; qp != NULL && count < TICK_BATCH; qp = qp->tick_next)
        handles[count++] = qp->handle;
    pthread_mutex_unlock(&worker->lock);
    for (uint32_t i = 0; i < count; i++) {
        struct soft_qp *qp = soft_qp_get(handles[i]);

        if (qp == NULL)
            continue;
        soft_qp_tick(qp, now_us);
        soft_qp_put(qp);
    }
}

/* Cleared first: an id that is added meanwhile sets the flag again. */
static void run_deadlines(struct soft_worker *worker, uint64_t now_us)
{
    atomic_store(&worker->cm_waiting, false);
    if (soft_cm_deadlines(now_us))
        atomic_store(&worker->cm_waiting, true);
}

static bool has_ticks(struct soft_worker *worker)
{
    bool has;

    pthread_mutex_lock(&worker->lock);
    has = worker->ticks != NULL;
    pthread_mutex_unlock(&worker->lock);
    return has;
}

/* Returns the handle of the last queue pair that had something, or 0. */
static uint32_t handle_events(struct soft_worker *worker, struct epoll_event *events, int count)
{
    uint32_t busy = 0;

    for (int i = 0; i < count; i++) {
        uint32_t handle = (uint32_t)events[i].data.u64;
        struct soft_qp *qp;
        uint64_t value;

        switch (events[i].data.u64 >> 32) {
        case SOFT_POLL_QP:
            qp = soft_qp_get(handle);
            if (qp == NULL)
                break;
            soft_qp_event(qp, events[i].events);
            soft_qp_put(qp);
            busy = handle;
            break;
        case SOFT_POLL_CM:
            soft_cm_event(handle, events[i].events);
            break;
        default:
            if (read(worker->wake_fd, &value, sizeof(value)) < 0)
                soft_debug("worker wake-up: %s", strerror(errno));
            break;
        }
    }
    return busy;
}

static bool try_direct(uint32_t handle)
{
    struct soft_qp *qp = soft_qp_get(handle);
    bool productive;

    if (qp == NULL)
        return false;
    productive = atomic_load_explicit(&qp->owner, memory_order_relaxed) == SOFT_OWNER_WORKER &&
                 soft_rx_drive(qp, true);
    soft_qp_put(qp);
    return productive;
}

/*
 * Watch for a while without sleeping. Returns the number of epoll events, or -1 when the last
 * busy queue pair was served directly, or 0 when it is time to sleep.
 */
static int spin(struct soft_worker *worker, struct epoll_event *events, uint32_t last)
{
    uint64_t start = soft_now_us(), now = start;

    for (unsigned int turn = 0; now - start < soft_config.spin_us; turn++) {
        int n;

        if (last != 0 && turn % SPIN_DIRECT != SPIN_DIRECT - 1 && worker->direct < DIRECT_MAX) {
            if (try_direct(last)) {
                worker->direct++;
                return -1;
            }
        } else {
            worker->direct = 0;
            n = epoll_wait(worker->epoll_fd, events, EVENTS, 0);
            if (n > 0)
                return n;
        }
        /* Whoever could end this wait may need this very core. */
        sched_yield();
        now = soft_now_us();
    }
    worker->spin_score -= worker->spin_score > 0;
    return 0;
}

static int wait_timeout(struct soft_worker *worker, bool cm)
{
    if (has_ticks(worker))
        return SOFT_TICK_MS;
    return cm ? SOFT_SLOW_TICK_MS : -1;
}

static void *run(void *argument)
{
    struct soft_worker *worker = argument;
    struct epoll_event events[EVENTS];
    uint64_t last_tick = soft_now_us();
    uint32_t last = 0;
    bool worked = false;

    for (;;) {
        bool cm = worker->number == 0 && atomic_load(&worker->cm_waiting);
        bool spun = false;
        int n = 0;

        if (worked && worker->spin_score > 0 && soft_config.spin_us > 0 &&
            !soft_config.single_cpu) {
            n = spin(worker, events, last);
            spun = true;
        }
        if (n == 0) {
            uint64_t slept = soft_now_us();

            n = epoll_wait(worker->epoll_fd, events, EVENTS, wait_timeout(worker, cm));
            /* A spin in vain has been counted, however soon the sleep after it ends. */
            if (n > 0 && !spun && soft_now_us() - slept < soft_config.spin_us + SLEPT_US)
                worker->spin_score += worker->spin_score < SPIN_SCORE_MAX;
            else if (n > 0 && !spun)
                worker->spin_score -= worker->spin_score > 0;
        } else {
            worker->spin_score += worker->spin_score < SPIN_SCORE_MAX;
        }
        worked = n != 0;
        if (n > 0) {
            uint32_t busy = handle_events(worker, events, n);

            last = busy != 0 ? busy : last;
        }
        if (cm || has_ticks(worker)) {
            uint64_t now = soft_now_us();

            if (now - last_tick >= SOFT_TICK_MS * 1000u) {
                last_tick = now;
                run_ticks(worker, now);
                if (cm)
                    run_deadlines(worker, now);
            }
        }
    }
    return NULL;
}

static int start_worker(struct soft_worker *worker, unsigned int number)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = soft_poll_data(SOFT_POLL_WAKE, 0)};
    pthread_attr_t attributes;
    int r;

    worker->number = number;
    pthread_mutex_init(&worker->lock, NULL);
    worker->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (worker->epoll_fd < 0)
        return -errno;
    worker->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (worker->wake_fd < 0 ||
        epoll_ctl(worker->epoll_fd, EPOLL_CTL_ADD, worker->wake_fd, &event) < 0)
        return -errno;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    r = pthread_create(&worker->thread, &attributes, run, worker);
    pthread_attr_destroy(&attributes);
    if (r == 0)
        pthread_setname_np(worker->thread, "softrdma");
    return -r;
}

/* Start the workers, once per process, all signals blocked in them. Returns 0 or an errno. */
int soft_workers_start(void)
{
    sigset_t all, before;
    int r = 0;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (r == 0 && worker_count < soft_config.workers && worker_count < SOFT_MAX_WORKERS) {
        r = start_worker(&workers[worker_count], worker_count);
        if (r == 0)
            worker_count++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return worker_count > 0 ? 0 : r;
}
