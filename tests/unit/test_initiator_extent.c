/* SPDX-License-Identifier: BSD-2-Clause */
/* test_initiator_extent -- initiator/extent.c: the table of mapped extents */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "initiator/extent.h"
#include "suite.h"

#define MIB (1024u * 1024u)
#define TIB (1024ull * 1024u * MIB)

static struct rblk_extents table;

static void teardown(void)
{
    rblk_extents_free(&table);
}

static void map(uint64_t index, uint64_t addr, uint32_t rkey, uint32_t stamp)
{
    struct rblk_extent_entry entry = {
        .addr = addr,
        .length = rblk_extents_length(&table, index),
        .rkey = rkey,
    };

    ck_assert(rblk_extents_request(&table, index));
    ck_assert_int_eq(rblk_extents_publish(&table, index, &entry, stamp), 0);
}

START_TEST(init_checks_its_arguments)
{
    ck_assert_int_eq(rblk_extents_init(&table, 0, 4096), -EINVAL);
    ck_assert_int_eq(rblk_extents_init(&table, 1, 0), -EINVAL);
    ck_assert_int_eq(rblk_extents_init(&table, 1, 2048), -EINVAL);
    ck_assert_int_eq(rblk_extents_init(&table, 1, 4097), -EINVAL);
}
END_TEST

START_TEST(lengths_add_up_to_the_size)
{
    static const uint64_t sizes[] = {1, 511, 4095, 4096, 4097, 64 * MIB, 64 * MIB + 1, TIB + 1};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        uint64_t sum = 0;

        ck_assert_int_eq(rblk_extents_init(&table, sizes[i], 64 * MIB), 0);
        for (uint64_t n = 0; n < table.count; n++) {
            ck_assert_uint_ge(rblk_extents_length(&table, n), 1);
            sum += rblk_extents_length(&table, n);
        }
        ck_assert_uint_eq(sum, sizes[i]);
        rblk_extents_free(&table);
    }
}
END_TEST

START_TEST(a_sparse_petabyte_costs_what_is_used)
{
    uint64_t addr, left;
    uint32_t rkey;

    ck_assert_int_eq(rblk_extents_init(&table, 1024 * TIB, MIB), 0);
    map(table.count - 1, 4096, 7, 0);
    ck_assert(rblk_extents_lookup(&table, 1024 * TIB - 1, 1, &addr, &rkey, &left));
    ck_assert_uint_eq(addr, 4096 + MIB - 1);
    ck_assert_uint_eq(rkey, 7);
    ck_assert_uint_eq(left, 1);
}
END_TEST

START_TEST(lookup_finds_what_is_mapped_only)
{
    uint64_t addr = 1, left = 2;
    uint32_t rkey = 3;

    ck_assert_int_eq(rblk_extents_init(&table, 3 * 4096 + 5, 4096), 0);
    ck_assert(!rblk_extents_lookup(&table, 4096, 0, &addr, &rkey, &left));
    ck_assert(rblk_extents_request(&table, 1));
    ck_assert(!rblk_extents_request(&table, 1));
    ck_assert(!rblk_extents_lookup(&table, 4096, 0, &addr, &rkey, &left));
    ck_assert_uint_eq(addr, 1);
    rblk_extents_forget(&table, 1);
    map(1, 0x10000, 11, 0);
    map(3, 0x90000, 33, 0);
    ck_assert(rblk_extents_lookup(&table, 4096 + 100, 0, &addr, &rkey, &left));
    ck_assert_uint_eq(addr, 0x10000 + 100);
    ck_assert_uint_eq(rkey, 11);
    ck_assert_uint_eq(left, 4096 - 100);
    ck_assert(rblk_extents_lookup(&table, 3 * 4096 + 4, 0, &addr, &rkey, &left));
    ck_assert_uint_eq(addr, 0x90000 + 4);
    ck_assert_uint_eq(left, 1);
    ck_assert(!rblk_extents_lookup(&table, 0, 0, &addr, &rkey, &left));
    ck_assert_uint_eq(table.held, 2);
}
END_TEST

