/* SPDX-License-Identifier: BSD-2-Clause */
/* test_initiator_handle -- librblk without a target: options, error texts, splitting, what a
 * failure says */
#include <check.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "initiator/connect.h"
#include "initiator/queue.h"
#include "initiator/rblk.h"
#include "suite.h"

static struct rblk *h;

static void setup(void)
{
    ck_assert_int_eq(rblk_create(&h), 0);
}

static void teardown(void)
{
    rblk_close(h);
}

static void assert_text(const char *part)
{
    ck_assert_msg(strstr(rblk_error(h), part) != NULL, "\"%s\" does not say \"%s\"", rblk_error(h),
                  part);
    ck_assert_ptr_null(strchr(rblk_error(h), '\n'));
}

/* -- options ------------------------------------------------------------------------------------
 * */

START_TEST(options_have_bounds)
{
    ck_assert_int_eq(rblk_set_queues(h, 0), -EINVAL);
    assert_text("1 to 64");
    ck_assert_int_eq(rblk_set_queues(h, 64), 0);
    ck_assert_int_eq(rblk_set_queues(h, 65), -EINVAL);
    ck_assert_int_eq(rblk_set_queue_depth(h, 0), -EINVAL);
    ck_assert_int_eq(rblk_set_queue_depth(h, 256), 0);
    ck_assert_int_eq(rblk_set_queue_depth(h, 257), -EINVAL);
    ck_assert_int_eq(rblk_set_pool_size(h, (1u << 20) - 1), -EINVAL);
    ck_assert_int_eq(rblk_set_pool_size(h, 64u << 20), 0);
    ck_assert_int_eq(rblk_set_pool_size(h, (64u << 20) + 1), -EINVAL);
    ck_assert_int_eq(rblk_set_timeout(h, 0), -EINVAL);
    ck_assert_int_eq(rblk_set_timeout(h, 1), 0);
    ck_assert_int_eq(rblk_set_keepalive(h, 99), -EINVAL);
    ck_assert_int_eq(rblk_set_keepalive(h, 600000), 0);
    ck_assert_int_eq(rblk_set_mode(h, RBLK_MODE_SHARED), 0);
    ck_assert_int_eq(rblk_set_mode(h, (enum rblk_mode)3), -EINVAL);
}
END_TEST

START_TEST(an_unconnected_handle_answers)
{
    struct rblk_target_stats target_stats;
    struct rblk_stats stats;
    struct rblk_info info;
    uint64_t ns;
    char byte = 0;

    ck_assert_str_eq(rblk_error(h), "no error");
    ck_assert_int_eq(rblk_pread(h, &byte, 1, 0), -ENOTCONN);
    assert_text("connect first");
    ck_assert_int_eq(rblk_pwrite(h, &byte, 1, 0, 0), -ENOTCONN);
    ck_assert_int_eq(rblk_flush(h), -ENOTCONN);
    ck_assert_int_eq(rblk_get_info(h, &info), -ENOTCONN);
    ck_assert_int_eq(rblk_get_stats(h, &stats), -ENOTCONN);
    ck_assert_int_eq(rblk_get_target_stats(h, &target_stats), -ENOTCONN);
    ck_assert_int_eq(rblk_ping(h, &ns), -ENOTCONN);
    ck_assert_int_eq(rblk_list(h, NULL, NULL), -ENOTCONN);
    ck_assert_int_eq(rblk_register(h, &byte, 1), -ENOTCONN);
    ck_assert_int_eq(rblk_unregister(h, &byte), -ENOTCONN);
    ck_assert_ptr_null(rblk_get_queue(h, 0));
    ck_assert_uint_eq(rblk_get_size(h), 0);
    ck_assert(!rblk_is_connected(h));
    rblk_close(NULL);
    ck_assert_str_eq(rblk_version(), RBLK_VERSION);
}
END_TEST

