/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * model_librblk -- random reads, writes and flushes through librblk agree with a model
 *
 *   model_librblk URI SIZE [SEED [COUNT|SECONDSs [sync|async|threads]]]
 *
 * A volume of up to 1 GiB is written whole first, a larger one must be a fresh sparse file. The
 * same seed makes the same requests. Afterwards the handle is closed, the volume attached again,
 * and everything that was ever written is compared.
 */
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>

#include "initiator/rblk.h"
#include "model.h"

#define IO_MAX (3u << 20)     /* longest request, bytes */
#define FILL_MAX (1ull << 30) /* a volume up to this size is written whole first */
#define ASYNC_MAX 48          /* requests in flight at once */
#define THREADS 6
#define QUEUES 3
#define EXTENT (64ull << 20) /* offsets are drawn towards multiples of this too */

static struct rblk *h;
static struct model model;
static uint64_t size, done_reads, done_writes, done_flushes, done_bytes;

static uint64_t minimum(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void connect_volume(const char *uri, unsigned int queues, size_t pool)
{
    if (rblk_create(&h))
        helper_fail("no memory");
    if (rblk_set_queues(h, queues) || rblk_set_queue_depth(h, 16) || rblk_set_pool_size(h, pool) ||
        rblk_connect(h, uri))
        helper_fail("%s", rblk_error(h));
    if (rblk_get_size(h) != size)
        helper_fail("the volume has %llu bytes, not %llu", (unsigned long long)rblk_get_size(h),
                    (unsigned long long)size);
}

static void compare(uint64_t offset, const void *data, size_t len, const char *what)
{
    uint64_t at = model_differs(&model, offset, data, len);

    if (at != UINT64_MAX)
        helper_fail("%s of %zu bytes at %llu: byte %llu differs from the model", what, len,
                    (unsigned long long)offset, (unsigned long long)at);
}

/* -- what to do next -----------------------------------------------------------------------------
 * */

enum kind { READ, WRITE, FUA_WRITE, FLUSH };

struct operation {
    enum kind kind;
    uint64_t offset;
    size_t len;
};

static size_t random_length(uint64_t *seed)
{
    switch (helper_below(seed, 8)) {
    case 0:
        return (size_t)helper_below(seed, 4); /* 0 too */
    case 1:
    case 2:
        return (size_t)(1 + helper_below(seed, 512));
    case 3:
    case 4:
        return (size_t)(4094 + helper_below(seed, 5));
    case 5:
        return (size_t)(8190 + helper_below(seed, 5)); /* where in-message data ends */
    case 6:
        return (size_t)(1 + helper_below(seed, 70000));
    default:
        return (size_t)(1 + helper_below(seed, helper_below(seed, 4) ? 300000 : IO_MAX));
    }
}

/* An operation within [from, to). */
static struct operation random_operation(uint64_t *seed, uint64_t from, uint64_t to)
{
    struct operation o = {.len = random_length(seed)};
    uint64_t room = to - from, which = helper_below(seed, 100);

    o.kind = which < 48 ? READ : which < 90 ? WRITE : which < 94 ? FUA_WRITE : FLUSH;
    o.len = (size_t)minimum(o.len, room);
    switch (helper_below(seed, 6)) {
    case 0: /* the very end */
        o.offset = to - o.len;
        break;
    case 1: /* around the border of an extent */
        o.offset =
            (1 + helper_below(seed, to / EXTENT + 1)) * EXTENT - helper_below(seed, o.len + 2);
        if (o.offset < from || o.offset > to - o.len)
            o.offset = from;
        break;
    case 2: /* a block border */
        o.offset = from + helper_below(seed, room - o.len + 1) / 4096 * 4096;
        break;
    default:
        o.offset = from + helper_below(seed, room - o.len + 1);
    }
    return o;
}

static void count_operation(const struct operation *o)
{
    uint64_t *counter = o->kind == READ    ? &done_reads
                        : o->kind == FLUSH ? &done_flushes
                                           : &done_writes;

    __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
    if (o->kind != FLUSH)
        __atomic_fetch_add(&done_bytes, o->len, __ATOMIC_RELAXED);
}

struct bound {
    uint64_t operations;  /* UINT64_MAX: none */
    uint64_t deadline_ns; /* UINT64_MAX: none */
};

static bool go_on(const struct bound *bound, uint64_t done)
{
    return done < bound->operations && helper_now() < bound->deadline_ns;
}

/* -- synchronous ----------------------------------------------------------------------------- */

static void run_operation(const struct operation *o, uint8_t *buffer, uint64_t *seed)
{
    int rc;

    switch (o->kind) {
    case READ:
        memset(buffer, 0x5a, o->len);
        rc = rblk_pread(h, buffer, o->len, o->offset);
        break;
    case FLUSH:
        rc = rblk_flush(h);
        break;
    default:
        helper_random_bytes(seed, buffer, o->len);
        model_write(&model, o->offset, buffer, o->len);
        rc = rblk_pwrite(h, buffer, o->len, o->offset, o->kind == FUA_WRITE ? RBLK_FUA : 0);
    }
    if (rc)
        helper_end(HELPER_IO_ERROR, "%s", rblk_error(h));
    if (o->kind == READ)
        compare(o->offset, buffer, o->len, "a read");
    count_operation(o);
}

struct worker {
    pthread_t thread;
    uint64_t seed, from, to;
    struct bound bound;
    bool registered;
};

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    uint8_t *buffer = aligned_alloc(4096, IO_MAX + 4096);

    if (!buffer)
        helper_fail("no memory");
    if (w->registered && rblk_register(h, buffer, IO_MAX + 4096))
        helper_fail("%s", rblk_error(h));
    for (uint64_t done = 0; go_on(&w->bound, done); done++) {
        struct operation o = random_operation(&w->seed, w->from, w->to);

        run_operation(&o, buffer + helper_below(&w->seed, 4096), &w->seed);
    }
    if (w->registered && rblk_unregister(h, buffer))
        helper_fail("%s", rblk_error(h));
    free(buffer);
    return NULL;
}

