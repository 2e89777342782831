/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_fuse_answers -- answers that are collected and written together
 *
 * A socket that keeps the bounds of messages stands for /dev/fuse: one write is one answer there
 * too.
 */
#include <check.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuse/answers.h"
#include "suite.h"

static struct answers answers;
static struct answer answer[ANSWERS_MAX + 1];
static int end[2];
static struct answer *written[ANSWERS_MAX + 1];
static unsigned int written_count;

static void setup(void)
{
    signal(SIGPIPE, SIG_IGN);
    memset(&answers, 0, sizeof(answers));
    memset(answer, 0, sizeof(answer));
    written_count = 0;
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, end), 0);
    answers_open(&answers, end[0]);
}

static void teardown(void)
{
    answers_close(&answers);
    close(end[0]);
    close(end[1]);
}

static void note(struct answer *a)
{
    written[written_count++] = a;
}

static bool add(struct answer *a, char *head, size_t head_len, char *data, size_t data_len)
{
    struct iovec iov[2] = {{head, head_len}, {data, data_len}};

    return answers_add(&answers, a, iov, data ? 2 : 1);
}

static void expect_message(const char *text, size_t len)
{
    char got[16384];

    ck_assert_int_eq(recv(end[1], got, sizeof(got), 0), (ssize_t)len);
    ck_assert_mem_eq(got, text, len);
}

/* Without io_uring (a container may forbid it) nothing is collected, and that is all. */
static bool usable(void)
{
    char head[] = "x";

    if (answers.usable)
        return true;
    ck_assert(!add(&answer[0], head, 1, NULL, 0));
    return false;
}

START_TEST(each_is_one_write_in_order)
{
    char head[] = "head-1", small[] = "small", large[8192], all[6 + sizeof(large)];

    if (!usable())
        return;
    memset(large, 'l', sizeof(large));
    ck_assert(add(&answer[0], head, 6, NULL, 0));
    head[5] = '2';
    ck_assert(add(&answer[1], head, 6, small, 5));
    head[5] = '3';
    ck_assert(add(&answer[2], head, 6, large, sizeof(large)));
    /* What is copied may be gone by then; large data is not copied. */
    memset(head, '?', sizeof(head));
    memset(small, '?', sizeof(small));
    ck_assert_uint_eq(answers.count, 3);
    ck_assert_int_lt(recv(end[1], all, 1, MSG_PEEK), 0);
    answers_write(&answers, note);
    ck_assert_uint_eq(answers.count, 0);
    ck_assert_uint_eq(written_count, 3);
    expect_message("head-1", 6);
    expect_message("head-2small", 11);
    memcpy(all, "head-3", 6);
    memset(all + 6, 'l', sizeof(large));
    expect_message(all, sizeof(all));
    for (unsigned int i = 0; i < 3; i++) {
        ck_assert_ptr_eq(written[i], &answer[i]);
        ck_assert(!answer[i].collected);
    }
}
END_TEST

START_TEST(as_many_as_fit_again_and_again)
{
    char head[] = "a";

    if (!usable())
        return;
    for (unsigned int round = 0; round < 3; round++) {
        written_count = 0;
        for (unsigned int i = 0; i < ANSWERS_MAX; i++)
            ck_assert(add(&answer[i], head, 1, NULL, 0));
        ck_assert(!add(&answer[ANSWERS_MAX], head, 1, NULL, 0));
        ck_assert(!answer[ANSWERS_MAX].collected);
        answers_write(&answers, note);
        ck_assert_uint_eq(written_count, ANSWERS_MAX);
        for (unsigned int i = 0; i < ANSWERS_MAX; i++)
            expect_message("a", 1);
    }
}
END_TEST

START_TEST(what_does_not_fit_is_refused)
{
    char head[ANSWER_HEAD + 1] = {0};

    ck_assert(!add(&answer[0], head, sizeof(head), NULL, 0));
    ck_assert_uint_eq(answers.count, 0);
    answers_write(&answers, note);
    ck_assert_uint_eq(written_count, 0);
}
END_TEST

/* Nobody reads any more, as after an unmount: every record comes back all the same. */
START_TEST(errors_lose_no_record)
{
    char head[] = "a";

    if (!usable())
        return;
    shutdown(end[0], SHUT_WR);
    for (unsigned int i = 0; i < 5; i++)
        ck_assert(add(&answer[i], head, 1, NULL, 0));
    answers_write(&answers, note);
    ck_assert_uint_eq(written_count, 5);
    ck_assert(add(&answer[0], head, 1, NULL, 0));
    answers_write(&answers, note);
    ck_assert_uint_eq(written_count, 6);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fuse/answers");
    TCase *tc = tcase_create("answers");

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, each_is_one_write_in_order);
    tcase_add_test(tc, as_many_as_fit_again_and_again);
    tcase_add_test(tc, what_does_not_fit_is_refused);
    tcase_add_test(tc, errors_lose_no_record);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
