#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# unmount_busy -- unmounting while I/O runs, or right after it, loses nothing that was acknowledged.
# time-limit: 90

. "$(dirname "$0")/lib.sh"

need_fuse

make_disk disk $((16 * 1048576 + 1))
cp disk model
start_target "disk=$TEST_DIR/disk"

# While files are open: refused in one line, and the I/O goes on; or done without loss.
mount_disk "$TARGET_URI/disk" "$TEST_DIR/mnt"
start_background model_mount run -s "$TEST_SEED" -t 3 -T 60 mnt/disk model >io.out 2>&1
io=$BACKGROUND_PID
sleep 1
is_running "$io" || fail "the load ended too early: $(cat io.out)"
expect_failure 'mnt is in use' rblk unmount "$TEST_DIR/mnt"
sleep 1
is_running "$io" || fail "the refused unmount disturbed the I/O: $(cat io.out)"
kill -TERM "$io"
wait "$io" || fail "the refused unmount disturbed the I/O: $(cat io.out)"
cat io.out
unmount_disk "$TEST_DIR/mnt"
assert_nothing_mounted "$TEST_DIR/mnt"
timeout 60 model_mount compare disk model

# Right after a write that nobody synced, many times.
rounds=$(scaled 20)
for ((round = 0; round < rounds; round++)); do
    mount_disk "$TARGET_URI/disk" "$TEST_DIR/mnt"
    head -c 300001 /dev/urandom >chunk
    dd if=chunk of=mnt/disk bs=300001 seek=$((round % 50)) conv=notrunc status=none
    dd if=chunk of=model bs=300001 seek=$((round % 50)) conv=notrunc status=none
    unmount_disk "$TEST_DIR/mnt"
done
timeout 60 model_mount compare disk model

# SIGTERM to the mount process is an unmount, too.
mount_disk "$TARGET_URI/disk" "$TEST_DIR/mnt"
dd if=chunk of=mnt/disk bs=300001 seek=3 conv=notrunc status=none
dd if=chunk of=model bs=300001 seek=3 conv=notrunc status=none
kill -TERM "$(mount_process "$TEST_DIR/mnt")"
assert_nothing_mounted "$TEST_DIR/mnt"
timeout 60 model_mount compare disk model
wait_for "$PATIENCE" stat_is sessions 0 || fail "the session is left"
stop_target
measured "nothing lost in $rounds unmounts right after a write"
