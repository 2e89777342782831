/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * background -- leaving the terminal, with an answer for whoever started us
 *
 * The process forks before it touches RDMA (registered memory does not survive a fork). The parent
 * waits for the child's word on a pipe and ends with it.
 */
#ifndef RBLK_FUSE_BACKGROUND_H
#define RBLK_FUSE_BACKGROUND_H

#include <stddef.h>

struct background {
    int fd;     /* where the word goes; -1 in the foreground, where there is nobody to tell */
    int log_fd; /* where stderr goes once ready; -1: /dev/null */
};

/*
 * Opens log_file (appended to; NULL: none) and forks. Returns 0 in the child, or -errno with
 * nothing left open and one line in err. The parent does not return: it exits with 0 once the child
 * is ready; with 1 and the child's one line on stderr when it failed; or, when there is no word
 * within timeout_ms, it ends the child and says so.
 */
int background_start(struct background *b, const char *log_file, unsigned int timeout_ms, char *err,
                     size_t errlen);
/*
 * Ready: standard input and output go to /dev/null, stderr to the log file or /dev/null, and the
 * parent ends. -EPIPE: nobody waits for us any more, we should not stay; -errno. In the foreground
 * nothing is done.
 */
int background_ready(struct background *b);
/* Failed: the parent prints the line. In the foreground it is logged. */
void background_failed(struct background *b, const char *line);

#endif
