/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cm_mpa.c -- connections in the making: accept, connect, the MPA handshake and its deadlines
 *
 * Runs on worker 0, in soft_cm_event() and soft_cm_deadlines(), with a reference to the id and
 * its lock; a few functions are called by the application's rdma_accept() and the like.
 */
#include "cm.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define DEADLINE_BATCH 4096u
#define ACCEPT_BATCH 64
/* A listener that cannot accept for want of descriptors or memory is left alone for so long. */
#define ACCEPT_PAUSE_MS 100u

/* Ids with a deadline, the newest first. */
static pthread_mutex_t wait_lock = PTHREAD_MUTEX_INITIALIZER;
static struct soft_cm_id *wait_list, *wait_tail;

/* Have soft_cm_deadlines() watch id->deadline_us, as it is now. */
void soft_cm_wait_add(struct soft_cm_id *id)
{
    struct soft_worker *worker = soft_worker_cm();

    pthread_mutex_lock(&wait_lock);
    id->wait_until_us = id->deadline_us;
    if (!id->waiting) {
        id->waiting = true;
        id->wait_previous = NULL;
        id->wait_next = wait_list;
        if (wait_list != NULL)
            wait_list->wait_previous = id;
        else
            wait_tail = id;
        wait_list = id;
    }
    pthread_mutex_unlock(&wait_lock);
    atomic_store(&worker->cm_waiting, true);
    soft_worker_wake(worker);
}

/* No more. */
void soft_cm_wait_remove(struct soft_cm_id *id)
{
    pthread_mutex_lock(&wait_lock);
    if (id->waiting) {
        id->waiting = false;
        if (id->wait_previous != NULL)
            id->wait_previous->wait_next = id->wait_next;
        else
            wait_list = id->wait_next;
        if (id->wait_next != NULL)
            id->wait_next->wait_previous = id->wait_previous;
        else
            wait_tail = id->wait_previous;
    }
    pthread_mutex_unlock(&wait_lock);
}

/* Watch the id's socket on worker 0. Returns 0 or a negative errno. id->lock held. */
int soft_cm_watch(struct soft_cm_id *id, uint32_t events)
{
    struct epoll_event event = {
        .events = events,
        .data.u64 = soft_poll_data(SOFT_POLL_CM, id->handle),
    };

    if (epoll_ctl(soft_worker_cm()->epoll_fd, id->watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, id->fd,
                  &event) < 0)
        return -errno;
    id->watched = true;
    return 0;
}

/* Stop watching. id->lock held. */
void soft_cm_unwatch(struct soft_cm_id *id)
{
    if (id->watched)
        epoll_ctl(soft_worker_cm()->epoll_fd, EPOLL_CTL_DEL, id->fd, NULL);
    id->watched = false;
}

static void close_socket(struct soft_cm_id *id)
{
    soft_cm_unwatch(id);
    soft_cm_wait_remove(id);
    if (id->fd >= 0)
        close(id->fd);
    id->fd = -1;
}

/* The listener has one connection less to hold for the application. id->lock held. */
void soft_cm_release_listener(struct soft_cm_id *id)
{
    struct soft_cm_id *listener = soft_cm_get(id->listener);

    id->listener = 0;
    if (listener == NULL)
        return;
    atomic_fetch_sub(&listener->pending, 1);
    soft_cm_put(listener);
}

/* The kernel's mapping of an iWARP connect result to events. */
static enum rdma_cm_event_type failure_event(int status)
{
    switch (status) {
    case -ECONNREFUSED:
        return RDMA_CM_EVENT_REJECTED;
    case -ETIMEDOUT:
    case -EHOSTUNREACH:
    case -ENETUNREACH:
        return RDMA_CM_EVENT_UNREACHABLE;
    default:
        return RDMA_CM_EVENT_CONNECT_ERROR;
    }
}

static void connect_failed(struct soft_cm_id *id, enum rdma_cm_event_type type, int status)
{
    struct soft_cm_event *event = soft_cm_event_new(id, type, status);

    close_socket(id);
    id->state = SOFT_CM_FAILED;
    if (event == NULL)
        return;
    memcpy(event->private_data, id->private_data, id->private_length);
    event->ibv.param.conn.private_data = id->private_length > 0 ? event->private_data : NULL;
    event->ibv.param.conn.private_data_len = id->private_length;
    soft_cm_event_push(event);
}

