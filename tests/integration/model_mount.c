/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * model_mount -- random I/O on a mounted disk, compared byte for byte with a model
 *
 *   model_mount run [-s SEED] [-n OPERATIONS] [-T SECONDS] [-t THREADS] [-d PERCENT] [-m BYTES]
 *                   [-u FILE] DISK MODEL
 *       reads, writes and fsyncs of random offset and length; -d: share of O_DIRECT; -m: longest
 *       request; stops after OPERATIONS of each thread, after SECONDS, or on SIGTERM. A failed call
 *       ends it with status 3; ranges of writes that failed are appended to the file of -u.
 *   model_mount verify DISK MODEL    reads all that the model has, and samples of its holes
 *   model_mount compare FILE FILE    two local files, holes and all
 *   model_mount adopt DISK MODEL RANGES   copies the ranges of a -u file from the disk to the model
 *
 * The model is a file of the disk's size. For a disk too large to be copied it is sparse: its data
 * extents are the map of the blocks written.
 *
 * Threads: each owns one region of the disk and of the model, so no lock is needed; regions meet at
 * odd offsets, so that neighbours share pages. `stopping` and `failed` are atomic.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

#include "helper.h"

#define ALIGNMENT 4096u
#define CHUNK (1u << 20)
#define THREADS_MAX 16
#define SPARSE_ABOVE (4ull << 30) /* larger disks are used at some places only */
#define HOT_SPAN (512u << 10)     /* bytes around such a place */

struct options {
    uint64_t seed, operations, seconds, longest;
    unsigned int threads, direct_percent;
    const char *uncertain;
    const char *disk, *model;
};

struct worker {
    const struct options *options;
    pthread_t thread;
    unsigned int number;
    uint64_t random;
    uint64_t first, end; /* its region */
    uint64_t size;       /* of the disk */
    int buffered, direct, model;
    unsigned char *data, *expected; /* longest + ALIGNMENT bytes each */
    uint64_t reads, writes, flushes, bytes, operation;
};

static atomic_bool stopping;
static atomic_int failed;
static atomic_uint running;

static void *allocate(size_t length)
{
    void *memory = NULL;

    if (posix_memalign(&memory, ALIGNMENT, length) != 0)
        helper_fail("out of memory");
    return memory;
}

static int open_or_end(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC);

    if (fd < 0)
        helper_end(HELPER_IO_ERROR, "%s: cannot be opened: %s", path, strerror(errno));
    return fd;
}

static uint64_t size_of(int fd, const char *path)
{
    struct stat status;

    if (fstat(fd, &status) != 0)
        helper_end(HELPER_IO_ERROR, "%s: %s", path, strerror(errno));
    return (uint64_t)status.st_size;
}

/* Reads exactly length bytes of a local file. */
static void read_model(int fd, void *buffer, size_t length, uint64_t offset)
{
    ssize_t got = pread(fd, buffer, length, (off_t)offset);

    if (got != (ssize_t)length)
        helper_fail("the model cannot be read at %llu: %s", (unsigned long long)offset,
                    got < 0 ? strerror(errno) : "it ends there");
}

static void write_model(int fd, const void *buffer, size_t length, uint64_t offset)
{
    if (pwrite(fd, buffer, length, (off_t)offset) != (ssize_t)length)
        helper_fail("the model cannot be written at %llu: %s", (unsigned long long)offset,
                    strerror(errno));
}

static void end_if_different(const void *got, const void *expected, size_t length, uint64_t offset,
                             const char *path)
{
    const unsigned char *a = got, *b = expected;
    size_t at = 0, different = 0;

    if (memcmp(a, b, length) == 0)
        return;
    while (a[at] == b[at])
        at++;
    for (size_t i = at; i < length; i++)
        different += a[i] != b[i];
    helper_fail("%s differs from the model: %zu bytes between %llu and %llu, first at %llu: "
                "%02x in place of %02x",
                path, different, (unsigned long long)offset, (unsigned long long)(offset + length),
                (unsigned long long)(offset + at), a[at], b[at]);
}

