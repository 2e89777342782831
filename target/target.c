/* SPDX-License-Identifier: BSD-2-Clause */
/* target -- the running target: start, the control thread's loop, the orderly end */
#include "target.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <systemd/sd-daemon.h>
#include <systemd/sd-id128.h>
#include <unistd.h>
#include <uuid/uuid.h>

#include "clock.h"
#include "config.h"
#include "connection.h"
#include "device.h"
#include "extent.h"
#include "listener.h"
#include "log.h"
#include "queue.h"
#include "reactor.h"
#include "size.h"
#include "verbs.h"
#include "volume.h"

#define EPOLL_BATCH 16
#define POLLS_BEFORE_TICK 64
#define STOP_TIMEOUT_MS 5000 /* for everything in flight to be finished after SIGTERM */
#define JOIN_TIMEOUT_MS 2000 /* for a reactor without queues to end */

/* Mixed into the machine's identity, so that what we tell peers does not reveal that itself. */
static const sd_id128_t target_identity =
    SD_ID128_MAKE(52, 42, 6c, 6b, 0d, 91, 4e, 0b, a3, 5c, 71, c4, 9e, 18, 77, 02);

/* -- event sources --------------------------------------------------------------------------- */

int event_source_add(struct target *t, struct event_source *source, int fd,
                     void (*ready)(struct target *t, void *object), void *object)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = source};

    source->fd = -1;
    source->ready = ready;
    source->object = object;
    if (epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0)
        return -errno;
    source->fd = fd;
    return 0;
}

void event_source_remove(struct target *t, struct event_source *source)
{
    if (source->fd < 0)
        return;
    epoll_ctl(t->epoll_fd, EPOLL_CTL_DEL, source->fd, NULL);
    source->fd = -1;
}

/* -- stopping -------------------------------------------------------------------------------- */

static void begin_stop(struct target *t, const char *signal_name)
{
    log_info("%s: stopping; finishing what is in flight", signal_name);
    sd_notify(0, "STOPPING=1");
    t->phase = TARGET_STOPPING;
    t->stop_deadline_ns = rblk_deadline_ms(STOP_TIMEOUT_MS);
    target_deadline(t, t->stop_deadline_ns);
    listener_close_all(t);
    connection_goodbye_all(t);
}

static void signal_ready(struct target *t, void *object)
{
    struct signalfd_siginfo info;

    (void)object;
    while (read(t->signals.fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGHUP) {
            log_info("SIGHUP: ignored; a changed configuration needs a restart");
        } else if (t->phase == TARGET_RUNNING) {
            begin_stop(t, info.ssi_signo == SIGINT ? "SIGINT" : "SIGTERM");
        } else {
            log_error("a second signal: stopping at once, what is in flight is lost");
            t->stop_now = true;
        }
    }
}

/* -- the loop -------------------------------------------------------------------------------- */

static void cm_ready(struct target *t, void *object)
{
    (void)object;
    listener_poll(t);
}

static void reports_ready(struct target *t, void *object)
{
    unsigned int flags;
    struct mail *mail;

    (void)object;
    mailbox_clear(&t->reports);
    while ((mail = mailbox_take(&t->reports, &flags)) != NULL)
        queue_report(t, mail, flags);
}

static void tick(struct target *t)
{
    uint64_t now = rblk_now_ns();

    if (now < t->next_tick_ns)
        return;
    t->next_tick_ns = UINT64_MAX;
    connection_tick(t, now);
    queue_tick(t, now);
    if (t->phase == TARGET_STOPPING)
        target_deadline(t, t->stop_deadline_ns);
}

static bool finished(const struct target *t)
{
    if (t->stop_now)
        return true;
    if (t->phase != TARGET_STOPPING)
        return false;
    return (t->connection_count == 0 && !t->queues) || rblk_now_ns() >= t->stop_deadline_ns;
}

