/* SPDX-License-Identifier: BSD-2-Clause */
/* test_wake -- the measured cost of a wake-up, how long a spin may be, and when it is worth it */
#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>

#include "spin.h"
#include "suite.h"
#include "wake.h"

#define THREADS 8u
#define WAKE_MAX_NS 10000000u /* a round trip of the measurement has a time limit */

static void *ask(void *opaque)
{
    *(uint64_t *)opaque = rblk_wake_cost_ns();
    return NULL;
}

/* Whoever asks, at once or later, gets the same answer. */
START_TEST(test_cost_is_measured_once)
{
    uint64_t cost[THREADS];
    pthread_t thread[THREADS];

    for (unsigned int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, ask, &cost[i]), 0);
    for (unsigned int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_join(thread[i], NULL), 0);
    for (unsigned int i = 0; i < THREADS; i++)
        ck_assert_uint_eq(cost[i], rblk_wake_cost_ns());
    printf("a wake-up costs %.1f us, a spin may last %.1f us\n", (double)cost[0] / 1e3,
           (double)rblk_spin_limit_ns() / 1e3);
    ck_assert_uint_gt(cost[0], 0);
    ck_assert_uint_le(cost[0], WAKE_MAX_NS);
}
END_TEST

START_TEST(test_limit_is_bounded)
{
    uint64_t limit = rblk_spin_limit_ns();

    if (limit == 0) {
        cpu_set_t set;

        ck_assert_int_eq(sched_getaffinity(0, sizeof(set), &set), 0);
        ck_assert_int_eq(CPU_COUNT(&set), 1);
        return;
    }
    ck_assert_uint_ge(limit, RBLK_SPIN_LIMIT_MIN_NS);
    ck_assert_uint_le(limit, RBLK_SPIN_LIMIT_MAX_NS);
    ck_assert(limit >= rblk_wake_cost_ns() || limit == RBLK_SPIN_LIMIT_MAX_NS);
}
END_TEST

/* Check runs each test in a process of its own, so the others keep their CPUs. */
START_TEST(test_one_cpu_never_spins)
{
    struct spin s;
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET((unsigned int)sched_getcpu(), &set);
    ck_assert_int_eq(sched_setaffinity(0, sizeof(set), &set), 0);
    ck_assert_uint_eq(rblk_spin_limit_ns(), 0);
    rblk_spin_init(&s, 100);
    ck_assert_uint_eq(s.limit_ns, 0);
    ck_assert_uint_gt(rblk_wake_cost_ns(), 0);
}
END_TEST

#define WAKE_NS 20000u /* a wake-up */

/* What the user says counts where there is something to gain at all. */
START_TEST(test_configured_limit)
{
    bool may_spin = rblk_spin_limit_ns() > 0;
    struct spin s;

    rblk_spin_init(&s, RBLK_SPIN_AUTO);
    ck_assert_uint_eq(s.limit_ns, rblk_spin_limit_ns());
    ck_assert_uint_eq(s.wake_ns, rblk_wake_cost_ns());
    rblk_spin_init(&s, 100);
    ck_assert_uint_eq(s.limit_ns, may_spin ? 100000 : 0);
    rblk_spin_init(&s, 0);
    ck_assert_uint_eq(s.limit_ns, 0);
    ck_assert(!spin_is_worth(&s));
}
END_TEST

/* Learns from short waits, also slept ones, and forgets when they become long. */
START_TEST(test_spin_learns)
{
    struct spin s;
    unsigned int waits = 0;

    spin_init(&s, 50000, WAKE_NS);
    ck_assert(!spin_is_worth(&s));
    /* Both sides have slept: a spin would have caught it. */
    while (!spin_is_worth(&s) && waits++ < 100)
        spin_learn(&s, 50000 + 2 * WAKE_NS, true);
    ck_assert_uint_le(waits, 10);
    for (unsigned int i = 0; i < 1000; i++)
        spin_learn(&s, 10000, false);
    ck_assert(spin_is_worth(&s));
    ck_assert_uint_le(s.score, SPIN_SCORE_ONE);
    for (waits = 0; spin_is_worth(&s) && waits < 100; waits++)
        spin_learn(&s, 1000000, true);
    ck_assert_uint_le(waits, 10);
    for (unsigned int i = 0; i < 1000; i++)
        spin_learn(&s, 1000000, true);
    ck_assert_uint_eq(s.score, 0);
    spin_learn(&s, 50000 + 2 * WAKE_NS + 1, true);
    ck_assert_uint_eq(s.score, 0);
    /* What a spin found was not lengthened by a wake-up. */
    spin_learn(&s, 50001, false);
    ck_assert_uint_eq(s.score, 0);
}
END_TEST

START_TEST(test_spin_forbidden)
{
    struct spin s;

    spin_init(&s, 0, WAKE_NS);
    for (unsigned int i = 0; i < 1000; i++)
        spin_learn(&s, 0, false);
    ck_assert(!spin_is_worth(&s));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("common/wake");
    TCase *tc = tcase_create("wake");

    tcase_add_test(tc, test_cost_is_measured_once);
    tcase_add_test(tc, test_limit_is_bounded);
    tcase_add_test(tc, test_one_cpu_never_spins);
    tcase_add_test(tc, test_configured_limit);
    tcase_add_test(tc, test_spin_learns);
    tcase_add_test(tc, test_spin_forbidden);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
