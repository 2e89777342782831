/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cm.h -- types shared inside the connection manager; locks as in softrdma.h
 *
 * An id that the application may see is in the slot table from creation to rdma_destroy_id().
 * While a worker handles an id (listener, connect, handshake) it holds a slot reference and
 * soft_cm_id.lock. A passive id belongs to its listener until the application takes the
 * CONNECT_REQUEST event.
 */
#ifndef SOFTRDMA_CM_H
#define SOFTRDMA_CM_H

#include "softrdma.h"

#include <netinet/in.h>

enum soft_cm_state {
    SOFT_CM_IDLE,
    SOFT_CM_BOUND,
    SOFT_CM_LISTEN,
    SOFT_CM_ADDRESS,      /* address resolved */
    SOFT_CM_ROUTE,        /* route resolved */
    SOFT_CM_CONNECTING,   /* TCP connect in progress */
    SOFT_CM_REPLY_WAIT,   /* MPA request sent */
    SOFT_CM_REQUEST_WAIT, /* passive: MPA request not complete */
    SOFT_CM_REQUEST,      /* passive: CONNECT_REQUEST announced */
    SOFT_CM_RESPONSE,     /* active without a queue pair: rdma_establish() is next */
    SOFT_CM_CONNECTED,
    SOFT_CM_DISCONNECTED,
    SOFT_CM_FAILED,
};

struct soft_cm_id;

struct soft_cm_event {
    struct rdma_cm_event ibv;
    struct soft_cm_event *next;
    struct soft_cm_id *owner; /* whose counters it is in: the listener of a request */
    struct soft_event_channel *channel;
    uint8_t private_data[SOFT_MAX_PRIVATE];
};

struct soft_event_channel {
    struct rdma_event_channel ibv; /* fd: eventfd, readable while events are queued */
    pthread_mutex_t lock;          /* all below */
    struct soft_cm_event *head, *tail;
    atomic_bool retired; /* destroyed by the application */
};

#define SOFT_MPA_BUFFER (IWARP_MPA_FIXED + IWARP_MPA_PRIVATE_MAX)

struct soft_cm_id {
    struct rdma_cm_id ibv;
    uint32_t slot, handle;
    pthread_mutex_t lock; /* all below up to event_lock */
    enum soft_cm_state state;
    int fd;          /* -1 once a queue pair owns it */
    uint32_t own_qp; /* queue pair number given in conn_param, or the id's own */
    bool sync;       /* created without a channel: calls wait for their event */
    bool discarded;  /* somebody is freeing it */
    bool disconnect_called;
    bool watched;                 /* in worker 0's epoll */
    struct ibv_pd *ep_pd;         /* rdma_create_ep() of a listener: for its children */
    int reuse_address, ipv6_only; /* rdma_set_option; -1 = default */
    int type_of_service;          /* -1 = default */
    uint64_t deadline_us;
    uint8_t buffer[SOFT_MPA_BUFFER];
    uint32_t received, wanted;
    struct iwarp_mpa mpa; /* of the peer's frame */
    struct iwarp_mpa_v2 v2;
    bool enhanced; /* the peer's frame has the version 2 words */
    bool crc;
    uint32_t ird, ord; /* ours */
    uint8_t private_data[SOFT_MAX_PRIVATE];
    uint8_t private_length;
    struct ibv_qp_init_attr *qp_init; /* rdma_create_ep() of a listener: for its children */
    uint32_t listener;                /* handle; passive, until accepted or rejected */
    uint32_t backlog;
    atomic_uint pending; /* of a listener: children not accepted yet */
    /* The list of ids with a deadline; under its lock. */
    bool waiting;
    uint64_t wait_until_us;
    struct soft_cm_id *wait_next, *wait_previous;

    pthread_mutex_t event_lock; /* all below */
    pthread_cond_t event_cond;
    uint32_t events_given, events_acked;
    bool established;  /* ESTABLISHED is announced */
    bool disconnected; /* the queue pair's stream ended */
    bool own_channel;
    struct soft_cm_event *disconnect_event; /* allocated with the id: it must never fail */
};

struct soft_cm_id *soft_cm_get(uint32_t handle);
void soft_cm_put(struct soft_cm_id *id);
struct soft_cm_id *soft_cm_create(struct rdma_event_channel *channel, void *context,
                                  enum rdma_port_space ps);
void soft_cm_free(struct soft_cm_id *id);
void soft_cm_discard(uint32_t handle);
void soft_cm_discard_children(uint32_t listener);
void soft_cm_set_addresses(struct soft_cm_id *id);
int soft_cm_set_socket_options(const struct soft_cm_id *id, int fd);
int soft_cm_complete(struct soft_cm_id *id);

struct soft_cm_event *soft_cm_event_new(struct soft_cm_id *id, enum rdma_cm_event_type type,
                                        int status);
void soft_cm_event_push(struct soft_cm_event *event);
int soft_cm_announce(struct soft_cm_id *id, enum rdma_cm_event_type type, int status);
void soft_cm_announce_established(struct soft_cm_id *id);
void soft_cm_drop_events(struct soft_cm_id *id);
void soft_cm_move_events(struct soft_cm_id *id, struct rdma_event_channel *channel);

void soft_cm_wait_add(struct soft_cm_id *id);
void soft_cm_wait_remove(struct soft_cm_id *id);
int soft_cm_watch(struct soft_cm_id *id, uint32_t events);
void soft_cm_unwatch(struct soft_cm_id *id);
int soft_cm_send_reply(struct soft_cm_id *id, bool reject, const void *private_data,
                       uint8_t length);
int soft_cm_attach(struct soft_cm_id *id, bool passive);
void soft_cm_release_listener(struct soft_cm_id *id);

#endif
