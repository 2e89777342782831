/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * listener -- the addresses that the target listens on, and all rdma_cm events
 *
 * Owner: the control thread.
 */
#ifndef RBLK_TARGET_LISTENER_H
#define RBLK_TARGET_LISTENER_H

#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stddef.h>

#include "target.h"

/*
 * Listens on the addresses of the configuration, or on all of IPv4 and IPv6. 0, or a negative
 * errno and one line in err that names the address.
 */
int listener_open_all(struct target *t, char *err, size_t errlen);
/* Stops listening. */
void listener_close_all(struct target *t);
/* Handles a bounded number of CM events; true when there may be more. */
bool listener_poll(struct target *t);
/* "192.0.2.1:4711" or "[2001:db8::1]:4711" of the peer. */
void listener_peer_text(struct rdma_cm_id *id, char *buf, size_t len);
/* The addresses listened on, separated by ", ", for the log. */
void listener_describe(const struct target *t, char *buf, size_t len);

#endif
