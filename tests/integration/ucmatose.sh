#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# ucmatose -- the connection manager's own example, unmodified, over the provider: many connections.

. "$(dirname "$0")/lib.sh"

# ended_with_error STATUS: not 0, and not because timeout ended it.
ended_with_error()
{
    [ "$1" -ne 0 ] && [ "$1" -ne 124 ] && [ "$1" -ne 137 ]
}

need_foreign
need_command ucmatose

# exchange OPTIONS...: a server and a client with the same options; both must succeed.
exchange()
{
    local port server
    port=$(free_port)
    start_foreign ucmatose -p "$port" "$@" >server.out 2>&1
    server=$BACKGROUND_PID
    wait_for "$PATIENCE" port_listens "$port" || fail "ucmatose $*: the server does not listen: $(cat server.out)"
    foreign ucmatose -s "${address:-127.0.0.1}" -p "$port" "$@" >client.out 2>&1 ||
        fail "ucmatose $*: client: $(tail -n 5 client.out); server: $(tail -n 5 server.out)"
    wait "$server" || fail "ucmatose $*: server: $(tail -n 5 server.out)"
    grep -q 'test complete' client.out || fail "ucmatose $*: client: $(cat client.out)"
    grep -q 'return status 0' client.out || fail "ucmatose $*: client: $(cat client.out)"
    grep -q 'return status 0' server.out || fail "ucmatose $*: server: $(cat server.out)"
}

begun=$(now_ms)
exchange
exchange -c 8 -C 50 -S 4096            # messages both ways on several connections
exchange -c 64 -C 0                    # connections only
exchange -c 2 -C 10 -S 8388608
exchange -c 4 -C 5 -t 8                # type of service
exchange -c 4 -m                       # ids move to another event channel
exchange -c 2 -C 5 -a 10               # a time-out of acknowledgements, which iWARP does not have
exchange -c 2 -C 5 -P tcp
if [ -s /proc/net/if_inet6 ]; then
    address=::1
    exchange -c 4 -C 5 -b ::1 -f ipv6
fi
measured "exchanges of ucmatose: $(($(now_ms) - begun)) ms"

# Nobody there: an error, not a hang.
status=0
foreign ucmatose -s 127.0.0.1 -p "$(free_port)" >client.out 2>&1 || status=$?
ended_with_error "$status" || fail "nobody listens: status $status: $(cat client.out)"
grep -q 'RDMA_CM_EVENT_REJECTED' client.out || fail "nobody listens: $(cat client.out)"

# What the provider does not have is refused, by both ends.
status=0
foreign ucmatose -s 127.0.0.1 -p "$(free_port)" -P ib >client.out 2>&1 || status=$?
ended_with_error "$status" || fail "the port space IB: status $status: $(cat client.out)"
