/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * coherence -- what an RDMA READ sees of the backing file: writes, flushes, dropped page caches, others
 *
 *   coherence URI FILE [SEED]
 *   coherence other HOW FILE OFFSET LENGTH BYTE
 *
 * FILE is the backing file of the volume at URI, all holes, of several extents, on this machine. The
 * first form works through librblk and looks at FILE beside it; the second is how it makes another
 * process write to FILE. Root is needed to drop page caches.
 */
#include <fcntl.h>
#include <linux/falloc.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "helper.h"
#include "initiator/rblk.h"

#define WRITES 300
#define WRITE_MAX \
    (48u << 10) /* bytes; small ones ride in the command, larger ones use staging memory */
#define FLUSH_EVERY 25
#define OTHER_LEN \
    16384u /* bytes that another process writes: whole pages and blocks, for O_DIRECT */
#define CHUNK (1u << 20)

extern char **environ;

static struct rblk *h;
static const char *uri, *path;
static uint64_t size, seed;
static unsigned char *model, *seen;
static uint64_t reads;

static void check(int rc, const char *what)
{
    if (rc < 0)
        helper_end(HELPER_IO_ERROR, "%s: %s", what, rblk_error(h));
}

static void connect_volume(void)
{
    if (rblk_create(&h) != 0)
        helper_fail("no memory");
    check(rblk_connect(h, uri), "connect");
}

static int open_file(int flags)
{
    int fd = open(path, flags | O_CLOEXEC);

    if (fd < 0)
        helper_fail("%s: %s", path, strerror(errno));
    return fd;
}

static void compare(const unsigned char *bytes, uint64_t offset, size_t len, const char *when)
{
    for (size_t i = 0; i < len; i++)
        if (bytes[i] != model[offset + i])
            helper_fail("%s: byte %llu is %02x, not %02x", when, (unsigned long long)(offset + i),
                        bytes[i], model[offset + i]);
}

/* The volume, by RDMA READ, is what the model says. */
static void read_matches(uint64_t offset, size_t len, const char *when)
{
    check(rblk_pread(h, seen, len, offset), when);
    reads++;
    compare(seen, offset, len, when);
}

static void whole_volume_matches(const char *when)
{
    for (uint64_t at = 0; at < size; at += CHUNK)
        read_matches(at, size - at < CHUNK ? (size_t)(size - at) : CHUNK, when);
}

/* The file itself, read as any process may, is what the model says. */
static void file_matches(const char *when)
{
    int fd = open_file(O_RDONLY);

    for (uint64_t at = 0; at < size; at += CHUNK) {
        size_t len = size - at < CHUNK ? (size_t)(size - at) : CHUNK;

        if (pread(fd, seen, len, (off_t)at) != (ssize_t)len)
            helper_fail("%s: %s", path, strerror(errno));
        compare(seen, at, len, when);
    }
    close(fd);
}

/* A random write and, at once, a read of it and of what lies beside it. */
static void write_and_read(const char *when)
{
    /* Half of them small, so that both ways of writing get their share. */
    uint64_t most = helper_below(&seed, 2) ? 2048 : WRITE_MAX;
    size_t len = (size_t)(1 + helper_below(&seed, most));
    uint64_t offset = helper_below(&seed, size - len + 1);
    uint64_t begin = offset < 4096 ? 0 : offset - 4096;
    uint64_t end = size - (offset + len) < 4096 ? size : offset + len + 4096;

    helper_random_bytes(&seed, model + offset, len);
    check(rblk_pwrite(h, model + offset, len, offset, 0), "write");
    read_matches(begin, (size_t)(end - begin), when);
}

static void drop_page_cache(void)
{
    int fd = open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);

    sync();
    if (fd < 0 || write(fd, "3", 1) != 1)
        helper_fail("the page cache cannot be dropped: %s", strerror(errno));
    close(fd);
}

static uint64_t allocated(void)
{
    struct stat st;

    if (stat(path, &st) != 0)
        helper_fail("%s: %s", path, strerror(errno));
    return (uint64_t)st.st_blocks * 512;
}

/* -- another process ------------------------------------------------------------------------- */

/* The second form of the command: 0, or HELPER_IO_ERROR when the file system cannot do that. */
static int write_as_other(char **argv)
{
    uint64_t offset = helper_number(argv[4]), len = helper_number(argv[5]);
    unsigned char byte = (unsigned char)helper_number(argv[6]);
    const char *how = argv[2];
    int direct = strcmp(how, "direct") == 0 ? O_DIRECT : 0;
    int fd = open(argv[3], O_RDWR | O_CLOEXEC | direct);
    unsigned char *bytes = aligned_alloc(4096, len);
    bool done;

    if (fd < 0 || bytes == NULL)
        helper_end(HELPER_IO_ERROR, "%s: %s", argv[3], strerror(errno));
    memset(bytes, byte, len);
    if (strcmp(how, "punch") == 0) {
        done = fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
                         (off_t)len) == 0;
    } else if (strcmp(how, "mmap") == 0) {
        unsigned char *map = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);

        done = map != MAP_FAILED;
        if (done)
            memcpy(map, bytes, len);
    } else {
        done = pwrite(fd, bytes, len, (off_t)offset) == (ssize_t)len;
    }
    if (!done)
        helper_end(HELPER_IO_ERROR, "%s: %s", how, strerror(errno));
    free(bytes);
    close(fd);
    return 0;
}

