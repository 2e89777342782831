/* SPDX-License-Identifier: BSD-2-Clause */
/* options -- the command line of rblk-fuse */
#ifndef RBLK_FUSE_OPTIONS_H
#define RBLK_FUSE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "log.h"
#include "rblk.h"

#define FUSE_QUEUES_MAX 64

enum fuse_action { FUSE_ACTION_MOUNT, FUSE_ACTION_HELP, FUSE_ACTION_VERSION };

struct fuse_options {
    enum fuse_action action;
    const char *uri;        /* points into argv */
    const char *mountpoint; /* points into argv */
    const char *provider;   /* points into argv; NULL: not given */
    const char *log_file;   /* points into argv; NULL: not given */
    enum rblk_mode mode;
    unsigned int queues;
    unsigned int queue_depth;
    uint64_t pool_size;      /* bytes a queue */
    unsigned int timeout_ms; /* connecting, control requests */
    unsigned int spin_us;    /* upper bound of a spin; 0: never spin; or RBLK_SPIN_AUTO */
    bool foreground;
    bool cache;
    bool allow_other;
    enum rblk_log_level log_level;
    char mount_options[1024]; /* comma separated, for the kernel: "noatime,nosuid"; may be empty */
};

/*
 * Parses argv into *o, with every default filled in. 0; or -EINVAL with one line in err. Neither
 * the URI nor the mountpoint is looked at beyond being there.
 */
int fuse_options_parse(struct fuse_options *o, int argc, char **argv, char *err, size_t errlen);

/* What --help prints. */
extern const char fuse_options_help[];

#endif
