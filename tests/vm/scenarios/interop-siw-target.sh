# SPDX-License-Identifier: BSD-2-Clause
# interop-siw-target -- rblk and rping over user-space iWARP on the host, against kernel siw in the guest, CRC off and on
# timeout: 420
# forward: 7470 18500
# shellcheck shell=bash

size=16777217

guest() {
    user_network
    rdma_device siw eth0
    backing_directory ext4
    truncate -s $size /srv/disk
    truncate -s 4096 /srv/done
    start_target disk=/srv/disk "done=/srv/done"
    tail -n +1 -f /tmp/rblkd.log &
    rping -s -P -a "$RDMA_ADDRESS" -p 18500 &
    wait_for 20 rdma_listens 18500 || fail "rping does not listen"
    echo '@@ready'
    wait_for 400 grep -q finished /srv/done || fail "the host did not finish"
    stop_target
}

# What the provider says of its connections is shown when something fails.
host() {
    local status=0
    RBLK_SOFTRDMA_DEBUG=1 host_against_guest 2>"$RBLK_VM_WORK/debug.log" || status=$?
    [ $status -eq 0 ] || tail -n 60 "$RBLK_VM_WORK/debug.log"
    return $status
}

host_against_guest() {
    local uri=rblk://127.0.0.1:$FORWARD_7470 crc number
    export RBLK_PROVIDER=soft
    for crc in 0 1; do
        export RBLK_SOFTRDMA_CRC=$crc
        # Each connection may find siw deaf to what comes right behind its answer: many, without a second try.
        for number in $(seq 10); do
            timeout 20 rblk info "$uri/disk" >/dev/null || return 1
        done
        echo "CRC $crc: 10 sessions, none refused"
        timeout 200 model_librblk "$uri/disk" $size $((7 + crc)) 200 sync || return 1
        head -c $size /dev/urandom >"$RBLK_VM_WORK/data"
        timeout 100 rblk write "$uri/disk" <"$RBLK_VM_WORK/data" || return 1
        timeout 100 rblk read "$uri/disk" | cmp - "$RBLK_VM_WORK/data" || return 1
        for number in 4096 60000; do
            timeout 60 env "LD_PRELOAD=$RBLK_SOFTRDMA_LIB" rping -c -a 127.0.0.1 -p "$FORWARD_18500" -C 20 -V \
                -S $number || return 1
            sleep 0.5 # rping's server keeps a connection in one variable: it takes the last one down first
        done
        echo "CRC $crc: model test, $size bytes there and back, and rping agree"
    done
    echo finished | timeout 60 rblk write "$uri/done"
}
