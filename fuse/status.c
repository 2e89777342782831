/* SPDX-License-Identifier: BSD-2-Clause */
/* status -- the socket on which a mount process tells how it is */

#include "status.h"

#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <uuid/uuid.h>

#include "clock.h"
#include "provider.h"
#include "runtime.h"
#include "worker.h"

#define BACKLOG 16

static const char *const kind_names[IO_KINDS] = {"read", "write", "flush"};

int status_open(struct status *s, const char *mountpoint, char *err, size_t errlen)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char dir[sizeof(s->path)];
    int fd, n, rc;

    s->fd = -1;
    s->sample_count = 0;
    s->path[0] = '\0';
    rc = rblk_runtime_prepare(dir, sizeof(dir), err, errlen);
    if (rc < 0)
        return rc;
    n = snprintf(address.sun_path, sizeof(address.sun_path), "%s/%ld%s", dir, (long)getpid(),
                 RBLK_STATUS_SUFFIX);
    if (n < 0 || (size_t)n >= sizeof(address.sun_path)) {
        snprintf(err, errlen,
                 "runtime folder %s has too long a path for a socket; set RBLK_RUNTIME_DIR", dir);
        return -ENAMETOOLONG;
    }
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        goto fail;
    unlink(address.sun_path); /* of a process that had our id and was killed */
    if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
        goto fail;
    memcpy(s->path, address.sun_path, sizeof(s->path));
    chmod(s->path, 0600);
    if (listen(fd, BACKLOG) < 0)
        goto fail;
    snprintf(s->link, sizeof(s->link), "%s/%ld%s", dir, (long)getpid(), RBLK_MOUNT_LINK_SUFFIX);
    unlink(s->link);
    if (symlink(mountpoint, s->link) < 0)
        goto fail;
    s->fd = fd;
    return 0;

fail:
    rc = -errno;
    snprintf(err, errlen, "status socket %s: %s", address.sun_path, strerror(-rc));
    if (fd >= 0)
        close(fd);
    if (s->path[0])
        unlink(s->path);
    s->path[0] = '\0';
    return rc;
}

static void sum(struct status_sample *sample, const struct frontend *f)
{
    memset(sample, 0, sizeof(*sample));
    sample->at_ns = rblk_now_ns();
    for (unsigned int i = 0; i < f->worker_count; i++) {
        const struct metrics *m = worker_metrics(f, i);

        for (unsigned int k = 0; k < IO_KINDS; k++) {
            sample->requests[k] += counter_get(&m->requests[k]);
            sample->bytes[k] += counter_get(&m->bytes[k]);
        }
    }
}

void status_sample(struct status *s, const struct frontend *f)
{
    sum(&s->samples[s->sample_count++ % STATUS_SAMPLES], f);
}

static void add_text(json_object *object, const char *name, const char *text)
{
    json_object_object_add(object, name, json_object_new_string(text));
}

static void add_number(json_object *object, const char *name, uint64_t value)
{
    json_object_object_add(object, name, json_object_new_uint64(value));
}

static void add_bool(json_object *object, const char *name, bool value)
{
    json_object_object_add(object, name, json_object_new_boolean(value));
}

static void add_rounded(json_object *object, const char *name, double value)
{
    char text[32];

    snprintf(text, sizeof(text), "%.1f", value);
    json_object_object_add(object, name, json_object_new_double_s(value, text));
}

static void add_latency(json_object *object, const struct frontend *f, unsigned int kind)
{
    json_object *latency = json_object_new_object();
    struct histogram_sum *all = calloc(1, sizeof(*all));

    if (all) {
        for (unsigned int i = 0; i < f->worker_count; i++)
            histogram_add(all, &worker_metrics(f, i)->latency[kind]);
        add_rounded(latency, "p50", (double)histogram_percentile(all, 0.5) / 1e3);
        add_rounded(latency, "p99", (double)histogram_percentile(all, 0.99) / 1e3);
        add_rounded(latency, "p999", (double)histogram_percentile(all, 0.999) / 1e3);
        add_rounded(latency, "max", (double)all->max_ns / 1e3);
    }
    free(all);
    json_object_object_add(object, "latency_us", latency);
}

