/* SPDX-License-Identifier: BSD-2-Clause */
/* test_log -- common/log.c: what really arrives on stderr */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/log.h"
#include "suite.h"

#define THREADS 8
#define LINES 200 /* of each thread */

/* stderr goes to a temporary file; Check's own messages go to stdout. */
static FILE *file;

static void redirect(void)
{
    file = tmpfile();
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(dup2(fileno(file), STDERR_FILENO), 0);
    unsetenv("JOURNAL_STREAM");
}

static void close_file(void)
{
    fclose(file);
}

/* Everything logged so far. */
static const char *logged(void)
{
    static char text[THREADS * LINES * 64];
    ssize_t len = pread(fileno(file), text, sizeof text - 1, 0);

    ck_assert_int_ge(len, 0);
    text[len] = '\0';
    return text;
}

START_TEST(lines_name_program_and_level)
{
    rblk_log_init("rblkd", RBLK_LOG_DEBUG);
    log_error("cannot open %s", "/srv/disk");
    log_warning("w%d", 1);
    log_info("ready");
    log_debug("d");
    ck_assert_str_eq(logged(), "rblkd: error: cannot open /srv/disk\nrblkd: warning: w1\n"
                               "rblkd: ready\nrblkd: debug: d\n");
}
END_TEST

START_TEST(less_important_lines_are_left_out)
{
    rblk_log_init("rblkd", RBLK_LOG_WARNING);
    log_info("no");
    log_debug("no");
    log_warning("yes");
    log_error("yes");
    ck_assert_str_eq(logged(), "rblkd: warning: yes\nrblkd: error: yes\n");
}
END_TEST

START_TEST(errno_is_preserved)
{
    rblk_log_init("p", RBLK_LOG_INFO);
    errno = ENOSPC;
    log_error("%m");
    ck_assert_int_eq(errno, ENOSPC);
    log_debug("left out");
    ck_assert_int_eq(errno, ENOSPC);
    ck_assert_str_eq(logged(), "p: error: No space left on device\n");

    close(STDERR_FILENO); /* a write that fails */
    errno = ENOSPC;
    log_error("nowhere");
    ck_assert_int_eq(errno, ENOSPC);
}
END_TEST

START_TEST(a_line_stays_a_line)
{
    rblk_log_init("p", RBLK_LOG_INFO);
    log_info("a\nb\r\033[2J\tc\x7f\xc3\xa4");
    ck_assert_str_eq(logged(), "p: a?b??[2J c?\xc3\xa4\n");
}
END_TEST

START_TEST(long_lines_are_cut)
{
    static char longer[5000];
    const char *text;

    memset(longer, 'x', sizeof longer - 1);
    rblk_log_init("p", RBLK_LOG_INFO);
    log_info("%s", longer);
    log_info("next");
    text = logged();
    ck_assert_uint_lt(strcspn(text, "\n"), 2100);
    ck_assert_uint_gt(strcspn(text, "\n"), 2000);
    ck_assert_str_eq(strchr(text, '\n'), "\np: next\n");
}
END_TEST

START_TEST(the_journal_gets_priorities)
{
    char stream[64];
    struct stat st;

    ck_assert_int_eq(fstat(STDERR_FILENO, &st), 0);
    snprintf(stream, sizeof stream, "%llu:%llu", (unsigned long long)st.st_dev,
             (unsigned long long)st.st_ino);
    setenv("JOURNAL_STREAM", stream, 1);
    rblk_log_init("p", RBLK_LOG_DEBUG);
    log_error("e");
    log_warning("w");
    log_info("i");
    log_debug("d");
    ck_assert_str_eq(logged(), "<3>e\n<4>w\n<6>i\n<7>d\n");
}
END_TEST

START_TEST(redirected_stderr_is_not_the_journal)
{
    setenv("JOURNAL_STREAM", "1:2", 1);
    rblk_log_init("p", RBLK_LOG_INFO);
    log_info("i");
    setenv("JOURNAL_STREAM", "nonsense", 1);
    rblk_log_init("p", RBLK_LOG_INFO);
    log_info("i");
    ck_assert_str_eq(logged(), "p: i\np: i\n");
}
END_TEST

static void *log_lines(void *opaque)
{
    for (int i = 0; i < LINES; i++)
        log_info("thread %c says %s", *(char *)opaque, "something of a certain length");
    return NULL;
}

START_TEST(lines_of_threads_do_not_mix)
{
    static char names[THREADS] = "abcdefgh";
    pthread_t threads[THREADS];
    unsigned int lines = 0;
    const char *line;

    ck_assert_int_eq(fcntl(STDERR_FILENO, F_SETFL, O_APPEND), 0);
    rblk_log_init("p", RBLK_LOG_INFO);
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, log_lines, &names[i]), 0);
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    for (line = logged(); *line; line = strchr(line, '\n') + 1, lines++)
        ck_assert_msg(strncmp(line, "p: thread ", 10) == 0 &&
                          strncmp(line + 11, " says something of a certain length\n", 36) == 0,
                      "mixed line: %.60s", line);
    ck_assert_uint_eq(lines, THREADS * LINES);
}
END_TEST

START_TEST(level_names)
{
    enum rblk_log_level level = RBLK_LOG_DEBUG;

    ck_assert_int_eq(rblk_log_level_parse(&level, "error"), 0);
    ck_assert_int_eq(level, RBLK_LOG_ERROR);
    ck_assert_int_eq(rblk_log_level_parse(&level, "warning"), 0);
    ck_assert_int_eq(level, RBLK_LOG_WARNING);
    ck_assert_int_eq(rblk_log_level_parse(&level, "info"), 0);
    ck_assert_int_eq(level, RBLK_LOG_INFO);
    ck_assert_int_eq(rblk_log_level_parse(&level, "debug"), 0);
    ck_assert_int_eq(level, RBLK_LOG_DEBUG);
    ck_assert_int_eq(rblk_log_level_parse(&level, ""), -EINVAL);
    ck_assert_int_eq(rblk_log_level_parse(&level, "Error"), -EINVAL);
    ck_assert_int_eq(rblk_log_level_parse(&level, "debugging"), -EINVAL);
    ck_assert_int_eq(level, RBLK_LOG_DEBUG);
}
END_TEST

static Suite *log_suite(void)
{
    Suite *suite = suite_create("log");
    TCase *tcase = tcase_create("log");

    tcase_add_checked_fixture(tcase, redirect, close_file);
    tcase_add_test(tcase, lines_name_program_and_level);
    tcase_add_test(tcase, less_important_lines_are_left_out);
    tcase_add_test(tcase, errno_is_preserved);
    tcase_add_test(tcase, a_line_stays_a_line);
    tcase_add_test(tcase, long_lines_are_cut);
    tcase_add_test(tcase, the_journal_gets_priorities);
    tcase_add_test(tcase, redirected_stderr_is_not_the_journal);
    tcase_add_test(tcase, lines_of_threads_do_not_mix);
    tcase_add_test(tcase, level_names);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return suite_run(log_suite());
}