static int send_all(int fd, const void *data, size_t length)
{
    /* A fresh socket takes a frame of a few hundred bytes at once, or something is wrong. */
    ssize_t n = send(fd, data, length, MSG_DONTWAIT | MSG_NOSIGNAL);

    if (n < 0)
        return -errno;
    return n == (ssize_t)length ? 0 : -ECONNABORTED;
}

static size_t build_frame(uint8_t *out, bool reply, const struct iwarp_mpa *head,
                          const struct iwarp_mpa_v2 *v2, const void *private_data, uint8_t length)
{
    struct iwarp_mpa mpa = *head;
    size_t at = IWARP_MPA_FIXED;

    mpa.private_length = length;
    if (v2 != NULL)
        mpa.private_length += IWARP_MPA_V2;
    iwarp_mpa_encode(out, reply, &mpa);
    if (v2 != NULL) {
        iwarp_mpa_v2_encode(out + at, v2);
        at += IWARP_MPA_V2;
    }
    if (length > 0)
        memcpy(out + at, private_data, length);
    return at + length;
}

/* Ready-to-receive frame for a peer that asked for peer-to-peer mode: a Write if it offers one. */
static void choose_ready_frame(const struct iwarp_mpa_v2 *offer, struct iwarp_mpa_v2 *answer)
{
    if (!offer->peer_to_peer)
        return;
    answer->peer_to_peer = true;
    answer->rtr_write = offer->rtr_write;
    answer->rtr_read = !offer->rtr_write && offer->rtr_read;
    answer->rtr_send = !offer->rtr_write && !offer->rtr_read && offer->rtr_send;
}

/*
 * Answer an MPA request. reject: with the R flag. id->lock held. Returns 0 or a negative errno.
 */
int soft_cm_send_reply(struct soft_cm_id *id, bool reject, const void *private_data, uint8_t length)
{
    uint8_t frame[SOFT_MPA_BUFFER];
    struct iwarp_mpa mpa = {
        .flags = (uint16_t)((id->mpa.flags & (IWARP_MPA_ENHANCED | IWARP_MPA_CRC)) |
                            (reject ? IWARP_MPA_REJECT : 0) | (id->crc ? IWARP_MPA_CRC : 0)),
        .revision = id->mpa.revision,
    };
    struct iwarp_mpa_v2 v2 = {.ird = (uint16_t)id->ird, .ord = (uint16_t)id->ord};
    size_t size;

    if (id->enhanced && !reject)
        choose_ready_frame(&id->v2, &v2);
    size = build_frame(frame, true, &mpa, id->enhanced ? &v2 : NULL, private_data, length);
    return send_all(id->fd, frame, size);
}

static int send_request(struct soft_cm_id *id)
{
    uint8_t frame[SOFT_MPA_BUFFER];
    const struct iwarp_mpa mpa = {
        .flags = (uint16_t)(IWARP_MPA_ENHANCED | (soft_config.crc ? IWARP_MPA_CRC : 0)),
        .revision = IWARP_MPA_REVISION,
    };
    const struct iwarp_mpa_v2 v2 = {.ird = (uint16_t)id->ird, .ord = (uint16_t)id->ord};
    size_t size = build_frame(frame, false, &mpa, &v2, id->private_data, id->private_length);

    return send_all(id->fd, frame, size);
}

/*
 * The stream is agreed on: hand it to the queue pair. id->lock held. Returns 0 or a negative
 * errno; on success the descriptor is the queue pair's.
 */
int soft_cm_attach(struct soft_cm_id *id, bool passive)
{
    struct soft_attach attach = {
        .fd = id->fd,
        .crc = id->crc,
        .ird = id->ird,
        .ord = id->ord,
        .cm_handle = id->handle,
        .establish_on_first = passive && id->enhanced && id->v2.peer_to_peer,
        .passive = passive,
    };
    struct soft_qp *qp = soft_qp_get(id->own_qp);
    int r;

    if (qp == NULL)
        return -EINVAL;
    soft_cm_unwatch(id);
    soft_cm_wait_remove(id);
    r = soft_qp_attach(qp, &attach);
    soft_qp_put(qp);
    if (r == 0) {
        id->fd = -1;
        id->state = SOFT_CM_CONNECTED;
    }
    return r;
}

