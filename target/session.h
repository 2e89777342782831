/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * session -- a client that has attached a volume: its token, its protection domain, its extents,
 * its queues
 *
 * A session holds its lock on the volume until nothing of it can touch the volume any more: all of
 * its queues are drained and gone. Owner: the control thread.
 */
#ifndef RBLK_TARGET_SESSION_H
#define RBLK_TARGET_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "device.h"
#include "extent.h"
#include "target.h"
#include "volume.h"

struct session {
    struct session *next;
    struct target *target;
    struct connection *connection; /* NULL once that is gone */
    struct volume *volume;
    enum rblk_attach_mode mode;
    struct domain *domain;
    uint64_t *held; /* extents, one bit each */
    uint8_t token[RBLK_TOKEN_LEN];
    unsigned int queues; /* not gone yet */
    bool ending;
};

/*
 * Attaches. 0; -EBUSY: another client holds the volume; -EAGAIN: a session that is just ending
 * holds it, so try again when it is gone; -ENOMEM and errors of the device.
 */
int session_create(struct target *t, struct connection *c, struct device *device, struct volume *v,
                   enum rblk_attach_mode mode, struct session **out);
/* Closes its queues, and frees the session when the last one is gone, which may be at once. */
void session_end(struct session *s);
/* The target stops: lets its queues finish what is in flight first. */
void session_finish(struct session *s);
/* One of its queues is gone; may free the session. */
void session_queue_gone(struct session *s);
/* The session with this token, compared in constant time; NULL: none. */
struct session *session_find(struct target *t, const uint8_t token[RBLK_TOKEN_LEN]);

/* Bytes of staging memory and of one write of each queue of the session. */
uint32_t session_staging_len(const struct session *s);
uint32_t session_max_io(const struct session *s);

#endif
