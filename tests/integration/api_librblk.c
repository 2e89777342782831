/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * api_librblk -- what rblk.h promises besides moving bytes: bounds, room, memory, callbacks,
 * waiting, closing
 *
 *   api_librblk URI READ_ONLY_URI
 *
 * The first volume must have at least 8 MiB; it is written to.
 */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

#include "helper.h"
#include "initiator/rblk.h"

#define MIB (1u << 20)

#define CHECK(condition)                                                                     \
    do {                                                                                     \
        if (!(condition))                                                                    \
            helper_fail("line %d: %s; last error: %s", __LINE__, #condition, rblk_error(h)); \
    } while (0)

static struct rblk *h;

struct result {
    _Atomic int calls, error; /* any thread that polls runs callbacks */
};

static void note(void *opaque, int error)
{
    struct result *r = opaque;

    r->calls++;
    r->error = error;
}

static void attach(const char *uri, enum rblk_mode mode, unsigned int queues)
{
    CHECK(rblk_create(&h) == 0);
    CHECK(rblk_set_mode(h, mode) == 0);
    CHECK(rblk_set_queues(h, queues) == 0);
    CHECK(rblk_set_queue_depth(h, 8) == 0);
    CHECK(rblk_set_pool_size(h, MIB) == 0);
    CHECK(rblk_connect(h, uri) == 0);
}

static void wait_all(struct rblk_queue *q)
{
    while (rblk_queue_inflight(q))
        CHECK(rblk_queue_wait(q, 10000) > 0);
}

static void test_bounds(const char *uri)
{
    struct rblk_queue *q;
    uint64_t size;
    char byte[2] = "x";

    attach(uri, RBLK_MODE_RW, 1);
    size = rblk_get_size(h);
    q = rblk_get_queue(h, 0);
    CHECK(rblk_get_queue(h, 1) == NULL);
    CHECK(rblk_connect(h, uri) == -EISCONN);
    CHECK(rblk_set_queues(h, 2) == -EISCONN);
    CHECK(rblk_pread(h, byte, 1, size - 1) == 0);
    CHECK(rblk_pread(h, byte, 2, size - 1) == -EINVAL);
    CHECK(rblk_pread(h, byte, 1, size) == -EINVAL);
    CHECK(rblk_pread(h, byte, 1, UINT64_MAX) == -EINVAL);
    CHECK(rblk_pread(h, byte, SIZE_MAX, 1) == -EINVAL);
    CHECK(rblk_pread(h, byte, 0, size) == 0);
    CHECK(rblk_pread(h, byte, 0, size + 1) == -EINVAL);
    CHECK(rblk_pwrite(h, byte, 1, size, 0) == -EINVAL);
    CHECK(rblk_pwrite(h, byte, 1, 0, 2) == -EINVAL);
    CHECK(rblk_pwrite(h, NULL, 1, 0, 0) == -EINVAL);
    CHECK(rblk_pwrite(h, NULL, 0, 0, RBLK_FUA) == 0);
    CHECK(rblk_aio_read(q, byte, 2, size - 1, note, NULL) == -EINVAL);
    CHECK(rblk_queue_inflight(q) == 0);
    CHECK(rblk_queue_wait(q, -1) == 0); /* nothing is in flight: nothing to wait for */
    rblk_close(h);
}

static void test_read_only(const char *uri)
{
    struct rblk_info info;
    char byte = 'x';

    attach(uri, RBLK_MODE_RW, 1);
    CHECK(rblk_get_info(h, &info) == 0 && info.read_only);
    CHECK(rblk_pread(h, &byte, 1, 0) == 0);
    CHECK(rblk_pwrite(h, &byte, 1, 0, 0) == -EROFS);
    CHECK(rblk_flush(h) == 0);
    rblk_close(h);
}

/* More than a queue takes; with every kind of memory the pool does not have. */
static void test_room(const char *uri)
{
    struct result r = {0, 0};
    struct rblk_queue *q;
    uint8_t *big, *all;
    int accepted = 0, rc;

    attach(uri, RBLK_MODE_RW, 1);
    q = rblk_get_queue(h, 0);
    big = malloc(8 * MIB);
    CHECK(big != NULL);
    memset(big, 1, 8 * MIB);
    /* The caller holds the whole pool, and requests that must be copied work all the same. */
    all = rblk_buffer_get(q, MIB);
    CHECK(all != NULL);
    CHECK(rblk_buffer_get(q, 1) == NULL);
    CHECK(rblk_pwrite(h, big, 8 * MIB, 0, 0) == 0);
    CHECK(rblk_pread(h, big, 8 * MIB, 0) == 0);
    rblk_buffer_put(q, all, MIB);
    CHECK(rblk_buffer_get(q, MIB) == all);
    rblk_buffer_put(q, all, MIB);
    rblk_buffer_put(q, big, MIB); /* not the pool's: ignored */

    while ((rc = accepted % 2 ? rblk_aio_read(q, big, 10000, 0, note, &r)
                              : rblk_aio_write(q, big, 10000, MIB, 0, note, &r)) == 0)
        accepted++;
    CHECK(rc == -EAGAIN && accepted >= 64);
    CHECK(rblk_queue_inflight(q) == (unsigned int)accepted);
    CHECK(r.calls == 0);
    wait_all(q);
    CHECK(r.calls == accepted && r.error == 0);
    free(big);
    rblk_close(h);
}

static void test_registered(const char *uri)
{
    struct rblk_stats before, after;
    struct result r = {0, 0};
    struct rblk_queue *q;
    uint8_t *memory;

    attach(uri, RBLK_MODE_RW, 1);
    q = rblk_get_queue(h, 0);
    memory = aligned_alloc(4096, 4 * MIB);
    CHECK(memory != NULL);
    memset(memory, 7, 4 * MIB);
    CHECK(rblk_register(h, memory, 0) == -EINVAL);
    CHECK(rblk_register(h, memory, 4 * MIB) == 0);
    CHECK(rblk_get_stats(h, &before) == 0);
    CHECK(rblk_pwrite(h, memory + 3, 3 * MIB, 5, 0) == 0);
    CHECK(rblk_pwrite(h, memory + 3, 100, 5, 0) == 0);
    CHECK(rblk_pread(h, memory + MIB - 1, 3 * MIB + 1, 0) == 0);
    CHECK(rblk_get_stats(h, &after) == 0);
    CHECK(after.bounced == before.bounced);
    /* One byte beyond the region: copied. */
    CHECK(rblk_aio_read(q, memory, 4 * MIB, 0, note, &r) == 0);
    CHECK(rblk_unregister(h, memory) == -EBUSY);
    wait_all(q);
    CHECK(r.calls == 1 && r.error == 0);
    CHECK(rblk_unregister(h, memory) == 0);
    CHECK(rblk_unregister(h, memory) == -EINVAL);
    CHECK(rblk_pread(h, memory, 100, 0) == 0);
    CHECK(rblk_get_stats(h, &after) == 0);
    CHECK(after.bounced == before.bounced + 1);
    /* As many as may be, and again. */
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 64; i++)
            CHECK(rblk_register(h, memory + i * 4096, 4096) == 0);
        CHECK(rblk_register(h, memory, 4096) == -ENOSPC);
        for (int i = 0; i < 64; i++)
            CHECK(rblk_unregister(h, memory + i * 4096) == 0);
    }
    rblk_close(h);
    free(memory);
}

