/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fuse_memory -- the front end alone: rblk-fuse over a volume that is memory of the same process
 *
 * Takes the command line of rblk-fuse and runs the very same worker loop. Only librblk is replaced,
 * by what is below, which answers each request by one copy. So its figures are what the front end
 * can reach at most, whatever the network does. $FUSE_MEMORY_SIZE is the size of the volume
 * (default 1G).
 *
 * Threads: a queue is used by one worker; the memory is written and read without a lock, as a disk
 * would be.
 */

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "frontend.h"
#include "log.h"
#include "rblk.h"
#include "size.h"
#include "uri.h"

#define PAGE 4096u
#define QUEUES_MAX 64u

struct pending {
    rblk_callback callback;
    void *opaque;
};

struct rblk_queue {
    struct rblk *handle;
    int fd;
    unsigned int count, depth;
    struct pending *pending; /* answered, callback not yet run */
    char *pool;
    size_t pages;
    unsigned char *used; /* a byte a page */
};

struct rblk {
    enum rblk_mode mode;
    unsigned int queue_count, depth;
    size_t pool_size;
    char *memory;
    uint64_t size;
    char volume[RBLK_NAME_LEN];
    struct rblk_queue queues[QUEUES_MAX];
};

int rblk_create(struct rblk **out)
{
    struct rblk *h = calloc(1, sizeof(*h));

    if (!h)
        return -ENOMEM;
    *out = h;
    return 0;
}

void rblk_close(struct rblk *h)
{
    if (!h)
        return;
    for (unsigned int i = 0; i < h->queue_count && h->memory; i++) {
        struct rblk_queue *q = &h->queues[i];

        for (unsigned int k = 0; k < q->count; k++)
            q->pending[k].callback(q->pending[k].opaque, -ECANCELED);
        close(q->fd);
        free(q->pending);
        free(q->used);
        munmap(q->pool, h->pool_size);
    }
    if (h->memory)
        munmap(h->memory, h->size);
    free(h);
}

const char *rblk_error(const struct rblk *h)
{
    (void)h;
    return "the memory for the volume cannot be had; set FUSE_MEMORY_SIZE";
}

const char *rblk_version(void)
{
    return RBLK_VERSION;
}

int rblk_set_mode(struct rblk *h, enum rblk_mode mode)
{
    h->mode = mode;
    return 0;
}

int rblk_set_queues(struct rblk *h, unsigned int queues)
{
    h->queue_count = queues;
    return 0;
}

int rblk_set_queue_depth(struct rblk *h, unsigned int depth)
{
    h->depth = depth;
    return 0;
}

int rblk_set_pool_size(struct rblk *h, size_t bytes)
{
    h->pool_size = bytes;
    return 0;
}

int rblk_set_timeout(struct rblk *h, unsigned int milliseconds)
{
    (void)h;
    (void)milliseconds;
    return 0;
}

static void *map(size_t len)
{
    void *p =
        mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return p == MAP_FAILED ? NULL : p;
}

static int open_queue(struct rblk *h, struct rblk_queue *q)
{
    q->handle = h;
    q->depth = h->depth;
    q->pages = h->pool_size / PAGE;
    q->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    q->pending = calloc(h->depth, sizeof(*q->pending));
    q->used = calloc(q->pages, 1);
    q->pool = map(h->pool_size);
    return q->fd >= 0 && q->pending && q->used && q->pool ? 0 : -ENOMEM;
}

