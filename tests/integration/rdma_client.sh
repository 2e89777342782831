#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# rdma_client -- rdma_server and rdma_client, unmodified, run over the software provider.

. "$(dirname "$0")/lib.sh"

need_foreign
need_command rdma_server rdma_client

rounds=$(scaled 10)
for ((round = 0; round < rounds; round++)); do
    port=$(free_port)
    start_foreign rdma_server -p "$port" >server.out 2>&1
    wait_for "$PATIENCE" port_listens "$port" || fail "the server does not listen: $(cat server.out)"
    foreign rdma_client -s 127.0.0.1 -p "$port" >client.out 2>&1 ||
        fail "client: $(cat client.out); server: $(cat server.out)"
    wait "$BACKGROUND_PID" || fail "server: $(cat server.out)"
    grep -q 'rdma_client: end 0' client.out || fail "client: $(cat client.out)"
    grep -q 'rdma_server: end 0' server.out || fail "server: $(cat server.out)"
done
measured "$rounds exchanges of rdma_client and rdma_server"

# Nobody there, and a server that ends: an error, not a hang.
status=0
foreign rdma_client -s 127.0.0.1 -p "$(free_port)" >client.out 2>&1 || status=$?
[ "$status" -ne 124 ] || fail "the client hangs when nobody listens"
grep -q 'refused\|rdma_connect' client.out || fail "client: $(cat client.out)"
