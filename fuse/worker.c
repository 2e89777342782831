/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * worker -- the threads that carry requests from the kernel to the queues and back
 *
 * A struct worker and all it points to belong to its thread, but for the atomic fields and the
 * metrics (any thread reads them) and wake_fd (any thread writes it). The frontend is shared; see
 * there.
 *
 * One round of the loop posts what is parked, takes requests from the kernel until it has no more
 * or the worker has no room, polls the queue, whose callbacks answer the kernel, and hands these
 * answers over (answers.h). When a round finds nothing, the worker waits: it goes on with rounds
 * for a while if that has paid off lately (spin.h), then it sleeps in one poll(2) on all that may
 * end the wait.
 *
 * All workers would be woken by each request if all listened to the kernel while asleep. So only
 * one does: the first that is not full, which mostly is the first of all (the leader). The others
 * are dormant until the leader has more than it can do; then it wakes one more, which works until
 * there is nothing left for it. A worker that is full, of writes to a disk that hangs perhaps, says
 * so before it sleeps, and if it was the one that listens, it wakes the next that is not full. That
 * worker finds those before it full and listens in their place; when one of them has room again, it
 * finds that too, before its next sleep. Each worker states that it is full before it looks at the
 * others, all in one order (memory_order_seq_cst), and whoever is woken looks after it has cleared
 * its eventfd: so of two that fill up at once, one sees the other.
 */

#define FUSE_USE_VERSION 312

#include "worker.h"

#include <errno.h>
#include <fuse3/fuse_lowlevel.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "answers.h"
#include "clock.h"
#include "log.h"
#include "kernel.h"
#include "memory.h"
#include "spin.h"
#include "wake.h"

#define PAGE 4096u

/* Room for the data of a small write, which is copied so that the request buffer is free at once.
 */
#define SMALL_MAX 8192u

/* Request buffers, together and at least per worker: large writes that can be under way at once. */
#define BUFFERS_TOTAL 16u
#define BUFFERS_MIN 2u

/* A request buffer: a page for the headers, so that the data of a WRITE starts on a page. */
#define BUFFER_SIZE (PAGE + FRONTEND_MAX_IO)

/* Requests taken from the kernel before the queue is polled again. */
#define READ_BATCH 16u

/*
 * So many of them go out together, or data of so many bytes: the target works on these while the
 * worker takes more.
 */
#define SUBMIT_BATCH 8u
#define SUBMIT_BYTES (128u << 10)

/* With so much under way, requests or bytes, the leader calls for help. */
#define HELP_REQUESTS 24u
#define HELP_BYTES (3u << 20)

/* A sleep with requests under way looks at the queue at least this often, ms. */
#define BUSY_SLEEP_MS 1000
#define STOPPING_SLEEP_MS 20
/* The same when the queue cannot be armed. */
#define UNARMED_SLEEP_MS 10

struct buffer {
    struct buffer *next; /* free list */
    char *memory;        /* where a request is read to: the data of a WRITE is then page aligned */
};

struct request {
    struct worker *worker;
    struct request *next; /* free list or parked list */
    fuse_req_t fuse;
    uint64_t start_ns;
    uint64_t offset;
    size_t len;
    enum io_kind kind;
    enum io_kind step; /* what is posted: a durable write may be a write, then a flush */
    bool durable;
    void *data;            /* what the queue reads into or writes from */
    struct buffer *buffer; /* a large write: holds this one */
    char *small;           /* SMALL_MAX bytes of this request's own */
    struct answer answer;
};

struct worker {
    struct frontend *frontend;
    struct rblk_queue *queue;
    unsigned int index;
    int fuse_fd; /* own clone of the kernel connection */
    int wake_fd; /* eventfd: stop, or help wanted */
    pthread_t thread;
    bool started;

    struct request *requests; /* array of request_count */
    unsigned int request_count;
    struct request *free_requests;
    struct request *parked_first, **parked_last;
    struct buffer *buffers; /* array of buffer_count */
    unsigned int buffer_count;
    struct buffer *free_buffers;
    struct buffer *current; /* holds the request being taken */

    struct answers answers;
    struct request *answering; /* whose reply libfuse is about to write */

