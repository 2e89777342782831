/* SPDX-License-Identifier: BSD-2-Clause */
/* control -- what the messages of a control connection do */
#include "control.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "config.h"
#include "device.h"
#include "extent.h"
#include "log.h"
#include "reactor.h"
#include "session.h"
#include "volume.h"

#define ATTACH_TIMEOUT_MS 5000 /* for a session that is just ending to let go of the volume */
#define MAP_TIME_NS 20000000   /* one client's registrations may keep the others waiting so long */

/* A message that has passed rblk_header_decode. */
struct message {
    const uint8_t *bytes;
    size_t len;
    uint8_t type;
    uint64_t tag;
};

__attribute__((format(printf, 4, 5))) static void refuse(struct connection *c,
                                                         const struct message *m,
                                                         enum rblk_status status, const char *fmt,
                                                         ...)
{
    char detail[RBLK_DETAIL_MAX + 1];
    uint8_t *reply = connection_buffer(c);
    va_list ap;

    if (!reply)
        return;
    va_start(ap, fmt);
    vsnprintf(detail, sizeof(detail), fmt, ap);
    va_end(ap);
    connection_send(c, reply, rblk_error_encode(reply, m->type, m->tag, (uint16_t)status, detail));
}

static void malformed(struct connection *c, const char *what)
{
    connection_violation(c, "malformed %s message", what);
}

static void reply_empty(struct connection *c, uint8_t type, uint64_t tag)
{
    uint8_t *reply = connection_buffer(c);

    if (reply)
        connection_send(c, reply, rblk_empty_encode(reply, type | RBLK_REPLY, tag));
}

/* -- HELLO, PING, LIST, STATS ----------------------------------------------------------------- */

static void handle_hello(struct connection *c, const struct message *m)
{
    struct rblk_hello hello;
    struct rblk_hello_reply answer;
    int rc = rblk_hello_decode(&hello, m->bytes, m->len);
    uint8_t *reply;

    if (rc == -EPROTONOSUPPORT) {
        refuse(c, m, RBLK_STATUS_VERSION, "this target speaks protocol version %d only",
               RBLK_WIRE_VERSION);
        connection_finish(c);
        return;
    }
    if (rc) {
        malformed(c, "HELLO");
        return;
    }
    if (c->state != CONNECTION_ACCEPTED) {
        refuse(c, m, RBLK_STATUS_STATE, "HELLO was said already");
        return;
    }
    reply = connection_buffer(c);
    if (!reply)
        return;
    c->state = CONNECTION_OPEN;
    c->keepalive_ms = hello.keepalive_ms;
    c->deadline_ns = rblk_deadline_ms((uint64_t)3 * c->keepalive_ms);
    target_deadline(c->target, c->deadline_ns);
    memcpy(c->client, hello.client, sizeof(c->client));
    answer = (struct rblk_hello_reply){
        .version = RBLK_WIRE_VERSION,
        .keepalive_ms = c->keepalive_ms,
    };
    memcpy(answer.target_uuid, c->target->uuid, sizeof(answer.target_uuid));
    memcpy(answer.target, c->target->name, sizeof(answer.target));
    connection_send(c, reply, rblk_hello_reply_encode(reply, m->tag, &answer));
    log_debug("client %s is %s, heartbeat %u ms", c->peer, c->client, c->keepalive_ms);
}

static void handle_ping(struct connection *c, const struct message *m)
{
    if (rblk_empty_decode(m->bytes, m->len))
        malformed(c, "PING");
    else
        reply_empty(c, RBLK_PING, m->tag);
}

static void fill_list(const struct target *t, uint32_t first, struct rblk_list_reply *list)
{
    memset(list, 0, sizeof(*list));
    list->total = t->volume_count;
    list->first = first;
    for (uint32_t i = first; i < t->volume_count && list->count < RBLK_LIST_MAX; i++) {
        struct volume *v = &t->volumes[i];
        struct rblk_list_entry *e = &list->entry[list->count++];

        e->size = v->size;
        e->flags = volume_flags(v);
        e->sessions = v->sessions;
        memcpy(e->uuid, v->uuid, sizeof(e->uuid));
        memcpy(e->name, v->name, sizeof(e->name));
    }
}

