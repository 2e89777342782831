/* SPDX-License-Identifier: BSD-2-Clause */
/* test_tool_mounts -- what mount and unmount know about this machine: mountinfo, runtime folder,
 * kernel version */

#include <check.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mounts.h"
#include "runtime.h"
#include "suite.h"
#include "tools/doctor.h"

START_TEST(test_parse)
{
    static struct rblk_mount m;

    ck_assert_int_eq(
        rblk_mount_parse(&m, "41 26 0:38 / /mnt/a\\040b\\134c rw,nosuid shared:5 - fuse.rblk "
                             "rblk://h:1/v rw,user_id=0\n"),
        0);
    ck_assert_str_eq(m.path, "/mnt/a b\\c");
    ck_assert_str_eq(m.type, "fuse.rblk");
    ck_assert_str_eq(m.source, "rblk://h:1/v");
    ck_assert_uint_eq(m.major, 0);
    ck_assert_uint_eq(m.minor, 38);
}
END_TEST

static const char *const malformed[] = {
    "",
    "41 26 0:38 / /mnt rw fuse.rblk rblk://h/v rw", /* no separator */
    "41 26 0:38 - fuse.rblk rblk://h/v rw",
    "41 26 nonsense / /mnt rw - fuse.rblk rblk://h/v rw",
    "41 26 0:38 / /mnt rw - ",
};

START_TEST(test_parse_malformed)
{
    static struct rblk_mount m;

    strcpy(m.path, "untouched");
    ck_assert_int_eq(rblk_mount_parse(&m, malformed[_i]), -EINVAL);
    ck_assert_str_eq(m.path, "untouched");
}
END_TEST

START_TEST(test_find)
{
    static struct rblk_mount m;

    ck_assert_int_eq(rblk_mount_find(&m, "/proc"), 0);
    ck_assert_str_eq(m.type, "proc");
    ck_assert_int_eq(rblk_mount_find(&m, "/no/such/mount"), -ENOENT);
}
END_TEST

START_TEST(test_path)
{
    char out[PATH_MAX];

    ck_assert_int_eq(rblk_mount_path(out, "/usr/../proc/./"), 0);
    ck_assert_str_eq(out, "/proc");
    ck_assert_int_eq(rblk_mount_path(out, "/no/such/path"), -ENOENT);
}
END_TEST

START_TEST(test_runtime_dir)
{
    char dir[108], small[8], err[256], base[] = "/tmp/rblk-test.XXXXXX", link[64];
    struct stat st;

    ck_assert_ptr_nonnull(mkdtemp(base));
    snprintf(link, sizeof(link), "%s/run", base);
    setenv("RBLK_RUNTIME_DIR", link, 1);
    ck_assert_int_eq(rblk_runtime_dir(dir, sizeof(dir)), 0);
    ck_assert_str_eq(dir, link);
    ck_assert_int_eq(rblk_runtime_dir(small, sizeof(small)), -ENAMETOOLONG);
    ck_assert_int_eq(rblk_runtime_prepare(dir, sizeof(dir), err, sizeof(err)), 0);
    ck_assert_int_eq(stat(link, &st), 0);
    ck_assert_uint_eq(st.st_mode & 0777, 0700);
    /* Not through a symbolic link that somebody may have left there. */
    rmdir(link);
    ck_assert_int_eq(symlink("/", link), 0);
    ck_assert_int_eq(rblk_runtime_prepare(dir, sizeof(dir), err, sizeof(err)), -EPERM);
    unlink(link);
    rmdir(base);
    /* A relative one is none. */
    setenv("RBLK_RUNTIME_DIR", "run", 1);
    ck_assert_int_eq(rblk_runtime_dir(dir, sizeof(dir)), 0);
    ck_assert_int_eq(dir[0], '/');
}
END_TEST

START_TEST(test_kernel_version)
{
    unsigned int major_version = 0, minor_version = 0;

    ck_assert(doctor_kernel_parse("6.1.0-13-amd64", &major_version, &minor_version));
    ck_assert_uint_eq(major_version, 6);
    ck_assert_uint_eq(minor_version, 1);
    ck_assert(!doctor_kernel_parse("linux", &major_version, &minor_version));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tools/mounts");
    TCase *tc = tcase_create("mounts");

    tcase_add_test(tc, test_parse);
    tcase_add_loop_test(tc, test_parse_malformed, 0, sizeof(malformed) / sizeof(malformed[0]));
    tcase_add_test(tc, test_find);
    tcase_add_test(tc, test_path);
    tcase_add_test(tc, test_runtime_dir);
    tcase_add_test(tc, test_kernel_version);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
