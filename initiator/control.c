/* SPDX-License-Identifier: BSD-2-Clause */
/* control -- life and control thread of a connection (owners and locks: control.h) */
#include "control.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/memory.h"
#include "common/verbs.h"
#include "queue.h"

#define NS_PER_MS 1000000u

/* -- from any thread ------------------------------------------------------------------------- */

void rblk_conn_wake(struct rblk_conn *conn)
{
    uint64_t one = 1;

    if (write(conn->wake_fd, &one, sizeof(one)) < 0) {
        /* Only a counter at its limit refuses, and then the thread is awake anyway. */
    }
}

void rblk_conn_fail(struct rblk_conn *conn, int error, const char *fmt, ...)
{
    va_list args;

    pthread_mutex_lock(&conn->lock);
    if (!rblk_conn_failed(conn)) {
        va_start(args, fmt);
        vsnprintf(conn->failure_text, sizeof(conn->failure_text), fmt, args);
        va_end(args);
        atomic_store_explicit(&conn->failure, error, memory_order_release);
        pthread_cond_broadcast(&conn->cond);
        rblk_conn_wake(conn);
    }
    pthread_mutex_unlock(&conn->lock);
}

int rblk_conn_wait(struct rblk_conn *conn, uint64_t deadline_ns)
{
    struct timespec at = {
        .tv_sec = (time_t)(deadline_ns / 1000000000u),
        .tv_nsec = (long)(deadline_ns % 1000000000u),
    };

    if (rblk_deadline_left_ms(deadline_ns) == 0)
        return -ETIMEDOUT;
    pthread_cond_timedwait(&conn->cond, &conn->lock, &at);
    return 0;
}

static void set_flag(struct rblk_conn *conn, bool *flag)
{
    pthread_mutex_lock(&conn->lock);
    *flag = true;
    pthread_mutex_unlock(&conn->lock);
    rblk_conn_wake(conn);
}

void rblk_conn_go_live(struct rblk_conn *conn)
{
    set_flag(conn, &conn->live);
}

void rblk_conn_serve(struct rblk_conn *conn)
{
    set_flag(conn, &conn->serving);
}

void rblk_conn_keep_alive(struct rblk_conn *conn, uint32_t interval_ms)
{
    pthread_mutex_lock(&conn->lock);
    conn->keepalive_ns = (uint64_t)interval_ms * NS_PER_MS;
    pthread_mutex_unlock(&conn->lock);
    rblk_conn_wake(conn);
}

/* -- control thread: what arrives ------------------------------------------------------------ */

void rblk_control_reply(struct rblk_conn *conn, unsigned int slot, const struct rblk_call *call)
{
    struct rblk_header header;

    /* take_reply has seen this very header decode. */
    if (rblk_header_decode(&header, call->reply, call->reply_len))
        return;
    if (slot == RBLK_CALL_HEARTBEAT)
        return;
    if (slot == RBLK_CALL_RELEASE)
        rblk_mapping_released(conn, header.status);
    else
        rblk_mapping_mapped(conn, slot, header.status, call);
}

void rblk_control_event(struct rblk_conn *conn, uint8_t type, const uint8_t *message, size_t len)
{
    struct rblk_extent_recall recall;

    if (type == RBLK_EVENT_GOODBYE) {
        if (rblk_empty_decode(message, len))
            rblk_conn_fail(conn, -EPROTO, "%s sent a malformed GOODBYE", conn->address);
        else
            rblk_conn_fail(conn, -EIO, "%s is shutting down; connect again when it is back",
                           conn->address);
        return;
    }
    if (rblk_extent_recall_decode(&recall, message, len))
        rblk_conn_fail(conn, -EPROTO, "%s sent a malformed EXTENT_RECALL", conn->address);
    else
        rblk_mapping_recall(conn, recall.count);
}

static void take_cm_events(struct rblk_conn *conn)
{
    struct rdma_cm_event *event;

    while (rdma_get_cm_event(conn->events, &event) == 0) {
        struct rblk_endpoint *ep = event->id->context;
        bool lost = rblk_endpoint_event(ep, event);
        bool removed = event->event == RDMA_CM_EVENT_DEVICE_REMOVAL;
        bool closing;

        rdma_ack_cm_event(event);
        pthread_mutex_lock(&conn->lock);
        closing = conn->closing;
        pthread_mutex_unlock(&conn->lock);
        if (lost && !closing)
            rblk_conn_fail(conn, -EIO,
                           removed ? "%s: the RDMA device in use was removed"
                                   : "%s closed the connection; does rblkd still run?",
                           conn->address);
    }
}

/* -- control thread: time -------------------------------------------------------------------- */

static void send_heartbeat(struct rblk_conn *conn, struct rblk_call *call)
{
    size_t len = rblk_empty_encode(call->message, RBLK_PING, call->tag);

    rblk_call_post(conn, call, len);
}

