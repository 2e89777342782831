/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_target_protocol -- control connections of the target: what they answer, refuse and survive
 */
#include "suite.h"
#include "test_target_client.h"

static struct rblk_attach_reply attached;

START_TEST(it_greets_lists_and_counts)
{
    uint8_t message[RBLK_CONTROL_MAX], reply[RBLK_CONTROL_MAX];
    struct client *c = client_hello(5000);
    struct rblk_list request = {.first = 1};
    struct rblk_list_reply list;
    struct rblk_stats_reply stats;
    size_t len;

    ck_assert_int_eq(client_simple(c, RBLK_PING), RBLK_STATUS_OK);
    ck_assert_int_eq(client_status(c, message, rblk_list_encode(message, 9, &request), reply, &len),
                     RBLK_STATUS_OK);
    ck_assert_int_eq(rblk_list_reply_decode(&list, reply, len), 0);
    ck_assert_uint_eq(list.total, 3);
    ck_assert_uint_eq(list.count, 2);
    ck_assert_str_eq(list.entry[0].name, "other");
    ck_assert_uint_eq(list.entry[1].flags, RBLK_VOLUME_RO);
    ck_assert_uint_eq(list.entry[0].size, 1u << 20);
    request.first = 4;
    ck_assert_int_eq(client_status(c, message, rblk_list_encode(message, 9, &request), reply, &len),
                     RBLK_STATUS_RANGE);
    client_stats(c, &stats);
    ck_assert_uint_eq(stats.control_messages, 5);
    ck_assert_uint_eq(stats.sessions, 0);
    ck_assert_uint_eq(stats.io_messages, 0);
    client_close(c);
}
END_TEST

START_TEST(it_attaches_and_detaches)
{
    struct client *c = client_hello(5000);

    ck_assert_int_eq(client_simple(c, RBLK_DETACH), RBLK_STATUS_STATE);
    ck_assert_int_eq(client_attach(c, "none", RBLK_ATTACH_RW, &attached), RBLK_STATUS_NOT_FOUND);
    ck_assert_int_eq(client_attach(c, "disk", RBLK_ATTACH_RW, &attached), RBLK_STATUS_OK);
    ck_assert_uint_eq(attached.size, DISK_SIZE);
    ck_assert_uint_eq(attached.extent_size, 1u << 20);
    ck_assert_uint_eq(attached.flags, RBLK_VOLUME_ATTACHED);
    ck_assert_int_eq(client_attach(c, "disk", RBLK_ATTACH_RW, &attached), RBLK_STATUS_STATE);
    ck_assert_int_eq(client_simple(c, RBLK_DETACH), RBLK_STATUS_OK);
    ck_assert_int_eq(client_attach(c, "fixed", RBLK_ATTACH_RW, &attached), RBLK_STATUS_OK);
    ck_assert_uint_eq(attached.flags, RBLK_VOLUME_RO);
    client_close(c);
}
END_TEST

START_TEST(one_writer_at_a_time)
{
    struct client *a = client_hello(5000), *b = client_hello(5000), *c = client_hello(5000);

    ck_assert_int_eq(client_attach(a, "disk", RBLK_ATTACH_RW, &attached), RBLK_STATUS_OK);
    ck_assert_int_eq(client_attach(b, "disk", RBLK_ATTACH_RW, &attached), RBLK_STATUS_BUSY);
    ck_assert_int_eq(client_attach(b, "disk", RBLK_ATTACH_SHARED, &attached), RBLK_STATUS_BUSY);
    ck_assert_int_eq(client_attach(b, "disk", RBLK_ATTACH_RO, &attached), RBLK_STATUS_OK);
    ck_assert_int_eq(client_simple(a, RBLK_DETACH), RBLK_STATUS_OK);
    ck_assert_int_eq(client_attach(c, "disk", RBLK_ATTACH_SHARED, &attached), RBLK_STATUS_OK);
    ck_assert_int_eq(client_attach(a, "disk", RBLK_ATTACH_SHARED, &attached), RBLK_STATUS_OK);
    client_close(a);
    client_close(b);
    client_close(c);
}
END_TEST

