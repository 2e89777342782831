/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bench -- rblk bench: how fast a volume is through librblk, without FUSE
 *
 * One thread a job, each on a queue of its own (queue i of the handle): it keeps `depth` requests in
 * flight and is the only one that polls that queue. A struct job belongs to its thread between
 * pthread_create and pthread_join; `stop` is atomic. Requests that finish during the ramp are not
 * counted.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "clock.h"
#include "histogram.h"
#include "log.h"
#include "size.h"
#include "tool.h"

#define JOBS_MAX 64u
#define DEPTH_MAX 256u
#define WAIT_MS 1000

enum pattern { PATTERN_RANDREAD, PATTERN_RANDWRITE, PATTERN_RANDRW, PATTERN_READ, PATTERN_WRITE };

static const char *const pattern_names[] = {"randread", "randwrite", "randrw", "read", "write"};

struct options {
    enum pattern pattern;
    uint64_t block_size; /* bytes */
    unsigned int depth, jobs, read_percent;
    uint64_t run_ns, ramp_ns;
    uint64_t seed;
};

struct slot {
    struct job *job;
    void *buffer;
    uint64_t start_ns;
    bool write;
};

struct job {
    const struct options *options;
    struct rblk_queue *queue;
    pthread_t thread;
    uint64_t random;
    uint64_t blocks, next_block; /* of the volume; sequential position */
    struct slot *slots;          /* depth of them */
    uint64_t measure_from_ns, measure_to_ns;
    struct histogram latency;
    uint64_t reads, writes;
    int error;
};

struct result {
    struct histogram_sum latency;
    uint64_t reads, writes;
    double seconds;
};

static void finished(void *opaque, int error);

static uint64_t next_random(struct job *job)
{
    /* xorshift64*: Vigna, "An experimental exploration of Marsaglia's xorshift generators". */
    job->random ^= job->random >> 12;
    job->random ^= job->random << 25;
    job->random ^= job->random >> 27;
    return job->random * 0x2545f4914f6cdd1du;
}

static bool is_write(struct job *job)
{
    switch (job->options->pattern) {
    case PATTERN_RANDWRITE:
    case PATTERN_WRITE:
        return true;
    case PATTERN_RANDRW:
        return next_random(job) % 100 >= job->options->read_percent;
    default:
        return false;
    }
}

static uint64_t next_offset(struct job *job)
{
    const struct options *o = job->options;
    uint64_t block;

    if (o->pattern == PATTERN_READ || o->pattern == PATTERN_WRITE) {
        block = job->next_block++;
        if (job->next_block == job->blocks)
            job->next_block = 0;
    } else {
        block = next_random(job) % job->blocks;
    }
    return block * o->block_size;
}

static void start(struct job *job, struct slot *slot)
{
    size_t len = job->options->block_size;
    uint64_t offset = next_offset(job);
    int rc;

    slot->write = is_write(job);
    slot->start_ns = rblk_now_ns();
    if (slot->write)
        rc = rblk_aio_write(job->queue, slot->buffer, len, offset, 0, finished, slot);
    else
        rc = rblk_aio_read(job->queue, slot->buffer, len, offset, finished, slot);
    if (rc < 0)
        job->error = rc;
}

static void finished(void *opaque, int error)
{
    struct slot *slot = opaque;
    struct job *job = slot->job;
    uint64_t now = rblk_now_ns();

    if (error < 0) {
        job->error = error;
        return;
    }
    if (now >= job->measure_from_ns && now < job->measure_to_ns) {
        histogram_record(&job->latency, now - slot->start_ns);
        if (slot->write)
            job->writes++;
        else
            job->reads++;
    }
    if (now < job->measure_to_ns && job->error == 0)
        start(job, slot);
}

static void *run_job(void *opaque)
{
    struct job *job = opaque;

    for (unsigned int i = 0; i < job->options->depth && job->error == 0; i++)
        start(job, &job->slots[i]);
    while (rblk_queue_inflight(job->queue) > 0) {
        int rc = rblk_queue_wait(job->queue, WAIT_MS);

        if (rc < 0) {
            job->error = rc;
            break;
        }
    }
    return NULL;
}