/* Each thread has a part of the volume of its own; the borders are nowhere round. */
static void run_threads(uint64_t seed, struct bound bound, unsigned int threads)
{
    struct worker workers[THREADS] = {0};

    if (size < 16 * threads)
        threads = 1;
    if (bound.operations != UINT64_MAX)
        bound.operations = (bound.operations + threads - 1) / threads;
    for (unsigned int i = 0; i < threads; i++) {
        workers[i].seed = seed + i * 7919;
        workers[i].from = size / threads * i;
        workers[i].to = i + 1 == threads ? size : size / threads * (i + 1);
        workers[i].bound = bound;
        workers[i].registered = i % 2 == 1;
    }
    for (unsigned int i = 1; i < threads; i++)
        if (pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]))
            helper_fail("cannot start a thread");
    worker_main(&workers[0]);
    for (unsigned int i = 1; i < threads; i++)
        pthread_join(workers[i].thread, NULL);
}

/* -- asynchronous ---------------------------------------------------------------------------- */

/* Memory of a request in flight: the pool's, registered, or neither. */
enum memory { POOL, REGISTERED, PLAIN };

struct flight {
    bool busy, finished;
    int error;
    struct operation o;
    enum memory memory;
    struct rblk_queue *q;
    uint8_t *buffer, *own; /* own: IO_MAX bytes that are this flight's for good */
};

static struct flight flights[ASYNC_MAX];

static void flight_done(void *opaque, int error)
{
    struct flight *f = opaque;

    f->error = error;
    f->finished = true;
}

/* Two requests in flight may touch the same bytes only when both read them. */
static bool conflicts(const struct operation *o)
{
    for (int i = 0; i < ASYNC_MAX; i++) {
        const struct operation *other = &flights[i].o;

        if (flights[i].busy && o->kind != FLUSH && other->kind != FLUSH &&
            (o->kind != READ || other->kind != READ) && o->offset < other->offset + other->len &&
            other->offset < o->offset + o->len)
            return true;
    }
    return false;
}

