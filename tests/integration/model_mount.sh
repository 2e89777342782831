#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# model_mount -- random I/O through the mount agrees with a model, for awkward sizes, also after re-mounts.
# time-limit: 240

. "$(dirname "$0")/lib.sh"

need_fuse

mib64=$((64 * 1048576 + 1))
tib=$((1024 ** 4 + 1))

# one_size BYTES OPERATIONS: two rounds with a re-mount between them; then the disk, read in full, and
# the backing file must both be what the model says.
one_size()
{
    local size=$1 operations round place=$TEST_DIR/mnt.$1
    operations=$(scaled "$2")
    if [ "$size" -eq "$tib" ]; then
        truncate -s "$size" "disk.$size" || must "the file system takes no file of 1 TiB"
    else
        make_disk "disk.$size" "$size"
    fi
    cp --sparse=auto "disk.$size" "model.$size"
    start_target -n "size.$size" "disk=$TEST_DIR/disk.$size"
    for round in 1 2; do
        mount_disk "$TARGET_URI/disk" "$place" --queues $round # one worker, then two
        assert_equal "$(stat -c %s "$place/disk")" "$size" "size of the disk"
        timeout 100 model_mount run -s $((TEST_SEED + round)) -n "$operations" -t "$3" \
            "$place/disk" "model.$size"
        unmount_disk "$place"
    done
    mount_disk "$TARGET_URI/disk" "$place"
    timeout 100 model_mount verify "$place/disk" "model.$size"
    unmount_disk "$place"
    stop_target "size.$size"
    timeout 100 model_mount compare "disk.$size" "model.$size"
    rm "disk.$size" "model.$size"
}

for size in 1 511 4095 4096 4097; do
    one_size "$size" 400 3
done
one_size "$mib64" 1500 4
if registering_fills_holes; then
    note "without a disk of 1 TiB: registering would fill it"
else
    one_size "$tib" 500 3
fi
