/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cm.c -- connection ids: create, bind, resolve, listen, connect, accept, disconnect, destroy
 *
 * Semantics follow librdmacm (man rdma_cm) on an iWARP device. The RDMA port is the TCP port.
 */
#include "cm.h"

#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

static struct soft_slots ids = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .capacity = 65536 - 1,
};

/* Refer to an id by handle: NULL if there is none. */
struct soft_cm_id *soft_cm_get(uint32_t handle)
{
    return handle != 0 ? soft_slots_get(&ids, handle >> 8, handle) : NULL;
}

/* Give a reference back. */
void soft_cm_put(struct soft_cm_id *id)
{
    soft_slots_put(&ids, id->slot);
}

/*
 * A new id. channel NULL: it gets one of its own and its calls are synchronous. NULL with errno
 * on failure.
 */
struct soft_cm_id *soft_cm_create(struct rdma_event_channel *channel, void *context,
                                  enum rdma_port_space ps)
{
    struct soft_cm_id *id = calloc(1, sizeof(*id));
    uint8_t generation;

    if (id == NULL)
        return NULL;
    id->fd = -1;
    id->reuse_address = id->ipv6_only = id->type_of_service = -1;
    id->sync = id->own_channel = channel == NULL;
    id->ibv.channel = channel != NULL ? channel : rdma_create_event_channel();
    id->disconnect_event = soft_cm_event_new(id, RDMA_CM_EVENT_DISCONNECTED, 0);
    if (id->ibv.channel == NULL || id->disconnect_event == NULL ||
        soft_slots_reserve(&ids, id, &id->slot, &generation) < 0) {
        if (id->own_channel)
            rdma_destroy_event_channel(id->ibv.channel);
        free(id->disconnect_event);
        free(id);
        errno = ENOMEM;
        return NULL;
    }
    id->handle = id->slot << 8 | generation;
    id->ibv.context = context;
    id->ibv.ps = ps;
    id->ibv.qp_type = IBV_QPT_RC;
    pthread_mutex_init(&id->lock, NULL);
    pthread_mutex_init(&id->event_lock, NULL);
    pthread_cond_init(&id->event_cond, NULL);
    soft_slots_publish(&ids, id->slot, id->handle);
    return id;
}

/* Free an id and all that hangs on it; waits for events that are not acknowledged. */
void soft_cm_free(struct soft_cm_id *id)
{
    soft_cm_wait_remove(id);
    pthread_mutex_lock(&id->lock);
    soft_cm_unwatch(id);
    pthread_mutex_unlock(&id->lock);
    soft_slots_retire(&ids, id->slot);
    soft_cm_wait_remove(id); /* a worker that still held it may have begun anew */
    soft_cm_unwatch(id);
    if (id->state == SOFT_CM_LISTEN)
        soft_cm_discard_children(id->handle);
    if (id->state == SOFT_CM_REQUEST && id->fd >= 0)
        soft_cm_send_reply(id, true, NULL, 0);
    if (id->listener != 0)
        soft_cm_release_listener(id);
    if (id->fd >= 0)
        close(id->fd);
    /* One that the application never saw has no events, and the channel may be gone already. */
    if (!id->discarded)
        soft_cm_drop_events(id);
    if (id->own_channel)
        rdma_destroy_event_channel(id->ibv.channel);
    pthread_mutex_destroy(&id->lock);
    pthread_mutex_destroy(&id->event_lock);
    pthread_cond_destroy(&id->event_cond);
    free(id->disconnect_event);
    free(id->qp_init);
    free(id);
}

/* Free an id that the application never saw. Several may try; the first does. */
void soft_cm_discard(uint32_t handle)
{
    struct soft_cm_id *id = soft_cm_get(handle);
    bool mine;

    if (id == NULL)
        return;
    pthread_mutex_lock(&id->lock);
    mine = !id->discarded;
    id->discarded = true;
    pthread_mutex_unlock(&id->lock);
    soft_cm_put(id);
    if (mine)
        soft_cm_free(id);
}