START_TEST(a_vanished_writer_frees_the_volume)
{
    for (int i = 0; i < 20; i++) {
        struct client *c = client_hello(5000), *q;

        ck_assert_int_eq(client_attach(c, "disk", RBLK_ATTACH_RW, &attached), RBLK_STATUS_OK);
        q = client_connect(RBLK_KIND_IO, attached.token, 0, 32);
        ck_assert(!q->rejected);
        client_close(c);
        client_close(q);
    }
}
END_TEST

START_TEST(a_silent_client_is_dropped)
{
    struct client *c = client_hello(100), *other = client_hello(5000);
    uint64_t start = rblk_now_ns();

    ck_assert_int_eq(client_attach(c, "disk", RBLK_ATTACH_RW, &attached), RBLK_STATUS_OK);
    ck_assert(client_is_dropped(c));
    ck_assert_uint_ge(rblk_now_ns() - start, 250000000u);
    ck_assert_uint_le(rblk_now_ns() - start, 2000000000u);
    ck_assert_int_eq(client_attach(other, "disk", RBLK_ATTACH_RW, &attached), RBLK_STATUS_OK);
    client_close(c);
    client_close(other);
}
END_TEST

/* -- connecting --------------------------------------------------------------------------- */

static void expect_reject(const void *private_data, size_t len, enum rblk_status status)
{
    struct client *c = client_connect_raw(private_data, len);

    ck_assert(c->rejected);
    ck_assert_uint_eq(c->reject.status, status);
    client_close(c);
}

START_TEST(strange_introductions_are_rejected)
{
    struct rblk_connect m = {.version = RBLK_WIRE_VERSION, .kind = RBLK_KIND_CONTROL};
    uint8_t data[RBLK_CONNECT_LEN];

    rblk_connect_encode(data, &m);
    expect_reject(data, sizeof(data) - 1, RBLK_STATUS_MALFORMED);
    expect_reject("GET / HTTP/1.0\r\n\r\nxxxxxxxxxxxxxxx", 32, RBLK_STATUS_MALFORMED);
    expect_reject(NULL, 0, RBLK_STATUS_MALFORMED);
    m.version = 99;
    rblk_connect_encode(data, &m);
    expect_reject(data, sizeof(data), RBLK_STATUS_VERSION);
    m = (struct rblk_connect){
        .version = 1, .kind = RBLK_KIND_IO, .queue_depth = 8, .token = {1, 2, 3}};
    rblk_connect_encode(data, &m);
    expect_reject(data, sizeof(data), RBLK_STATUS_TOKEN);
}
END_TEST

START_TEST(queues_are_limited)
{
    struct client *c = client_hello(5000), *q, *again, *far;

    ck_assert_int_eq(client_attach(c, "disk", RBLK_ATTACH_RW, &attached), RBLK_STATUS_OK);
    q = client_connect(RBLK_KIND_IO, attached.token, 0, RBLK_QUEUE_DEPTH_MAX);
    ck_assert(!q->rejected);
    ck_assert_uint_eq(q->accept.queue_depth, attached.max_queue_depth);
    ck_assert_uint_eq(q->accept.staging_len, 4u << 20);
    again = client_connect(RBLK_KIND_IO, attached.token, 0, 8);
    ck_assert(again->rejected);
    ck_assert_uint_eq(again->reject.status, RBLK_STATUS_BUSY);
    far = client_connect(RBLK_KIND_IO, attached.token, (uint16_t)attached.max_queues, 8);
    ck_assert(far->rejected);
    ck_assert_uint_eq(far->reject.status, RBLK_STATUS_LIMIT);
    client_close(c);
    client_close(q);
    client_close(again);
    client_close(far);
}
END_TEST

START_TEST(a_token_ends_with_its_session)
{
    struct client *c = client_hello(5000), *q;

    ck_assert_int_eq(client_attach(c, "disk", RBLK_ATTACH_RW, &attached), RBLK_STATUS_OK);
    ck_assert_int_eq(client_simple(c, RBLK_DETACH), RBLK_STATUS_OK);
    q = client_connect(RBLK_KIND_IO, attached.token, 0, 8);
    ck_assert(q->rejected);
    ck_assert_uint_eq(q->reject.status, RBLK_STATUS_TOKEN);
    client_close(q);
    client_close(c);
}
END_TEST

/* -- messages that no initiator sends ----------------------------------------------------- */

