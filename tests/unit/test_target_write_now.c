/* SPDX-License-Identifier: BSD-2-Clause */
/* test_target_write_now -- which writes the reactor makes itself, and when it stops doing so */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/clock.h"
#include "suite.h"
#include "target/write_now.h"

#define SIZE (1u << 20)
#define MS 1000000ull

static struct write_pace pace;
static uint8_t data[8192];
static uint64_t spent_ns;
static int fd;

static int64_t try_write(int to, uint32_t length, uint64_t offset)
{
    return write_now(&pace, to, data, length, offset, &spent_ns);
}

static void setup(void)
{
    char path[] = "/tmp/rblk-write-now.XXXXXX";

    fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    unlink(path);
    ck_assert_int_eq(ftruncate(fd, SIZE), 0);
    memset(data, 0x5a, sizeof(data));
    write_pace_init(&pace, fd);
    spent_ns = 0;
}

static void teardown(void)
{
    close(fd);
}

static void expect_byte(uint64_t offset, uint8_t value)
{
    uint8_t got;

    ck_assert_int_eq(pread(fd, &got, 1, (off_t)offset), 1);
    ck_assert_uint_eq(got, value);
}

/* Whatever the file system can do, it is known after one write, and nothing is written halfway. */
START_TEST(first_write_finds_the_way)
{
    int64_t n = try_write(fd, 4096, 8192);
    int way = pace.way;

    ck_assert_int_ne(way, WRITE_WAY_UNKNOWN);
    ck_assert(n == 4096 || n == -EAGAIN);
    expect_byte(8192, n == 4096 ? 0x5a : 0);
    n = try_write(fd, 4096, 16384);
    if (way == WRITE_WAY_RING) {
        ck_assert_int_eq(n, -EAGAIN);
        expect_byte(16384, 0);
    } else {
        ck_assert_int_eq(n, 4096);
        ck_assert_uint_gt(spent_ns, 0);
        expect_byte(16384, 0x5a);
        expect_byte(20480, 0);
    }
    ck_assert_int_eq(pace.way, way);
}
END_TEST

/* What may hang is left to io_uring from the start. */
START_TEST(only_local_memory)
{
    int ends[2];

    ck_assert_int_eq(pipe(ends), 0);
    write_pace_init(&pace, ends[1]);
    ck_assert_int_eq(pace.way, WRITE_WAY_RING);
    ck_assert_int_eq(try_write(ends[1], 4096, 0), -EAGAIN);
    close(ends[0]);
    close(ends[1]);
}
END_TEST

/* Part of a page may have to be read first, which waits for the disk. */
START_TEST(only_whole_pages)
{
    const struct {
        uint32_t length;
        uint64_t offset;
    } refused[] = {{4095, 0}, {1, 4096}, {4096, 512}, {8192, 4095}, {6144, 4096}};

    pace.way = WRITE_WAY_NOW;
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        ck_assert_int_eq(try_write(fd, refused[i].length, refused[i].offset), -EAGAIN);
        expect_byte(refused[i].offset, 0);
    }
    ck_assert_int_eq(try_write(fd, 8192, 4096), 8192);
}
END_TEST

START_TEST(ring_writes_are_left_alone)
{
    pace.way = WRITE_WAY_RING;
    ck_assert_int_eq(try_write(fd, 4096, 0), -EAGAIN);
    expect_byte(0, 0);
}
END_TEST

START_TEST(an_error_is_told)
{
    int closed = dup(fd);

    close(closed);
    /* Unknown: io_uring shall tell it. */
    ck_assert_int_eq(try_write(closed, 4096, 0), -EAGAIN);
    ck_assert_int_eq(pace.way, WRITE_WAY_UNKNOWN);
    pace.way = WRITE_WAY_NOW;
    ck_assert_int_eq(try_write(closed, 4096, 0), -EBADF);
}
END_TEST

/* A write that waited stops the others, the longer the more often it happens, and not for ever. */
START_TEST(a_write_that_waited_gives_the_volume_back)
{
    uint64_t now = rblk_now_ns();

    pace.way = WRITE_WAY_NOW;
    write_now_learn(&pace, now - 2 * MS, now, true);
    ck_assert_uint_eq(pace.pause_ms, 100);
    ck_assert_int_eq(try_write(fd, 4096, 0), -EAGAIN);
    expect_byte(0, 0);
    /* Again soon after: twice as long, up to the bound. */
    for (unsigned int expected = 200; expected < 40000; expected *= 2) {
        uint64_t then = pace.not_before_ns + MS;

        write_now_learn(&pace, then, then + 5 * MS, true);
        ck_assert_uint_eq(pace.pause_ms, expected < 10000 ? expected : 10000);
        ck_assert_uint_eq(pace.not_before_ns, then + 5 * MS + pace.pause_ms * MS);
    }
    /* After a long time without: as at first. */
    now = pace.not_before_ns + 200000 * MS;
    write_now_learn(&pace, now, now + 2 * MS, true);
    ck_assert_uint_eq(pace.pause_ms, 100);
    /* The pause is over, but there is a queue to wait behind. */
    pace.not_before_ns = rblk_now_ns();
    pace.in_ring = 1;
    ck_assert_int_eq(try_write(fd, 4096, 0), -EAGAIN);
    pace.in_ring = 0;
    ck_assert_int_eq(try_write(fd, 4096, 0), 4096);
    /* What io_uring has later, part of a page perhaps, is no such queue. */
    pace.in_ring = 1;
    ck_assert_int_eq(try_write(fd, 4096, 4096), 4096);
}
END_TEST

