#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# bad_target -- a target that speaks another version or breaks the protocol: an error in one line, no harm.
# time-limit: 150

. "$(dirname "$0")/lib.sh"

need_fuse
mkdir mnt
EXPECT_WITHIN=$((SLOW ? 40 : 15))

# listener MODE: starts fake_target; sets URI and BACKGROUND_PID.
listener()
{
    PORT=$(free_port)
    URI=rblk://$TEST_ADDRESS:$PORT
    start_background fake_target "$1" "$TEST_ADDRESS" "$PORT" >"listener.$1" 2>&1
    wait_for "$PATIENCE" grep -q listening "listener.$1" || fail "$1: $(cat "listener.$1")"
}

unlisten()
{
    end_process "$BACKGROUND_PID" "$PATIENCE" || fail "fake_target did not end"
}

# mount_refused MODE PATTERN
mount_refused()
{
    local begun
    listener "$1"
    begun=$(now_ms)
    expect_failure "$2" rblk mount --timeout 2 "$URI/disk" "$TEST_DIR/mnt"
    note "$1: $(($(now_ms) - begun)) ms"
    assert_nothing_mounted "$TEST_DIR/mnt"
    grep -q '[[:cntrl:]]' expect_failure.err && fail "$1: control characters of the target are shown"
    unlisten
}

# The fake works: what fails below fails because of the fault.
listener good
timeout 30 rblk info "$URI/disk" >out 2>&1 || fail "the fake target without a fault: $(cat out)"
unlisten

for mode in reject-version accept-version hello-version hello-99; do
    mount_refused "$mode" 'version'
done
for mode in hello-garbage hello-short hello-empty hello-tag hello-terminal hello-flood \
    close-at-hello close-at-attach silent-at-attach attach-size-zero attach-size-huge \
    attach-extent-size attach-queues attach-short queue-reject queue-garbage queue-depth; do
    mount_refused "$mode" "$TEST_ADDRESS:[0-9]+|disk"
done
mount_refused error-terminal 'rm -rf'

for mode in list-count list-name; do
    listener "$mode"
    expect_failure "$TEST_ADDRESS:$PORT" rblk list "$URI"
    unlisten
done

# io_fails MODE COMMAND...: the mount works, the I/O ends with an error in time, the mount can go.
io_fails()
{
    local mode=$1 status=0 process
    shift
    listener "$mode"
    mount_disk "$URI/disk" "$TEST_DIR/mnt" --timeout 2
    process=$(mount_process "$TEST_DIR/mnt")
    # At once: a queue on which nothing moves is given up after 12 seconds anyway (6 time-outs).
    timeout -k 5 9 "$@" >io.out 2>&1 || status=$?
    [ "$status" -ne 0 ] || fail "$mode: \"$*\" succeeded"
    [ "$status" -ne 124 ] || fail "$mode: \"$*\" hung"
    grep -q 'Input/output error' io.out || fail "$mode: $(cat io.out)"
    is_running "$process" || fail "$mode: the mount process died of it"
    # After a write that failed there is something to flush, which fails, too: then it says so.
    timeout -k 5 30 rblk unmount "$TEST_DIR/mnt" >>io.out 2>&1 || grep -q 'mnt: the flush' io.out ||
        fail "$mode: unmount: $(cat io.out)"
    remove_from mounts "$TEST_DIR/mnt"
    assert_nothing_mounted "$TEST_DIR/mnt"
    unlisten
}

# Without a fault reads and writes work, so what fails below fails because of the fault.
read_block=(dd "if=$TEST_DIR/mnt/disk" of=/dev/null bs=4096 count=1 iflag=direct status=none)
write_block=(dd if=/dev/zero "of=$TEST_DIR/mnt/disk" bs=512 count=16 oflag=direct conv=notrunc status=none)
listener good
mount_disk "$URI/disk" "$TEST_DIR/mnt"
timeout 20 "${read_block[@]}" || fail "reading from the fake target without a fault fails"
timeout 20 "${write_block[@]}" || fail "writing to the fake target without a fault fails"
unmount_disk "$TEST_DIR/mnt"
unlisten

for mode in extent-short extent-wrong extent-other; do
    io_fails "$mode" "${read_block[@]}"
done
for mode in completion-slot completion-short completion-status completion-twice; do
    io_fails "$mode" "${write_block[@]}"
done
