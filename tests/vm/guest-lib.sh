# SPDX-License-Identifier: BSD-2-Clause
# guest-lib -- functions that scenarios use inside the guest
# shellcheck shell=bash
set -euo pipefail
# shellcheck source=tools/lib.sh
. /rblk/tools/lib.sh

export RBLK_BUILD=/rblk/build/$RBLK_VARIANT
export PATH=$RBLK_BUILD/bin:$RBLK_BUILD/tests/integration:$PATH LD_LIBRARY_PATH=$RBLK_BUILD/lib

# fail WORD...: the end; what the mount process and the kernel have to say comes first
fail() {
    [ ! -s /tmp/mount.log ] || tail -n 20 /tmp/mount.log
    dmesg | tail -n 20 | sed 's/^/kernel: /' || true
    echo "FAIL: $*"
    exit 1
}

# network [ADDRESS/BITS]: the guest's own interface, up, with the address that its role has
network() {
    ip link set eth0 up
    ip address add "${1:-10.77.0.$ROLE/24}" dev eth0
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
    for try in $(seq 100); do
        if ibv_devinfo -d "${type}0" 2>/dev/null | grep -q PORT_ACTIVE; then
            return 0
        fi
        sleep 0.1
    done
    fail "${type}0 did not become active after $try tries"
}

