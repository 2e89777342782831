#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# rping -- rping, unmodified, runs over the software provider: a witness that we did not write.

. "$(dirname "$0")/lib.sh"

need_foreign
need_command rping

# exchange OPTIONS...: an rping server for one client and a client with these options.
exchange()
{
    local port server begun
    port=$(free_port)
    begun=$(now_ms)
    start_foreign rping -s -P -a 127.0.0.1 -p "$port" >server.out 2>&1
    server=$BACKGROUND_PID
    wait_for "$PATIENCE" port_listens "$port" || fail "the server does not listen: $(cat server.out)"
    foreign rping -c -a 127.0.0.1 -p "$port" "$@" >client.out 2>&1 ||
        fail "rping $*: status $?: $(tail -n 5 client.out) / $(tail -n 5 server.out)"
    ! grep -qiE 'mismatch|error|failed' client.out || fail "rping $*: $(cat client.out)"
    measured "rping $*: $(($(now_ms) - begun)) ms"
    is_running "$server" || fail "the persistent server ended: $(cat server.out)"
    # The next client of the same server. (Two at once are more than rping itself can take: it keeps
    # a new connection in one variable.)
    foreign rping -c -a 127.0.0.1 -p "$port" "$@" >client.out 2>&1 ||
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
