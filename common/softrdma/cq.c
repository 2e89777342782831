/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cq.c -- completion queues
 *
 * A poll that finds the ring empty drives the receive side of a few attached queue pairs itself,
 * so that a thread which waits for completions depends on no other thread.
 */
#include "softrdma.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* How many sockets one empty poll may look at. */
#define LOOKS 2u
/* Polls in a row that found data, after which the worker stops watching the socket. */
#define POLLS_TO_DELEGATE 8u
/* Empty polls in a row after which, and between which, the core is offered to whoever wants it. */
#define POLLS_TO_YIELD 8u

static uint32_t ring_size(uint32_t entries)
{
    uint32_t size = 1;

    while (size < entries)
        size *= 2;
    return size;
}

/*
 * man ibv_create_cq. comp_vector is checked only. Thread-safe.
 */
struct ibv_cq *ibv_create_cq(struct ibv_context *context, int entries, void *cq_context,
                             struct ibv_comp_channel *channel, int comp_vector)
{
    struct soft_cq *cq;

    if (!soft_usable() || entries < 1 || entries > SOFT_MAX_CQE || comp_vector < 0 ||
        comp_vector >= context->num_comp_vectors) {
        errno = soft_usable() ? EINVAL : EIO;
        return NULL;
    }
    cq = calloc(1, sizeof(*cq));
    if (cq == NULL)
        return NULL;
    cq->mask = ring_size((uint32_t)entries) - 1;
    cq->ring = calloc(cq->mask + 1, sizeof(*cq->ring));
    if (cq->ring == NULL) {
        free(cq);
        errno = ENOMEM;
        return NULL;
    }
    cq->ibv.context = context;
    cq->ibv.channel = channel;
    cq->ibv.cq_context = cq_context;
    cq->ibv.cqe = (int)cq->mask + 1;
    pthread_mutex_init(&cq->ibv.mutex, NULL);
    pthread_cond_init(&cq->ibv.cond, NULL);
    pthread_mutex_init(&cq->lock, NULL);
    cq->channel = (struct soft_channel *)channel;
    if (cq->channel != NULL) {
        pthread_mutex_lock(&cq->channel->lock);
        cq->channel->cqs++;
        channel->refcnt++;
        pthread_mutex_unlock(&cq->channel->lock);
    }
    return &cq->ibv;
}

/* man ibv_destroy_cq: EBUSY while queue pairs use it; waits until all its events are acked. */
int ibv_destroy_cq(struct ibv_cq *ibcq)
{
    struct soft_cq *cq = (struct soft_cq *)ibcq;

    if (cq == NULL)
        return EINVAL;
    if (atomic_load(&cq->users) > 0)
        return EBUSY;
    if (cq->channel != NULL) {
        uint32_t delivered;

        soft_channel_forget(cq->channel, cq);
        pthread_mutex_lock(&cq->channel->lock);
        delivered = cq->events_delivered;
        cq->channel->cqs--;
        cq->channel->ibv.refcnt--;
        pthread_mutex_unlock(&cq->channel->lock);
        pthread_mutex_lock(&ibcq->mutex);
        while (ibcq->comp_events_completed != delivered)
            pthread_cond_wait(&ibcq->cond, &ibcq->mutex);
        pthread_mutex_unlock(&ibcq->mutex);
    }
    soft_async_forget(ibcq->context, cq);
    pthread_mutex_destroy(&cq->lock);
    pthread_mutex_destroy(&ibcq->mutex);
    pthread_cond_destroy(&ibcq->cond);
    free(cq->ring);
    free(cq);
    return 0;
}

/* man ibv_ack_cq_events. */
void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int count)
{
    pthread_mutex_lock(&cq->mutex);
    cq->comp_events_completed += count;
    pthread_cond_broadcast(&cq->cond);
    pthread_mutex_unlock(&cq->mutex);
}

