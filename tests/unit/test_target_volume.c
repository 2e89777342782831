/* SPDX-License-Identifier: BSD-2-Clause */
/* test_target_volume -- target/volume.c: what may be served, sizes, the lock, the identity */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "suite.h"
#include "target/volume.h"

static char directory[64], path[96];
static char err[1024];
static struct config_volume declared;

static void setup(void)
{
    snprintf(directory, sizeof(directory), "/tmp/test_target_volume.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(directory));
    snprintf(path, sizeof(path), "%s/disk", directory);
    declared = (struct config_volume){.name = "disk", .path = path};
}

static void teardown(void)
{
    unlink(path);
    rmdir(directory);
}

static void create(uint64_t size)
{
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(ftruncate(fd, (off_t)size), 0);
    close(fd);
}

static int open_declared(struct volume *v)
{
    return volume_open(v, &declared, 0, false, err, sizeof(err));
}

START_TEST(sizes_are_exact)
{
    uint64_t sizes[] = {1, 511, 4095, 4096, 4097, (64u << 20) + 1, (1ull << 40) + 1};
    struct volume v;

    for (int i = 0; i < 7; i++) {
        create(sizes[i]);
        ck_assert_msg(open_declared(&v) == 0, "%s", err);
        ck_assert_uint_eq(v.size, sizes[i]);
        ck_assert_int_eq(((volatile char *)v.map)[sizes[i] - 1], 0);
        volume_close(&v);
    }
}
END_TEST

static void expect_refused(int rc, const char *wanted)
{
    struct volume v;

    ck_assert_int_eq(open_declared(&v), rc);
    ck_assert_msg(strstr(err, "volume disk: ") == err && strstr(err, wanted), "%s", err);
}

START_TEST(what_cannot_be_served_is_refused)
{
    expect_refused(-ENOENT, "truncate");
    create(0);
    expect_refused(-EINVAL, "empty");
    declared.path = directory;
    expect_refused(-EISDIR, "directory");
    declared.path = (char *)"/dev/null";
    expect_refused(-EINVAL, "neither");
    declared.path = (char *)"/proc/version";
    declared.read_only = true;
    expect_refused(-EINVAL, "empty");
}
END_TEST

START_TEST(one_file_is_served_once)
{
    struct volume a, b;

    create(4096);
    ck_assert_int_eq(open_declared(&a), 0);
    expect_refused(-EBUSY, "served already");
    declared.read_only = true;
    expect_refused(-EBUSY, "served already");
    ck_assert_int_eq(volume_open(&b, &declared, 0, true, err, sizeof(err)), 0);
    volume_close(&b);
    volume_close(&a);
    ck_assert_int_eq(open_declared(&a), 0);
    volume_close(&a);
}
END_TEST

/* As after a kill: the kernel lets go of the file some time after the process has ended. */
START_TEST(a_lock_that_is_about_to_go_is_waited_for)
{
    struct volume v;
    pid_t child;
    int fd;

    create(4096);
    fd = open(path, O_RDWR);
    ck_assert_int_eq(flock(fd, LOCK_EX), 0);
    child = fork();
    if (child == 0) {
        poll(NULL, 0, 300);
        _exit(0);
    }
    close(fd); /* the child's copy still holds the lock */
    ck_assert_msg(open_declared(&v) == 0, "%s", err);
    volume_close(&v);
    waitpid(child, NULL, 0);
}
END_TEST

START_TEST(the_identity_stays_with_file_and_name)
{
    struct volume v;
    uint8_t first[RBLK_UUID_LEN];

    create(4096);
    ck_assert_int_eq(open_declared(&v), 0);
    memcpy(first, v.uuid, sizeof(first));
    volume_close(&v);
    ck_assert_int_eq(open_declared(&v), 0);
    ck_assert_mem_eq(v.uuid, first, sizeof(first));
    volume_close(&v);
    snprintf(declared.name, sizeof(declared.name), "copy");
    ck_assert_int_eq(open_declared(&v), 0);
    ck_assert_mem_ne(v.uuid, first, sizeof(first));
    volume_close(&v);
}
END_TEST

START_TEST(the_mapping_can_become_writable)
{
    struct volume v;

    create(8192);
    for (int read_only = 0; read_only < 2; read_only++) {
        declared.read_only = read_only;
        ck_assert_int_eq(open_declared(&v), 0);
        ck_assert_int_eq(volume_map_writable(&v), 0);
        ck_assert_int_eq(volume_map_writable(&v), -EALREADY);
        ck_assert_int_eq(((volatile char *)v.map)[8191], 0);
        volume_close(&v);
    }
}
END_TEST

START_TEST(failure_is_latched_once)
{
    struct volume v;

    create(4096);
    ck_assert_int_eq(open_declared(&v), 0);
    ck_assert_uint_eq(volume_flags(&v), 0);
    ck_assert(volume_latch_failed(&v));
    ck_assert(!volume_latch_failed(&v));
    ck_assert(volume_has_failed(&v));
    ck_assert_uint_eq(volume_flags(&v), RBLK_VOLUME_FAILED);
    volume_close(&v);
}
END_TEST

START_TEST(modes_that_exclude_each_other)
{
    const enum rblk_attach_mode ro = RBLK_ATTACH_RO, rw = RBLK_ATTACH_RW, sh = RBLK_ATTACH_SHARED;

    ck_assert(!volume_modes_conflict(ro, ro));
    ck_assert(!volume_modes_conflict(ro, rw));
    ck_assert(!volume_modes_conflict(sh, ro));
    ck_assert(volume_modes_conflict(rw, rw));
    ck_assert(volume_modes_conflict(rw, sh));
    ck_assert(volume_modes_conflict(sh, rw));
    ck_assert(!volume_modes_conflict(sh, sh));
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("target_volume");
    TCase *t = tcase_create("volume");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, sizes_are_exact);
    tcase_add_test(t, what_cannot_be_served_is_refused);
    tcase_add_test(t, one_file_is_served_once);
    tcase_add_test(t, a_lock_that_is_about_to_go_is_waited_for);
    tcase_add_test(t, the_identity_stays_with_file_and_name);
    tcase_add_test(t, the_mapping_can_become_writable);
    tcase_add_test(t, failure_is_latched_once);
    tcase_add_test(t, modes_that_exclude_each_other);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return suite_run(suite());
}
