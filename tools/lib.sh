# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
# tools/lib.sh -- what the project's scripts share. Sourced, never run; sets no options, no traps.

say()
{
    printf '%s\n' "$*"
}

# die MESSAGE: one line that names the object, the cause and the remedy; ends the script.
die()
{
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

have()
{
    command -v "$1" >/dev/null 2>&1
}

is_root()
{
    [ "$(id -u)" -eq 0 ]
}

# have_fuse: /dev/fuse exists and can be opened by this user.
have_fuse()
{
    [ -c /dev/fuse ] || { have modprobe && modprobe -q fuse 2>/dev/null; }
    [ -c /dev/fuse ] && (exec 3<>/dev/fuse) 2>/dev/null
}

# have_loop: a loop device is to be had.
have_loop()
{
    [ -e /dev/loop-control ] || { have modprobe && modprobe -q loop 2>/dev/null; }
    losetup --find >/dev/null 2>&1
}

# is_running PID: the process exists and is not a zombie.
is_running()
{
    local line
    { read -r line <"/proc/$1/stat"; } 2>/dev/null || return 1
    # "PID (NAME) STATE ...", where NAME may hold anything.
    case ${line##*) } in
    Z* | X*) return 1 ;;
    esac
}

not()
{
    ! "$@"
}

# wait_for SECONDS COMMAND...: runs the command until it succeeds; fails when the time is over.
wait_for()
{
    local deadline=$((${EPOCHREALTIME/[.,]/} + $1 * 1000000))
    shift
    until "$@"; do
        [ "${EPOCHREALTIME/[.,]/}" -lt "$deadline" ] || return 1
        sleep 0.05
    done
}

# end_process PID SECONDS: TERM, then KILL when it has not ended by then. Returns 1 if it took KILL.
end_process()
{
    is_running "$1" || return 0
    kill -TERM "$1" 2>/dev/null
    wait_for "$2" not is_running "$1" && return 0
    kill -KILL "$1" 2>/dev/null
    wait_for 5 not is_running "$1"
    return 1
}

# port_in_use PORT: some TCP socket, IPv4 or IPv6, has this local port, connections included.
port_in_use()
{
    awk -v port="$(printf ':%04X' "$1")" \
        'index($2, port) == length($2) - 4 { found = 1 } END { exit !found }' \
        /proc/net/tcp /proc/net/tcp6 2>/dev/null
}

# port_listens PORT: somebody listens on this TCP port.
port_listens()
{
    awk -v port="$(printf ':%04X' "$1")" \
        '$4 == "0A" && index($2, port) == length($2) - 4 { found = 1 } END { exit !found }' \
        /proc/net/tcp /proc/net/tcp6 2>/dev/null
}

# free_port: prints a TCP port that nobody uses, below the range the kernel hands out by itself.
free_port()
{
    local port
    while :; do
        port=$((12000 + (RANDOM * 32768 + RANDOM) % 20000))
        port_in_use "$port" || break
    done
    echo "$port"
}

# remove_mount DIR: takes away whatever is mounted there, gently, then by force.
remove_mount()
{
    mountpoint -q "$1" 2>/dev/null || stat "$1" 2>&1 | grep -q 'not connected' || return 0
    timeout 20 umount "$1" 2>/dev/null || timeout 10 umount -l "$1" 2>/dev/null
}
