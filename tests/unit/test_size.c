/* SPDX-License-Identifier: BSD-2-Clause */
/* test_size -- common/size.c: byte counts and numbers as people write them */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/size.h"
#include "suite.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define UNTOUCHED UINT64_C(0xfeedfacecafebeef)

static const struct {
    const char *text;
    int rc;
    uint64_t bytes;
} sizes[] = {
    {"0", 0, 0},
    {"1", 0, 1},
    {"4097", 0, 4097},
    {"4097B", 0, 4097},
    {"007", 0, 7},
    {"1K", 0, 1024},
    {"1k", 0, 1024},
    {"1KB", 0, 1024},
    {"1KiB", 0, 1024},
    {"1kib", 0, 1024},
    {"64M", 0, 64 << 20},
    {"64MiB", 0, 64 << 20},
    {"1GiB", 0, UINT64_C(1) << 30},
    {"1T", 0, UINT64_C(1) << 40},
    {"3P", 0, UINT64_C(3) << 50},
    {"15E", 0, UINT64_C(15) << 60},
    {"16E", -ERANGE, 0},
    {"16383P", 0, UINT64_C(16383) << 50},
    {"16384P", -ERANGE, 0},
    {"18446744073709551615", 0, UINT64_MAX},
    {"18446744073709551616", -ERANGE, 0},
    {"99999999999999999999999", -ERANGE, 0},
    {"18014398509481983K", 0, UINT64_C(18014398509481983) << 10},
    {"18014398509481984K", -ERANGE, 0},
    {"", -EINVAL, 0},
    {" 1", -EINVAL, 0},
    {"1 ", -EINVAL, 0},
    {"1 K", -EINVAL, 0},
    {"+1", -EINVAL, 0},
    {"-1", -EINVAL, 0},
    {"1.5G", -EINVAL, 0},
    {"0x10", -EINVAL, 0},
    {"K", -EINVAL, 0},
    {"1KK", -EINVAL, 0},
    {"1Ki", -EINVAL, 0},
    {"1KiBs", -EINVAL, 0},
    {"1iB", -EINVAL, 0},
    {"1Z", -EINVAL, 0},
    {"\xd9\xa1", -EINVAL, 0}, /* a digit, but not of ASCII */
};

START_TEST(parses)
{
    uint64_t bytes = UNTOUCHED;
    int rc = rblk_size_parse(&bytes, sizes[_i].text);

    ck_assert_msg(rc == sizes[_i].rc, "\"%s\": %d", sizes[_i].text, rc);
    ck_assert_msg(bytes == (rc == 0 ? sizes[_i].bytes : UNTOUCHED), "\"%s\": %llu", sizes[_i].text,
                  (unsigned long long)bytes);
}
END_TEST

static const struct {
    uint64_t bytes;
    const char *text;
} texts[] = {
    {0, "0 bytes"},
    {1, "1 byte"},
    {511, "511 bytes"},
    {1024, "1 KiB"},
    {1536, "1.5 KiB"},
    {4096, "4 KiB"},
    {4097, "4097 bytes"},
    {64 << 20, "64 MiB"},
    {(64 << 20) + 1, "67108865 bytes"},
    {UINT64_C(3) << 29, "1.5 GiB"},
    {UINT64_C(1) << 40, "1 TiB"},
    {(UINT64_C(1) << 40) + 1, "1099511627777 bytes"},
    {UINT64_C(1000204886016), "976762584 KiB"},
    {UINT64_C(15) << 60, "15 EiB"},
    {UINT64_MAX, "18446744073709551615 bytes"},
};

START_TEST(formats_exactly)
{
    char buf[32];

    ck_assert_ptr_eq(rblk_size_format(buf, sizeof buf, texts[_i].bytes), buf);
    ck_assert_str_eq(buf, texts[_i].text);
}
END_TEST

START_TEST(format_respects_the_buffer)
{
    char buf[] = "xxxxxxxx";

    rblk_size_format(buf, 4, 4097);
    ck_assert_str_eq(buf, "409");
    ck_assert_mem_eq(buf + 4, "xxxx", 5);
}
END_TEST

static const struct {
    const char *text;
    uint64_t min, max;
    int rc;
    uint64_t value;
} numbers[] = {
    {"1", 1, 64, 0, 1},
    {"64", 1, 64, 0, 64},
    {"0", 1, 64, -ERANGE, 0},
    {"65", 1, 64, -ERANGE, 0},
    {"18446744073709551615", 0, UINT64_MAX, 0, UINT64_MAX},
    {"18446744073709551616", 0, UINT64_MAX, -ERANGE, 0},
    {"", 0, 9, -EINVAL, 0},
    {"-1", 0, 9, -EINVAL, 0},
    {"+1", 0, 9, -EINVAL, 0},
    {"1k", 0, 9, -EINVAL, 0},
    {" 1", 0, 9, -EINVAL, 0},
    {"1\n", 0, 9, -EINVAL, 0},
};

START_TEST(parses_numbers)
{
    uint64_t value = UNTOUCHED;
    int rc = rblk_number_parse(&value, numbers[_i].text, numbers[_i].min, numbers[_i].max);

    ck_assert_msg(rc == numbers[_i].rc, "\"%s\": %d", numbers[_i].text, rc);
    ck_assert(value == (rc == 0 ? numbers[_i].value : UNTOUCHED));
}
END_TEST

static Suite *size_suite(void)
{
    Suite *suite = suite_create("size");
    TCase *tcase = tcase_create("size");

    tcase_add_loop_test(tcase, parses, 0, COUNT(sizes));
    tcase_add_loop_test(tcase, formats_exactly, 0, COUNT(texts));
    tcase_add_test(tcase, format_respects_the_buffer);
    tcase_add_loop_test(tcase, parses_numbers, 0, COUNT(numbers));
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return suite_run(size_suite());
}