    _Atomic uint64_t inflight; /* posted and not finished; the worker writes */
    size_t inflight_bytes;
    size_t unsent;               /* bytes of writes that were posted and not submitted */
    bool gone;                   /* the kernel has closed the connection */
    _Atomic bool dormant;        /* a follower that may be called */
    _Atomic bool full;           /* asleep, or about to be, with no room for another request */
    struct spin request_spin;    /* waits with nothing under way */
    struct spin completion_spin; /* waits with requests under way */
    bool one_by_one;             /* the last requests came alone, with nothing else under way */
    struct metrics metrics;

    void *arena; /* all buffers and small areas of this worker */
    size_t arena_size;
};

static __thread struct worker *self;

static void request_done(void *opaque, int error);

/* -- records and buffers ---------------------------------------------------------------------- */

static struct request *request_take(struct worker *w, fuse_req_t fuse, enum io_kind kind)
{
    struct request *r =
        w->free_requests; /* never NULL: nothing is taken from the kernel without one */

    w->free_requests = r->next;
    r->next = NULL;
    r->fuse = fuse;
    r->kind = kind;
    r->step = kind;
    r->durable = false;
    r->data = NULL;
    r->buffer = NULL;
    r->len = 0;
    r->offset = 0;
    r->start_ns = rblk_now_ns();
    return r;
}

static void request_release(struct request *r)
{
    struct worker *w = r->worker;

    if (r->kind == IO_READ && r->data)
        rblk_buffer_put(w->queue, r->data, r->len);
    if (r->buffer) {
        r->buffer->next = w->free_buffers;
        w->free_buffers = r->buffer;
    }
    r->next = w->free_requests;
    w->free_requests = r;
}

/* -- posting ------------------------------------------------------------------------------------
 */

/* What the application sees. Errors of the connection are an I/O error to it; the status tells
 * more. */
static int errno_for_application(int error)
{
    switch (-error) {
    case ENOSPC:
    case EROFS:
    case ENOMEM:
    case EINVAL:
    case EOPNOTSUPP:
    case EDQUOT:
    case EPERM:
        return -error;
    default:
        return EIO;
    }
}

/* Answers the kernel and frees the record. */
static void request_finish(struct request *r, int error)
{
    struct worker *w = r->worker;
    struct frontend *f = w->frontend;
    struct timespec now;

    kernel_reply_to(w->fuse_fd);
    w->answering = r;
    if (error < 0) {
        counter_add(&w->metrics.errors, 1);
        fuse_reply_err(r->fuse, errno_for_application(error));
    } else if (r->kind == IO_READ) {
        fuse_reply_buf(r->fuse, r->data, r->len);
    } else if (r->kind == IO_WRITE) {
        clock_gettime(CLOCK_REALTIME_COARSE, &now);
        atomic_store_explicit(&f->mtime_ns, (int64_t)now.tv_sec * 1000000000 + now.tv_nsec,
                              memory_order_relaxed);
        atomic_store_explicit(&f->written, true, memory_order_relaxed);
        fuse_reply_write(r->fuse, r->len);
    } else {
        fuse_reply_err(r->fuse, 0);
    }
    counter_add(&w->metrics.requests[r->kind], 1);
    if (error == 0)
        counter_add(&w->metrics.bytes[r->kind], r->len);
    histogram_record(&w->metrics.latency[r->kind], rblk_now_ns() - r->start_ns);
    w->answering = NULL;
    if (!r->answer.collected)
        request_release(r);
}

/* libfuse has a reply for the worker's thread. */
static bool take_reply(void *opaque, const struct iovec *iov, int count)
{
    struct worker *w = opaque;

    return w->answering && answers_add(&w->answers, &w->answering->answer, iov, count);
}

static void answer_written(struct answer *answer)
{
    request_release((struct request *)((char *)answer - offsetof(struct request, answer)));
}

/* Hands the request's next step to the queue: 0, -EAGAIN when there is no room, or another error.
 */
static int request_start(struct request *r)
{
    struct worker *w = r->worker;
    uint64_t inflight = counter_get(&w->inflight);
    unsigned int flags = r->durable && w->frontend->info.can_fua ? RBLK_FUA : 0;
    int rc;

    switch (r->step) {
    case IO_READ:
        if (!r->data)
            r->data = rblk_buffer_get(w->queue, r->len);
        if (!r->data)
            return -EAGAIN;
        rc = rblk_aio_read(w->queue, r->data, r->len, r->offset, request_done, r);
        break;
    case IO_WRITE:
        rc = rblk_aio_write(w->queue, r->data, r->len, r->offset, flags, request_done, r);
        if (rc == 0)
            w->unsent += r->len;
        break;
    default:
        rc = rblk_aio_flush(w->queue, request_done, r);
        break;
    }
    if (rc < 0)
        return rc;
    atomic_store_explicit(&w->inflight, inflight + 1, memory_order_relaxed);
    w->inflight_bytes += r->len;
    return 0;
}