static void handle_list(struct connection *c, const struct message *m)
{
    struct rblk_list_reply list;
    struct rblk_list request;
    uint8_t *reply;

    if (rblk_list_decode(&request, m->bytes, m->len)) {
        malformed(c, "LIST");
        return;
    }
    if (request.first > c->target->volume_count) {
        refuse(c, m, RBLK_STATUS_RANGE, "there are %u volumes", c->target->volume_count);
        return;
    }
    reply = connection_buffer(c);
    if (!reply)
        return;
    fill_list(c->target, request.first, &list);
    connection_send(c, reply, rblk_list_reply_encode(reply, m->tag, &list));
}

static void handle_stats(struct connection *c, const struct message *m)
{
    const struct target *t = c->target;
    struct rblk_stats_reply stats = {0};
    uint8_t *reply;

    if (rblk_empty_decode(m->bytes, m->len)) {
        malformed(c, "STATS");
        return;
    }
    reply = connection_buffer(c);
    if (!reply)
        return;
    stats_add(&stats, &t->counters);
    for (unsigned int i = 0; i < t->reactor_count; i++)
        stats_add(&stats, &t->reactors[i]->counters);
    stats.uptime_ms = (rblk_now_ns() - t->started_ns) / 1000000u;
    connection_send(c, reply, rblk_stats_reply_encode(reply, m->tag, &stats));
}

/* -- ATTACH, DETACH --------------------------------------------------------------------------- */

static struct volume *find_volume(struct target *t, const char *name)
{
    for (unsigned int i = 0; i < t->volume_count; i++)
        if (strcmp(t->volumes[i].name, name) == 0)
            return &t->volumes[i];
    return NULL;
}

static void reply_attached(struct connection *c, uint64_t tag)
{
    const struct config *config = c->target->config;
    struct session *s = c->session;
    struct rblk_attach_reply answer = {
        .size = s->volume->size,
        .extent_size = config->extent_size,
        .write_verifier = c->target->write_verifier,
        .flags = volume_flags(s->volume),
        .max_queues = (uint32_t)config->max_queues,
        .max_queue_depth = (uint32_t)config->queue_depth,
        .max_io = session_max_io(s),
        .max_inline = (uint32_t)config->inline_size,
        .max_reads = device_max_reads(c->device),
    };
    uint8_t *reply = connection_buffer(c);

    if (!reply)
        return;
    memcpy(answer.token, s->token, sizeof(answer.token));
    memcpy(answer.uuid, s->volume->uuid, sizeof(answer.uuid));
    connection_send(c, reply, rblk_attach_reply_encode(reply, tag, &answer));
}

static const char *mode_text(enum rblk_attach_mode mode)
{
    switch (mode) {
    case RBLK_ATTACH_RO:
        return "read-only";
    case RBLK_ATTACH_SHARED:
        return "shared";
    default:
        return "read-write";
    }
}

/* Attaches or refuses; false: the volume's last session is just ending, nothing was answered. */
static bool attach(struct connection *c, const struct message *m, const struct rblk_attach *request)
{
    struct volume *v = find_volume(c->target, request->volume);
    enum rblk_attach_mode mode = request->mode;
    int rc;

    if (c->leaving || c->target->phase != TARGET_RUNNING) {
        refuse(c, m, RBLK_STATUS_SHUTTING_DOWN, "the target is shutting down");
        return true;
    }
    if (!v) {
        refuse(c, m, RBLK_STATUS_NOT_FOUND, "there is no volume \"%s\"", request->volume);
        return true;
    }
    /* Whatever was wished for, a volume exported read-only is attached so; its flags say it. */
    if (v->read_only)
        mode = RBLK_ATTACH_RO;
    rc = session_create(c->target, c, c->device, v, mode, &c->session);
    switch (rc) {
    case 0:
        log_info("client %s (%s): attached %s, %s", c->peer, c->client, v->name, mode_text(mode));
        reply_attached(c, m->tag);
        return true;
    case -EAGAIN:
        return false;
    case -EBUSY:
        refuse(c, m, RBLK_STATUS_BUSY, "volume \"%s\" is attached for writing by another client",
               v->name);
        return true;
    default:
        log_warning("client %s (%s): cannot attach %s: %s", c->peer, c->client, v->name,
                    strerror(-rc));
        refuse(c, m, RBLK_STATUS_NO_MEMORY, "the target cannot set up a protection domain: %s",
               strerror(-rc));
        return true;
    }
}

