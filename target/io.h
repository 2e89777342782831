/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * io -- the data path of an I/O queue: commands in, the file written, completions out. Reactor
 * thread only.
 */
#ifndef RBLK_TARGET_IO_H
#define RBLK_TARGET_IO_H

#include <infiniband/verbs.h>

#include "queue.h"

/* A work completion of the queue. */
void io_completion(struct queue *q, const struct ibv_wc *wc);
/* An io_uring operation of the request has ended with this result. */
void io_ring_done(struct request *request, int result);
/* Posts the receives and replies that the round has gathered. */
void io_post_round(struct queue *q);
/* Carries out orders of the control thread, QUEUE_ORDER_*. */
void io_order(struct queue *q, unsigned int orders);
/* Looks whether a queue in QUEUE_DRAINING is drained, and gives it back then. */
void io_check_drained(struct queue *q, uint64_t now_ns);

#endif