/* The client is dropped for its message, is counted, and an innocent one is served on. */
static void expect_drop(struct client *c, const void *message, size_t len)
{
    struct client *innocent = client_hello(5000);
    struct rblk_stats_reply before;

    client_stats(innocent, &before);
    client_send(c, message, len);
    ck_assert(client_is_dropped(c));
    ck_assert(client_sees_protocol_errors(innocent, before.protocol_errors + 1));
    client_close(c);
    client_close(innocent);
}

START_TEST(malformed_messages_end_their_connection)
{
    uint8_t m[RBLK_CONTROL_MAX];
    struct rblk_header header = {.type = RBLK_PING, .length = 17, .tag = 1};
    struct rblk_attach attach = {.mode = RBLK_ATTACH_RW, .volume = "disk"};
    size_t len;

    memset(m, 0xff, sizeof(m));
    expect_drop(client_hello(5000), m, sizeof(m));
    expect_drop(client_hello(5000), m, 1);
    memset(m, 0, sizeof(m));
    rblk_header_encode(m, &header);
    expect_drop(client_hello(5000), m, 16);
    expect_drop(client_hello(5000), m, 17);
    len = rblk_empty_encode(m, RBLK_PING | RBLK_REPLY, 1);
    expect_drop(client_hello(5000), m, len);
    len = rblk_empty_encode(m, RBLK_EVENT_ACK, 1);
    expect_drop(client_hello(5000), m, len);
    len = rblk_attach_encode(m, 1, &attach);
    m[len - 1] = 'x';
    expect_drop(client_hello(5000), m, len);
}
END_TEST

START_TEST(too_long_messages_end_their_connection)
{
    uint8_t m[RBLK_CONTROL_MAX + 1] = {0};

    expect_drop(client_hello(5000), m, sizeof(m));
}
END_TEST

START_TEST(hello_comes_first)
{
    uint8_t m[RBLK_CONTROL_MAX];
    size_t len = rblk_empty_encode(m, RBLK_PING, 1);

    expect_drop(client_connect(RBLK_KIND_CONTROL, NULL, 0, 0), m, len);
}
END_TEST

START_TEST(another_version_is_told_so)
{
    struct rblk_hello hello = {
        .version_min = 2, .version_max = 3, .keepalive_ms = 5000, .client = "later"};
    struct client *c = client_connect(RBLK_KIND_CONTROL, NULL, 0, 0);
    uint8_t message[RBLK_CONTROL_MAX], reply[RBLK_CONTROL_MAX];
    size_t len;

    ck_assert_int_eq(client_status(c, message, rblk_hello_encode(message, 1, &hello), reply, &len),
                     RBLK_STATUS_VERSION);
    ck_assert(client_is_dropped(c));
    client_close(c);
}
END_TEST

START_TEST(extents_are_checked)
{
    struct client *c = client_hello(5000);
    struct rblk_extent_map_reply map;
    struct rblk_extent_release release = {.count = 2, .index = {0, 3}};
    uint8_t message[RBLK_CONTROL_MAX], reply[RBLK_CONTROL_MAX];
    struct rblk_stats_reply stats;
    size_t len;

    ck_assert_int_eq(client_map(c, 0, 1, &map), RBLK_STATUS_STATE);
    ck_assert_int_eq(client_attach(c, "disk", RBLK_ATTACH_RW, &attached), RBLK_STATUS_OK);
    ck_assert_int_eq(client_map(c, 4, 1, &map), RBLK_STATUS_RANGE);
    ck_assert_int_eq(client_map(c, 1000000, 128, &map), RBLK_STATUS_RANGE);
    ck_assert_int_eq(client_map(c, 0, 128, &map), RBLK_STATUS_OK);
    ck_assert_uint_eq(map.count, 4);
    ck_assert_uint_eq(map.entry[0].length, 1u << 20);
    ck_assert_uint_eq(map.entry[3].length, 4097);
    client_stats(c, &stats);
    ck_assert_uint_eq(stats.extents_mapped, 4);
    ck_assert_uint_eq(stats.extent_bytes, DISK_SIZE);
    ck_assert_int_eq(
        client_status(c, message, rblk_extent_release_encode(message, 7, &release), reply, &len),
        RBLK_STATUS_OK);
    client_stats(c, &stats);
    ck_assert_uint_eq(stats.extents_mapped, 2);
    ck_assert_int_eq(
        client_status(c, message, rblk_extent_release_encode(message, 7, &release), reply, &len),
        RBLK_STATUS_RANGE);
    ck_assert_int_eq(client_simple(c, RBLK_DETACH), RBLK_STATUS_OK);
    client_stats(c, &stats);
    ck_assert_uint_eq(stats.extents_mapped, 0);
    ck_assert_uint_eq(stats.extent_bytes, 0);
    client_close(c);
}
END_TEST

