/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * handle -- struct rblk: options, what is attached, and the error texts of each thread
 *
 * Owners and locks
 * - lock guards the options, the change of `state`, and the registered regions. It is never taken
 *   on the data path.
 * - state is written with release after everything that it announces; a thread that reads it with
 *   acquire may use conn, volume, extents and queue without a lock. They change no more until
 *   rblk_close, which by contract runs alone.
 * - The handle owns what outlives a connection (device, protection domain, extent table, queues
 *   with their requests and pools); struct rblk_conn owns one connection.
 *
 * Order of locks: rblk.lock, then a queue's lock, then rblk_conn.lock, then a queue's sync_lock. No
 * two queues' locks are ever held at once.
 */
#ifndef RBLK_INITIATOR_HANDLE_H
#define RBLK_INITIATOR_HANDLE_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>

#include "common/uri.h"
#include "common/wire.h"
#include "extent.h"
#include "rblk.h"

#define RBLK_ERROR_TEXT_MAX 512 /* bytes of one error text with its zero */
#define RBLK_REGIONS_MAX 64     /* memory regions that a caller may register */

enum rblk_handle_state {
    RBLK_HANDLE_NEW,    /* not connected, options may be set */
    RBLK_HANDLE_TARGET, /* control connection only */
    RBLK_HANDLE_VOLUME, /* a volume is attached, the queues are open */
};

struct rblk_options {
    enum rblk_mode mode;
    unsigned int queues, queue_depth;
    size_t pool_size; /* bytes */
    unsigned int timeout_ms, keepalive_ms;
};

struct rblk_region {
    uint8_t *addr; /* NULL: entry free */
    size_t len;
    struct ibv_mr *mr;
};

struct rblk_conn;

struct rblk {
    uint64_t id; /* unique in this process; finds the error texts, which outlive the handle */
    pthread_mutex_t lock;
    struct rblk_options options;
    _Atomic int state; /* enum rblk_handle_state */
    struct rblk_uri uri;

    struct ibv_context *verbs; /* device of all connections; belongs to librdmacm */
    struct ibv_pd *pd;         /* holds no remotely accessible memory */
    struct rblk_conn *conn;
    struct rblk_attach_reply volume;
    struct rblk_extents extents;
    struct rblk_queue **queue;
    unsigned int queue_count;
    struct rblk_region region[RBLK_REGIONS_MAX];
};

/* Keeps the text of a failed call for the calling thread and returns `error`. */
__attribute__((format(printf, 3, 4))) int rblk_fail(const struct rblk *h, int error,
                                                    const char *fmt, ...);

/* 0 when a volume is attached and its connection is up, else the error of the call, with its text.
 * */
int rblk_check_volume(const struct rblk *h);
/* The same for a control connection. */
int rblk_check_target(const struct rblk *h);

#endif
