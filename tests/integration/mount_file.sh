#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# mount_file -- an existing regular file becomes the disk, and is itself again afterwards.

. "$(dirname "$0")/lib.sh"

need_fuse

size=$((1048576 + 13))
make_disk disk "$size"
echo "I was here before" >plain
cp plain before
inode=$(stat -c %i plain)
start_target "disk=$TEST_DIR/disk"

mount_disk "$TARGET_URI/disk" "$TEST_DIR/plain"
assert_equal "$(stat -c %s plain)" "$size" "size of the file that is the disk"
assert_same_bytes plain disk
printf 'written' | dd of=plain bs=1 seek=$((size - 7)) conv=notrunc status=none
assert_equal "$(tail -c 7 disk)" written "the last bytes of the backing file"
expect_failure 'plain' rblk mount "$TARGET_URI/disk" "$TEST_DIR/plain"
unmount_disk "$TEST_DIR/plain"
assert_nothing_mounted "$TEST_DIR/plain"
assert_same_bytes plain before
assert_equal "$(stat -c %i plain)" "$inode" "inode of the file"

# Relative paths and symbolic links lead to the same place.
mkdir folder
ln -s folder link
mount_disk "$TARGET_URI/disk" "$TEST_DIR/link"
assert_same_bytes folder/disk disk
unmount_disk "$TEST_DIR/link"
mounts+=("$TEST_DIR/plain")
timeout 30 rblk mount "$TARGET_URI/disk" ./plain
assert_same_bytes plain disk
timeout 30 rblk unmount ./plain
assert_nothing_mounted "$TEST_DIR/plain" "$TEST_DIR/folder"
stop_target
