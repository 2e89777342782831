/* SPDX-License-Identifier: BSD-2-Clause */
/* copy -- rblk read and rblk write: between a volume and standard output or input */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "log.h"
#include "size.h"
#include "tool.h"

#define OPT_OFFSET (TOOL_OPTION + 0)
#define OPT_LENGTH (TOOL_OPTION + 1)
#define OPT_NO_FLUSH (TOOL_OPTION + 2)

/* Bytes per call: the library keeps several requests of it under way at once. */
#define CHUNK (8u << 20)

struct options {
    uint64_t offset;
    uint64_t length;
    bool has_length;
    bool no_flush;
};

static int take(void *opaque, int option, const char *value)
{
    struct options *o = opaque;

    switch (option) {
    case OPT_OFFSET:
        return rblk_size_parse(&o->offset, value);
    case OPT_LENGTH:
        o->has_length = true;
        return rblk_size_parse(&o->length, value);
    default:
        o->no_flush = true;
        return 0;
    }
}

/* Writes all of it to standard output: 0 or -errno. */
static int write_all(const char *buf, size_t len)
{
    while (len > 0) {
        ssize_t n = write(STDOUT_FILENO, buf, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        buf += n;
        len -= (size_t)n;
    }
    return 0;
}

/* Fills the buffer from standard input as far as it goes: length, or -errno. */
static ssize_t read_all(char *buf, size_t len)
{
    size_t used = 0;

    while (used < len) {
        ssize_t n = read(STDIN_FILENO, buf + used, len - used);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        used += (size_t)n;
    }
    return (ssize_t)used;
}

static int read_volume(struct rblk *h, const char *uri, const struct options *o, char *buf)
{
    uint64_t size = rblk_get_size(h), at = o->offset, left;

    left = at < size ? size - at : 0;
    if (at > size || (o->has_length && o->length > left)) {
        log_error("%s ends at %llu bytes, before the end of what is to be read", uri,
                  (unsigned long long)size);
        return -EINVAL;
    }
    if (o->has_length)
        left = o->length;
    while (left > 0) {
        size_t n = left < CHUNK ? (size_t)left : CHUNK;
        int rc = rblk_pread(h, buf, n, at);

        if (rc < 0) {
            log_error("%s", rblk_error(h));
            return rc;
        }
        rc = write_all(buf, n);
        if (rc < 0) {
            log_error("standard output cannot be written: %s", strerror(-rc));
            return rc;
        }
        at += n;
        left -= n;
    }
    return 0;
}

static int write_volume(struct rblk *h, const char *uri, const struct options *o, char *buf)
{
    uint64_t size = rblk_get_size(h), at = o->offset;
    int rc;

    for (;;) {
        ssize_t n = read_all(buf, CHUNK);

        if (n < 0) {
            log_error("standard input cannot be read: %s", strerror((int)-n));
            return (int)n;
        }
        if (n == 0)
            break;
        if (at > size || (uint64_t)n > size - at) {
            log_error("%s ends at %llu bytes; there is more input than fits behind offset %llu",
                      uri, (unsigned long long)size, (unsigned long long)o->offset);
            return -ENOSPC;
        }
        rc = rblk_pwrite(h, buf, (size_t)n, at, 0);
        if (rc < 0) {
            log_error("%s", rblk_error(h));
            return rc;
        }
        at += (uint64_t)n;
    }
    rc = o->no_flush ? 0 : rblk_flush(h);
    if (rc < 0)
        log_error("%s", rblk_error(h));
    return rc;
}

static int copy(const char *uri, enum rblk_mode mode, const struct options *o,
                const struct tool_arguments *a)
{
    char *buf = aligned_alloc(4096, CHUNK);
    struct rblk *h;
    int rc;

    if (!buf) {
        log_error("out of memory");
        return TOOL_FAILED;
    }
    rc = tool_connect_volume(&h, uri, mode, a);
    if (rc < 0)
        goto free_buf;
    rc = mode == RBLK_MODE_RO ? read_volume(h, uri, o, buf) : write_volume(h, uri, o, buf);
    rblk_close(h);

free_buf:
    free(buf);
    return rc < 0 ? TOOL_FAILED : TOOL_OK;
}

int command_read(const struct command *command, int argc, char **argv)
{
    static const struct option own[] = {
        {"offset", required_argument, NULL, OPT_OFFSET},
        {"length", required_argument, NULL, OPT_LENGTH},
        {NULL, 0, NULL, 0},
    };
    struct options o = {0};
    struct tool_arguments a;
    int rc = tool_parse(command, argc, argv, own, take, &o, 1, 1, &a);

    return rc >= 0 ? rc : copy(a.positional[0], RBLK_MODE_RO, &o, &a);
}

int command_write(const struct command *command, int argc, char **argv)
{
    static const struct option own[] = {
        {"offset", required_argument, NULL, OPT_OFFSET},
        {"no-flush", no_argument, NULL, OPT_NO_FLUSH},
        {NULL, 0, NULL, 0},
    };
    struct options o = {0};
    struct tool_arguments a;
    int rc = tool_parse(command, argc, argv, own, take, &o, 1, 1, &a);

    return rc >= 0 ? rc : copy(a.positional[0], RBLK_MODE_RW, &o, &a);
}
