#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# bad_backing -- backing files that cannot be served: rblkd says why in one line and does not start.

. "$(dirname "$0")/lib.sh"

port=$(free_port)
pidfile=$TEST_DIR/refused.pid

# refused PATTERN ARGUMENTS...
refused()
{
    local pattern=$1
    shift
    expect_failure "$pattern" rblkd --listen "$TEST_ADDRESS:$port" --pidfile "$pidfile" "$@"
    [ ! -e "$pidfile" ] || fail "a pidfile was left"
    ! port_listens "$port" || fail "it still listens"
}

make_disk disk 4096
: >empty
mkdir folder
mkfifo pipe
refused 'missing.*(No such file|does not exist)' "disk=$TEST_DIR/missing"
refused 'empty.*(empty|0 bytes|no bytes)' "disk=$TEST_DIR/empty"
refused 'folder.*(directory|folder)' "disk=$TEST_DIR/folder"
refused 'pipe.*(regular file|block device)' "disk=$TEST_DIR/pipe"
refused '/dev/null.*(regular file|block device)' "disk=/dev/null"
refused 'missing' "good=$TEST_DIR/disk" "bad=$TEST_DIR/missing"

# Unwritable: root may write to anything but an immutable file and a read-only file system.
if is_root; then
    mkdir fs
    mount -t tmpfs -o size=1m rblk-test fs
    filesystems+=("$TEST_DIR/fs")
    cp disk fs/disk
    mount -o remount,ro fs
    refused 'fs/disk.*(Read-only|read-only)' "disk=$TEST_DIR/fs/disk"
    start_target -n reader "disk=$TEST_DIR/fs/disk,ro"
    stop_target reader
    unmount_filesystem "$TEST_DIR/fs"
else
    chmod 444 disk
    refused 'disk.*(Permission denied|denied)' "disk=$TEST_DIR/disk"
    chmod 644 disk
fi

# Already served, by this target under another name, by another one, or under another link.
refused 'disk' "one=$TEST_DIR/disk" "two=$TEST_DIR/disk"
refused 'one' "one=$TEST_DIR/disk" "one=$TEST_DIR/disk"
start_target "disk=$TEST_DIR/disk"
ln disk other-name
refused 'disk.*(served|locked|use)' "disk=$TEST_DIR/disk"
refused 'other-name.*(served|locked|use)' "disk=$TEST_DIR/other-name"
make_disk second 4096
expect_failure "$TEST_ADDRESS:$TARGET_PORT.*in use" \
    rblkd --listen "$TEST_ADDRESS:$TARGET_PORT" "second=$TEST_DIR/second"
timeout 30 rblk info "$TARGET_URI/disk" >/dev/null || fail "the first target was disturbed"
kill_target
start_target "disk=$TEST_DIR/disk" # the lock died with its holder
stop_target
