/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * read_counters -- reads run no target code: thousands of them leave the target's message counters
 * as they were
 *
 *   read_counters URI [COUNT]
 *
 * The whole volume is read once, which maps every extent. Then come COUNT (default 10000) random
 * reads, half of them synchronous, half asynchronous with many in flight. Heartbeats are switched
 * off (an interval of ten minutes), so the only control message in between is the one that asks for
 * the counters.
 */
#include "helper.h"
#include "initiator/rblk.h"

#define READ_MAX 65536u
#define DEPTH 32

static struct rblk *h;

static void check(int rc)
{
    if (rc < 0)
        helper_end(HELPER_IO_ERROR, "%s", rblk_error(h));
}

static void read_whole(void)
{
    uint64_t size = rblk_get_size(h);
    uint8_t *buffer = malloc(1u << 20);

    if (!buffer)
        helper_fail("no memory");
    for (uint64_t at = 0; at < size; at += 1u << 20)
        check(rblk_pread(h, buffer, size - at < 1u << 20 ? (size_t)(size - at) : 1u << 20, at));
    free(buffer);
}

static size_t random_range(uint64_t *seed, uint64_t *offset)
{
    uint64_t size = rblk_get_size(h);
    uint64_t len = 1 + helper_below(seed, size < READ_MAX ? size : READ_MAX);

    *offset = helper_below(seed, size - len + 1);
    return (size_t)len;
}

static void read_done(void *opaque, int error)
{
    unsigned int *left = opaque;

    if (error)
        helper_end(HELPER_IO_ERROR, "a read failed: %s", strerror(-error));
    (*left)--;
}

static void random_reads(uint64_t count, uint64_t *seed)
{
    struct rblk_queue *q = rblk_get_queue(h, 0);
    uint8_t *pool[DEPTH], *buffer = malloc(READ_MAX);
    uint64_t offset;

    if (!buffer)
        helper_fail("no memory");
    for (int i = 0; i < DEPTH; i++) {
        pool[i] = rblk_buffer_get(q, READ_MAX);
        if (!pool[i])
            helper_fail("the pool has no %d buffers", DEPTH);
    }
    for (uint64_t n = 0; n < count / 2; n++) {
        size_t len = random_range(seed, &offset);

        check(rblk_pread(h, buffer, len, offset));
    }
    for (uint64_t n = 0; n < count - count / 2; n += DEPTH) {
        unsigned int left = DEPTH;

        for (int i = 0; i < DEPTH; i++) {
            size_t len = random_range(seed, &offset);

            check(rblk_aio_read(q, pool[i], len, offset, read_done, &left));
        }
        while (left)
            check(rblk_queue_wait(q, 10000));
    }
    for (int i = 0; i < DEPTH; i++)
        rblk_buffer_put(q, pool[i], READ_MAX);
    free(buffer);
}

int main(int argc, char **argv)
{
    struct rblk_target_stats before, after;
    struct rblk_stats own_before, own_after;
    uint64_t count, seed = 42, reads;

    helper_select_provider(argv);
    if (argc < 2 || argc > 3)
        helper_end(HELPER_USAGE, "usage: read_counters URI [COUNT]");
    count = argc > 2 ? helper_number(argv[2]) : 10000;
    check(rblk_create(&h));
    check(rblk_set_keepalive(h, 600000));
    check(rblk_connect(h, argv[1]));
    read_whole();
    check(rblk_get_stats(h, &own_before));
    check(rblk_get_target_stats(h, &before));
    random_reads(count, &seed);
    check(rblk_get_target_stats(h, &after));
    check(rblk_get_stats(h, &own_after));
    reads = own_after.rdma_reads - own_before.rdma_reads;
    printf("measured: %llu reads, %llu RDMA READs: %llu I/O messages, %llu control messages "
           "(one asks for the counters)\n",
           (unsigned long long)(own_after.reads - own_before.reads), (unsigned long long)reads,
           (unsigned long long)(after.io_messages - before.io_messages),
           (unsigned long long)(after.control_messages - before.control_messages));
    if (own_after.reads - own_before.reads < count || reads < count)
        helper_fail("fewer than %llu reads were posted", (unsigned long long)count);
    if (after.io_messages != before.io_messages)
        helper_fail("reads sent I/O messages");
    if (after.control_messages - before.control_messages > 1)
        helper_fail("reads sent control messages");
    rblk_close(h);
    return 0;
}