/* -- random operations ------------------------------------------------------------------------ */

/* A failed call: remembers it, keeps the range of a write, and stops all threads. */
static void call_failed(struct worker *w, const char *what, size_t length, uint64_t offset,
                        int error)
{
    FILE *file;

    fprintf(stderr, "%s: %s of %zu bytes at %llu failed: %s\n", program_invocation_short_name, what,
            length, (unsigned long long)offset, strerror(error));
    if (w->options->uncertain != NULL && strcmp(what, "write") == 0) {
        file = fopen(w->options->uncertain, "ae");
        if (file == NULL || fprintf(file, "%llu %zu\n", (unsigned long long)offset, length) < 0 ||
            fclose(file) != 0)
            helper_fail("%s: %s", w->options->uncertain, strerror(errno));
    }
    atomic_store(&failed, HELPER_IO_ERROR);
    atomic_store(&stopping, true);
}

static size_t choose_length(struct worker *w)
{
    uint64_t longest = w->options->longest;
    uint64_t span = w->end - w->first;
    uint64_t length;

    switch (helper_below(&w->random, 8)) {
    case 0:
        length = 1 + helper_below(&w->random, 16);
        break;
    case 1:
        length = 512 * (1 + helper_below(&w->random, 16));
        break;
    case 2:
        length = 4096;
        break;
    case 3:
        length = 4096 * (1 + helper_below(&w->random, longest / 4096));
        break;
    case 4: /* where in-message data ends by default */
        length = 8191 + helper_below(&w->random, 3);
        break;
    case 5:
        length = 1 + helper_below(&w->random, longest);
        break;
    case 6:
        length = 1 + helper_below(&w->random, 65536);
        break;
    default:
        length = 1 + helper_below(&w->random, 4096);
        break;
    }
    if (length > longest)
        length = longest;
    return length > span ? span : length;
}

/* Start of the part of the region to work in: all of it, or a place around which errors hide. */
static void choose_window(struct worker *w, uint64_t *first, uint64_t *end)
{
    static const uint64_t places[] = {0,          64ull << 20, 1ull << 31, 1ull << 32,
                                      5ull << 36, 1ull << 39,  1ull << 40};
    uint64_t place = places[helper_below(&w->random, sizeof(places) / sizeof(places[0]))];

    *first = w->first;
    *end = w->end;
    if (w->size <= SPARSE_ABOVE)
        return;
    if (place < w->first)
        place = w->first;
    if (place > w->end)
        place = w->end;
    if (place - w->first > HOT_SPAN)
        *first = place - HOT_SPAN;
    if (w->end - place > HOT_SPAN)
        *end = place + HOT_SPAN;
}

static uint64_t choose_offset(struct worker *w, size_t length)
{
    uint64_t first, end, offset, unit;

    if (helper_below(&w->random, 5) == 0)
        return w->end - length;
    choose_window(w, &first, &end);
    if (end - first <= length)
        return end - w->first >= length ? end - length : w->first;
    offset = first + helper_below(&w->random, end - first - length + 1);
    unit = helper_below(&w->random, 3);
    unit = unit == 0 ? 1 : unit == 1 ? 512 : ALIGNMENT;
    return offset / unit * unit >= first ? offset / unit * unit : offset;
}

static void one_read(struct worker *w, int fd, unsigned char *buffer, size_t length,
                     uint64_t offset)
{
    /* Reads may reach past the end, and then end there. */
    bool beyond = w->end == w->size && helper_below(&w->random, 8) == 0;
    size_t ask = length + (beyond ? 1 + helper_below(&w->random, 4000) : 0);
    size_t expected = offset + ask > w->end ? w->end - offset : ask;
    ssize_t got;

    if (w->end != w->size || ask > w->options->longest + 4000)
        ask = expected = length;
    memset(buffer, 0x5a, ask);
    got = pread(fd, buffer, ask, (off_t)offset);
    if (got < 0) {
        call_failed(w, "read", ask, offset, errno);
        return;
    }
    if ((size_t)got != expected)
        helper_fail("read of %zu bytes at %llu gave %zd, not %zu (disk of %llu bytes)", ask,
                    (unsigned long long)offset, got, expected, (unsigned long long)w->size);
    read_model(w->model, w->expected, expected, offset);
    end_if_different(buffer, w->expected, expected, offset, w->options->disk);
    w->reads++;
    w->bytes += expected;
}

