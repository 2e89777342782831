/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * metrics -- counters and latency histograms of one worker, which alone writes them
 */
#ifndef RBLK_FUSE_METRICS_H
#define RBLK_FUSE_METRICS_H

#include "histogram.h"

enum io_kind { IO_READ, IO_WRITE, IO_FLUSH, IO_KINDS };

struct metrics {
    _Atomic uint64_t requests[IO_KINDS]; /* finished, also those that failed */
    _Atomic uint64_t bytes[IO_KINDS];
    _Atomic uint64_t errors;
    _Atomic uint64_t fuse_requests; /* taken from the kernel, of every kind */
    _Atomic uint64_t parked;        /* had to wait for room in the queue or the pool */
    _Atomic uint64_t spins;         /* waits that a spin ended */
    _Atomic uint64_t sleeps;        /* waits that were slept */
    struct histogram latency[IO_KINDS];
};

#endif