/* A queue whose work never completes although the target answers heartbeats. */
static void check_queues(struct rblk_conn *conn, uint64_t now)
{
    struct rblk *h = conn->h;
    uint64_t ms = (uint64_t)h->options.timeout_ms * RBLK_STALLED_TIMEOUTS;
    uint64_t limit = (ms > RBLK_STALLED_MIN_MS ? ms : RBLK_STALLED_MIN_MS) * NS_PER_MS;

    for (unsigned int i = 0; i < h->queue_count; i++)
        if (rblk_link_stalled_ns(h->queue[i], now) > limit)
            rblk_conn_fail(conn, -ETIMEDOUT, "%s: nothing on queue %u completed for %llu seconds",
                           conn->address, i, (unsigned long long)(limit / 1000000000u));
}

static void keep_alive(struct rblk_conn *conn, uint64_t interval, bool serving)
{
    uint64_t now = rblk_now_ns();
    const struct rblk_call *heartbeat = &conn->call[RBLK_CALL_HEARTBEAT];
    struct rblk_call *call;

    if (conn->ping_due_ns == 0)
        conn->ping_due_ns = now + interval;
    if (now < conn->ping_due_ns)
        return;
    conn->ping_due_ns = now + interval;
    call = rblk_call_take(conn, RBLK_CALL_HEARTBEAT);
    if (call)
        send_heartbeat(conn, call);
    else if (now - heartbeat->sent_ns >= (RBLK_SILENT_INTERVALS - 1) * interval &&
             now - conn->heard_ns >= (RBLK_SILENT_INTERVALS - 1) * interval)
        /*
         * The one sent three intervals after the last that was answered is due now. What has
         * arrived was taken before, so a process that was stopped itself does not blame its peer.
         */
        rblk_conn_fail(conn, -ETIMEDOUT,
                       "%s does not answer any more: %u heartbeats of %llu ms "
                       "missed",
                       conn->address, RBLK_SILENT_INTERVALS,
                       (unsigned long long)(interval / NS_PER_MS));
    if (serving)
        check_queues(conn, now);
}

/*
 * Kernel siw (6.1) as the target's device answers a connection request before it has its socket call
 * it for data: a first message that is faster lies there unseen until more data comes. So on iWARP,
 * while nothing has come back on a queue pair, empty writes follow. True: one is due.
 */
static bool nudge_is_due(struct rblk_nudging *n, uint64_t now)
{
    static const uint64_t after_ms[RBLK_NUDGES] = {25, 75, 250, 750};
    bool due = n->due_ns != 0 && now >= n->due_ns;

    n->done += due;
    if (n->done == RBLK_NUDGES)
        n->due_ns = UINT64_MAX;
    else if (due || n->due_ns == 0)
        n->due_ns = now + after_ms[n->done] * NS_PER_MS;
    return due;
}

/* Returns when it wants to be called again (rblk_now_ns clock), UINT64_MAX: no more. */
static uint64_t nudge(struct rblk_conn *conn, bool serving)
{
    struct rblk *h = conn->h;
    uint64_t now = rblk_now_ns(), next = UINT64_MAX;

    if (h->verbs->device->transport_type != IBV_TRANSPORT_IWARP)
        return next;
    if (conn->heard_ns == 0) {
        if (nudge_is_due(&conn->nudging, now))
            rblk_calls_nudge(conn);
        next = conn->nudging.due_ns;
    }
    if (serving) {
        if (nudge_is_due(&conn->queue_nudging, now))
            for (unsigned int i = 0; i < h->queue_count; i++)
                rblk_link_nudge(h->queue[i]);
        if (conn->queue_nudging.due_ns < next)
            next = conn->queue_nudging.due_ns;
    }
    return next;
}

/* Takes everything of a failed connection down; true when no more is to do. */
static bool take_down(struct rblk_conn *conn, bool live, bool serving)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    struct rblk *h = conn->h;
    bool drained = true;

    if (!conn->draining) {
        conn->draining = true;
        conn->drain_deadline_ns = rblk_deadline_ms(RBLK_DRAIN_MS);
        if (live) {
            rdma_disconnect(conn->endpoint.id);
            ibv_modify_qp(conn->endpoint.id->qp, &attr, IBV_QP_STATE);
        }
        for (unsigned int i = 0; serving && i < h->queue_count; i++)
            rblk_link_break(h->queue[i]);
    }
    for (unsigned int i = 0; serving && i < h->queue_count; i++)
        if (!rblk_link_drain(h->queue[i], -EIO))
            drained = false;
    if (!drained && rblk_deadline_left_ms(conn->drain_deadline_ns) > 0)
        return false;
    /* First those whose requests wait for it. */
    for (unsigned int i = 0; serving && i < h->queue_count; i++)
        if (!rblk_link_drain(h->queue[i], -EIO))
            rblk_link_destroy(h->queue[i], -EIO);
    for (unsigned int i = 0; serving && i < h->queue_count; i++)
        rblk_link_destroy(h->queue[i], -EIO);
    return true;
}

/* -- control thread -------------------------------------------------------------------------- */

