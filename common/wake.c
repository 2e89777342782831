/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * wake -- measures what it costs to wake a sleeping thread
 *
 * Two threads wake each other in turn; half of a round trip is one wake-up. The second thread lives
 * only for the measurement, which pthread_once makes the first caller's.
 */
#include "wake.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "clock.h"

#define ROUNDS 15
#define ROUND_LIMIT_MS 10         /* a round that takes longer ends the measurement */
#define USUAL_NS 20000u           /* a wake-up, where it cannot be measured */
#define SPIN_WAKE_UPS 3u          /* a spin may last as long as so many wake-ups */
#define STOP ((eventfd_t)1 << 32) /* more than the pings that can have added up */

struct pair {
    int ping, pong; /* eventfds */
    int cpu;        /* where the asking thread runs, or -1 */
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint64_t cost_ns = USUAL_NS;

/*
 * On one CPU a wake-up is a change of threads. It is the dear one, to another CPU that idles, which
 * a spin is there to save.
 */
static void leave_cpu(int cpu)
{
    cpu_set_t set;

    if (cpu < 0 || sched_getaffinity(0, sizeof(set), &set))
        return;
    CPU_CLR(cpu, &set);
    if (CPU_COUNT(&set) > 0)
        sched_setaffinity(0, sizeof(set), &set);
}

static void *answer(void *opaque)
{
    const struct pair *p = opaque;
    eventfd_t value;

    leave_cpu(p->cpu);
    while (eventfd_read(p->ping, &value) == 0 && value < STOP)
        if (eventfd_write(p->pong, 1))
            break;
    return NULL;
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* The median round trip, nanoseconds; 0: none came to its end. */
static uint64_t round_trip(const struct pair *p)
{
    uint64_t took[ROUNDS];
    unsigned int n = 0;

    while (n < ROUNDS) {
        struct pollfd pfd = {.fd = p->pong, .events = POLLIN};
        uint64_t begun = rblk_now_ns();
        eventfd_t value;

        if (eventfd_write(p->ping, 1) || poll(&pfd, 1, ROUND_LIMIT_MS) <= 0 ||
            eventfd_read(p->pong, &value))
            break;
        took[n++] = rblk_now_ns() - begun;
    }
    if (n == 0)
        return 0;
    qsort(took, n, sizeof(took[0]), compare);
    return took[n / 2];
}

static void measure(void)
{
    struct pair p = {
        .ping = eventfd(0, EFD_CLOEXEC),
        .pong = eventfd(0, EFD_CLOEXEC),
        .cpu = sched_getcpu(),
    };
    sigset_t all, before;
    pthread_t thread;
    int rc;

    if (p.ping < 0 || p.pong < 0)
        goto out;
    /* The thread takes none of the program's signals. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&thread, NULL, answer, &p);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc == 0) {
        uint64_t trip = round_trip(&p);

        if (trip)
            cost_ns = trip / 2;
        eventfd_write(p.ping, STOP);
        pthread_join(thread, NULL);
    }
out:
    if (p.ping >= 0)
        close(p.ping);
    if (p.pong >= 0)
        close(p.pong);
}

uint64_t rblk_wake_cost_ns(void)
{
    pthread_once(&once, measure);
    return cost_ns;
}

static bool several_cpus(void)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) > 1;
}

uint64_t rblk_spin_limit_ns(void)
{
    uint64_t limit = SPIN_WAKE_UPS * rblk_wake_cost_ns();

    if (!several_cpus())
        return 0;
    if (limit < RBLK_SPIN_LIMIT_MIN_NS)
        return RBLK_SPIN_LIMIT_MIN_NS;
    return limit < RBLK_SPIN_LIMIT_MAX_NS ? limit : RBLK_SPIN_LIMIT_MAX_NS;
}

void rblk_spin_init(struct spin *s, uint64_t longest_us)
{
    uint64_t limit = rblk_spin_limit_ns();

    if (limit > 0 && longest_us != RBLK_SPIN_AUTO)
        limit = longest_us * 1000;
    spin_init(s, (uint32_t)limit, (uint32_t)rblk_wake_cost_ns());
}