/* In peer-to-peer mode the passive side is established by the peer's first frame. */
void soft_cm_qp_first_fpdu(uint32_t handle)
{
    struct soft_cm_id *id = soft_cm_get(handle);

    if (id == NULL)
        return;
    soft_cm_announce_established(id);
    soft_cm_put(id);
}

/*
 * Read the peer's frame as far as it has come, and never a byte beyond it.
 * Returns 1 when it is complete, 0 when more is to come, or a negative errno.
 */
static int receive_frame(struct soft_cm_id *id, bool reply)
{
    for (;;) {
        ssize_t n =
            recv(id->fd, id->buffer + id->received, id->wanted - id->received, MSG_DONTWAIT);

        if (n == 0)
            return -ECONNRESET;
        if (n < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : -errno;
        id->received += (uint32_t)n;
        if (id->received < id->wanted)
            continue;
        if (id->wanted == IWARP_MPA_FIXED) {
            if (iwarp_mpa_decode(id->buffer, reply, &id->mpa) < 0)
                return -EPROTO;
            id->wanted += id->mpa.private_length;
        }
        if (id->received == id->wanted)
            return 1;
    }
}

/* Validate a complete frame and take it apart. Returns 0 or -EPROTO. */
static int parse_frame(struct soft_cm_id *id)
{
    uint32_t length = id->mpa.private_length;
    const uint8_t *data = id->buffer + IWARP_MPA_FIXED;

    if (id->mpa.revision < 1 || id->mpa.revision > IWARP_MPA_REVISION ||
        (id->mpa.flags & IWARP_MPA_MARKERS))
        return -EPROTO;
    id->enhanced = id->mpa.revision == IWARP_MPA_REVISION && (id->mpa.flags & IWARP_MPA_ENHANCED);
    if (id->enhanced) {
        if (length < IWARP_MPA_V2)
            return -EPROTO;
        iwarp_mpa_v2_decode(data, &id->v2);
        data += IWARP_MPA_V2;
        length -= IWARP_MPA_V2;
    }
    if (length > SOFT_MAX_PRIVATE)
        return -EPROTO;
    memcpy(id->private_data, data, length);
    id->private_length = (uint8_t)length;
    return 0;
}

static void handle_reply(struct soft_cm_id *id)
{
    int r = receive_frame(id, true);

    if (r == 0)
        return;
    id->private_length = 0;
    if (r > 0)
        r = parse_frame(id);
    if (r < 0) {
        connect_failed(id, RDMA_CM_EVENT_CONNECT_ERROR, r);
        return;
    }
    if (id->mpa.flags & IWARP_MPA_REJECT) {
        connect_failed(id, RDMA_CM_EVENT_REJECTED, -ECONNREFUSED);
        return;
    }
    id->crc = soft_config.crc || (id->mpa.flags & IWARP_MPA_CRC);
    if (id->enhanced) {
        id->ird = id->v2.ord < SOFT_MAX_RD_ATOMIC ? id->v2.ord : SOFT_MAX_RD_ATOMIC;
        id->ord = id->v2.ird < id->ord ? id->v2.ird : id->ord;
    }
    if (id->own_qp == 0) {
        soft_cm_unwatch(id);
        soft_cm_wait_remove(id);
        id->state = SOFT_CM_RESPONSE;
        soft_cm_announce(id, RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
        return;
    }
    r = soft_cm_attach(id, false);
    if (r < 0)
        connect_failed(id, RDMA_CM_EVENT_CONNECT_ERROR, r);
    else
        soft_cm_announce_established(id);
}

static void handle_connected(struct soft_cm_id *id)
{
    int error = 0;
    socklen_t length = sizeof(error);

    if (getsockopt(id->fd, SOL_SOCKET, SO_ERROR, &error, &length) < 0)
        error = errno;
    soft_cm_set_addresses(id);
    if (error == 0)
        error = -send_request(id);
    id->private_length = 0;
    if (error != 0) {
        connect_failed(id, failure_event(-error), -error);
        return;
    }
    id->received = 0;
    id->wanted = IWARP_MPA_FIXED;
    id->state = SOFT_CM_REPLY_WAIT;
    error = -soft_cm_watch(id, EPOLLIN);
    if (error != 0)
        connect_failed(id, RDMA_CM_EVENT_CONNECT_ERROR, -error);
}

static int announce_request(struct soft_cm_id *id)
{
    struct soft_cm_id *listener = soft_cm_get(id->listener);
    struct soft_cm_event *event;

    if (listener == NULL)
        return -ECANCELED;
    event = soft_cm_event_new(id, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
    if (event == NULL) {
        soft_cm_put(listener);
        return -ENOMEM;
    }
    event->owner = listener;
    event->ibv.listen_id = &listener->ibv;
    memcpy(event->private_data, id->private_data, id->private_length);
    event->ibv.param.conn.private_data = id->private_length > 0 ? event->private_data : NULL;
    event->ibv.param.conn.private_data_len = id->private_length;
    event->ibv.param.conn.responder_resources = (uint8_t)id->ird;
    event->ibv.param.conn.initiator_depth = (uint8_t)id->ord;
    soft_cm_event_push(event);
    soft_cm_put(listener);
    return 0;
}

/* Returns a negative errno when the connection is to be dropped. */
static int handle_request(struct soft_cm_id *id)
{
    int r = receive_frame(id, false);

    if (r <= 0)
        return r;
    r = parse_frame(id);
    if (r < 0)
        return r;
    id->crc = soft_config.crc || (id->mpa.flags & IWARP_MPA_CRC);
    id->ird = id->ord = SOFT_MAX_RD_ATOMIC;
    if (id->enhanced) {
        id->ird = id->v2.ord < SOFT_MAX_RD_ATOMIC ? id->v2.ord : SOFT_MAX_RD_ATOMIC;
        id->ord = id->v2.ird < SOFT_MAX_RD_ATOMIC ? id->v2.ird : SOFT_MAX_RD_ATOMIC;
    }
    soft_cm_unwatch(id);
    soft_cm_wait_remove(id);
    id->state = SOFT_CM_REQUEST;
    return announce_request(id);
}

/*
 * Drop the oldest connection that has not made its request, of one listener or of all (0): who says
 * nothing does not keep out those who would. Returns whether there was one. On worker 0, which alone
 * moves such a connection on.
 */
static bool evict_silent(uint32_t listener)
{
    uint32_t handle = 0;

    pthread_mutex_lock(&wait_lock);
    for (struct soft_cm_id *id = wait_tail; id != NULL && handle == 0; id = id->wait_previous)
        if (id->listener != 0 && (listener == 0 || id->listener == listener))
            handle = id->handle;
    pthread_mutex_unlock(&wait_lock);
    if (handle == 0)
        return false;
    soft_debug("a silent connection is dropped for a new one");
    soft_cm_discard(handle);
    return true;
}

static void accept_one(struct soft_cm_id *listener, int fd)
{
    struct soft_cm_id *id;

    if (atomic_load(&listener->pending) >= listener->backlog && !evict_silent(listener->handle)) {
        soft_debug("listener full: connection dropped");
        close(fd);
        return;
    }
    id = soft_cm_create(listener->ibv.channel, listener->ibv.context, listener->ibv.ps);
    if (id == NULL) {
        close(fd);
        return;
    }
    pthread_mutex_lock(&id->lock);
    id->fd = fd;
    id->ibv.verbs = soft_default_context();
    id->ibv.port_num = 1;
    id->listener = listener->handle;
    id->state = SOFT_CM_REQUEST_WAIT;
    id->wanted = IWARP_MPA_FIXED;
    id->deadline_us = soft_now_us() + SOFT_REQUEST_MS * 1000u;
    atomic_fetch_add(&listener->pending, 1);
    soft_cm_set_socket_options(listener, fd);
    soft_cm_set_addresses(id);
    if (soft_cm_watch(id, EPOLLIN) < 0)
        id->deadline_us = 0; /* dropped at the next look at deadlines */
    soft_cm_wait_add(id);
    pthread_mutex_unlock(&id->lock);
}

/* The connections stay in the kernel's queue meanwhile, and epoll says nothing of them. */
static void pause_listener(struct soft_cm_id *listener)
{
    soft_debug("listener pauses: %s", strerror(errno));
    soft_cm_unwatch(listener);
    listener->deadline_us = soft_now_us() + ACCEPT_PAUSE_MS * 1000u;
    soft_cm_wait_add(listener);
}

static void handle_accept(struct soft_cm_id *listener)
{
    for (int i = 0; i < ACCEPT_BATCH; i++) {
        int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd >= 0) {
            accept_one(listener, fd);
            continue;
        }
        if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM)
            return;
        if (!evict_silent(0)) {
            pause_listener(listener);
            return;
        }
    }
}

/* Worker 0: something happened on the socket of an id. */
void soft_cm_event(uint32_t handle, uint32_t events)
{
    struct soft_cm_id *id = soft_cm_get(handle);
    bool discard = false;

    (void)events;
    if (id == NULL)
        return;
    pthread_mutex_lock(&id->lock);
    switch (id->state) {
    case SOFT_CM_LISTEN:
        handle_accept(id);
        break;
    case SOFT_CM_CONNECTING:
        handle_connected(id);
        break;
    case SOFT_CM_REPLY_WAIT:
        handle_reply(id);
        break;
    case SOFT_CM_REQUEST_WAIT:
        discard = handle_request(id) < 0;
        break;
    default:
        soft_cm_unwatch(id);
        break;
    }
    pthread_mutex_unlock(&id->lock);
    soft_cm_put(id);
    if (discard)
        soft_cm_discard(handle);
}

static void expire(uint32_t handle, uint64_t now_us)
{
    struct soft_cm_id *id = soft_cm_get(handle);
    bool discard = false;

    if (id == NULL)
        return;
    pthread_mutex_lock(&id->lock);
    if (now_us >= id->deadline_us) {
        id->private_length = 0;
        if (id->state == SOFT_CM_CONNECTING)
            connect_failed(id, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
        else if (id->state == SOFT_CM_REPLY_WAIT)
            connect_failed(id, RDMA_CM_EVENT_CONNECT_ERROR, -ETIMEDOUT);
        else if (id->state == SOFT_CM_REQUEST_WAIT)
            discard = true;
        else
            soft_cm_wait_remove(id);
        if (id->state == SOFT_CM_LISTEN && soft_cm_watch(id, EPOLLIN) < 0)
            pause_listener(id);
    }
    pthread_mutex_unlock(&id->lock);
    soft_cm_put(id);
    if (discard)
        soft_cm_discard(handle);
}

/* Worker 0: end what took too long. Returns whether any deadline is left to watch. */
bool soft_cm_deadlines(uint64_t now_us)
{
    uint32_t handles[DEADLINE_BATCH];
    uint32_t count = 0;
    bool left;

    pthread_mutex_lock(&wait_lock);
    for (struct soft_cm_id *id = wait_tail; id != NULL && count < DEADLINE_BATCH;
         id = id->wait_previous)
        if (now_us >= id->wait_until_us)
            handles[count++] = id->handle;
    pthread_mutex_unlock(&wait_lock);
    for (uint32_t i = 0; i < count; i++)
        expire(handles[i], now_us);
    pthread_mutex_lock(&wait_lock);
    left = wait_list != NULL;
    pthread_mutex_unlock(&wait_lock);
    return left;
}

/* A listener is gone: drop the handshakes that it began. */
void soft_cm_discard_children(uint32_t listener)
{
    for (;;) {
        uint32_t handle = 0;

        pthread_mutex_lock(&wait_lock);
        for (struct soft_cm_id *id = wait_list; id != NULL && handle == 0; id = id->wait_next)
            if (id->listener == listener)
                handle = id->handle;
        pthread_mutex_unlock(&wait_lock);
        if (handle == 0)
            return;
        soft_cm_discard(handle);
    }
}
