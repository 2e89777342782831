/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * frontend -- what the parts of a mount process share
 *
 * Threads
 *   main      sets everything up, serves the status socket, waits for signals, tears down
 *   worker i  owns queue i of the handle, its clone of /dev/fuse, its request records and buffers:
 * it takes a request, posts it, polls for the completion and replies, so the data path has no lock
 * and no hand-over. The first worker (the leader) listens to the kernel while asleep; the others
 * join when it has more than it can do.
 *
 * Fields without a remark are set before the workers start and never change afterwards. The others
 * are atomic.
 */
#ifndef RBLK_FUSE_FRONTEND_H
#define RBLK_FUSE_FRONTEND_H

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "options.h"
#include "rblk.h"

struct fuse_session;
struct worker;

/* Largest read and write that the kernel may ask for, bytes: its own limit unless a sysctl raises
 * it. */
#define FRONTEND_MAX_IO (1u << 20)
/* Requests that the kernel may have in the background (asynchronous direct I/O, readahead). */
#define FRONTEND_MAX_BACKGROUND 256
#define FRONTEND_CONGESTION 192

struct frontend {
    const struct fuse_options *options;
    struct rblk *handle;
    struct rblk_info info;
    char mountpoint[PATH_MAX]; /* absolute */
    bool on_file;              /* the mountpoint is a regular file: it is the disk itself */
    bool read_only;
    uint64_t mounted_at_ns;    /* CLOCK_MONOTONIC */
    unsigned int device_minor; /* of the mount: names the FUSE connection */

    /* Learned while the kernel's INIT request is answered. */
    bool initialised;
    bool answered_init;
    bool parallel_writes;      /* the kernel lets direct writes to one file run side by side */
    unsigned int kernel_minor; /* minor version of the kernel's FUSE protocol */

    struct fuse_session *session;
    struct worker *workers;
    unsigned int worker_count;

    /* Attributes of the disk file; any worker. */
    _Atomic uint32_t mode; /* permission bits */
    _Atomic uint32_t uid, gid;
    _Atomic int64_t mtime_ns; /* CLOCK_REALTIME */

    _Atomic bool written;           /* some write has completed: a flush is due at the end */
    _Atomic bool stop;              /* main: workers finish what there is and end */
    _Atomic uint64_t stop_deadline; /* rblk_now_ns clock; set before stop */
    _Atomic bool ended;             /* a worker: the kernel has closed the connection */
    int ended_fd;                   /* eventfd, written with it, for main */
};

/*
 * Mounts, serves until unmounted or told to end, and tears down, as the options say; the provider
 * has been chosen before. In the background form the calling process ends as soon as the disk is
 * usable or is known not to be. Returns the exit status.
 */
int frontend_run(const struct fuse_options *options);

#endif
