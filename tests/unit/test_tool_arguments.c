/* SPDX-License-Identifier: BSD-2-Clause */
/* test_tool_arguments -- the command line that all subcommands of rblk share */

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "suite.h"
#include "tools/tool.h"

#define OPT_SIZE (TOOL_OPTION + 0)

static int nothing(const struct command *command, int argc, char **argv)
{
    (void)command;
    (void)argc;
    (void)argv;
    return 0;
}

static const struct command command = {"test", "test things", "[OPTION]... URI",
                                       "",     nothing,       false};

static const struct option own[] = {
    {"size", required_argument, NULL, OPT_SIZE},
    {"count", required_argument, NULL, 'c'},
    {NULL, 0, NULL, 0},
};

static const char *size_value, *count_value;

static int take(void *opaque, int option, const char *value)
{
    (void)opaque;
    if (strcmp(value, "bad") == 0)
        return -EINVAL;
    if (option == OPT_SIZE)
        size_value = value;
    else
        count_value = value;
    return 0;
}

static int parse(char **argv, struct tool_arguments *a)
{
    int argc = 0;

    while (argv[argc])
        argc++;
    return tool_parse(&command, argc, argv, own, take, NULL, 1, 2, a);
}

/* What is printed is for people; here it would only be noise. */
static void silence(void)
{
    int null = open("/dev/null", O_WRONLY);

    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    close(null);
}

START_TEST(test_accepted)
{
    char *argv[] = {"test",        "-c",         "3",    "uri",      "--json",
                    "--timeout=5", "--provider", "soft", "--size=7", NULL};
    struct tool_arguments a;

    ck_assert_int_eq(parse(argv, &a), -1);
    ck_assert(a.json);
    ck_assert_uint_eq(a.timeout_ms, 5000);
    ck_assert_int_eq(a.positional_count, 1);
    ck_assert_str_eq(a.positional[0], "uri");
    ck_assert_str_eq(size_value, "7");
    ck_assert_str_eq(count_value, "3");
}
END_TEST

static char *const refused[][5] = {
    {"test", NULL},
    {"test", "a", "b", "c", NULL},
    {"test", "--bogus", "a", NULL},
    {"test", "-x", "a", NULL},
    {"test", "-j", "a", NULL}, /* only long */
    {"test", "a", "--size", NULL},
    {"test", "a", "--size", "bad", NULL},
    {"test", "a", "--timeout=0", NULL},
    {"test", "a", "--json=1", NULL},
};

START_TEST(test_refused)
{
    struct tool_arguments a = {.positional_count = 77};
    char *argv[5];

    silence();
    memcpy(argv, refused[_i], sizeof(argv));
    ck_assert_int_eq(parse(argv, &a), TOOL_USAGE);
    ck_assert_int_eq(a.positional_count, 77);
}
END_TEST

START_TEST(test_help)
{
    char *argv[] = {"test", "--help", NULL};
    struct tool_arguments a;

    silence();
    ck_assert_int_eq(parse(argv, &a), TOOL_OK);
}
END_TEST

START_TEST(test_provider)
{
    char *separate[] = {"rblk", "list", "--provider", "soft", "uri", NULL};
    char *joined[] = {"rblk", "list", "uri", "--provider=verbs", NULL};
    char *behind[] = {"rblk", "list", "--", "--provider", "soft", NULL};
    char *cut[] = {"rblk", "list", "--provider", NULL};

    ck_assert_str_eq(tool_find_provider(5, separate), "soft");
    ck_assert_str_eq(tool_find_provider(4, joined), "verbs");
    ck_assert_ptr_null(tool_find_provider(5, behind));
    ck_assert_ptr_null(tool_find_provider(3, cut));
}
END_TEST

START_TEST(test_commands)
{
    ck_assert_ptr_nonnull(command_find("mount"));
    ck_assert(!command_find("mount")->uses_rdma);
    ck_assert(command_find("list")->uses_rdma);
    ck_assert_ptr_null(command_find("nonsense"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tools/arguments");
    TCase *tc = tcase_create("arguments");

    tcase_add_test(tc, test_accepted);
    tcase_add_loop_test(tc, test_refused, 0, sizeof(refused) / sizeof(refused[0]));
    tcase_add_test(tc, test_help);
    tcase_add_test(tc, test_provider);
    tcase_add_test(tc, test_commands);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
