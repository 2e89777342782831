/* SPDX-License-Identifier: BSD-2-Clause */
/* info -- what is known of volume, target and handle: info, list, ping, statistics */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "control.h"
#include "queue.h"

int rblk_get_info(struct rblk *h, struct rblk_info *info)
{
    const struct rblk_attach_reply *v = &h->volume;
    struct rblk_info i = {0};

    /* Known also when the connection has failed since. */
    if (atomic_load_explicit(&h->state, memory_order_acquire) != RBLK_HANDLE_VOLUME)
        return rblk_check_volume(h);
    snprintf(i.volume, sizeof(i.volume), "%s", h->uri.volume);
    snprintf(i.target, sizeof(i.target), "%s", h->conn->hello.target);
    snprintf(i.address, sizeof(i.address), "%s", h->conn->address);
    snprintf(i.device, sizeof(i.device), "%s", ibv_get_device_name(h->verbs->device));
    memcpy(i.uuid, v->uuid, sizeof(i.uuid));
    i.size = v->size;
    i.extent_size = v->extent_size;
    i.max_io = h->queue[0]->max_io;
    i.max_inline = v->max_inline;
    i.queues = h->queue_count;
    i.queue_depth = h->queue[0]->depth;
    i.read_only = h->options.mode == RBLK_MODE_RO || (v->flags & RBLK_VOLUME_RO);
    i.can_flush = true;
    i.can_fua = !(v->flags & RBLK_VOLUME_RO);
    *info = i;
    return 0;
}

uint64_t rblk_get_size(const struct rblk *h)
{
    return atomic_load_explicit(&h->state, memory_order_acquire) == RBLK_HANDLE_VOLUME
               ? h->volume.size
               : 0;
}

bool rblk_is_connected(const struct rblk *h)
{
    return atomic_load_explicit(&h->state, memory_order_acquire) != RBLK_HANDLE_NEW &&
           !rblk_conn_failed(h->conn);
}

struct rblk_queue *rblk_get_queue(struct rblk *h, unsigned int i)
{
    if (atomic_load_explicit(&h->state, memory_order_acquire) != RBLK_HANDLE_VOLUME ||
        i >= h->queue_count)
        return NULL;
    return h->queue[i];
}

/* -- control requests ------------------------------------------------------------------------ */

/* Keeps the text of a request that failed. */
static int request_failed(struct rblk *h, int rc, const char *what, const char *detail)
{
    if (detail[0])
        return rblk_fail(h, rc, "%s refuses %s: %s", h->conn->address, what, detail);
    if (rblk_check_target(h))
        return -EIO;
    if (rc == -ETIMEDOUT)
        return rblk_fail(h, rc, "%s did not answer %s within %u ms; is its machine overloaded?",
                         h->conn->address, what, h->options.timeout_ms);
    return rblk_fail(h, rc,
                     "%s answered %s in a way that breaks the protocol; is it rblkd of this "
                     "version?",
                     h->conn->address, what);
}

static int list_page(struct rblk *h, uint32_t first, uint64_t deadline_ns,
                     struct rblk_list_reply *reply)
{
    struct rblk_list message = {.first = first};
    char detail[RBLK_DETAIL_MAX + 1] = "";
    struct rblk_call *call;
    uint16_t status;
    int rc = rblk_call_begin(h->conn, &call, deadline_ns);

    if (rc)
        return request_failed(h, rc, "LIST", detail);
    rc = rblk_call_exchange(h->conn, call, rblk_list_encode(call->message, call->tag, &message),
                            deadline_ns, &status, detail);
    if (rc == 0)
        rc = rblk_list_reply_decode(reply, call->reply, call->reply_len);
    rblk_call_end(h->conn, call);
    if (rc == 0 && reply->first != first)
        rc = -EPROTO;
    return rc ? request_failed(h, rc, "LIST", detail) : 0;
}

static void to_volume(struct rblk_volume *volume, const struct rblk_list_entry *entry)
{
    memset(volume, 0, sizeof(*volume));
    snprintf(volume->name, sizeof(volume->name), "%s", entry->name);
    memcpy(volume->uuid, entry->uuid, sizeof(volume->uuid));
    volume->size = entry->size;
    volume->read_only = entry->flags & RBLK_VOLUME_RO;
    volume->failed = entry->flags & RBLK_VOLUME_FAILED;
    volume->attached = entry->flags & RBLK_VOLUME_ATTACHED;
    volume->sessions = entry->sessions;
}