/* A callback may submit; a synchronous call would wait for itself and says so. */
struct chain {
    struct rblk_queue *q;
    char buffer[512];
    int left, sync_rc;
    bool from_sync;
};

static void chain_next(void *opaque, int error)
{
    struct chain *c = opaque;

    CHECK(error == 0);
    if (c->from_sync)
        c->sync_rc = rblk_pread(h, c->buffer, 1, 0);
    if (--c->left)
        CHECK(rblk_aio_read(c->q, c->buffer, sizeof(c->buffer), 0, chain_next, c) == 0);
}

static void test_callbacks(const char *uri)
{
    struct chain c = {.left = 1000};
    char byte;

    attach(uri, RBLK_MODE_RW, 1);
    c.q = rblk_get_queue(h, 0);
    CHECK(rblk_aio_read(c.q, c.buffer, sizeof(c.buffer), 0, chain_next, &c) == 0);
    wait_all(c.q);
    CHECK(c.left == 0);
    c.left = 1;
    c.from_sync = true;
    CHECK(rblk_aio_read(c.q, c.buffer, sizeof(c.buffer), 0, chain_next, &c) == 0);
    while (c.left) /* the synchronous call polls, so it runs the callback */
        CHECK(rblk_pread(h, &byte, 1, 0) == 0);
    CHECK(c.sync_rc == -EDEADLK);
    rblk_close(h);
}

