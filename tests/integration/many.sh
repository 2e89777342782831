#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# many -- several volumes and several clients at once do not see each other.
# time-limit: 150

. "$(dirname "$0")/lib.sh"

need_fuse

volumes=(alpha beta gamma)
for volume in "${volumes[@]}"; do
    make_disk "$volume" $((16 * 1048576 + 77))
    cp "$volume" "$volume.model"
done
make_disk common $((4 * 1048576 + 1))
start_target "alpha=$TEST_DIR/alpha" "beta=$TEST_DIR/beta" "gamma=$TEST_DIR/gamma" \
    "common=$TEST_DIR/common,ro"

for volume in "${volumes[@]}"; do
    mount_disk "$TARGET_URI/$volume" "$TEST_DIR/mnt.$volume"
done
for number in 1 2 3; do
    mount_disk "$TARGET_URI/common" "$TEST_DIR/common.$number" --ro
done
assert_equal "$(stat_of sessions)" 6 "sessions"

clients=()
begun=$(now_ms)
for volume in "${volumes[@]}"; do
    timeout 100 model_mount run -s "$TEST_SEED" -n "$(scaled 1500)" -t 2 \
        "$TEST_DIR/mnt.$volume/$volume" "$volume.model" &
    clients+=($!)
done
for number in 1 2 3; do
    timeout 100 cmp "$TEST_DIR/common.$number/common" common &
    clients+=($!)
done
for client in "${clients[@]}"; do
    wait "$client" || fail "a client failed"
done
measured "3 writers and 3 readers at once in $(($(now_ms) - begun)) ms"

for number in 1 2 3; do
    unmount_disk "$TEST_DIR/common.$number"
done
for volume in "${volumes[@]}"; do
    unmount_disk "$TEST_DIR/mnt.$volume"
    timeout 30 model_mount compare "$volume" "$volume.model"
done
wait_for "$PATIENCE" stat_is sessions 0 || fail "sessions are left on the target"
assert_equal "$(stat_of queues)" 0 "queues left"
assert_equal "$(stat_of extent_bytes)" 0 "registered bytes left"
stop_target
