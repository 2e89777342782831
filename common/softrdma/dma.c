/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * dma.c -- access to the application's registered memory, as a device makes it
 *
 * A device reads and writes registered memory whenever a peer says so; what orders that against
 * the application is the completion, not a lock. ThreadSanitizer would take every one-sided access
 * for a race of the provider's threads, so under it these few accesses are hidden from it, as a
 * device's would be. All else stays visible.
 */
#include "softrdma.h"

#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef __has_feature
#define __has_feature(feature) 0
#endif

#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)

ssize_t soft_dma_send(int fd, const struct msghdr *message, int flags)
{
    return syscall(SYS_sendmsg, fd, message, flags);
}

ssize_t soft_dma_receive(int fd, struct msghdr *message, int flags)
{
    return syscall(SYS_recvmsg, fd, message, flags);
}

__attribute__((no_sanitize("thread"))) void soft_dma_copy(void *to, const void *from, size_t length)
{
    volatile uint8_t *out = to;
    const volatile uint8_t *in = from;

    for (size_t i = 0; i < length; i++)
        out[i] = in[i];
}

#else

/* sendmsg() from registered memory. */
ssize_t soft_dma_send(int fd, const struct msghdr *message, int flags)
{
    return sendmsg(fd, message, flags);
}

/* recvmsg() into registered memory. */
ssize_t soft_dma_receive(int fd, struct msghdr *message, int flags)
{
    return recvmsg(fd, message, flags);
}

/* memcpy() into registered memory. */
void soft_dma_copy(void *to, const void *from, size_t length)
{
    memcpy(to, from, length);
}

#endif
