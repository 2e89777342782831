/* SPDX-License-Identifier: BSD-2-Clause */
/* child -- a call that may hang in the kernel, made in a child process and given up after a time */
#ifndef RBLK_COMMON_CHILD_H
#define RBLK_COMMON_CHILD_H

#include <stdbool.h>
#include <sys/types.h>

/*
 * Runs call(opaque) in a forked child, which must do nothing but system calls. Returns what it
 * returned (0 or a negative errno), -ETIMEDOUT when it did not within timeout_ms milliseconds (the child
 * is killed then, and ends when the kernel lets it), -EINTR when it died, or -errno of fork.
 */
int rblk_child_call(int (*call)(const void *opaque), const void *opaque, unsigned int timeout_ms);

/* A descriptor that becomes readable when the process ends (man pidfd_open), or -1. */
int rblk_child_open(pid_t pid);
/* Waits for that: true, or false when the time is over. */
bool rblk_child_wait(int fd, unsigned int timeout_ms);

#endif
