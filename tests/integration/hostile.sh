#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# hostile -- malformed and hostile messages close their connection, are logged once, and harm no other client.
# time-limit: 150

. "$(dirname "$0")/lib.sh"

make_disk innocent $((8 * 1048576 + 5))
make_disk victim 1048576
cp innocent innocent.model
cp victim victim.before
start_target "innocent=$TEST_DIR/innocent" "victim=$TEST_DIR/victim"

# Somebody works all the while, with data that are compared.
if have_fuse; then
    mount_disk "$TARGET_URI/innocent" "$TEST_DIR/mnt"
    start_background model_mount run -s "$TEST_SEED" -T 300 -t 1 -m 65536 \
        "$TEST_DIR/mnt/innocent" innocent.model >innocent.out 2>&1
else
    start_background hold "$TARGET_URI/innocent" >innocent.out 2>&1
fi
innocent=$BACKGROUND_PID

# On a device there is no plain TCP underneath that could be spoken to.
without=()
if [ "$TEST_PROVIDER" != soft ]; then
    without=(-r)
    # siw (Linux 6.1) answers an RDMA READ from any memory of the protection domain, readable or not.
    ! rdma link show 2>/dev/null | grep -q siw || without+=(-x access-read-from-staging)
fi
timeout 400 hostile "${without[@]}" -s "$TEST_SEED" -n "$(scaled 200)" -L "$TARGET_LOG" \
    -P ' warning: ' "$TEST_ADDRESS" "$TARGET_PORT" victim >hostile.out 2>&1 ||
    fail "$(cat hostile.out)"
cat hostile.out

is_running "$TARGET_PID" || fail "the target ended"
is_running "$innocent" || fail "the innocent client ended: $(cat innocent.out)"
kill -TERM "$innocent"
wait "$innocent" || fail "the innocent client: $(cat innocent.out)"
cat innocent.out
assert_same_bytes victim victim.before
errors=$(stat_of protocol_errors)
[ "$errors" -gt 40 ] || fail "the target counted $errors protocol errors only"
if have_fuse; then
    unmount_disk "$TEST_DIR/mnt"
    timeout 30 model_mount compare innocent innocent.model
fi
wait_for "$PATIENCE" stat_is sessions 0 || fail "sessions are left"
assert_equal "$(stat_of queues)" 0 "queues left"
assert_equal "$(stat_of extent_bytes)" 0 "registered bytes left"
stop_target
