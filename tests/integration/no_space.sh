#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# no_space -- a full file system under the backing file is ENOSPC for the application, and heals.

. "$(dirname "$0")/lib.sh"

need_fuse
need_loop

# A disk of 64 MiB on a file system of 24 MiB.
truncate -s 24M device
attach_loop "$TEST_DIR/device"
timeout 60 mkfs.ext4 -q -F -m 0 "$LOOP"
mount_filesystem "$LOOP" "$TEST_DIR/fs"
truncate -s 64M fs/disk
head -c 2M /dev/urandom >fs/ballast
start_target "disk=$TEST_DIR/fs/disk"
mount_disk "$TARGET_URI/disk" "$TEST_DIR/mnt"

# fill BLOCK OPTIONS...: writes until it is told that there is no space; sets WRITTEN (bytes).
fill()
{
    local block=$1 status=0
    shift
    timeout 60 dd if=source of="$TEST_DIR/mnt/disk" bs="$block" conv=notrunc "$@" 2>fill.err || status=$?
    [ "$status" -ne 0 ] || fail "64 MiB fit on a file system of 24 MiB"
    grep -q 'No space left on device' fill.err || fail "not ENOSPC but: $(cat fill.err)"
    WRITTEN=$(sed -n 's/^\([0-9]*\) bytes.*/\1/p' fill.err)
}

head -c 64M /dev/urandom >source
fill 256K oflag=direct
[ "$WRITTEN" -gt $((8 * 1048576)) ] || fail "only $WRITTEN bytes fitted"
measured "ENOSPC after $WRITTEN bytes through staging memory"
cmp -n "$WRITTEN" "$TEST_DIR/mnt/disk" source || fail "data written before ENOSPC differ"

# In-message writes get the same answer; reads and fsyncs go on; the volume has not failed.
status=0
timeout 30 dd if=source of="$TEST_DIR/mnt/disk" bs=4K seek=$((60 * 256)) count=256 conv=notrunc \
    oflag=direct 2>small.err || status=$?
{ [ "$status" -ne 0 ] && grep -q 'No space left on device' small.err; } ||
    fail "small writes: status $status, $(cat small.err)"
printf 'x' | timeout 30 dd of="$TEST_DIR/mnt/disk" bs=1 conv=notrunc,fsync status=none ||
    fail "overwriting and fsync do not work after ENOSPC"
dd if=source of="$TEST_DIR/mnt/disk" bs=1 count=1 conv=notrunc status=none

# Space comes back: so do writes.
rm fs/ballast
sync -f fs
timeout 30 dd if=source of="$TEST_DIR/mnt/disk" bs=64K seek=640 count=16 conv=notrunc,fsync \
    oflag=direct status=none || fail "writes do not work although there is space again"
unmount_disk "$TEST_DIR/mnt"
stop_target
cmp -n 1048576 -i $((640 * 65536)):0 fs/disk source
