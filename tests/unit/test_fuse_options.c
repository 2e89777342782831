/* SPDX-License-Identifier: BSD-2-Clause */
/* test_fuse_options -- the command line of rblk-fuse */

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fuse/options.h"
#include "suite.h"

static char err[256];

static int parse(struct fuse_options *o, char **argv)
{
    int argc = 0;

    while (argv[argc])
        argc++;
    err[0] = '\0';
    return fuse_options_parse(o, argc, argv, err, sizeof(err));
}

START_TEST(test_defaults)
{
    char *argv[] = {"rblk-fuse", "rblk://h/v", "/mnt", NULL};
    struct fuse_options o;

    ck_assert_int_eq(parse(&o, argv), 0);
    ck_assert_int_eq(o.action, FUSE_ACTION_MOUNT);
    ck_assert_str_eq(o.uri, "rblk://h/v");
    ck_assert_str_eq(o.mountpoint, "/mnt");
    ck_assert_int_eq(o.mode, RBLK_MODE_RW);
    ck_assert_uint_ge(o.queues, 1);
    ck_assert_uint_le(o.queues, 2);
    ck_assert_uint_eq(o.queue_depth, 64);
    ck_assert_uint_eq(o.timeout_ms, 10000);
    ck_assert_uint_eq(o.pool_size, 16u << 20);
    ck_assert(!o.foreground && !o.cache && !o.allow_other);
    ck_assert_str_eq(o.mount_options, "");
}
END_TEST

START_TEST(test_long_options)
{
    char *argv[] = {"rblk-fuse",
                    "--shared",
                    "--queues=3",
                    "--queue-depth",
                    "7",
                    "--pool-size",
                    "4M",
                    "--timeout",
                    "3",
                    "--allow-other",
                    "-f",
                    "--provider",
                    "soft",
                    "rblk://h/v",
                    "--log-level=debug",
                    "/mnt",
                    "--spin",
                    "0",
                    NULL};
    struct fuse_options o;

    ck_assert_int_eq(parse(&o, argv), 0);
    ck_assert_int_eq(o.mode, RBLK_MODE_SHARED);
    ck_assert_uint_eq(o.queues, 3);
    ck_assert_uint_eq(o.queue_depth, 7);
    ck_assert_uint_eq(o.pool_size, 4u << 20);
    ck_assert_uint_eq(o.timeout_ms, 3000);
    ck_assert(o.allow_other && o.foreground);
    ck_assert_str_eq(o.provider, "soft");
    ck_assert_int_eq(o.log_level, RBLK_LOG_DEBUG);
    ck_assert_uint_eq(o.spin_us, 0);
    ck_assert_str_eq(o.mountpoint, "/mnt");
}
END_TEST

/* As mount(8) gives them from fstab. The argument itself must survive: the program may run again
 * with it. */
START_TEST(test_mount_options)
{
    char list[] = "ro,_netdev,noatime,x-systemd.automount,queues=4,nosuid,nofail";
    char *argv[] = {"rblk-fuse", "-o", list, "rblk://h/v", "/mnt", NULL};
    struct fuse_options o;

    ck_assert_int_eq(parse(&o, argv), 0);
    ck_assert_int_eq(o.mode, RBLK_MODE_RO);
    ck_assert_uint_eq(o.queues, 4);
    ck_assert_str_eq(o.mount_options, "noatime,nosuid");
    ck_assert_str_eq(list, "ro,_netdev,noatime,x-systemd.automount,queues=4,nosuid,nofail");
}
END_TEST

/* Pools of many queues share what two may have. */
START_TEST(test_pool_of_many_queues)
{
    char *argv[] = {"rblk-fuse", "--queues=64", "rblk://h/v", "/mnt", NULL};
    struct fuse_options o;

    ck_assert_int_eq(parse(&o, argv), 0);
    ck_assert_uint_eq(o.pool_size, 2u << 20);
}
END_TEST

static const char *const refused[][4] = {
    {NULL}, /* nothing at all */
    {"rblk://h/v"},
    {"rblk://h/v", "/mnt", "/more"},
    {"--bogus", "rblk://h/v", "/mnt"},
    {"--queues=0", "rblk://h/v", "/mnt"},
    {"--queues=65", "rblk://h/v", "/mnt"},
    {"--queues=x", "rblk://h/v", "/mnt"},
    {"--queue-depth=257", "rblk://h/v", "/mnt"},
    {"--pool-size=1M", "rblk://h/v", "/mnt"},
    {"--pool-size=65M", "rblk://h/v", "/mnt"},
    {"--timeout=0", "rblk://h/v", "/mnt"},
    {"--cache", "rblk://h/v", "/mnt"},
    {"--log-level=loud", "rblk://h/v", "/mnt"},
    {"-oro,shared", "rblk://h/v", "/mnt"},
    {"-oqueues", "rblk://h/v", "/mnt"},
    {"-oro=1", "rblk://h/v", "/mnt"},
    {"-onothing", "rblk://h/v", "/mnt"},
    {"rblk://h/v", "/mnt", "--queues"},
};

START_TEST(test_refused)
{
    char *argv[6] = {"rblk-fuse"};
    struct fuse_options o;

    memset(&o, 0x5a, sizeof(o));
    for (int i = 0; i < 4 && refused[_i][i]; i++)
        argv[i + 1] = strdup(refused[_i][i]);
    ck_assert_int_eq(parse(&o, argv), -EINVAL);
    ck_assert_uint_gt(strlen(err), 0);
    ck_assert_ptr_null(strchr(err, '\n'));
    for (size_t i = 0; i < sizeof(o); i++)
        ck_assert_int_eq(((unsigned char *)&o)[i], 0x5a);
    for (int i = 1; argv[i]; i++)
        free(argv[i]);
}
END_TEST

START_TEST(test_help_and_version)
{
    char *help[] = {"rblk-fuse", "--help", NULL};
    char *version[] = {"rblk-fuse", "-V", "--queues=0", NULL};
    struct fuse_options o;

    ck_assert_int_eq(parse(&o, help), 0);
    ck_assert_int_eq(o.action, FUSE_ACTION_HELP);
    ck_assert_int_eq(parse(&o, version), 0);
    ck_assert_int_eq(o.action, FUSE_ACTION_VERSION);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fuse/options");
    TCase *tc = tcase_create("options");

    tcase_add_test(tc, test_defaults);
    tcase_add_test(tc, test_long_options);
    tcase_add_test(tc, test_mount_options);
    tcase_add_test(tc, test_pool_of_many_queues);
    tcase_add_loop_test(tc, test_refused, 0, sizeof(refused) / sizeof(refused[0]));
    tcase_add_test(tc, test_help_and_version);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
