#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# initiator_killed -- a killed mount process leaves a stale mount: status says so, unmount and mount clear it.
# time-limit: 90

. "$(dirname "$0")/lib.sh"

need_fuse

make_disk disk $((8 * 1048576))
cp disk model
start_target "disk=$TEST_DIR/disk"

# kill_mount: kills the process behind the mount while I/O is under way.
kill_mount()
{
    local io
    : >uncertain
    start_background model_mount run -s "$TEST_SEED" -t 2 -T 60 -u uncertain mnt/disk model >io.out 2>&1
    io=$BACKGROUND_PID
    sleep 1
    is_running "$io" || fail "the load ended too early: $(cat io.out)"
    kill -KILL "$(mount_process "$TEST_DIR/mnt")"
    wait_for 20 not is_running "$io" || fail "I/O hangs after the mount process was killed"
    wait "$io" && fail "the load does not notice that the mount process was killed"
    grep -qE 'not connected|abort|No such device|Input/output' io.out || fail "$(cat io.out)"
    # The kernel may remember what the folder was like.
    ! stat --cached=never mnt 2>stat.err || fail "the mount is not stale"
    note "$(cat stat.err)"
    wait_for "$PATIENCE" stat_is sessions 0 || fail "the target still has a session"
}

mount_disk "$TARGET_URI/disk" "$TEST_DIR/mnt"
kill_mount
timeout 20 rblk status >status.out 2>&1 || fail "status: $(cat status.out)"
grep -A 1 -F "$TEST_DIR/mnt " status.out | grep -q 'silent.*rblk unmount' ||
    fail "status says: $(cat status.out)"
timeout 20 rblk status --json "$TEST_DIR/mnt" >status.json
assert_json status.json
assert_equal "$(json status.json '[m["state"] for m in v]')" "['silent']" "state"
unmount_disk "$TEST_DIR/mnt"
assert_nothing_mounted "$TEST_DIR/mnt"
stat mnt >/dev/null

# A new mount clears a stale one by itself.
mount_disk "$TARGET_URI/disk" "$TEST_DIR/mnt"
timeout 30 model_mount adopt mnt/disk model uncertain
timeout 60 model_mount verify mnt/disk model
kill_mount
mount_disk "$TARGET_URI/disk" "$TEST_DIR/mnt"
timeout 30 model_mount adopt mnt/disk model uncertain
timeout 60 model_mount verify mnt/disk model
assert_equal "$(grep -cF " $TEST_DIR/mnt " /proc/self/mountinfo)" 1 "mounts at that place"
unmount_disk "$TEST_DIR/mnt"
assert_nothing_mounted "$TEST_DIR/mnt"
[ -z "$(ls "$RBLK_RUNTIME_DIR" 2>/dev/null)" ] || fail "left in the runtime folder: $(ls "$RBLK_RUNTIME_DIR")"
stop_target
