/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * watch.c -- who waits for a queue pair's socket: its worker, a completion channel, or a poller
 *
 * Functions that say "tx_lock held" change the registration; it decides nothing about data.
 */
#include "softrdma.h"

#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* A socket taken back because nobody attended to it is not delegated again for so long. */
#define HOLD_OFF_US 100000u
/* Ticks that a readable, unattended socket is left to its delegate. */
#define STALE_TICKS 2u

/* Make the worker's epoll registration follow owner and want_writable. tx_lock held. */
void soft_qp_epoll_update(struct soft_qp *qp)
{
    struct epoll_event event = {
        .events =
            (qp->owner == SOFT_OWNER_WORKER ? EPOLLIN : 0) | (qp->tx.want_writable ? EPOLLOUT : 0),
        .data.u64 = soft_poll_data(SOFT_POLL_QP, qp->handle),
    };

    if (qp->epoll_registered && event.events == qp->epoll_events)
        return;
    if (qp->tx.closed && !qp->epoll_registered)
        return;
    if (epoll_ctl(qp->worker->epoll_fd, qp->epoll_registered ? EPOLL_CTL_MOD : EPOLL_CTL_ADD,
                  qp->fd, &event) < 0) {
        soft_debug("qp %u: epoll: %s", qp->handle, strerror(errno));
        return;
    }
    qp->epoll_registered = true;
    qp->epoll_events = event.events;
}

/*
 * Let application threads watch the socket: through a channel's descriptor, or by polling alone
 * (channel NULL). Returns whether that is so now. No lock held.
 */
bool soft_qp_delegate(struct soft_qp *qp, struct soft_channel *channel)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = qp->handle};
    bool delegated = false;

    if (!soft_config.delegate)
        return false;
    pthread_mutex_lock(&qp->tx_lock);
    if (qp->fd < 0 || qp->owner != SOFT_OWNER_WORKER || qp->tx.closing ||
        atomic_load_explicit(&qp->state, memory_order_relaxed) != IBV_QPS_RTS ||
        (qp->no_delegation_us != 0 && soft_now_us() < qp->no_delegation_us))
        goto out;
    if (channel != NULL) {
        if (epoll_ctl(channel->ibv.fd, EPOLL_CTL_ADD, qp->fd, &event) < 0)
            goto out;
        atomic_fetch_add(&channel->delegated, 1);
        qp->owner = SOFT_OWNER_CHANNEL;
    } else {
        atomic_fetch_add(&qp->send_cq->polled, 1);
        atomic_fetch_add(&qp->recv_cq->polled, 1);
        qp->owner = SOFT_OWNER_POLLER;
    }
    qp->owner_channel = channel;
    qp->no_delegation_us = 0;
    qp->tick_idle = qp->tick_stale = 0;
    qp->tick_passes = atomic_load_explicit(&qp->passes, memory_order_relaxed);
    soft_qp_epoll_update(qp);
    soft_worker_tick_add(qp->worker, qp);
    delegated = true;
    soft_debug("qp %u delegated to %s", qp->handle, channel != NULL ? "channel" : "poller");
out:
    pthread_mutex_unlock(&qp->tx_lock);
    return delegated;
}

/* The worker watches the socket again. tx_lock held; owner is not the worker. */
void soft_qp_undelegate(struct soft_qp *qp)
{
    if (qp->owner == SOFT_OWNER_CHANNEL) {
        epoll_ctl(qp->owner_channel->ibv.fd, EPOLL_CTL_DEL, qp->fd, NULL);
        atomic_fetch_sub(&qp->owner_channel->delegated, 1);
    } else {
        atomic_fetch_sub(&qp->send_cq->polled, 1);
        atomic_fetch_sub(&qp->recv_cq->polled, 1);
    }
    qp->owner = SOFT_OWNER_WORKER;
    qp->owner_channel = NULL;
    atomic_store_explicit(&qp->polls, 0, memory_order_relaxed);
    soft_qp_epoll_update(qp);
    soft_debug("qp %u back with its worker", qp->handle);
}

