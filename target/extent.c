/* SPDX-License-Identifier: BSD-2-Clause */
/* extent -- protection domains with volume memory, and the extents registered in them */
#include "extent.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "clock.h"
#include "device.h"
#include "log.h"
#include "provider.h"
#include "size.h"
#include "verbs.h"
#include "volume.h"

/* Pages that mincore(2) is asked about at once. */
#define LOOK_PAGES 4096u

/* How long the control thread may map cached pages of one extent, nanoseconds. */
#define MAP_CACHED_NS 10000000u

/* Since Linux 5.14, newer than some headers. */
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

uint64_t extent_count(uint64_t size, uint64_t extent_size)
{
    return size / extent_size + (size % extent_size != 0);
}

static struct domain *find_shared(struct device *device, struct volume *volume)
{
    struct domain *d = volume->readers;

    while (d && d->device != device)
        d = d->next;
    return d;
}

int domain_get(struct device *device, struct volume *volume, uint64_t extent_size, bool shared,
               struct counters *counters, struct domain **out)
{
    struct domain *d = shared ? find_shared(device, volume) : NULL;
    int rc;

    if (d) {
        d->sessions++;
        *out = d;
        return 0;
    }
    d = calloc(1, sizeof(*d));
    if (!d)
        return -ENOMEM;
    d->device = device;
    d->volume = volume;
    d->shared = shared;
    d->sessions = 1;
    d->extent_size = extent_size;
    d->extent_count = extent_count(volume->size, extent_size);
    d->counters = counters;
    d->extents = calloc(d->extent_count, sizeof(*d->extents));
    if (!d->extents) {
        rc = -ENOMEM;
        goto fail;
    }
    d->pd = ibv_alloc_pd(device->verbs);
    if (!d->pd) {
        rc = -errno;
        goto fail;
    }
    if (shared) {
        d->next = volume->readers;
        volume->readers = d;
    }
    *out = d;
    return 0;

fail:
    free(d->extents);
    free(d);
    return rc;
}

void domain_put(struct domain *d)
{
    if (!d || --d->sessions)
        return;
    if (d->shared) {
        struct domain **link = &d->volume->readers;

        while (*link != d)
            link = &(*link)->next;
        *link = d->next;
    }
    if (ibv_dealloc_pd(d->pd))
        log_warning("volume %s: its protection domain cannot be freed: %s", d->volume->name,
                    strerror(errno));
    free(d->extents);
    free(d);
}

uint64_t *extent_set_create(uint64_t count)
{
    return calloc(count / 64 + 1, sizeof(uint64_t));
}

bool extent_is_held(const uint64_t *held, uint64_t index)
{
    return held[index / 64] >> (index % 64) & 1u;
}

static void say_why(const struct domain *d, uint64_t length, int error)
{
    char need[32], have[32];

    if (error == ENOMEM && rblk_memlock_limit() != UINT64_MAX)
        log_error("volume %s: %s cannot be registered: the limit of locked memory is %s; raise it "
                  "(LimitMEMLOCK=infinity, ulimit -l unlimited), use a smaller --extent-size, or "
                  "use --provider soft",
                  d->volume->name, rblk_size_format(need, sizeof(need), length),
                  rblk_size_format(have, sizeof(have), rblk_memlock_limit()));
    else
        log_error("volume %s: %s cannot be registered: %s", d->volume->name,
                  rblk_size_format(need, sizeof(need), length), strerror(error));
}

/*
 * Registers memory of the mapping with the access that file mappings allow on every kernel: never
 * with LOCAL_WRITE, which kernels since 6.5 refuse. Kernels before 6.2 take every page for writing
 * whatever is asked, and answer EFAULT for a read-only mapping: then it becomes writable, once.
 */
static struct ibv_mr *register_extent(struct domain *d, void *addr, size_t length)
{
    struct ibv_mr *mr = ibv_reg_mr(d->pd, addr, length, IBV_ACCESS_REMOTE_READ);
    int rc;

