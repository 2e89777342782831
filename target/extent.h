/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * extent -- protection domains with volume memory, and the extents registered in them
 *
 * A session that may write has a domain of its own, all read-only sessions of a volume share one
 * (DESIGN section 4). Extents are registered on demand, each once per domain, and counted: an
 * extent is deregistered when no session holds it any more.
 *
 * Owner: the control thread.
 */
#ifndef RBLK_TARGET_EXTENT_H
#define RBLK_TARGET_EXTENT_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "stats.h"
#include "wire.h"

struct device;
struct volume;

/* More would need too much memory for the tables: then the extents have to be larger. */
#define EXTENTS_MAX (1u << 24)

struct extent {
    struct ibv_mr *mr; /* NULL: not registered */
    uint32_t holders;  /* sessions */
};

struct domain {
    struct domain *next; /* in volume->readers */
    struct device *device;
    struct volume *volume;
    struct ibv_pd *pd;
    bool shared;
    unsigned int sessions;
    uint64_t extent_size; /* bytes */
    uint64_t extent_count;
    struct extent *extents;
    struct counters *counters;
};

/* Extents that a volume of so many bytes has. */
uint64_t extent_count(uint64_t size, uint64_t extent_size);

/* A domain of the caller's own, or with `shared` the one of the volume's readers. 0 or -errno. */
int domain_get(struct device *device, struct volume *volume, uint64_t extent_size, bool shared,
               struct counters *counters, struct domain **out);
/* Gives it back; the last one frees it. Its queue pairs and extents must be gone. NULL: nothing. */
void domain_put(struct domain *d);

/* Bits of the extents that a session holds; NULL when out of memory. Free with free(3). */
uint64_t *extent_set_create(uint64_t count);
bool extent_is_held(const uint64_t *held, uint64_t index);

/*
 * Registers the extent if it is not and takes it for the session whose set this is; holding it
 * already is allowed. index < extent_count. 0, -ENOMEM, -EFAULT, ...; a failed registration has
 * been logged.
 */
int extent_hold(struct domain *d, uint64_t index, uint64_t *held, struct rblk_extent_entry *entry);
/* Gives an extent back that the session holds; the last holder deregisters it. */
void extent_drop(struct domain *d, uint64_t index, uint64_t *held);
/* Gives back all that the session holds. */
void extent_drop_all(struct domain *d, uint64_t *held);

#endif
