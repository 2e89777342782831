#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# bad_address -- targets that cannot be reached and volumes that do not exist: one line, soon, nothing left.

. "$(dirname "$0")/lib.sh"

make_disk disk 1048576
start_target "disk=$TEST_DIR/disk"
mkdir mnt
closed=$(free_port)

# refused PATTERN URI: mount, list, info and ping alike. Mount only when a volume is in question.
refused()
{
    local begun
    begun=$(now_ms)
    if have_fuse; then
        expect_failure "$1" rblk mount "$2" "$TEST_DIR/mnt"
    fi
    expect_failure "$1" rblk info "$2"
    note "$2: $(($(now_ms) - begun)) ms"
    assert_nothing_mounted "$TEST_DIR/mnt"
}

EXPECT_WITHIN=$((SLOW ? 25 : 12))
refused 'no volume named no-such.*rblk list' "$TARGET_URI/no-such"
refused "$TEST_ADDRESS:$closed.*refused" "rblk://$TEST_ADDRESS:$closed/disk"
# No device may lead there.
refused "\[::1\]:$closed.*(refused|No such device)" "rblk://[::1]:$closed/disk"
refused 'does-not-exist\.invalid' "rblk://does-not-exist.invalid/disk"
refused '240\.0\.0\.1' "rblk://240.0.0.1:$closed/disk" # reserved: no route, or no answer
for command in list ping; do
    expect_failure "$TEST_ADDRESS:$closed.*refused" rblk "$command" "rblk://$TEST_ADDRESS:$closed"
    expect_failure 'does-not-exist\.invalid' rblk "$command" rblk://does-not-exist.invalid
done
expect_failure 'volume' rblk info "$TARGET_URI"

# A target that went away a moment ago.
stop_target
refused "$TEST_ADDRESS:$TARGET_PORT.*refused" "$TARGET_URI/disk"