/* A thread that had to leave the CPU to another says nothing about the file. */
START_TEST(a_write_that_was_interrupted_does_not)
{
    uint64_t now = rblk_now_ns();

    pace.way = WRITE_WAY_NOW;
    write_now_learn(&pace, now - 50 * MS, now, false);
    ck_assert_uint_eq(pace.pause_ms, 0);
    ck_assert_uint_eq(pace.suspect_until_ns, now + 1000 * MS);
    ck_assert_int_eq(try_write(fd, 4096, 0), 4096);
    write_now_learn(&pace, now, now + 50 * MS, false);
    ck_assert_uint_eq(pace.pause_ms, 0);
    ck_assert_uint_eq(pace.suspect_until_ns, now + 1050 * MS);
    ck_assert_int_eq(try_write(fd, 4096, 4096), 4096);
}
END_TEST

struct late_page {
    int uffd;
    useconds_t delay_us;
};

/* Provides the one page that is missing, late. */
static void *provide_late(void *opaque)
{
    struct late_page *late = opaque;
    struct uffd_msg fault;
    struct uffdio_zeropage zero = {.mode = 0};

    if (read(late->uffd, &fault, sizeof(fault)) != sizeof(fault))
        return NULL;
    usleep(late->delay_us);
    zero.range.start = fault.arg.pagefault.address & ~4095ull;
    zero.range.len = 4096;
    ioctl(late->uffd, UFFDIO_ZEROPAGE, &zero);
    return NULL;
}

/* Writes from memory whose page comes after some milliseconds: a write that waits. */
static int64_t write_that_waits(uint64_t offset)
{
    struct late_page late = {.delay_us = 5000};
    struct uffdio_api api = {.api = UFFD_API};
    struct uffdio_register range = {.mode = UFFDIO_REGISTER_MODE_MISSING};
    pthread_t thread;
    int64_t n;
    void *page;

    late.uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    ck_assert_msg(late.uffd >= 0, "userfaultfd: %s; unit tests run as root", strerror(errno));
    ck_assert_int_eq(ioctl(late.uffd, UFFDIO_API, &api), 0);
    page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(page, MAP_FAILED);
    range.range.start = (uintptr_t)page;
    range.range.len = 4096;
    ck_assert_int_eq(ioctl(late.uffd, UFFDIO_REGISTER, &range), 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, provide_late, &late), 0);
    n = write_now(&pace, fd, page, 4096, offset, &spent_ns);
    pthread_join(thread, NULL);
    munmap(page, 4096);
    close(late.uffd);
    return n;
}

/* The first slow write makes suspicious, the second one shows that it waits. */
START_TEST(waiting_is_noticed)
{
    pace.way = WRITE_WAY_NOW;
    ck_assert_int_eq(write_that_waits(0), 4096);
    ck_assert_uint_eq(pace.pause_ms, 0);
    ck_assert_uint_gt(pace.suspect_until_ns, rblk_now_ns());
    /* However long the machine took until here. */
    pace.suspect_until_ns = UINT64_MAX;
    ck_assert_int_eq(try_write(fd, 4096, 0), 4096);
    ck_assert_uint_eq(pace.pause_ms, 0);
    ck_assert_int_eq(write_that_waits(4096), 4096);
    ck_assert_uint_eq(pace.pause_ms, 100);
    ck_assert(pace.given_back);
}
END_TEST

/* A long write may take longer. */
START_TEST(large_writes_have_more_time)
{
    ck_assert(!write_now_slow(4096, MS));
    ck_assert(write_now_slow(4096, 2 * MS));
    ck_assert(!write_now_slow(SIZE, 3 * MS));
    ck_assert(write_now_slow(SIZE, 4 * MS));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("target/write_now");
    TCase *tc = tcase_create("write_now");

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, first_write_finds_the_way);
    tcase_add_test(tc, only_local_memory);
    tcase_add_test(tc, only_whole_pages);
    tcase_add_test(tc, ring_writes_are_left_alone);
    tcase_add_test(tc, an_error_is_told);
    tcase_add_test(tc, a_write_that_waited_gives_the_volume_back);
    tcase_add_test(tc, a_write_that_was_interrupted_does_not);
    tcase_add_test(tc, waiting_is_noticed);
    tcase_add_test(tc, large_writes_have_more_time);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