static void park(struct request *r)
{
    struct worker *w = r->worker;

    r->next = NULL;
    *w->parked_last = r;
    w->parked_last = &r->next;
    counter_add(&w->metrics.parked, 1);
}

static void request_post(struct request *r)
{
    struct worker *w = r->worker;
    int rc = w->parked_first ? -EAGAIN : request_start(r); /* nobody overtakes */

    if (rc == -EAGAIN)
        park(r);
    else if (rc < 0)
        request_finish(r, rc);
}

/* Runs inside rblk_queue_poll of the worker, or inside rblk_close at the very end. */
static void request_done(void *opaque, int error)
{
    struct request *r = opaque;
    struct worker *w = r->worker;

    atomic_store_explicit(&w->inflight, counter_get(&w->inflight) - 1, memory_order_relaxed);
    w->inflight_bytes -= r->len;
    if (error == 0 && r->step == IO_WRITE && r->durable && !w->frontend->info.can_fua) {
        r->step = IO_FLUSH;
        request_post(r);
        return;
    }
    request_finish(r, error);
}

/* Posts parked requests while there is room. Returns how many left the list. */
static unsigned int post_parked(struct worker *w)
{
    unsigned int n = 0;

    while (w->parked_first) {
        struct request *r = w->parked_first;
        struct request *next = r->next;
        int rc = request_start(r);

        if (rc == -EAGAIN) {
            /* With nothing under way no room will ever come: the pool is too small or broken. */
            if (counter_get(&w->inflight) > 0 || rblk_queue_inflight(w->queue) > 0)
                break;
            rc = -ENOMEM;
        }
        w->parked_first = next;
        if (!next)
            w->parked_last = &w->parked_first;
        if (rc < 0)
            request_finish(r, rc);
        n++;
    }
    return n;
}

/* -- what the operations call -------------------------------------------------------------------
 */

void worker_read(fuse_req_t fuse, size_t len, uint64_t offset)
{
    struct request *r = request_take(self, fuse, IO_READ);

    r->len = len;
    r->offset = offset;
    request_post(r);
}

void worker_write(fuse_req_t fuse, const void *data, size_t len, uint64_t offset, bool durable)
{
    struct worker *w = self;
    struct request *r = request_take(w, fuse, IO_WRITE);

    r->len = len;
    r->offset = offset;
    r->durable = durable;
    if (len <= SMALL_MAX) {
        memcpy(r->small, data, len);
        r->data = r->small;
    } else {
        r->data = (void *)data;
        r->buffer = w->current;
        w->current = NULL;
    }
    request_post(r);
}

void worker_flush(fuse_req_t fuse)
{
    request_post(request_take(self, fuse, IO_FLUSH));
}

/* -- taking requests ----------------------------------------------------------------------------
 */

static bool can_take(const struct worker *w)
{
    return !w->gone && !w->parked_first && w->free_requests && w->free_buffers;
}

/* Takes one request and starts what it asks for. False when the kernel has none for us. */
static bool take_request(struct worker *w)
{
    struct fuse_buf request = {.flags = 0};
    struct buffer *b = w->free_buffers;
    ssize_t n = read(w->fuse_fd, b->memory, KERNEL_REQUEST_MAX);

    if (n < 0) {
        if (errno == EINTR || errno == ENOENT) /* ENOENT: interrupted while it was handed to us */
            return true;
        if (errno == EAGAIN)
            return false;
        if (errno != ENODEV && errno != ECONNABORTED)
            log_error("requests cannot be read from /dev/fuse any more: %s", strerror(errno));
        w->gone = true; /* ENODEV: unmounted; ECONNABORTED: aborted */
        if (!atomic_exchange(&w->frontend->ended, true))
            eventfd_write(w->frontend->ended_fd, 1);
        return false;
    }
    w->free_buffers = b->next;
    w->current = b;
    request.mem = b->memory;
    request.size = (size_t)n;
    kernel_reply_to(w->fuse_fd);
    counter_add(&w->metrics.fuse_requests, 1);
    fuse_session_process_buf(w->frontend->session, &request);
    if (w->current) {
        b->next = w->free_buffers;
        w->free_buffers = b;
        w->current = NULL;
    }
    return true;
}