static void choose_memory(struct flight *f, uint64_t *seed)
{
    size_t skew = (size_t)helper_below(seed, 2) * (size_t)helper_below(seed, 64);

    f->memory = f - flights < ASYNC_MAX / 2 ? REGISTERED : PLAIN;
    f->buffer = f->own + skew;
    if (f->o.len && helper_below(seed, 3) == 0) {
        uint8_t *buffer = rblk_buffer_get(f->q, f->o.len);

        if (buffer) {
            f->memory = POOL;
            f->buffer = buffer;
        }
    }
}

static bool start_flight(struct flight *f, const struct operation *o, uint64_t *seed)
{
    int rc;

    f->o = *o;
    f->q = rblk_get_queue(h, (unsigned int)helper_below(seed, QUEUES));
    choose_memory(f, seed);
    f->finished = false;
    if (o->kind == READ) {
        memset(f->buffer, 0x5a, o->len);
        rc = rblk_aio_read(f->q, f->buffer, o->len, o->offset, flight_done, f);
    } else if (o->kind == FLUSH) {
        rc = rblk_aio_flush(f->q, flight_done, f);
    } else {
        helper_random_bytes(seed, f->buffer, o->len);
        rc = rblk_aio_write(f->q, f->buffer, o->len, o->offset, o->kind == FUA_WRITE ? RBLK_FUA : 0,
                            flight_done, f);
        if (rc == 0)
            model_write(&model, o->offset, f->buffer, o->len);
    }
    if (rc && rc != -EAGAIN)
        helper_end(HELPER_IO_ERROR, "%s", rblk_error(h));
    f->busy = rc == 0;
    if (rc && f->memory == POOL)
        rblk_buffer_put(f->q, f->buffer, o->len);
    return rc == 0;
}

/* Takes finished flights; returns how many. */
static unsigned int land(void)
{
    unsigned int landed = 0;

    for (int i = 0; i < ASYNC_MAX; i++) {
        struct flight *f = &flights[i];

        if (!f->busy || !f->finished)
            continue;
        if (f->error)
            helper_end(HELPER_IO_ERROR, "a request failed: %s (%s)", strerror(-f->error),
                       rblk_error(h));
        if (f->o.kind == READ)
            compare(f->o.offset, f->buffer, f->o.len, "an asynchronous read");
        if (f->memory == POOL)
            rblk_buffer_put(f->q, f->buffer, f->o.len);
        f->busy = false;
        count_operation(&f->o);
        landed++;
    }
    return landed;
}

/* Sleeps on the descriptors of all queues until one has something, which must come within 30 s. */
static void sleep_on_queues(void)
{
    struct pollfd pfd[QUEUES];

    for (unsigned int i = 0; i < QUEUES; i++) {
        struct rblk_queue *q = rblk_get_queue(h, i);

        pfd[i] = (struct pollfd){.fd = rblk_queue_fd(q), .events = POLLIN};
        if (rblk_queue_arm(q))
            return;
    }
    if (poll(pfd, QUEUES, 30000) == 0)
        helper_fail("no queue became readable within 30 s");
}

static void poll_queues(bool may_sleep)
{
    int finished = 0;

    for (unsigned int i = 0; i < QUEUES; i++) {
        int n = rblk_queue_poll(rblk_get_queue(h, i));

        if (n < 0)
            helper_end(HELPER_IO_ERROR, "%s", rblk_error(h));
        finished += n;
    }
    if (finished == 0 && may_sleep)
        sleep_on_queues();
}

static void run_async(uint64_t seed, struct bound bound)
{
    uint64_t started = 0;
    unsigned int busy = 0;

    for (int i = 0; i < ASYNC_MAX; i++) {
        flights[i].own = aligned_alloc(4096, IO_MAX + 4096);
        if (!flights[i].own)
            helper_fail("no memory");
        if (i < ASYNC_MAX / 2 && rblk_register(h, flights[i].own, IO_MAX + 4096))
            helper_fail("%s", rblk_error(h));
    }
    while (busy || go_on(&bound, started)) {
        for (int i = 0; i < ASYNC_MAX && go_on(&bound, started); i++) {
            struct operation o;

            if (flights[i].busy)
                continue;
            o = random_operation(&seed, 0, size);
            if (conflicts(&o) || !start_flight(&flights[i], &o, &seed))
                break;
            busy++;
            started++;
        }
        poll_queues(busy != 0);
        busy -= land();
    }
    for (int i = 0; i < ASYNC_MAX; i++) {
        if (i < ASYNC_MAX / 2 && rblk_unregister(h, flights[i].own))
            helper_fail("%s", rblk_error(h));
        free(flights[i].own);
    }
}

