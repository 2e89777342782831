/* SPDX-License-Identifier: BSD-2-Clause */
/* child -- a call that may hang in the kernel, made in a child process and given up after a time */
#include "child.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"

int rblk_child_open(pid_t pid)
{
    return pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
}

bool rblk_child_wait(int fd, unsigned int timeout_ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    uint64_t deadline = rblk_deadline_ms(timeout_ms);
    int rc;

    do {
        rc = poll(&p, 1, rblk_deadline_left_ms(deadline));
    } while (rc < 0 && errno == EINTR);
    return rc > 0;
}

int rblk_child_call(int (*call)(const void *opaque), const void *opaque, unsigned int timeout_ms)
{
    pid_t child = fork();
    int status = 0, fd;
    bool ended;

    if (child < 0)
        return -errno;
    if (child == 0)
        _exit(-call(opaque));
    fd = rblk_child_open(child);
    ended = fd < 0 || rblk_child_wait(fd, timeout_ms);
    if (fd >= 0)
        close(fd);
    if (!ended) {
        kill(child, SIGKILL);
        waitpid(child, &status, WNOHANG);
        return -ETIMEDOUT;
    }
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? -WEXITSTATUS(status) : -EINTR;
}