int rblk_connect(struct rblk *h, const char *text)
{
    const char *size = getenv("FUSE_MEMORY_SIZE");
    struct rblk_uri uri;
    char err[128];
    int rc;

    h->size = 1u << 30;
    if (size && (rblk_size_parse(&h->size, size) < 0 || h->size == 0))
        return -EINVAL;
    if (rblk_uri_parse(&uri, text, err, sizeof(err)) < 0)
        return -EINVAL;
    memcpy(h->volume, uri.volume, sizeof(h->volume));
    h->memory = map(h->size);
    if (!h->memory)
        return -ENOMEM;
    for (unsigned int i = 0; i < h->queue_count; i++) {
        rc = open_queue(h, &h->queues[i]);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int rblk_get_info(struct rblk *h, struct rblk_info *info)
{
    memset(info, 0, sizeof(*info));
    memcpy(info->volume, h->volume, sizeof(info->volume));
    snprintf(info->target, sizeof(info->target), "memory");
    snprintf(info->device, sizeof(info->device), "memory");
    info->size = h->size;
    info->queues = h->queue_count;
    info->queue_depth = h->depth;
    info->max_io = 1u << 20;
    info->max_inline = 8192;
    info->read_only = h->mode == RBLK_MODE_RO;
    info->can_flush = true;
    info->can_fua = true;
    return 0;
}

bool rblk_is_connected(const struct rblk *h)
{
    return h->memory != NULL;
}

int rblk_get_stats(struct rblk *h, struct rblk_stats *stats)
{
    (void)h;
    memset(stats, 0, sizeof(*stats));
    return 0;
}

int rblk_flush(struct rblk *h)
{
    (void)h;
    return 0;
}

struct rblk_queue *rblk_get_queue(struct rblk *h, unsigned int i)
{
    return i < h->queue_count ? &h->queues[i] : NULL;
}

static int finish(struct rblk_queue *q, rblk_callback cb, void *opaque)
{
    q->pending[q->count].callback = cb;
    q->pending[q->count++].opaque = opaque;
    return 0;
}

int rblk_aio_read(struct rblk_queue *q, void *buf, size_t len, uint64_t offset, rblk_callback cb,
                  void *opaque)
{
    if (q->count == q->depth)
        return -EAGAIN;
    memcpy(buf, q->handle->memory + offset, len);
    return finish(q, cb, opaque);
}

int rblk_aio_write(struct rblk_queue *q, const void *buf, size_t len, uint64_t offset,
                   unsigned int flags, rblk_callback cb, void *opaque)
{
    (void)flags;
    if (q->count == q->depth)
        return -EAGAIN;
    memcpy(q->handle->memory + offset, buf, len);
    return finish(q, cb, opaque);
}

int rblk_aio_flush(struct rblk_queue *q, rblk_callback cb, void *opaque)
{
    return q->count == q->depth ? -EAGAIN : finish(q, cb, opaque);
}

int rblk_queue_poll(struct rblk_queue *q)
{
    unsigned int n = q->count;

    for (unsigned int i = 0; i < n; i++)
        q->pending[i].callback(q->pending[i].opaque, 0);
    /* What the callbacks have submitted waits for the next poll. */
    memmove(q->pending, q->pending + n, (q->count - n) * sizeof(*q->pending));
    q->count -= n;
    return (int)n;
}

unsigned int rblk_queue_inflight(struct rblk_queue *q)
{
    return q->count;
}

int rblk_queue_fd(const struct rblk_queue *q)
{
    return q->fd;
}

int rblk_queue_arm(struct rblk_queue *q)
{
    return q->count > 0;
}

/* Memory has answered already. */
int rblk_queue_submit(struct rblk_queue *q)
{
    (void)q;
    return 0;
}

/* The lowest free run: it is the one most likely to be in the cache still. */
void *rblk_buffer_get(struct rblk_queue *q, size_t len)
{
    size_t need = (len + PAGE - 1) / PAGE, run = 0;

    for (size_t at = 0; at < q->pages; at++) {
        run = q->used[at] ? 0 : run + 1;
        if (run == need) {
            at = at + 1 - need;
            memset(q->used + at, 1, need);
            return q->pool + at * PAGE;
        }
    }
    return NULL;
}

void rblk_buffer_put(struct rblk_queue *q, void *buf, size_t len)
{
    memset(q->used + (size_t)((char *)buf - q->pool) / PAGE, 0, (len + PAGE - 1) / PAGE);
}

int rblk_register(struct rblk *h, void *addr, size_t len)
{
    (void)h;
    (void)addr;
    (void)len;
    return 0;
}

int main(int argc, char **argv)
{
    struct fuse_options options;
    char err[512];

    rblk_log_init("fuse_memory", RBLK_LOG_INFO);
    if (fuse_options_parse(&options, argc, argv, err, sizeof(err)) < 0) {
        log_error("%s", err);
        return 2;
    }
    if (options.action != FUSE_ACTION_MOUNT) {
        printf("fuse_memory takes the arguments of rblk-fuse; see the head of fuse_memory.c\n");
        return 0;
    }
    rblk_log_init("fuse_memory", options.log_level);
    return frontend_run(&options);
}
