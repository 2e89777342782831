/* SPDX-License-Identifier: BSD-2-Clause */
/* operations -- the FUSE requests of the one file (and perhaps its folder) that a mount shows */
#ifndef RBLK_FUSE_OPERATIONS_H
#define RBLK_FUSE_OPERATIONS_H

#include <fuse3/fuse_lowlevel.h>

/* The table for fuse_session_new, whose userdata must be the struct frontend. */
extern const struct fuse_lowlevel_ops frontend_operations;

#endif
