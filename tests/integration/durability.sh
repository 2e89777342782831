#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# durability -- each fsync is one fdatasync on the target, and reaches its device; FUA writes need none.
# time-limit: 90

. "$(dirname "$0")/lib.sh"

need_fuse

count=$(scaled 50)
make_disk disk $((8 * 1048576))
start_target "disk=$TEST_DIR/disk"
timeout 60 durability library "$count" "$TARGET_URI/disk"

# through_mount HOW EXPECTED: COUNT writes through the mount need EXPECTED fdatasyncs.
through_mount()
{
    local before after
    before=$(stat_of fdatasyncs)
    timeout 60 durability "$1" "$count" "$TEST_DIR/mnt/disk"
    after=$(stat_of fdatasyncs)
    assert_equal $((after - before)) "$2" "fdatasyncs of $count times $1"
    measured "mount: $count times $1: $((after - before)) fdatasyncs"
}

mount_disk "$TARGET_URI/disk" "$TEST_DIR/mnt"
through_mount plain 0
through_mount fsync "$count"
through_mount fdatasync "$count"

# O_DSYNC writes may be durable by FUA or by a flush each.
before=$(($(stat_of fdatasyncs) + $(stat_of fua_writes)))
timeout 60 durability dsync "$count" "$TEST_DIR/mnt/disk"
after=$(($(stat_of fdatasyncs) + $(stat_of fua_writes)))
assert_equal $((after - before)) "$count" "fdatasyncs and FUA writes of $count O_DSYNC writes"
unmount_disk "$TEST_DIR/mnt"
stop_target

# An outside witness: the device under the backing file sees flushes when the disk is synced.
is_root && have_loop || exit 0
truncate -s 64M device
attach_loop "$TEST_DIR/device"
timeout 60 mkfs.ext4 -q -F "$LOOP"
mount_filesystem "$LOOP" "$TEST_DIR/fs"
make_disk fs/disk $((8 * 1048576))
sync -f fs/disk
start_target -n witness "disk=$TEST_DIR/fs/disk"
mount_disk "$TARGET_URI/disk" "$TEST_DIR/mnt"
# Field 16 of the statistics: flush requests completed.
flushes()
{
    awk '{ print $16 }' "/sys/block/${LOOP#/dev/}/stat"
}
before=$(flushes)
timeout 60 durability fsync "$count" "$TEST_DIR/mnt/disk"
after=$(flushes)
measured "the device under the backing file: $((after - before)) flushes for $count fsyncs"
[ $((after - before)) -ge "$count" ] || fail "the device saw $((after - before)) flushes for $count fsyncs"
unmount_disk "$TEST_DIR/mnt"
stop_target witness