# rdma_listens PORT: for wait_for; somebody listens there on an RDMA device
rdma_listens() {
    rdma resource show cm_id | grep -qE "state LISTEN .*src-addr [^ ]*:$1( |\$)"
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

# allocation_is_announced FILE SIZE: this kernel (6.1) can register writable mappings only, so registering allocates
# holes; rblkd says so, once.
allocation_is_announced() {
    local allocated lines
    allocated=$(($(stat -c '%b * %B' "$1")))
    lines=$(grep -c 'registers only writable mappings' /tmp/rblkd.log) || true
    echo "allocated: $allocated bytes of $2; said in the log: $lines time(s)"
    [ "$allocated" -ge "$2" ] || fail "$1 still has holes although it was registered"
    [ "$lines" = 1 ] || fail "rblkd said $lines times that it allocates holes: $(cat /tmp/rblkd.log)"
}

# volumes_over rxe|siw: random I/O against a model, and fio's verification, on three kinds of file system
volumes_over() {
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
            allocation_is_announced /srv/disk $size
        done
        remove_backing_directory
    done
}

# coherence_over rxe|siw: what RDMA READ sees of the backing file (tests/integration/coherence.c)
coherence_over() {
    local type=$1 kind size=8388609
    rdma_device "$type"
    for kind in tmpfs ext4 xfs; do
        echo "== $type, backing file on $kind"
        backing_directory $kind
        truncate -s $size /srv/disk
        start_target --extent-size 1M disk=/srv/disk
        RBLK_PROVIDER=verbs timeout 100 coherence "rblk://$RDMA_ADDRESS/disk" /srv/disk || fail "coherence"
        stop_target
        allocation_is_announced /srv/disk $size
        read_only_volume $size
        remove_backing_directory
    done
}

# read_only_volume SIZE: holes of a volume that is exported read-only read as zeros, and get allocated, too
read_only_volume() {
    rm /srv/disk
    truncate -s "$1" /srv/disk
    start_target disk=/srv/disk,ro
    timeout 60 rblk read --provider verbs "rblk://$RDMA_ADDRESS/disk" | cmp - /srv/disk || fail "read-only volume"
    stop_target
    allocation_is_announced /srv/disk "$1"
}

# integration_over rxe|siw [NAME...]: the integration suite on that device
integration_over() {
    local type=$1 test reason status=0
    # Tests of the software provider say so (need_foreign); scenario "devices" runs Debian's programs on devices.
    local -A left_out=(
        [bad_arguments]='opens no device'
        [bad_backing]='fails before a device is opened'
        [bad_address]='about messages of the command line'
        [bad_mountpoint]='about messages of the command line'
        [bad_target]='about messages of the command line'
        [cli]='about the command line'
        [mount_file]='about mount points'
        [unmount_busy]='about mount points'
        [unmount_force]='about mount points'
        [lock_release]='about the backing file'
        [no_space]='about the backing file'
        [model_mount]="done by volumes-$type"
        [fio_verify]="done by volumes-$type"
        [hostile]='its peers speak once and wait: siw may lose that, rxe takes seconds to part from each'
    )
    if [ "$type" = siw ]; then
        left_out[ext4_loop]='about what is on top of the disk; done over rxe'
        left_out[not_rblk]='an answer that is not MPA crashes siw (Linux 6.1); done over rxe'
    fi
    shift
    rdma_device "$type"
    # On a real file system: direct I/O of loop devices is not for tmpfs.
    modprobe ext4
    mkfs.ext4 -q -F -E nodiscard /dev/vda
    mkdir -p /srv
    mount /dev/vda /srv
    export RBLK_TEST_PROVIDER=verbs RBLK_TEST_ADDRESS=$RDMA_ADDRESS RBLK_TEST_SLOW=20
    export CI=true TMPDIR=/srv LD_LIBRARY_PATH=
    cd /rblk
    if [ $# -eq 0 ]; then
        for test in tests/integration/*.sh; do
            test=$(basename "$test" .sh)
            reason=${left_out[$test]-}
            ! grep -q '^need_foreign' "tests/integration/$test.sh" || reason='about the software provider'
            if [ -n "$reason" ]; then
                echo "left out: $test: $reason"
            elif [ "$test" != lib ]; then
                set -- "$@" "$test"
            fi
        done
    fi
    tests/run -v "$RBLK_VARIANT" "${@/#/integration/}" || status=$?
    return $status
}

# where_it_hangs PID...: what the kernel says of these processes
where_it_hangs() {
    local pid task
    for pid in "$@"; do
        for task in /proc/"$pid"/task/*; do
            echo "-- $(cat "$task/comm"): $(sed -n 's/^State:\t//p' "$task/status")" || true
            cat "$task/stack" || true # it may have ended
        done
    done 2>&1
}

# power_cut_over rxe|siw: one guest exports a disk, the other works on it; then the first loses its power
power_cut_over() {
    local type=$1
    network
    rdma_device "$type" eth0
    "power_cut_guest_$ROLE"
}

power_cut_guest_1() {
    backing_directory ext4
    truncate -s 32M /srv/disk
    truncate -s 4096 /srv/signal
    start_target disk=/srv/disk signal=/srv/signal
    tail -n +1 -f /tmp/rblkd.log &
    wait_for 200 grep -q now /srv/signal || fail "the other guest does not get so far"
    is_running "$TARGET" || fail "rblkd ended"
    echo '@@power-cut'
    sleep 30
    fail "the power is still on"
}

# $type: of power_cut_over
power_cut_guest_2() {
    local uri=rblk://10.77.0.1 io begun took process status=0 patience=20
    export RBLK_PROVIDER=verbs
    wait_for 60 timeout -k 5 20 rblk info "$uri/disk" || fail "no target on the other guest"
    mkdir -p /mnt/remote
    rblk mount --log-file /tmp/mount.log "$uri/disk" /mnt/remote || fail "rblk mount"
    process=$(pidof rblk-fuse)
    truncate -s 32M /tmp/model
    timeout 100 model_mount run -s 1 -n 150 -t 2 /mnt/remote/disk /tmp/model || fail "model over the network"
    timeout 100 model_mount run -s 2 -t 2 -T 100 -u /tmp/uncertain /mnt/remote/disk /tmp/model >/tmp/io.log 2>&1 &
    io=$!
    sleep 2
    is_running $io || fail "the load ended too early: $(cat /tmp/io.log)"
    echo now | timeout 30 rblk write "$uri/signal" || fail "signal"
    begun=$(date +%s%N)
    wait_for 60 not is_running $io || {
        cat /tmp/io.log
        # shellcheck disable=SC2046  # none, one or two
        where_it_hangs "$process" $io $(pidof model_mount)
        fail "I/O still hangs 60 s after the power cut"
    }
    took=$((($(date +%s%N) - begun) / 1000000))
    wait $io || status=$?
    cat /tmp/io.log
    [ $status -eq 3 ] || fail "the load ended with status $status"
    grep -q 'Input/output error' /tmp/io.log || fail "no EIO"
    echo "measured: EIO $took ms after the power cut"

    # The mount is well otherwise: it answers, at once, and can be taken away.
    is_running "$process" || fail "the mount process ended"
    status=0
    timeout 5 dd if=/mnt/remote/disk of=/dev/null bs=4096 count=1 iflag=direct 2>/tmp/dd.log || status=$?
    grep -q 'Input/output error' /tmp/dd.log || fail "a new read: status $status, $(cat /tmp/dd.log)"
    timeout 20 rblk status || fail "status"
    ! timeout 60 rblk unmount /mnt/remote 2>/tmp/unmount.log || fail "nobody said that a flush is missing"
    grep -q flush /tmp/unmount.log || fail "unmount: $(cat /tmp/unmount.log)"
    # rxe may have it wait for packets that the network device does not let go, 50 s a queue pair.
    [ "$type" != rxe ] || patience=120
    wait_for $patience not is_running "$process" || {
        where_it_hangs "$process"
        fail "the mount process is still there"
    }
    ! mountpoint -q /mnt/remote || fail "still mounted"
    status=0
    # Over siw rdma_connect() itself blocks for as long as the kernel's TCP tries: 127 s, or 15 with 3 more tries.
    echo 3 >/proc/sys/net/ipv4/tcp_syn_retries
    timeout 60 rblk info "$uri/disk" 2>/tmp/info.log || status=$?
    { [ $status -ne 0 ] && [ $status -ne 124 ]; } || fail "rblk info of the dead target: $status"
    cat /tmp/info.log
}