/* man rdma_create_id: RDMA_PS_TCP only. Thread-safe. */
int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **out, void *context,
                   enum rdma_port_space ps)
{
    struct soft_cm_id *id;
    int r = soft_start();

    if (r < 0)
        return soft_errno(-r);
    if (ps != RDMA_PS_TCP)
        return soft_errno(EPROTONOSUPPORT);
    id = soft_cm_create(channel, context, ps);
    if (id == NULL)
        return -1;
    *out = &id->ibv;
    return 0;
}

/* man rdma_destroy_id: blocks until all events that the application took are acknowledged. */
int rdma_destroy_id(struct rdma_cm_id *rdma_id)
{
    struct soft_cm_id *id = (struct soft_cm_id *)rdma_id;

    if (id == NULL)
        return soft_errno(EINVAL);
    if (!soft_usable())
        return soft_errno(EIO);
    if (rdma_id->event != NULL)
        rdma_ack_cm_event(rdma_id->event);
    rdma_id->event = NULL;
    soft_cm_free(id);
    return 0;
}

/* Fill in the id's addresses from its socket. id->lock held, or the id not yet shared. */
void soft_cm_set_addresses(struct soft_cm_id *id)
{
    struct rdma_addr *address = &id->ibv.route.addr;
    socklen_t length = sizeof(address->src_storage);

    getsockname(id->fd, &address->src_addr, &length);
    length = sizeof(address->dst_storage);
    if (getpeername(id->fd, &address->dst_addr, &length) < 0)
        return;
}

static int set_option(int fd, int level, int option, int value)
{
    return setsockopt(fd, level, option, &value, sizeof(value)) < 0 ? -errno : 0;
}

static bool set_congestion_control(int fd, const char *name)
{
    return setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name)) == 0;
}

/*
 * What is asked for, else the system's choice, unless that is BBR: it paces what it sends by a
 * timer, which suits the Internet and took a third of a sender's CPU time over loopback (1 MiB
 * reads and writes x1.2 without it). An unprivileged process may use what
 * net.ipv4.tcp_allowed_congestion_control lists, as a rule reno.
 */
static void choose_congestion_control(int fd)
{
    char name[16] = "";
    socklen_t length = sizeof(name) - 1;

    if (soft_config.congestion != NULL) {
        if (*soft_config.congestion != '\0' && !set_congestion_control(fd, soft_config.congestion))
            soft_debug("congestion control %s: %s", soft_config.congestion, strerror(errno));
        return;
    }
    if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &length) == 0 &&
        strncmp(name, "bbr", 3) == 0 && !set_congestion_control(fd, "cubic"))
        set_congestion_control(fd, "reno");
}

/* Best effort: none of these is needed for correctness. */
int soft_cm_set_socket_options(const struct soft_cm_id *id, int fd)
{
    if (soft_config.socket_buffer > 0) {
        set_option(fd, SOL_SOCKET, SO_SNDBUF, soft_config.socket_buffer);
        set_option(fd, SOL_SOCKET, SO_RCVBUF, soft_config.socket_buffer);
    }
    choose_congestion_control(fd);
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 5);
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 2);
    set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, (int)soft_config.tcp_timeout_ms);
    if (id->type_of_service >= 0)
        set_option(fd, IPPROTO_IP, IP_TOS, id->type_of_service);
    return set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
}

static socklen_t address_length(const struct sockaddr *address)
{
    switch (address->sa_family) {
    case AF_INET:
        return sizeof(struct sockaddr_in);
    case AF_INET6:
        return sizeof(struct sockaddr_in6);
    default:
        return 0;
    }
}