static void handle_attach(struct connection *c, const struct message *m)
{
    struct rblk_attach request;

    if (rblk_attach_decode(&request, m->bytes, m->len)) {
        malformed(c, "ATTACH");
        return;
    }
    if (c->session || c->attach_pending) {
        refuse(c, m, RBLK_STATUS_STATE, "a volume is attached on this connection already");
        return;
    }
    if (attach(c, m, &request))
        return;
    c->attach_pending = true;
    c->attach_tag = m->tag;
    c->attach = request;
    c->attach_deadline_ns = rblk_deadline_ms(ATTACH_TIMEOUT_MS);
    target_deadline(c->target, c->attach_deadline_ns);
}

void control_attach_again(struct connection *c)
{
    struct message m = {.type = RBLK_ATTACH, .tag = c->attach_tag};
    struct rblk_attach request = c->attach;

    c->attach_pending = false;
    c->attach_pending = !attach(c, &m, &request);
}

void control_attach_expired(struct connection *c)
{
    struct message m = {.type = RBLK_ATTACH, .tag = c->attach_tag};

    c->attach_pending = false;
    refuse(c, &m, RBLK_STATUS_BUSY,
           "volume \"%s\" is still in use by a client that has gone; its "
           "writes have not ended",
           c->attach.volume);
}

static void handle_detach(struct connection *c, const struct message *m)
{
    if (rblk_empty_decode(m->bytes, m->len)) {
        malformed(c, "DETACH");
        return;
    }
    if (!c->session || c->detach_pending) {
        refuse(c, m, RBLK_STATUS_STATE, "no volume is attached on this connection");
        return;
    }
    log_info("client %s (%s): detached %s", c->peer, c->client, c->session->volume->name);
    /* Answered when nothing of the session is left: then the volume is free for the next one. */
    c->detach_pending = true;
    c->detach_tag = m->tag;
    session_end(c->session);
}

void control_detached(struct connection *c)
{
    c->detach_pending = false;
    reply_empty(c, RBLK_DETACH, c->detach_tag);
}

/* -- extents ---------------------------------------------------------------------------------- */

/* The session, unless there is none or it is ending: then the request is refused. */
static struct session *attached(struct connection *c, const struct message *m)
{
    if (c->session && !c->session->ending)
        return c->session;
    refuse(c, m, RBLK_STATUS_STATE, "no volume is attached on this connection");
    return NULL;
}

static void map_extents(struct connection *c, const struct message *m, struct session *s,
                        const struct rblk_extent_map *request)
{
    uint64_t left = s->domain->extent_count - request->first;
    uint32_t count = left < request->count ? (uint32_t)left : request->count;
    struct rblk_extent_map_reply answer = {.first = request->first};
    uint64_t until = rblk_now_ns() + MAP_TIME_NS;
    uint8_t *reply;
    int rc = 0;

    while (answer.count < count && (answer.count == 0 || rblk_now_ns() < until)) {
        rc = extent_hold(s->domain, request->first + answer.count, s->held,
                         &answer.entry[answer.count]);
        if (rc)
            break;
        answer.count++;
    }
    if (answer.count == 0) {
        refuse(c, m, rc == -ENOMEM ? RBLK_STATUS_NO_MEMORY : RBLK_STATUS_IO,
               "the target cannot register an extent: %s%s", strerror(-rc),
               rc == -ENOMEM ? " (its limit of locked memory may be too low)" : "");
        return;
    }
    reply = connection_buffer(c);
    if (reply)
        connection_send(c, reply, rblk_extent_map_reply_encode(reply, m->tag, &answer));
}