int rblk_list(struct rblk *h, int (*callback)(void *opaque, const struct rblk_volume *volume),
              void *opaque)
{
    struct rblk_list_reply reply;
    uint32_t first = 0;
    uint64_t deadline;
    int rc = rblk_check_target(h);

    if (rc)
        return rc;
    deadline = rblk_deadline_ms(h->options.timeout_ms);
    do {
        rc = list_page(h, first, deadline, &reply);
        if (rc)
            return rc;
        for (uint32_t i = 0; i < reply.count; i++) {
            struct rblk_volume volume;

            to_volume(&volume, &reply.entry[i]);
            if (callback(opaque, &volume))
                return 0;
        }
        first += reply.count;
    } while (reply.count && first < reply.total);
    return 0;
}

/*
 * A request without a body and its reply. decode (NULL: the reply has no body either) fills reply;
 * elapsed gets the time from posting to the answer, ns. Both may be NULL.
 */
static int bodiless_request(struct rblk *h, uint8_t type, const char *name,
                            int (*decode)(struct rblk_stats_reply *, const void *, size_t),
                            struct rblk_stats_reply *reply, uint64_t *elapsed)
{
    char detail[RBLK_DETAIL_MAX + 1] = "";
    struct rblk_call *call;
    uint64_t deadline;
    uint16_t status;
    int rc = rblk_check_target(h);

    if (rc)
        return rc;
    deadline = rblk_deadline_ms(h->options.timeout_ms);
    rc = rblk_call_begin(h->conn, &call, deadline);
    if (rc)
        return request_failed(h, rc, name, detail);
    rc = rblk_call_exchange(h->conn, call, rblk_empty_encode(call->message, type, call->tag),
                            deadline, &status, detail);
    if (rc == 0)
        rc = decode ? decode(reply, call->reply, call->reply_len)
                    : rblk_empty_decode(call->reply, call->reply_len);
    if (rc == 0 && elapsed)
        *elapsed = call->answered_ns - call->sent_ns;
    rblk_call_end(h->conn, call);
    return rc ? request_failed(h, rc, name, detail) : 0;
}

int rblk_ping(struct rblk *h, uint64_t *ns)
{
    return bodiless_request(h, RBLK_PING, "PING", NULL, NULL, ns);
}

int rblk_get_target_stats(struct rblk *h, struct rblk_target_stats *stats)
{
    struct rblk_stats_reply reply;
    int rc = bodiless_request(h, RBLK_STATS, "STATS", rblk_stats_reply_decode, &reply, NULL);

    if (rc)
        return rc;
    *stats = (struct rblk_target_stats){
        .control_messages = reply.control_messages,
        .io_messages = reply.io_messages,
        .writes = reply.writes,
        .write_bytes = reply.write_bytes,
        .flushes = reply.flushes,
        .fua_writes = reply.fua_writes,
        .fdatasyncs = reply.fdatasyncs,
        .errors = reply.errors,
        .extents_mapped = reply.extents_mapped,
        .extent_bytes = reply.extent_bytes,
        .sessions = reply.sessions,
        .queues = reply.queues,
        .protocol_errors = reply.protocol_errors,
        .uptime_ms = reply.uptime_ms,
    };
    return 0;
}

int rblk_get_stats(struct rblk *h, struct rblk_stats *stats)
{
    struct rblk_stats sum = {0};

    if (atomic_load_explicit(&h->state, memory_order_acquire) != RBLK_HANDLE_VOLUME)
        return rblk_check_volume(h);
    for (unsigned int i = 0; i < h->queue_count; i++) {
        struct rblk_queue *q = h->queue[i];

        pthread_mutex_lock(&q->lock);
        sum.reads += q->stats.reads;
        sum.read_bytes += q->stats.read_bytes;
        sum.writes += q->stats.writes;
        sum.write_bytes += q->stats.write_bytes;
        sum.flushes += q->stats.flushes;
        sum.errors += q->stats.errors;
        sum.rdma_reads += q->stats.rdma_reads;
        sum.bounced += q->stats.bounced;
        pthread_mutex_unlock(&q->lock);
    }
    sum.extents_mapped = atomic_load_explicit(&h->extents.held, memory_order_relaxed);
    *stats = sum;
    return 0;
}
