/* SPDX-License-Identifier: BSD-2-Clause */
/* mapping -- asks the target for extents and gives them back (see mapping.h) */
#include "mapping.h"

#include <errno.h>
#include <string.h>

#include "control.h"
#include "queue.h"

/* Extents of one EXTENT_MAP: few enough that the first reader does not wait for the registration of
 * many. */
#define MAP_MAX 16u

void rblk_mapping_init(struct rblk_mapping *m)
{
    memset(m, 0, sizeof(*m));
    m->read_ahead = true;
}

/* -- asking ---------------------------------------------------------------------------------- */

/* The extents from `first` on are REQUESTED already. Without a free slot they become UNMAPPED
 * again: false. */
static bool send_map(struct rblk_conn *conn, uint64_t first, uint32_t count, bool ahead)
{
    struct rblk_mapping *m = &conn->mapping;
    struct rblk_extent_map message = {.first = first, .count = count};

    for (unsigned int i = 0; i < RBLK_MAPS_MAX; i++) {
        struct rblk_call *call;
        size_t len;

        if (m->map[i].count)
            continue;
        call = rblk_call_take(conn, RBLK_CALL_MAP_FIRST + i);
        if (!call)
            continue;
        m->map[i].first = first;
        m->map[i].count = count;
        m->map[i].ahead = ahead;
        len = rblk_extent_map_encode(call->message, call->tag, &message);
        rblk_call_post(conn, call, len);
        return true;
    }
    for (uint32_t i = 0; i < count; i++)
        rblk_extents_forget(&conn->h->extents, first + i);
    return false;
}

/* Sends what the queues wait for; true when some of it had to be left for later. */
static bool ask_for_wanted(struct rblk_conn *conn)
{
    struct rblk *h = conn->h;
    uint64_t index[MAP_MAX];
    bool left = false;

    for (unsigned int i = 0; i < h->queue_count; i++) {
        uint32_t n = rblk_read_wanted(h->queue[i], index, MAP_MAX), run;

        /* There may be more in a queue than one message carries. */
        left |= n == MAP_MAX;
        for (uint32_t at = 0; at < n; at += run) {
            for (run = 1; at + run < n && index[at + run] == index[at] + run; run++)
                ;
            left |= !send_map(conn, index[at], run, false);
        }
    }
    return left;
}

static void ask_ahead(struct rblk_conn *conn)
{
    struct rblk_mapping *m = &conn->mapping;
    struct rblk_extents *e = &conn->h->extents;
    uint64_t first = m->ahead_first;
    uint32_t count = 0;

    while (count < m->ahead_count && first + count < e->count &&
           rblk_extents_request(e, first + count))
        count++;
    m->ahead_count = 0;
    if (count)
        send_map(conn, first, count, true);
}

/* -- answers --------------------------------------------------------------------------------- */

static void resume_queues(struct rblk_conn *conn, uint64_t first, uint32_t count, int error)
{
    struct rblk *h = conn->h;

    for (unsigned int i = 0; i < h->queue_count; i++)
        rblk_read_resume(h->queue[i], first, count, error);
}

static void map_refused(struct rblk_conn *conn, uint64_t first, uint32_t count, bool ahead,
                        int error)
{
    struct rblk_mapping *m = &conn->mapping;

    for (uint32_t i = 0; i < count; i++)
        rblk_extents_forget(&conn->h->extents, first + i);
    m->read_ahead = false;
    if (ahead)
        /* Whoever came to wait for one of these meanwhile asks in his own name. */
        atomic_store_explicit(&m->wanted, true, memory_order_release);
    else
        resume_queues(conn, first, count, error);
}

void rblk_mapping_mapped(struct rblk_conn *conn, unsigned int slot, uint16_t status,
                         const struct rblk_call *call)
{
    struct rblk_mapping *m = &conn->mapping;
    struct rblk_extents *e = &conn->h->extents;
    unsigned int i = slot - RBLK_CALL_MAP_FIRST;
    uint64_t first = m->map[i].first;
    uint32_t count = m->map[i].count;
    bool ahead = m->map[i].ahead;
    struct rblk_extent_map_reply reply;
    uint32_t stamp = rblk_extents_stamp();
    int rc;

    m->map[i].count = 0;
    if (status != RBLK_STATUS_OK) {
        map_refused(conn, first, count, ahead, -rblk_status_to_errno(status));
        return;
    }
    rc = rblk_extent_map_reply_decode(&reply, call->reply, call->reply_len);
    if (rc == 0 && (reply.first != first || reply.count == 0 || reply.count > count))
        rc = -EPROTO;
    for (uint32_t n = 0; rc == 0 && n < reply.count; n++)
        rc = rblk_extents_publish(e, first + n, &reply.entry[n], stamp);
    if (rc) {
        rblk_conn_fail(conn, rc, "%s: the answer about extents %llu to %llu %s", conn->address,
                       (unsigned long long)first, (unsigned long long)(first + count - 1),
                       rc == -ENOMEM ? "does not fit into memory" : "breaks the protocol");
        return;
    }
    for (uint32_t n = reply.count; n < count; n++)
        rblk_extents_forget(e, first + n);
    if (reply.count < count)
        /* Fewer than asked: the target has no memory for more than what is needed. */
        m->read_ahead = false;
    if (!ahead && m->read_ahead && e->count <= RBLK_READ_AHEAD_VOLUME) {
        m->ahead_first = first + count;
        m->ahead_count = RBLK_READ_AHEAD;
    }
    resume_queues(conn, first, 0, 0);
}