/* -- many, and the end -------------------------------------------------------------------- */

START_TEST(a_hundred_clients_come_and_go)
{
    enum { CLIENTS = 100 };
    struct client *clients[CLIENTS], *queues[CLIENTS], *last;
    struct rblk_stats_reply stats;
    uint64_t deadline = rblk_deadline_ms(WAIT_MS);

    for (int i = 0; i < CLIENTS; i++) {
        clients[i] = client_hello(60000);
        ck_assert_int_eq(
            client_attach(clients[i], i % 2 ? "disk" : "other", RBLK_ATTACH_SHARED, &attached),
            RBLK_STATUS_OK);
        queues[i] = client_connect(RBLK_KIND_IO, attached.token, 0, 16);
        ck_assert(!queues[i]->rejected);
    }
    client_stats(clients[0], &stats);
    ck_assert_uint_eq(stats.sessions, CLIENTS);
    ck_assert_uint_eq(stats.queues, CLIENTS);
    for (int i = 0; i < CLIENTS; i++) {
        client_close(i % 3 ? clients[i] : queues[i]);
        client_close(i % 3 ? queues[i] : clients[i]);
    }
    last = client_hello(5000);
    do
        client_stats(last, &stats);
    while ((stats.sessions || stats.queues) && rblk_now_ns() < deadline);
    ck_assert_uint_eq(stats.sessions, 0);
    ck_assert_uint_eq(stats.queues, 0);
    ck_assert_uint_eq(stats.extents_mapped, 0);
    client_close(last);
}
END_TEST

START_TEST(goodbye_is_said)
{
    struct client *c = client_hello(5000);
    struct rblk_header header;
    const uint8_t *event;
    uint32_t len = 0;

    ck_assert_int_eq(client_attach(c, "disk", RBLK_ATTACH_RW, &attached), RBLK_STATUS_OK);
    server_signal();
    server.stopped = true;
    event = client_wait(c, IBV_WC_RECV, &len);
    ck_assert_ptr_nonnull(event);
    ck_assert_int_eq(rblk_header_decode(&header, event, len), 0);
    ck_assert_int_eq(header.type, RBLK_EVENT_GOODBYE);
    ck_assert(client_is_dropped(c));
    client_close(c);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("target_protocol");
    TCase *good = tcase_create("good"), *bad = tcase_create("bad"), *many = tcase_create("many");

    tcase_add_checked_fixture(good, server_start, server_stop);
    tcase_add_checked_fixture(bad, server_start, server_stop);
    tcase_add_checked_fixture(many, server_start, server_stop);
    tcase_set_timeout(good, 30);
    tcase_set_timeout(bad, 60);
    tcase_set_timeout(many, 120);
    tcase_add_test(good, it_greets_lists_and_counts);
    tcase_add_test(good, it_attaches_and_detaches);
    tcase_add_test(good, one_writer_at_a_time);
    tcase_add_test(good, a_vanished_writer_frees_the_volume);
    tcase_add_test(good, a_silent_client_is_dropped);
    tcase_add_test(bad, strange_introductions_are_rejected);
    tcase_add_test(bad, queues_are_limited);
    tcase_add_test(bad, a_token_ends_with_its_session);
    tcase_add_test(bad, malformed_messages_end_their_connection);
    tcase_add_test(bad, too_long_messages_end_their_connection);
    tcase_add_test(bad, hello_comes_first);
    tcase_add_test(bad, another_version_is_told_so);
    tcase_add_test(bad, extents_are_checked);
    tcase_add_test(many, a_hundred_clients_come_and_go);
    tcase_add_test(many, goodbye_is_said);
    suite_add_tcase(s, good);
    suite_add_tcase(s, bad);
    suite_add_tcase(s, many);
    return s;
}

int main(void)
{
    return suite_run(suite());
}
