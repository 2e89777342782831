#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# fio_verify -- fio's own verification of random writes, then of the same data after a re-mount.
# time-limit: 150

. "$(dirname "$0")/lib.sh"

need_fuse
need_command fio

size=$(scaled 64)m
jobs=4
truncate -s $((jobs * 64))M disk
start_target "disk=$TEST_DIR/disk"
mount_disk "$TARGET_URI/disk" "$TEST_DIR/mnt" --queues 2

# verified_job NAME ARGUMENTS...: four jobs side by side on the disk, each with a span of its own.
verified_job()
{
    local name=$1
    shift
    timeout 120 fio --name="$name" --filename="$TEST_DIR/mnt/disk" --ioengine=libaio --direct=1 \
        --iodepth=16 --numjobs=$jobs --size="$size" --offset_increment=64m --bs=4k \
        --verify=crc32c --verify_fatal=1 --randrepeat=1 --randseed="$TEST_SEED" --group_reporting \
        --output-format=json --output="$name.json" "$@" ||
        fail "fio: $name: $(grep -v '^ ' "$name.json" | head -n 20)"
    sed -i -n '/^{/,$p' "$name.json"
    assert_equal "$(json "$name.json" 'max(j["error"] for j in v["jobs"])')" 0 "errors of $name"
}

verified_job write --rw=randwrite --do_verify=1 --verify_state_save=0
measured "seed $TEST_SEED: $(json write.json 'sum(j["write"]["total_ios"] for j in v["jobs"])') writes" \
    "at $(json write.json 'round(sum(j["write"]["iops"] for j in v["jobs"]))') IOPS," \
    "$(json write.json 'sum(j["read"]["total_ios"] for j in v["jobs"])') verified reads at" \
    "$(json write.json 'round(sum(j["read"]["iops"] for j in v["jobs"]))') IOPS"

unmount_disk "$TEST_DIR/mnt"
mount_disk "$TARGET_URI/disk" "$TEST_DIR/mnt"
verified_job reread --rw=randwrite --verify_only=1
unmount_disk "$TEST_DIR/mnt"

# The verification can fail: one byte changed behind everybody's back is found.
printf '\377\0\377\0' | dd of=disk bs=1 seek=$((4096 * 7 + 1000)) conv=notrunc status=none
mount_disk "$TARGET_URI/disk" "$TEST_DIR/mnt"
! (verified_job broken --rw=randwrite --verify_only=1) >broken.out 2>&1 ||
    fail "fio did not notice a changed block"
unmount_disk "$TEST_DIR/mnt"
stop_target