    if (mr || errno != EFAULT || d->volume->map_writable)
        return mr;
    rc = volume_map_writable(d->volume);
    if (rc) {
        errno = -rc;
        return NULL;
    }
    log_info(
        "volume %s: this kernel registers only writable mappings (before Linux 6.2), so holes of "
        "the backing file get allocated as they are read",
        d->volume->name);
    return ibv_reg_mr(d->pd, addr, length, IBV_ACCESS_REMOTE_READ);
}

/* mincore(2) tells the truth only to those who may write the file. */
static bool cache_can_be_seen(const struct volume *v)
{
    return faccessat(v->fd, "", W_OK, AT_EMPTY_PATH | AT_EACCESS) == 0;
}

/* Maps those of count pages that are cached. False when this kernel cannot do that. */
static bool map_cached_run(char *addr, const unsigned char *cached, size_t count, size_t page)
{
    size_t first = 0;

    for (size_t i = 0; i <= count; i++) {
        if (i < count && (cached[i] & 1))
            continue;
        /* An older kernel refuses; a page that has gone meanwhile is no loss. */
        if (i > first && madvise(addr + first * page, (i - first) * page, MADV_POPULATE_READ) < 0 &&
            errno == EINVAL)
            return false;
        first = i + 1;
    }
    return true;
}

/*
 * Maps what the page cache holds of an extent that is about to be registered, some 20 us per MiB,
 * as far as the time goes. A device pins and so maps all of it; the software provider would take a
 * page fault at the first read of every place. What is not in memory stays as it is: it must not be
 * read from the disk, nor a hole be allocated, because its neighbour was asked for.
 */
static void map_cached_pages(const struct volume *v, char *addr, size_t length)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint64_t deadline = rblk_now_ns() + MAP_CACHED_NS;
    unsigned char cached[LOOK_PAGES];

    if (!rblk_provider_is_soft() || !cache_can_be_seen(v))
        return;
    for (size_t done = 0; done < length && rblk_now_ns() < deadline; done += LOOK_PAGES * page) {
        size_t left = (length - done + page - 1) / page;
        size_t count = left < LOOK_PAGES ? left : LOOK_PAGES;

        if (mincore(addr + done, count * page, cached) < 0 ||
            !map_cached_run(addr + done, cached, count, page))
            return;
    }
}

int extent_hold(struct domain *d, uint64_t index, uint64_t *held, struct rblk_extent_entry *entry)
{
    struct extent *e = &d->extents[index];
    uint64_t start = index * d->extent_size;
    uint64_t left = d->volume->size - start;
    uint64_t length = left < d->extent_size ? left : d->extent_size;
    char *addr = (char *)d->volume->map + start;

    if (!e->mr) {
        map_cached_pages(d->volume, addr, (size_t)length);
        e->mr = register_extent(d, addr, (size_t)length);
        if (!e->mr) {
            int error = errno;

            say_why(d, length, error);
            return -error;
        }
        counter_add(&d->counters->extents_mapped, 1);
        counter_add(&d->counters->extent_bytes, length);
    }
    if (!extent_is_held(held, index)) {
        held[index / 64] |= (uint64_t)1 << (index % 64);
        e->holders++;
    }
    entry->addr = (uint64_t)(uintptr_t)addr;
    entry->length = length;
    entry->rkey = e->mr->rkey;
    return 0;
}

void extent_drop(struct domain *d, uint64_t index, uint64_t *held)
{
    struct extent *e = &d->extents[index];
    uint64_t length = e->mr->length;

    held[index / 64] &= ~((uint64_t)1 << (index % 64));
    if (--e->holders)
        return;
    if (ibv_dereg_mr(e->mr))
        log_warning("volume %s: an extent cannot be deregistered: %s", d->volume->name,
                    strerror(errno));
    e->mr = NULL;
    counter_sub(&d->counters->extents_mapped, 1);
    counter_sub(&d->counters->extent_bytes, length);
}

void extent_drop_all(struct domain *d, uint64_t *held)
{
    for (uint64_t word = 0; word <= d->extent_count / 64; word++)
        while (held[word])
            extent_drop(d, word * 64 + (uint64_t)__builtin_ctzll(held[word]), held);
}
