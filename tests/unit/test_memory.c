/* SPDX-License-Identifier: BSD-2-Clause */
/* test_memory -- buffers of the data path: alignment, contents, and that all of them goes back */
#include <check.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "memory.h"
#include "suite.h"

#define HUGE_PAGE ((size_t)2 << 20)

static const size_t lengths[] = {
    1, 4096, 4097, 65536, HUGE_PAGE - 1, HUGE_PAGE, HUGE_PAGE + 1, 3 * HUGE_PAGE, (5u << 20) + 123,
};
#define LENGTHS (sizeof(lengths) / sizeof(lengths[0]))

START_TEST(aligned_zeroed_and_writable)
{
    uint8_t *memory = rblk_memory_map(lengths[_i]);
    size_t len = lengths[_i];

    ck_assert_ptr_nonnull(memory);
    ck_assert_uint_eq((uintptr_t)memory % (len < HUGE_PAGE ? 4096 : HUGE_PAGE), 0);
    for (size_t i = 0; i < len; i++)
        if (memory[i])
            ck_abort_msg("byte %zu is not zero", i);
    memset(memory, 0xff, len);
    rblk_memory_unmap(memory, len);
}
END_TEST

static long mapped_pages(void)
{
    FILE *f = fopen("/proc/self/statm", "r");
    long pages = 0;

    ck_assert(f && fscanf(f, "%ld", &pages) == 1);
    fclose(f);
    return pages;
}

START_TEST(all_of_it_goes_back)
{
    long before = mapped_pages();

    for (unsigned int i = 0; i < 300; i++) {
        size_t len = lengths[i % LENGTHS];

        rblk_memory_unmap(rblk_memory_map(len), len);
    }
    /* One page left of each round would be 300. */
    ck_assert_int_lt(mapped_pages(), before + 200);
    rblk_memory_unmap(NULL, HUGE_PAGE);
}
END_TEST

START_TEST(too_much_is_refused)
{
    ck_assert_ptr_null(rblk_memory_map((size_t)1 << 60));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("common/memory");
    TCase *tc = tcase_create("memory");

    tcase_add_loop_test(tc, aligned_zeroed_and_writable, 0, LENGTHS);
    tcase_add_test(tc, all_of_it_goes_back);
    tcase_add_test(tc, too_much_is_refused);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
