#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# unmount_force -- rblk unmount --force always works: busy, target frozen, target gone, process frozen.
# time-limit: 120

. "$(dirname "$0")/lib.sh"

need_fuse
make_disk disk $((8 * 1048576))
cp disk model
start_target "disk=$TEST_DIR/disk"

# forced WHAT: --force ends in time, nothing is left, and I/O that was under way has ended.
forced()
{
    local begun
    begun=$(now_ms)
    timeout 40 rblk unmount --force "$TEST_DIR/mnt" </dev/null || fail "$1: --force failed"
    remove_from mounts "$TEST_DIR/mnt"
    measured "$1: $(($(now_ms) - begun)) ms"
    assert_nothing_mounted "$TEST_DIR/mnt"
    wait_for 20 not is_running "$io" || fail "$1: I/O hangs after a forced unmount"
    wait "$io" 2>/dev/null || true
    ls "$TEST_DIR/mnt" >/dev/null
}

mount_under_load()
{
    mount_disk "$TARGET_URI/disk" "$TEST_DIR/mnt"
    start_background model_mount run -s "$TEST_SEED" -t 2 -T 100 -u uncertain mnt/disk model >io.out 2>&1
    io=$BACKGROUND_PID
    sleep 0.7
    is_running "$io" || fail "the load ended too early: $(cat io.out)"
    : >uncertain
}

adopt()
{
    wait_for "$PATIENCE" stat_is sessions 0 || fail "the session is left"
    cat io.out
    timeout 30 model_mount adopt disk model uncertain
    timeout 30 model_mount compare disk model
}

mount_under_load
forced busy
adopt

mount_under_load
kill -STOP "$(mount_process "$TEST_DIR/mnt")"
forced 'mount process frozen'
adopt

mount_under_load
kill -STOP "$TARGET_PID"
forced 'target frozen'
kill -CONT "$TARGET_PID"
adopt

mount_under_load
kill_target
forced 'target killed'
