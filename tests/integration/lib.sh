# shellcheck shell=bash disable=SC2034 # variables are for the tests
# SPDX-License-Identifier: BSD-2-Clause
# tests/integration/lib.sh -- what integration tests share. A test begins with
#
#     #!/usr/bin/env bash
#     # SPDX-License-Identifier: BSD-2-Clause
#     # NAME -- the one scenario that it tests.
#
#     . "$(dirname "$0")/lib.sh"
#
# and then runs with "set -euo pipefail" in an empty folder of its own (TEST_DIR, also the current
# folder), with the programs under test first in PATH. Whatever these functions start, mount or
# attach is undone when the test ends, however it ends; a process that the test leaves behind is a
# failure. Environment: RBLK_BUILD (default build/debug), RBLK_TEST_KEEP, RBLK_TEST_SEED;
# RBLK_TEST_PROVIDER=verbs with RBLK_TEST_ADDRESS, the address of an RDMA device, for a run on that
# device (tests/vm) instead of the software provider on 127.0.0.1; RBLK_TEST_SLOW=N on a machine that
# is many times slower than most: random tests do an N-th of their work, and there is more patience.

set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tools/lib.sh
. "$ROOT/tools/lib.sh"

RBLK_BUILD=${RBLK_BUILD:-$ROOT/build/debug}
RBLK_VARIANT=${RBLK_VARIANT:-$(basename "$RBLK_BUILD")}
PATH=$RBLK_BUILD/bin:$RBLK_BUILD/tests/integration:$PATH:/usr/sbin:/sbin
SOFTRDMA_LIB=$RBLK_BUILD/lib/librblk-softrdma.so
TEST_PROVIDER=${RBLK_TEST_PROVIDER:-soft}
TEST_ADDRESS=${RBLK_TEST_ADDRESS:-127.0.0.1}
[ "$TEST_PROVIDER" = soft ] || export RBLK_PROVIDER=$TEST_PROVIDER
TEST_NAME=$(basename "$0" .sh)
TEST_DIR=$(mktemp -d "${TMPDIR:-/var/tmp}/rblk-$TEST_NAME.XXXXXX")
TEST_SEED=${RBLK_TEST_SEED:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}
# Processes that this test starts, also those in the background, carry this in their environment.
RBLK_TEST_MARK=$TEST_DIR
# Helper programs do not lie beside the library; and mounts of other tests are none of our business.
RBLK_SOFTRDMA_LIB=$SOFTRDMA_LIB
RBLK_RUNTIME_DIR=$TEST_DIR/run
export PATH RBLK_BUILD RBLK_VARIANT RBLK_TEST_MARK SOFTRDMA_LIB TEST_DIR TEST_SEED
export RBLK_SOFTRDMA_LIB RBLK_RUNTIME_DIR

declare -A target_pids=()   # target name -> process id of its rblkd
background_pids=()          # processes of start_background
side_pids=()                # processes of side_by_side
mounts=()                   # folders or files where a disk is mounted, newest last
loops=()                    # loop devices
filesystems=()              # folders where a file system is mounted, newest last
frozen_filesystems=()       # those of them that are frozen

# How long a program may take to end, in seconds; sanitized programs look for leaks first.
SLOW=${RBLK_TEST_SLOW:-0}
case $RBLK_VARIANT in
asan | tsan) SLOW=${RBLK_TEST_SLOW:-5} ;;
esac
PATIENCE=$((SLOW ? 40 : 15))

foreign_environment=(env "LD_PRELOAD=$SOFTRDMA_LIB")
if [ "$RBLK_VARIANT" = asan ]; then
    foreign_environment=(env
        "LD_PRELOAD=$(clang -print-file-name=libclang_rt.asan-x86_64.so) $SOFTRDMA_LIB"
        "ASAN_OPTIONS=${ASAN_OPTIONS-}:detect_leaks=0")
fi

# ---------------------------------------------------------------------------------------------
# Verdicts
# ---------------------------------------------------------------------------------------------

note()
{
    printf '%s\n' "-- $*"
}

