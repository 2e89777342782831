/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * channel.c -- completion channels
 *
 * A channel's descriptor is an epoll descriptor. In it is an eventfd, readable while completion
 * events are queued, and the sockets that are delegated to the channel: data on them makes the
 * channel readable, and the application thread then receives it inside ibv_get_cq_event.
 */
#include "softrdma.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define DRIVE_EVENTS 16

/* Does the application want EAGAIN rather than to wait? */
bool soft_fd_nonblocking(int fd)
{
    int flags = fcntl(fd, F_GETFL);

    return flags >= 0 && (flags & O_NONBLOCK);
}

/* man ibv_create_comp_channel. Thread-safe. */
struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 0};
    struct soft_channel *channel;

    if (!soft_usable()) {
        errno = EIO;
        return NULL;
    }
    channel = calloc(1, sizeof(*channel));
    if (channel == NULL)
        return NULL;
    channel->ibv.context = context;
    channel->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (channel->event_fd < 0)
        goto fail_event;
    channel->ibv.fd = epoll_create1(EPOLL_CLOEXEC);
    if (channel->ibv.fd < 0)
        goto fail_epoll;
    if (epoll_ctl(channel->ibv.fd, EPOLL_CTL_ADD, channel->event_fd, &event) < 0)
        goto fail_add;
    pthread_mutex_init(&channel->lock, NULL);
    return &channel->ibv;

fail_add:
    close(channel->ibv.fd);
fail_epoll:
    close(channel->event_fd);
fail_event:
    free(channel);
    return NULL;
}

/* man ibv_destroy_comp_channel: EBUSY while completion queues use it. */
int ibv_destroy_comp_channel(struct ibv_comp_channel *ibchannel)
{
    struct soft_channel *channel = (struct soft_channel *)ibchannel;
    unsigned int users;

    if (channel == NULL)
        return EINVAL;
    pthread_mutex_lock(&channel->lock);
    users = channel->cqs;
    pthread_mutex_unlock(&channel->lock);
    if (users > 0)
        return EBUSY;
    close(channel->ibv.fd);
    close(channel->event_fd);
    pthread_mutex_destroy(&channel->lock);
    free(channel);
    return 0;
}

/* Make the descriptor's state follow the list's; lock held. */
static void settle(struct soft_channel *channel)
{
    uint64_t value = 1;

    if (channel->head != NULL && !channel->signalled && channel->deferred == 0) {
        if (write(channel->event_fd, &value, sizeof(value)) == sizeof(value))
            channel->signalled = true;
    } else if (channel->head == NULL && channel->signalled) {
        if (read(channel->event_fd, &value, sizeof(value)) == sizeof(value))
            channel->signalled = false;
    }
}

/* Queue a completion event; one that is queued already stands for both. Leaf lock. */
void soft_channel_push(struct soft_channel *channel, struct soft_cq *cq)
{
    pthread_mutex_lock(&channel->lock);
    if (!cq->event_queued) {
        cq->event_queued = true;
        cq->event_next = NULL;
        if (channel->head == NULL)
            channel->head = cq;
        else
            channel->tail->event_next = cq;
        channel->tail = cq;
        settle(channel);
    }
    pthread_mutex_unlock(&channel->lock);
}

/* Drop a queued event of a completion queue that is being destroyed. */
void soft_channel_forget(struct soft_channel *channel, struct soft_cq *cq)
{
    struct soft_cq *previous = NULL;

    pthread_mutex_lock(&channel->lock);
    for (struct soft_cq *at = channel->head; at != NULL; previous = at, at = at->event_next) {
        if (at != cq)
            continue;
        if (previous != NULL)
            previous->event_next = at->event_next;
        else
            channel->head = at->event_next;
        if (channel->tail == at)
            channel->tail = previous;
        cq->event_queued = false;
        break;
    }
    settle(channel);
    pthread_mutex_unlock(&channel->lock);
}

/* Take the first event; lock held. */
static struct soft_cq *take(struct soft_channel *channel)
{
    struct soft_cq *cq = channel->head;

    if (cq != NULL) {
        channel->head = cq->event_next;
        if (channel->head == NULL)
            channel->tail = NULL;
        cq->event_queued = false;
        cq->events_delivered++;
    }
    settle(channel);
    return cq;
}

/*
 * Receive on the delegated sockets that have data. Returns how many had some that this thread
 * received. Takes no lock while it waits (it never waits).
 */
int soft_channel_drive(struct soft_channel *channel)
{
    struct epoll_event events[DRIVE_EVENTS];
    int productive = 0;
    int n = epoll_wait(channel->ibv.fd, events, DRIVE_EVENTS, 0);

    for (int i = 0; i < n; i++) {
        struct soft_qp *qp;

        if (events[i].data.u64 == 0)
            continue;
        qp = soft_qp_get((uint32_t)events[i].data.u64);
        if (qp == NULL)
            continue;
        if (soft_rx_drive(qp, false))
            productive++;
        soft_qp_put(qp);
    }
    return productive;
}

static struct soft_cq *next_event(struct soft_channel *channel, bool drive)
{
    struct soft_cq *cq;

    pthread_mutex_lock(&channel->lock);
    if (drive && channel->head == NULL) {
        /* Events that we make ourselves need no wake-up: we look for them right after. */
        channel->deferred++;
        pthread_mutex_unlock(&channel->lock);
        soft_channel_drive(channel);
        pthread_mutex_lock(&channel->lock);
        channel->deferred--;
    }
    cq = take(channel);
    pthread_mutex_unlock(&channel->lock);
    return cq;
}

/*
 * man ibv_get_cq_event: waits for an event unless the descriptor has O_NONBLOCK, when it fails
 * with EAGAIN. A readable descriptor may still mean EAGAIN: data that completed nothing.
 */
int ibv_get_cq_event(struct ibv_comp_channel *ibchannel, struct ibv_cq **ibcq, void **cq_context)
{
    struct soft_channel *channel = (struct soft_channel *)ibchannel;

    if (!soft_usable())
        return soft_errno(EIO);
    for (;;) {
        bool delegated = atomic_load_explicit(&channel->delegated, memory_order_relaxed) > 0;
        struct soft_cq *cq = next_event(channel, delegated);
        struct pollfd wait = {.fd = channel->ibv.fd, .events = POLLIN};

        if (cq != NULL) {
            *ibcq = &cq->ibv;
            *cq_context = cq->ibv.cq_context;
            return 0;
        }
        if (soft_fd_nonblocking(channel->ibv.fd))
            return soft_errno(EAGAIN);
        if (poll(&wait, 1, -1) < 0)
            return -1;
    }
}
