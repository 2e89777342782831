/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_target_io -- I/O queues of the target: reads without it, writes, flushes, limits, hostile
 * commands
 */
#include "suite.h"
#include "test_target_client.h"

#include "target/io.h"
#include "target/reactor.h"
#include "target/volume.h"

static struct client *control, *queue;
static struct rblk_attach_reply attached;

static void attach_as(const char *volume, enum rblk_attach_mode mode, struct client **c,
                      struct client **q, struct rblk_attach_reply *a)
{
    *c = client_hello(60000);
    ck_assert_int_eq(client_attach(*c, volume, mode, a), RBLK_STATUS_OK);
    *q = client_connect(RBLK_KIND_IO, a->token, 0, 16);
    ck_assert(!(*q)->rejected);
    ck_assert_uint_eq((*q)->accept.queue_depth, 16);
}

static void setup(void)
{
    server_start();
    attach_as("disk", RBLK_ATTACH_RW, &control, &queue, &attached);
}

static void teardown(void)
{
    client_close(control);
    client_close(queue);
    control = queue = NULL;
    server_stop();
}

static void expect_on_disk(const void *data, size_t len, uint64_t offset)
{
    FILE *f = fopen(server.disk, "r");
    uint8_t *got = malloc(len);

    ck_assert(f && got);
    ck_assert_int_eq(fseek(f, (long)offset, SEEK_SET), 0);
    ck_assert_uint_eq(fread(got, 1, len, f), len);
    ck_assert_mem_eq(got, data, len);
    fclose(f);
    free(got);
}

static void fill(uint8_t *data, size_t len, unsigned int seed)
{
    for (size_t i = 0; i < len; i++)
        data[i] = (uint8_t)(rand_r(&seed) >> 4);
}

START_TEST(reads_run_no_code_of_the_target)
{
    struct rblk_extent_map_reply map;
    struct rblk_stats_reply before, after;

    ck_assert_int_eq(client_map(control, 0, 4, &map), RBLK_STATUS_OK);
    client_stats(control, &before);
    for (int i = 0; i < 2000; i++)
        ck_assert_int_eq(client_read(queue, map.entry[i % 3].addr + (uint64_t)i * 64,
                                     map.entry[i % 3].rkey, 4096),
                         IBV_WC_SUCCESS);
    client_stats(control, &after);
    ck_assert_uint_eq(after.control_messages, before.control_messages + 1);
    ck_assert_uint_eq(after.io_messages, before.io_messages);
    ck_assert_int_eq(client_read(queue, map.entry[3].addr, map.entry[3].rkey, 4097),
                     IBV_WC_SUCCESS);
    expect_on_disk(queue->data, 4097, 3u << 20);
}
END_TEST

START_TEST(a_written_byte_is_the_next_one_read)
{
    struct rblk_extent_map_reply map;
    uint8_t data[8192];
    struct rblk_command m = {.opcode = RBLK_OP_WRITE, .flags = RBLK_CMD_INLINE};

    ck_assert_int_eq(client_map(control, 0, 4, &map), RBLK_STATUS_OK);
    for (unsigned int i = 0; i < 200; i++) {
        uint32_t length = 1 + i * 41 % sizeof(data);
        uint64_t offset = i * 5003;

        fill(data, sizeof(data), i);
        m.slot = (uint16_t)(i % 16);
        m.length = length;
        m.offset = offset;
        ck_assert_int_eq(client_command(queue, &m, data), RBLK_STATUS_OK);
        ck_assert_int_eq(client_read(queue, map.entry[0].addr + offset, map.entry[0].rkey, length),
                         IBV_WC_SUCCESS);
        ck_assert_mem_eq(queue->data, data, length);
    }
}
END_TEST

static int write_staged(struct client *q, uint32_t staging_offset, uint32_t length, uint64_t offset,
                        uint8_t flags)
{
    struct rblk_command m = {.opcode = RBLK_OP_WRITE,
                             .flags = flags,
                             .length = length,
                             .offset = offset,
                             .staging_offset = staging_offset};

    ck_assert_int_eq(rdma_post_write(q->id, NULL, q->data, length, q->data_mr, 0,
                                     q->accept.staging_addr + staging_offset,
                                     q->accept.staging_rkey),
                     0);
    return client_command(q, &m, NULL);
}