START_TEST(a_uri_that_does_not_parse)
{
    ck_assert_int_eq(rblk_connect(h, "http://host/volume"), -EINVAL);
    assert_text("http://host/volume");
    ck_assert_int_eq(rblk_connect(h, NULL), -EINVAL);
    ck_assert_int_eq(rblk_connect(h, "rblk://127.0.0.1"), -EINVAL);
    assert_text("names no volume");
    /* And the handle can still be used. */
    ck_assert_int_eq(rblk_set_queues(h, 2), 0);
}
END_TEST

static void *fail_in_thread(void *arg)
{
    (void)arg;
    ck_assert_str_eq(rblk_error(h), "no error");
    ck_assert_int_eq(rblk_set_queues(h, 1000), -EINVAL);
    assert_text("1000");
    return NULL;
}

START_TEST(error_texts_belong_to_thread_and_handle)
{
    struct rblk *other;
    pthread_t thread;

    ck_assert_int_eq(rblk_create(&other), 0);
    ck_assert_int_eq(rblk_set_queues(h, 100), -EINVAL);
    ck_assert_int_eq(rblk_set_queues(other, 200), -EINVAL);
    ck_assert_int_eq(pthread_create(&thread, NULL, fail_in_thread, NULL), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    assert_text("100 ");
    ck_assert_ptr_nonnull(strstr(rblk_error(other), "200"));
    rblk_close(other);
    /* A new handle at the same address has no error of the old one. */
    ck_assert_int_eq(rblk_create(&other), 0);
    ck_assert_str_eq(rblk_error(other), "no error");
    rblk_close(other);
    assert_text("100 ");
}
END_TEST

/* -- splitting ------------------------------------------------------------------------------------
 * */

START_TEST(reads_split_by_extent_and_max_io)
{
    const uint32_t mib = 1u << 20;

    ck_assert_uint_eq(rblk_read_piece(1, 1, mib, false), 1);
    ck_assert_uint_eq(rblk_read_piece(5000, 4096, mib, false), 4096);
    ck_assert_uint_eq(rblk_read_piece(5 * mib, UINT64_MAX, mib, false), mib);
    ck_assert_uint_eq(rblk_read_piece(5 * mib, UINT64_MAX, mib, true), RBLK_BOUNCE_MAX);
    ck_assert_uint_eq(rblk_read_piece(5 * mib, 100, mib, true), 100);
    ck_assert_uint_eq(rblk_read_piece(5 * mib, mib, 4096, true), 4096);
    ck_assert_uint_eq(rblk_read_piece(UINT64_MAX, UINT64_MAX, UINT32_MAX, false), UINT32_MAX);
}
END_TEST

static void assert_widened(uint32_t len, uint64_t within, uint64_t left, uint32_t fetched,
                           uint32_t before)
{
    uint32_t got;

    ck_assert_uint_eq(rblk_read_widen(len, within, left, &got), fetched);
    ck_assert_uint_eq(got, before);
}

START_TEST(tiny_reads_ask_for_more)
{
    assert_widened(64, 0, 64, 64, 0);
    assert_widened(4096, 100, 4096, 4096, 0);
    assert_widened(1, 0, 64, 64, 0);
    assert_widened(63, 5000, 1u << 20, 64, 0);
    /* At the end of an extent it is what lies before. */
    assert_widened(1, 4096, 1, 64, 63);
    assert_widened(6, 1000, 63, 64, 1);
    assert_widened(6, 58, 6, 64, 58);
    /* An extent of few bytes is read as a whole. */
    assert_widened(1, 0, 1, 1, 0);
    assert_widened(2, 7, 3, 10, 7);
}
END_TEST

/* Wherever in an extent a part lies: never few bytes, all of the part, nothing outside. */
START_TEST(no_read_is_tiny)
{
    const uint64_t extents[] = {64, 65, 127, 4096, 4097, 1u << 20};

    for (size_t i = 0; i < sizeof(extents) / sizeof(*extents); i++)
        for (uint64_t at = 0; at < extents[i]; at += at < 200 || at + 200 > extents[i] ? 1 : 61)
            for (uint32_t len = 1; len <= 80 && len <= extents[i] - at; len++) {
                uint32_t before, fetched = rblk_read_widen(len, at, extents[i] - at, &before);

                if (fetched < 64 || before > at || fetched < before + len ||
                    at - before + fetched > extents[i])
                    ck_abort_msg("%u bytes at %" PRIu64 " of %" PRIu64 ": %u, %u before", len, at,
                                 extents[i], fetched, before);
            }
}
END_TEST

START_TEST(writes_split_by_max_io)
{
    const uint32_t mib = 1u << 20;

    ck_assert_uint_eq(rblk_write_piece(1, mib, 8192, false, true), 1);
    ck_assert_uint_eq(rblk_write_piece(8193, mib, 8192, false, true), 8193);
    ck_assert_uint_eq(rblk_write_piece(mib + 1, mib, 8192, false, true), mib);
    ck_assert_uint_eq(rblk_write_piece(mib + 1, mib, 8192, true, true), RBLK_BOUNCE_MAX);
    /* Without staging memory everything goes in messages. */
    ck_assert_uint_eq(rblk_write_piece(mib, mib, 8192, false, false), 8192);
    ck_assert_uint_eq(rblk_write_piece(mib, 4096, 8192, true, false), 4096);
    ck_assert_uint_eq(rblk_write_piece(UINT64_MAX, mib, 0, false, true), mib);
}
END_TEST

/* -- what a failed connection says ----------------------------------------------------------- */

static int explain(char *text, enum rdma_cm_event_type event, int status, const void *data,
                   size_t len)
{
    struct rblk_endpoint ep = {.event = event, .status = status, .private_len = len};
    int rc;

    if (len)
        memcpy(ep.private_data, data, len);
    rc = rblk_connect_error(text, RBLK_ERROR_TEXT_MAX, "10.0.0.1:7470", &ep, -EIO);
    ck_assert_ptr_nonnull(strstr(text, "10.0.0.1:7470"));
    return rc;
}

/* -- a queue without a connection ---------------------------------------------------------------
 */

static struct rblk_queue *live_queue(void)
{
    struct rblk_queue *q;

    ck_assert_int_eq(rblk_queue_create(&q, h, 0), 0);
    q->state = RBLK_QUEUE_LIVE;
    q->depth = q->free_slots = 1;
    return q;
}

START_TEST(a_stall_is_counted_from_where_it_is_found)
{
    struct rblk_queue *q = live_queue();

    /* Work under way at the very first look, then progress, then rest. */
    q->free_slots = 0;
    ck_assert_uint_eq(rblk_link_stalled_ns(q, 1000000), 0);
    ck_assert_uint_eq(rblk_link_stalled_ns(q, 1000500), 500);
    q->progress++;
    ck_assert_uint_eq(rblk_link_stalled_ns(q, 2000000), 0);
    q->free_slots = 1;
    ck_assert_uint_eq(rblk_link_stalled_ns(q, 3000000), 0);
    /* Work that began after a long rest, a moment before the look. */
    q->free_slots = 0;
    ck_assert_uint_eq(rblk_link_stalled_ns(q, 900000000), 0);
    ck_assert_uint_eq(rblk_link_stalled_ns(q, 900000700), 700);
    q->state = RBLK_QUEUE_DEAD;
    rblk_queue_free(q);
}
END_TEST

START_TEST(another_write_verifier_is_not_passed_over)
{
    struct rblk_queue *q = live_queue();
    struct rblk_request *r = &q->request[0];
    struct rblk_completion m = {.write_verifier = 8};
    uint8_t message[RBLK_COMPLETION_LEN];

    h->volume.write_verifier = 7;
    r->state = RBLK_REQUEST_ISSUED;
    r->region = -1;
    r->outstanding = 1;
    q->slot[0] = (struct rblk_slot){.used = true, .request = r};
    q->free_slots = 0;
    rblk_completion_encode(message, &m);
    ck_assert_int_eq(rblk_write_complete(q, message, sizeof(message)), -EPROTO);
    ck_assert_int_eq(r->state, RBLK_REQUEST_ISSUED);
    m.write_verifier = 7;
    rblk_completion_encode(message, &m);
    ck_assert_int_eq(rblk_write_complete(q, message, sizeof(message)), 0);
    ck_assert_int_eq(r->state, RBLK_REQUEST_DONE);
    ck_assert_int_eq(rblk_write_complete(q, message, sizeof(message)), -EPROTO);
    q->state = RBLK_QUEUE_DEAD;
    rblk_queue_free(q);
}
END_TEST

START_TEST(a_failed_connection_is_explained)
{
    struct rblk_reject version = {.version = 7, .status = RBLK_STATUS_VERSION};
    struct rblk_reject limit = {.version = 1, .status = RBLK_STATUS_LIMIT};
    struct rblk_endpoint none = {0};
    uint8_t data[RBLK_REJECT_LEN];
    char text[RBLK_ERROR_TEXT_MAX];
    size_t len;

    ck_assert_int_eq(explain(text, RDMA_CM_EVENT_REJECTED, -ECONNREFUSED, NULL, 0), -ECONNREFUSED);
    ck_assert_ptr_nonnull(strstr(text, "is rblkd running"));
    /* IB: the reason "invalid service id". */
    ck_assert_int_eq(explain(text, RDMA_CM_EVENT_REJECTED, 8, NULL, 0), -ECONNREFUSED);
    len = rblk_reject_encode(data, &version);
    ck_assert_int_eq(explain(text, RDMA_CM_EVENT_REJECTED, 28, data, len), -EPROTONOSUPPORT);
    ck_assert_ptr_nonnull(strstr(text, "version 7"));
    ck_assert_ptr_nonnull(strstr(text, "version 1"));
    len = rblk_reject_encode(data, &limit);
    ck_assert_int_eq(explain(text, RDMA_CM_EVENT_REJECTED, -ECONNREFUSED, data, len), -EUSERS);
    ck_assert_int_eq(explain(text, RDMA_CM_EVENT_CONNECT_ERROR, -EPROTO, NULL, 0), -EPROTO);
    ck_assert_ptr_nonnull(strstr(text, "does not speak iWARP or rblk"));
    ck_assert_int_eq(explain(text, RDMA_CM_EVENT_CONNECT_ERROR, -ECONNRESET, NULL, 0), -EPROTO);
    ck_assert_int_eq(explain(text, RDMA_CM_EVENT_REJECTED, -ECONNRESET, NULL, 0), -EPROTO);
    ck_assert_int_eq(explain(text, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, NULL, 0), -ETIMEDOUT);
    ck_assert_int_eq(explain(text, RDMA_CM_EVENT_ADDR_ERROR, -ENODEV, NULL, 0), -ENODEV);
    ck_assert_ptr_nonnull(strstr(text, "soft"));
    ck_assert_int_eq(explain(text, RDMA_CM_EVENT_ADDR_ERROR, -ENETUNREACH, NULL, 0), -ENETUNREACH);
    ck_assert_int_eq(rblk_connect_error(text, sizeof(text), "a:1", &none, -ETIMEDOUT), -ETIMEDOUT);
    ck_assert_int_eq(rblk_connect_error(text, sizeof(text), "a:1", &none, -ENOMEM), -ENOMEM);
}
END_TEST

static Suite *handle_suite(void)
{
    Suite *suite = suite_create("initiator_handle");
    TCase *tcase = tcase_create("handle");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, options_have_bounds);
    tcase_add_test(tcase, an_unconnected_handle_answers);
    tcase_add_test(tcase, a_uri_that_does_not_parse);
    tcase_add_test(tcase, error_texts_belong_to_thread_and_handle);
    tcase_add_test(tcase, reads_split_by_extent_and_max_io);
    tcase_add_test(tcase, tiny_reads_ask_for_more);
    tcase_add_test(tcase, no_read_is_tiny);
    tcase_add_test(tcase, writes_split_by_max_io);
    tcase_add_test(tcase, a_stall_is_counted_from_where_it_is_found);
    tcase_add_test(tcase, another_write_verifier_is_not_passed_over);
    tcase_add_test(tcase, a_failed_connection_is_explained);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return suite_run(handle_suite());
}