/* Add a completion, and a completion event when the queue is armed for it. Leaf locks only. */
void soft_cq_push(struct soft_cq *cq, const struct ibv_wc *wc, bool solicited)
{
    bool fire = false, overflow = false;
    uint32_t count;

    pthread_mutex_lock(&cq->lock);
    count = atomic_load_explicit(&cq->count, memory_order_relaxed);
    if (count > cq->mask) {
        overflow = !atomic_exchange(&cq->failed, true);
    } else {
        cq->ring[(cq->head + count) & cq->mask] = *wc;
        atomic_store_explicit(&cq->count, count + 1, memory_order_release);
    }
    if (cq->armed == SOFT_CQ_ARMED ||
        (cq->armed == SOFT_CQ_SOLICITED && (solicited || wc->status != IBV_WC_SUCCESS))) {
        cq->armed = SOFT_CQ_UNARMED;
        fire = true;
    }
    pthread_mutex_unlock(&cq->lock);
    if (overflow)
        soft_async_push(cq->ibv.context, IBV_EVENT_CQ_ERR, cq);
    if (fire && cq->channel != NULL)
        soft_channel_push(cq->channel, cq);
}

static int pop(struct soft_cq *cq, int entries, struct ibv_wc *wc)
{
    uint32_t count, take;

    if (atomic_load_explicit(&cq->count, memory_order_acquire) == 0)
        return 0;
    pthread_mutex_lock(&cq->lock);
    count = atomic_load_explicit(&cq->count, memory_order_relaxed);
    take = count < (uint32_t)entries ? count : (uint32_t)entries;
    for (uint32_t i = 0; i < take; i++)
        wc[i] = cq->ring[cq->head++ & cq->mask];
    atomic_store_explicit(&cq->count, count - take, memory_order_relaxed);
    pthread_mutex_unlock(&cq->lock);
    return (int)take;
}

static bool drive_one(uint32_t handle)
{
    struct soft_qp *qp = soft_qp_get(handle);
    bool productive;

    if (qp == NULL)
        return false;
    productive = soft_rx_drive(qp, false);
    if (productive &&
        atomic_fetch_add_explicit(&qp->polls, 1, memory_order_relaxed) == POLLS_TO_DELEGATE) {
        struct soft_channel *channel = qp->send_cq->channel;

        if (channel != NULL && channel == qp->recv_cq->channel &&
            soft_fd_nonblocking(channel->ibv.fd))
            soft_qp_delegate(qp, channel);
        else
            soft_qp_delegate(qp, NULL);
    }
    soft_qp_put(qp);
    return productive;
}

static bool drive(struct soft_cq *cq)
{
    uint32_t used = atomic_load_explicit(&cq->near_used, memory_order_relaxed);
    uint32_t first, looks;
    bool productive = false;

    /* The channel knows all whose sockets it watches, also those that near[] had no room for. */
    if ((used > LOOKS || atomic_load_explicit(&cq->strangers, memory_order_relaxed) > 0) &&
        cq->channel != NULL &&
        atomic_load_explicit(&cq->channel->delegated, memory_order_relaxed) > 0)
        return soft_channel_drive(cq->channel) > 0;
    if (used == 0)
        return false;
    looks = used < LOOKS ? used : LOOKS;
    first = used <= LOOKS ? 0 : atomic_fetch_add_explicit(&cq->turn, looks, memory_order_relaxed);
    for (uint32_t i = 0; i < looks; i++) {
        uint32_t handle = atomic_load_explicit(&cq->near[(first + i) % used], memory_order_relaxed);

        if (handle != 0 && drive_one(handle))
            productive = true;
    }
    return productive;
}

/* The poll_cq operation: man ibv_poll_cq. Thread-safe; never blocks. */
int soft_cq_poll(struct ibv_cq *ibcq, int entries, struct ibv_wc *wc)
{
    struct soft_cq *cq = (struct soft_cq *)ibcq;
    int n;

    if (entries <= 0 || !soft_usable())
        return entries == 0 ? 0 : -EINVAL;
    n = pop(cq, entries, wc);
    if (n == 0 && atomic_load_explicit(&cq->failed, memory_order_relaxed))
        return -EIO;
    if (n == 0 && drive(cq))
        n = pop(cq, entries, wc);
    if (n > 0) {
        atomic_store_explicit(&cq->empty_polls, 0, memory_order_relaxed);
        return n;
    }
    /* A thread that spins here may keep the very thread from running that would end its wait. */
    if (atomic_fetch_add_explicit(&cq->empty_polls, 1, memory_order_relaxed) % POLLS_TO_YIELD ==
        POLLS_TO_YIELD - 1)
        sched_yield();
    return 0;
}