static void one_write(struct worker *w, int fd, unsigned char *buffer, size_t length,
                      uint64_t offset)
{
    ssize_t put;

    helper_random_bytes(&w->random, buffer, length);
    put = pwrite(fd, buffer, length, (off_t)offset);
    /* Where the end may come at any time (-u), it may come between the parts of a long write. */
    if (put < 0 || (w->options->uncertain != NULL && (size_t)put < length)) {
        call_failed(w, "write", length, offset, put < 0 ? errno : EIO);
        return;
    }
    if ((size_t)put != length)
        helper_fail("write of %zu bytes at %llu took %zd", length, (unsigned long long)offset, put);
    write_model(w->model, buffer, length, offset);
    w->writes++;
    w->bytes += length;
}

/* A write that begins at or behind the last byte and would grow the disk must not. */
static void write_beyond(struct worker *w, int fd)
{
    ssize_t put = pwrite(fd, w->data, 3, (off_t)w->size);

    if (put > 0)
        helper_fail("a write behind the end of the disk took %zd bytes", put);
    if (put < 0 && errno != ENOSPC && errno != EFBIG && errno != EINVAL)
        call_failed(w, "write behind the end", 3, w->size, errno);
    if (size_of(fd, w->options->disk) != w->size)
        helper_fail("the disk changed its size from %llu to %llu bytes",
                    (unsigned long long)w->size, (unsigned long long)size_of(fd, w->options->disk));
}

static void one_operation(struct worker *w)
{
    bool direct = helper_below(&w->random, 100) < w->options->direct_percent;
    int fd = direct ? w->direct : w->buffered;
    size_t length = choose_length(w);
    uint64_t offset = choose_offset(w, length);
    unsigned int kind = (unsigned int)helper_below(&w->random, 100);
    unsigned char *buffer = w->data;

    if (helper_below(&w->random, 2) == 0) /* an odd address too */
        buffer += 1 + helper_below(&w->random, ALIGNMENT - 1);
    if (kind < 48) {
        one_read(w, fd, buffer, length, offset);
    } else if (kind < 96) {
        one_write(w, fd, buffer, length, offset);
    } else if (kind < 99) {
        if ((kind & 1 ? fsync(fd) : fdatasync(fd)) != 0)
            call_failed(w, "fsync", 0, 0, errno);
        w->flushes++;
    } else if (w->end == w->size) {
        write_beyond(w, fd);
    }
}

static void *work(void *opaque)
{
    struct worker *w = opaque;

    for (w->operation = 0; w->operation < w->options->operations; w->operation++) {
        if (atomic_load(&stopping))
            break;
        one_operation(w);
    }
    atomic_fetch_sub(&running, 1);
    return NULL;
}

static void prepare_worker(struct worker *w, const struct options *options, unsigned int number,
                           uint64_t size)
{
    uint64_t share = size / options->threads;

    w->options = options;
    w->number = number;
    w->random = options->seed + number * 0x1000003u;
    w->size = size;
    w->first = number * share;
    w->end = number + 1 == options->threads ? size : (number + 1) * share;
    w->buffered = open_or_end(options->disk, O_RDWR);
    w->direct = open_or_end(options->disk, O_RDWR | O_DIRECT);
    w->model = open_or_end(options->model, O_RDWR);
    w->data = allocate(options->longest + 3 * ALIGNMENT);
    w->expected = allocate(options->longest + 3 * ALIGNMENT);
}

static void finish_worker(struct worker *w)
{
    close(w->buffered);
    close(w->direct);
    close(w->model);
    free(w->data);
    free(w->expected);
}

