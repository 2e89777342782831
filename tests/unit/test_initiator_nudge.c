/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_initiator_nudge.c -- empty writes that follow the first message to a target that is silent
 *
 * The target agrees to a control connection as rblkd does, and then only counts what comes. Two nudge
 * it: librblk, RBLK_NUDGES times within 1.1 s, and the software provider below, as it does for
 * every program (six times, test_softrdma_cm.c).
 */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>

#include "common/wire.h"
#include "initiator/control.h"
#include "initiator/rblk.h"
#include "silent_peer.h"
#include "suite.h"

#define PROVIDER_NUDGES 6
#define TIMEOUT_MS 4000 /* of the HELLO that nobody answers */

START_TEST(silent_target_is_nudged)
{
    const struct rblk_accept accept = {.version = RBLK_WIRE_VERSION, .kind = RBLK_KIND_CONTROL};
    uint8_t greeting[64];
    struct silent_peer target = {
        .private_data = greeting,
        .private_len = (uint8_t)rblk_accept_encode(greeting, &accept),
    };
    struct rblk *h;
    pthread_t thread;
    char uri[64];

    silent_peer_listen(&target);
    ck_assert_int_eq(pthread_create(&thread, NULL, silent_peer_main, &target), 0);
    ck_assert_int_eq(rblk_create(&h), 0);
    ck_assert_int_eq(rblk_set_timeout(h, TIMEOUT_MS), 0);
    snprintf(uri, sizeof(uri), "rblk://127.0.0.1:%u", ntohs(target.port_be));
    ck_assert_int_eq(rblk_connect_target(h, uri), -ETIMEDOUT);
    rblk_close(h);
    pthread_join(thread, NULL);
    ck_assert_uint_eq(target.sends, 1); /* HELLO */
    ck_assert_uint_eq(target.empty_writes, RBLK_NUDGES + PROVIDER_NUDGES);
    ck_assert_uint_eq(target.others, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("initiator/nudge");
    TCase *tcase = tcase_create("nudge");

    tcase_set_timeout(tcase, 30);
    tcase_add_test(tcase, silent_target_is_nudged);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