START_TEST(staged_writes_reach_the_file)
{
    uint32_t lengths[] = {1, 4095, 65536, 100001, CLIENT_DATA};

    for (unsigned int i = 0; i < 5; i++) {
        fill(queue->data, lengths[i], i);
        ck_assert_int_eq(write_staged(queue, i * 65536, lengths[i], 1 + i * 4099, 0),
                         RBLK_STATUS_OK);
        expect_on_disk(queue->data, lengths[i], 1 + i * 4099);
    }
    fill(queue->data, 4097, 77);
    ck_assert_int_eq(write_staged(queue, 0, 4097, DISK_SIZE - 4097, RBLK_CMD_FUA), RBLK_STATUS_OK);
    expect_on_disk(queue->data, 4097, DISK_SIZE - 4097);
}
END_TEST

START_TEST(one_fdatasync_for_each_flush)
{
    struct rblk_command flush = {.opcode = RBLK_OP_FLUSH};
    struct rblk_stats_reply before, after;

    client_stats(control, &before);
    ck_assert_int_eq(client_command(queue, &flush, NULL), RBLK_STATUS_OK);
    ck_assert_int_eq(write_staged(queue, 0, 512, 0, RBLK_CMD_FUA), RBLK_STATUS_OK);
    ck_assert_int_eq(client_command(queue, &flush, NULL), RBLK_STATUS_OK);
    client_stats(control, &after);
    ck_assert_uint_eq(after.fdatasyncs, before.fdatasyncs + 2);
    ck_assert_uint_eq(after.flushes, before.flushes + 2);
    ck_assert_uint_eq(after.fua_writes, before.fua_writes + 1);
    ck_assert_uint_eq(after.writes, before.writes + 1);
    ck_assert_uint_eq(after.write_bytes, before.write_bytes + 512);
    ck_assert_uint_eq(after.io_messages, before.io_messages + 3);
}
END_TEST

START_TEST(ranges_are_checked_without_overflow)
{
    /* An end beyond 64 bits is no number at all: test_wire has that as malformed. */
    uint64_t offsets[] = {DISK_SIZE, DISK_SIZE - 511, UINT64_MAX / 4, UINT64_MAX / 2 - 512};
    struct rblk_command m = {.opcode = RBLK_OP_WRITE, .length = 512};
    struct rblk_stats_reply stats;

    for (int i = 0; i < 4; i++) {
        m.offset = offsets[i];
        ck_assert_int_eq(client_command(queue, &m, NULL), RBLK_STATUS_RANGE);
    }
    m.offset = 0;
    m.staging_offset = queue->accept.staging_len - 511;
    ck_assert_int_eq(client_command(queue, &m, NULL), RBLK_STATUS_RANGE);
    m.staging_offset = 0;
    m.length = attached.max_io + 1;
    ck_assert_int_eq(client_command(queue, &m, NULL), RBLK_STATUS_RANGE);
    client_stats(control, &stats);
    ck_assert_uint_eq(stats.errors, 6);
    ck_assert_uint_eq(stats.writes, 0);
    ck_assert_int_eq(write_staged(queue, 0, 512, 0, 0), RBLK_STATUS_OK);
}
END_TEST

START_TEST(readers_may_not_write)
{
    struct client *c, *q;
    struct rblk_attach_reply a;
    struct rblk_command m = {.opcode = RBLK_OP_WRITE, .flags = RBLK_CMD_INLINE, .length = 4};

    attach_as("disk", RBLK_ATTACH_RO, &c, &q, &a);
    ck_assert_uint_eq(q->accept.staging_len, 0);
    ck_assert_int_eq(client_command(q, &m, "evil"), RBLK_STATUS_READ_ONLY);
    client_close(c);
    client_close(q);
    attach_as("fixed", RBLK_ATTACH_RW, &c, &q, &a);
    ck_assert_int_eq(client_command(q, &m, "evil"), RBLK_STATUS_READ_ONLY);
    client_close(c);
    client_close(q);
}
END_TEST

START_TEST(a_failed_volume_refuses_writes_and_flushes)
{
    struct rblk_command flush = {.opcode = RBLK_OP_FLUSH};
    struct rblk_extent_map_reply map;
    struct client *c, *q;
    struct rblk_attach_reply a;

    /* What a reactor does when an fdatasync fails. */
    ck_assert(volume_latch_failed(&server.target.volumes[0]));
    server.expected = -EIO;
    ck_assert_int_eq(write_staged(queue, 0, 512, 0, 0), RBLK_STATUS_FAILED);
    ck_assert_int_eq(client_command(queue, &flush, NULL), RBLK_STATUS_FAILED);
    ck_assert_int_eq(client_map(control, 0, 1, &map), RBLK_STATUS_OK);
    ck_assert_int_eq(client_read(queue, map.entry[0].addr, map.entry[0].rkey, 16), IBV_WC_SUCCESS);
    attach_as("disk", RBLK_ATTACH_RO, &c, &q, &a);
    ck_assert_uint_eq(a.flags, RBLK_VOLUME_FAILED | RBLK_VOLUME_ATTACHED);
    client_close(c);
    client_close(q);
    attach_as("other", RBLK_ATTACH_RW, &c, &q, &a);
    ck_assert_int_eq(client_command(q, &flush, NULL), RBLK_STATUS_OK);
    client_close(c);
    client_close(q);
}
END_TEST

/* The end of an operation that io_uring has done without an error: the status that is answered. */
static unsigned int status_of_done(struct volume *v, uint8_t opcode, uint8_t flags)
{
    static struct reactor reactor;
    struct reply reply = {0};
    uint16_t repost = 0;
    struct queue q = {.reactor = &reactor,
                      .volume = v,
                      .depth = 1,
                      .state = QUEUE_SERVING,
                      .replies = &reply,
                      .reposts = &repost,
                      .ring_operations = 1};
    bool sync = opcode == RBLK_OP_FLUSH || (flags & RBLK_CMD_FUA);
    struct request request = {
        .queue = &q,
        .opcode = opcode,
        .flags = flags,
        .state = sync ? REQUEST_SYNCING : REQUEST_WRITING,
        .length = opcode == RBLK_OP_FLUSH ? 0 : 512,
        .done = sync && opcode != RBLK_OP_FLUSH ? 512 : 0,
    };

    reactor.dirty = NULL;
    io_ring_done(&request, sync ? 0 : 512);
    ck_assert_uint_eq(q.reply_count, 1);
    return reply.status;
}

START_TEST(a_sync_beside_a_failed_one_is_not_believed)
{
    static struct volume v;

    ck_assert_uint_eq(status_of_done(&v, RBLK_OP_FLUSH, 0), RBLK_STATUS_OK);
    ck_assert_uint_eq(status_of_done(&v, RBLK_OP_WRITE, RBLK_CMD_FUA), RBLK_STATUS_OK);
    ck_assert(volume_latch_failed(&v));
    ck_assert_uint_eq(status_of_done(&v, RBLK_OP_FLUSH, 0), RBLK_STATUS_FAILED);
    ck_assert_uint_eq(status_of_done(&v, RBLK_OP_WRITE, RBLK_CMD_FUA), RBLK_STATUS_FAILED);
    /* It promised nothing about stable storage, and it was done. */
    ck_assert_uint_eq(status_of_done(&v, RBLK_OP_WRITE, 0), RBLK_STATUS_OK);
}
END_TEST

START_TEST(a_dead_client_latches_real_failures_only)
{
    static char path[] = "disk.img";
    static struct volume v = {.name = "disk", .path = path};
    struct queue q = {.volume = &v, .state = QUEUE_DRAINING, .ring_operations = 3};
    struct request request = {.queue = &q, .opcode = RBLK_OP_FLUSH, .state = REQUEST_SYNCING};

    io_ring_done(&request, -EINTR);
    io_ring_done(&request, -EAGAIN);
    ck_assert(!volume_has_failed(&v));
    io_ring_done(&request, -EIO);
    ck_assert(volume_has_failed(&v));
    ck_assert_uint_eq(q.ring_operations, 0);
}
END_TEST

/* Of a FUA write, the sync latches whatever its error is; the write does not. */
START_TEST(fua_latches_when_its_sync_fails)
{
    static char path[] = "disk.img";
    static struct volume v = {.name = "disk", .path = path};
    static struct reactor reactor;
    struct reply reply[2] = {0};
    uint16_t repost[2] = {0};
    struct queue q = {
        .reactor = &reactor,
        .volume = &v,
        .depth = 2,
        .state = QUEUE_SERVING,
        .replies = reply,
        .reposts = repost,
        .ring_operations = 2,
    };
    struct request request = {
        .queue = &q,
        .opcode = RBLK_OP_WRITE,
        .flags = RBLK_CMD_FUA,
        .state = REQUEST_WRITING,
        .length = 512,
    };

    io_ring_done(&request, -ENOSPC);
    ck_assert_uint_eq(reply[0].status, RBLK_STATUS_NO_SPACE);
    ck_assert(!volume_has_failed(&v));
    request.state = REQUEST_SYNCING;
    request.done = 512;
    io_ring_done(&request, -ENOSPC);
    ck_assert_uint_eq(reply[1].status, RBLK_STATUS_NO_SPACE);
    ck_assert(volume_has_failed(&v));
}
END_TEST

START_TEST(readers_share_registrations)
{
    struct rblk_extent_release release = {.count = 1, .index = {0}};
    uint8_t message[RBLK_CONTROL_MAX], reply[RBLK_CONTROL_MAX];
    struct client *c[2], *q[2];
    struct rblk_extent_map_reply map[2];
    struct rblk_attach_reply a;
    struct rblk_stats_reply stats;
    size_t len;

    for (int i = 0; i < 2; i++) {
        attach_as("disk", RBLK_ATTACH_RO, &c[i], &q[i], &a);
        ck_assert_int_eq(client_map(c[i], 0, 2, &map[i]), RBLK_STATUS_OK);
    }
    client_stats(control, &stats);
    ck_assert_uint_eq(stats.extents_mapped, 2);
    ck_assert_uint_eq(map[0].entry[0].rkey, map[1].entry[0].rkey);
    ck_assert_int_eq(
        client_status(c[0], message, rblk_extent_release_encode(message, 1, &release), reply, &len),
        RBLK_STATUS_OK);
    ck_assert_int_eq(client_read(q[1], map[1].entry[0].addr, map[1].entry[0].rkey, 64),
                     IBV_WC_SUCCESS);
    ck_assert_int_eq(client_simple(c[0], RBLK_DETACH), RBLK_STATUS_OK);
    ck_assert_int_eq(client_read(q[1], map[1].entry[1].addr, map[1].entry[1].rkey, 64),
                     IBV_WC_SUCCESS);
    ck_assert_int_eq(client_simple(c[1], RBLK_DETACH), RBLK_STATUS_OK);
    client_stats(control, &stats);
    ck_assert_uint_eq(stats.extents_mapped, 0);
    for (int i = 0; i < 2; i++) {
        client_close(q[i]);
        client_close(c[i]);
    }
}
END_TEST

/* -- hostile commands --------------------------------------------------------------------- */

static void expect_drop(const void *message, size_t len)
{
    struct rblk_stats_reply before;
    static uint16_t number = 1;
    struct client *q = client_connect(RBLK_KIND_IO, attached.token, number++, 16);

    ck_assert(!q->rejected);
    client_stats(control, &before);
    client_send(q, message, len);
    ck_assert(client_is_dropped(q));
    ck_assert(client_sees_protocol_errors(control, before.protocol_errors + 1));
    client_close(q);
}

