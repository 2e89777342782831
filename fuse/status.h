/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * status -- the socket on which a mount process tells how it is
 *
 * Main thread only. The workers' counters are read while they run (metrics.h).
 */
#ifndef RBLK_FUSE_STATUS_H
#define RBLK_FUSE_STATUS_H

#include <stddef.h>
#include <stdint.h>

#include "frontend.h"
#include "metrics.h"

/* Rates are over the last samples, taken once a second. */
#define STATUS_SAMPLES 6

struct status_sample {
    uint64_t at_ns;
    uint64_t requests[IO_KINDS];
    uint64_t bytes[IO_KINDS];
};

struct status {
    int fd; /* listening, non-blocking; -1: none */
    char path[108];
    char link[128]; /* see RBLK_MOUNT_LINK_SUFFIX */
    struct status_sample samples[STATUS_SAMPLES];
    unsigned int sample_count; /* taken since the start */
};

/* Creates the socket in the runtime folder. 0, or -errno with one line in err. */
int status_open(struct status *s, const char *mountpoint, char *err, size_t errlen);
/* Takes a sample. */
void status_sample(struct status *s, const struct frontend *f);
/* Answers whoever has connected. */
void status_answer(struct status *s, const struct frontend *f);
/* The JSON object as text, to be freed; NULL when out of memory. */
char *status_json(const struct status *s, const struct frontend *f);
/* Removes the socket. */
void status_close(struct status *s);

#endif