/* Nothing comes or goes any more; the descriptor stays until the queue pair goes. tx_lock held. */
void soft_qp_close_socket(struct soft_qp *qp)
{
    if (qp->owner != SOFT_OWNER_WORKER)
        soft_qp_undelegate(qp);
    if (qp->epoll_registered)
        epoll_ctl(qp->worker->epoll_fd, EPOLL_CTL_DEL, qp->fd, NULL);
    qp->epoll_registered = false;
    qp->tx.closed = true;
    qp->tx.want_writable = false;
    qp->deadline_us = 0;
    shutdown(qp->fd, SHUT_RDWR);
}

/*
 * The peer has had its time. One that still sends would wait for ever before our closed window: it
 * learns by a reset that nobody listens, as after a close(2) with unread input, while the
 * descriptor stays (connect(2): AF_UNSPEC ends the association). tx_lock held.
 */
static void hang_up(struct soft_qp *qp)
{
    const struct sockaddr none = {.sa_family = AF_UNSPEC};
    int unread = 0;

    soft_qp_close_socket(qp);
    if (ioctl(qp->fd, FIONREAD, &unread) == 0 && unread > 0)
        connect(qp->fd, &none, sizeof(none));
}

/* Watch over a delegated socket. Returns whether it still is delegated. tx_lock held. */
static bool tick_delegated(struct soft_qp *qp, uint64_t now_us)
{
    uint32_t passes = atomic_load_explicit(&qp->passes, memory_order_relaxed);
    bool attended = passes != qp->tick_passes;
    int available = 0;

    qp->tick_passes = passes;
    if (attended) {
        qp->tick_idle = qp->tick_stale = 0;
        return true;
    }
    if (qp->owner == SOFT_OWNER_POLLER) {
        soft_qp_undelegate(qp);
        return false;
    }
    if (ioctl(qp->fd, FIONREAD, &available) < 0 || available > 0) {
        if (++qp->tick_stale < STALE_TICKS)
            return true;
        qp->no_delegation_us = now_us + HOLD_OFF_US;
        soft_qp_undelegate(qp);
        return false;
    }
    qp->tick_stale = 0;
    if (++qp->tick_idle < SOFT_IDLE_TICKS)
        return true;
    soft_qp_undelegate(qp);
    return false;
}

/*
 * The worker's periodic look. Returns whether another one is needed. No lock held, a reference
 * is.
 */
bool soft_qp_tick(struct soft_qp *qp, uint64_t now_us)
{
    bool keep = false, drain_expired = false;
    int failed = 0;

    pthread_mutex_lock(&qp->tx_lock);
    if (qp->owner != SOFT_OWNER_WORKER)
        keep = tick_delegated(qp, now_us);
    if (soft_tx_nudge(qp, now_us))
        keep = true;
    if (atomic_load(&qp->state) == IBV_QPS_RTS)
        failed = qp->tx.error;
    if (qp->deadline_us != 0) {
        if (now_us < qp->deadline_us) {
            keep = true;
        } else if (atomic_load(&qp->state) == IBV_QPS_ERR) {
            hang_up(qp);
        } else {
            qp->deadline_us = 0;
            drain_expired = true;
        }
    }
    if (!keep)
        soft_worker_tick_remove(qp->worker, qp);
    pthread_mutex_unlock(&qp->tx_lock);
    if (failed < 0)
        soft_qp_tx_failed(qp);
    if (drain_expired)
        soft_qp_fail(qp, 0, 0, false);
    return keep;
}

/* The worker's epoll reported something. A reference is held. */
void soft_qp_event(struct soft_qp *qp, uint32_t events)
{
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        soft_rx_drive(qp, true);
    if (events & EPOLLOUT) {
        int r;

        pthread_mutex_lock(&qp->tx_lock);
        r = soft_tx_progress(qp);
        pthread_mutex_unlock(&qp->tx_lock);
        if (r < 0)
            soft_qp_tx_failed(qp);
    }
}