/* Waits until all threads have ended, the time is over, or SIGTERM came. */
static void wait_for_workers(const struct options *options, const sigset_t *signals)
{
    uint64_t deadline = helper_now() + options->seconds * 1000000000u;
    struct timespec tick = {0, 20000000};

    while (atomic_load(&running) > 0) {
        if (sigtimedwait(signals, NULL, &tick) > 0 ||
            (options->seconds > 0 && helper_now() >= deadline))
            atomic_store(&stopping, true);
    }
}

static int run(struct options *options)
{
    static struct worker workers[THREADS_MAX];
    struct worker total = {0};
    int fd = open_or_end(options->disk, O_RDWR);
    int model = open_or_end(options->model, O_RDWR);
    uint64_t size = size_of(fd, options->disk);
    uint64_t begun = helper_now();
    sigset_t signals;

    if (size != size_of(model, options->model) || size == 0)
        helper_fail("%s has %llu bytes, the model %llu", options->disk, (unsigned long long)size,
                    (unsigned long long)size_of(model, options->model));
    close(fd);
    close(model);
    if (size < 64u * THREADS_MAX)
        options->threads = 1;
    printf("model: seed %llu, disk of %llu bytes, %u threads\n", (unsigned long long)options->seed,
           (unsigned long long)size, options->threads);
    fflush(stdout);

    /* SIGTERM must not disturb a call that is under way: only the main thread takes it. */
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    atomic_store(&running, options->threads);
    for (unsigned int i = 0; i < options->threads; i++) {
        prepare_worker(&workers[i], options, i, size);
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
            helper_fail("no thread: %s", strerror(errno));
    }
    wait_for_workers(options, &signals);
    for (unsigned int i = 0; i < options->threads; i++) {
        pthread_join(workers[i].thread, NULL);
        total.reads += workers[i].reads;
        total.writes += workers[i].writes;
        total.flushes += workers[i].flushes;
        total.bytes += workers[i].bytes;
        finish_worker(&workers[i]);
    }
    printf("measured: %llu bytes: %llu reads, %llu writes, %llu fsyncs, %.1f MB in %.2f s agree "
           "(seed %llu)\n",
           (unsigned long long)size, (unsigned long long)total.reads,
           (unsigned long long)total.writes, (unsigned long long)total.flushes,
           (double)total.bytes / 1e6, (double)(helper_now() - begun) / 1e9,
           (unsigned long long)options->seed);
    return atomic_load(&failed);
}

/* -- whole files ------------------------------------------------------------------------------ */

static void compare_range(int disk, int model, uint64_t first, uint64_t end, const char *path)
{
    static unsigned char *got, *expected;

    if (got == NULL) {
        got = allocate(CHUNK);
        expected = allocate(CHUNK);
    }
    while (first < end) {
        size_t length = end - first < CHUNK ? end - first : CHUNK;
        ssize_t n = pread(disk, got, length, (off_t)first);

        if (n < 0)
            helper_end(HELPER_IO_ERROR, "%s: read at %llu failed: %s", path,
                       (unsigned long long)first, strerror(errno));
        if (n == 0)
            helper_fail("%s ends at %llu, not at %llu", path, (unsigned long long)first,
                        (unsigned long long)end);
        read_model(model, expected, (size_t)n, first);
        end_if_different(got, expected, (size_t)n, first, path);
        first += (uint64_t)n;
    }
}

static uint64_t seek(int fd, uint64_t from, int whence, uint64_t size)
{
    off_t at = lseek(fd, (off_t)from, whence);

    if (at < 0 && errno != ENXIO)
        helper_fail("lseek: %s", strerror(errno));
    return at < 0 || (uint64_t)at > size ? size : (uint64_t)at;
}

static void sample_hole(int disk, int model, uint64_t first, uint64_t end, uint64_t *random,
                        const char *path)
{
    for (unsigned int i = 0; i < 4; i++) {
        uint64_t at = first + helper_below(random, end - first);

        compare_range(disk, model, at, end - at > ALIGNMENT ? at + ALIGNMENT : end, path);
    }
    compare_range(disk, model, first, end - first > ALIGNMENT ? first + ALIGNMENT : end, path);
    compare_range(disk, model, end - first > ALIGNMENT ? end - ALIGNMENT : first, end, path);
}