/* Does this worker listen to the kernel while it sleeps? */
static bool is_listener(const struct worker *w)
{
    for (unsigned int i = 0; i < w->index; i++)
        if (!atomic_load(&w->frontend->workers[i].full))
            return false;
    return true;
}

/* Says before a sleep whether there is room, and finds another listener when there is none. */
static void state_fullness(struct worker *w)
{
    struct frontend *f = w->frontend;
    bool full = !can_take(w);

    if (atomic_load_explicit(&w->full, memory_order_relaxed) == full)
        return;
    atomic_store(&w->full, full);
    if (!full || !is_listener(w))
        return;
    for (unsigned int i = w->index + 1; i < f->worker_count; i++)
        if (!atomic_load(&f->workers[i].full)) {
            eventfd_write(f->workers[i].wake_fd, 1);
            return;
        }
}

/* The leader has more than it can do: wakes one more worker, if one is asleep. */
static void call_for_help(struct worker *w)
{
    struct frontend *f = w->frontend;

    for (unsigned int i = 1; i < f->worker_count; i++) {
        struct worker *other = &f->workers[i];

        if (atomic_load_explicit(&other->dormant, memory_order_relaxed) &&
            atomic_exchange(&other->dormant, false)) {
            eventfd_write(other->wake_fd, 1);
            return;
        }
    }
}

static void submit(struct worker *w)
{
    rblk_queue_submit(w->queue);
    w->unsent = 0;
}

/*
 * Takes what the kernel has, within bounds; returns how many. Where requests come one by one, each
 * goes out before the kernel is asked for another, which it does not have: asking costs as much as
 * sending.
 */
static unsigned int take_requests(struct worker *w)
{
    bool idle = counter_get(&w->inflight) == 0;
    unsigned int taken = 0;

    while (taken < READ_BATCH && can_take(w) && take_request(w)) {
        taken++;
        if (taken % SUBMIT_BATCH == 0 || w->unsent >= SUBMIT_BYTES ||
            (taken == 1 && idle && w->one_by_one))
            submit(w);
    }
    if (taken > 0)
        w->one_by_one = idle && taken == 1;
    return taken;
}

/* One round; ask: the kernel too. Returns how much was done, 0 for nothing. */
static unsigned int worker_round(struct worker *w, bool ask)
{
    unsigned int done = 0, taken;
    int finished;

    if (w->parked_first)
        done += post_parked(w);
    taken = ask ? take_requests(w) : 0;
    if (w->index == 0 && taken > 0 && w->frontend->worker_count > 1 &&
        (counter_get(&w->inflight) >= HELP_REQUESTS || w->inflight_bytes >= HELP_BYTES ||
         taken == READ_BATCH || !can_take(w)))
        call_for_help(w);
    if (counter_get(&w->inflight) > 0) {
        finished = rblk_queue_poll(w->queue);
        w->unsent = 0;
        if (finished > 0)
            done += (unsigned int)finished;
    }
    if (w->answers.count > 0)
        answers_write(&w->answers, answer_written);
    return done + taken;
}

/* -- waiting --------------------------------------------------------------------------------------
 */

/*
 * Goes on with rounds until one finds something (true) or the bound is reached. With requests under
 * way it looks for their answers twice as often as for more requests.
 */
static bool spin_rounds(struct worker *w, const struct spin *spin, uint64_t start_ns)
{
    bool ask = true;

    do {
        /* Whoever could end this wait may need this very CPU. */
        sched_yield();
        if (worker_round(w, ask) > 0)
            return true;
        ask = !ask || counter_get(&w->inflight) == 0;
    } while (rblk_now_ns() - start_ns < spin->limit_ns &&
             !atomic_load_explicit(&w->frontend->stop, memory_order_relaxed) && !w->gone);
    return false;
}

static void drain_wake_fd(struct worker *w)
{
    eventfd_t ignored;

    eventfd_read(w->wake_fd, &ignored);
}

/* A follower without work sleeps here until it is called, or until the kernel calls the listener. */
static void sleep_dormant(struct worker *w)
{
    struct pollfd p[2] = {
        {.fd = w->wake_fd, .events = POLLIN},
        {.fd = w->fuse_fd, .events = POLLIN},
    };
    bool called = false;

    atomic_store(&w->dormant, true);
    while (!atomic_load(&w->frontend->stop) && !called) {
        p[1].revents = 0;
        poll(p, is_listener(w) ? 2 : 1, -1);
        if (p[0].revents)
            drain_wake_fd(w);
        called = p[1].revents || !atomic_load(&w->dormant);
    }
    atomic_store(&w->dormant, false);
}

