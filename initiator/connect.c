/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * connect -- from a URI to an attached volume with open queues
 *
 * rblk_connect runs in the caller's thread under rblk.lock and starts the control thread early,
 * which answers its waits. One deadline bounds all of it. Teardown is the same chain for a failed
 * attempt and for rblk_close.
 */
#include "connect.h"

#include <errno.h>
#include <rdma/rdma_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/verbs.h"
#include "control.h"
#include "queue.h"

/* The longest that taking leave may take, milliseconds, when the time-out allows more. */
#define DETACH_MS 3000u
/* Send queue of the control connection: every request and every acknowledgement at once. */
#define CONTROL_SENDS (RBLK_CONTROL_REQUESTS + RBLK_CONTROL_EVENTS)

/* -- teardown -------------------------------------------------------------------------------- */

/* Tells the target that we leave, so that the volume is free for others when this returns. */
static void detach(struct rblk *h)
{
    struct rblk_conn *conn = h->conn;
    unsigned int ms = h->options.timeout_ms < DETACH_MS ? h->options.timeout_ms : DETACH_MS;
    uint64_t deadline = rblk_deadline_ms(ms);
    char detail[RBLK_DETAIL_MAX + 1];
    struct rblk_call *call;
    uint16_t status;

    pthread_mutex_lock(&conn->lock);
    conn->closing = true;
    pthread_mutex_unlock(&conn->lock);
    if (rblk_call_begin(conn, &call, deadline))
        return;
    rblk_call_exchange(conn, call, rblk_empty_encode(call->message, RBLK_DETACH, call->tag),
                       deadline, &status, detail);
    rblk_call_end(conn, call);
}

/* The control thread has ended; the queue is this thread's alone. */
static void close_queue(struct rblk_queue *q, int error)
{
    const struct timespec pause = {.tv_nsec = 200000};
    uint64_t deadline = rblk_deadline_ms(RBLK_DRAIN_MS);

    rblk_link_break(q);
    while (!rblk_link_drain(q, error) && rblk_deadline_left_ms(deadline) > 0)
        nanosleep(&pause, NULL);
    rblk_link_destroy(q, error);
    while (rblk_queue_run_callbacks(q))
        ;
    rblk_link_close(q);
    rblk_queue_free(q);
}

void rblk_teardown(struct rblk *h, bool detach_first, int error)
{
    atomic_store_explicit(&h->state, RBLK_HANDLE_NEW, memory_order_release);
    if (h->conn && detach_first && !rblk_conn_failed(h->conn))
        detach(h);
    rblk_conn_stop(h->conn);
    for (unsigned int i = 0; i < h->queue_count; i++)
        close_queue(h->queue[i], error);
    free(h->queue);
    h->queue = NULL;
    h->queue_count = 0;
    for (unsigned int i = 0; i < RBLK_REGIONS_MAX; i++)
        if (h->region[i].mr)
            rdma_dereg_mr(h->region[i].mr);
    memset(h->region, 0, sizeof(h->region));
    rblk_extents_free(&h->extents);
    rblk_conn_free(h->conn);
    h->conn = NULL;
    if (h->pd)
        ibv_dealloc_pd(h->pd);
    h->pd = NULL;
    h->verbs = NULL;
}

/* -- the control connection ------------------------------------------------------------------ */

/* Protection domain of the handle on the device that leads to the peer. */
static int use_device(struct rblk *h, struct ibv_context *verbs)
{
    struct ibv_pd *pd;

    if (h->verbs == verbs)
        return 0;
    pd = ibv_alloc_pd(verbs);
    if (!pd)
        return rblk_fail(h, -errno, "%s refuses a protection domain: %s",
                         ibv_get_device_name(verbs->device), strerror(errno));
    if (h->pd)
        ibv_dealloc_pd(h->pd);
    h->pd = pd;
    h->verbs = verbs;
    return 0;
}

static int prepare_control_qp(struct rblk_conn *conn)
{
    struct rblk_qp_limits limits = {
        .send_wr = CONTROL_SENDS + RBLK_NUDGES,
        .recv_wr = RBLK_CONTROL_RECEIVES,
        .send_sge = 1,
        .recv_sge = 1,
    };
    struct ibv_context *verbs = conn->endpoint.id->verbs;
    int rc = use_device(conn->h, verbs);

    if (rc)
        return rc;
    conn->channel = ibv_create_comp_channel(verbs);
    if (!conn->channel)
        goto fail;
    rc = rblk_fd_nonblock(conn->channel->fd);
    if (rc)
        return rblk_fail(conn->h, rc, "completion channel: %s", strerror(-rc));
    conn->cq = ibv_create_cq(verbs, (int)(limits.send_wr + limits.recv_wr), conn, conn->channel, 0);
    if (!conn->cq)
        goto fail;
    rc = rblk_qp_create(conn->endpoint.id, conn->h->pd, conn->cq, conn->cq, &limits);
    if (rc) {
        errno = -rc;
        goto fail;
    }
    return rblk_calls_setup(conn);

fail:
    return rblk_fail(conn->h, -errno, "%s cannot make the control connection: %s",
                     ibv_get_device_name(verbs->device), strerror(errno));
}

