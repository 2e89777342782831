#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# ext4_loop -- an ext4 on a loop device on the disk: a tree copied in survives unmount, e2fsck, re-mount.
# time-limit: 150

. "$(dirname "$0")/lib.sh"

need_fuse
need_loop
need_command mkfs.ext4 e2fsck

tree=
for folder in /usr/share/perl /usr/share/doc /usr/include /usr/lib/modules /etc; do
    megabytes=$(du -sxm "$folder" 2>/dev/null | cut -f1) || true
    if [ "${megabytes:-0}" -ge 1 ] && [ "$megabytes" -le 200 ]; then
        tree=$folder
        break
    fi
done
[ -n "$tree" ] || fail "no folder to copy"

# checksums FOLDER: of every regular file below it.
checksums()
{
    (cd "$1" && find . -xdev -type f -print0 | LC_ALL=C sort -z | xargs -0 -r sha256sum)
}

truncate -s 512M disk
start_target "disk=$TEST_DIR/disk"
mount_disk "$TARGET_URI/disk" "$TEST_DIR/mnt"
attach_loop "$TEST_DIR/mnt/disk"
assert_equal "$(losetup -n -O DIO "$LOOP" | tr -d ' ')" 1 "direct I/O of the loop device"
timeout 60 mkfs.ext4 -q -F "$LOOP"
mount_filesystem "$LOOP" "$TEST_DIR/fs"
timeout 100 cp -a --one-file-system "$tree" "$TEST_DIR/fs/tree"
checksums "$TEST_DIR/fs/tree" >before
[ -s before ] || fail "nothing was copied from $tree"
unmount_filesystem "$TEST_DIR/fs"
detach_loop "$LOOP"
unmount_disk "$TEST_DIR/mnt"

timeout 60 e2fsck -fn disk >e2fsck.out 2>&1 || fail "the backing file: $(cat e2fsck.out)"

mount_disk "$TARGET_URI/disk" "$TEST_DIR/mnt"
attach_loop "$TEST_DIR/mnt/disk"
timeout 60 e2fsck -fn "$LOOP" >e2fsck.out 2>&1 || fail "the disk: $(cat e2fsck.out)"
mount_filesystem "$LOOP" "$TEST_DIR/fs"
checksums "$TEST_DIR/fs/tree" >after
cmp before after || fail "files differ: $(diff before after | head -n 5)"
checksums "$tree" | cmp - after || fail "files differ from their originals"
unmount_filesystem "$TEST_DIR/fs"
detach_loop "$LOOP"
unmount_disk "$TEST_DIR/mnt"
stop_target
measured "$(wc -l <after) files of $tree ($megabytes MB) equal, e2fsck clean"
