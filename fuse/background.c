/* SPDX-License-Identifier: BSD-2-Clause */
/* background -- leaving the terminal, with an answer for whoever started us */

#include "background.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "log.h"

/* What is written to the pipe before the line, if any. */
#define WORD_READY 'r'
#define WORD_FAILED 'f'

/* How long a child that was told to end may take to do so. */
#define END_TIMEOUT_MS 5000

/* Reads to the end of file or the deadline. Length, or -ETIMEDOUT. */
static ssize_t read_word(int fd, char *buf, size_t size, uint64_t deadline)
{
    size_t used = 0;

    while (used < size) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        ssize_t n;
        int rc = poll(&p, 1, rblk_deadline_left_ms(deadline));

        if (rc == 0)
            return -ETIMEDOUT;
        if (rc < 0)
            continue; /* EINTR */
        n = read(fd, buf + used, size - used);
        if (n == 0 || (n < 0 && errno != EINTR))
            break;
        if (n > 0)
            used += (size_t)n;
        if (used > 0 && buf[0] == WORD_READY)
            break;
    }
    return (ssize_t)used;
}

static void end_child(pid_t child)
{
    uint64_t deadline = rblk_deadline_ms(END_TIMEOUT_MS);

    kill(child, SIGTERM);
    while (waitpid(child, NULL, WNOHANG) == 0) {
        if (rblk_deadline_left_ms(deadline) == 0)
            kill(child, SIGKILL);
        poll(NULL, 0, 20);
    }
}

static void __attribute__((noreturn)) wait_for_child(int fd, pid_t child, unsigned int timeout_ms)
{
    char word[1024];
    ssize_t n = read_word(fd, word, sizeof(word) - 1, rblk_deadline_ms(timeout_ms));

    if (n > 0 && word[0] == WORD_READY)
        _exit(0);
    if (n > 1 && word[0] == WORD_FAILED) {
        word[n] = '\0';
        log_error("%s", word + 1);
    } else if (n == -ETIMEDOUT) {
        log_error(
            "the disk was not usable within %u seconds, gave up; see --timeout and --foreground",
            timeout_ms / 1000);
        end_child(child);
    } else {
        log_error("the mount process ended without a word; run it with --foreground to see why");
    }
    _exit(1);
}

int background_start(struct background *b, const char *log_file, unsigned int timeout_ms, char *err,
                     size_t errlen)
{
    int fds[2] = {-1, -1}, log_fd = -1, rc;
    pid_t child;

    if (log_file) {
        log_fd = open(log_file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
        if (log_fd < 0) {
            rc = -errno;
            snprintf(err, errlen, "log file %s cannot be opened: %s", log_file, strerror(-rc));
            return rc;
        }
    }
    if (pipe2(fds, O_CLOEXEC) < 0)
        goto fail;
    child = fork();
    if (child < 0)
        goto fail;
    if (child > 0) {
        close(fds[1]);
        wait_for_child(fds[0], child, timeout_ms);
    }
    close(fds[0]);
    b->fd = fds[1];
    b->log_fd = log_fd;
    setsid();
    if (chdir("/") < 0) /* so that no file system is kept busy; all paths are absolute by now */
        log_warning("cannot leave the current folder: %s", strerror(errno));
    return 0;

fail:
    rc = -errno;
    snprintf(err, errlen, "cannot go to the background: %s", strerror(-rc));
    for (int i = 0; i < 2; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    if (log_fd >= 0)
        close(log_fd);
    return rc;
}

/* Writes all; the pipe holds any word of ours, so it does not block. False: nobody reads. */
static bool write_word(int fd, char kind, const char *line)
{
    char word[1024];
    int n = snprintf(word, sizeof(word), "%c%s", kind, line);

    if (n >= (int)sizeof(word))
        n = (int)sizeof(word) - 1;
    return write(fd, word, (size_t)n) == n;
}

int background_ready(struct background *b)
{
    int null, rc = 0;

    if (b->fd < 0)
        return 0;
    null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0)
        return -errno;
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    dup2(b->log_fd >= 0 ? b->log_fd : null, STDERR_FILENO);
    close(null);
    if (!write_word(b->fd, WORD_READY, ""))
        rc = -EPIPE;
    close(b->fd);
    b->fd = -1;
    if (b->log_fd >= 0)
        close(b->log_fd);
    b->log_fd = -1;
    return rc;
}

void background_failed(struct background *b, const char *line)
{
    if (b->fd < 0) {
        log_error("%s", line);
        return;
    }
    write_word(b->fd, WORD_FAILED, line);
    close(b->fd);
    b->fd = -1;
}
