/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * device -- an RDMA device that connections have arrived on, and what they share there
 *
 * The control protection domain holds no volume memory (DESIGN section 4); all control connections
 * of the device share it, one completion channel and one completion queue, which is large enough
 * for all of them, so that it cannot overrun.
 *
 * Owner: the control thread.
 */
#ifndef RBLK_TARGET_DEVICE_H
#define RBLK_TARGET_DEVICE_H

#include <infiniband/verbs.h>
#include <stdbool.h>

#include "target.h"

struct device {
    struct device *next;
    struct target *target;
    struct ibv_context *verbs;
    struct ibv_device_attr limits;
    struct ibv_pd *control_pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    bool armed; /* a completion event is asked for */
    unsigned int connections, max_connections;
    struct event_source completions, async_events;
};

/* Finds or sets up the device. 0, or a negative errno. */
int device_get(struct target *t, struct ibv_context *verbs, struct device **out);
/* Handles a bounded number of completions of every device; true when there may be more. */
bool device_poll_all(struct target *t);
/* Frees every device; no connection and no queue may be left. */
void device_free_all(struct target *t);
/* Outstanding RDMA READs that the device serves on one queue pair, as conn_param has room for. */
uint8_t device_max_reads(const struct device *d);

#endif
