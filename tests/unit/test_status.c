/* SPDX-License-Identifier: BSD-2-Clause */
/* test_status -- common/status.c: status numbers, errno and text */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/wire.h"
#include "suite.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* As PROTOCOL.md has them: numbers on the wire never change. */
static const struct {
    uint16_t status;
    int error;
} expected[] = {
    {0, 0},      {1, EPROTO},      {2, EPROTONOSUPPORT}, {3, ENOENT}, {4, EBUSY},   {5, EROFS},
    {6, EINVAL}, {7, EIO},         {8, ENOSPC},          {9, ENOMEM}, {10, EACCES}, {11, EUSERS},
    {12, EIO},   {13, EOPNOTSUPP}, {14, ESHUTDOWN},      {15, EPERM}, {16, EINVAL},
};

START_TEST(status_to_errno)
{
    ck_assert_int_eq(rblk_status_to_errno(expected[_i].status), expected[_i].error);
}
END_TEST

START_TEST(table_is_complete)
{
    ck_assert_uint_eq(COUNT(expected), RBLK_STATUS_MAX + 1);
    for (unsigned int a = 0; a <= RBLK_STATUS_MAX; a++) {
        ck_assert_msg(strlen(rblk_status_text((uint16_t)a)) > 0, "status %u has no text", a);
        for (unsigned int b = 0; b < a; b++)
            ck_assert_str_ne(rblk_status_text((uint16_t)a), rblk_status_text((uint16_t)b));
    }
}
END_TEST

START_TEST(unknown_status)
{
    ck_assert_int_eq(rblk_status_to_errno(RBLK_STATUS_MAX + 1), EPROTO);
    ck_assert_int_eq(rblk_status_to_errno(UINT16_MAX), EPROTO);
    ck_assert_str_eq(rblk_status_text(UINT16_MAX), "unknown status");
}
END_TEST

START_TEST(errno_to_status)
{
    ck_assert_int_eq(rblk_status_from_errno(0), RBLK_STATUS_OK);
    ck_assert_int_eq(rblk_status_from_errno(ENOSPC), RBLK_STATUS_NO_SPACE);
    ck_assert_int_eq(rblk_status_from_errno(EDQUOT), RBLK_STATUS_NO_SPACE);
    ck_assert_int_eq(rblk_status_from_errno(EROFS), RBLK_STATUS_READ_ONLY);
    ck_assert_int_eq(rblk_status_from_errno(EIO), RBLK_STATUS_IO);
    ck_assert_int_eq(rblk_status_from_errno(ENOMEM), RBLK_STATUS_NO_MEMORY);
    ck_assert_int_eq(rblk_status_from_errno(EOPNOTSUPP), RBLK_STATUS_NOT_SUPPORTED);
    /* The kernel refusing a write of the target is not the client's mistake. */
    ck_assert_int_eq(rblk_status_from_errno(EINVAL), RBLK_STATUS_IO);
    ck_assert_int_eq(rblk_status_from_errno(EPROTO), RBLK_STATUS_IO);
    ck_assert_int_eq(rblk_status_from_errno(-1), RBLK_STATUS_IO);
    ck_assert_int_eq(rblk_status_from_errno(99999), RBLK_STATUS_IO);
}
END_TEST

/* What the application of the initiator sees is what the backing file said. */
START_TEST(errno_survives_the_wire)
{
    static const int errors[] = {ENOSPC, EROFS, EIO,       ENOMEM, EOPNOTSUPP,
                                 ENOENT, EBUSY, ESHUTDOWN, EPERM,  EUSERS};

    for (size_t i = 0; i < COUNT(errors); i++)
        ck_assert_int_eq(rblk_status_to_errno((uint16_t)rblk_status_from_errno(errors[i])),
                         errors[i]);
}
END_TEST

static Suite *status_suite(void)
{
    Suite *suite = suite_create("status");
    TCase *tcase = tcase_create("status");

    tcase_add_loop_test(tcase, status_to_errno, 0, COUNT(expected));
    tcase_add_test(tcase, table_is_complete);
    tcase_add_test(tcase, unknown_status);
    tcase_add_test(tcase, errno_to_status);
    tcase_add_test(tcase, errno_survives_the_wire);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return suite_run(status_suite());
}
