/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * answers -- the answers of a round, written to the kernel in one system call
 *
 * An answer is one writev(2) of /dev/fuse each, and every one wakes the application, which, on a
 * CPU that it shares with the worker, runs at once, takes that one answer and asks again: a change
 * of threads per request, whatever the depth. So the answers that one poll of the queue brings are
 * collected and written by one io_uring_enter(2): the application finds all of them. /dev/fuse
 * never lets a write wait, so all are written when that call returns.
 *
 * One struct answers belongs to one thread, which opens and closes it.
 */
#ifndef RBLK_FUSE_ANSWERS_H
#define RBLK_FUSE_ANSWERS_H

#include <liburing.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/uio.h>

/* Answers that are collected at most. */
#define ANSWERS_MAX 64u

/* Bytes of an answer that are copied: headers, and whole answers without data. */
#define ANSWER_HEAD 64u

/* One answer; lives in its request's record until it is written. */
struct answer {
    struct answer *next; /* collected after this one */
    bool collected;
    unsigned int count;
    struct iovec iov[2]; /* head, data */
    char head[ANSWER_HEAD];
};

struct answers {
    bool usable; /* io_uring works here: otherwise nothing is collected */
    int fd;
    struct io_uring ring;
    struct answer *first, **last;
    unsigned int count;
};

/* For answers to the descriptor. When io_uring is not to be had, answers_add() refuses all. */
void answers_open(struct answers *a, int fd);
/*
 * Collects an answer: true, or false when the caller must write it. The first part (at most
 * ANSWER_HEAD bytes) is copied, data in a second part must stay until the answer is written.
 */
bool answers_add(struct answers *a, struct answer *answer, const struct iovec *iov, int count);
/* Writes what was collected, then calls written() for each. */
void answers_write(struct answers *a, void (*written)(struct answer *answer));
void answers_close(struct answers *a);

#endif
