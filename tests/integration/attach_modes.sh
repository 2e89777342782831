#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# attach_modes -- one writer, any number of readers; the writer's place is free as soon as it has gone.

. "$(dirname "$0")/lib.sh"

make_disk disk 1048576
make_disk fixed 4096
start_target "disk=$TEST_DIR/disk" "fixed=$TEST_DIR/fixed,ro"

# hold_attached NAME OPTIONS...: starts a client and waits until it is attached. Sets BACKGROUND_PID.
hold_attached()
{
    local name=$1
    shift
    start_background hold "$@" >"$name.out" 2>"$name.err"
    wait_for "$PATIENCE" test -s "$name.out" || fail "$name was not attached: $(cat "$name.err")"
}

hold_attached writer "$TARGET_URI/disk"
writer=$BACKGROUND_PID
for number in 1 2 3 4 5 6; do
    hold_attached "reader.$number" -m ro "$TARGET_URI/disk"
done
assert_equal "$(stat_of sessions)" 7 "sessions"

expect_failure 'disk.*(another|other|in use|busy)' hold "$TARGET_URI/disk"
expect_failure 'disk.*(another|other|in use|busy)' hold -m shared "$TARGET_URI/disk"
[ "$(cat writer.err reader.*.err)" = '' ] || fail "a client was disturbed: $(cat writer.err reader.*.err)"

# A clean end frees the place at once.
end_process "$writer" "$PATIENCE" || fail "the writer did not end"
wait "$writer" || fail "the writer failed: $(cat writer.err)"
hold_attached next -w 2000 "$TARGET_URI/disk"
measured "next writer $(cat next.out) (clean end of the last one)"
end_process "$BACKGROUND_PID" "$PATIENCE"

# Many writers that have agreed to share; then none of them alone.
hold_attached shared.1 -m shared -w 2000 "$TARGET_URI/disk"
hold_attached shared.2 -m shared "$TARGET_URI/disk"
expect_failure 'disk' hold "$TARGET_URI/disk"

# A volume that is exported read-only has readers only.
expect_failure 'fixed.*read-only' hold "$TARGET_URI/fixed"
hold_attached fixed.reader -m ro "$TARGET_URI/fixed"
