/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rblk.h -- librblk: use a remote disk that a rblkd target exports
 *
 * A handle (struct rblk) is one connection to a target; connected to a volume it has one or more
 * I/O queues. The asynchronous calls work on a queue; the synchronous ones are the same plus a
 * wait.
 *
 * Threads. Every function may be called from any thread. A queue has a lock of its own and queues
 * share none on the data path, so use one queue per thread for speed. Completion callbacks run
 * inside rblk_queue_poll, rblk_queue_wait or a synchronous call of whichever thread polls that
 * queue, and inside rblk_close; they run without the queue's lock held and may submit again.
 *
 * Errors. Calls return 0 (or a count) or a negative errno; rblk_error() has one line of text that
 * names object, cause and remedy. The library never prints and never exits. No call waits longer
 * than the handle's time-out; I/O ends with an error when the target is silent for three heartbeat
 * intervals, or completes nothing at all for six time-outs (a minute at least).
 *
 * fork: do not use a handle in a child process.
 */
#ifndef RBLK_H
#define RBLK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct rblk;
struct rblk_queue;

/* How a volume is attached (DESIGN section 8). */
enum rblk_mode {
    RBLK_MODE_RW = 0, /* exclusive writer, the default */
    RBLK_MODE_RO = 1,
    RBLK_MODE_SHARED = 2,
};

/* -- handle ---------------------------------------------------------------------------------- */

/* Creates an unconnected handle: 0, or -ENOMEM. Free it with rblk_close. */
int rblk_create(struct rblk **out);
/*
 * Waits for nothing: detaches, disconnects (bounded by the time-out), cancels what is still in
 * flight (callbacks run with -ECANCELED), frees. When it returns, the volume is free for others
 * and no buffer of the caller is in use. NULL is allowed. No other thread may use the handle any
 * more, and it must not be called from a callback.
 */
void rblk_close(struct rblk *h);
/*
 * Text of the last failed call of the calling thread on this handle; when there is none, why the
 * connection failed, if it did. Never NULL; valid until that thread's next call of rblk_error.
 * A thread has the texts of the four handles that failed last.
 */
const char *rblk_error(const struct rblk *h);
/* "0.1.0" */
const char *rblk_version(void);

/*
 * Options, to be set before connecting. -EINVAL: out of range; -EISCONN: already connected.
 * queues: 1..64, default 1. depth: commands in flight a queue, 1..256, default 64. pool size:
 * buffers of a queue, 1..64 MiB, default 16 MiB. timeout: connecting and control requests,
 * 1..600000 ms, default 10000. keepalive: heartbeat interval, 100..600000 ms, default 5000.
 */
int rblk_set_mode(struct rblk *h, enum rblk_mode mode);
int rblk_set_queues(struct rblk *h, unsigned int queues);
int rblk_set_queue_depth(struct rblk *h, unsigned int depth);
int rblk_set_pool_size(struct rblk *h, size_t bytes);
int rblk_set_timeout(struct rblk *h, unsigned int milliseconds);
int rblk_set_keepalive(struct rblk *h, unsigned int milliseconds);

/*
 * Connects to the target that the URI names (rblk://HOST[:PORT]/VOLUME), attaches its volume and
 * opens the I/O queues; a target may grant fewer or smaller queues than asked (rblk_get_info).
 * -errno as the operating system or the target gives it: -EINVAL the URI, -ENOENT no such volume,
 * -EBUSY somebody else has it, -ECONNREFUSED, -EHOSTUNREACH (also: the name does not resolve),
 * -ETIMEDOUT, -EPROTO not a rblk target, -EPROTONOSUPPORT other version, -ENODEV no RDMA device,
 * -EISCONN. After a failure the handle is as before and may try again.
 */
int rblk_connect(struct rblk *h, const char *uri);
/*
 * Connects the control connection only: for rblk_list, rblk_ping, rblk_get_target_stats. A volume
 * in the URI is ignored. Errors as above.
 */
int rblk_connect_target(struct rblk *h, const char *uri);

/* What is known of the volume attached. */
struct rblk_info {
    char volume[64];
    char target[64];  /* the target's own name */
    char address[80]; /* peer address:port */
    char device[64];  /* RDMA device in use, "softrdma0", "rxe0", ... */
    uint8_t uuid[16];
    uint64_t size;        /* bytes, exact */
    uint64_t extent_size; /* bytes */
    uint32_t max_io;      /* bytes: largest single WRITE; larger calls are split by the library */
    uint32_t max_inline;  /* bytes: larger writes go through staging memory */
    uint32_t queues, queue_depth;
    bool read_only; /* attached or exported read-only */
    bool can_flush, can_fua, can_trim, can_zero;
};
/* Also answers after the connection has failed. -ENOTCONN without a volume. */
int rblk_get_info(struct rblk *h, struct rblk_info *info);
uint64_t rblk_get_size(const struct rblk *h); /* bytes; 0 without a volume */
/* True while the connection is up. A false handle answers -EIO to I/O. */
bool rblk_is_connected(const struct rblk *h);

/* Volumes that the target exports. Return non-zero from the callback to stop. */
struct rblk_volume {
    char name[64];
    uint8_t uuid[16];
    uint64_t size; /* bytes */
    bool read_only, failed, attached;
    uint32_t sessions;
};
int rblk_list(struct rblk *h, int (*callback)(void *opaque, const struct rblk_volume *volume),
              void *opaque);