# measured TEXT: a figure; the runner shows it when the test passes.
measured()
{
    printf 'measured: %s\n' "$*"
}

fail()
{
    printf '%s: FAILED: %s\n' "$TEST_NAME" "$*" >&2
    exit 1
}

# skip REASON: what this machine does not have and need not have.
skip()
{
    printf 'skipped: %s\n' "$*"
    exit 77
}

# must REASON: a skip that counts as a failure in CI.
must()
{
    printf 'MUST: %s\n' "$*"
    exit 77
}

# scaled N: N, or fewer where programs are slow, as under a sanitizer.
scaled()
{
    echo $((SLOW ? ($1 + SLOW - 1) / SLOW : $1))
}

assert_equal()
{
    [ "$1" = "$2" ] || fail "${3:-values differ}: expected \"$2\", got \"$1\""
}

# assert_same_bytes FILE FILE
assert_same_bytes()
{
    cmp "$1" "$2" || fail "$1 and $2 differ"
}

# expect_failure PATTERN COMMAND...: the command must end by itself within EXPECT_WITHIN (30) seconds
# with a non-zero status and exactly one line on standard error, which matches the extended pattern.
# What a daemon logs of its start (level info) before it fails does not count.
expect_failure()
{
    local pattern=$1 status=0 errors=$TEST_DIR/expect_failure.err
    shift
    timeout -k 5 "${EXPECT_WITHIN:-30}" "$@" </dev/null >"$TEST_DIR/expect_failure.out" 2>"$errors" || status=$?
    [ "$status" -ne 0 ] || fail "\"$*\" succeeded; expected an error that matches \"$pattern\""
    [ "$status" -ne 124 ] || fail "\"$*\" hung"
    [ "$status" -lt 126 ] || fail "\"$*\" ended with status $status: $(cat "$errors")"
    [ "$1" != rblkd ] || sed -i -E '/^rblkd: (rblkd [0-9.]+, |volume |listening )/d' "$errors"
    [ "$(wc -l <"$errors")" -eq 1 ] ||
        fail "\"$*\" printed not one line of error but: $(cat "$errors")"
    grep -qE -- "$pattern" "$errors" ||
        fail "\"$*\" says \"$(cat "$errors")\"; expected a match of \"$pattern\""
    note "$(cat "$errors")"
}

# now_ms: milliseconds of the wall clock.
now_ms()
{
    echo $((${EPOCHREALTIME/[.,]/} / 1000))
}

# assert_json FILE: it is one valid JSON value.
assert_json()
{
    python3 -m json.tool "$1" >"$TEST_DIR/json.out" 2>&1 ||
        fail "$1 is no valid JSON: $(head -c 300 "$1"); $(cat "$TEST_DIR/json.out")"
}

# json FILE EXPRESSION: a Python expression of the parsed value "v".
json()
{
    python3 -c 'import json, sys; v = json.load(open(sys.argv[1])); print(eval(sys.argv[2]))' \
        "$1" "$2" || fail "$1 has no $2: $(head -c 1000 "$1")"
}

# ---------------------------------------------------------------------------------------------
# What a test needs of the machine
# ---------------------------------------------------------------------------------------------

need_root()
{
    is_root || must "root is needed"
}

need_fuse()
{
    have_fuse || must "/dev/fuse is missing or cannot be opened"
}

need_loop()
{
    need_root
    have_loop || must "no loop device is to be had"
}

# kernel_before VERSION
kernel_before()
{
    [ "$(printf '%s\n' "$1" "$(uname -r)" | sort -V | head -n 1)" != "$1" ]
}

# registering_fills_holes: devices of kernels before 6.2 register writable mappings only, which allocates
# the holes of a backing file; so it cannot be larger than the file system.
registering_fills_holes()
{
    [ "$TEST_PROVIDER" != soft ] && kernel_before 6.2
}

need_command()
{
    local name
    for name in "$@"; do
        have "$name" || must "the program $name is not installed (tools/setup)"
    done
}

