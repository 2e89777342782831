#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# large_writes -- of several large writes that wait together, each is on its way before the next one is taken.

. "$(dirname "$0")/lib.sh"

[ "$TEST_PROVIDER" = soft ] || skip "only the software device sends by system calls"
need_fuse
need_command fio
need_command strace

truncate -s 64M disk
start_target "disk=$TEST_DIR/disk"
mount_disk "$TARGET_URI/disk" "$TEST_DIR/mnt"
trace_worker "$TEST_DIR/mnt" read,sendmsg,poll
timeout 60 fio --name=write --filename="$TEST_DIR/mnt/disk" --ioengine=libaio --direct=1 --rw=write --bs=128k \
    --size=64m --iodepth=4 --iodepth_batch=4 --iodepth_batch_complete_min=4 --output=fio.log || fail "$(cat fio.log)"
end_trace

# A request begins with its length, here 128 KiB and 80 bytes, and FUSE_WRITE, 16 (struct fuse_in_header).
read -r requests at_once < <(awk '
    asked { at_once += /^sendmsg/ }
    { asked = /^read\([0-9]+, "P\\0\\2\\0\\20\\0\\0\\0".* = 131152$/; requests += asked }
    END { print requests, at_once + 0 }' trace)
note "$requests requests, $at_once of them sent at once"
assert_equal "$requests" 512 "requests in the trace"
# When the connection has no room for more, a write waits.
[ "$at_once" -ge $((requests / 2)) ] || fail "only $at_once of $requests writes were sent before the next one was taken"

unmount_disk "$TEST_DIR/mnt"
stop_target