static int job_prepare(struct job *job, struct rblk *h, const struct options *o, unsigned int index)
{
    struct rblk_info info;
    int rc = rblk_get_info(h, &info);

    if (rc < 0) {
        log_error("%s", rblk_error(h));
        return rc;
    }
    job->options = o;
    job->queue = rblk_get_queue(h, index);
    job->random = o->seed * 0x9e3779b97f4a7c15u + index + 1;
    job->blocks = info.size / o->block_size;
    job->next_block = job->blocks / o->jobs * index;
    job->slots = calloc(o->depth, sizeof(*job->slots));
    if (!job->slots)
        return -ENOMEM;
    for (unsigned int i = 0; i < o->depth; i++) {
        struct slot *slot = &job->slots[i];

        slot->job = job;
        slot->buffer = rblk_buffer_get(job->queue, o->block_size);
        if (!slot->buffer) {
            log_error("the queue's pool has no room for %u buffers of %llu bytes; lower --depth or "
                      "--block-size",
                      o->depth, (unsigned long long)o->block_size);
            return -ENOMEM;
        }
        memset(slot->buffer, (int)(next_random(job) & 0xff), o->block_size);
    }
    return 0;
}

static void job_release(struct job *job)
{
    for (unsigned int i = 0; job->slots && i < job->options->depth; i++)
        if (job->slots[i].buffer)
            rblk_buffer_put(job->queue, job->slots[i].buffer, job->options->block_size);
    free(job->slots);
}

/* Runs the jobs side by side: 0, or a negative errno with the error printed. */
static int run(struct rblk *h, const struct options *o, struct result *result)
{
    struct job *jobs = calloc(o->jobs, sizeof(*jobs));
    unsigned int prepared = 0, started = 0;
    uint64_t from;
    int rc = jobs ? 0 : -ENOMEM;

    for (; rc == 0 && prepared < o->jobs; prepared++)
        rc = job_prepare(&jobs[prepared], h, o, prepared);
    from = rblk_now_ns() + o->ramp_ns;
    for (; rc == 0 && started < o->jobs; started++) {
        jobs[started].measure_from_ns = from;
        jobs[started].measure_to_ns = from + o->run_ns;
        rc = -pthread_create(&jobs[started].thread, NULL, run_job, &jobs[started]);
        if (rc < 0) {
            log_error("a thread cannot be started: %s", strerror(-rc));
            break;
        }
    }
    for (unsigned int i = 0; i < started; i++) {
        pthread_join(jobs[i].thread, NULL);
        histogram_add(&result->latency, &jobs[i].latency);
        result->reads += jobs[i].reads;
        result->writes += jobs[i].writes;
        if (rc == 0 && jobs[i].error < 0) {
            rc = jobs[i].error;
            log_error("job %u: %s: %s", i, strerror(-rc), rblk_error(h));
        }
    }
    result->seconds = (double)o->run_ns / 1e9;
    for (unsigned int i = 0; i < prepared; i++)
        job_release(&jobs[i]);
    free(jobs);
    return rc;
}

static int print(const struct options *o, const struct result *r, const struct tool_arguments *a)
{
    uint64_t ios = r->reads + r->writes;
    double iops = (double)ios / r->seconds;
    double bytes_per_s = iops * (double)o->block_size;
    double p50 = (double)histogram_percentile(&r->latency, 0.5) / 1e3;
    double p99 = (double)histogram_percentile(&r->latency, 0.99) / 1e3;

    if (a->json) {
        json_object *object = json_object_new_object();

        tool_json_text(object, "uri", a->positional[0]);
        tool_json_text(object, "mode", pattern_names[o->pattern]);
        tool_json_number(object, "block_size", o->block_size);
        tool_json_number(object, "depth", o->depth);
        tool_json_number(object, "jobs", o->jobs);
        tool_json_number(object, "ios", ios);
        tool_json_number(object, "bytes", ios * o->block_size);
        tool_json_rounded(object, "iops", iops);
        tool_json_rounded(object, "bytes_per_s", bytes_per_s);
        tool_json_rounded(object, "p50_us", p50);
        tool_json_rounded(object, "p99_us", p99);
        tool_json_rounded(object, "max_us", (double)r->latency.max_ns / 1e3);
        return tool_print_json(object);
    }
    printf("%s, %llu bytes, depth %u, %u jobs, %.1f s: %.0f IOPS, %.1f MB/s, latency p50 %.1f us, "
           "p99 %.1f us, max %.1f us\n",
           pattern_names[o->pattern], (unsigned long long)o->block_size, o->depth, o->jobs,
           r->seconds, iops, bytes_per_s / 1e6, p50, p99, (double)r->latency.max_ns / 1e3);
    return tool_finish_output();
}

