#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# model_librblk -- random I/O through librblk agrees with a model, for awkward sizes, also when attached again.
# time-limit: 240

. "$(dirname "$0")/lib.sh"

tib=$((1024 ** 4 + 1))

one_size()
{
    local size=$1
    if [ "$size" -eq "$tib" ]; then
        truncate -s "$size" disk || must "the file system takes no file of 1 TiB"
    else
        make_disk disk "$size"
    fi
    shift
    start_target "disk=$TEST_DIR/disk"
    # name:operations
    for run in "$@"; do
        timeout 200 model_librblk "$TARGET_URI/disk" "$size" "$TEST_SEED" "$(scaled "${run#*:}")" "${run%:*}"
    done
    if [ "$size" -lt 100000 ]; then
        timeout 30 rblk read "$TARGET_URI/disk" | cmp - disk || fail "rblk read and the backing file differ"
    fi
    stop_target
    rm disk
}

for size in 1 511 4095 4096 4097; do
    one_size "$size" sync:300 async:600
done
one_size $((64 * 1048576 + 1)) sync:500 async:1500 threads:1500
if registering_fills_holes; then
    note "without a disk of 1 TiB: registering would fill it"
else
    one_size "$tib" async:1500
fi