/* Undoes an attempt that did not get through: everything is still this thread's alone. */
static void undo_attempt(struct rblk_conn *conn)
{
    rblk_endpoint_close(&conn->endpoint);
    if (conn->mr)
        ibv_dereg_mr(conn->mr);
    conn->mr = NULL;
    if (conn->cq)
        ibv_destroy_cq(conn->cq);
    conn->cq = NULL;
    if (conn->channel)
        ibv_destroy_comp_channel(conn->channel);
    conn->channel = NULL;
}

/* The target accepted: is what it said rblk's, and a version that we speak? */
static int check_greeting(struct rblk_conn *conn)
{
    struct rblk_accept accept;
    int rc = rblk_accept_decode(&accept, conn->endpoint.private_data, conn->endpoint.private_len);

    if (rc == -EPROTONOSUPPORT)
        return rblk_fail(conn->h, rc,
                         "%s speaks another version of the rblk protocol than this program "
                         "(version %u); update the older side",
                         conn->address, RBLK_WIRE_VERSION);
    if (rc || accept.kind != RBLK_KIND_CONTROL)
        return rblk_fail(conn->h, -EPROTO,
                         "%s: connected, but the peer is not rblkd (its greeting is missing); is "
                         "that rblkd's port?",
                         conn->address);
    return 0;
}

static int attempt(struct rblk_conn *conn, uint64_t deadline_ns)
{
    struct rblk_connect hello = {.version = RBLK_WIRE_VERSION, .kind = RBLK_KIND_CONTROL};
    uint8_t private_data[RBLK_CONNECT_LEN];
    int rc;

    rc = rblk_endpoint_open(&conn->endpoint, conn, (struct sockaddr *)&conn->peer, deadline_ns);
    if (rc)
        return rblk_fail_connect(conn->h, conn->address, &conn->endpoint, rc);
    rc = prepare_control_qp(conn);
    if (rc)
        return rc;
    rblk_connect_encode(private_data, &hello);
    rc = rblk_endpoint_connect(&conn->endpoint, 1, private_data, sizeof(private_data), deadline_ns);
    if (rc)
        return rblk_fail_connect(conn->h, conn->address, &conn->endpoint, rc);
    return check_greeting(conn);
}

static void note_peer(struct rblk_conn *conn, const struct addrinfo *ai)
{
    char host[64], port[8];

    memcpy(&conn->peer, ai->ai_addr, ai->ai_addrlen);
    conn->peer_len = ai->ai_addrlen;
    if (getnameinfo(ai->ai_addr, ai->ai_addrlen, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV)) {
        snprintf(host, sizeof(host), "?");
        snprintf(port, sizeof(port), "?");
    }
    snprintf(conn->address, sizeof(conn->address), strchr(host, ':') ? "[%s]:%s" : "%s:%s", host,
             port);
}

static int resolve_failed(struct rblk *h, int code)
{
    if (code == EAI_SYSTEM)
        return rblk_fail(h, -errno, "%s: the host name cannot be looked up: %s", h->uri.host,
                         strerror(errno));
    return rblk_fail(h, code == EAI_MEMORY ? -ENOMEM : -EHOSTUNREACH,
                     "%s: the host name does not resolve (%s); check its spelling or use an "
                     "address",
                     h->uri.host, gai_strerror(code));
}

/* An answer of the target beats a network error, so that one address that leads nowhere does not
 * hide it. */
static bool tells_more(int error, int than)
{
    return than == 0 || than == -EHOSTUNREACH || than == -ENETUNREACH || than == -ENODEV ||
           error == -EPROTONOSUPPORT;
}