static json_object *io_json(const struct status *s, const struct frontend *f,
                            const struct status_sample *now, unsigned int kind)
{
    unsigned int kept = s->sample_count < STATUS_SAMPLES ? s->sample_count : STATUS_SAMPLES;
    const struct status_sample *then =
        kept ? &s->samples[(s->sample_count - kept) % STATUS_SAMPLES] : now;
    double seconds = (double)(now->at_ns - then->at_ns) / 1e9;
    json_object *object = json_object_new_object();

    if (seconds < 1e-3)
        seconds = 1e-3;
    add_number(object, "requests", now->requests[kind]);
    add_number(object, "bytes", now->bytes[kind]);
    add_rounded(object, "iops", (double)(now->requests[kind] - then->requests[kind]) / seconds);
    add_rounded(object, "bytes_per_second",
                (double)(now->bytes[kind] - then->bytes[kind]) / seconds);
    add_latency(object, f, kind);
    return object;
}

static json_object *workers_json(const struct frontend *f)
{
    json_object *list = json_object_new_array();

    for (unsigned int i = 0; i < f->worker_count; i++) {
        const struct metrics *m = worker_metrics(f, i);
        json_object *object = json_object_new_object();

        add_number(object, "inflight", worker_inflight(f, i));
        add_number(object, "fuse_requests", counter_get(&m->fuse_requests));
        for (unsigned int k = 0; k < IO_KINDS; k++)
            add_number(object, kind_names[k], counter_get(&m->requests[k]));
        add_number(object, "errors", counter_get(&m->errors));
        add_number(object, "parked", counter_get(&m->parked));
        add_number(object, "spins", counter_get(&m->spins));
        add_number(object, "sleeps", counter_get(&m->sleeps));
        json_object_array_add(list, object);
    }
    return list;
}

static const char *mode_name(const struct frontend *f)
{
    if (f->read_only)
        return "ro";
    return f->options->mode == RBLK_MODE_SHARED ? "shared" : "rw";
}

static void add_identity(json_object *root, const struct frontend *f)
{
    char uuid[UUID_STR_LEN];

    uuid_unparse_lower(f->info.uuid, uuid);
    add_text(root, "uri", f->options->uri);
    add_text(root, "volume", f->info.volume);
    add_text(root, "mountpoint", f->mountpoint);
    add_text(root, "form", f->on_file ? "file" : "folder");
    add_number(root, "pid", (uint64_t)getpid());
    add_text(root, "version", rblk_version());
    add_text(root, "target", f->info.target);
    add_text(root, "address", f->info.address);
    add_text(root, "uuid", uuid);
    add_text(root, "provider", rblk_provider_is_soft() ? "soft" : "verbs");
    add_text(root, "device", f->info.device);
    add_text(root, "mode", mode_name(f));
    add_number(root, "size", f->info.size);
    add_bool(root, "connected", rblk_is_connected(f->handle));
    add_number(root, "seconds", (rblk_now_ns() - f->mounted_at_ns) / 1000000000u);
    add_number(root, "queues", f->info.queues);
    add_number(root, "queue_depth", f->info.queue_depth);
    add_bool(root, "parallel_direct_writes", f->parallel_writes && !f->options->cache);
    add_bool(root, "kernel_cache", f->options->cache);
}

char *status_json(const struct status *s, const struct frontend *f)
{
    json_object *root = json_object_new_object();
    struct rblk_stats stats;
    struct status_sample now;
    uint64_t errors = 0;
    char *text;

    if (!root)
        return NULL;
    sum(&now, f);
    add_identity(root, f);
    for (unsigned int k = 0; k < IO_KINDS; k++)
        json_object_object_add(root, kind_names[k], io_json(s, f, &now, k));
    for (unsigned int i = 0; i < f->worker_count; i++)
        errors += counter_get(&worker_metrics(f, i)->errors);
    add_number(root, "errors", errors);
    if (rblk_get_stats(f->handle, &stats) == 0) {
        add_number(root, "rdma_reads", stats.rdma_reads);
        add_number(root, "extents_mapped", stats.extents_mapped);
        add_number(root, "bounced", stats.bounced);
    }
    json_object_object_add(root, "workers", workers_json(f));
    text = strdup(json_object_to_json_string_ext(root, JSON_C_TO_STRING_PLAIN));
    json_object_put(root);
    return text;
}

void status_answer(struct status *s, const struct frontend *f)
{
    for (;;) {
        int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        char *text;

        if (fd < 0)
            return;
        text = status_json(s, f);
        /* It fits a socket buffer, so this does not wait; who does not get it whole sees it cut. */
        if (text)
            (void)!send(fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT);
        free(text);
        close(fd);
    }
}

void status_close(struct status *s)
{
    if (s->fd < 0)
        return;
    close(s->fd);
    unlink(s->path);
    unlink(s->link);
    s->fd = -1;
}
