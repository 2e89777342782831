/* SPDX-License-Identifier: BSD-2-Clause */
/* connection -- a control connection: its queue pair, its message buffers, its deadlines */
#include "connection.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "clock.h"
#include "config.h"
#include "control.h"
#include "device.h"
#include "listener.h"
#include "log.h"
#include "session.h"
#include "verbs.h"
#include "wr_id.h"

#define HELLO_TIMEOUT_MS 5000
#define LINGER_TIMEOUT_MS 1000     /* for the last message to go out */
#define DISCONNECT_TIMEOUT_MS 1000 /* for the peer to disconnect too */
#define DRAIN_TIMEOUT_MS 500 /* for the device to flush; destroying the queue pair ends the rest */
#define SILENT_INTERVALS 3   /* heartbeats that may be missing before a peer counts as dead */

_Static_assert(CONNECTION_SENDS <= 64, "send_busy has a bit for each send buffer");

static size_t buffers_len(void)
{
    return (size_t)(CONNECTION_RECEIVES + CONNECTION_SENDS) * RBLK_CONTROL_MAX;
}

static uint8_t *buffer_at(const struct connection *c, uint32_t number)
{
    return c->buffers + (size_t)number * RBLK_CONTROL_MAX;
}

static void set_deadline(struct connection *c, uint64_t deadline_ns)
{
    c->deadline_ns = deadline_ns;
    target_deadline(c->target, deadline_ns);
}

/* -- making ----------------------------------------------------------------------------------- */

/* Destroys in order; without the queue pair nothing touches the buffers any more. */
static void connection_free(struct connection *c, bool destroy_id)
{
    if (c->id->qp)
        rdma_destroy_qp(c->id);
    if (c->mr && ibv_dereg_mr(c->mr))
        log_warning("client %s: message memory cannot be deregistered: %s", c->peer,
                    strerror(errno));
    if (c->buffers)
        munmap(c->buffers, buffers_len());
    if (destroy_id)
        rdma_destroy_id(c->id);
    free(c);
}

static int post_receive(struct connection *c, uint32_t number)
{
    struct ibv_sge sge = {
        .addr = (uint64_t)(uintptr_t)buffer_at(c, number),
        .length = RBLK_CONTROL_MAX,
        .lkey = c->mr->lkey,
    };
    struct ibv_recv_wr wr =
                           {
                               .wr_id = wr_id_make(WR_RECEIVE, number, c->index, c->generation),
                               .sg_list = &sge,
                               .num_sge = 1,
                           },
                       *bad;
    int rc = ibv_post_recv(c->id->qp, &wr, &bad);

    if (rc)
        return -rc;
    c->receives_posted++;
    return 0;
}