static void sleep_until_event(struct worker *w, bool busy)
{
    struct pollfd p[3] = {{.fd = w->wake_fd, .events = POLLIN}};
    unsigned int n = 1;
    int timeout = -1;

    if (busy) {
        int rc = rblk_queue_arm(w->queue);

        if (rc > 0)
            return;
        if (rc == 0) {
            p[n].fd = rblk_queue_fd(w->queue);
            p[n++].events = POLLIN;
        }
        timeout = rc < 0 ? UNARMED_SLEEP_MS : BUSY_SLEEP_MS;
        if (atomic_load_explicit(&w->frontend->stop, memory_order_relaxed))
            timeout = STOPPING_SLEEP_MS;
    }
    if (can_take(w) && is_listener(w)) {
        p[n].fd = w->fuse_fd;
        p[n++].events = POLLIN;
    }
    if (poll(p, n, timeout) > 0 && p[0].revents)
        drain_wake_fd(w);
}

/* Waits for something to do. Returns whether a round of a spin has done some of it. */
static bool worker_wait(struct worker *w)
{
    bool busy = counter_get(&w->inflight) > 0;
    struct spin *spin = busy ? &w->completion_spin : &w->request_spin;
    bool spun = spin_is_worth(spin);
    uint64_t start = rblk_now_ns();

    if (spun && spin_rounds(w, spin, start)) {
        spin_learn(spin, rblk_now_ns() - start, false);
        counter_add(&w->metrics.spins, 1);
        return true;
    }
    counter_add(&w->metrics.sleeps, 1);
    state_fullness(w);
    if (w->index > 0 && !busy)
        sleep_dormant(w);
    else
        sleep_until_event(w, busy);
    /* A spin in vain counts as a long wait, however soon the sleep after it ended. */
    spin_learn(spin, spun ? UINT64_MAX : rblk_now_ns() - start, true);
    return false;
}

static bool may_end(const struct worker *w, unsigned int done)
{
    struct frontend *f = w->frontend;

    if (!atomic_load_explicit(&f->stop, memory_order_acquire) && !w->gone)
        return false;
    if (counter_get(&w->inflight) == 0 && !w->parked_first && done == 0)
        return true;
    return atomic_load_explicit(&f->stop, memory_order_relaxed) &&
           rblk_deadline_left_ms(atomic_load_explicit(&f->stop_deadline, memory_order_relaxed)) ==
               0;
}

/* All is answered, and whoever got the answer has to run before there is more to do. */
static bool others_turn(const struct worker *w)
{
    return w->one_by_one && w->index == 0 && counter_get(&w->inflight) == 0 && can_take(w) &&
           !atomic_load_explicit(&w->frontend->stop, memory_order_relaxed);
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    char name[16];

    self = w;
    snprintf(name, sizeof(name), "worker-%u", w->index);
    pthread_setname_np(pthread_self(), name);
    answers_open(&w->answers, w->fuse_fd);
    kernel_offer_replies(take_reply, w);
    for (;;) {
        unsigned int done = worker_round(w, true);

        if (may_end(w, done))
            break;
        if (done == 0 || others_turn(w))
            while (worker_wait(w) && others_turn(w))
                ;
    }
    kernel_offer_replies(NULL, NULL);
    answers_close(&w->answers);
    return NULL;
}

/* -- life
 * ------------------------------------------------------------------------------------------- */

/* Lays buffers and small areas out in one mapping, which is registered as a whole. */
static int create_arena(struct worker *w)
{
    struct frontend *f = w->frontend;
    char *at;

    w->arena_size = (size_t)w->buffer_count * BUFFER_SIZE + (size_t)w->request_count * SMALL_MAX;
    w->arena = rblk_memory_map(w->arena_size);
    if (!w->arena)
        return -errno;
    at = w->arena;
    for (unsigned int i = 0; i < w->buffer_count; i++, at += BUFFER_SIZE) {
        w->buffers[i].memory = at + PAGE - KERNEL_WRITE_HEADER;
        w->buffers[i].next = w->free_buffers;
        w->free_buffers = &w->buffers[i];
    }
    for (unsigned int i = 0; i < w->request_count; i++, at += SMALL_MAX) {
        w->requests[i].worker = w;
        w->requests[i].small = at;
        w->requests[i].next = w->free_requests;
        w->free_requests = &w->requests[i];
    }
    if (f->read_only)
        return 0;
    /* Without it the library copies each write through its own pool: slower, not wrong. */
    if (rblk_register(f->handle, w->arena, w->arena_size) < 0)
        log_warning("request buffers cannot be registered, large writes are copied: %s",
                    rblk_error(f->handle));
    return 0;
}

