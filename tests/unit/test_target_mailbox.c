/* SPDX-License-Identifier: BSD-2-Clause */
/* test_target_mailbox -- target/mailbox.c and target/wr_id.h */
#include <check.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>

#include "suite.h"
#include "target/mailbox.h"
#include "target/wr_id.h"

#define MAILS 100
#define ROUNDS 1000

static struct mailbox box;

static void setup(void)
{
    ck_assert_int_eq(mailbox_init(&box), 0);
}

static void teardown(void)
{
    mailbox_destroy(&box);
}

static bool is_readable(void)
{
    struct pollfd p = {.fd = box.event_fd, .events = POLLIN};

    return poll(&p, 1, 0) == 1;
}

START_TEST(flags_add_up_and_order_is_kept)
{
    struct mail a = {0}, b = {0};
    unsigned int flags = 0;

    ck_assert(!mailbox_pending(&box));
    ck_assert(!is_readable());
    mailbox_post(&box, &a, 1);
    mailbox_post(&box, &b, 2);
    mailbox_post(&box, &a, 4);
    ck_assert(mailbox_pending(&box));
    ck_assert(is_readable());
    mailbox_clear(&box);
    ck_assert_ptr_eq(mailbox_take(&box, &flags), &a);
    ck_assert_uint_eq(flags, 5);
    ck_assert_ptr_eq(mailbox_take(&box, &flags), &b);
    ck_assert_uint_eq(flags, 2);
    ck_assert_ptr_null(mailbox_take(&box, &flags));
    ck_assert(!mailbox_pending(&box));
    ck_assert(!is_readable());
    mailbox_post(&box, &a, 8);
    ck_assert(is_readable());
}
END_TEST

static struct mail mails[MAILS];

static void *post_all(void *flag)
{
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < MAILS; i++)
            mailbox_post(&box, &mails[i], (unsigned int)(uintptr_t)flag);
    return NULL;
}

START_TEST(nothing_is_lost_between_threads)
{
    unsigned int seen[MAILS] = {0}, flags = 0, complete = 0;
    struct mail *mail;
    pthread_t threads[2];

    for (uintptr_t i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, post_all, (void *)(i + 1));
    while (complete < MAILS) {
        struct pollfd p = {.fd = box.event_fd, .events = POLLIN};

        ck_assert_int_eq(poll(&p, 1, 5000), 1);
        mailbox_clear(&box);
        while ((mail = mailbox_take(&box, &flags)) != NULL) {
            unsigned int *s = &seen[mail - mails];

            complete += *s != 3 && (*s | flags) == 3;
            *s |= flags;
        }
    }
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
}
END_TEST

START_TEST(work_request_ids_hold_their_parts)
{
    uint64_t id = wr_id_make(WR_MARKER, 65535, 4095, 0xfabcdef1u);

    ck_assert_int_eq(wr_id_kind(id), WR_MARKER);
    ck_assert_uint_eq(wr_id_item(id), 65535);
    ck_assert_uint_eq(wr_id_index(id), 4095);
    ck_assert_uint_eq(wr_id_generation(id), 0xfabcdef1u & WR_ID_GENERATION_MASK);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("target_mailbox");
    TCase *t = tcase_create("mailbox");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 30);
    tcase_add_test(t, flags_add_up_and_order_is_kept);
    tcase_add_test(t, nothing_is_lost_between_threads);
    tcase_add_test(t, work_request_ids_hold_their_parts);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return suite_run(suite());
}
