/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * resolve -- getaddrinfo(3) that keeps a deadline
 *
 * getaddrinfo may wait for name servers much longer than our caller may. So a thread of its own
 * calls it; a caller whose deadline passes leaves, and the thread frees what is left. `lock` guards
 * the lookup; it is freed by whoever drops the last of the two references.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "connect.h"

struct lookup {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool done;
    unsigned int references;
    int rc, error; /* of getaddrinfo; error: errno for EAI_SYSTEM */
    struct addrinfo *result;
    char service[8];
    char host[256];
};

static void fill_hints(struct addrinfo *hints, int flags)
{
    memset(hints, 0, sizeof(*hints));
    hints->ai_socktype = SOCK_STREAM;
    hints->ai_flags = AI_NUMERICSERV | flags;
}

/* lock held; releases it. */
static void drop(struct lookup *l)
{
    bool last = --l->references == 0;

    pthread_mutex_unlock(&l->lock);
    if (!last)
        return;
    if (l->result)
        freeaddrinfo(l->result);
    pthread_cond_destroy(&l->cond);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

static void *lookup_main(void *arg)
{
    struct lookup *l = arg;
    struct addrinfo hints, *result = NULL;
    int rc, error;

    fill_hints(&hints, AI_ADDRCONFIG);
    rc = getaddrinfo(l->host, l->service, &hints, &result);
    error = errno;
    pthread_mutex_lock(&l->lock);
    l->rc = rc;
    l->error = error;
    l->result = rc == 0 ? result : NULL;
    l->done = true;
    pthread_cond_signal(&l->cond);
    drop(l);
    return NULL;
}

static int start(struct lookup *l)
{
    pthread_attr_t attr;
    pthread_t thread;
    sigset_t all, before;
    int rc;

    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&thread, &attr, lookup_main, l);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return rc;
}

static struct lookup *new_lookup(const char *host, const char *service)
{
    struct lookup *l = calloc(1, sizeof(*l));
    pthread_condattr_t attr;

    if (!l)
        return NULL;
    pthread_mutex_init(&l->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&l->cond, &attr);
    pthread_condattr_destroy(&attr);
    l->references = 2;
    snprintf(l->host, sizeof(l->host), "%s", host);
    snprintf(l->service, sizeof(l->service), "%s", service);
    return l;
}

static int resolve_name(struct addrinfo **out, const char *host, const char *service,
                        uint64_t deadline_ns)
{
    struct timespec at = {
        .tv_sec = (time_t)(deadline_ns / 1000000000u),
        .tv_nsec = (long)(deadline_ns % 1000000000u),
    };
    struct lookup *l = new_lookup(host, service);
    int rc, error;

    if (!l)
        return EAI_MEMORY;
    pthread_mutex_lock(&l->lock);
    error = start(l);
    if (error) {
        l->references = 1;
        drop(l);
        errno = error;
        return EAI_SYSTEM;
    }
    while (!l->done && error == 0)
        error = pthread_cond_timedwait(&l->cond, &l->lock, &at);
    if (l->done) {
        rc = l->rc;
        error = l->error;
        if (rc == 0)
            *out = l->result;
        l->result = NULL;
    } else {
        rc = EAI_SYSTEM;
    }
    drop(l);
    errno = error;
    return rc;
}

int rblk_resolve(struct addrinfo **out, const char *host, uint16_t port, uint64_t deadline_ns)
{
    struct addrinfo hints;
    char service[8];

    snprintf(service, sizeof(service), "%u", port);
    fill_hints(&hints, AI_NUMERICHOST);
    if (getaddrinfo(host, service, &hints, out) == 0)
        return 0;
    return resolve_name(out, host, service, deadline_ns);
}