/* Tries each address in turn; each gets an equal share of the time that is left. */
static int connect_control(struct rblk *h, uint64_t deadline_ns)
{
    struct rblk_conn *conn = h->conn;
    struct addrinfo *list, *ai;
    char text[RBLK_ERROR_TEXT_MAX] = "";
    unsigned int left = 0;
    int best = 0;
    int rc = rblk_resolve(&list, h->uri.host, h->uri.port, deadline_ns);

    if (rc)
        return resolve_failed(h, rc);
    for (ai = list; ai; ai = ai->ai_next)
        left++;
    for (ai = list; ai; ai = ai->ai_next, left--) {
        note_peer(conn, ai);
        rc = attempt(conn, rblk_deadline_ms((uint64_t)rblk_deadline_left_ms(deadline_ns) / left));
        if (rc == 0)
            break;
        undo_attempt(conn);
        if (tells_more(rc, best)) {
            best = rc;
            snprintf(text, sizeof(text), "%s", rblk_error(h));
        }
    }
    freeaddrinfo(list);
    if (rc)
        return rblk_fail(h, best, "%s", text);
    rblk_conn_go_live(conn);
    return 0;
}

/* A control request failed: the target's words, or the connection's. */
static int control_failed(struct rblk *h, int rc, const char *what, const char *detail)
{
    const struct rblk_conn *conn = h->conn;

    if (detail[0])
        return rblk_fail(h, rc, "%s refuses %s: %s", conn->address, what, detail);
    if (rblk_conn_failed(conn))
        return rblk_fail(h, rblk_conn_failed(conn), "%s", conn->failure_text);
    if (rc == -ETIMEDOUT)
        return rblk_fail(h, rc,
                         "%s did not answer %s within %u ms; is it rblkd, and is its machine "
                         "overloaded?",
                         conn->address, what, h->options.timeout_ms);
    return rblk_fail(h, rc,
                     "%s answered %s in a way that breaks the protocol; is it rblkd of this "
                     "version?",
                     conn->address, what);
}

static void name_client(char *name, size_t len)
{
    char host[40] = "";

    gethostname(host, sizeof(host) - 1);
    snprintf(name, len, "%s:%ld", host[0] ? host : "unknown", (long)getpid());
}

static int say_hello(struct rblk *h, uint64_t deadline_ns)
{
    struct rblk_conn *conn = h->conn;
    struct rblk_hello hello = {
        .version_min = RBLK_WIRE_VERSION,
        .version_max = RBLK_WIRE_VERSION,
        .keepalive_ms = h->options.keepalive_ms,
    };
    char detail[RBLK_DETAIL_MAX + 1] = "";
    struct rblk_call *call;
    uint16_t status = RBLK_STATUS_OK;
    int rc;

    name_client(hello.client, sizeof(hello.client));
    rc = rblk_call_begin(conn, &call, deadline_ns);
    if (rc)
        return control_failed(h, rc, "HELLO", detail);
    rc = rblk_call_exchange(conn, call, rblk_hello_encode(call->message, call->tag, &hello),
                            deadline_ns, &status, detail);
    if (rc == 0)
        rc = rblk_hello_reply_decode(&conn->hello, call->reply, call->reply_len);
    rblk_call_end(conn, call);
    if (rc == -EPROTONOSUPPORT)
        return rblk_fail(h, rc,
                         "%s speaks another version of the rblk protocol than this program "
                         "(version %u)%s%s; update the older side",
                         conn->address, RBLK_WIRE_VERSION, detail[0] ? ": " : "", detail);
    if (rc)
        return control_failed(h, rc, "HELLO", detail);
    if (conn->hello.auth)
        return rblk_fail(h, -EACCES,
                         "%s asks for an authentication (kind %u) that this program "
                         "does not know; update it",
                         conn->address, conn->hello.auth);
    rblk_conn_keep_alive(conn, conn->hello.keepalive_ms);
    return 0;
}

/* -- the volume ------------------------------------------------------------------------------ */

static int attach_refused(struct rblk *h, int rc, uint16_t status, const char *detail)
{
    const char *address = h->conn->address, *volume = h->uri.volume;

    switch (status) {
    case RBLK_STATUS_NOT_FOUND:
        return rblk_fail(h, rc,
                         "%s exports no volume named %s; see what it has with: "
                         "rblk list rblk://%s",
                         address, volume, address);
    case RBLK_STATUS_BUSY:
        return rblk_fail(h, rc,
                         "%s at %s is in use: %s; attach it read-only, or wait until it is "
                         "free",
                         volume, address, detail);
    case RBLK_STATUS_READ_ONLY:
        return rblk_fail(h, rc, "%s at %s is exported read-only: %s; attach it read-only", volume,
                         address, detail);
    default:
        return control_failed(h, rc, "ATTACH", detail);
    }
}

static uint8_t wire_mode(enum rblk_mode mode)
{
    switch (mode) {
    case RBLK_MODE_RO:
        return RBLK_ATTACH_RO;
    case RBLK_MODE_SHARED:
        return RBLK_ATTACH_SHARED;
    default:
        return RBLK_ATTACH_RW;
    }
}