# foreign COMMAND...: runs a program that is not ours over the software provider. A sanitized
# provider needs the sanitizer's runtime in that program too, which only asan can do; leaks of that
# program are not ours.
foreign()
{
    timeout -k 5 60 "${foreign_environment[@]}" "$@"
}

# start_foreign COMMAND...: the same in the background; sets BACKGROUND_PID.
start_foreign()
{
    start_background "${foreign_environment[@]}" "$@"
}

# foreign_server LOG PORT COMMAND...: the same as foreign, in the background, until it listens; sets
# SERVER_PID. For the caller to wait for, also in a subshell.
foreign_server()
{
    local log=$1 port=$2
    shift 2
    # Not by way of foreign: the process id is to be that of the program's timeout.
    timeout -k 5 60 "${foreign_environment[@]}" "$@" </dev/null >"$log" 2>&1 &
    SERVER_PID=$!
    if ! wait_for "$PATIENCE" port_listens "$port"; then
        kill -KILL "$SERVER_PID"
        fail "$1 does not listen on port $port: $(tail -n 5 "$log")"
    fi
}

need_foreign()
{
    [ "$TEST_PROVIDER" = soft ] || skip "about the software provider, which is not in use"
    [ "$RBLK_VARIANT" != tsan ] ||
        skip "a program that is not ours cannot load a library built with the thread sanitizer"
}

# ---------------------------------------------------------------------------------------------
# Targets
# ---------------------------------------------------------------------------------------------

# Listeners of devices are no sockets that the system shows.
if [ "$TEST_PROVIDER" != soft ]; then
    port_listens()
    {
        timeout 10 rdma resource show cm_id | grep -qE "state LISTEN .*src-addr [^ ]*:$1( |\$)"
    }
fi

target_settled()
{
    [ -s "$1" ] || ! is_running "$2"
}

# start_target [-n NAME] [-p PORT] ARGUMENTS...: starts rblkd on a free port of TEST_ADDRESS and
# waits until it is ready. Sets TARGET_PID, TARGET_PORT, TARGET_URI (rblk://ADDRESS:PORT, add /VOLUME)
# and TARGET_LOG.
start_target()
{
    local name=target port='' pidfile option OPTIND=1
    while getopts n:p: option; do
        case $option in
        n) name=$OPTARG ;;
        p) port=$OPTARG ;;
        *) fail "start_target: unknown option" ;;
        esac
    done
    shift $((OPTIND - 1))
    TARGET_PORT=${port:-$(free_port)}
    TARGET_URI=rblk://$TEST_ADDRESS:$TARGET_PORT
    TARGET_LOG=$TEST_DIR/$name.log
    pidfile=$TEST_DIR/$name.pid
    rm -f "$pidfile"
    rblkd --listen "$TEST_ADDRESS:$TARGET_PORT" --pidfile "$pidfile" "$@" </dev/null \
        >>"$TARGET_LOG" 2>&1 &
    TARGET_PID=$!
    target_pids[$name]=$TARGET_PID
    wait_for "$PATIENCE" target_settled "$pidfile" "$TARGET_PID" ||
        fail "rblkd ($name) was not ready within $PATIENCE seconds"
    is_running "$TARGET_PID" || fail "rblkd ($name) did not start: $(tail -n 5 "$TARGET_LOG")"
}

# stop_target [NAME]: SIGTERM; the target must end by itself, with status 0.
stop_target()
{
    local name=${1:-target} pid status=0
    pid=${target_pids[$name]}
    unset "target_pids[$name]"
    is_running "$pid" || fail "rblkd ($name) had ended before it was asked to"
    end_process "$pid" "$PATIENCE" || fail "rblkd ($name) did not end within $PATIENCE seconds"
    wait "$pid" || status=$?
    [ "$status" -eq 0 ] || fail "rblkd ($name) ended with status $status"
}

# kill_target [NAME]: SIGKILL, as in a crash.
kill_target()
{
    local name=${1:-target} pid
    pid=${target_pids[$name]}
    unset "target_pids[$name]"
    kill -KILL "$pid"
    wait "$pid" 2>/dev/null || true
}