void target_run(struct target *t)
{
    struct epoll_event events[EPOLL_BATCH];
    unsigned int polls = 0;

    while (!finished(t)) {
        bool more = device_poll_all(t);
        int timeout, n;

        /*
         * A client is judged silent only after what has arrived was looked at: this thread may have
         * been kept from it, by a slow registration. A flood of messages cannot put that off.
         */
        if (!more || ++polls >= POLLS_BEFORE_TICK) {
            polls = 0;
            tick(t);
        }
        if (finished(t))
            break;
        if (more)
            timeout = 0;
        else
            timeout = t->next_tick_ns == UINT64_MAX ? -1 : rblk_deadline_left_ms(t->next_tick_ns);
        n = epoll_wait(t->epoll_fd, events, EPOLL_BATCH, timeout);
        for (int i = 0; i < n; i++) {
            struct event_source *source = events[i].data.ptr;

            source->ready(t, source->object);
        }
    }
}

/* -- start ----------------------------------------------------------------------------------- */

static int open_volumes(struct target *t, char *err, size_t errlen)
{
    const struct config *c = t->config;

    t->volumes = calloc(c->volume_count, sizeof(*t->volumes));
    if (!t->volumes) {
        snprintf(err, errlen, "out of memory");
        return -ENOMEM;
    }
    for (size_t i = 0; i < c->volume_count; i++) {
        struct volume *v = &t->volumes[i];
        int rc = volume_open(v, &c->volumes[i], (unsigned int)i, false, err, errlen);

        if (rc)
            return rc;
        t->volume_count++;
        if (extent_count(v->size, c->extent_size) > EXTENTS_MAX) {
            snprintf(err, errlen,
                     "volume %s: %s is too large for its extents; use a larger "
                     "--extent-size",
                     v->name, v->path);
            return -EINVAL;
        }
    }
    return 0;
}

static int start_reactors(struct target *t, char *err, size_t errlen)
{
    uint64_t count = t->config->threads;
    cpu_set_t set;

    if (count == 0)
        count = sched_getaffinity(0, sizeof(set), &set) == 0 ? (uint64_t)CPU_COUNT(&set) : 1;
    t->reactors = calloc(count, sizeof(struct reactor *));
    if (!t->reactors) {
        snprintf(err, errlen, "out of memory");
        return -ENOMEM;
    }
    for (uint64_t i = 0; i < count; i++) {
        int rc = reactor_start(&t->reactors[i], t, (unsigned int)i, err, errlen);

        if (rc)
            return rc;
        t->reactor_count++;
    }
    return 0;
}

static int open_channel(struct target *t, char *err, size_t errlen)
{
    t->cm = rdma_create_event_channel();
    if (!t->cm) {
        int rc = -errno;

        snprintf(err, errlen,
                 "RDMA cannot be used: %s; check \"rblk doctor\", or use "
                 "--provider soft",
                 strerror(errno));
        return rc;
    }
    return rblk_fd_nonblock(t->cm->fd);
}

static int watch_all(struct target *t, int signal_fd)
{
    int rc = event_source_add(t, &t->signals, signal_fd, signal_ready, NULL);

    if (!rc)
        rc = event_source_add(t, &t->cm_events, t->cm->fd, cm_ready, NULL);
    if (!rc)
        rc = event_source_add(t, &t->report_events, t->reports.event_fd, reports_ready, NULL);
    return rc;
}

static void identify(struct target *t)
{
    sd_id128_t id;

    if (sd_id128_get_machine_app_specific(target_identity, &id) == 0)
        memcpy(t->uuid, id.bytes, sizeof(t->uuid));
    else
        uuid_generate(t->uuid);
    if (gethostname(t->name, sizeof(t->name) - 1) < 0 || t->name[0] == '\0')
        snprintf(t->name, sizeof(t->name), "rblkd");
}

