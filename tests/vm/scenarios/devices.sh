# SPDX-License-Identifier: BSD-2-Clause
# devices -- the guest itself: rxe and siw come up, and Debian's programs run on them
# timeout: 200
# shellcheck shell=bash

guest() {
    local type
    for type in rxe siw; do
        rdma_device $type
        rping -s -a "$RDMA_ADDRESS" -p 18500 -C 20 -S 4096 &
        wait_for 20 rdma_listens 18500 || fail "rping does not listen on $type"
        timeout 40 rping -c -a "$RDMA_ADDRESS" -p 18500 -C 20 -S 4096 || fail "rping over $type"
        wait $!
        rdma_server -s "$RDMA_ADDRESS" -p 18501 &
        wait_for 20 rdma_listens 18501 || fail "rdma_server does not listen on $type"
        timeout 40 rdma_client -s "$RDMA_ADDRESS" -p 18501 || fail "rdma_client over $type"
        wait $!
        ib_read_lat -d ${type}0 -R -s 4096 -n 200 -F >/tmp/server.log 2>&1 &
        wait_for 20 rdma_listens 18515 || fail "ib_read_lat does not listen on $type"
        timeout 60 ib_read_lat -d ${type}0 -R -s 4096 -n 200 -F "$RDMA_ADDRESS" | grep -A1 '#bytes' ||
            fail "ib_read_lat over $type"
        wait $!
        rdma link delete ${type}0
    done
}