START_TEST(a_hostile_queue_harms_only_itself)
{
    struct rblk_command good = {.opcode = RBLK_OP_WRITE, .flags = RBLK_CMD_INLINE, .length = 100};
    uint8_t m[RBLK_COMMAND_LEN + 8193] = {0};

    memset(m, 0xff, sizeof(m));
    expect_drop(m, 1);
    expect_drop(m, RBLK_COMMAND_LEN);
    memset(m, 0, sizeof(m));
    rblk_command_encode(m, &good);
    expect_drop(m, RBLK_COMMAND_LEN);
    expect_drop(m, RBLK_COMMAND_LEN + 99);
    expect_drop(m, RBLK_COMMAND_LEN + 101);
    good.length = 8193;
    rblk_command_encode(m, &good);
    expect_drop(m, RBLK_COMMAND_LEN + 8193);
    good.length = 100;
    good.slot = 16;
    rblk_command_encode(m, &good);
    expect_drop(m, RBLK_COMMAND_LEN + 100);
    good.opcode = 200;
    rblk_command_encode(m, &good);
    expect_drop(m, RBLK_COMMAND_LEN);
    ck_assert_int_eq(write_staged(queue, 0, 512, 0, 0), RBLK_STATUS_OK);
}
END_TEST

START_TEST(a_guessed_key_of_another_client_is_refused)
{
    struct client *c, *q;
    struct rblk_attach_reply a;
    struct rblk_extent_map_reply mine;

    ck_assert_int_eq(client_map(control, 0, 1, &mine), RBLK_STATUS_OK);
    attach_as("other", RBLK_ATTACH_RW, &c, &q, &a);
    ck_assert_int_eq(client_read(q, mine.entry[0].addr, mine.entry[0].rkey, 16),
                     IBV_WC_REM_ACCESS_ERR);
    client_close(c);
    client_close(q);
    /* A reader of the same volume is in another domain too. */
    attach_as("disk", RBLK_ATTACH_RO, &c, &q, &a);
    ck_assert_int_eq(rdma_post_write(q->id, NULL, q->data, 16, q->data_mr, IBV_SEND_SIGNALED,
                                     queue->accept.staging_addr, queue->accept.staging_rkey),
                     0);
    ck_assert(client_is_dropped(q));
    client_close(c);
    client_close(q);
}
END_TEST

START_TEST(volume_memory_cannot_be_written_by_rdma)
{
    struct rblk_extent_map_reply map;

    ck_assert_int_eq(client_map(control, 0, 1, &map), RBLK_STATUS_OK);
    ck_assert_int_eq(rdma_post_write(queue->id, NULL, queue->data, 16, queue->data_mr,
                                     IBV_SEND_SIGNALED, map.entry[0].addr, map.entry[0].rkey),
                     0);
    ck_assert(client_is_dropped(queue));
}
END_TEST

START_TEST(a_released_extent_cannot_be_read)
{
    struct rblk_extent_release release = {.count = 1, .index = {0}};
    uint8_t message[RBLK_CONTROL_MAX], reply[RBLK_CONTROL_MAX];
    struct rblk_extent_map_reply map;
    size_t len;

    ck_assert_int_eq(client_map(control, 0, 1, &map), RBLK_STATUS_OK);
    ck_assert_int_eq(client_read(queue, map.entry[0].addr, map.entry[0].rkey, 16), IBV_WC_SUCCESS);
    ck_assert_int_eq(client_status(control, message,
                                   rblk_extent_release_encode(message, 1, &release), reply, &len),
                     RBLK_STATUS_OK);
    ck_assert_int_eq(client_read(queue, map.entry[0].addr, map.entry[0].rkey, 16),
                     IBV_WC_REM_ACCESS_ERR);
}
END_TEST

/* -- under load --------------------------------------------------------------------------- */

/* Starts 16 large writes and waits for none. */
static void burst(struct client *q)
{
    struct rblk_command m = {.opcode = RBLK_OP_WRITE, .length = 190000};
    uint8_t *message = q->buffers + (size_t)CLIENT_DEPTH * CLIENT_BUFFER;

    for (uint16_t slot = 0; slot < 16; slot++) {
        m.slot = slot;
        m.offset = slot * 190000u;
        m.staging_offset = slot * 262144u;
        rblk_command_encode(message + slot * 64u, &m);
        ck_assert_int_eq(
            rdma_post_send(q->id, NULL, message + slot * 64u, RBLK_COMMAND_LEN, q->mr, 0), 0);
    }
}

START_TEST(clients_vanish_with_writes_in_flight)
{
    for (int i = 0; i < 20; i++) {
        struct rblk_attach_reply a;
        struct client *c, *q;

        client_close(i % 2 ? control : queue);
        client_close(i % 2 ? queue : control);
        attach_as("disk", RBLK_ATTACH_RW, &c, &q, &a);
        burst(q);
        control = c;
        queue = q;
    }
}
END_TEST

START_TEST(what_is_in_flight_is_answered_at_the_end)
{
    struct rblk_completion done;
    const uint8_t *buffer;
    uint32_t len = 0, answers = 0;
    struct rblk_stats_reply stats;

    burst(queue);
    do
        client_stats(control, &stats);
    while (stats.io_messages < 16);
    server_signal();
    server.stopped = true;
    while ((buffer = client_wait(queue, IBV_WC_RECV, &len)) != NULL) {
        ck_assert_int_eq(rblk_completion_decode(&done, buffer, len), 0);
        ck_assert_uint_eq(done.status, RBLK_STATUS_OK);
        answers++;
    }
    ck_assert_uint_eq(answers, 16);
}
END_TEST

START_TEST(a_slot_in_use_is_a_violation)
{
    struct rblk_command m = {.opcode = RBLK_OP_FLUSH};
    uint8_t *message = queue->buffers + (size_t)CLIENT_DEPTH * CLIENT_BUFFER;
    struct ibv_sge sge = {
        .addr = (uint64_t)(uintptr_t)message, .length = RBLK_COMMAND_LEN, .lkey = queue->mr->lkey};
    struct ibv_send_wr wr[2] =
        {
            {.next = &wr[1], .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND},
            {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND},
        },
                       *bad;

    rblk_command_encode(message, &m);
    for (int i = 0; i < 100 && !queue->failed; i++) {
        /*
         * Both arrive at once, so that the second finds the first one at work, at least now and
         * then.
         */
        if (ibv_post_send(queue->id->qp, wr, &bad))
            break;
        if (client_wait(queue, IBV_WC_RECV, NULL) && client_wait(queue, IBV_WC_RECV, NULL))
            continue;
    }
    ck_assert(queue->failed);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("target_io");
    TCase *t = tcase_create("io");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, reads_run_no_code_of_the_target);
    tcase_add_test(t, a_written_byte_is_the_next_one_read);
    tcase_add_test(t, staged_writes_reach_the_file);
    tcase_add_test(t, one_fdatasync_for_each_flush);
    tcase_add_test(t, ranges_are_checked_without_overflow);
    tcase_add_test(t, readers_may_not_write);
    tcase_add_test(t, readers_share_registrations);
    tcase_add_test(t, a_failed_volume_refuses_writes_and_flushes);
    tcase_add_test(t, a_sync_beside_a_failed_one_is_not_believed);
    tcase_add_test(t, a_dead_client_latches_real_failures_only);
    tcase_add_test(t, a_hostile_queue_harms_only_itself);
    tcase_add_test(t, fua_latches_when_its_sync_fails);
    tcase_add_test(t, a_guessed_key_of_another_client_is_refused);
    tcase_add_test(t, volume_memory_cannot_be_written_by_rdma);
    tcase_add_test(t, a_released_extent_cannot_be_read);
    tcase_add_test(t, clients_vanish_with_writes_in_flight);
    tcase_add_test(t, what_is_in_flight_is_answered_at_the_end);
    tcase_add_test(t, a_slot_in_use_is_a_violation);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return suite_run(suite());
}
