/* SPDX-License-Identifier: BSD-2-Clause */
/* test_fuse_metrics -- histograms of the mount process */

#include <check.h>
#include <stdlib.h>

#include "fuse/metrics.h"
#include "suite.h"

/* Every value is in a bucket that ends at or after it, by at most an eighth. */
START_TEST(test_bucket_bounds)
{
    unsigned int last = 0;

    /* One assertion for all: a hundred thousand of Check's would take their time. */
    for (uint64_t ns = 0; ns < 100000; ns++) {
        unsigned int bucket = histogram_bucket(ns);
        uint64_t end = histogram_bucket_end(bucket);

        if (bucket < last || bucket > last + 1 || end < ns || end > ns + ns / 8)
            ck_abort_msg("%llu ns: bucket %u after %u, ends at %llu", (unsigned long long)ns,
                         bucket, last, (unsigned long long)end);
        last = bucket;
    }
}
END_TEST

/* The end of each bucket belongs to it, the value after that to the next. */
START_TEST(test_bucket_ends)
{
    for (unsigned int bucket = 0; bucket + 1 < HISTOGRAM_BUCKETS; bucket++) {
        ck_assert_uint_eq(histogram_bucket(histogram_bucket_end(bucket)), bucket);
        ck_assert_uint_eq(histogram_bucket(histogram_bucket_end(bucket) + 1), bucket + 1);
    }
    ck_assert_uint_eq(histogram_bucket(UINT64_MAX), HISTOGRAM_BUCKETS - 1);
}
END_TEST

START_TEST(test_percentiles)
{
    struct histogram *h = calloc(1, sizeof(*h));
    struct histogram_sum *sum = calloc(1, sizeof(*sum));

    ck_assert_uint_eq(histogram_percentile(sum, 0.5), 0);
    for (uint64_t ns = 1; ns <= 1000; ns++)
        histogram_record(h, ns * 1000);
    histogram_add(sum, h);
    ck_assert_uint_eq(sum->total, 1000);
    ck_assert_uint_eq(sum->max_ns, 1000000);
    ck_assert_uint_ge(histogram_percentile(sum, 0.5), 500000);
    ck_assert_uint_le(histogram_percentile(sum, 0.5), 562500);
    ck_assert_uint_ge(histogram_percentile(sum, 0.99), 990000);
    ck_assert_uint_eq(histogram_percentile(sum, 1.0), 1000000);
    ck_assert_uint_le(histogram_percentile(sum, 0.0), 1125);
    /* Of another worker: both count. */
    histogram_add(sum, h);
    ck_assert_uint_eq(sum->total, 2000);
    free(h);
    free(sum);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fuse/metrics");
    TCase *tc = tcase_create("metrics");

    tcase_add_test(tc, test_bucket_bounds);
    tcase_add_test(tc, test_bucket_ends);
    tcase_add_test(tc, test_percentiles);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