/* Sleeps until something happens or the next thing is due. */
static void wait_for_work(struct rblk_conn *conn, bool live, uint64_t interval, bool soon,
                          uint64_t nudge_ns)
{
    struct pollfd pfd[3] = {
        {.fd = conn->wake_fd, .events = POLLIN},
        {.fd = conn->events->fd, .events = POLLIN},
        {.fd = live ? conn->channel->fd : -1, .events = POLLIN},
    };
    uint64_t count;
    int timeout = -1;

    if (soon)
        timeout = 1;
    else if (interval)
        timeout = conn->ping_due_ns ? rblk_deadline_left_ms(conn->ping_due_ns) : 0;
    if (nudge_ns != UINT64_MAX && (timeout < 0 || rblk_deadline_left_ms(nudge_ns) < timeout))
        timeout = rblk_deadline_left_ms(nudge_ns);
    poll(pfd, 3, timeout);
    if (pfd[0].revents && read(conn->wake_fd, &count, sizeof(count)) < 0) {
        /* Nothing to read after all. */
    }
}

static void *control_main(void *arg)
{
    struct rblk_conn *conn = arg;
    bool soon = false;

    pthread_setname_np(pthread_self(), "rblk-control");
    for (;;) {
        bool stop, live, serving, failed;
        uint64_t interval, nudge_ns = UINT64_MAX;

        pthread_mutex_lock(&conn->lock);
        stop = conn->stop;
        live = conn->live;
        /* A connection that is being closed leaves its queues to the thread that closes it. */
        serving = conn->serving && !conn->closing;
        failed = rblk_conn_failed(conn) != 0;
        interval = failed ? 0 : conn->keepalive_ns;
        pthread_mutex_unlock(&conn->lock);
        if (stop)
            return NULL;

        take_cm_events(conn);
        if (live && !conn->drained)
            rblk_calls_progress(conn);
        soon = false;
        if (failed) {
            if (!conn->drained)
                conn->drained = take_down(conn, live, serving);
            soon = !conn->drained;
        } else if (live) {
            nudge_ns = nudge(conn, serving);
            if (interval)
                keep_alive(conn, interval, serving);
            if (serving)
                soon = rblk_mapping_progress(conn);
        }
        wait_for_work(conn, live && !conn->drained, interval, soon, nudge_ns);
    }
}

/* The thread takes none of the program's signals. */
static int start_thread(struct rblk_conn *conn)
{
    sigset_t all, before;
    int rc;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&conn->thread, NULL, control_main, conn);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc == 0)
        conn->thread_started = true;
    return -rc;
}

int rblk_conn_create(struct rblk_conn **out, struct rblk *h)
{
    struct rblk_conn *conn = calloc(1, sizeof(*conn));
    pthread_condattr_t attr;
    int rc;

    if (!conn)
        return rblk_fail(h, -ENOMEM, "no memory for a connection");
    conn->h = h;
    conn->wake_fd = -1;
    pthread_mutex_init(&conn->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&conn->cond, &attr);
    pthread_condattr_destroy(&attr);
    rblk_mapping_init(&conn->mapping);

    conn->events = rdma_create_event_channel();
    if (!conn->events) {
        rc = rblk_fail(h, -errno,
                       "this machine has no usable RDMA (rdma_create_event_channel: "
                       "%s); use the software provider: --provider soft or RBLK_PROVIDER=soft",
                       strerror(errno));
        goto fail;
    }
    rc = rblk_fd_nonblock(conn->events->fd);
    if (rc == 0) {
        conn->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        rc = conn->wake_fd < 0 ? -errno : start_thread(conn);
    }
    if (rc) {
        rblk_fail(h, rc, "cannot start the control thread: %s", strerror(-rc));
        goto fail;
    }
    *out = conn;
    return 0;

fail:
    rblk_conn_free(conn);
    return rc;
}

void rblk_conn_stop(struct rblk_conn *conn)
{
    if (!conn || !conn->thread_started)
        return;
    pthread_mutex_lock(&conn->lock);
    conn->closing = true;
    pthread_mutex_unlock(&conn->lock);
    set_flag(conn, &conn->stop);
    pthread_join(conn->thread, NULL);
    conn->thread_started = false;
}

void rblk_conn_free(struct rblk_conn *conn)
{
    if (!conn)
        return;
    if (conn->live && !conn->draining)
        rdma_disconnect(conn->endpoint.id);
    rblk_endpoint_close(&conn->endpoint);
    if (conn->mr)
        ibv_dereg_mr(conn->mr);
    if (conn->cq)
        ibv_destroy_cq(conn->cq);
    if (conn->channel)
        ibv_destroy_comp_channel(conn->channel);
    rblk_memory_unmap(conn->memory, conn->memory_len);
    if (conn->events)
        rdma_destroy_event_channel(conn->events);
    if (conn->wake_fd >= 0)
        close(conn->wake_fd);
    pthread_cond_destroy(&conn->cond);
    pthread_mutex_destroy(&conn->lock);
    free(conn);
}
