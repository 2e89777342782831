#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# fio_rdma -- fio's rdma engine, unmodified, over the provider: write, read and send.
# time-limit: 200
#
# What the engine itself cannot: verify data (one end's writes are the other end's reads), and end
# when a work request fails (it waits for ever for a completion that it has thrown away). And it counts
# on the retries of InfiniBand for a receiver that falls behind: with send, the receiver here has
# as many receives posted as messages come.

. "$(dirname "$0")/lib.sh"

need_foreign
need_command fio

# exchange VERB BLOCK SIZE DEPTH: in bytes; the receiver has all of its receives posted at once.
exchange()
{
    local verb=$1 block=$2 size=$3 depth=$4 port name
    name=$verb.$block.$depth
    port=$(free_port)
    foreign_server "$name.server" "$port" fio --name=server --ioengine=rdma --port="$port" --rw=read \
        --bs="$block" --size="$size" --iodepth=$((size / block > 1024 ? 16 : size / block + 1)) \
        --output-format=json --output="$name.server.json"
    foreign fio --name=client --ioengine=rdma --hostname=127.0.0.1 --port="$port" --verb="$verb" --rw=write \
        --bs="$block" --size="$size" --iodepth="$depth" --output-format=json \
        --output="$name.client.json" </dev/null >"$name.client" 2>&1 ||
        fail "$name: client: status $?: $(tail -n 5 "$name.client"); server: $(tail -n 5 "$name.server")"
    wait "$SERVER_PID" || fail "$name: server: $(tail -n 5 "$name.server")"
    assert_equal "$(json "$name.client.json" 'v["jobs"][0]["error"]')" 0 "$name: errors"
    assert_equal "$(json "$name.client.json" 'v["jobs"][0]["write"]["io_bytes"]')" "$size" "$name: bytes"
    # With send the receiver counts too; with the others it knows of nothing.
    [ "$verb" != send ] ||
        assert_equal "$(json "$name.server.json" 'v["jobs"][0]["read"]["io_bytes"]')" "$size" "$name: bytes received"
    # The engine opens a connection for each job: it was ours that carried it.
    ! grep -qiE 'error|fail' "$name.client" || fail "$name: $(cat "$name.client")"
}

begun=$(now_ms)
for verb in write read send; do
    # Sanitized programs start slowly: one size of each.
    if [ "$RBLK_VARIANT" = asan ]; then
        side_by_side 4 exchange "$verb" 65536 4194304 16
        continue
    fi
    side_by_side 4 exchange "$verb" 4096 1048576 1
    side_by_side 4 exchange "$verb" 65536 4194304 16
    side_by_side 4 exchange "$verb" 1048576 33554432 8
    side_by_side 4 exchange "$verb" 8388608 67108864 2
done
settle
measured "runs of fio: $(($(now_ms) - begun)) ms"