static bool is_wildcard(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return ((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr == INADDR_ANY;
    return IN6_IS_ADDR_UNSPECIFIED(
        &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
}

static int open_socket(struct soft_cm_id *id, int family)
{
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -errno;
    soft_cm_set_socket_options(id, fd);
    id->fd = fd;
    return 0;
}

/* Bind the id's socket. id->lock held. */
static int bind_socket(struct soft_cm_id *id, const struct sockaddr *address)
{
    socklen_t length = address_length(address);
    int r;

    if (length == 0)
        return -EAFNOSUPPORT;
    if (id->fd >= 0)
        return -EINVAL;
    r = open_socket(id, address->sa_family);
    if (r < 0)
        return r;
    set_option(id->fd, SOL_SOCKET, SO_REUSEADDR, id->reuse_address != 0);
    if (address->sa_family == AF_INET6 && id->ipv6_only >= 0)
        set_option(id->fd, IPPROTO_IPV6, IPV6_V6ONLY, id->ipv6_only);
    if (bind(id->fd, address, length) < 0) {
        r = -errno;
        close(id->fd);
        id->fd = -1;
        return r;
    }
    soft_cm_set_addresses(id);
    return 0;
}

static int set_device(struct soft_cm_id *id)
{
    id->ibv.verbs = soft_default_context();
    id->ibv.port_num = 1;
    return id->ibv.verbs != NULL ? 0 : -ENODEV;
}

/* man rdma_bind_addr: port 0 picks a free one, see rdma_get_src_port(). */
int rdma_bind_addr(struct rdma_cm_id *rdma_id, struct sockaddr *address)
{
    struct soft_cm_id *id = (struct soft_cm_id *)rdma_id;
    int r = -EINVAL;

    pthread_mutex_lock(&id->lock);
    if (id->state == SOFT_CM_IDLE)
        r = bind_socket(id, address);
    if (r == 0)
        id->state = SOFT_CM_BOUND;
    /* As with the kernel, an id on the wildcard address belongs to no device yet. */
    if (r == 0 && !is_wildcard(address))
        r = set_device(id);
    pthread_mutex_unlock(&id->lock);
    return soft_errno(-r);
}

/* Which local address leads there? A datagram socket knows without sending anything. */
static int find_source(const struct sockaddr *destination, struct sockaddr_storage *source)
{
    int fd = socket(destination->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    socklen_t length = sizeof(*source);
    int r = 0;

    if (fd < 0)
        return -errno;
    if (connect(fd, destination, address_length(destination)) < 0 ||
        getsockname(fd, (struct sockaddr *)source, &length) < 0)
        r = -errno;
    close(fd);
    if (source->ss_family == AF_INET)
        ((struct sockaddr_in *)source)->sin_port = 0;
    else
        ((struct sockaddr_in6 *)source)->sin6_port = 0;
    return r;
}

static int resolve_address(struct soft_cm_id *id, const struct sockaddr *source,
                           const struct sockaddr *destination)
{
    struct sockaddr_storage found = {0};
    int r;

    if (address_length(destination) == 0)
        return -EAFNOSUPPORT;
    if (id->state == SOFT_CM_IDLE && source != NULL && address_length(source) != 0) {
        r = bind_socket(id, source);
        if (r < 0)
            return r;
        id->state = SOFT_CM_BOUND;
    }
    if (id->state != SOFT_CM_IDLE && id->state != SOFT_CM_BOUND)
        return -EINVAL;
    r = set_device(id);
    if (r < 0)
        return r;
    memcpy(&id->ibv.route.addr.dst_storage, destination, address_length(destination));
    r = find_source(destination, &found);
    if (r < 0)
        return soft_cm_announce(id, RDMA_CM_EVENT_ADDR_ERROR, r);
    if (id->state == SOFT_CM_IDLE)
        memcpy(&id->ibv.route.addr.src_storage, &found, sizeof(found));
    id->state = SOFT_CM_ADDRESS;
    return soft_cm_announce(id, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
}

/* man rdma_resolve_addr. It takes no time here, whatever timeout_ms says. */
int rdma_resolve_addr(struct rdma_cm_id *rdma_id, struct sockaddr *source,
                      struct sockaddr *destination, int timeout_ms)
{
    struct soft_cm_id *id = (struct soft_cm_id *)rdma_id;
    int r;

    (void)timeout_ms;
    if (destination == NULL)
        return soft_errno(EINVAL);
    pthread_mutex_lock(&id->lock);
    r = resolve_address(id, source, destination);
    pthread_mutex_unlock(&id->lock);
    return r < 0 ? soft_errno(-r) : soft_cm_complete(id);
}

/* man rdma_resolve_route. */
int rdma_resolve_route(struct rdma_cm_id *rdma_id, int timeout_ms)
{
    struct soft_cm_id *id = (struct soft_cm_id *)rdma_id;
    int r = -EINVAL;

    (void)timeout_ms;
    pthread_mutex_lock(&id->lock);
    if (id->state == SOFT_CM_ADDRESS) {
        id->state = SOFT_CM_ROUTE;
        r = soft_cm_announce(id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
    }
    pthread_mutex_unlock(&id->lock);
    return r < 0 ? soft_errno(-r) : soft_cm_complete(id);
}

/* man rdma_listen. */
int rdma_listen(struct rdma_cm_id *rdma_id, int backlog)
{
    struct soft_cm_id *id = (struct soft_cm_id *)rdma_id;
    const struct sockaddr_in any = {.sin_family = AF_INET};
    int r = 0;

    pthread_mutex_lock(&id->lock);
    if (id->state == SOFT_CM_IDLE)
        r = bind_socket(id, (const struct sockaddr *)&any);
    else if (id->state != SOFT_CM_BOUND)
        r = -EINVAL;
    if (r < 0)
        goto out;
    id->state = SOFT_CM_BOUND;
    id->backlog = backlog < SOFT_MIN_BACKLOG ? SOFT_MIN_BACKLOG : (uint32_t)backlog;
    if (backlog <= 0 || id->backlog > SOFT_MAX_BACKLOG)
        id->backlog = SOFT_MAX_BACKLOG;
    if (listen(id->fd, (int)id->backlog) < 0) {
        r = -errno;
        goto out;
    }
    id->state = SOFT_CM_LISTEN;
    soft_cm_set_addresses(id);
    r = soft_cm_watch(id, EPOLLIN);
    if (r < 0)
        id->state = SOFT_CM_BOUND;
out:
    pthread_mutex_unlock(&id->lock);
    return soft_errno(-r);
}

/* The parameters of connect or accept. peer_*: what the peer offered. Returns 0 or -EINVAL. */
static int take_parameters(struct soft_cm_id *id, const struct rdma_conn_param *param,
                           uint32_t peer_ord, uint32_t peer_ird)
{
    uint32_t ird = peer_ord, ord = peer_ird;

    id->own_qp = id->ibv.qp != NULL ? id->ibv.qp->qp_num : param != NULL ? param->qp_num : 0;
    id->private_length = 0;
    if (param != NULL) {
        if (param->responder_resources != RDMA_MAX_RESP_RES) {
            if (param->responder_resources > SOFT_MAX_RD_ATOMIC)
                return -EINVAL;
            ird = param->responder_resources;
        }
        if (param->initiator_depth != RDMA_MAX_INIT_DEPTH) {
            if (param->initiator_depth > SOFT_MAX_RD_ATOMIC)
                return -EINVAL;
            ord = param->initiator_depth;
        }
        if (param->private_data_len > 0 && param->private_data == NULL)
            return -EINVAL;
        if (param->private_data_len > 0)
            memcpy(id->private_data, param->private_data, param->private_data_len);
        id->private_length = param->private_data_len;
    }
    id->ird = ird < peer_ord ? ird : peer_ord;
    id->ord = ord < peer_ird ? ord : peer_ird;
    return 0;
}

static int start_connect(struct soft_cm_id *id, const struct rdma_conn_param *param)
{
    const struct sockaddr *to = &id->ibv.route.addr.dst_addr;
    int r;

    if (id->state != SOFT_CM_ROUTE && id->state != SOFT_CM_ADDRESS)
        return -EINVAL;
    r = take_parameters(id, param, SOFT_MAX_RD_ATOMIC, SOFT_MAX_RD_ATOMIC);
    if (r < 0)
        return r;
    if (id->fd < 0) {
        r = open_socket(id, to->sa_family);
        if (r < 0)
            return r;
    }
    id->state = SOFT_CM_CONNECTING;
    id->deadline_us = soft_now_us() + SOFT_CONNECT_MS * 1000u;
    if (connect(id->fd, to, address_length(to)) < 0 && errno != EINPROGRESS) {
        int status = -errno;

        close(id->fd);
        id->fd = -1;
        id->state = SOFT_CM_FAILED;
        return soft_cm_announce(
            id, status == -ECONNREFUSED ? RDMA_CM_EVENT_REJECTED : RDMA_CM_EVENT_UNREACHABLE,
            status);
    }
    soft_cm_wait_add(id);
    return soft_cm_watch(id, EPOLLOUT);
}

/* man rdma_connect. The outcome comes as an event (or, synchronously, as the result). */
int rdma_connect(struct rdma_cm_id *rdma_id, struct rdma_conn_param *param)
{
    struct soft_cm_id *id = (struct soft_cm_id *)rdma_id;
    int r;

    pthread_mutex_lock(&id->lock);
    r = start_connect(id, param);
    pthread_mutex_unlock(&id->lock);
    return r < 0 ? soft_errno(-r) : soft_cm_complete(id);
}

/* man rdma_establish: the queue pair that the application brought to RTS takes the stream. */
int rdma_establish(struct rdma_cm_id *rdma_id)
{
    struct soft_cm_id *id = (struct soft_cm_id *)rdma_id;
    int r = -EINVAL;

    pthread_mutex_lock(&id->lock);
    if (id->state == SOFT_CM_CONNECTED) {
        r = 0;
    } else if (id->state == SOFT_CM_RESPONSE && rdma_id->qp != NULL) {
        id->own_qp = rdma_id->qp->qp_num;
        r = soft_cm_attach(id, false);
        if (r == 0) {
            pthread_mutex_lock(&id->event_lock);
            id->established = true;
            pthread_mutex_unlock(&id->event_lock);
        }
    }
    pthread_mutex_unlock(&id->lock);
    return soft_errno(-r);
}

static int answer_request(struct soft_cm_id *id, const struct rdma_conn_param *param)
{
    int r;

    if (id->state != SOFT_CM_REQUEST)
        return -EINVAL;
    r = take_parameters(id, param, id->ird, id->ord);
    if (r < 0)
        return r;
    if (id->own_qp == 0)
        return -EINVAL;
    r = soft_cm_send_reply(id, false, id->private_data, id->private_length);
    id->private_length = 0;
    if (id->listener != 0)
        soft_cm_release_listener(id);
    if (r == 0)
        r = soft_cm_attach(id, true);
    if (r < 0) {
        id->state = SOFT_CM_FAILED;
        return r;
    }
    if (!(id->enhanced && id->v2.peer_to_peer))
        soft_cm_announce_established(id);
    return 0;
}

/* man rdma_accept. param NULL: what the peer asked for. */
int rdma_accept(struct rdma_cm_id *rdma_id, struct rdma_conn_param *param)
{
    struct soft_cm_id *id = (struct soft_cm_id *)rdma_id;
    int r;

    pthread_mutex_lock(&id->lock);
    r = answer_request(id, param);
    pthread_mutex_unlock(&id->lock);
    return r < 0 ? soft_errno(-r) : soft_cm_complete(id);
}

/* man rdma_reject. */
int rdma_reject(struct rdma_cm_id *rdma_id, const void *private_data, uint8_t length)
{
    struct soft_cm_id *id = (struct soft_cm_id *)rdma_id;
    int r = -EINVAL;

    pthread_mutex_lock(&id->lock);
    if (id->state == SOFT_CM_REQUEST && (length == 0 || private_data != NULL)) {
        r = soft_cm_send_reply(id, true, private_data, length);
        if (id->listener != 0)
            soft_cm_release_listener(id);
        close(id->fd);
        id->fd = -1;
        id->state = SOFT_CM_FAILED;
    }
    pthread_mutex_unlock(&id->lock);
    return soft_errno(-r);
}

/* man rdma_notify: there is no communication-established race to settle. */
int rdma_notify(struct rdma_cm_id *id, enum ibv_event_type event)
{
    (void)id;
    (void)event;
    return 0;
}

/* man rdma_disconnect: what was posted is sent first. */
int rdma_disconnect(struct rdma_cm_id *rdma_id)
{
    struct soft_cm_id *id = (struct soft_cm_id *)rdma_id;
    struct soft_qp *qp = NULL;
    bool first;

    if (!soft_usable())
        return soft_errno(EIO);
    pthread_mutex_lock(&id->lock);
    first = id->state == SOFT_CM_CONNECTED && !id->disconnect_called;
    if (first) {
        id->disconnect_called = true;
        qp = soft_qp_get(id->own_qp);
    }
    pthread_mutex_unlock(&id->lock);
    if (!first)
        return soft_errno(EINVAL);
    if (qp != NULL) {
        soft_qp_disconnect(qp);
        soft_qp_put(qp);
    }
    return soft_cm_complete(id);
}

/* man rdma_set_option. */
int rdma_set_option(struct rdma_cm_id *rdma_id, int level, int option, void *value, size_t length)
{
    struct soft_cm_id *id = (struct soft_cm_id *)rdma_id;
    int r = 0;

    if (level != RDMA_OPTION_ID)
        return soft_errno(ENOSYS);
    pthread_mutex_lock(&id->lock);
    if (option == RDMA_OPTION_ID_TOS && length == sizeof(uint8_t))
        id->type_of_service = *(const uint8_t *)value;
    else if (option == RDMA_OPTION_ID_REUSEADDR && length == sizeof(int))
        id->reuse_address = *(const int *)value;
    else if (option == RDMA_OPTION_ID_AFONLY && length == sizeof(int))
        id->ipv6_only = *(const int *)value;
    else if (option != RDMA_OPTION_ID_ACK_TIMEOUT || length != sizeof(uint8_t))
        r = EINVAL;
    pthread_mutex_unlock(&id->lock);
    return soft_errno(r);
}

/* man rdma_migrate_id. channel NULL makes the id synchronous. */
int rdma_migrate_id(struct rdma_cm_id *rdma_id, struct rdma_event_channel *channel)
{
    struct soft_cm_id *id = (struct soft_cm_id *)rdma_id;
    struct rdma_event_channel *old = rdma_id->channel;
    bool sync = channel == NULL;
    bool owned = id->own_channel;

    if (sync) {
        channel = rdma_create_event_channel();
        if (channel == NULL)
            return -1;
    }
    soft_cm_move_events(id, channel);
    id->sync = id->own_channel = sync;
    if (owned) {
        if (rdma_id->event != NULL)
            rdma_ack_cm_event(rdma_id->event);
        rdma_id->event = NULL;
        rdma_destroy_event_channel(old);
    }
    return 0;
}

static __be16 port_of(const struct sockaddr_storage *address)
{
    if (address->ss_family == AF_INET)
        return ((const struct sockaddr_in *)address)->sin_port;
    if (address->ss_family == AF_INET6)
        return ((const struct sockaddr_in6 *)address)->sin6_port;
    return 0;
}

/* man rdma_get_src_port: network byte order. */
__be16 rdma_get_src_port(struct rdma_cm_id *id)
{
    return port_of(&id->route.addr.src_storage);
}

/* man rdma_get_dst_port: network byte order. */
__be16 rdma_get_dst_port(struct rdma_cm_id *id)
{
    return port_of(&id->route.addr.dst_storage);
}

/* librdmacm's call behind rdma_create_qp() for queue pairs that the application makes itself. */
int rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *attr, int *mask)
{
    enum ibv_qp_state state = attr->qp_state;

    (void)id;
    if (state != IBV_QPS_INIT && state != IBV_QPS_RTR && state != IBV_QPS_RTS)
        return soft_errno(EINVAL);
    *mask = IBV_QP_STATE;
    if (state == IBV_QPS_INIT) {
        attr->qp_access_flags =
            IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
        attr->port_num = 1;
        *mask |= IBV_QP_ACCESS_FLAGS;
    }
    return 0;
}
