#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# target_stopped -- SIGTERM under load: rblkd finishes, syncs, exits 0 in time and takes its pidfile away.
# time-limit: 90

. "$(dirname "$0")/lib.sh"

make_disk disk $((32 * 1048576))
make_disk other 1048576
cp disk model
start_target "disk=$TEST_DIR/disk" "other=$TEST_DIR/other"
pid=$(cat target.pid)
assert_equal "$pid" "$TARGET_PID" "the pidfile"
if have_fuse; then
    mount_disk "$TARGET_URI/disk" "$TEST_DIR/mnt"
    start_background model_mount run -s "$TEST_SEED" -t 4 -T 60 -u uncertain mnt/disk model >io.out 2>&1
else
    start_background hold "$TARGET_URI/disk" >io.out 2>&1
fi
io=$BACKGROUND_PID
start_background hold "$TARGET_URI/other" >other.out 2>&1
sleep 1.5
is_running "$io" || fail "the load ended too early: $(cat io.out)"

begun=$(now_ms)
stop_target
measured "ended under load in $(($(now_ms) - begun)) ms"
[ ! -e target.pid ] || fail "the pidfile is still there"
! port_listens "$TARGET_PORT" || fail "something still listens"
wait_for 40 not is_running "$io" || fail "I/O hangs after the target has ended"
status=0
wait "$io" || status=$?
assert_equal "$status" 3 "end of the load: $(cat io.out)"
wait_for 40 not is_running "$BACKGROUND_PID" || fail "the second client hangs"

if have_fuse; then
    expect_failure 'mnt.*flush' rblk unmount "$TEST_DIR/mnt"
    remove_from mounts "$TEST_DIR/mnt"
    assert_nothing_mounted "$TEST_DIR/mnt"
    # Whatever was acknowledged is in the backing file.
    timeout 30 model_mount adopt disk model uncertain
    timeout 30 model_mount compare disk model
fi

# SIGINT is as good, and an idle target ends at once.
start_target "disk=$TEST_DIR/disk"
begun=$(now_ms)
pid=$TARGET_PID
kill -INT "$pid"
wait_for "$PATIENCE" not is_running "$pid" || fail "SIGINT does not end it"
wait "$pid" || fail "it ended with status $? after SIGINT"
unset "target_pids[target]"
measured "ended idle in $(($(now_ms) - begun)) ms"