/* -- giving back ----------------------------------------------------------------------------- */

void rblk_mapping_recall(struct rblk_conn *conn, uint32_t count)
{
    struct rblk_mapping *m = &conn->mapping;

    m->read_ahead = false;
    m->ahead_count = 0;
    m->recall_backlog += count;
}

static void choose(struct rblk_conn *conn)
{
    struct rblk_mapping *m = &conn->mapping;
    struct rblk *h = conn->h;
    uint32_t wanted = m->recall_backlog < RBLK_EXTENTS_PER_MESSAGE ? (uint32_t)m->recall_backlog
                                                                   : RBLK_EXTENTS_PER_MESSAGE;

    m->recall_count = rblk_extents_revoke(&h->extents, wanted, m->recall_index);
    if (m->recall_count == 0) {
        m->recall_backlog = 0; /* none is left to give */
        return;
    }
    m->recall_backlog -= m->recall_count;
    /* From here no queue can find these extents; what each has posted before is its mark. */
    for (unsigned int i = 0; i < h->queue_count; i++)
        m->recall_mark[i] = rblk_read_mark(h->queue[i]);
    m->recall = RBLK_RECALL_DRAINING;
}

static bool drained(struct rblk_conn *conn)
{
    struct rblk *h = conn->h;

    for (unsigned int i = 0; i < h->queue_count; i++)
        if (!rblk_read_drained(h->queue[i], conn->mapping.recall_mark[i]))
            return false;
    return true;
}

static void release(struct rblk_conn *conn)
{
    struct rblk_mapping *m = &conn->mapping;
    struct rblk_call *call = rblk_call_take(conn, RBLK_CALL_RELEASE);
    struct rblk_extent_release message = {.count = m->recall_count};
    size_t len;

    if (!call)
        return; /* the last one's SEND is not complete yet; this is called again */
    memcpy(message.index, m->recall_index, m->recall_count * sizeof(message.index[0]));
    m->recall = RBLK_RECALL_RELEASING;
    len = rblk_extent_release_encode(call->message, call->tag, &message);
    rblk_call_post(conn, call, len);
}

void rblk_mapping_released(struct rblk_conn *conn, uint16_t status)
{
    struct rblk_mapping *m = &conn->mapping;

    if (status != RBLK_STATUS_OK) {
        rblk_conn_fail(conn, -EPROTO, "%s refuses extents that are given back: %s", conn->address,
                       rblk_status_text(status));
        return;
    }
    for (uint32_t i = 0; i < m->recall_count; i++)
        rblk_extents_forget(&conn->h->extents, m->recall_index[i]);
    m->recall = RBLK_RECALL_NONE;
    /* Reads that found them revoked are parked and ask again. */
    atomic_store_explicit(&m->wanted, true, memory_order_release);
}

bool rblk_mapping_progress(struct rblk_conn *conn)
{
    struct rblk_mapping *m = &conn->mapping;
    bool under_way = false;

    if (m->recall == RBLK_RECALL_NONE && m->recall_backlog)
        choose(conn);
    if (m->recall == RBLK_RECALL_DRAINING && drained(conn))
        release(conn);
    if (atomic_exchange_explicit(&m->wanted, false, memory_order_acq_rel) && ask_for_wanted(conn))
        /* An answer frees the slot that was lacking, and brings the thread back here. */
        atomic_store_explicit(&m->wanted, true, memory_order_release);
    for (unsigned int i = 0; i < RBLK_MAPS_MAX; i++)
        under_way |= m->map[i].count != 0;
    if (!under_way && m->ahead_count)
        ask_ahead(conn);
    return m->recall == RBLK_RECALL_DRAINING;
}