/* The application may sleep now: sockets that only its polling looked at go to their workers. */
static void give_back_polled(struct soft_cq *cq)
{
    uint32_t used = atomic_load_explicit(&cq->near_used, memory_order_relaxed);

    for (uint32_t i = 0; i < used; i++) {
        struct soft_qp *qp = soft_qp_get(atomic_load_explicit(&cq->near[i], memory_order_relaxed));

        if (qp == NULL)
            continue;
        pthread_mutex_lock(&qp->tx_lock);
        if (qp->owner == SOFT_OWNER_POLLER)
            soft_qp_undelegate(qp);
        pthread_mutex_unlock(&qp->tx_lock);
        soft_qp_put(qp);
    }
}

static void delegate_hinted(struct soft_cq *cq)
{
    uint32_t handle = atomic_exchange_explicit(&cq->delegate_hint, 0, memory_order_relaxed);
    struct soft_qp *qp = handle != 0 ? soft_qp_get(handle) : NULL;

    if (qp == NULL)
        return;
    if (qp->send_cq->channel == cq->channel && qp->recv_cq->channel == cq->channel &&
        soft_fd_nonblocking(cq->channel->ibv.fd))
        soft_qp_delegate(qp, cq->channel);
    soft_qp_put(qp);
}

/* The req_notify_cq operation: man ibv_req_notify_cq. Thread-safe. */
int soft_cq_notify(struct ibv_cq *ibcq, int solicited_only)
{
    struct soft_cq *cq = (struct soft_cq *)ibcq;

    if (!soft_usable())
        return EIO;
    if (cq->channel == NULL)
        return EINVAL;
    pthread_mutex_lock(&cq->lock);
    if (!solicited_only)
        cq->armed = SOFT_CQ_ARMED;
    else if (cq->armed == SOFT_CQ_UNARMED)
        cq->armed = SOFT_CQ_SOLICITED;
    pthread_mutex_unlock(&cq->lock);
    if (atomic_load_explicit(&cq->polled, memory_order_relaxed) > 0)
        give_back_polled(cq);
    if (atomic_load_explicit(&cq->delegate_hint, memory_order_relaxed) != 0)
        delegate_hinted(cq);
    return 0;
}

/* A queue pair begins to use the queue. */
void soft_cq_attach(struct soft_cq *cq, uint32_t handle)
{
    uint32_t slot = 0;

    atomic_fetch_add(&cq->users, 1);
    pthread_mutex_lock(&cq->lock);
    while (slot < SOFT_NEAR_QPS && atomic_load(&cq->near[slot]) != 0)
        slot++;
    if (slot < SOFT_NEAR_QPS) {
        atomic_store(&cq->near[slot], handle);
        if (atomic_load(&cq->near_used) <= slot)
            atomic_store(&cq->near_used, slot + 1);
    } else {
        atomic_fetch_add(&cq->strangers, 1);
    }
    pthread_mutex_unlock(&cq->lock);
}

/* A queue pair is destroyed: its completions that nobody polled go with it. */
void soft_cq_detach(struct soft_cq *cq, uint32_t handle)
{
    uint32_t count, kept = 0, used, slot = 0;

    pthread_mutex_lock(&cq->lock);
    while (slot < SOFT_NEAR_QPS && atomic_load(&cq->near[slot]) != handle)
        slot++;
    if (slot < SOFT_NEAR_QPS)
        atomic_store(&cq->near[slot], 0);
    else
        atomic_fetch_sub(&cq->strangers, 1);
    used = atomic_load(&cq->near_used);
    while (used > 0 && atomic_load(&cq->near[used - 1]) == 0)
        used--;
    atomic_store(&cq->near_used, used);
    count = atomic_load(&cq->count);
    for (uint32_t i = 0; i < count; i++) {
        struct ibv_wc *wc = &cq->ring[(cq->head + i) & cq->mask];

        if (wc->qp_num != handle)
            cq->ring[(cq->head + kept++) & cq->mask] = *wc;
    }
    atomic_store(&cq->count, kept);
    pthread_mutex_unlock(&cq->lock);
    atomic_fetch_sub(&cq->users, 1);
}
