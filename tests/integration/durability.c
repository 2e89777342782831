/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * durability -- flushes and FUA writes, counted at the target
 *
 *   durability library COUNT URI       through librblk: checks the target's counters itself
 *   durability fsync COUNT FILE        COUNT times a write and an fsync of a mounted disk
 *   durability fdatasync COUNT FILE    the same with fdatasync
 *   durability dsync COUNT FILE        COUNT writes to a file opened with O_DSYNC
 *   durability plain COUNT FILE        COUNT writes and no fsync
 */
#include <fcntl.h>
#include <unistd.h>

#include "helper.h"
#include "rblk.h"

#define SMALL 4096u
#define LARGE 65536u

struct finished {
    unsigned int count;
    int error;
};

static struct rblk_target_stats counters(struct rblk *h)
{
    struct rblk_target_stats s;

    if (rblk_get_target_stats(h, &s) != 0)
        helper_fail("%s", rblk_error(h));
    return s;
}

static void expect(const char *what, uint64_t got, uint64_t expected)
{
    if (got != expected)
        helper_fail("%s: %llu, expected %llu", what, (unsigned long long)got,
                    (unsigned long long)expected);
}

static void write_all(struct rblk *h, unsigned int count, size_t length, unsigned int flags)
{
    static unsigned char data[LARGE];

    for (unsigned int i = 0; i < count; i++) {
        memset(data, (int)i, length);
        if (rblk_pwrite(h, data, length, (uint64_t)i % 8 * LARGE, flags) != 0)
            helper_fail("write: %s", rblk_error(h));
    }
}

static void done(void *opaque, int error)
{
    struct finished *finished = opaque;

    finished->count++;
    if (error != 0)
        finished->error = error;
}

/* Many flushes in flight at once: each is one fdatasync. */
static void flush_together(struct rblk *h, unsigned int count)
{
    struct rblk_queue *q = rblk_get_queue(h, 0);
    struct finished finished = {0, 0};
    unsigned int sent = 0;
    uint64_t deadline = helper_now() + 60000000000u;

    while (finished.count < count) {
        int error = sent < count ? rblk_aio_flush(q, done, &finished) : -EAGAIN;

        if (error == 0)
            sent++;
        else if (error != -EAGAIN)
            helper_fail("flush: %s", strerror(-error));
        else if (rblk_queue_wait(q, 1000) < 0 || helper_now() > deadline)
            helper_fail("the queue failed: %s", rblk_error(h));
    }
    if (finished.error != 0)
        helper_fail("flush: %s", strerror(-finished.error));
}

static void through_library(unsigned int count, const char *uri)
{
    struct rblk_target_stats a, b;
    struct rblk_info info;
    struct rblk *h;

    if (rblk_create(&h) != 0)
        helper_fail("out of memory");
    if (rblk_connect(h, uri) != 0 || rblk_get_info(h, &info) != 0)
        helper_fail("%s", rblk_error(h));
    if (!info.can_flush || !info.can_fua)
        helper_fail("flush or FUA is not offered");
    if (info.max_inline >= LARGE || info.max_io < LARGE)
        helper_fail("%u bytes are no longer a write through staging memory", LARGE);

    a = counters(h);
    write_all(h, count, SMALL, 0);
    write_all(h, count, LARGE, 0);
    b = counters(h);
    expect("writes", b.writes - a.writes, 2u * count);
    expect("bytes written", b.write_bytes - a.write_bytes, (uint64_t)count * (SMALL + LARGE));
    expect("fdatasyncs of plain writes", b.fdatasyncs - a.fdatasyncs, 0);
    expect("FUA writes of plain writes", b.fua_writes - a.fua_writes, 0);

    for (unsigned int i = 0; i < count; i++)
        if (rblk_flush(h) != 0)
            helper_fail("flush: %s", rblk_error(h));
    a = counters(h);
    expect("flushes", a.flushes - b.flushes, count);
    expect("fdatasyncs of flushes", a.fdatasyncs - b.fdatasyncs, count);

    flush_together(h, count);
    b = counters(h);
    expect("flushes in flight together", b.flushes - a.flushes, count);
    expect("fdatasyncs of flushes in flight together", b.fdatasyncs - a.fdatasyncs, count);

    write_all(h, count, SMALL, RBLK_FUA);
    write_all(h, count, LARGE, RBLK_FUA);
    a = counters(h);
    expect("FUA writes", a.fua_writes - b.fua_writes, 2u * count);
    expect("fdatasyncs of FUA writes", a.fdatasyncs - b.fdatasyncs, 0);
    expect("errors", a.errors, 0);
    printf("measured: %u flushes alone and %u together: %u fdatasyncs; %u FUA writes: none\n",
           count, count, 2 * count, 2 * count);
    rblk_close(h);
}

static void through_mount(const char *how, unsigned int count, const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC | (strcmp(how, "dsync") == 0 ? O_DSYNC : 0));
    unsigned char data[SMALL];

    if (fd < 0)
        helper_end(HELPER_IO_ERROR, "%s: %s", path, strerror(errno));
    for (unsigned int i = 0; i < count; i++) {
        memset(data, (int)(i + 1), sizeof(data));
        if (pwrite(fd, data, sizeof(data), (off_t)(i % 16 * SMALL)) != (ssize_t)sizeof(data))
            helper_end(HELPER_IO_ERROR, "%s: write: %s", path, strerror(errno));
        if ((strcmp(how, "fsync") == 0 && fsync(fd) != 0) ||
            (strcmp(how, "fdatasync") == 0 && fdatasync(fd) != 0))
            helper_end(HELPER_IO_ERROR, "%s: %s: %s", path, how, strerror(errno));
    }
    if (close(fd) != 0)
        helper_end(HELPER_IO_ERROR, "%s: close: %s", path, strerror(errno));
}

int main(int argc, char **argv)
{
    unsigned int count;

    helper_select_provider(argv);
    if (argc != 4)
        return HELPER_USAGE;
    count = (unsigned int)helper_number(argv[2]);
    if (strcmp(argv[1], "library") == 0)
        through_library(count, argv[3]);
    else
        through_mount(argv[1], count, argv[3]);
    return 0;
}
