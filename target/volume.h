/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * volume -- a backing file or block device and what is exported of it
 *
 * One long-lived descriptor, buffered, never O_DIRECT; one shared mapping of the whole, which is
 * what gets registered and which nobody stores through (DESIGN section 6).
 *
 * Owner: the control thread. Reactors read fd, index, size and the latch; `failed` and what is in
 * `pace` are all that changes under them, and are atomic.
 */
#ifndef RBLK_TARGET_VOLUME_H
#define RBLK_TARGET_VOLUME_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config.h"
#include "wire.h"
#include "write_now.h"

struct domain;

struct volume {
    char name[RBLK_NAME_LEN];
    char *path;
    uint8_t uuid[RBLK_UUID_LEN];
    int fd;
    unsigned int index; /* in the target's table, and as io_uring fixed file */
    bool read_only;     /* exported read-only */
    bool map_writable;  /* the mapping had to be PROT_WRITE (kernels before 6.2) */
    atomic_bool failed; /* latched by the first failed sync */
    struct write_pace pace;
    uint64_t size; /* bytes, exact */
    void *map;
    struct domain *readers; /* protection domains shared by its read-only sessions */
    unsigned int sessions;  /* attached now */
    unsigned int writers;   /* of these, those that may write */
};

/*
 * Opens, locks and maps the backing file. With `trial` only what can be looked at without
 * disturbing a target that serves it: no lock, no identity written. 0, or a negative errno and one
 * line in err.
 */
int volume_open(struct volume *v, const struct config_volume *c, unsigned int index, bool trial,
                char *err, size_t errlen);
/* Unmaps, unlocks, closes. NULL, zeroed and half-opened volumes are allowed. */
void volume_close(struct volume *v);

/*
 * Makes the mapping writable, for kernels before 6.2 whose ibv_reg_mr answers EFAULT for a read-
 * only one (FACTS section 2). Nothing of it may be registered. 0, -EALREADY, or a negative errno.
 */
int volume_map_writable(struct volume *v);

/*
 * Latches the volume failed: from now on writes and flushes are refused. True for the first caller,
 * whose task it is to say so. Any thread.
 */
bool volume_latch_failed(struct volume *v);

static inline bool volume_has_failed(struct volume *v)
{
    return atomic_load_explicit(&v->failed, memory_order_acquire);
}

/* RBLK_VOLUME_* of the volume now. */
uint32_t volume_flags(struct volume *v);

/* True when sessions of these modes may not be attached at once (DESIGN section 8). */
bool volume_modes_conflict(enum rblk_attach_mode a, enum rblk_attach_mode b);

/* Writes everything to stable storage: 0 or a negative errno. Blocks. */
int volume_sync(struct volume *v);

#endif
