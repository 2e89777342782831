/* SPDX-License-Identifier: BSD-2-Clause */
/* listener -- the addresses that the target listens on, and all rdma_cm events */
#include "listener.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "config.h"
#include "connection.h"
#include "log.h"
#include "queue.h"
#include "session.h"
#include "uri.h"
#include "wire.h"

#define BACKLOG 1024 /* a few hundred connections that say nothing keep nobody out */
#define EVENTS_BATCH 64

struct listener {
    struct cm_owner owner;
    struct listener *next;
    struct rdma_cm_id *id;
    char text[PEER_TEXT_LEN];
};

/* What of an event is kept after it was acknowledged. */
struct cm_event {
    struct rdma_cm_id *id;
    enum rdma_cm_event_type type;
    int status;
    struct rdma_conn_param param;
    uint8_t private_data[256];
    uint8_t private_len;
};

/* -- addresses ------------------------------------------------------------------------------- */

static void address_text(const struct sockaddr *addr, char *buf, size_t len)
{
    char host[NI_MAXHOST], port[NI_MAXSERV];
    socklen_t size =
        addr->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);

    if (getnameinfo(addr, size, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV))
        snprintf(buf, len, "(unknown)");
    else
        snprintf(buf, len, addr->sa_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
}

void listener_peer_text(struct rdma_cm_id *id, char *buf, size_t len)
{
    address_text(rdma_get_peer_addr(id), buf, len);
}

void listener_describe(const struct target *t, char *buf, size_t len)
{
    size_t used = 0;

    buf[0] = '\0';
    for (const struct listener *l = t->listeners; l && used < len; l = l->next) {
        int n = snprintf(buf + used, len - used, "%s%s", used ? ", " : "", l->text);

        used += n > 0 ? (size_t)n : 0;
    }
}

static int listen_failed(const char *text, const char *step, int error, char *err, size_t errlen)
{
    const char *remedy = "";

    if (error == EADDRINUSE)
        remedy = "; another program has that port: stop it, or choose another with "
                 "--listen ADDR:PORT";
    else if (error == EADDRNOTAVAIL)
        remedy = "; no interface of this machine has that address: choose another with --listen";
    else if (error == EACCES)
        remedy = "; ports below 1024 need root: choose another with --listen ADDR:PORT";
    else if (error == ENODEV)
        remedy = "; no RDMA device serves that address: choose another with --listen, or use "
                 "--provider soft";
    snprintf(err, errlen, "cannot listen on %s: %s%s%s", text, step, strerror(error), remedy);
    return -error;
}

static int listen_on(struct target *t, const struct sockaddr *addr, char *err, size_t errlen)
{
    struct listener *l = calloc(1, sizeof(*l)), **link = &t->listeners;
    int only_v6 = 1, rc;

    if (!l) {
        snprintf(err, errlen, "out of memory");
        return -ENOMEM;
    }
    l->owner.kind = OWNER_LISTENER;
    address_text(addr, l->text, sizeof(l->text));
    if (rdma_create_id(t->cm, &l->id, l, RDMA_PS_TCP)) {
        rc = listen_failed(l->text, "", errno, err, errlen);
        goto fail;
    }
    /* IPv4 has a listener of its own. */
    if (addr->sa_family == AF_INET6)
        rdma_set_option(l->id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &only_v6, sizeof(only_v6));
    if (rdma_bind_addr(l->id, (struct sockaddr *)addr) || rdma_listen(l->id, BACKLOG)) {
        rc = listen_failed(l->text, "", errno, err, errlen);
        goto fail_id;
    }
    address_text(rdma_get_local_addr(l->id), l->text, sizeof(l->text));
    while (*link)
        link = &(*link)->next;
    *link = l;
    return 0;

fail_id:
    rdma_destroy_id(l->id);
fail:
    free(l);
    return rc;
}

/* All addresses: of the two families one may be missing from the machine, not both. */
static int listen_everywhere(struct target *t, uint16_t port, char *err, size_t errlen)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    char err6[512];
    int rc = listen_on(t, (struct sockaddr *)&v4, err, errlen);
    int rc6;

    if (rc && rc != -EAFNOSUPPORT)
        return rc;
    if (port == 0 && rc == 0)
        v6.sin6_port = rdma_get_src_port(t->listeners->id);
    rc6 = listen_on(t, (struct sockaddr *)&v6, err6, sizeof(err6));
    if (rc6 == 0 || (rc == 0 && rc6 != -EADDRINUSE))
        return 0;
    snprintf(err, errlen, "%s", err6);
    return rc6;
}

static int listen_text(struct target *t, const char *text, char *err, size_t errlen)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list, *a;
    char host[256], service[8];
    uint16_t port = 0;
    int rc = rblk_address_parse(host, sizeof(host), &port, text, err, errlen);

    if (rc)
        return rc;
    if (host[0] == '\0')
        return listen_everywhere(t, port, err, errlen);
    snprintf(service, sizeof(service), "%u", port);
    rc = getaddrinfo(host, service, &hints, &list);
    if (rc) {
        snprintf(err, errlen,
                 "cannot listen on %s: the name does not resolve: %s; give an address "
                 "of this machine",
                 text, gai_strerror(rc));
        return -EINVAL;
    }
    for (a = list, rc = 0; a && rc == 0; a = a->ai_next)
        rc = listen_on(t, a->ai_addr, err, errlen);
    freeaddrinfo(list);
    return rc;
}

