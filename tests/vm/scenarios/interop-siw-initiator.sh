# SPDX-License-Identifier: BSD-2-Clause
# interop-siw-initiator -- an initiator on kernel siw in the guest against a user-space iWARP target on the host
# timeout: 300
# shellcheck shell=bash

size=33554433

guest() {
    local uri=rblk://10.0.2.2:$HOST_PORT
    user_network
    rdma_device siw eth0
    export RBLK_PROVIDER=verbs
    echo '@@ready'
    wait_for 60 rblk ping -c 1 "$uri" || fail "no target on the host"
    rblk info "$uri/disk"
    timeout 200 model_librblk "$uri/disk" $size 11 300 sync || fail "model"
    head -c $size /dev/urandom >/tmp/data
    rblk write "$uri/disk" </tmp/data || fail "write"
    rblk read "$uri/disk" | cmp - /tmp/data || fail "the disk differs from what was written"
    echo finished | rblk write "$uri/done" || fail "write"
}

host() {
    local target status=0 end=$((SECONDS + 250))
    truncate -s $size "$RBLK_VM_WORK/disk"
    truncate -s 4096 "$RBLK_VM_WORK/done"
    rblkd --provider soft --listen "127.0.0.1:$HOST_PORT" "disk=$RBLK_VM_WORK/disk" \
        "done=$RBLK_VM_WORK/done" &
    target=$!
    until grep -q finished "$RBLK_VM_WORK/done"; do
        if [ $SECONDS -ge $end ] || ! kill -0 $target; then
            status=1
            break
        fi
        sleep 0.2
    done
    kill -TERM $target
    wait $target || status=$?
    return $status
}
