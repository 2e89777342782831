/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * target -- the running target: what its parts share, and the control thread's loop
 *
 * Threads
 *   control thread (the main one): all CM events, control connections, sessions, extents, devices,
 *       deadlines, signals. Everything in struct target is its own, except as noted.
 *   reactors (reactor.h): the I/O queues' data path. They read the volumes, and tell the control
 *       thread about queues through `reports`.
 * A queue is passed to and fro by mailbox; each of its fields says whose it is (queue.h).
 */
#ifndef RBLK_TARGET_TARGET_H
#define RBLK_TARGET_TARGET_H

#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mailbox.h"
#include "stats.h"
#include "wire.h"

struct config;
struct connection;
struct device;
struct listener;
struct queue;
struct reactor;
struct session;
struct target;
struct volume;

/* A descriptor in the control thread's epoll set. */
struct event_source {
    int fd; /* -1: not in the set */
    void (*ready)(struct target *t, void *object);
    void *object;
};

/* First member of everything that an rdma_cm_id's context may point to. */
struct cm_owner {
    enum { OWNER_LISTENER, OWNER_CONNECTION, OWNER_QUEUE } kind;
};

enum target_phase {
    TARGET_RUNNING,
    TARGET_STOPPING, /* nothing new is accepted; what is in flight is finished */
};

struct target {
    const struct config *config;
    struct volume *volumes; /* the table is fixed after start; see volume.h for its entries */
    unsigned int volume_count;
    struct reactor **reactors;
    unsigned int reactor_count;
    struct device *devices;
    struct rdma_event_channel *cm;
    struct listener *listeners;
    struct connection **connections; /* max_clients entries, NULL where free */
    unsigned int connection_count;
    uint32_t connection_generation;
    struct session *sessions;
    struct queue *queues;   /* every I/O queue, in whatever state */
    struct mailbox reports; /* posted by reactors */
    struct counters counters;
    uint8_t uuid[RBLK_UUID_LEN];
    char name[RBLK_NAME_LEN];
    uint64_t write_verifier; /* fixed after start; reactors read it */
    uint64_t started_ns;
    int epoll_fd;
    struct event_source cm_events, report_events, signals;
    enum target_phase phase;
    uint64_t next_tick_ns; /* when deadlines have to be looked at; UINT64_MAX: none */
    uint64_t stop_deadline_ns;
    bool stop_now; /* a second signal came */
};

/* Adds the descriptor to the control thread's epoll set: 0 or a negative errno. */
int event_source_add(struct target *t, struct event_source *source, int fd,
                     void (*ready)(struct target *t, void *object), void *object);
/* Takes it out; the descriptor is not closed. Sources that are not in the set are allowed. */
void event_source_remove(struct target *t, struct event_source *source);

/* Sees to it that deadlines are looked at no later than then (rblk_now_ns clock). */
static inline void target_deadline(struct target *t, uint64_t when_ns)
{
    if (when_ns < t->next_tick_ns)
        t->next_tick_ns = when_ns;
}

/*
 * Opens the volumes, starts the reactors and listens. `signal_fd` is a signalfd(2) of SIGTERM,
 * SIGINT and SIGHUP; the caller keeps it. 0, or a negative errno and one line in err.
 */
int target_start(struct target *t, const struct config *config, int signal_fd, char *err,
                 size_t errlen);
/*
 * Serves until a signal ends it and everything in flight is finished, or the time for that is
 * over.
 */
void target_run(struct target *t);
/*
 * Ends the reactors, writes the volumes to stable storage, frees everything. 0, or a negative
 * errno when something could not be written or did not end in time (then it has been said).
 */
int target_stop(struct target *t);

#endif
