#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# one_by_one -- requests that come one at a time go out before the kernel is asked for another one, and it
# is not asked for the next one before whoever got the answer could run.

. "$(dirname "$0")/lib.sh"

[ "$TEST_PROVIDER" = soft ] || skip "only the software device sends by system calls"
need_fuse
need_command strace

count=50
make_disk disk $((4096 * count))
start_target "disk=$TEST_DIR/disk"
mount_disk "$TARGET_URI/disk" "$TEST_DIR/mnt"
trace_worker "$TEST_DIR/mnt" read,sendmsg,writev,poll,sched_yield
timeout 60 dd if=mnt/disk of=read iflag=direct bs=4096 count=$count status=none
assert_same_bytes read disk
end_trace

# A request begins with its length, 80 bytes, and FUSE_READ, 15 (struct fuse_in_header); its answer is a header
# of 16 bytes and the data.
read -r requests at_once answers in_turn < <(awk '
    asked { at_once += /^sendmsg/ }
    { asked = /^read\([0-9]+, "P\\0\\0\\0\\17\\0\\0\\0".* = 80$/; requests += asked }
    answered { in_turn += !/^read/ }
    { answered = /^writev\(.* = 4112$/; answers += answered }
    END { print requests, at_once + 0, answers, in_turn + 0 }' trace)
note "$requests requests, $at_once of them sent at once; $answers answers, $in_turn of them before anything else is asked for"
assert_equal "$requests" "$count" "requests in the trace"
assert_equal "$answers" "$count" "answers in the trace"
# The first ones show that they come one by one. Now and then something else is asked for in between.
[ "$at_once" -ge $((count * 9 / 10)) ] || fail "only $at_once of $count requests were sent at once"
[ "$in_turn" -ge $((count * 9 / 10)) ] || fail "only after $in_turn of $count answers the others had their turn"

unmount_disk "$TEST_DIR/mnt"
stop_target
