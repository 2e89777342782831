/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_run_alloc -- common/run_alloc.c against a model that keeps one byte per unit
 *
 * The random test prints its seed and takes one in $RBLK_TEST_SEED.
 */
#include <check.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/run_alloc.h"
#include "random.h"
#include "suite.h"

START_TEST(init_checks_its_range)
{
    struct rblk_run_alloc a;

    ck_assert_int_eq(rblk_run_alloc_init(&a, 0), -EINVAL);
    ck_assert_int_eq(rblk_run_alloc_init(&a, RBLK_RUN_UNITS_MAX + 1), -EINVAL);
    ck_assert_int_eq(rblk_run_alloc_init(&a, 1), 0);
    ck_assert_int_eq(rblk_run_alloc_init(&a, RBLK_RUN_UNITS_MAX), 0);
    ck_assert_uint_eq(a.free_units, RBLK_RUN_UNITS_MAX);
}
END_TEST

START_TEST(takes_everything_and_no_more)
{
    struct rblk_run_alloc a;
    uint32_t first = 77;

    for (uint32_t units = 1; units <= RBLK_RUN_UNITS_MAX; units += 1 + units / 3) {
        ck_assert_int_eq(rblk_run_alloc_init(&a, units), 0);
        for (uint32_t i = 0; i < units; i++) {
            ck_assert_int_eq(rblk_run_alloc_take(&a, 1, &first), 0);
            ck_assert_uint_eq(first, i);
        }
        first = 77;
        ck_assert_int_eq(rblk_run_alloc_take(&a, 1, &first), -ENOSPC);
        ck_assert_uint_eq(first, 77);
        rblk_run_alloc_give(&a, 0, units);
        ck_assert_int_eq(rblk_run_alloc_take(&a, units + 1, &first), -ENOSPC);
        ck_assert_int_eq(rblk_run_alloc_take(&a, units, &first), 0);
        ck_assert_uint_eq(first, 0);
        ck_assert_uint_eq(a.free_units, 0);
    }
}
END_TEST

START_TEST(takes_no_empty_run)
{
    struct rblk_run_alloc a;
    uint32_t first;

    ck_assert_int_eq(rblk_run_alloc_init(&a, 8), 0);
    ck_assert_int_lt(rblk_run_alloc_take(&a, 0, &first), 0);
    ck_assert_int_lt(rblk_run_alloc_take(&a, UINT32_MAX, &first), 0);
    ck_assert_uint_eq(a.free_units, 8);
}
END_TEST

/* A free run that ends where the last search began must be found, also across that place. */
START_TEST(finds_a_run_around_the_last_place)
{
    struct rblk_run_alloc a;
    uint32_t first;

    ck_assert_int_eq(rblk_run_alloc_init(&a, 200), 0);
    ck_assert_int_eq(rblk_run_alloc_take(&a, 100, &first), 0);
    ck_assert_uint_eq(a.next, 100);
    rblk_run_alloc_give(&a, 60, 40);
    ck_assert_int_eq(rblk_run_alloc_take(&a, 140, &first), 0); /* 60 to 199 */
    ck_assert_uint_eq(first, 60);
}
END_TEST

START_TEST(a_run_does_not_wrap_around)
{
    struct rblk_run_alloc a;
    uint32_t first;

    ck_assert_int_eq(rblk_run_alloc_init(&a, 100), 0);
    ck_assert_int_eq(rblk_run_alloc_take(&a, 100, &first), 0);
    rblk_run_alloc_give(&a, 0, 10);
    rblk_run_alloc_give(&a, 90, 10);
    ck_assert_int_eq(rblk_run_alloc_take(&a, 11, &first), -ENOSPC);
    ck_assert_int_eq(rblk_run_alloc_take(&a, 10, &first), 0);
}
END_TEST

/* Only programming errors do this; the count must stay right all the same. */
START_TEST(giving_twice_changes_nothing)
{
    struct rblk_run_alloc a;
    uint32_t first;

    ck_assert_int_eq(rblk_run_alloc_init(&a, 10), 0);
    ck_assert_int_eq(rblk_run_alloc_take(&a, 4, &first), 0);
    rblk_run_alloc_give(&a, first, 4);
    rblk_run_alloc_give(&a, first, 4);
    rblk_run_alloc_give(&a, 8, UINT32_MAX);
    rblk_run_alloc_give(&a, UINT32_MAX, 1);
    ck_assert_uint_eq(a.free_units, 10);
}
END_TEST

/* -- model --------------------------------------------------------------------------------- */

static uint32_t longest_run(const uint8_t *used, uint32_t units)
{
    uint32_t run = 0, longest = 0;

    for (uint32_t i = 0; i < units; i++) {
        run = used[i] ? 0 : run + 1;
        longest = run > longest ? run : longest;
    }
    return longest;
}

struct run {
    uint32_t first, count;
};

START_TEST(agrees_with_the_model)
{
    uint64_t seed = random_seed(), state = seed;

    for (unsigned int round = 0; round < 50; round++) {
        uint32_t units = (uint32_t)(random_next(&state) % RBLK_RUN_UNITS_MAX) + 1;
        uint8_t used[RBLK_RUN_UNITS_MAX] = {0};
        struct run runs[RBLK_RUN_UNITS_MAX];
        uint32_t held = 0, free_units = units;
        struct rblk_run_alloc a;

        ck_assert_int_eq(rblk_run_alloc_init(&a, units), 0);
        for (unsigned int step = 0; step < 2000; step++) {
            uint32_t count =
                (uint32_t)(random_next(&state) % (random_next(&state) % 2 ? 4 : 64)) + 1;
            uint32_t first;

            if (held && random_next(&state) % 2) {
                uint32_t i = (uint32_t)(random_next(&state) % held);

                rblk_run_alloc_give(&a, runs[i].first, runs[i].count);
                memset(used + runs[i].first, 0, runs[i].count);
                free_units += runs[i].count;
                runs[i] = runs[--held];
            } else if (rblk_run_alloc_take(&a, count, &first) == 0) {
                ck_assert_msg(first + count <= units && !memchr(used + first, 1, count),
                              "run %u+%u; RBLK_TEST_SEED=%llu", first, count,
                              (unsigned long long)seed);
                memset(used + first, 1, count);
                runs[held++] = (struct run){first, count};
                free_units -= count;
            } else {
                ck_assert_msg(longest_run(used, units) < count,
                              "overlooked a run of %u; RBLK_TEST_SEED=%llu", count,
                              (unsigned long long)seed);
            }
            ck_assert_uint_eq(a.free_units, free_units);
        }
    }
}
END_TEST

static Suite *run_alloc_suite(void)
{
    Suite *suite = suite_create("run_alloc");
    TCase *tcase = tcase_create("run_alloc");

    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, init_checks_its_range);
    tcase_add_test(tcase, takes_everything_and_no_more);
    tcase_add_test(tcase, takes_no_empty_run);
    tcase_add_test(tcase, finds_a_run_around_the_last_place);
    tcase_add_test(tcase, a_run_does_not_wrap_around);
    tcase_add_test(tcase, giving_twice_changes_nothing);
    tcase_add_test(tcase, agrees_with_the_model);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return suite_run(run_alloc_suite());
}
