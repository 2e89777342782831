/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * session -- a client that has attached a volume: its token, its protection domain, its extents,
 * its queues
 */
#include "session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "config.h"
#include "connection.h"
#include "log.h"
#include "queue.h"

#define MAX_IO (1u << 20) /* one write leaves room for others in the staging memory */

/*
 * Who stands in the way of attaching: 0 nobody, -EAGAIN only ending sessions, -EBUSY somebody. A writer waits for
 * the end of every session that could write, a shared one too: it may be the same client's last one,
 * whose late writes must not land on what it writes now.
 */
static int check_lock(const struct target *t, const struct volume *v, enum rblk_attach_mode mode)
{
    int rc = 0;

    for (const struct session *s = t->sessions; s; s = s->next) {
        if (s->volume != v)
            continue;
        if (!s->ending && volume_modes_conflict(s->mode, mode))
            return -EBUSY;
        if (s->ending && s->mode != RBLK_ATTACH_RO && mode != RBLK_ATTACH_RO)
            rc = -EAGAIN;
    }
    return rc;
}

int session_create(struct target *t, struct connection *c, struct device *device, struct volume *v,
                   enum rblk_attach_mode mode, struct session **out)
{
    struct session *s;
    int rc = check_lock(t, v, mode);

    if (rc)
        return rc;
    s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    s->target = t;
    s->connection = c;
    s->volume = v;
    s->mode = mode;
    if (getrandom(s->token, sizeof(s->token), 0) != (ssize_t)sizeof(s->token)) {
        rc = -EIO;
        goto fail;
    }
    rc = domain_get(device, v, t->config->extent_size, mode == RBLK_ATTACH_RO, &t->counters,
                    &s->domain);
    if (rc)
        goto fail;
    s->held = extent_set_create(s->domain->extent_count);
    if (!s->held) {
        rc = -ENOMEM;
        goto fail_domain;
    }
    v->sessions++;
    v->writers += mode != RBLK_ATTACH_RO;
    counter_add(&t->counters.sessions, 1);
    s->next = t->sessions;
    t->sessions = s;
    *out = s;
    return 0;

fail_domain:
    domain_put(s->domain);
fail:
    free(s);
    return rc;
}

/*
 * Its queue pairs are gone: now the extents may be deregistered, then the domain freed, then the
 * lock.
 */
static void session_free(struct session *s)
{
    struct target *t = s->target;
    struct session **link = &t->sessions;

    extent_drop_all(s->domain, s->held);
    domain_put(s->domain);
    s->volume->sessions--;
    s->volume->writers -= s->mode != RBLK_ATTACH_RO;
    counter_sub(&t->counters.sessions, 1);
    while (*link != s)
        link = &(*link)->next;
    *link = s->next;
    if (s->connection)
        connection_session_gone(s->connection);
    free(s->held);
    free(s);
    connection_retry_attaches(t);
}

void session_end(struct session *s)
{
    s->ending = true;
    for (struct queue *q = s->target->queues; q; q = q->next)
        if (q->session == s)
            queue_close(q, true);
    if (s->queues == 0)
        session_free(s);
}

void session_finish(struct session *s)
{
    if (s->ending)
        return;
    s->ending = true;
    for (struct queue *q = s->target->queues; q; q = q->next)
        if (q->session == s)
            queue_finish(q);
    if (s->queues == 0)
        session_free(s);
}

void session_queue_gone(struct session *s)
{
    s->queues--;
    if (s->ending && s->queues == 0)
        session_free(s);
}

static bool tokens_equal(const uint8_t *a, const uint8_t *b)
{
    unsigned int difference = 0;

    for (size_t i = 0; i < RBLK_TOKEN_LEN; i++)
        difference |= (unsigned int)(a[i] ^ b[i]);
    return difference == 0;
}

struct session *session_find(struct target *t, const uint8_t token[RBLK_TOKEN_LEN])
{
    struct session *found = NULL;

    /* All are compared, whatever is found: the time tells nothing. */
    for (struct session *s = t->sessions; s; s = s->next)
        if (tokens_equal(s->token, token) && !s->ending)
            found = s;
    return found;
}

uint32_t session_staging_len(const struct session *s)
{
    return s->mode == RBLK_ATTACH_RO ? 0 : (uint32_t)s->target->config->staging_size;
}

uint32_t session_max_io(const struct session *s)
{
    uint64_t staging = s->target->config->staging_size;

    return staging < MAX_IO ? (uint32_t)staging : MAX_IO;
}
