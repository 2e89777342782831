/* SPDX-License-Identifier: BSD-2-Clause */
/* suite -- runs a Check suite as the whole of a test program */
#ifndef RBLK_TESTS_SUITE_H
#define RBLK_TESTS_SUITE_H

#include <check.h>
#include <stdlib.h>

/* Runs the suite, says what Check says, frees it. The program's exit status. */
static inline int suite_run(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    int failed;

    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif
