/* SPDX-License-Identifier: BSD-2-Clause */
/* answers -- the answers of a round, written to the kernel in one system call */

#include "answers.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "log.h"

/* Interrupted calls in a row after which io_uring counts as broken. */
#define VAIN_MAX 1000u

void answers_open(struct answers *a, int fd)
{
    int rc = io_uring_queue_init(ANSWERS_MAX, &a->ring, 0);

    a->fd = fd;
    a->last = &a->first;
    a->usable = rc == 0;
    if (rc < 0)
        log_debug("answers are written one by one: io_uring: %s", strerror(-rc));
    else
        io_uring_register_ring_fd(&a->ring); /* cheaper calls; older kernels do without */
}

void answers_close(struct answers *a)
{
    if (a->usable)
        io_uring_queue_exit(&a->ring);
    a->usable = false;
}

bool answers_add(struct answers *a, struct answer *answer, const struct iovec *iov, int count)
{
    if (!a->usable || a->count == ANSWERS_MAX || count < 1 || count > 2 ||
        iov[0].iov_len > ANSWER_HEAD)
        return false;
    memcpy(answer->head, iov[0].iov_base, iov[0].iov_len);
    answer->iov[0] = (struct iovec){.iov_base = answer->head, .iov_len = iov[0].iov_len};
    answer->count = 1;
    if (count == 2 && iov[0].iov_len + iov[1].iov_len <= ANSWER_HEAD) {
        /* Small data may be a variable of the caller's. */
        memcpy(answer->head + iov[0].iov_len, iov[1].iov_base, iov[1].iov_len);
        answer->iov[0].iov_len += iov[1].iov_len;
    } else if (count == 2) {
        answer->iov[1] = iov[1];
        answer->count = 2;
    }
    answer->next = NULL;
    answer->collected = true;
    *a->last = answer;
    a->last = &answer->next;
    a->count++;
    return true;
}

static void check(ssize_t result)
{
    /* ENOENT: interrupted meanwhile, ENODEV and ECONNABORTED: unmounted. Nobody waits for it. */
    if (result < 0 && result != -ENOENT && result != -ENODEV && result != -ECONNABORTED)
        log_error("an answer cannot be written to /dev/fuse: %s", strerror((int)-result));
}

static void write_one(struct answers *a, struct answer *answer)
{
    ssize_t n = writev(a->fd, answer->iov, (int)answer->count);

    answer->collected = false;
    check(n < 0 ? -errno : n);
}

/* What io_uring says of one answer; what it did not even try is written the other way. */
static void take_result(struct answers *a, struct answer *answer, int result)
{
    if (result == -EAGAIN || result == -EINTR || result == -ENOMEM || result == -ECANCELED) {
        write_one(a, answer);
        return;
    }
    answer->collected = false;
    check(result);
}

/* Hands all of them over and waits for them, which they do not need. False: io_uring has failed. */
static bool write_all(struct answers *a)
{
    struct answer *answer = a->first;
    unsigned int done = 0, vain = 0;

    for (; answer; answer = answer->next) {
        struct io_uring_sqe *sqe = io_uring_get_sqe(&a->ring); /* the ring has room for all */

        io_uring_prep_writev(sqe, a->fd, answer->iov, answer->count, 0);
        io_uring_sqe_set_data(sqe, answer);
    }
    while (done < a->count) {
        struct io_uring_cqe *cqes[ANSWERS_MAX];
        int rc = io_uring_submit_and_wait(&a->ring, 1);
        unsigned int n = io_uring_peek_batch_cqe(&a->ring, cqes, ANSWERS_MAX);

        for (unsigned int i = 0; i < n; i++)
            take_result(a, io_uring_cqe_get_data(cqes[i]), cqes[i]->res);
        io_uring_cq_advance(&a->ring, n);
        done += n;
        if (rc < 0 && n == 0 && (rc != -EINTR || ++vain == VAIN_MAX)) {
            log_warning("answers are written one by one from now on: io_uring_enter: %s",
                        strerror(-rc));
            return false;
        }
    }
    return true;
}

void answers_write(struct answers *a, void (*written)(struct answer *answer))
{
    struct answer *answer = a->first, *next;

    if (a->count == 1) {
        write_one(a, answer);
    } else if (a->count > 1 && !write_all(a)) {
        answers_close(a);
        /* Whatever it did with the others: the kernel takes no second answer to a request. */
        for (struct answer *left = answer; left; left = left->next)
            if (left->collected)
                write_one(a, left);
    }
    a->first = NULL;
    a->last = &a->first;
    a->count = 0;
    for (; answer; answer = next) {
        next = answer->next;
        written(answer);
    }
}
