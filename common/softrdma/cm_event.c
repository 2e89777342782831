/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cm_event.c -- connection events: channels, delivery, acknowledgement
 */
#include "cm.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/*
 * Destroyed channels, the last few. Programs such as rping destroy a channel while a thread of theirs
 * is about to wait on it again; with librdmacm that thread sleeps until the process ends, and so it
 * does here, without touching freed memory.
 */
#define RETIRED_CHANNELS 64u
static pthread_mutex_t retired_lock = PTHREAD_MUTEX_INITIALIZER; /* the next two */
static struct soft_event_channel *retired[RETIRED_CHANNELS];
static unsigned int retired_next;

/* man rdma_create_event_channel. */
struct rdma_event_channel *rdma_create_event_channel(void)
{
    struct soft_event_channel *channel;
    int r = soft_start();

    if (r < 0) {
        errno = -r;
        return NULL;
    }
    channel = calloc(1, sizeof(*channel));
    if (channel == NULL)
        return NULL;
    channel->ibv.fd = eventfd(0, EFD_CLOEXEC);
    if (channel->ibv.fd < 0) {
        free(channel);
        return NULL;
    }
    pthread_mutex_init(&channel->lock, NULL);
    return &channel->ibv;
}

/* man rdma_destroy_event_channel: all its ids are destroyed, so it holds no event. */
void rdma_destroy_event_channel(struct rdma_event_channel *rdma_channel)
{
    struct soft_event_channel *channel = (struct soft_event_channel *)rdma_channel, *oldest;

    if (channel == NULL)
        return;
    close(channel->ibv.fd);
    pthread_mutex_lock(&retired_lock);
    atomic_store(&channel->retired, true);
    oldest = retired[retired_next];
    retired[retired_next] = channel;
    retired_next = (retired_next + 1) % RETIRED_CHANNELS;
    pthread_mutex_unlock(&retired_lock);
    if (oldest != NULL)
        pthread_mutex_destroy(&oldest->lock);
    free(oldest);
}

/* A new event for id, not yet queued. NULL when out of memory. */
struct soft_cm_event *soft_cm_event_new(struct soft_cm_id *id, enum rdma_cm_event_type type,
                                        int status)
{
    struct soft_cm_event *event = calloc(1, sizeof(*event));

    if (event == NULL)
        return NULL;
    event->ibv.id = &id->ibv;
    event->ibv.event = type;
    event->ibv.status = status;
    event->owner = id;
    return event;
}

/* The descriptor is readable while the list is not empty; channel lock held. */
static void signal_change(struct soft_event_channel *channel, bool was_empty)
{
    bool empty = channel->head == NULL;
    uint64_t value = 1;

    if (was_empty && !empty && write(channel->ibv.fd, &value, sizeof(value)) < 0)
        soft_debug("event channel: %s", strerror(errno));
    if (!was_empty && empty && read(channel->ibv.fd, &value, sizeof(value)) < 0)
        soft_debug("event channel: %s", strerror(errno));
}

static void append(struct soft_event_channel *channel, struct soft_cm_event *event)
{
    bool was_empty;

    pthread_mutex_lock(&channel->lock);
    was_empty = channel->head == NULL;
    event->next = NULL;
    event->channel = channel;
    if (was_empty)
        channel->head = event;
    else
        channel->tail->next = event;
    channel->tail = event;
    signal_change(channel, was_empty);
    pthread_mutex_unlock(&channel->lock);
}

static void push_locked(struct soft_cm_event *event)
{
    soft_debug("event %s status %d", rdma_event_str(event->ibv.event), event->ibv.status);
    append((struct soft_event_channel *)event->owner->ibv.channel, event);
}

/* Queue an event on its owner's channel. Thread-safe; the owner is alive. */
void soft_cm_event_push(struct soft_cm_event *event)
{
    struct soft_cm_id *owner = event->owner;

    pthread_mutex_lock(&owner->event_lock);
    push_locked(event);
    pthread_mutex_unlock(&owner->event_lock);
}

/* Queue a plain event. Returns 0 or -ENOMEM. */
int soft_cm_announce(struct soft_cm_id *id, enum rdma_cm_event_type type, int status)
{
    struct soft_cm_event *event = soft_cm_event_new(id, type, status);

    if (event == NULL)
        return -ENOMEM;
    soft_cm_event_push(event);
    return 0;
}

static void push_disconnected(struct soft_cm_id *id)
{
    struct soft_cm_event *event = id->disconnect_event;

    id->disconnect_event = NULL;
    if (event != NULL)
        push_locked(event);
}

/*
 * Queue ESTABLISHED, with what the peer sent along; and DISCONNECTED behind it when the stream
 * has ended meanwhile. id->lock held.
 */
void soft_cm_announce_established(struct soft_cm_id *id)
{
    struct soft_cm_event *event = soft_cm_event_new(id, RDMA_CM_EVENT_ESTABLISHED, 0);

    pthread_mutex_lock(&id->event_lock);
    if (event != NULL && !id->established) {
        memcpy(event->private_data, id->private_data, id->private_length);
        event->ibv.param.conn.private_data = id->private_length > 0 ? event->private_data : NULL;
        event->ibv.param.conn.private_data_len = id->private_length;
        event->ibv.param.conn.responder_resources = (uint8_t)id->ird;
        event->ibv.param.conn.initiator_depth = (uint8_t)id->ord;
        event->ibv.param.conn.qp_num = id->own_qp;
        push_locked(event);
        event = NULL;
    }
    id->established = true;
    if (id->disconnected)
        push_disconnected(id);
    pthread_mutex_unlock(&id->event_lock);
    free(event);
}

