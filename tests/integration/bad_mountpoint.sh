#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# bad_mountpoint -- places where nothing can be mounted: one line that says why, and nothing is left.

. "$(dirname "$0")/lib.sh"

need_fuse
make_disk disk 1048576
start_target "disk=$TEST_DIR/disk"
uri=$TARGET_URI/disk

# refused PATTERN PLACE
refused()
{
    expect_failure "$1" rblk mount "$uri" "$2"
    assert_equal "$(stat_of sessions)" 0 "sessions on the target after the refusal"
    [ -z "$(initiators)" ] || fail "a mount process is left"
}

mkfifo pipe
touch file
refused 'missing.*(does not exist|No such)' "$TEST_DIR/missing"
refused 'file/below.*(Not a directory|not a)' "$TEST_DIR/file/below"
refused 'pipe.*(neither|folder|regular file)' "$TEST_DIR/pipe"
refused '/dev/null' /dev/null
refused '' ''

# Busy: a disk is there already. It stays.
mkdir busy
mount_disk "$uri" "$TEST_DIR/busy"
make_disk second 4096
start_target -n second "second=$TEST_DIR/second"
expect_failure 'busy.*(already|unmount)' rblk mount "$TARGET_URI/second" "$TEST_DIR/busy"
assert_equal "$(stat_of sessions)" 0 "sessions on the second target"
assert_same_bytes busy/disk disk

# Attached read-write already: a second mount elsewhere is told so, a read-only one is welcome.
mkdir other
expect_failure 'disk.*(another|other|in use|busy)' rblk mount "$uri" "$TEST_DIR/other"
mount_disk "$uri" "$TEST_DIR/other" --ro
assert_same_bytes other/disk disk
! printf x 2>/dev/null >other/disk || fail "a read-only disk was written to"
unmount_disk "$TEST_DIR/other"
unmount_disk "$TEST_DIR/busy"

# A folder that is not empty: as with mount(8), its files come back when the disk goes.
mkdir full
echo kept >full/file
mount_disk "$uri" "$TEST_DIR/full"
{ [ -f full/disk ] && [ ! -e full/file ]; } || fail "the disk is not alone in its folder"
unmount_disk "$TEST_DIR/full"
assert_equal "$(cat full/file)" kept "what the folder had"

# Nothing to unmount.
expect_failure 'other' rblk unmount "$TEST_DIR/other"
expect_failure 'missing' rblk unmount "$TEST_DIR/missing"
expect_failure '/proc' rblk unmount /proc
mountpoint -q /proc || fail "/proc was unmounted"
assert_nothing_mounted "$TEST_DIR/other" "$TEST_DIR/busy" "$TEST_DIR/full"
stop_target second
stop_target