static int take_pattern(struct options *o, const char *value)
{
    for (size_t i = 0; i < sizeof(pattern_names) / sizeof(pattern_names[0]); i++)
        if (strcmp(value, pattern_names[i]) == 0) {
            o->pattern = (enum pattern)i;
            return 0;
        }
    return -EINVAL;
}

static int take_seconds(uint64_t *ns, const char *value, double least)
{
    char *end;
    double seconds;

    errno = 0;
    seconds = strtod(value, &end);
    if (end == value || *end || errno || !(seconds >= least && seconds <= 86400))
        return -EINVAL;
    *ns = (uint64_t)(seconds * 1e9);
    return 0;
}

static int take_count(unsigned int *count, const char *value, unsigned int least, unsigned int most)
{
    uint64_t number;

    if (rblk_number_parse(&number, value, least, most) < 0)
        return -EINVAL;
    *count = (unsigned int)number;
    return 0;
}

enum {
    OPTION_MODE = TOOL_OPTION,
    OPTION_BLOCK_SIZE,
    OPTION_DEPTH,
    OPTION_JOBS,
    OPTION_SECONDS,
    OPTION_RAMP,
    OPTION_MIX,
    OPTION_SEED,
};

static int take(void *opaque, int option, const char *value)
{
    struct options *o = opaque;

    switch (option) {
    case OPTION_MODE:
        return take_pattern(o, value);
    case OPTION_BLOCK_SIZE:
        return rblk_size_parse(&o->block_size, value) < 0 || o->block_size == 0 ? -EINVAL : 0;
    case OPTION_DEPTH:
        return take_count(&o->depth, value, 1, DEPTH_MAX);
    case OPTION_JOBS:
        return take_count(&o->jobs, value, 1, JOBS_MAX);
    case OPTION_SECONDS:
        return take_seconds(&o->run_ns, value, 0.001);
    case OPTION_RAMP:
        return take_seconds(&o->ramp_ns, value, 0);
    case OPTION_MIX:
        return take_count(&o->read_percent, value, 0, 100);
    default:
        return rblk_number_parse(&o->seed, value, 0, UINT64_MAX);
    }
}

static const struct option own[] = {
    {"mode", required_argument, NULL, OPTION_MODE},
    {"block-size", required_argument, NULL, OPTION_BLOCK_SIZE},
    {"depth", required_argument, NULL, OPTION_DEPTH},
    {"jobs", required_argument, NULL, OPTION_JOBS},
    {"seconds", required_argument, NULL, OPTION_SECONDS},
    {"ramp", required_argument, NULL, OPTION_RAMP},
    {"read-percent", required_argument, NULL, OPTION_MIX},
    {"seed", required_argument, NULL, OPTION_SEED},
    {NULL, 0, NULL, 0},
};

/* Prints why the run cannot be: true when it can. */
static bool plausible(const struct options *o, struct rblk *h)
{
    if (rblk_get_size(h) >= o->block_size)
        return true;
    log_error("the volume has %llu bytes, less than one block of %llu; lower --block-size",
              (unsigned long long)rblk_get_size(h), (unsigned long long)o->block_size);
    return false;
}

int command_bench(const struct command *command, int argc, char **argv)
{
    struct options o = {
        .block_size = 4096,
        .depth = 16,
        .jobs = 1,
        .read_percent = 70,
        .run_ns = 5000000000u,
        .ramp_ns = 300000000u,
        .seed = rblk_now_ns(),
    };
    struct result *result;
    struct tool_arguments a;
    enum rblk_mode mode;
    struct rblk *h;
    int rc = tool_parse(command, argc, argv, own, take, &o, 1, 1, &a);

    if (rc >= 0)
        return rc;
    mode = o.pattern == PATTERN_RANDREAD || o.pattern == PATTERN_READ ? RBLK_MODE_RO : RBLK_MODE_RW;
    if (tool_connect_queues(&h, a.positional[0], mode, o.jobs, &a) < 0)
        return TOOL_FAILED;
    result = calloc(1, sizeof(*result));
    rc = TOOL_FAILED;
    if (result && plausible(&o, h) && run(h, &o, result) == 0)
        rc = print(&o, result, &a);
    free(result);
    rblk_close(h);
    return rc;
}