/* -- before and after ------------------------------------------------------------------------ */

static void fill(uint64_t seed)
{
    uint8_t *buffer = malloc(IO_MAX);

    if (!buffer)
        helper_fail("no memory");
    for (uint64_t at = 0; at < size;) {
        size_t len = (size_t)minimum(IO_MAX, size - at);

        helper_random_bytes(&seed, buffer, len);
        model_write(&model, at, buffer, len);
        if (rblk_pwrite(h, buffer, len, at, 0))
            helper_end(HELPER_IO_ERROR, "%s", rblk_error(h));
        at += len;
    }
    free(buffer);
}

static void verify_range(uint8_t *buffer, uint64_t offset, size_t len)
{
    memset(buffer, 0x5a, len);
    if (rblk_pread(h, buffer, len, offset))
        helper_end(HELPER_IO_ERROR, "%s", rblk_error(h));
    compare(offset, buffer, len, "after attaching again, a read");
}

static void verify(void)
{
    uint8_t *buffer = malloc(IO_MAX);

    if (!buffer)
        helper_fail("no memory");
    if (size <= FILL_MAX) {
        for (uint64_t at = 0; at < size; at += IO_MAX)
            verify_range(buffer, at, (size_t)minimum(IO_MAX, size - at));
    } else {
        for (size_t i = 0; i < model.capacity; i++) {
            uint64_t at = model.table[i].number * MODEL_BLOCK;

            if (model.table[i].data)
                verify_range(buffer, at, (size_t)minimum(MODEL_BLOCK, size - at));
        }
    }
    free(buffer);
}

static struct bound parse_bound(const char *text)
{
    struct bound bound = {UINT64_MAX, UINT64_MAX};
    size_t len = strlen(text);
    char number[32];

    if (len > 1 && len < sizeof(number) && text[len - 1] == 's') {
        memcpy(number, text, len - 1);
        number[len - 1] = '\0';
        bound.deadline_ns = helper_now() + helper_number(number) * 1000000000u;
    } else {
        bound.operations = helper_number(text);
    }
    return bound;
}

int main(int argc, char **argv)
{
    uint64_t seed = helper_now(), start;
    const char *mode = argc > 5 ? argv[5] : "sync";
    struct bound bound;

    helper_select_provider(argv);
    if (argc < 3 || argc > 6)
        helper_end(HELPER_USAGE,
                   "usage: model_librblk URI SIZE [SEED [COUNT|SECONDSs [sync|async|threads]]]");
    size = helper_number(argv[2]);
    if (argc > 3)
        seed = helper_number(argv[3]);
    printf("seed %llu, %s, %llu bytes\n", (unsigned long long)seed, mode, (unsigned long long)size);
    model_init(&model);
    connect_volume(argv[1], QUEUES, 4u << 20);
    if (size <= FILL_MAX)
        fill(seed);
    bound = parse_bound(argc > 4 ? argv[4] : "1000");
    start = helper_now();
    if (strcmp(mode, "async") == 0)
        run_async(seed, bound);
    else if (strcmp(mode, "threads") == 0)
        run_threads(seed, bound, THREADS);
    else if (strcmp(mode, "sync") == 0)
        run_threads(seed, bound, 1);
    else
        helper_end(HELPER_USAGE, "there is no mode \"%s\"; there are sync, async and threads",
                   mode);
    printf("measured: %s: %llu reads, %llu writes, %llu flushes, %llu MiB in %.2f s agree\n", mode,
           (unsigned long long)done_reads, (unsigned long long)done_writes,
           (unsigned long long)done_flushes, (unsigned long long)(done_bytes >> 20),
           (double)(helper_now() - start) / 1e9);
    rblk_close(h);
    connect_volume(argv[1], 1, 1u << 20);
    verify();
    rblk_close(h);
    model_free(&model);
    return 0;
}