/* One heartbeat there and back; nanoseconds in *ns. */
int rblk_ping(struct rblk *h, uint64_t *ns);
/* The target's counters since it started. */
struct rblk_target_stats {
    uint64_t control_messages, io_messages;
    uint64_t writes, write_bytes, flushes, fua_writes, fdatasyncs, errors;
    uint64_t extents_mapped, extent_bytes, sessions, queues, protocol_errors, uptime_ms;
};
int rblk_get_target_stats(struct rblk *h, struct rblk_target_stats *stats);
/* This handle's own counters, summed over queues. -ENOTCONN without a volume. */
struct rblk_stats {
    uint64_t reads, read_bytes, writes, write_bytes, flushes, errors;
    uint64_t rdma_reads;     /* work requests posted */
    uint64_t extents_mapped; /* extents this handle holds */
    uint64_t bounced;        /* requests whose buffer was not registered and had to be copied */
};
int rblk_get_stats(struct rblk *h, struct rblk_stats *stats);

/* -- synchronous I/O ------------------------------------------------------------------------- */

#define RBLK_FUA 1u /* the write is durable when it completes */

/*
 * Whole range or an error: 0, -EINVAL (beyond the end), -EROFS, -EIO, -ENOSPC, -ENOTCONN. len may
 * be 0. After an error of a write, any part of its range may have been written. -EDEADLK: called
 * from a callback of another synchronous call, for which it would wait.
 */
int rblk_pread(struct rblk *h, void *buf, size_t len, uint64_t offset);
int rblk_pwrite(struct rblk *h, const void *buf, size_t len, uint64_t offset, unsigned int flags);
/* Every write that completed before this call is on stable storage when it returns 0. */
int rblk_flush(struct rblk *h);

/* -- asynchronous I/O ------------------------------------------------------------------------ */

/* Queue i of the handle, 0 <= i < queues; owned by the handle. NULL when out of range or not
 * connected. */
struct rblk_queue *rblk_get_queue(struct rblk *h, unsigned int i);

/* error: 0 or a negative errno. */
typedef void (*rblk_callback)(void *opaque, int error);

/*
 * Each starts one request of any length and alignment inside the volume. buf must stay valid until
 * the callback ran. A buffer from rblk_buffer_get, or inside memory given to rblk_register, is used
 * directly (zero copy); any other is copied through the queue's memory. 0, or a negative errno and
 * the callback never runs; -EAGAIN: the queue has no room (256 requests), poll first.
 * Requests in flight at once are not ordered among each other. Requests are held back until
 * rblk_queue_submit, rblk_queue_poll, rblk_queue_arm or rblk_queue_wait, so that several go out in
 * one batch.
 */
int rblk_aio_read(struct rblk_queue *q, void *buf, size_t len, uint64_t offset, rblk_callback cb,
                  void *opaque);
int rblk_aio_write(struct rblk_queue *q, const void *buf, size_t len, uint64_t offset,
                   unsigned int flags, rblk_callback cb, void *opaque);
int rblk_aio_flush(struct rblk_queue *q, rblk_callback cb, void *opaque);
/* Posts what is held back. Always 0: a failure ends the requests, not this call. */
int rblk_queue_submit(struct rblk_queue *q);
/*
 * Submits, takes completions, runs callbacks, never blocks. Number of requests finished; -EIO when
 * the connection has failed and nothing is in flight any more.
 */
int rblk_queue_poll(struct rblk_queue *q);
/* Requests accepted whose callback has not returned yet. */
unsigned int rblk_queue_inflight(struct rblk_queue *q);

/*
 * Sleeping: rblk_queue_fd() becomes readable when there may be something to poll, provided
 * rblk_queue_arm() was called after the last rblk_queue_poll() and returned 0. arm returns 1 when
 * there is something to poll already. Before polling after a wake-up nothing needs to be read from
 * the descriptor; rblk_queue_poll clears it. A wake-up may find nothing to do.
 */
int rblk_queue_fd(const struct rblk_queue *q);
int rblk_queue_arm(struct rblk_queue *q);
/*
 * Blocks until something finished or timeout_ms passed (-1: bounded by the handle's own time-outs
 * only). What rblk_queue_poll returned; 0 also when another thread ran the callbacks, and at once
 * when nothing is in flight.
 */
int rblk_queue_wait(struct rblk_queue *q, int timeout_ms);

/* Registered, page-aligned memory of the queue's pool. NULL when the pool has no such run free. */
void *rblk_buffer_get(struct rblk_queue *q, size_t len);
/* Gives it back, with the same len. Ignores what is not of the pool. */
void rblk_buffer_put(struct rblk_queue *q, void *buf, size_t len);
/*
 * Registers the caller's memory for zero-copy I/O on all queues of the handle (rdma_reg_msgs),
 * until rblk_unregister or rblk_close. Not for the data path. At most 64 regions. 0, -ENOSPC,
 * -ENOMEM (the text says memlock when that is why).
 */
int rblk_register(struct rblk *h, void *addr, size_t len);
/* addr as given to rblk_register. -EBUSY while requests use it, -EINVAL when it is not known. */
int rblk_unregister(struct rblk *h, void *addr);

#ifdef __cplusplus
}
#endif

#endif
