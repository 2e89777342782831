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

read_first_page()
{
    rblk read --length 4096 "$TARGET_URI/disk" >page
    cmp -n 4096 page disk || fail "wrong bytes"
}

start_target "disk=$TEST_DIR/disk"
assert_equal "$(mapped)" 0 "mapped before the first read"
read_first_page
# A target that loses its CPU for long stops mapping: it must not keep others waiting.
[ "$(mapped)" -ge $((SIZE / 4)) ] || fail "$(mapped) bytes are mapped of a file that is cached"
stop_target

# A part of it, not at the start.
sync disk
dd if=disk iflag=nocache count=0 status=none
[ "$(cached)" = 0 ] || must "the page cache does not let go of $(cached) bytes of $TEST_DIR/disk"
dd if=disk of=/dev/null bs=4096 skip=$((24 << 8)) count=$((CACHED >> 12)) status=none
# What is read ahead may still be on its way.
before=0
until [ "$(cached)" = "$before" ]; do
    before=$(cached)
    sleep 0.3
done
{ [ "$before" -ge $CACHED ] && [ "$before" -lt $((SIZE / 2)) ]; } ||
    fail "$before bytes are cached, not $CACHED and some more that were read ahead"
start_target "disk=$TEST_DIR/disk"
read_first_page
after=$(cached)
# The kernel reads around a page fault, 8 MiB on some machines, but nobody reads all of the extent.
[ "$after" -lt $SIZE ] || fail "a read of 4 KiB brought the whole extent into memory"
{ [ "$(mapped)" -ge $((before / 4)) ] && [ "$(mapped)" -lt $((before + (1 << 20))) ]; } ||
    fail "$(mapped) bytes are mapped of $before that were cached"
measured "cached $before bytes, after a read of 4 KiB $after, of which $(mapped) are mapped"