/* The descriptor wakes a sleeper for a completion and for an extent that is mapped meanwhile. */
static void test_descriptor(const char *uri)
{
    struct result r = {0, 0};
    struct rblk_queue *q;
    char buffer[4096];

    attach(uri, RBLK_MODE_RW, 2);
    q = rblk_get_queue(h, 1);
    for (int i = 0; i < 200; i++) {
        uint64_t offset = (uint64_t)i * 4096 % (4 * MIB);

        CHECK(rblk_aio_read(q, buffer, sizeof(buffer), offset, note, &r) == 0);
        while (r.calls == i) {
            struct pollfd pfd = {.fd = rblk_queue_fd(q), .events = POLLIN};

            CHECK(rblk_queue_poll(q) >= 0);
            if (r.calls == i && rblk_queue_arm(q) == 0)
                CHECK(poll(&pfd, 1, 5000) == 1);
        }
    }
    CHECK(r.error == 0);
    /* And stays silent when nothing happens. */
    {
        struct pollfd pfd = {.fd = rblk_queue_fd(q), .events = POLLIN};
        int wakes = 0;

        for (int i = 0; i < 20; i++) {
            CHECK(rblk_queue_poll(q) == 0);
            CHECK(rblk_queue_arm(q) == 0);
            wakes += poll(&pfd, 1, 20);
        }
        CHECK(wakes <= 2);
    }
    rblk_close(h);
}

/* Threads with synchronous calls share a queue with one that polls it. */
static _Atomic bool stop;

static void *sync_main(void *arg)
{
    char buffer[5000];
    uint64_t *seed = arg;

    while (!atomic_load(&stop))
        CHECK(rblk_pread(h, buffer, 1 + (size_t)helper_below(seed, sizeof(buffer)),
                         helper_below(seed, MIB)) == 0);
    return NULL;
}

static void test_mixed(const char *uri)
{
    uint64_t seeds[4] = {1, 2, 3, 4}, until;
    struct result r = {0, 0};
    pthread_t threads[4];
    struct rblk_queue *q;
    char buffer[4096];
    int started = 0;

    attach(uri, RBLK_MODE_RW, 1);
    q = rblk_get_queue(h, 0);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, sync_main, &seeds[i]) == 0);
    until = helper_now() + 1000000000u;
    while (helper_now() < until) {
        if (rblk_aio_read(q, buffer, sizeof(buffer), 0, note, &r) == 0)
            started++;
        CHECK(rblk_queue_wait(q, 1000) >= 0);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    while (rblk_queue_inflight(q))
        CHECK(rblk_queue_wait(q, 1000) >= 0);
    CHECK(r.calls == started && r.error == 0);
    rblk_close(h);
}

static void test_close(const char *uri)
{
    struct result r = {0, 0};
    struct rblk_queue *q;
    uint8_t *buffer;
    int accepted = 0;

    attach(uri, RBLK_MODE_RW, 2);
    buffer = malloc(MIB);
    CHECK(buffer != NULL);
    memset(buffer, 3, MIB);
    for (unsigned int i = 0; i < 2; i++) {
        q = rblk_get_queue(h, i);
        for (int n = 0; n < 40; n++, accepted++) {
            CHECK((n % 2 ? rblk_aio_read(q, buffer, MIB, n * 1000, note, &r)
                         : rblk_aio_write(q, buffer, MIB, n * 1000, 0, note, &r)) == 0);
            if (n == 20)
                CHECK(rblk_queue_submit(q) == 0);
        }
    }
    rblk_close(h);
    if (r.calls != accepted)
        helper_fail("closing ran %d of %d callbacks", r.calls, accepted);
    if (r.error != -ECANCELED)
        helper_fail("closing ended requests with %d", r.error);
    free(buffer);
    /* The lock is free at once. */
    attach(uri, RBLK_MODE_RW, 1);
    rblk_close(h);
}

static int count_volume(void *opaque, const struct rblk_volume *volume)
{
    struct result *r = opaque;

    r->calls++;
    return volume->size == 0;
}

static void test_target(const char *uri)
{
    struct result r = {0, 0};
    uint64_t ns = 0;
    char byte;

    CHECK(rblk_create(&h) == 0);
    CHECK(rblk_connect_target(h, uri) == 0);
    CHECK(rblk_is_connected(h) && rblk_get_size(h) == 0);
    CHECK(rblk_ping(h, &ns) == 0 && ns > 0);
    CHECK(rblk_list(h, count_volume, &r) == 0 && r.calls == 2);
    CHECK(rblk_pread(h, &byte, 1, 0) == -ENOTCONN);
    CHECK(rblk_get_queue(h, 0) == NULL);
    rblk_close(h);
}

int main(int argc, char **argv)
{
    helper_select_provider(argv);
    if (argc != 3)
        helper_end(HELPER_USAGE, "usage: api_librblk URI READ_ONLY_URI");
    test_bounds(argv[1]);
    test_read_only(argv[2]);
    test_room(argv[1]);
    test_registered(argv[1]);
    test_callbacks(argv[1]);
    test_descriptor(argv[1]);
    test_mixed(argv[1]);
    test_close(argv[1]);
    test_target(argv[1]);
    return 0;
}
