/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mailbox -- how the control thread and the reactors tell each other about queues
 *
 * A mail is part of the object that it speaks of, so posting never allocates and never fails;
 * several posts before a take add up their flags. The receiving thread sleeps on `event_fd`, and
 * may look at mailbox_pending() without a system call when it is awake.
 *
 * Lock: mailbox.lock guards the list and the link and flags of every mail in it. It is a leaf.
 */
#ifndef RBLK_TARGET_MAILBOX_H
#define RBLK_TARGET_MAILBOX_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct mail {
    struct mail *next;
    unsigned int flags; /* 0: not in a mailbox */
};

struct mailbox {
    pthread_mutex_t lock;
    struct mail *first, **last;
    atomic_bool pending;
    int event_fd; /* eventfd(2), non-blocking; readable when mail may wait */
};

/* 0, or a negative errno of eventfd(2). */
int mailbox_init(struct mailbox *box);
/* A zeroed or initialised mailbox; nobody may use it any more. */
void mailbox_destroy(struct mailbox *box);
/* Adds flags to the mail and wakes the receiver. Any thread. */
void mailbox_post(struct mailbox *box, struct mail *mail, unsigned int flags);
/* Wakes the receiver without a mail. Any thread. */
void mailbox_wake(struct mailbox *box);
/* Takes the oldest mail and its flags; NULL when there is none. The receiver only. */
struct mail *mailbox_take(struct mailbox *box, unsigned int *flags);
/* Makes event_fd unreadable again; to be called before the last mailbox_take. The receiver only. */
void mailbox_clear(struct mailbox *box);

static inline bool mailbox_pending(struct mailbox *box)
{
    return atomic_load_explicit(&box->pending, memory_order_relaxed);
}

#endif
