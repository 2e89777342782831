#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# target_killed -- the target is killed under load: I/O ends with EIO in time, nothing acknowledged is lost.
# time-limit: 120

. "$(dirname "$0")/lib.sh"

need_fuse

make_disk disk $((32 * 1048576 + 3))
cp disk model
start_target "disk=$TEST_DIR/disk"
port=$TARGET_PORT
mount_disk "$TARGET_URI/disk" "$TEST_DIR/mnt" --log-file "$TEST_DIR/mount.log"
start_background model_mount run -s "$TEST_SEED" -t 4 -T 120 -u uncertain mnt/disk model >io.out 2>&1
io=$BACKGROUND_PID
sleep 2
is_running "$io" || fail "the load ended too early: $(cat io.out)"

begun=$(now_ms)
kill_target
wait_for 40 not is_running "$io" || fail "I/O still hangs 40 seconds after the target was killed"
took=$(($(now_ms) - begun))
status=0
wait "$io" || status=$?
assert_equal "$status" 3 "end of the load: $(cat io.out)"
grep -q 'Input/output error' io.out || fail "not EIO but: $(cat io.out)"
measured "EIO $took ms after kill -9 of the target; $(grep -c failed io.out) calls failed"
cat io.out
wait_for "$PATIENCE" grep -q "connection is lost.*($TEST_ADDRESS:$port" mount.log || fail "the log does not say why: $(cat mount.log)"

# New I/O fails too, at once; the mount can be looked at and can be taken away.
status=0
timeout 20 dd if="$TEST_DIR/mnt/disk" of=/dev/null bs=4096 count=1 iflag=direct 2>dd.err || status=$?
{ [ "$status" -ne 0 ] && [ "$status" -ne 124 ]; } || fail "a read of the dead disk ended with $status"
timeout 20 rblk status >status.out || fail "rblk status fails"
timeout 20 rblk status --json >status.json && assert_json status.json
begun=$(now_ms)
# It goes, and the status says that a flush was due and could not be done.
expect_failure 'mnt.*flush' rblk unmount "$TEST_DIR/mnt"
remove_from mounts "$TEST_DIR/mnt"
measured "unmounted in $(($(now_ms) - begun)) ms"
assert_nothing_mounted "$TEST_DIR/mnt"

# The same port, at once; whatever was acknowledged is there.
start_target -p "$port" "disk=$TEST_DIR/disk"
mount_disk "$TARGET_URI/disk" "$TEST_DIR/mnt"
timeout 30 model_mount adopt mnt/disk model uncertain
timeout 60 model_mount verify mnt/disk model
timeout 60 model_mount run -s "$TEST_SEED" -n 200 -t 2 mnt/disk model
unmount_disk "$TEST_DIR/mnt"
stop_target
timeout 60 model_mount compare disk model