static int create_resources(struct connection *c)
{
    struct rblk_qp_limits limits = {
        .send_wr = CONNECTION_SENDS,
        .recv_wr = CONNECTION_RECEIVES,
        .send_sge = 1,
        .recv_sge = 1,
    };
    void *memory;
    int rc;

    rc = rblk_qp_create(c->id, c->device->control_pd, c->device->cq, c->device->cq, &limits);
    if (rc)
        return rc;
    memory = mmap(NULL, buffers_len(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return -errno;
    c->buffers = memory;
    c->mr = ibv_reg_mr(c->device->control_pd, c->buffers, buffers_len(), IBV_ACCESS_LOCAL_WRITE);
    if (!c->mr)
        return -errno;
    for (uint32_t i = 0; i < CONNECTION_RECEIVES && rc == 0; i++)
        rc = post_receive(c, i);
    return rc;
}

static uint32_t free_index(const struct target *t)
{
    uint32_t i = 0;

    while (t->connections[i])
        i++;
    return i;
}

static int connection_create(struct target *t, struct rdma_cm_id *id, struct device *device,
                             struct connection **out)
{
    struct connection *c = calloc(1, sizeof(*c));
    int rc;

    if (!c)
        return -ENOMEM;
    c->owner.kind = OWNER_CONNECTION;
    c->target = t;
    c->device = device;
    c->id = id;
    c->index = free_index(t);
    c->generation = ++t->connection_generation;
    c->state = CONNECTION_ACCEPTED;
    listener_peer_text(id, c->peer, sizeof(c->peer));
    rc = create_resources(c);
    if (rc) {
        connection_free(c, false);
        return rc;
    }
    *out = c;
    return 0;
}

enum rblk_status connection_connect(struct target *t, struct rdma_cm_id *id)
{
    struct rblk_accept accept = {.version = RBLK_WIRE_VERSION, .kind = RBLK_KIND_CONTROL};
    uint8_t private_data[RBLK_ACCEPT_LEN];
    struct connection *c = NULL;
    struct rdma_conn_param param;
    struct device *device;
    int rc;

    if (t->connection_count >= t->config->max_clients)
        return RBLK_STATUS_LIMIT;
    if (device_get(t, id->verbs, &device))
        return RBLK_STATUS_NO_MEMORY;
    if (device->connections >= device->max_connections)
        return RBLK_STATUS_LIMIT;
    rc = connection_create(t, id, device, &c);
    if (rc) {
        log_warning("no control connection for a client: %s", strerror(-rc));
        return RBLK_STATUS_NO_MEMORY;
    }
    t->connections[c->index] = c;
    t->connection_count++;
    device->connections++;
    id->context = c;
    set_deadline(c, rblk_deadline_ms(HELLO_TIMEOUT_MS));
    rblk_accept_encode(private_data, &accept);
    rblk_conn_param(&param, 0, 0, private_data, sizeof(private_data));
    if (rdma_accept(id, &param)) {
        log_warning("client %s: it cannot be accepted: %s", c->peer, strerror(errno));
        connection_close(c);
    }
    return RBLK_STATUS_OK;
}

void connection_established(struct connection *c)
{
    log_debug("client %s: control connection", c->peer);
}

/* -- sending ---------------------------------------------------------------------------------- */

uint8_t *connection_buffer(struct connection *c)
{
    for (uint32_t i = 0; i < CONNECTION_SENDS; i++)
        if (!(c->send_busy >> i & 1u))
            return buffer_at(c, CONNECTION_RECEIVES + i);
    connection_violation(c, "more requests than %d without taking the replies",
                         RBLK_CONTROL_REQUESTS);
    return NULL;
}

void connection_send(struct connection *c, const uint8_t *buffer, size_t len)
{
    uint32_t number =
        (uint32_t)((size_t)(buffer - c->buffers) / RBLK_CONTROL_MAX) - CONNECTION_RECEIVES;
    struct ibv_sge sge = {
        .addr = (uint64_t)(uintptr_t)buffer,
        .length = (uint32_t)len,
        .lkey = c->mr->lkey,
    };
    struct ibv_send_wr wr =
                           {
                               .wr_id = wr_id_make(WR_SEND, number, c->index, c->generation),
                               .sg_list = &sge,
                               .num_sge = 1,
                               .opcode = IBV_WR_SEND,
                               .send_flags = IBV_SEND_SIGNALED,
                           },
                       *bad;

    if (ibv_post_send(c->id->qp, &wr, &bad)) {
        connection_close(c);
        return;
    }
    c->send_busy |= (uint64_t)1 << number;
    c->sends_posted++;
}

/* -- ending ----------------------------------------------------------------------------------- */

static void leave_session(struct connection *c)
{
    struct session *s = c->session;

    c->attach_pending = false;
    c->detach_pending = false;
    if (!s)
        return;
    c->session = NULL;
    s->connection = NULL;
    session_end(s);
}

static void check_drained(struct connection *c)
{
    if (c->state == CONNECTION_DRAINING && c->receives_posted == 0 && c->sends_posted == 0)
        set_deadline(c, 0);
}

static void enter_error(struct connection *c)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

    if (c->state == CONNECTION_DRAINING)
        return;
    c->state = CONNECTION_DRAINING;
    set_deadline(c, rblk_deadline_ms(DRAIN_TIMEOUT_MS));
    if (ibv_modify_qp(c->id->qp, &attr, IBV_QP_STATE))
        log_debug("client %s: control queue pair: %s", c->peer, strerror(errno));
    check_drained(c);
}

void connection_close(struct connection *c)
{
    if (c->state < CONNECTION_CLOSING)
        rdma_disconnect(c->id);
    enter_error(c);
    leave_session(c);
}

static void check_lingering(struct connection *c)
{
    if (c->state != CONNECTION_LINGERING || c->sends_posted)
        return;
    c->state = CONNECTION_CLOSING;
    set_deadline(c, rblk_deadline_ms(DISCONNECT_TIMEOUT_MS));
    rdma_disconnect(c->id);
}

void connection_finish(struct connection *c)
{
    if (c->state >= CONNECTION_LINGERING)
        return;
    c->state = CONNECTION_LINGERING;
    set_deadline(c, rblk_deadline_ms(LINGER_TIMEOUT_MS));
    leave_session(c);
    check_lingering(c);
}

void connection_disconnected(struct connection *c)
{
    if (c->state <= CONNECTION_OPEN)
        rblk_log(c->session ? RBLK_LOG_INFO : RBLK_LOG_DEBUG, "client %s (%s): disconnected",
                 c->peer, c->client);
    connection_close(c);
}

void connection_violation(struct connection *c, const char *fmt, ...)
{
    char text[128];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    log_warning("client %s: %s; it is disconnected", c->peer, text);
    counter_add(&c->target->counters.protocol_errors, 1);
    connection_close(c);
}

static void connection_gone(struct target *t, struct connection *c)
{
    t->connections[c->index] = NULL;
    t->connection_count--;
    c->device->connections--;
    connection_free(c, true);
}

/* -- receiving -------------------------------------------------------------------------------- */

static void message_received(struct connection *c, uint32_t number, uint32_t len)
{
    uint8_t message[RBLK_CONTROL_MAX];
    int rc;

    if (c->state > CONNECTION_OPEN)
        return;
    counter_add(&c->target->counters.control_messages, 1);
    /*
     * Posted again before anything is answered: the reply is the peer's leave to send the next
     * one.
     */
    memcpy(message, buffer_at(c, number), len);
    rc = post_receive(c, number);
    if (rc) {
        connection_close(c);
        return;
    }
    if (c->state == CONNECTION_OPEN)
        c->deadline_ns = rblk_deadline_ms((uint64_t)SILENT_INTERVALS * c->keepalive_ms);
    control_message(c, message, len);
}

/* The end of a connection flushes what is posted; anything else is a fault, which is told once. */
static void failed(struct connection *c, const struct ibv_wc *wc, const char *what)
{
    if (wc->status != IBV_WC_WR_FLUSH_ERR && c->state <= CONNECTION_OPEN)
        log_warning("client %s: the control connection failed: %s (%s)", c->peer,
                    ibv_wc_status_str(wc->status), what);
    connection_disconnected(c);
}

static void receive_completed(struct connection *c, const struct ibv_wc *wc)
{
    c->receives_posted--;
    if (wc->status == IBV_WC_SUCCESS)
        message_received(c, wr_id_item(wc->wr_id), wc->byte_len);
    else if (wc->status == IBV_WC_LOC_LEN_ERR)
        connection_violation(c, "control message longer than %d bytes", RBLK_CONTROL_MAX);
    else
        failed(c, wc, "receive");
}

static void send_completed(struct connection *c, const struct ibv_wc *wc)
{
    c->sends_posted--;
    c->send_busy &= ~((uint64_t)1 << wr_id_item(wc->wr_id));
    if (wc->status != IBV_WC_SUCCESS)
        failed(c, wc, "send");
    else
        check_lingering(c);
}

void connection_completion(struct target *t, const struct ibv_wc *wc)
{
    uint32_t index = wr_id_index(wc->wr_id);
    struct connection *c = index < t->config->max_clients ? t->connections[index] : NULL;

    if (!c || (c->generation & WR_ID_GENERATION_MASK) != wr_id_generation(wc->wr_id))
        return;
    if (wr_id_kind(wc->wr_id) == WR_RECEIVE)
        receive_completed(c, wc);
    else
        send_completed(c, wc);
    check_drained(c);
}

/* -- sessions and time ------------------------------------------------------------------------ */

void connection_session_gone(struct connection *c)
{
    c->session = NULL;
    if (c->detach_pending)
        control_detached(c);
    if (c->leaving)
        connection_finish(c);
}

void connection_retry_attaches(struct target *t)
{
    for (uint64_t i = 0; i < t->config->max_clients; i++)
        if (t->connections[i] && t->connections[i]->attach_pending)
            control_attach_again(t->connections[i]);
}

/* False: the connection is gone. */
static bool deadline_passed(struct connection *c)
{
    switch (c->state) {
    case CONNECTION_ACCEPTED:
        log_warning("client %s: no HELLO within %d s; it is disconnected", c->peer,
                    HELLO_TIMEOUT_MS / 1000);
        connection_close(c);
        break;
    case CONNECTION_OPEN:
        log_warning("client %s (%s): silent for %u ms; it is disconnected", c->peer, c->client,
                    SILENT_INTERVALS * c->keepalive_ms);
        connection_close(c);
        break;
    case CONNECTION_LINGERING:
    case CONNECTION_CLOSING:
        connection_close(c);
        break;
    case CONNECTION_DRAINING:
        connection_gone(c->target, c);
        return false;
    }
    return true;
}

void connection_tick(struct target *t, uint64_t now_ns)
{
    for (uint64_t i = 0; t->connection_count && i < t->config->max_clients; i++) {
        struct connection *c = t->connections[i];

        if (!c)
            continue;
        if (c->attach_pending && c->attach_deadline_ns <= now_ns)
            control_attach_expired(c);
        if (c->deadline_ns <= now_ns && !deadline_passed(c))
            continue;
        target_deadline(t, c->deadline_ns);
        if (c->attach_pending)
            target_deadline(t, c->attach_deadline_ns);
    }
}

void connection_goodbye_all(struct target *t)
{
    for (uint64_t i = 0; i < t->config->max_clients; i++) {
        struct connection *c = t->connections[i];

        if (!c || c->state > CONNECTION_OPEN)
            continue;
        control_goodbye(c);
        c->leaving = true;
        if (c->session)
            session_finish(c->session);
        else
            connection_finish(c);
    }
}
