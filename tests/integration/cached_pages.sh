#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# cached_pages -- a first read maps what is cached of its extent, and leaves the rest on disk.

. "$(dirname "$0")/lib.sh"

[ "$TEST_PROVIDER" = soft ] || skip "a device pins whole extents"

readonly SIZE=$((64 << 20)) CACHED=$((12 << 20))
make_disk disk $SIZE

# mapped: bytes of the backing file in the target's page table
mapped()
{
    awk -v file="$TEST_DIR/disk" '
        /^[0-9a-f]+-/ { ours = $6 == file }
        ours && $1 == "Rss:" { kib += $2 }
        END { print kib * 1024 }' "/proc/$TARGET_PID/smaps"
}

# cached: bytes of the backing file in the page cache
cached()
{
    fincore --bytes --noheadings --output RES disk | tr -d ' '
}

# start_and_read: what was cached before a target's first read is mapped after it, and no more than the
# kernel maps around that page. Sets before, what was cached. A target that loses its CPU meanwhile stops
# mapping, so as not to keep others waiting: then there is another try.
start_and_read()
{
    local try
    for try in 1 2 3; do
        [ "$try" = 1 ] || stop_target
        # What is read ahead may still be on its way.
        before=0
        until [ "$(cached)" = "$before" ]; do
            before=$(cached)
            sleep 0.3
        done
        start_target "disk=$TEST_DIR/disk"
        assert_equal "$(mapped)" 0 "mapped before the first read"
        rblk read --length 4096 "$TARGET_URI/disk" >page
        cmp -n 4096 page disk || fail "wrong bytes"
        [ "$(mapped)" -lt $((before + (1 << 20))) ] ||
            fail "$(mapped) bytes are mapped, and $before were cached"
        [ "$(mapped)" -lt "$before" ] || return 0
    done
    fail "$(mapped) bytes are mapped, not the $before that were cached"
}

start_and_read
assert_equal "$before" $SIZE "cached of a file just written"
stop_target

# A part of it, not at the start.
sync disk
dd if=disk iflag=nocache count=0 status=none
[ "$(cached)" = 0 ] || must "the page cache does not let go of $(cached) bytes of $TEST_DIR/disk"
dd if=disk of=/dev/null bs=4096 skip=$((24 << 8)) count=$((CACHED >> 12)) status=none
start_and_read
{ [ "$before" -ge $CACHED ] && [ "$before" -lt $SIZE ]; } ||
    fail "$before bytes were cached, not $CACHED and some more that were read ahead"
after=$(cached)
# The kernel reads around a page fault, 8 MiB on some machines, but nobody reads all of the extent.
[ "$after" -lt $SIZE ] || fail "a read of 4 KiB brought the whole extent into memory"
measured "cached $before bytes, after a read of 4 KiB $after, of which $(mapped) are mapped"
