#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# not_rblk -- things that listen but are no rblk target: the mount fails soon, in one line, and leaves nothing.
# time-limit: 150

. "$(dirname "$0")/lib.sh"

mkdir mnt

# A listener that never answers costs the whole time-out: 2 seconds here.
EXPECT_WITHIN=$((SLOW ? 20 : 8))

# listener MODE: starts fake_target; sets PORT and BACKGROUND_PID.
listener()
{
    PORT=$(free_port)
    start_background fake_target "$1" "$TEST_ADDRESS" "$PORT" >"listener.$1" 2>&1
    wait_for "$PATIENCE" grep -q listening "listener.$1" || fail "$1: $(cat "listener.$1")"
}

# refused WHAT: neither mount nor list works with what listens on PORT.
refused()
{
    local begun=0 uri=rblk://$TEST_ADDRESS:$PORT
    begun=$(now_ms)
    if have_fuse; then
        expect_failure "$TEST_ADDRESS:$PORT" rblk mount --timeout 2 "$uri/disk" "$TEST_DIR/mnt"
        assert_nothing_mounted "$TEST_DIR/mnt"
    fi
    note "$1: $(($(now_ms) - begun)) ms"
    expect_failure "$TEST_ADDRESS:$PORT" rblk list --timeout 2 "$uri"
}

for mode in tcp-silent tcp-close tcp-garbage tcp-http tcp-half tcp-huge \
    accept-empty accept-garbage reject-empty reject-garbage silent; do
    listener "$mode"
    refused "$mode"
    end_process "$BACKGROUND_PID" "$PATIENCE" || fail "fake_target $mode did not end"
done

if have nbdkit && [ "$TEST_PROVIDER" = soft ]; then
    PORT=$(free_port)
    start_background nbdkit -f -i 127.0.0.1 -p "$PORT" memory 1M 2>nbdkit.log
    wait_for "$PATIENCE" port_listens "$PORT" || fail "nbdkit does not listen"
    refused nbdkit
    end_process "$BACKGROUND_PID" "$PATIENCE" || true
fi

if have rping && [ "$RBLK_VARIANT" != tsan ] && [ "$TEST_PROVIDER" = soft ]; then
    PORT=$(free_port)
    start_foreign rping -s -P -a 127.0.0.1 -p "$PORT" >rping.log 2>&1
    wait_for "$PATIENCE" port_listens "$PORT" || fail "rping does not listen: $(cat rping.log)"
    refused rping
    end_process "$BACKGROUND_PID" "$PATIENCE" || true
fi