static int worker_create(struct worker *w)
{
    struct frontend *f = w->frontend;

    w->parked_last = &w->parked_first;
    w->request_count = f->info.queue_depth ? f->info.queue_depth : f->options->queue_depth;
    w->buffer_count = BUFFERS_TOTAL / f->worker_count;
    if (w->buffer_count < BUFFERS_MIN)
        w->buffer_count = BUFFERS_MIN;
    rblk_spin_init(&w->request_spin, f->options->spin_us);
    rblk_spin_init(&w->completion_spin, f->options->spin_us);
    w->queue = rblk_get_queue(f->handle, w->index);
    if (!w->queue)
        return -ENOTCONN;
    w->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (w->wake_fd < 0)
        return -errno;
    w->fuse_fd = kernel_clone(f);
    if (w->fuse_fd < 0)
        return w->fuse_fd;
    w->requests = calloc(w->request_count, sizeof(*w->requests));
    w->buffers = calloc(w->buffer_count, sizeof(*w->buffers));
    if (!w->requests || !w->buffers)
        return -ENOMEM;
    return create_arena(w);
}

int workers_create(struct frontend *f, char *err, size_t errlen)
{
    unsigned int count = f->info.queues ? f->info.queues : 1;
    int rc;

    f->workers = calloc(count, sizeof(*f->workers));
    if (!f->workers) {
        snprintf(err, errlen, "out of memory for %u workers", count);
        return -ENOMEM;
    }
    f->worker_count = count;
    for (unsigned int i = 0; i < count; i++) {
        f->workers[i].frontend = f;
        f->workers[i].index = i;
        f->workers[i].fuse_fd = -1;
        f->workers[i].wake_fd = -1;
    }
    for (unsigned int i = 0; i < count; i++) {
        rc = worker_create(&f->workers[i]);
        if (rc < 0) {
            snprintf(err, errlen, "worker %u of %s cannot be set up: %s; try fewer --queues", i,
                     f->mountpoint, strerror(-rc));
            return rc;
        }
    }
    return 0;
}

int workers_start(struct frontend *f)
{
    for (unsigned int i = 0; i < f->worker_count; i++) {
        int rc = pthread_create(&f->workers[i].thread, NULL, worker_main, &f->workers[i]);

        if (rc != 0) {
            workers_stop(f, rblk_now_ns());
            return -rc;
        }
        f->workers[i].started = true;
    }
    return 0;
}

void workers_stop(struct frontend *f, uint64_t deadline_ns)
{
    atomic_store_explicit(&f->stop_deadline, deadline_ns, memory_order_relaxed);
    atomic_store_explicit(&f->stop, true, memory_order_release);
    for (unsigned int i = 0; i < f->worker_count; i++)
        if (f->workers[i].started)
            eventfd_write(f->workers[i].wake_fd, 1);
    for (unsigned int i = 0; i < f->worker_count; i++) {
        if (!f->workers[i].started)
            continue;
        pthread_join(f->workers[i].thread, NULL);
        f->workers[i].started = false;
    }
}

void workers_destroy(struct frontend *f)
{
    for (unsigned int i = 0; i < f->worker_count; i++) {
        struct worker *w = &f->workers[i];

        /* What never got room in a queue is still owed an answer. */
        while (w->parked_first) {
            struct request *r = w->parked_first;

            w->parked_first = r->next;
            kernel_reply_to(w->fuse_fd);
            fuse_reply_err(r->fuse, EIO);
        }
        if (w->fuse_fd >= 0)
            close(w->fuse_fd);
        if (w->wake_fd >= 0)
            close(w->wake_fd);
        rblk_memory_unmap(w->arena, w->arena_size);
        free(w->requests);
        free(w->buffers);
    }
    kernel_reply_to(-1);
    free(f->workers);
    f->workers = NULL;
    f->worker_count = 0;
}

const struct metrics *worker_metrics(const struct frontend *f, unsigned int i)
{
    return &f->workers[i].metrics;
}

unsigned int worker_inflight(const struct frontend *f, unsigned int i)
{
    return (unsigned int)counter_get(&f->workers[i].inflight);
}
