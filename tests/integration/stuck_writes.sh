#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# stuck_writes -- writes that the target's file system holds up do not hold up a read, as long as one request
# buffer of the mount is left, whichever worker has it.
# time-limit: 150

. "$(dirname "$0")/lib.sh"

! kernel_before 6.2 || skip "before Linux 6.2, FUSE writes to a file go one at a time"
need_fuse
need_loop
need_command mkfs.ext4 fsfreeze

# What fuse/worker.c has for large writes, of all workers together, less one.
writes=15
bytes=131072

truncate -s 256M image
attach_loop "$TEST_DIR/image"
timeout 60 mkfs.ext4 -q -F "$LOOP"
mount_filesystem "$LOOP" "$TEST_DIR/fs"
timeout 60 dd if=/dev/urandom of=fs/disk bs=$bytes count=32 status=none
sync
cp fs/disk expected
timeout 60 dd if=/dev/urandom of=data bs=$bytes count=$writes status=none
timeout 60 dd if=data of=expected conv=notrunc bs=$bytes status=none
start_target "disk=$TEST_DIR/fs/disk"

inflight()
{
    rblk status --json >status.json
    [ "$(json status.json 'sum(w["inflight"] for w in v[0]["workers"])')" -eq "$writes" ]
}

# write_and_read QUEUES
write_and_read()
{
    local i pids=() begun
    mount_disk "$TARGET_URI/disk" "$TEST_DIR/mnt" --queues "$1"
    rblk status --json >status.json
    assert_equal "$(json status.json 'len(v[0]["workers"])')" "$1" workers
    # Everything is mapped before: an extent is not mapped while the target waits for its file system.
    timeout 60 dd if=mnt/disk of=/dev/null iflag=direct bs=1M status=none
    freeze_filesystem "$TEST_DIR/fs"
    for ((i = 0; i < writes; i++)); do
        start_background timeout 100 dd if=data of=mnt/disk oflag=direct conv=notrunc bs=$bytes count=1 skip="$i" \
            seek="$i" status=none
        pids+=("$BACKGROUND_PID")
    done
    wait_for "$PATIENCE" inflight || fail "the writes are not under way: $(cat status.json)"
    begun=$(now_ms)
    timeout "$PATIENCE" dd if=mnt/disk of=read iflag=direct bs=4096 count=1 skip=$((writes * bytes / 4096)) status=none ||
        fail "with $1 queues a read waits for the writes"
    measured "$1 queues: a read took $(($(now_ms) - begun)) ms beside $writes writes that wait"
    inflight || fail "the writes did not wait: $(cat status.json)"
    thaw_filesystem "$TEST_DIR/fs"
    for i in "${pids[@]}"; do
        wait "$i" || fail "a write failed"
    done
    timeout 60 dd if=mnt/disk of=all iflag=direct bs=1M status=none
    assert_same_bytes all expected
    dd if=expected of=first bs=4096 count=1 skip=$((writes * bytes / 4096)) status=none
    assert_same_bytes read first
    unmount_disk "$TEST_DIR/mnt"
}

for queues in 1 2 4 8; do
    write_and_read "$queues"
done
stop_target
unmount_filesystem "$TEST_DIR/fs"
detach_loop "$LOOP"