int listener_open_all(struct target *t, char *err, size_t errlen)
{
    const struct config *c = t->config;
    int rc = 0;

    if (c->listen_count == 0)
        return listen_everywhere(t, RBLK_DEFAULT_PORT, err, errlen);
    for (size_t i = 0; i < c->listen_count && rc == 0; i++)
        rc = listen_text(t, c->listen[i], err, errlen);
    return rc;
}

void listener_close_all(struct target *t)
{
    struct listener *l, *next;

    for (l = t->listeners; l; l = next) {
        next = l->next;
        rdma_destroy_id(l->id);
        free(l);
    }
    t->listeners = NULL;
}

/* -- connect requests ------------------------------------------------------------------------ */

static void reject(struct rdma_cm_id *id, enum rblk_status status)
{
    struct rblk_reject m = {.version = RBLK_WIRE_VERSION, .status = (uint16_t)status};
    uint8_t private_data[RBLK_REJECT_LEN];

    rblk_reject_encode(private_data, &m);
    rdma_reject(id, private_data, sizeof(private_data));
    rdma_destroy_id(id);
}

static enum rblk_status connect_request(struct target *t, const struct cm_event *e)
{
    struct rblk_connect m;
    struct session *s;
    int rc = rblk_connect_decode(&m, e->private_data, e->private_len);

    if (t->phase != TARGET_RUNNING)
        return RBLK_STATUS_SHUTTING_DOWN;
    if (rc == -EPROTONOSUPPORT)
        return RBLK_STATUS_VERSION;
    if (rc)
        return RBLK_STATUS_MALFORMED;
    if (m.kind == RBLK_KIND_CONTROL)
        return connection_connect(t, e->id);
    s = session_find(t, m.token);
    if (!s)
        return RBLK_STATUS_TOKEN;
    return queue_connect(t, s, e->id, &m, &e->param);
}

static void handle_connect_request(struct target *t, const struct cm_event *e)
{
    enum rblk_status status = connect_request(t, e);
    char peer[PEER_TEXT_LEN];

    if (status == RBLK_STATUS_OK)
        return;
    listener_peer_text(e->id, peer, sizeof(peer));
    if (status == RBLK_STATUS_MALFORMED || status == RBLK_STATUS_TOKEN)
        counter_add(&t->counters.protocol_errors, 1);
    log_warning("client %s: connection rejected: %s", peer, rblk_status_text((uint16_t)status));
    reject(e->id, status);
}

/* -- events ---------------------------------------------------------------------------------- */

static void established(const struct cm_owner *owner)
{
    if (owner->kind == OWNER_CONNECTION)
        connection_established((struct connection *)owner);
    else if (owner->kind == OWNER_QUEUE)
        queue_established((struct queue *)owner);
}

static void disconnected(const struct cm_owner *owner)
{
    if (owner->kind == OWNER_CONNECTION)
        connection_disconnected((struct connection *)owner);
    else if (owner->kind == OWNER_QUEUE)
        queue_disconnected((struct queue *)owner);
}

static void handle_event(struct target *t, const struct cm_event *e)
{
    const struct cm_owner *owner = e->id->context;

    switch (e->type) {
    case RDMA_CM_EVENT_CONNECT_REQUEST:
        handle_connect_request(t, e);
        break;
    case RDMA_CM_EVENT_ESTABLISHED:
        established(owner);
        break;
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_REJECTED:
    case RDMA_CM_EVENT_DISCONNECTED:
        disconnected(owner);
        break;
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
        if (owner->kind == OWNER_LISTENER)
            log_error("the RDMA device of %s was removed; rblkd has to be started again",
                      ((const struct listener *)owner)->text);
        else
            disconnected(owner);
        break;
    default:
        /* ADDR_CHANGE and TIMEWAIT_EXIT ask for nothing here. */
        break;
    }
}

/*
 * Copies and acknowledges the event first, because an id can only be destroyed when its events are
 * acknowledged. A new id comes with its listener's context.
 */
static void take_event(struct target *t, struct rdma_cm_event *event)
{
    struct cm_event e = {
        .id = event->id,
        .type = event->event,
        .status = event->status,
        .param = event->param.conn,
        .private_len = event->param.conn.private_data_len,
    };

    if (event->param.conn.private_data)
        memcpy(e.private_data, event->param.conn.private_data, e.private_len);
    else
        e.private_len = 0;
    e.param.private_data = NULL;
    rdma_ack_cm_event(event);
    handle_event(t, &e);
}

bool listener_poll(struct target *t)
{
    struct rdma_cm_event *event;

    for (int i = 0; i < EVENTS_BATCH; i++) {
        if (rdma_get_cm_event(t->cm, &event))
            return false;
        take_event(t, event);
    }
    return true;
}
