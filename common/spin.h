/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * spin -- whether a busy wait before sleeping is worth its CPU time, learned from recent waits
 *
 * A sleeping thread costs tens of microseconds to wake, in a virtual machine hundreds. If waits
 * have been shorter than the bound, a spin saves that; if they have been longer, a spin only takes
 * CPU time from whoever could end the wait. Each thread has its own; no function here is for two
 * threads at once.
 */
#ifndef RBLK_COMMON_SPIN_H
#define RBLK_COMMON_SPIN_H

#include <stdbool.h>
#include <stdint.h>

struct spin {
    uint32_t limit_ns; /* longest spin; 0: never */
    uint32_t wake_ns;  /* what a wake-up costs */
    uint32_t score;    /* share of recent waits that were short, in 1/SPIN_SCORE_ONE */
};

#define SPIN_SCORE_ONE 1024u
#define SPIN_SCORE_WORTH (SPIN_SCORE_ONE / 2) /* spin when half of them were */
#define SPIN_SCORE_WEIGHT 8u /* one wait moves the score by an eighth of the distance */

/* Starts without spinning: the first short waits teach it. wake_ns: what waking up costs. */
static inline void spin_init(struct spin *s, uint32_t limit_ns, uint32_t wake_ns)
{
    s->limit_ns = limit_ns;
    s->wake_ns = wake_ns;
    s->score = 0;
}

static inline bool spin_is_worth(const struct spin *s)
{
    return s->limit_ns > 0 && s->score >= SPIN_SCORE_WORTH;
}

/*
 * A wait that was slept through is longer than it had to be: by our own wake-up, and by that of
 * whoever we wait for, since he sleeps until we have done our part. Where both sleep for that
 * reason alone, both must find that a spin would have caught it.
 */
#define SPIN_SLEPT_WAKE_UPS 2u

/* Tells how long a wait was, and whether (the end of) it was slept through. */
static inline void spin_learn(struct spin *s, uint64_t waited_ns, bool slept)
{
    uint64_t bound = (uint64_t)s->limit_ns + (slept ? SPIN_SLEPT_WAKE_UPS * s->wake_ns : 0);

    if (waited_ns <= bound)
        s->score += (SPIN_SCORE_ONE - s->score + SPIN_SCORE_WEIGHT - 1) / SPIN_SCORE_WEIGHT;
    else
        s->score -= (s->score + SPIN_SCORE_WEIGHT - 1) / SPIN_SCORE_WEIGHT;
}

#endif