START_TEST(publish_refuses_what_cannot_be_right)
{
    struct rblk_extent_entry entry = {.addr = 4096, .length = 4096, .rkey = 1};

    ck_assert_int_eq(rblk_extents_init(&table, 4096 + 5, 4096), 0);
    /* Not asked for. */
    ck_assert_int_eq(rblk_extents_publish(&table, 0, &entry, 0), -EPROTO);
    ck_assert(rblk_extents_request(&table, 0));
    ck_assert(rblk_extents_request(&table, 1));
    /* Beyond the volume. */
    ck_assert_int_eq(rblk_extents_publish(&table, 2, &entry, 0), -EPROTO);
    /* Too long for the last extent. */
    ck_assert_int_eq(rblk_extents_publish(&table, 1, &entry, 0), -EPROTO);
    /* The last byte would have no address. */
    entry.addr = UINT64_MAX - 4094;
    ck_assert_int_eq(rblk_extents_publish(&table, 0, &entry, 0), -EPROTO);
    entry.addr = UINT64_MAX - 4095;
    ck_assert_int_eq(rblk_extents_publish(&table, 0, &entry, 0), 0);
    ck_assert_int_eq(rblk_extents_publish(&table, 0, &entry, 0), -EPROTO);
    ck_assert_int_eq((int)rblk_extents_state(&table, 1), RBLK_EXTENT_REQUESTED);
}
END_TEST

START_TEST(revoke_takes_the_least_recently_used)
{
    uint32_t now = rblk_extents_stamp(), rkey;
    uint64_t index[8], addr, left;

    ck_assert_int_eq(rblk_extents_init(&table, 8 * 4096, 4096), 0);
    for (uint64_t i = 0; i < 5; i++)
        map(i, 4096 * (i + 1), (uint32_t)i, now - 100 + (uint32_t)i);
    /* The oldest is used again. */
    ck_assert(rblk_extents_lookup(&table, 0, now, &addr, &rkey, &left));
    ck_assert_uint_eq(rblk_extents_revoke(&table, 2, index), 2);
    ck_assert_uint_eq(index[0], 1);
    ck_assert_uint_eq(index[1], 2);
    ck_assert(!rblk_extents_lookup(&table, 4096, now, &addr, &rkey, &left));
    ck_assert(!rblk_extents_request(&table, 1));
    ck_assert_uint_eq(table.held, 3);
    rblk_extents_forget(&table, 1);
    ck_assert(rblk_extents_request(&table, 1));
    /* More than there are. */
    ck_assert_uint_eq(rblk_extents_revoke(&table, 8, index), 3);
    ck_assert_uint_eq(index[2], 0);
    ck_assert_uint_eq(rblk_extents_revoke(&table, 8, index), 0);
}
END_TEST

START_TEST(revoke_survives_a_clock_that_wraps)
{
    uint32_t now = rblk_extents_stamp();
    uint64_t index[2];

    ck_assert_int_eq(rblk_extents_init(&table, 3 * 4096, 4096), 0);
    map(0, 4096, 0, now + 3); /* used after revoke read the clock */
    map(1, 8192, 1, now - 0x70000000);
    map(2, 12288, 2, now - 1);
    ck_assert_uint_eq(rblk_extents_revoke(&table, 2, index), 2);
    ck_assert_uint_eq(index[0], 1);
    ck_assert_uint_eq(index[1], 2);
}
END_TEST

static Suite *extent_suite(void)
{
    Suite *suite = suite_create("initiator_extent");
    TCase *tcase = tcase_create("extent");

    tcase_add_checked_fixture(tcase, NULL, teardown);
    tcase_add_test(tcase, init_checks_its_arguments);
    tcase_add_test(tcase, lengths_add_up_to_the_size);
    tcase_add_test(tcase, a_sparse_petabyte_costs_what_is_used);
    tcase_add_test(tcase, lookup_finds_what_is_mapped_only);
    tcase_add_test(tcase, publish_refuses_what_cannot_be_right);
    tcase_add_test(tcase, revoke_takes_the_least_recently_used);
    tcase_add_test(tcase, revoke_survives_a_clock_that_wraps);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return suite_run(extent_suite());
}
