/* SPDX-License-Identifier: BSD-2-Clause */
/* worker -- the threads that carry requests from the kernel to the queues and back */
#ifndef RBLK_FUSE_WORKER_H
#define RBLK_FUSE_WORKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "frontend.h"
#include "metrics.h"

struct fuse_req;

/*
 * Allocates everything that the workers will ever need, clones the kernel connection for each and
 * registers the request buffers with the handle. The session must be mounted. 0, or -errno with a
 * line in err.
 */
int workers_create(struct frontend *f, char *err, size_t errlen);
/* Starts the threads. 0 or -errno; on failure none is left running. */
int workers_start(struct frontend *f);
/*
 * Lets the workers finish what they and the kernel's queue hold, until the deadline (rblk_now_ns
 * clock), and joins them. Allowed when they never started, or not all.
 */
void workers_stop(struct frontend *f, uint64_t deadline_ns);
/* After the handle was closed: no callback can run any more. Half-built workers are allowed. */
void workers_destroy(struct frontend *f);

/* Counters of worker i and its requests in flight; any thread. */
const struct metrics *worker_metrics(const struct frontend *f, unsigned int i);
unsigned int worker_inflight(const struct frontend *f, unsigned int i);

/*
 * The disk's I/O requests, called by the FUSE operations in the thread of the worker that took the
 * request; each is answered in the end, whatever happens. For writes, data is inside the worker's
 * request buffer. The range was checked against the size.
 */
void worker_read(struct fuse_req *request, size_t len, uint64_t offset);
void worker_write(struct fuse_req *request, const void *data, size_t len, uint64_t offset,
                  bool durable);
void worker_flush(struct fuse_req *request);

#endif