/* Runs the second form, which writes to OTHER_LEN bytes at offset. Whether it could. */
static bool let_other_write(const char *how, uint64_t offset, unsigned char byte)
{
    char at[32], length[32], value[8];
    char *argv[] = {
        (char *)"coherence", (char *)"other", (char *)how, (char *)path, at, length, value, NULL};
    int status;
    pid_t pid;

    snprintf(at, sizeof(at), "%llu", (unsigned long long)offset);
    snprintf(length, sizeof(length), "%u", OTHER_LEN);
    snprintf(value, sizeof(value), "%u", byte);
    /* No fork: its copy-on-write is not for a process that has registered memory. */
    if (posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ) != 0 ||
        waitpid(pid, &status, 0) != pid)
        helper_fail("cannot run a process: %s", strerror(errno));
    if (!WIFEXITED(status) || (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != HELPER_IO_ERROR))
        helper_fail("the other process failed");
    return WEXITSTATUS(status) == 0;
}

/* Writes through the page cache are seen at once, whoever makes them. */
static void others_writes_are_seen(void)
{
    static const char *const hows[] = {"buffered", "mmap"};

    for (unsigned int i = 0; i < sizeof(hows) / sizeof(hows[0]); i++) {
        uint64_t offset = (3 + 2 * i) * (uint64_t)OTHER_LEN;

        if (!let_other_write(hows[i], offset, (unsigned char)(0xa1 + i)))
            helper_fail("another process cannot write (%s)", hows[i]);
        memset(model + offset, 0xa1 + (int)i, OTHER_LEN);
        read_matches(offset, OTHER_LEN, hows[i]);
        printf("measured: another process's %s write: seen at once\n", hows[i]);
    }
}

/*
 * What takes registered pages away from the file is not seen, which rblkd(8) warns of. This shows
 * what happens, and that a new session sees the truth.
 */
static void others_go_round_the_page_cache(void)
{
    static const char *const hows[] = {"direct", "punch"};

    for (unsigned int i = 0; i < sizeof(hows) / sizeof(hows[0]); i++) {
        uint64_t offset = (8 + 2 * i) * (uint64_t)OTHER_LEN;
        unsigned char byte = i == 0 ? 0xd1 : 0; /* a hole reads as zeros */

        check(rblk_pwrite(h, model + offset, OTHER_LEN, offset, 0), "write");
        check(rblk_flush(h), "flush");
        if (!let_other_write(hows[i], offset, byte)) {
            printf("measured: another process's %s: the file system has no such thing\n", hows[i]);
            continue;
        }
        check(rblk_pread(h, seen, OTHER_LEN, offset), "read");
        reads++;
        printf("measured: another process's %s: %s\n", hows[i],
               memcmp(seen, model + offset, OTHER_LEN) == 0 ? "not seen (old data)" : "seen");
        memset(model + offset, byte, OTHER_LEN);
    }
    rblk_close(h);
    connect_volume();
    whole_volume_matches("a new session after another process's changes");
    file_matches("the file after another process's changes");
}

/* -- the test -------------------------------------------------------------------------------- */

static void stay_coherent(void)
{
    struct rblk_stats stats;

    for (unsigned int i = 0; i < WRITES; i++) {
        /* At first most of it is holes, and no extent is registered. */
        write_and_read("a read right after the write");
        if (i % FLUSH_EVERY == FLUSH_EVERY - 1) {
            check(rblk_flush(h), "flush");
            read_matches(0, size < CHUNK ? (size_t)size : CHUNK, "a read after a flush");
        }
    }
    whole_volume_matches("the volume after all writes");
    file_matches("the file after all writes");
    check(rblk_flush(h), "flush");
    whole_volume_matches("the volume after a flush");
    drop_page_cache();
    whole_volume_matches("the volume after the page cache was dropped");
    for (unsigned int i = 0; i < WRITES / 4; i++) {
        write_and_read("a read right after a write, the page cache having been dropped");
        if (i % FLUSH_EVERY == 0)
            drop_page_cache();
    }
    file_matches("the file after the page cache was dropped");
    check(rblk_get_stats(h, &stats), "statistics");
    if (stats.rdma_reads < reads)
        helper_fail("%llu reads took only %llu RDMA READs", (unsigned long long)reads,
                    (unsigned long long)stats.rdma_reads);
    printf("measured: %u writes seen at once by %llu RDMA READs\n", WRITES + WRITES / 4,
           (unsigned long long)stats.rdma_reads);
}

/* Nothing is registered any more, nothing is cached: what is on the device. */
static void survive_everything(void)
{
    check(rblk_flush(h), "flush");
    rblk_close(h);
    drop_page_cache();
    file_matches("the file after the session ended");
    connect_volume();
    whole_volume_matches("the volume in a new session");
}

int main(int argc, char **argv)
{
    struct stat st;
    uint64_t before;

    if (argc == 7 && strcmp(argv[1], "other") == 0)
        return write_as_other(argv);
    helper_select_provider(argv);
    if (argc < 3 || argc > 4)
        helper_end(HELPER_USAGE, "usage: coherence URI FILE [SEED]");
    uri = argv[1];
    path = argv[2];
    seed = argc > 3 ? helper_number(argv[3]) : helper_now();
    printf("seed %llu\n", (unsigned long long)seed);
    if (stat(path, &st) != 0)
        helper_fail("%s: %s", path, strerror(errno));
    size = (uint64_t)st.st_size;
    if (size < 20 * (uint64_t)OTHER_LEN)
        helper_fail("%s is too small", path);
    model = calloc(1, size);
    seen = malloc(CHUNK);
    if (model == NULL || seen == NULL)
        helper_fail("no memory");
    before = allocated();
    connect_volume();
    stay_coherent();
    printf("measured: %llu KiB of %llu allocated before, %llu after\n",
           (unsigned long long)before / 1024, (unsigned long long)size / 1024,
           (unsigned long long)allocated() / 1024);
    others_writes_are_seen();
    survive_everything();
    others_go_round_the_page_cache();
    rblk_close(h);
    free(model);
    free(seen);
    return 0;
}
