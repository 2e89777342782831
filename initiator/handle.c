/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * handle -- creating, options, closing, and the error texts
 *
 * Error texts are the calling thread's (thread-local), found by the handle's number, which is never
 * used twice; so a text can neither be torn by another thread nor belong to a handle that was
 * freed.
 */
#include "handle.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "connect.h"
#include "control.h"

/* Handles that one thread can hold error texts of at once; the oldest text gives way. */
#define TEXTS 4

struct text {
    uint64_t handle; /* 0: none */
    uint64_t age;
    char text[RBLK_ERROR_TEXT_MAX];
};

static _Thread_local struct text texts[TEXTS];
static _Thread_local uint64_t text_age;
static _Thread_local char answer[RBLK_ERROR_TEXT_MAX];

/* -- errors ---------------------------------------------------------------------------------- */

static struct text *find_text(uint64_t handle)
{
    for (int i = 0; i < TEXTS; i++)
        if (texts[i].handle == handle)
            return &texts[i];
    return NULL;
}

int rblk_fail(const struct rblk *h, int error, const char *fmt, ...)
{
    char line[RBLK_ERROR_TEXT_MAX];
    struct text *slot = find_text(h->id);
    va_list args;

    /* By way of a buffer: the arguments may point into the text that is replaced. */
    va_start(args, fmt);
    vsnprintf(line, sizeof(line), fmt, args);
    va_end(args);
    if (!slot) {
        slot = &texts[0];
        for (int i = 1; i < TEXTS; i++)
            if (texts[i].age < slot->age)
                slot = &texts[i];
    }
    slot->handle = h->id;
    slot->age = ++text_age;
    memcpy(slot->text, line, sizeof(line));
    return error;
}

const char *rblk_error(const struct rblk *h)
{
    const struct text *text = h ? find_text(h->id) : NULL;

    if (text)
        memcpy(answer, text->text, sizeof(answer));
    else if (h && atomic_load_explicit(&h->state, memory_order_acquire) != RBLK_HANDLE_NEW &&
             rblk_conn_failed(h->conn))
        /* No call of this thread failed, but a request may have, which is why it asks. */
        memcpy(answer, h->conn->failure_text, sizeof(answer));
    else
        snprintf(answer, sizeof(answer), "no error");
    return answer;
}

static int check(const struct rblk *h, int least)
{
    int state = atomic_load_explicit(&h->state, memory_order_acquire);

    if (state < least)
        return rblk_fail(h, -ENOTCONN,
                         state == RBLK_HANDLE_TARGET
                             ? "no volume is attached; connect with a URI that names one"
                             : "not connected; connect first");
    if (rblk_conn_failed(h->conn))
        return rblk_fail(h, -EIO, "%s", h->conn->failure_text);
    return 0;
}

int rblk_check_volume(const struct rblk *h)
{
    return check(h, RBLK_HANDLE_VOLUME);
}

int rblk_check_target(const struct rblk *h)
{
    return check(h, RBLK_HANDLE_TARGET);
}

/* -- life ------------------------------------------------------------------------------------ */

int rblk_create(struct rblk **out)
{
    static _Atomic uint64_t last_id;
    struct rblk *h = calloc(1, sizeof(*h));

    if (!h)
        return -ENOMEM;
    h->id = atomic_fetch_add(&last_id, 1) + 1;
    h->options = (struct rblk_options){
        .mode = RBLK_MODE_RW,
        .queues = 1,
        .queue_depth = 64,
        .pool_size = 16u << 20,
        .timeout_ms = 10000,
        .keepalive_ms = 5000,
    };
    pthread_mutex_init(&h->lock, NULL);
    *out = h;
    return 0;
}

void rblk_close(struct rblk *h)
{
    if (!h)
        return;
    rblk_teardown(h, atomic_load_explicit(&h->state, memory_order_acquire) == RBLK_HANDLE_VOLUME,
                  -ECANCELED);
    pthread_mutex_destroy(&h->lock);
    free(h);
}

const char *rblk_version(void)
{
    return RBLK_VERSION;
}

/* -- options --------------------------------------------------------------------------------- */

/* Locks the handle when its options may be set and value lies within the bounds. */
static int begin_option(struct rblk *h, const char *name, uint64_t value, uint64_t min,
                        uint64_t max)
{
    if (value < min || value > max)
        return rblk_fail(h, -EINVAL, "%s %llu is out of range; it can be %llu to %llu", name,
                         (unsigned long long)value, (unsigned long long)min,
                         (unsigned long long)max);
    pthread_mutex_lock(&h->lock);
    if (atomic_load_explicit(&h->state, memory_order_acquire) == RBLK_HANDLE_NEW)
        return 0;
    pthread_mutex_unlock(&h->lock);
    return rblk_fail(h, -EISCONN, "%s must be set before connecting", name);
}

static void end_option(struct rblk *h)
{
    pthread_mutex_unlock(&h->lock);
}

int rblk_set_mode(struct rblk *h, enum rblk_mode mode)
{
    int rc = begin_option(h, "mode", (uint64_t)mode, RBLK_MODE_RW, RBLK_MODE_SHARED);

    if (rc)
        return rc;
    h->options.mode = mode;
    end_option(h);
    return 0;
}

int rblk_set_queues(struct rblk *h, unsigned int queues)
{
    int rc = begin_option(h, "number of queues", queues, 1, RBLK_QUEUES_MAX);

    if (rc)
        return rc;
    h->options.queues = queues;
    end_option(h);
    return 0;
}

int rblk_set_queue_depth(struct rblk *h, unsigned int depth)
{
    int rc = begin_option(h, "queue depth", depth, 1, RBLK_QUEUE_DEPTH_MAX);

    if (rc)
        return rc;
    h->options.queue_depth = depth;
    end_option(h);
    return 0;
}

int rblk_set_pool_size(struct rblk *h, size_t bytes)
{
    int rc = begin_option(h, "pool size", bytes, 1u << 20, 64u << 20);

    if (rc)
        return rc;
    h->options.pool_size = bytes;
    end_option(h);
    return 0;
}

int rblk_set_timeout(struct rblk *h, unsigned int milliseconds)
{
    int rc = begin_option(h, "time-out (milliseconds)", milliseconds, 1, 600000);

    if (rc)
        return rc;
    h->options.timeout_ms = milliseconds;
    end_option(h);
    return 0;
}

int rblk_set_keepalive(struct rblk *h, unsigned int milliseconds)
{
    int rc = begin_option(h, "heartbeat interval (milliseconds)", milliseconds, 100, 600000);

    if (rc)
        return rc;
    h->options.keepalive_ms = milliseconds;
    end_option(h);
    return 0;
}
