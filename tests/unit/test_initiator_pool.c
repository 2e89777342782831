/* SPDX-License-Identifier: BSD-2-Clause */
/* test_initiator_pool -- initiator/pool.c: the buffers of a queue */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "initiator/pool.h"
#include "suite.h"

static struct rblk_pool pool;

static void teardown(void)
{
    rblk_pool_free(&pool);
}

START_TEST(init_checks_its_size)
{
    ck_assert_int_eq(rblk_pool_init(&pool, 0, 0), -EINVAL);
    ck_assert_int_eq(rblk_pool_init(&pool, (64u << 20) + 1, 0), -EINVAL);
    ck_assert_int_eq(rblk_pool_init(&pool, 64u << 20, 0), 0);
    ck_assert_uint_eq(pool.units.units, 1024);
}
END_TEST

START_TEST(runs_are_aligned_disjoint_and_writable)
{
    uint8_t *run[16];

    ck_assert_int_eq(rblk_pool_init(&pool, 1u << 20, 100), 0);
    for (int i = 0; i < 16; i++) {
        run[i] = rblk_pool_take(&pool, 1 + (size_t)i * 4096);
        ck_assert_ptr_nonnull(run[i]);
        ck_assert_uint_eq((uintptr_t)run[i] % 4096, 0);
        memset(run[i], i, RBLK_POOL_UNIT);
    }
    ck_assert_ptr_null(rblk_pool_take(&pool, 1));
    memset(pool.extra, 0xff, 100);
    for (int i = 0; i < 16; i++) {
        /* All bytes of the run are as they were written. */
        ck_assert_uint_eq(run[i][0], i);
        ck_assert_int_eq(memcmp(run[i], run[i] + 1, RBLK_POOL_UNIT - 1), 0);
        rblk_pool_give(&pool, run[i], 1 + (size_t)i * 4096);
    }
    ck_assert_uint_eq(pool.units.free_units, 16);
    ck_assert_ptr_nonnull(rblk_pool_take(&pool, 1u << 20));
}
END_TEST

START_TEST(the_reserve_is_for_copies_only)
{
    uint8_t *all, *run[RBLK_BOUNCE_RUNS];

    ck_assert_int_eq(rblk_pool_init(&pool, 1u << 20, 0), 0);
    all = rblk_pool_take(&pool, 1u << 20);
    ck_assert_ptr_nonnull(all);
    ck_assert_ptr_null(rblk_pool_take(&pool, 1));
    for (unsigned int i = 0; i < RBLK_BOUNCE_RUNS; i++) {
        run[i] = rblk_pool_take_bounce(&pool, RBLK_BOUNCE_MAX);
        ck_assert_ptr_nonnull(run[i]);
        ck_assert(!rblk_pool_contains(&pool, run[i], 1));
        memset(run[i], 1, RBLK_BOUNCE_MAX);
    }
    ck_assert_ptr_null(rblk_pool_take_bounce(&pool, 1));
    for (unsigned int i = 0; i < RBLK_BOUNCE_RUNS; i++)
        rblk_pool_give(&pool, run[i], RBLK_BOUNCE_MAX);
    rblk_pool_give(&pool, all, 1u << 20);
    ck_assert_uint_eq(pool.units.free_units, 16);
    ck_assert_uint_eq(pool.reserve.free_units, pool.reserve.units);
    /* While the pool has room, the reserve stays untouched. */
    run[0] = rblk_pool_take_bounce(&pool, 1);
    ck_assert(rblk_pool_contains(&pool, run[0], 1));
}
END_TEST

START_TEST(contains_is_exact)
{
    uint8_t *end;

    ck_assert_int_eq(rblk_pool_init(&pool, 1u << 20, 0), 0);
    end = pool.base + (1u << 20);
    ck_assert(rblk_pool_contains(&pool, pool.base, 1u << 20));
    ck_assert(!rblk_pool_contains(&pool, pool.base, (1u << 20) + 1));
    ck_assert(!rblk_pool_contains(&pool, pool.base + 1, 1u << 20));
    ck_assert(rblk_pool_contains(&pool, end - 1, 1));
    ck_assert(!rblk_pool_contains(&pool, end - 1, 2));
    ck_assert(!rblk_pool_contains(&pool, end - 1, SIZE_MAX));
    ck_assert(!rblk_pool_contains(&pool, &end, 1));
}
END_TEST

static Suite *pool_suite(void)
{
    Suite *suite = suite_create("initiator_pool");
    TCase *tcase = tcase_create("pool");

    tcase_add_checked_fixture(tcase, NULL, teardown);
    tcase_add_test(tcase, init_checks_its_size);
    tcase_add_test(tcase, runs_are_aligned_disjoint_and_writable);
    tcase_add_test(tcase, the_reserve_is_for_copies_only);
    tcase_add_test(tcase, contains_is_exact);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return suite_run(pool_suite());
}
