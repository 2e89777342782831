/* SPDX-License-Identifier: BSD-2-Clause */
/* device -- an RDMA device that connections have arrived on, and what they share there */
#include "device.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "connection.h"
#include "log.h"
#include "verbs.h"

#define POLL_BATCH 32

static void completions_ready(struct target *t, void *object)
{
    struct device *d = object;

    (void)t;
    /* The loop polls the completion queue after each wake-up; here only the event is taken. */
    if (rblk_cq_event_take(d->channel, d->cq))
        d->armed = false;
}

static void async_ready(struct target *t, void *object)
{
    struct device *d = object;
    struct ibv_async_event event;

    while (ibv_get_async_event(d->verbs, &event) == 0) {
        /*
         * At the end of a connection these are ordinary; the queue pair's own end is handled
         * elsewhere.
         */
        log_debug("%s: %s", ibv_get_device_name(d->verbs->device),
                  ibv_event_type_str(event.event_type));
        if (event.event_type == IBV_EVENT_QP_ACCESS_ERR || event.event_type == IBV_EVENT_QP_REQ_ERR)
            counter_add(&t->counters.protocol_errors, 1);
        ibv_ack_async_event(&event);
    }
}

static void device_free(struct device *d)
{
    if (!d)
        return;
    event_source_remove(d->target, &d->completions);
    event_source_remove(d->target, &d->async_events);
    if (d->cq)
        ibv_destroy_cq(d->cq);
    if (d->channel)
        ibv_destroy_comp_channel(d->channel);
    if (d->control_pd)
        ibv_dealloc_pd(d->control_pd);
    free(d);
}

/* The completion queue has room for every work request of every connection it may serve. */
static int create_control_cq(struct device *d, const struct config *config)
{
    uint64_t entries = config->max_clients * CONNECTION_WORK_REQUESTS;

    if (entries > (uint64_t)d->limits.max_cqe)
        entries = (uint64_t)d->limits.max_cqe;
    d->max_connections = (unsigned int)(entries / CONNECTION_WORK_REQUESTS);
    if (d->max_connections == 0)
        return -ENOSPC;
    d->channel = ibv_create_comp_channel(d->verbs);
    if (!d->channel)
        return -errno;
    if (rblk_fd_nonblock(d->channel->fd))
        return -errno;
    d->cq = ibv_create_cq(d->verbs, (int)entries, d, d->channel, 0);
    if (!d->cq)
        return -errno;
    return 0;
}

static int device_create(struct target *t, struct ibv_context *verbs, struct device **out)
{
    struct device *d = calloc(1, sizeof(*d));
    int rc;

    if (!d)
        return -ENOMEM;
    d->target = t;
    d->verbs = verbs;
    d->completions = (struct event_source){.fd = -1};
    d->async_events = (struct event_source){.fd = -1};
    rc = ibv_query_device(verbs, &d->limits);
    if (rc) {
        rc = -rc;
        goto fail;
    }
    d->control_pd = ibv_alloc_pd(verbs);
    if (!d->control_pd) {
        rc = -errno;
        goto fail;
    }
    rc = create_control_cq(d, t->config);
    if (rc)
        goto fail;
    rc = event_source_add(t, &d->completions, d->channel->fd, completions_ready, d);
    if (rc)
        goto fail;
    if (verbs->async_fd >= 0 && rblk_fd_nonblock(verbs->async_fd) == 0) {
        rc = event_source_add(t, &d->async_events, verbs->async_fd, async_ready, d);
        if (rc)
            goto fail;
    }
    *out = d;
    return 0;

fail:
    device_free(d);
    return rc;
}

int device_get(struct target *t, struct ibv_context *verbs, struct device **out)
{
    struct device *d;
    int rc;

    for (d = t->devices; d; d = d->next) {
        if (d->verbs == verbs) {
            *out = d;
            return 0;
        }
    }
    rc = device_create(t, verbs, &d);
    if (rc) {
        log_error("RDMA device %s cannot be used: %s", ibv_get_device_name(verbs->device),
                  strerror(-rc));
        return rc;
    }
    d->next = t->devices;
    t->devices = d;
    *out = d;
    return 0;
}

static bool device_poll(struct device *d)
{
    struct ibv_wc wc[POLL_BATCH];
    int n;

    for (;;) {
        n = ibv_poll_cq(d->cq, POLL_BATCH, wc);
        for (int i = 0; i < n; i++)
            connection_completion(d->target, &wc[i]);
        if (n != 0)
            return n > 0;
        if (d->armed)
            return false;
        /* Asked for first and polled again after, or a completion in between would be missed. */
        if (ibv_req_notify_cq(d->cq, 0))
            return false;
        d->armed = true;
    }
}

bool device_poll_all(struct target *t)
{
    bool more = false;

    for (struct device *d = t->devices; d; d = d->next)
        more |= device_poll(d);
    return more;
}

void device_free_all(struct target *t)
{
    struct device *d, *next;

    for (d = t->devices; d; d = next) {
        next = d->next;
        device_free(d);
    }
    t->devices = NULL;
}

uint8_t device_max_reads(const struct device *d)
{
    /* 255 would mean "the maximum" to librdmacm. */
    if (d->limits.max_qp_rd_atom < 1)
        return 1;
    return d->limits.max_qp_rd_atom > 254 ? 254 : (uint8_t)d->limits.max_qp_rd_atom;
}