/* Follows the data extents of the model; both: those of the other file too. */
static void compare_files(const char *path, const char *model_path, bool both, uint64_t seed)
{
    int disk = open_or_end(path, O_RDONLY), model = open_or_end(model_path, O_RDONLY);
    uint64_t size = size_of(disk, path), at = 0, compared = 0;

    if (size != size_of(model, model_path))
        helper_fail("%s has %llu bytes, %s %llu", path, (unsigned long long)size, model_path,
                    (unsigned long long)size_of(model, model_path));
    while (at < size) {
        uint64_t data = seek(model, at, SEEK_DATA, size), end;

        if (both) {
            uint64_t other = seek(disk, at, SEEK_DATA, size);

            data = other < data ? other : data;
        } else if (data > at) {
            sample_hole(disk, model, at, data, &seed, path);
        }
        if (data == size)
            break;
        end = seek(model, data, SEEK_HOLE, size);
        if (end <= data)
            end = size - data > CHUNK ? data + CHUNK : size;
        compare_range(disk, model, data, end, path);
        compared += end - data;
        at = end;
    }
    close(disk);
    close(model);
    printf("model: %s agrees with %s: %llu bytes compared of %llu\n", path, model_path,
           (unsigned long long)compared, (unsigned long long)size);
}

static void adopt(const char *path, const char *model_path, const char *ranges)
{
    int disk = open_or_end(path, O_RDONLY), model = open_or_end(model_path, O_RDWR);
    unsigned long long offset, length;
    unsigned char *buffer = allocate(64u << 20);
    FILE *file = fopen(ranges, "re");

    while (file != NULL && fscanf(file, "%llu %llu", &offset, &length) == 2) {
        if (length > 64u << 20 || pread(disk, buffer, length, (off_t)offset) != (ssize_t)length)
            helper_end(HELPER_IO_ERROR, "%s: cannot read %llu bytes at %llu", path, length, offset);
        write_model(model, buffer, length, offset);
    }
    if (file != NULL)
        fclose(file);
    free(buffer);
    close(disk);
    close(model);
}

static int usage(void)
{
    fprintf(stderr, "usage: model_mount run|verify|compare|adopt [OPTIONS] DISK MODEL [RANGES]\n");
    return HELPER_USAGE;
}

int main(int argc, char **argv)
{
    struct options options = {.seed = 1,
                              .operations = UINT64_MAX,
                              .longest = 1u << 20,
                              .threads = 1,
                              .direct_percent = 50};
    const char *command = argc > 1 ? argv[1] : "";
    int option;

    if (argc < 2)
        return usage();
    argc--;
    argv++;
    while ((option = getopt(argc, argv, "s:n:T:t:d:m:u:")) != -1) {
        switch (option) {
        case 's':
            options.seed = helper_number(optarg);
            break;
        case 'n':
            options.operations = helper_number(optarg);
            break;
        case 'T':
            options.seconds = helper_number(optarg);
            break;
        case 't':
            options.threads = (unsigned int)helper_number(optarg);
            break;
        case 'd':
            options.direct_percent = (unsigned int)helper_number(optarg);
            break;
        case 'm':
            options.longest = helper_number(optarg);
            break;
        case 'u':
            options.uncertain = optarg;
            break;
        default:
            return usage();
        }
    }
    if (argc - optind < 2 || options.threads < 1 || options.threads > THREADS_MAX ||
        options.longest < 4096)
        return usage();
    options.disk = argv[optind];
    options.model = argv[optind + 1];
    if (strcmp(command, "run") == 0)
        return run(&options);
    if (strcmp(command, "verify") == 0)
        compare_files(options.disk, options.model, false, options.seed);
    else if (strcmp(command, "compare") == 0)
        compare_files(options.disk, options.model, true, options.seed);
    else if (strcmp(command, "adopt") == 0 && argc - optind == 3)
        adopt(options.disk, options.model, argv[optind + 2]);
    else
        return usage();
    return 0;
}
