#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# perftest -- ib_read, ib_write and ib_send, latency and bandwidth, unmodified, over the provider.
# time-limit: 240
#
# Each run takes about a second, nearly all of it perftest's own: it sleeps, and measures the clock
# rate of the processor. So a few run side by side.
#
# With -e (events), perftest's ib_send_bw has a flaw on iWARP: its client may wait for a completion
# when what it needs is a credit, which comes by RDMA WRITE and so without one. The runs below
# keep enough messages under way that this cannot happen: many large ones, each with a completion (-Q 1).

. "$(dirname "$0")/lib.sh"

need_foreign
[ "$RBLK_VARIANT" != asan ] ||
    skip "perftest's client hands over a null id when it is refused (see attempt), which a sanitizer reports"
need_command ib_read_lat ib_read_bw ib_write_lat ib_write_bw ib_send_lat ib_send_bw

AT_ONCE=2

# attempt NAME TOOL OPTIONS...: a server and a client. Returns 2 when perftest met with a race of its own:
# between the connection for parameters and those for data its server closes its listener and
# opens it again, and its client crashes when it is refused in between.
attempt()
{
    local name=$1 tool=$2 port status=0 server_status=0
    shift 2
    port=$(free_port)
    foreign_server "$name.server" "$port" "$tool" -R -p "$port" "$@"
    foreign "$tool" -R -p "$port" "$@" 127.0.0.1 >"$name.client" 2>&1 </dev/null || status=$?
    [ "$status" -eq 0 ] || kill -TERM "$SERVER_PID" 2>/dev/null || true
    wait "$SERVER_PID" || server_status=$?
    [ "$status" -ne 0 ] || [ "$server_status" -ne 0 ] || return 0
    ! grep -q 'Failed to connect RDMA CM events' "$name.client" || return 2
    fail "$name ($tool $*): status $status: $(tail -n 5 "$name.client"); server: status $server_status: $(tail -n 5 "$name.server")"
}

# one NAME TOOL OPTIONS...: both ends must end well, on this device, with a figure.
one()
{
    local name=$1 tool=$2 sizes=65536 iterations=1000 queue_pairs=1 tries=0
    until attempt "$@"; do
        tries=$((tries + 1))
        [ "$tries" -lt 8 ] || fail "$name: $tool was refused $tries times: $(cat "$name.client")"
    done
    shift 2
    if ! grep -q 'Device *: softrdma0' "$name.client" || ! grep -q 'Transport type *: IW' "$name.client"; then
        fail "$name: not on the software provider: $(cat "$name.client")"
    fi
    while [ $# -gt 1 ]; do
        case $1 in
        -s) sizes=$2 ;;
        -n) iterations=$2 ;;
        -q) queue_pairs=$2 ;;
        esac
        shift
    done
    [[ $tool != *_bw ]] || iterations=$((iterations * queue_pairs))
    awk -v size="$sizes" -v iterations="$iterations" \
        '$1 == size && $2 == iterations && $4 > 0 { found = 1 } END { exit !found }' "$name.client" ||
        fail "$name: no figure for $sizes bytes and $iterations iterations: $(cat "$name.client")"
}

runs=0

run()
{
    runs=$((runs + 1))
    side_by_side "$AT_ONCE" one "run$runs" "$@"
}

begun=$(now_ms)
# Sizes from a byte or two to 8 MiB, polling; several queue pairs, and both directions at once.
for tool in ib_read_lat ib_write_lat ib_send_lat; do
    run "$tool" -s 2 -n "$(scaled 1000)"
    run "$tool" -s 8388608 -n 5
done
for tool in ib_read_bw ib_write_bw ib_send_bw; do
    run "$tool" -s 1 -n 1000
    run "$tool" -s 8388608 -n 20
    run "$tool" -q 4 -t 16 -s 65536 -n 100 # -t: depth of the send queue
    run "$tool" -b -s 4096 -n 500
done
run ib_read_bw -o 1 -s 4096 -n 500       # one read at a time
run ib_read_bw -o 16 -q 2 -s 4096 -n 500 # and several
run ib_write_bw -l 4 -s 4096 -n 1000     # several work requests in one call
run ib_send_lat -I 64 -s 64 -n 1000      # inline data
# A shared receive queue. (With several queue pairs perftest sends more than it has receives for.)
run ib_send_bw --use-srq -s 4096 -n 500
# Events in place of polling. (perftest has none for WRITE.)
run ib_read_lat -e -s 4096 -n 500
run ib_send_lat -e -s 4096 -n 500
run ib_read_bw -e -q 4 -s 8388608 -n 5
run ib_send_bw -e -Q 1 -s 1048576 -n 60
run ib_send_bw -e -Q 1 -s 8388608 -n 20
settle
measured "$runs runs of perftest: $(($(now_ms) - begun)) ms"
