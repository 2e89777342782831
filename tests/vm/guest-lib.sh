# SPDX-License-Identifier: BSD-2-Clause
# guest-lib -- functions that scenarios use inside the guest
# shellcheck shell=bash
set -euo pipefail

export PATH=/rblk/bin:/rblk/tests:$PATH LD_LIBRARY_PATH=/rblk/lib

fail() {
    echo "FAIL: $*"
    exit 1
}

# network: the guest's own interface, up, with the address that its role has (or user networking's)
network() {
    local address=${ADDRESS:-10.77.0.1}
    ip link set eth0 up
    ip address add "${1:-$address/24}" dev eth0
}

# user_network: QEMU's user networking; the host is 10.0.2.2
user_network() {
    network 10.0.2.15/24
    ip route add default via 10.0.2.2
}

# rdma_device rxe|siw [NETDEV]: one RDMA device on NETDEV (default: a dummy with 10.99.0.1), active.
# Its address is left in $RDMA_ADDRESS.
rdma_device() {
    local type=$1 netdev=${2:-}
    if [ -z "$netdev" ]; then
        netdev=rdma-net
        if [ ! -e /sys/class/net/$netdev ]; then
            ip link add $netdev type dummy
            ip address add 10.99.0.1/24 dev $netdev
            ip link set $netdev mtu 4200 up
        fi
        RDMA_ADDRESS=10.99.0.1
    else
        RDMA_ADDRESS=$(ip -4 -o address show dev "$netdev" | awk '{ split($4, a, "/"); print a[1]; exit }')
    fi
    modprobe ib_uverbs
    modprobe rdma_ucm
    case $type in
    rxe) modprobe rdma_rxe ;;
    siw) insmod "/lib/modules/$(uname -r)/extra/siw.ko" ;;
    esac
    rdma link add "${type}0" type "$type" netdev "$netdev"
    local try
    for try in $(seq 50); do
        if ibv_devinfo -d "${type}0" 2>/dev/null | grep -q PORT_ACTIVE; then
            return 0
        fi
        sleep 0.1
    done
    fail "${type}0 did not become active after $try tries"
}

# wait_for SECONDS COMMAND...: until the command succeeds
wait_for() {
    local seconds=$1 end
    shift
    end=$(($(date +%s) + seconds))
    until "$@"; do
        [ "$(date +%s)" -lt "$end" ] || return 1
        sleep 0.1
    done
}

# start_target NAME=PATH...: rblkd on $RDMA_ADDRESS over kernel verbs; its pid in $TARGET
start_target() {
    rm -f /run/rblkd.pid
    rblkd --provider verbs --listen "$RDMA_ADDRESS" --pidfile /run/rblkd.pid "$@" >/tmp/rblkd.log 2>&1 &
    TARGET=$!
    wait_for 10 test -s /run/rblkd.pid || {
        cat /tmp/rblkd.log
        fail "rblkd did not start"
    }
}

stop_target() {
    kill -TERM "$TARGET"
    wait "$TARGET" || {
        cat /tmp/rblkd.log
        fail "rblkd ended with status $?"
    }
}

# backing_directory tmpfs|ext4|xfs: mounts a fresh file system of that kind at /srv
backing_directory() {
    mkdir -p /srv
    if [ "$1" = tmpfs ]; then
        mount -t tmpfs -o size=512m tmpfs /srv
        return
    fi
    truncate -s 600M /tmp/backing.img
    modprobe "$1"
    case $1 in
    ext4) mkfs.ext4 -q -F /tmp/backing.img ;;
    xfs) mkfs.xfs -q -f /tmp/backing.img ;;
    esac
    mount -o loop /tmp/backing.img /srv
}

remove_backing_directory() {
    umount /srv
    rm -f /tmp/backing.img
}

# mount_disk: the volume "disk" of the running target at /mnt/remote/disk
mount_disk() {
    mkdir -p /mnt/remote
    rblk mount --provider verbs "rblk://$RDMA_ADDRESS/disk" /mnt/remote || fail "rblk mount"
}

unmount_disk() {
    rblk unmount /mnt/remote || fail "rblk unmount"
}

# verify_with_model: seeded random I/O against the mount and its model, and again after a re-mount
verify_with_model() {
    local size=$1 seed=$RANDOM
    rm -f /tmp/model
    cp --sparse=always /srv/disk /tmp/model 2>/dev/null || cp /srv/disk /tmp/model
    mount_disk
    [ "$(stat -c %s /mnt/remote/disk)" = "$size" ] || fail "size of the mounted disk"
    echo "model_mount: $size bytes, seed $seed"
    timeout 120 model_mount run -s "$seed" -n 300 -t 2 -d 50 /mnt/remote/disk /tmp/model || fail "model"
    unmount_disk
    mount_disk
    timeout 120 model_mount verify /mnt/remote/disk /tmp/model || fail "model after a re-mount"
    unmount_disk
    cmp /srv/disk /tmp/model || fail "the backing file differs from the model"
}

fio_verify() {
    mount_disk
    fio --name=verify --filename=/mnt/remote/disk --ioengine=libaio --direct=1 --rw=randwrite --bs=4k \
        --iodepth=16 --numjobs=4 --size=4m --offset_increment=8m --verify=crc32c --verify_fatal=1 \
        --group_reporting >/tmp/fio.log 2>&1 || {
        cat /tmp/fio.log
        fail "fio verify"
    }
    grep -E 'IOPS=' /tmp/fio.log
    unmount_disk
}

# rblk_over rxe|siw: the whole product on that device
rblk_over() {
    local type=$1 kind size
    rdma_device "$type"
    for kind in tmpfs ext4 xfs; do
        backing_directory $kind
        for size in 4097 67108865; do
            echo "== $type, backing file on $kind, $size bytes"
            rm -f /srv/disk
            truncate -s $size /srv/disk
            start_target disk=/srv/disk
            verify_with_model $size
            [ $size -lt 1048576 ] || fio_verify
            stop_target
            echo "allocated: $(du -k /srv/disk | cut -f 1) KiB of $((size / 1024)) KiB"
            grep -iE 'map|alloc|6\.1' /tmp/rblkd.log || true
        done
        remove_backing_directory
    done
}