/* The queue pair of a connection failed or was disconnected. Called with its locks held. */
void soft_cm_qp_closed(uint32_t handle)
{
    struct soft_cm_id *id = soft_cm_get(handle);

    if (id == NULL)
        return;
    pthread_mutex_lock(&id->event_lock);
    id->disconnected = true;
    if (id->established)
        push_disconnected(id);
    pthread_mutex_unlock(&id->event_lock);
    soft_cm_put(id);
}

static struct soft_cm_event *pop(struct soft_event_channel *channel)
{
    struct soft_cm_event *event;

    pthread_mutex_lock(&channel->lock);
    event = channel->head;
    if (event != NULL) {
        channel->head = event->next;
        if (channel->head == NULL)
            channel->tail = NULL;
        signal_change(channel, false);
        /* Counted before anybody can see it gone from the list: rdma_destroy_id() waits for it. */
        __atomic_fetch_add(&event->owner->events_given, 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&channel->lock);
    return event;
}

/* man rdma_get_cm_event: blocks unless the descriptor has O_NONBLOCK. Thread-safe. */
int rdma_get_cm_event(struct rdma_event_channel *rdma_channel, struct rdma_cm_event **event)
{
    struct soft_event_channel *channel = (struct soft_event_channel *)rdma_channel;

    if (event == NULL || channel == NULL)
        return soft_errno(EINVAL);
    if (!soft_usable())
        return soft_errno(EIO);
    for (;;) {
        struct pollfd wait = {.fd = channel->ibv.fd, .events = POLLIN};
        struct soft_cm_event *first;

        if (atomic_load(&channel->retired)) {
            poll(NULL, 0, -1);
            continue;
        }
        first = pop(channel);
        if (first != NULL) {
            *event = &first->ibv;
            return 0;
        }
        if (soft_fd_nonblocking(channel->ibv.fd))
            return soft_errno(EAGAIN);
        if (poll(&wait, 1, -1) < 0)
            return -1;
    }
}

/* man rdma_ack_cm_event. Thread-safe. */
int rdma_ack_cm_event(struct rdma_cm_event *rdma_event)
{
    struct soft_cm_event *event = (struct soft_cm_event *)rdma_event;
    struct soft_cm_id *owner;

    if (event == NULL)
        return soft_errno(EINVAL);
    owner = event->owner;
    pthread_mutex_lock(&owner->event_lock);
    owner->events_acked++;
    pthread_cond_broadcast(&owner->event_cond);
    pthread_mutex_unlock(&owner->event_lock);
    free(event);
    return 0;
}

/* Take the events of an id off a channel's list. Returns them as a list. */
static struct soft_cm_event *remove_events(struct soft_event_channel *channel,
                                           const struct soft_cm_id *id)
{
    struct soft_cm_event *removed = NULL, **removed_tail = &removed, **link;
    bool was_empty;

    pthread_mutex_lock(&channel->lock);
    was_empty = channel->head == NULL;
    channel->tail = NULL;
    for (link = &channel->head; *link != NULL;) {
        struct soft_cm_event *event = *link;

        if (event->owner == id || event->ibv.id == &id->ibv) {
            *link = event->next;
            event->next = NULL;
            *removed_tail = event;
            removed_tail = &event->next;
        } else {
            channel->tail = event;
            link = &event->next;
        }
    }
    signal_change(channel, was_empty);
    pthread_mutex_unlock(&channel->lock);
    return removed;
}

/*
 * An id is going: drop its queued events, with the connections that nobody took, and wait until
 * those that were taken are acknowledged.
 */
void soft_cm_drop_events(struct soft_cm_id *id)
{
    struct soft_cm_event *event = remove_events((struct soft_event_channel *)id->ibv.channel, id);

    while (event != NULL) {
        struct soft_cm_event *next = event->next;

        if (event->ibv.event == RDMA_CM_EVENT_CONNECT_REQUEST && event->ibv.id != &id->ibv)
            soft_cm_discard(((struct soft_cm_id *)event->ibv.id)->handle);
        free(event);
        event = next;
    }
    pthread_mutex_lock(&id->event_lock);
    while (__atomic_load_n(&id->events_given, __ATOMIC_ACQUIRE) != id->events_acked)
        pthread_cond_wait(&id->event_cond, &id->event_lock);
    pthread_mutex_unlock(&id->event_lock);
}

/* The id's queued and future events go to another channel. */
void soft_cm_move_events(struct soft_cm_id *id, struct rdma_event_channel *channel)
{
    struct soft_cm_event *event;

    pthread_mutex_lock(&id->event_lock);
    event = remove_events((struct soft_event_channel *)id->ibv.channel, id);
    id->ibv.channel = channel;
    while (event != NULL) {
        struct soft_cm_event *next = event->next;

        append((struct soft_event_channel *)channel, event);
        event = next;
    }
    pthread_mutex_unlock(&id->event_lock);
}

/*
 * For an id without a channel of the application's: wait for the event of the call just made, and
 * turn it into the call's result.
 */
int soft_cm_complete(struct soft_cm_id *id)
{
    struct rdma_cm_event *event;

    if (!id->sync)
        return 0;
    if (id->ibv.event != NULL) {
        rdma_ack_cm_event(id->ibv.event);
        id->ibv.event = NULL;
    }
    if (rdma_get_cm_event(id->ibv.channel, &id->ibv.event) < 0)
        return -1;
    event = id->ibv.event;
    if (event->status == 0)
        return 0;
    if (event->event == RDMA_CM_EVENT_REJECTED)
        return soft_errno(ECONNREFUSED);
    return soft_errno(event->status < 0 ? -event->status : event->status);
}
