#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# cli -- list, info, ping, status and doctor: what they print, valid JSON, exit statuses.

. "$(dirname "$0")/lib.sh"

make_disk disk 4097
make_disk fixed 1048576
start_target "disk=$TEST_DIR/disk" "fixed=$TEST_DIR/fixed,ro"

# run COMMAND...: must succeed in time, with nothing on standard error; output in the file "out".
run()
{
    timeout 30 "$@" </dev/null >out 2>err || fail "\"$*\" ended with status $?: $(cat err)"
    [ ! -s err ] || fail "\"$*\" printed on standard error: $(cat err)"
}

# prints PATTERN...: each extended pattern matches the output of the last run.
prints()
{
    local pattern
    for pattern in "$@"; do
        grep -qE -- "$pattern" out || fail "no \"$pattern\" in: $(cat out)"
    done
}

for program in rblk rblkd rblk-fuse; do
    run "$program" --version
    prints "^$program [0-9]+\.[0-9]+\.[0-9]+"
    run "$program" --help
    prints '^[Uu]sage: ' -- '--version'
done
for command in mount unmount list info status ping doctor; do
    run rblk "$command" --help
    prints '^[Uu]sage: '
done

run rblk list "$TARGET_URI"
prints 'disk' 'fixed' '4097|4\.0'
run rblk list --json "$TARGET_URI"
assert_json out
assert_equal "$(json out 'sorted((x["name"], x["size"], x["read_only"]) for x in v)')" \
    "[('disk', 4097, False), ('fixed', 1048576, True)]" "volumes"

run rblk info "$TARGET_URI/disk"
prints 'disk' '4097'
run rblk info --json "$TARGET_URI/disk"
assert_json out
assert_equal "$(json out 'v["size"]')" 4097 "size"
run rblk info --size "$TARGET_URI/disk"
assert_equal "$(cat out)" 4097 "info --size"
run rblk info --can flush "$TARGET_URI/disk"
status=0
timeout 30 rblk info --can trim "$TARGET_URI/disk" >out 2>&1 || status=$?
json_trim=$(rblk info --json "$TARGET_URI/disk" >info.json && json info.json 'v["can"]["trim"]')
assert_equal "$status" "$([ "$json_trim" = True ] && echo 0 || echo 2)" "info --can trim"
# Looking at a volume does not take it away from anybody.
assert_equal "$(stat_of sessions)" 0 "sessions after info"

run rblk ping --interval 0 "$TARGET_URI"
prints 'us$' '4 of 4 answered'
run rblk ping --json --count 2 --interval 0 "$TARGET_URI"
assert_json out

run rblk status
run rblk status --json
assert_json out
# Others may have mounts on this machine.
ours="[m for m in v if m['mountpoint'].startswith('$TEST_DIR/')]"
assert_equal "$(json out "len($ours)")" 0 "mounts"
if have_fuse; then
    mount_disk "$TARGET_URI/disk" "$TEST_DIR/mnt"
    cat mnt/disk >/dev/null
    run rblk status
    prints 'mnt' 'disk'
    run rblk status --json
    assert_json out
    assert_equal "$(json out "[m['size'] for m in $ours]")" "[4097]" "sizes of mounts"
    run rblk info --json "$TARGET_URI/disk"
    unmount_disk "$TEST_DIR/mnt"
fi

status=0
timeout 30 rblk doctor >out 2>err || status=$?
[ "$status" -le 1 ] || fail "doctor ended with status $status: $(cat err)"
prints '/dev/fuse' 'memlock' 'io_uring' 'RDMA|rdma' 'kernel'
timeout 30 rblk doctor --json >out 2>err || [ $? -eq "$status" ] || fail "doctor --json: $(cat err)"
assert_json out

# Usage errors have a status of their own, and nothing on standard output.
for command in '' list info ping mount unmount; do
    status=0
    # shellcheck disable=SC2086 # no word for the empty command
    timeout 30 rblk $command </dev/null >out 2>err || status=$?
    [ "$status" -eq 2 ] || fail "\"rblk $command\" without arguments ended with status $status"
    { [ -s err ] && [ ! -s out ]; } || fail "\"rblk $command\" without arguments printed: $(cat out)"
done
stop_target