# make_disk FILE SIZE: a backing file full of random bytes.
make_disk()
{
    head -c "$2" /dev/urandom >"$1"
}

# stat_of NAME [URI]: a counter of the target (rblk_target_stats).
stat_of()
{
    timeout 30 target_stats "${2:-$TARGET_URI}" >"$TEST_DIR/stats.out" ||
        fail "the target's counters could not be read"
    awk -v name="$1" '$1 == name { print $2; found = 1 } END { exit !found }' "$TEST_DIR/stats.out" ||
        fail "the target has no counter $1"
}

# stat_is NAME VALUE: for wait_for.
stat_is()
{
    [ "$(stat_of "$1")" -eq "$2" ]
}

# start_background COMMAND...: sets BACKGROUND_PID; ended at the end of the test.
start_background()
{
    "$@" </dev/null &
    BACKGROUND_PID=$!
    background_pids+=("$BACKGROUND_PID")
}

# side_by_side LIMIT FUNCTION...: in a subshell of its own, LIMIT of them at once. settle waits for
# those that are left; the test fails if one of them did.
side_by_side()
{
    local limit=$1
    shift
    "$@" &
    side_pids+=($!)
    [ ${#side_pids[@]} -lt "$limit" ] || settle
}

settle()
{
    local pid
    for pid in "${side_pids[@]}"; do
        wait "$pid" || fail "a run failed (above)"
    done
    side_pids=()
}

# ---------------------------------------------------------------------------------------------
# Mounts
# ---------------------------------------------------------------------------------------------

# remove_from ARRAY VALUE
remove_from()
{
    local -n array=$1
    local kept=() item
    for item in "${array[@]}"; do
        [ "$item" = "$2" ] || kept+=("$item")
    done
    array=("${kept[@]}")
}

# mount_disk URI PLACE [OPTIONS...]: PLACE is made when it does not exist.
mount_disk()
{
    local uri=$1 place=$2
    shift 2
    [ -e "$place" ] || mkdir -p "$place"
    mounts+=("$place")
    timeout -k 5 60 rblk mount "$@" "$uri" "$place" </dev/null || fail "$uri was not mounted"
}

unmount_disk()
{
    timeout -k 5 60 rblk unmount "$1" </dev/null || fail "$1 was not unmounted"
    remove_from mounts "$1"
}

# attach_loop FILE: sets LOOP.
attach_loop()
{
    LOOP=$(timeout 30 losetup --find --show --direct-io=on "$1")
    loops+=("$LOOP")
}

detach_loop()
{
    timeout 30 losetup -d "$1"
    remove_from loops "$1"
}

# mount_filesystem DEVICE FOLDER
mount_filesystem()
{
    mkdir -p "$2"
    timeout 60 mount "$1" "$2"
    filesystems+=("$2")
}

unmount_filesystem()
{
    # The kernel lets go of an ended target's files a little later, when its io_uring is taken down.
    wait_for "$PATIENCE" timeout 60 umount "$1" || fail "$1 cannot be unmounted"
    remove_from filesystems "$1"
}

# freeze_filesystem FOLDER: writes to it wait until it is thawed.
freeze_filesystem()
{
    timeout 60 fsfreeze -f "$1"
    frozen_filesystems+=("$1")
}

thaw_filesystem()
{
    timeout 60 fsfreeze -u "$1"
    remove_from frozen_filesystems "$1"
}

# initiators: prints the ids of mount processes of this test.
initiators()
{
    local pid
    for pid in $(left_behind); do
        [ ! "/proc/$pid/exe" -ef "$RBLK_BUILD/bin/rblk-fuse" ] || echo "$pid"
    done
}

# no_initiator: for wait_for.
no_initiator()
{
    [ -z "$(initiators)" ]
}

# mount_process PLACE: prints the id of the process that serves the mount.
mount_process()
{
    local pid
    for pid in $(initiators); do
        tr '\0' '\n' <"/proc/$pid/cmdline" | grep -qxF -- "$1" && echo "$pid" && return
    done
    fail "no process serves $1"
}

# trace_worker PLACE CALLS: writes the system calls CALLS of the first worker of the mount to the file "trace"
# from now on, one line each, until end_trace.
trace_worker()
{
    local pid worker
    pid=$(mount_process "$1")
    worker=$(grep -lx worker-0 "/proc/$pid/task/"*/comm | cut -d / -f 5)
    start_background strace -q -e trace="$2" -e signal=none -s 8 -o trace -p "$worker"
    wait_for "$PATIENCE" grep -q '^TracerPid:.*[1-9]' "/proc/$pid/task/$worker/status" ||
        fail "strace has not attached to the worker"
}

end_trace()
{
    kill "$BACKGROUND_PID"
    wait "$BACKGROUND_PID" || true
}

# assert_nothing_mounted PLACE...: neither a mount nor a mount process is left.
assert_nothing_mounted()
{
    local place
    for place in "$@"; do
        ! grep -qF " $place " /proc/self/mountinfo || fail "something is mounted on $place"
    done
    wait_for "$PATIENCE" no_initiator || fail "a mount process is left: $(initiators)"
}

# ---------------------------------------------------------------------------------------------
# The end of a test
# ---------------------------------------------------------------------------------------------

# left_behind: prints the ids of processes of this test that still run, shells excepted.
left_behind()
{
    local entry pid marked
    mapfile -t marked < <(
        grep -lzxF "RBLK_TEST_MARK=$RBLK_TEST_MARK" /proc/[0-9]*/environ 2>/dev/null
    )
    for entry in "${marked[@]}"; do
        pid=${entry#/proc/}
        pid=${pid%/environ}
        is_running "$pid" && [ ! "/proc/$pid/exe" -ef "/proc/$$/exe" ] && echo "$pid"
    done
    return 0
}

nothing_left_behind()
{
    [ -z "$(left_behind)" ]
}

cleanup()
{
    local status=$? place pid index leftovers
    trap '' INT TERM HUP
    trap - EXIT
    set +e
    cd /
    for place in "${frozen_filesystems[@]}"; do
        timeout 10 fsfreeze -u "$place"
    done
    for ((index = ${#filesystems[@]} - 1; index >= 0; index--)); do
        remove_mount "${filesystems[index]}"
    done
    for place in "${loops[@]}"; do
        timeout 10 losetup -d "$place"
    done
    for ((index = ${#mounts[@]} - 1; index >= 0; index--)); do
        place=${mounts[index]}
        mountpoint -q "$place" && timeout -k 5 20 rblk unmount "$place" </dev/null
        remove_mount "$place"
    done
    for pid in "${background_pids[@]}"; do
        end_process "$pid" 5
    done
    for place in "${!target_pids[@]}"; do
        if ! end_process "${target_pids[$place]}" "$PATIENCE" && [ "$status" -eq 0 ]; then
            printf '%s: FAILED: rblkd (%s) did not end when told to\n' "$TEST_NAME" "$place" >&2
            status=1
        fi
    done
    if ! wait_for "$PATIENCE" nothing_left_behind; then
        leftovers=$(left_behind)
        for pid in $leftovers; do
            printf '%s: FAILED: left behind: %s\n' "$TEST_NAME" \
                "$pid $(tr '\0' ' ' <"/proc/$pid/cmdline")" >&2
            kill -KILL "$pid"
        done
        [ "$status" -ne 0 ] || status=1
    fi
    if [ "$status" -ne 0 ] && [ "$status" -ne 77 ]; then
        for place in "$TEST_DIR"/*.log; do
            [ -s "$place" ] || continue
            printf '%s\n' "--- end of ${place##*/}"
            tail -n 40 "$place"
        done
    fi
    if [ -n "${RBLK_TEST_KEEP-}" ]; then
        printf '%s\n' "kept: $TEST_DIR"
    else
        rm -rf --one-file-system "$TEST_DIR"
    fi
    exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

cd "$TEST_DIR"
