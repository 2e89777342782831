/* SPDX-License-Identifier: BSD-2-Clause */
/* mailbox -- how the control thread and the reactors tell each other about queues */
#include "mailbox.h"

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

int mailbox_init(struct mailbox *box)
{
    int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);

    if (fd < 0)
        return -errno;
    pthread_mutex_init(&box->lock, NULL);
    box->first = NULL;
    box->last = &box->first;
    atomic_init(&box->pending, false);
    box->event_fd = fd;
    return 0;
}

void mailbox_destroy(struct mailbox *box)
{
    if (!box->last)
        return;
    close(box->event_fd);
    pthread_mutex_destroy(&box->lock);
    box->last = NULL;
}

void mailbox_wake(struct mailbox *box)
{
    uint64_t one = 1;

    /* Fails only when the counter is full, and then the receiver is awake anyway. */
    if (write(box->event_fd, &one, sizeof(one)) < 0)
        return;
}

void mailbox_post(struct mailbox *box, struct mail *mail, unsigned int flags)
{
    bool was_empty;

    pthread_mutex_lock(&box->lock);
    was_empty = box->first == NULL;
    if (mail->flags == 0) {
        mail->next = NULL;
        *box->last = mail;
        box->last = &mail->next;
    }
    mail->flags |= flags;
    atomic_store_explicit(&box->pending, true, memory_order_relaxed);
    pthread_mutex_unlock(&box->lock);
    if (was_empty)
        mailbox_wake(box);
}

struct mail *mailbox_take(struct mailbox *box, unsigned int *flags)
{
    struct mail *mail;

    pthread_mutex_lock(&box->lock);
    mail = box->first;
    if (mail) {
        box->first = mail->next;
        if (!box->first)
            box->last = &box->first;
        *flags = mail->flags;
        mail->flags = 0;
        mail->next = NULL;
    }
    if (!box->first)
        atomic_store_explicit(&box->pending, false, memory_order_relaxed);
    pthread_mutex_unlock(&box->lock);
    return mail;
}

void mailbox_clear(struct mailbox *box)
{
    uint64_t count;

    /* EAGAIN: somebody posted without this wake-up having been needed. */
    if (read(box->event_fd, &count, sizeof(count)) < 0)
        return;
}