static int attach(struct rblk *h, uint64_t deadline_ns)
{
    struct rblk_conn *conn = h->conn;
    struct rblk_attach request = {.mode = wire_mode(h->options.mode)};
    char detail[RBLK_DETAIL_MAX + 1] = "";
    struct rblk_call *call;
    uint16_t status = RBLK_STATUS_OK;
    int rc;

    snprintf(request.volume, sizeof(request.volume), "%s", h->uri.volume);
    rc = rblk_call_begin(conn, &call, deadline_ns);
    if (rc)
        return control_failed(h, rc, "ATTACH", detail);
    rc = rblk_call_exchange(conn, call, rblk_attach_encode(call->message, call->tag, &request),
                            deadline_ns, &status, detail);
    if (rc == 0)
        rc = rblk_attach_reply_decode(&h->volume, call->reply, call->reply_len);
    rblk_call_end(conn, call);
    if (rc)
        return attach_refused(h, rc, status, detail);
    rc = rblk_extents_init(&h->extents, h->volume.size, h->volume.extent_size);
    if (rc)
        return rblk_fail(h, rc,
                         "%s: no memory for a table of extents of %llu bytes for a volume of "
                         "%llu bytes",
                         h->uri.volume, (unsigned long long)h->volume.extent_size,
                         (unsigned long long)h->volume.size);
    return 0;
}

static int open_queues(struct rblk *h, uint64_t deadline_ns)
{
    unsigned int count =
        h->options.queues < h->volume.max_queues ? h->options.queues : h->volume.max_queues;

    h->queue = calloc(count, sizeof(struct rblk_queue *));
    if (!h->queue)
        return rblk_fail(h, -ENOMEM, "no memory for %u queues", count);
    for (unsigned int i = 0; i < count; i++) {
        int rc = rblk_queue_create(&h->queue[i], h, i);

        if (rc)
            return rblk_fail(h, rc, "cannot make queue %u: %s", i, strerror(-rc));
        h->queue_count = i + 1;
        rc = rblk_link_open(h->queue[i], h->conn, deadline_ns);
        if (rc)
            return rc;
    }
    rblk_conn_serve(h->conn);
    return 0;
}

/* -- public ---------------------------------------------------------------------------------- */

static int connect_steps(struct rblk *h, bool with_volume, bool *attached)
{
    uint64_t deadline = rblk_deadline_ms(h->options.timeout_ms);
    int rc = rblk_conn_create(&h->conn, h);

    if (rc == 0)
        rc = connect_control(h, deadline);
    if (rc == 0)
        rc = say_hello(h, deadline);
    if (rc || !with_volume)
        return rc;
    rc = attach(h, deadline);
    if (rc)
        return rc;
    *attached = true;
    rc = open_queues(h, deadline);
    /* It may have failed since the last answer that was waited for. */
    if (rc == 0 && rblk_conn_failed(h->conn))
        rc = rblk_fail(h, rblk_conn_failed(h->conn), "%s", h->conn->failure_text);
    return rc;
}

static int connect_uri(struct rblk *h, const char *text, bool with_volume)
{
    char error[RBLK_ERROR_TEXT_MAX];
    bool attached = false;
    int rc;

    pthread_mutex_lock(&h->lock);
    if (atomic_load_explicit(&h->state, memory_order_acquire) != RBLK_HANDLE_NEW) {
        rc = rblk_fail(h, -EISCONN, "this handle is connected to %s already; use another",
                       h->uri.host);
        goto out;
    }
    rc = rblk_uri_parse(&h->uri, text ? text : "", error, sizeof(error));
    if (rc) {
        rblk_fail(h, rc, "%s", error);
        goto out;
    }
    if (with_volume && !h->uri.volume[0]) {
        rc = rblk_fail(h, -EINVAL,
                       "%s names no volume; write rblk://HOST[:PORT]/VOLUME, and see "
                       "what there is with: rblk list %s",
                       text, text);
        goto out;
    }
    rc = connect_steps(h, with_volume, &attached);
    if (rc)
        rblk_teardown(h, attached, -ECANCELED);
    else
        atomic_store_explicit(&h->state, with_volume ? RBLK_HANDLE_VOLUME : RBLK_HANDLE_TARGET,
                              memory_order_release);
out:
    pthread_mutex_unlock(&h->lock);
    return rc;
}

int rblk_connect(struct rblk *h, const char *uri)
{
    return connect_uri(h, uri, true);
}

int rblk_connect_target(struct rblk *h, const char *uri)
{
    return connect_uri(h, uri, false);
}