static void handle_extent_map(struct connection *c, const struct message *m)
{
    struct rblk_extent_map request;
    struct session *s;

    if (rblk_extent_map_decode(&request, m->bytes, m->len)) {
        malformed(c, "EXTENT_MAP");
        return;
    }
    s = attached(c, m);
    if (!s)
        return;
    if (request.first >= s->domain->extent_count) {
        refuse(c, m, RBLK_STATUS_RANGE, "volume \"%s\" has %llu extents", s->volume->name,
               (unsigned long long)s->domain->extent_count);
        return;
    }
    map_extents(c, m, s, &request);
}

static void handle_extent_release(struct connection *c, const struct message *m)
{
    struct rblk_extent_release request;
    struct session *s;

    if (rblk_extent_release_decode(&request, m->bytes, m->len)) {
        malformed(c, "EXTENT_RELEASE");
        return;
    }
    s = attached(c, m);
    if (!s)
        return;
    for (uint32_t i = 0; i < request.count; i++) {
        if (request.index[i] >= s->domain->extent_count ||
            !extent_is_held(s->held, request.index[i])) {
            refuse(c, m, RBLK_STATUS_RANGE, "extent %llu is not held by this client",
                   (unsigned long long)request.index[i]);
            return;
        }
    }
    /* One named twice is given back once. */
    for (uint32_t i = 0; i < request.count; i++)
        if (extent_is_held(s->held, request.index[i]))
            extent_drop(s->domain, request.index[i], s->held);
    reply_empty(c, RBLK_EXTENT_RELEASE, m->tag);
}

/* -- events ----------------------------------------------------------------------------------- */

void control_goodbye(struct connection *c)
{
    uint8_t *event;

    if (c->state != CONNECTION_OPEN || c->events_unacknowledged >= RBLK_CONTROL_EVENTS)
        return;
    event = connection_buffer(c);
    if (!event)
        return;
    c->events_unacknowledged++;
    connection_send(c, event, rblk_empty_encode(event, RBLK_EVENT_GOODBYE, ++c->events_sent));
}

static void handle_event_ack(struct connection *c, const struct message *m)
{
    /* Events are acknowledged in order. */
    if (rblk_empty_decode(m->bytes, m->len) || c->events_unacknowledged == 0 ||
        m->tag != c->events_sent - c->events_unacknowledged + 1) {
        malformed(c, "EVENT_ACK");
        return;
    }
    c->events_unacknowledged--;
}

/* -- dispatch --------------------------------------------------------------------------------- */

static const struct {
    uint8_t type;
    void (*handle)(struct connection *c, const struct message *m);
} handlers[] = {
    {RBLK_HELLO, handle_hello},
    {RBLK_LIST, handle_list},
    {RBLK_ATTACH, handle_attach},
    {RBLK_DETACH, handle_detach},
    {RBLK_EXTENT_MAP, handle_extent_map},
    {RBLK_EXTENT_RELEASE, handle_extent_release},
    {RBLK_PING, handle_ping},
    {RBLK_STATS, handle_stats},
    {RBLK_EVENT_ACK, handle_event_ack},
};

void control_message(struct connection *c, const uint8_t *message, size_t len)
{
    struct message m = {.bytes = message, .len = len};
    struct rblk_header header;

    if (rblk_header_decode(&header, message, len)) {
        malformed(c, "control");
        return;
    }
    m.type = header.type;
    m.tag = header.tag;
    if (c->state == CONNECTION_ACCEPTED && m.type != RBLK_HELLO) {
        connection_violation(c, "message 0x%02x before HELLO", m.type);
        return;
    }
    for (size_t i = 0; i < sizeof(handlers) / sizeof(handlers[0]); i++) {
        if (handlers[i].type == m.type) {
            handlers[i].handle(c, &m);
            return;
        }
    }
    connection_violation(c, "message 0x%02x, which only a target sends", m.type);
}
