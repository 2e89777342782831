# SPDX-License-Identifier: BSD-2-Clause
# interop-siw-initiator -- rblk and rping on kernel siw in the guest, against user-space iWARP on the host, CRC off and on
# timeout: 420
# shellcheck shell=bash

size=16777217

guest() {
    user_network
    rdma_device siw eth0
    export RBLK_PROVIDER=verbs
    echo '@@ready'
    guest_against 0 "$HOST_PORT_1" "$HOST_PORT_3"
    guest_against 1 "$HOST_PORT_2" "$HOST_PORT_4"
    echo finished | timeout 60 rblk write "rblk://10.0.2.2:$HOST_PORT_1/done" || fail "write"
}

# guest_against CRC RBLK-PORT RPING-PORT
guest_against() {
    local uri=rblk://10.0.2.2:$2
    wait_for 60 timeout 20 rblk ping -c 1 "$uri" || fail "no target on the host"
    timeout 200 model_librblk "$uri/disk" $size $((11 + $1)) 200 sync || fail "model"
    head -c $size /dev/urandom >/tmp/data
    timeout 100 rblk write "$uri/disk" </tmp/data || fail "write"
    timeout 100 rblk read "$uri/disk" | cmp - /tmp/data || fail "the disk differs from what was written"
    timeout 60 rping -c -a 10.0.2.2 -p "$3" -C 50 -V -S 4096 || fail "rping, 4096 bytes"
    timeout 60 rping -c -a 10.0.2.2 -p "$3" -C 10 -V -S 60000 || fail "rping, 60000 bytes"
    echo "CRC $1: model test, $size bytes there and back, and rping agree"
}

host() {
    local pids=() crc pid status=0 port
    truncate -s 4096 "$RBLK_VM_WORK/done"
    for crc in 0 1; do
        export RBLK_SOFTRDMA_CRC=$crc
        truncate -s $size "$RBLK_VM_WORK/disk.$crc"
        port=HOST_PORT_$((crc + 1))
        set -- "disk=$RBLK_VM_WORK/disk.$crc"
        [ $crc = 1 ] || set -- "$@" "done=$RBLK_VM_WORK/done"
        host_background rblkd --provider soft --listen "127.0.0.1:${!port}" "$@"
        pids+=($!)
        port=HOST_PORT_$((crc + 3))
        host_background env "LD_PRELOAD=$RBLK_SOFTRDMA_LIB" rping -s -P -a 127.0.0.1 -p "${!port}"
        pids+=($!)
    done
    until grep -q finished "$RBLK_VM_WORK/done"; do
        for pid in "${pids[@]}"; do
            is_running "$pid" || { echo "a server on the host ended"; return 1; }
        done
        sleep 0.2
    done
    for pid in "${pids[0]}" "${pids[2]}"; do
        end_process "$pid" 20 || status=1
        wait "$pid" || status=$?
    done
    # rping takes no other end.
    kill -KILL "${pids[1]}" "${pids[3]}"
    return $status
}
