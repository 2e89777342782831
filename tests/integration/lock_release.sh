#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# lock_release -- the lock of a client that was killed, or that froze, is freed in time.
# time-limit: 90

. "$(dirname "$0")/lib.sh"

make_disk disk 1048576
start_target "disk=$TEST_DIR/disk"
keepalive=$((SLOW ? 1000 : 500))

# hold_attached NAME OPTIONS...: starts a client and waits until it is attached. Sets BACKGROUND_PID.
hold_attached()
{
    local name=$1
    shift
    start_background hold "$@" >"$name.out" 2>"$name.err"
    wait_for 30 test -s "$name.out" || fail "$name was not attached: $(cat "$name.err")"
}

# milliseconds FILE: what hold says of how long attaching took.
milliseconds()
{
    sed -n 's/^attached after \([0-9]*\) ms$/\1/p' "$1"
}

# Killed: its kernel closes the connection, so nobody need wait for heartbeats.
hold_attached killed -k 60000 "$TARGET_URI/disk"
expect_failure 'disk' hold "$TARGET_URI/disk"
kill -KILL "$BACKGROUND_PID"
hold_attached heir -k 60000 -w 20000 "$TARGET_URI/disk"
[ "$(milliseconds heir.out)" -lt 5000 ] || fail "the lock of a killed client took $(cat heir.out)"
measured "lock after kill -9: $(milliseconds heir.out) ms"
end_process "$BACKGROUND_PID" "$PATIENCE"

# Frozen: its connection stays, and only missing heartbeats tell. Three of them.
hold_attached frozen -k "$keepalive" -w 5000 "$TARGET_URI/disk"
frozen=$BACKGROUND_PID
sleep $((2 * keepalive / 1000 + 1)) # alive and sending heartbeats: keeps its lock
expect_failure 'disk' hold "$TARGET_URI/disk"
kill -STOP "$frozen"
hold_attached heir2 -w 30000 "$TARGET_URI/disk"
waited=$(milliseconds heir2.out)
measured "lock after a freeze, heartbeats every $keepalive ms: $waited ms"
[ "$waited" -ge $((keepalive)) ] || fail "a frozen client lost its lock after $waited ms, before heartbeats were missed"
[ "$waited" -lt $((keepalive * 3 + 4000)) ] || fail "a frozen client kept its lock for $waited ms"

# When it thaws, it must find that it is out, and end; the heir notices nothing.
kill -CONT "$frozen"
wait_for "$PATIENCE" not is_running "$frozen" || fail "the thawed client still works"
status=0
wait "$frozen" || status=$?
assert_equal "$status" 3 "end of the thawed client"
is_running "$BACKGROUND_PID" || fail "the heir failed: $(cat heir2.err)"
