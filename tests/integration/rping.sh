#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# rping -- rping, unmodified, runs over the software provider: a witness that we did not write.

. "$(dirname "$0")/lib.sh"

need_foreign
need_command rping

address=127.0.0.1
server_options=()

# exchange OPTIONS...: a persistent rping server, and two clients with these options, one by one.
exchange()
{
    local port server begun
    port=$(free_port)
    begun=$(now_ms)
    start_foreign rping -s -P -a "$address" -p "$port" "${server_options[@]}" >server.out 2>&1
    server=$BACKGROUND_PID
    wait_for "$PATIENCE" port_listens "$port" || fail "the server does not listen: $(cat server.out)"
    foreign rping -c -a "$address" -p "$port" "$@" >client.out 2>&1 ||
        fail "rping $*: status $?: $(tail -n 5 client.out) / $(tail -n 5 server.out)"
    ! grep -qiE 'mismatch|error|failed' client.out || fail "rping $*: $(cat client.out)"
    measured "rping $*: $(($(now_ms) - begun)) ms"
    is_running "$server" || fail "the persistent server ended: $(cat server.out)"
    # The next client of the same server. (Two at once are more than rping itself can take: it keeps
    # a new connection in one variable.)
    foreign rping -c -a "$address" -p "$port" "$@" >client.out 2>&1 ||
        fail "rping $* again: status $?: $(tail -n 5 client.out) / $(tail -n 5 server.out)"
    sleep 0.2 # the server takes the last connection down
    kill -KILL "$server" # it takes no other end
    wait "$server" 2>/dev/null || true
}

exchange -C 10 -v
exchange -C "$(scaled 1000)" -V
exchange -C 200 -V -S 100
exchange -C 100 -V -S 65535
exchange -C 20 -q -V
exchange -C 20 -d -v
grep -q 'RDMA addr' client.out || fail "rping -d says nothing: $(cat client.out)"
exchange -C 20 -V -I 127.0.0.2 # another source address
server_options=(-q)
exchange -C 20 -q -V -S 30000
server_options=(-v -d)
exchange -C 20 -V
server_options=()
if [ -s /proc/net/if_inet6 ]; then
    address=::1
    exchange -C 20 -V -S 1000
    address=127.0.0.1
fi

# A server that ends after one client, and says what it got.
port=$(free_port)
start_foreign rping -s -a 127.0.0.1 -p "$port" -C 20 -v -V -S 50 >server.out 2>&1
wait_for "$PATIENCE" port_listens "$port" || fail "the server does not listen: $(cat server.out)"
foreign rping -c -a 127.0.0.1 -p "$port" -C 20 -v -V -S 50 >client.out 2>&1 || fail "client: $(cat client.out)"
wait "$BACKGROUND_PID" || fail "server: $(cat server.out)"
assert_equal "$(grep -c 'ping data: rdma-ping' server.out)" 20 "pings that the server shows"
assert_equal "$(grep -c 'ping data: rdma-ping' client.out)" 20 "pings that the client shows"

# A server with smaller buffers than the client's: an error at both ends, not a hang.
port=$(free_port)
start_foreign rping -s -a 127.0.0.1 -p "$port" -C 3 -S 64 >server.out 2>&1
wait_for "$PATIENCE" port_listens "$port" || fail "the server does not listen: $(cat server.out)"
status=0
foreign rping -c -a 127.0.0.1 -p "$port" -C 3 -S 10000 >client.out 2>&1 || status=$?
[ "$status" -ne 124 ] || fail "the client hangs when the server's buffer is too small: $(cat client.out)"
wait "$BACKGROUND_PID" || true
grep -q 'cq completion failed status 4' server.out || fail "server: $(cat server.out)"

# Three servers and three clients at once.
clients=()
for number in 1 2 3; do
    port=$(free_port)
    start_foreign rping -s -a 127.0.0.1 -p "$port" -C "$(scaled 1000)" -V >"server.$number.out" 2>&1
    wait_for "$PATIENCE" port_listens "$port" || fail "the server does not listen: $(cat "server.$number.out")"
    foreign rping -c -a 127.0.0.1 -p "$port" -C "$(scaled 1000)" -V >"client.$number.out" 2>&1 &
    clients+=($!)
done
for client in "${clients[@]}"; do
    wait "$client" || fail "one of three clients at once: $(tail -n 5 client.?.out)"
done
measured "three exchanges at once"