static int prepare(struct target *t, char *err, size_t errlen)
{
    int rc;

    t->started_ns = rblk_now_ns();
    t->next_tick_ns = UINT64_MAX;
    t->cm_events.fd = t->report_events.fd = t->signals.fd = -1;
    t->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    identify(t);
    rc = t->epoll_fd < 0 ? -errno : mailbox_init(&t->reports);
    if (!rc && getrandom(&t->write_verifier, sizeof(t->write_verifier), 0) < 0)
        rc = -errno;
    t->connections = calloc(t->config->max_clients, sizeof(struct connection *));
    if (!rc && !t->connections)
        rc = -ENOMEM;
    if (rc)
        snprintf(err, errlen, "cannot start: %s", strerror(-rc));
    return rc;
}

/* Frees what no thread and no peer can use any more. Every part of it may be missing. */
static void target_free(struct target *t)
{
    listener_close_all(t);
    for (unsigned int i = 0; i < t->reactor_count; i++)
        reactor_free(t->reactors[i]);
    free(t->reactors);
    device_free_all(t);
    event_source_remove(t, &t->signals);
    event_source_remove(t, &t->cm_events);
    event_source_remove(t, &t->report_events);
    if (t->cm)
        rdma_destroy_event_channel(t->cm);
    for (unsigned int i = 0; i < t->volume_count; i++)
        volume_close(&t->volumes[i]);
    free(t->volumes);
    free(t->connections);
    mailbox_destroy(&t->reports);
    if (t->epoll_fd >= 0)
        close(t->epoll_fd);
}

static int join_reactors(struct target *t)
{
    uint64_t deadline = rblk_deadline_ms(JOIN_TIMEOUT_MS);
    int rc = 0;

    for (unsigned int i = 0; i < t->reactor_count && rc == 0; i++)
        rc = reactor_stop(t->reactors[i], deadline);
    return rc;
}

int target_start(struct target *t, const struct config *config, int signal_fd, char *err,
                 size_t errlen)
{
    char where[512];
    int rc;

    memset(t, 0, sizeof(*t));
    t->config = config;
    rc = prepare(t, err, errlen);
    if (!rc)
        rc = open_volumes(t, err, errlen);
    if (!rc)
        rc = open_channel(t, err, errlen);
    if (!rc)
        rc = start_reactors(t, err, errlen);
    if (!rc)
        rc = watch_all(t, signal_fd);
    if (!rc)
        rc = listener_open_all(t, err, errlen);
    if (rc) {
        join_reactors(t);
        target_free(t);
        return rc;
    }
    listener_describe(t, where, sizeof(where));
    for (unsigned int i = 0; i < t->volume_count; i++) {
        char size[32];

        log_info("volume %s: %s, %s%s", t->volumes[i].name, t->volumes[i].path,
                 rblk_size_format(size, sizeof(size), t->volumes[i].size),
                 t->volumes[i].read_only ? ", read-only" : "");
    }
    log_info("listening on %s", where);
    return 0;
}

/* -- end ------------------------------------------------------------------------------------- */

static int sync_volumes(struct target *t)
{
    int result = 0;

    for (unsigned int i = 0; i < t->volume_count; i++) {
        struct volume *v = &t->volumes[i];
        int rc = v->read_only ? 0 : volume_sync(v);

        if (rc)
            log_error(
                "volume %s: %s could not be synced: %s; what was written since the last flush "
                "may be lost",
                v->name, v->path, strerror(-rc));
        if (rc || volume_has_failed(v))
            result = -EIO;
    }
    return result;
}

int target_stop(struct target *t)
{
    bool busy = t->connection_count || t->queues;
    int rc;

    if (busy) {
        /* Their memory is in use by the device or by io_uring, so it is left to the kernel. */
        log_error("%u clients did not finish in time; they are cut off", t->connection_count);
        sync_volumes(t);
        return -ETIMEDOUT;
    }
    rc = join_reactors(t);
    if (rc) {
        log_error("a reactor did not end in time");
        sync_volumes(t);
        return rc;
    }
    rc = sync_volumes(t);
    target_free(t);
    return rc;
}
