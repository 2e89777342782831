# SPDX-License-Identifier: BSD-2-Clause
# bench-nvmeof -- the same jobs over rxe on kernel NVMe-oF, on rblk through FUSE and on librblk, with perftest as the limit
# timeout: 2400
# shellcheck shell=bash
#
# usage: tests/vm/run bench-nvmeof [quick|full [ROUNDS [MILLISECONDS]]]
#   quick (default)  one round of a third of a second a job: that everything works, and that reads take no user time of rblkd
#   full             three rounds of four seconds a job, interleaved; the table shows medians
#
# Both ends are in one guest. The volume of each subject is a file of the same size on one tmpfs. The guest prints the
# table; the host stores every figure in build/bench/nvmeof-MODE.json ($RBLK_BENCH_JSON names another file).

# name, fio's rw, rblk bench's mode, block size in bytes, queue depth, jobs
jobs=(
    'randread-4k-qd1 randread randread 4096 1 1'
    'randread-4k-qd16 randread randread 4096 16 1'
    'randread-4k-4x8 randread randread 4096 8 4'
    'randwrite-4k-qd1 randwrite randwrite 4096 1 1'
    'randwrite-4k-qd16 randwrite randwrite 4096 16 1'
    'read-128k-qd4 read read 131072 4 1'
    'read-1m-qd4 read read 1048576 4 1'
    'write-128k-qd4 write write 131072 4 1'
    'write-1m-qd4 write write 1048576 4 1'
)
nqn=nqn.2026-11.io.rblk:bench
# Ticks of user time (10 ms each) that rblkd may use while volumes are only read: heartbeats, and the sampling of a tick.
read_ticks_max=3

# set_mode [quick|full [ROUNDS [MILLISECONDS]]]
set_mode() {
    case ${1:-quick} in
    quick) rounds=1 milliseconds=300 ramp=100 size=$((32 << 20)) latency_reads=1000 rate_reads=3000 cpu_milliseconds=2000 ;;
    full) rounds=3 milliseconds=4000 ramp=500 size=$((256 << 20)) latency_reads=20000 rate_reads=30000 cpu_milliseconds=10000 ;;
    *) fail "bench-nvmeof: unknown mode '$1'; quick or full" ;;
    esac
    mode=${1:-quick}
    rounds=${2:-$rounds}
    milliseconds=${3:-$milliseconds}
}

# -- subjects ----------------------------------------------------------------------------------

make_backing_files() {
    local name i
    mkdir -p /srv
    mount -t tmpfs -o size=800m tmpfs /srv
    dd if=/dev/urandom of=/tmp/block bs=1M count=16 2>/dev/null
    for name in nvme disk lib; do
        for i in $(seq $((size >> 24))); do
            cat /tmp/block
        done >/srv/$name
    done
    rm /tmp/block
}

# The kernel's target and initiator: one subsystem with the file as its namespace, one port, a queue for each CPU.
start_nvme() {
    local config=/sys/kernel/config/nvmet
    modprobe nvmet
    modprobe nvmet-rdma
    modprobe nvme-rdma
    [ -d $config ] || mount -t configfs configfs /sys/kernel/config
    mkdir $config/subsystems/$nqn
    echo 1 >$config/subsystems/$nqn/attr_allow_any_host
    mkdir $config/subsystems/$nqn/namespaces/1
    echo -n /srv/nvme >$config/subsystems/$nqn/namespaces/1/device_path
    # tmpfs has no direct I/O in 6.1; it is also what rblkd does.
    echo 1 >$config/subsystems/$nqn/namespaces/1/buffered_io
    echo 1 >$config/subsystems/$nqn/namespaces/1/enable
    mkdir $config/ports/1
    echo rdma >$config/ports/1/addr_trtype
    echo ipv4 >$config/ports/1/addr_adrfam
    echo "$RDMA_ADDRESS" >$config/ports/1/addr_traddr
    echo 4420 >$config/ports/1/addr_trsvcid
    ln -s $config/subsystems/$nqn $config/ports/1/subsystems/$nqn
    echo "transport=rdma,traddr=$RDMA_ADDRESS,trsvcid=4420,nqn=$nqn,nr_io_queues=2,queue_size=128,hostnqn=$nqn-host" \
        >/dev/nvme-fabrics || fail "nvme-rdma does not connect to nvmet-rdma"
    wait_for 10 test -b /dev/nvme0n1 || fail "the namespace did not appear"
    [ "$(cat /sys/block/nvme0n1/size)" = $((size / 512)) ] || fail "the namespace has another size"
}

# user_ticks PID, system_ticks PID: CPU time so far, in ticks of 10 ms
user_ticks() {
    # The name in parentheses is a single word here.
    awk '{ print $14 }' "/proc/$1/stat"
}
system_ticks() {
    awk '{ print $15 }' "/proc/$1/stat"
}

# -- measurements: each prints "IOPS MB/s p50-us" ----------------------------------------------

# measure_fio FILE RW BLOCK DEPTH JOBS
measure_fio() {
    timeout 60 fio --name=job --filename="$1" --ioengine=libaio --direct=1 --rw="$2" --bs="$3" --iodepth="$4" \
        --numjobs="$5" --size="$size" --time_based --runtime="${milliseconds}ms" --ramp_time="${ramp}ms" --norandommap \
        --randrepeat=0 --group_reporting --output-format=terse --terse-version=3 --thread \
        >/tmp/fio.out 2>/tmp/fio.err || {
        cat /tmp/fio.out /tmp/fio.err >&2
        return 1
    }
    # Terse version 3: bandwidth (KiB/s), IOPS and the percentiles of reads stand in 7, 8 and 18 to 37, of writes 41
    # fields on.
    awk -F ';' -v rw="$2" '$1 == 3 {
        first = rw ~ /write/ ? 41 : 0
        if ($5 != 0) exit 1
        for (i = 18; i <= 37; i++)
            if ($(i + first) ~ /^50\./) { split($(i + first), p, "="); p50 = p[2] }
        print $(8 + first), $(7 + first) * 1024 / 1e6, p50
        found = 1
    } END { exit !found }' /tmp/fio.out || {
        cat /tmp/fio.out /tmp/fio.err >&2
        return 1
    }
}

# seconds_of MILLISECONDS
seconds_of() {
    printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000))
}

# json_value KEY: from the single object on standard input
json_value() {
    sed -n "s/.*\"$1\": *\([0-9.]*\).*/\1/p"
}

# measure_librblk VOLUME MODE BLOCK DEPTH JOBS
measure_librblk() {
    timeout 60 rblk bench --json --provider verbs --mode "$2" --block-size "$3" --depth "$4" --jobs "$5" \
        --seconds "$(seconds_of "$milliseconds")" --ramp "$(seconds_of "$ramp")" "rblk://$RDMA_ADDRESS/$1" >/tmp/bench.out || return 1
    echo "$(json_value iops </tmp/bench.out) $(json_value bytes_per_s </tmp/bench.out | awk '{ print $1 / 1e6 }') $(
        json_value p50_us </tmp/bench.out)"
}

# perftest PROGRAM ARGUMENT...: server and client; the client's line of figures
perftest() {
    local program=$1 server
    shift
    "$program" -d rxe0 -R -F "$@" >/tmp/server.out 2>&1 &
    server=$!
    if ! wait_for 20 rdma_listens 18515 || ! timeout 60 "$program" -d rxe0 -R -F "$@" "$RDMA_ADDRESS" >/tmp/client.out 2>&1; then
        cat /tmp/server.out /tmp/client.out >&2
        kill $server 2>/dev/null
        return 1
    fi
    wait $server || return 1
    awk '/^ *#bytes/ { getline; print; found = 1 } END { exit !found }' /tmp/client.out
}

# calibrated COMMAND...: perftest measures the cycle counter first, which fails on a busy machine: then latencies are
# infinite and rates 0, and it is run again.
calibrated() {
    local try figures
    for try in 1 2 3 4 5 6 7 8; do
        figures=$("$@") || return 1
        case $figures in
        *inf* | *nan* | '0 '*) echo "perftest could not calibrate its clock, try $try" >&2 ;;
        *)
            echo "$figures"
            return
            ;;
        esac
    done
    return 1
}

# One read after another; the typical latency is the median.
measure_read_lat() {
    perftest ib_read_lat -s 4096 -n "$latency_reads" | awk '{ print 1e6 / $6, 4096 / $6, $5 }'
}

# measure_read_bw BLOCK DEPTH: that many outstanding, each signalled, so that the next is posted when one is complete
measure_read_bw() {
    local reads=$((rate_reads * 4096 / $1))
    [ $reads -ge 30 ] || reads=30
    perftest ib_read_bw -s "$1" -n $reads -t "$2" -o "$2" -Q 1 | awk -v block="$1" '{ print $5 * 1e6, $5 * block, 0 }'
}

# -- rounds ------------------------------------------------------------------------------------

# take ROUND JOB SUBJECT COMMAND...: one figure, into the results and the log
take() {
    local round=$1 job=$2 subject=$3 figures user
    shift 3
    user=$(user_ticks "$TARGET")
    figures=$("$@") || fail "$subject: $job"
    user=$(($(user_ticks "$TARGET") - user))
    # shellcheck disable=SC2086 # three figures
    set -- $figures
    [ $# -eq 3 ] || fail "$subject: $job: no figures in '$figures'"
    echo "$round $job $subject $1 $2 $3" >>/tmp/results
    printf '@@json {"round": %d, "job": "%s", "subject": "%s", "iops": %.0f, "mb_per_s": %.1f, "p50_us": %.1f, "rblkd_user_ticks": %d}\n' \
        "$round" "$job" "$subject" "$1" "$2" "$3" "$user"
}

run_round() {
    local round=$1 line name rw lib_mode block depth count subjects i
    for line in "${jobs[@]}"; do
        read -r name rw lib_mode block depth count <<<"$line"
        subjects=(nvme fuse lib)
        # The quick run leaves out the limit of large reads.
        if [ "$count" = 1 ] && [[ $rw = *read ]] && { [ "$block" = 4096 ] || [ "$mode" = full ]; }; then
            subjects+=(limit)
        fi
        # Another subject goes first in each round.
        for ((i = 0; i < ${#subjects[@]}; i++)); do
            case ${subjects[$(((i + round) % ${#subjects[@]}))]} in
            nvme) take "$round" "$name" nvme-rdma measure_fio /dev/nvme0n1 "$rw" "$block" "$depth" "$count" ;;
            fuse) take "$round" "$name" rblk-fuse measure_fio /mnt/remote/disk "$rw" "$block" "$depth" "$count" ;;
            lib) take "$round" "$name" librblk measure_librblk lib "$lib_mode" "$block" "$depth" "$count" ;;
            limit)
                if [ "$depth" != 1 ] || [ "$mode" = full ]; then
                    take "$round" "$name" ib_read_bw calibrated measure_read_bw "$block" "$depth"
                fi
                [ "$depth" != 1 ] || take "$round" "$name" ib_read_lat calibrated measure_read_lat
                ;;
            esac
        done
    done
}

# read_only_run: reads through FUSE, then through librblk, and what rblkd uses meanwhile; ticks in $fuse_user, $fuse_system,
# $lib_user, $lib_system
read_only_run() {
    local user system bench
    user=$(user_ticks "$TARGET")
    system=$(system_ticks "$TARGET")
    measure_fio /mnt/remote/disk randread 4096 16 1 >/tmp/figures || fail "rblk-fuse: the read-only run"
    fuse_user=$(($(user_ticks "$TARGET") - user))
    fuse_system=$(($(system_ticks "$TARGET") - system))
    echo "rblkd during $((milliseconds / 1000)) s of $(awk '{ printf "%d", $1 }' /tmp/figures) reads per s through FUSE:" \
        "user time +$((fuse_user * 10)) ms, system time +$((fuse_system * 10)) ms"

    # The connection's start-up lies in the first second, its end in the last.
    timeout 60 rblk bench --provider verbs --mode randread --depth 16 --seconds $((milliseconds / 1000 + 1)) \
        "rblk://$RDMA_ADDRESS/lib" >/tmp/bench.out &
    bench=$!
    sleep 1
    user=$(user_ticks "$TARGET")
    system=$(system_ticks "$TARGET")
    sleep $((milliseconds / 1000 - 1))
    lib_user=$(($(user_ticks "$TARGET") - user))
    lib_system=$(($(system_ticks "$TARGET") - system))
    wait $bench || fail "librblk: the read-only run"
    echo "rblkd during $((milliseconds / 1000 - 1)) s of $(sed 's/.*: \([0-9]*\) IOPS.*/\1/' /tmp/bench.out) reads per s through" \
        "librblk: user time +$((lib_user * 10)) ms, system time +$((lib_system * 10)) ms"
    printf '@@json {"read_only_ms": %d, "fuse_user_ticks": %d, "fuse_system_ticks": %d, "librblk_user_ticks": %d, "librblk_system_ticks": %d}\n' \
        "$milliseconds" "$fuse_user" "$fuse_system" "$lib_user" "$lib_system"
}

# While volumes are only read, user time of rblkd must stand still. A tick is charged whole to whoever runs when it
# comes, in a guest that has just got its CPU back often to the wrong one: so it may take a second try.
check_target_cpu() {
    local try fuse_user fuse_system lib_user lib_system
    milliseconds=$cpu_milliseconds
    for try in 1 2 3; do
        read_only_run
        if [ "$fuse_user" -le $read_ticks_max ] && [ "$lib_user" -le $read_ticks_max ]; then
            return
        fi
        echo "user time of rblkd moved by more than $((read_ticks_max * 10)) ms, try $try"
    done
    fail "user time of rblkd moves while volumes are only read"
}

# -- the table ---------------------------------------------------------------------------------

# Medians of the rounds. Ratios are rates; at depth 1 that is the inverse of the latency's.
print_table() {
    awk -v rounds="$rounds" '
        function median(job, subject, field,    key, n, i, j, v, t) {
            key = job " " subject
            n = count[key]
            if (!n) return -1
            for (i = 1; i <= n; i++) v[i] = value[key, i, field]
            for (i = 2; i <= n; i++)
                for (j = i; j > 1 && v[j - 1] > v[j]; j--) { t = v[j]; v[j] = v[j - 1]; v[j - 1] = t }
            return n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2
        }
        function cell(number, format) { return number < 0 ? "-" : sprintf(format, number) }
        function ratio(a, b) { return a < 0 || b <= 0 ? "-" : sprintf("%.2f", a / b) }
        {
            key = $2 " " $3
            n = ++count[key]
            for (i = 4; i <= 6; i++) value[key, n, i] = $i
            if (!seen[$2]++) order[++total] = $2
        }
        END {
            printf "\nIOPS (medians of %d rounds); p50 in us\n", rounds
            format = "%-18s %10s %10s %10s %10s | %10s %10s | %8s %8s %8s\n"
            printf format, "job", "nvme-rdma", "rblk FUSE", "librblk", "ib_read_bw", "fuse/nvme", "lib/ib", "p50 nvme", "p50 fuse", "p50 lib"
            for (i = 1; i <= total; i++) {
                job = order[i]
                nvme = median(job, "nvme-rdma", 4); fuse = median(job, "rblk-fuse", 4)
                lib = median(job, "librblk", 4); ib = median(job, "ib_read_bw", 4)
                printf format, job, cell(nvme, "%.0f"), cell(fuse, "%.0f"), cell(lib, "%.0f"), cell(ib, "%.0f"),
                    ratio(fuse, nvme), ratio(lib, ib), cell(median(job, "nvme-rdma", 6), "%.1f"),
                    cell(median(job, "rblk-fuse", 6), "%.1f"), cell(median(job, "librblk", 6), "%.1f")
            }
            job = "randread-4k-qd1"
            lat = median(job, "ib_read_lat", 6); lib = median(job, "librblk", 6)
            printf "\nib_read_lat, 4 KiB, typical: %.1f us\n\n", lat
            printf "measured: %-72s %s\n", "librblk p50 / ib_read_lat typical at depth 1 (aim: at most 1.3)", ratio(lib, lat)
            printf "measured: %-72s %s\n", "librblk / ib_read_bw reads per s, 16 outstanding (aim: at least 0.9)",
                ratio(median("randread-4k-qd16", "librblk", 4), median("randread-4k-qd16", "ib_read_bw", 4))
            printf "measured: %-72s %s\n", "rblk FUSE p50 / nvme-rdma p50 at depth 1 (aim: at most 1)",
                ratio(median(job, "rblk-fuse", 6), median(job, "nvme-rdma", 6))
            printf "measured: %-72s %s\n", "rblk FUSE / nvme-rdma IOPS at depth 16 (aim: at least 1.2)",
                ratio(median("randread-4k-qd16", "rblk-fuse", 4), median("randread-4k-qd16", "nvme-rdma", 4))
        }' /tmp/results
}

guest() {
    local round begun=$SECONDS
    set_mode "$@"
    echo '@@ready'
    rdma_device rxe
    make_backing_files
    start_target disk=/srv/disk lib=/srv/lib
    start_nvme
    mount_disk
    # Each extent is mapped once; what follows finds it so.
    dd if=/mnt/remote/disk of=/dev/null bs=1M 2>/dev/null || fail "reading the mount"
    echo "bench-nvmeof: $mode, $rounds round(s) of $milliseconds ms a job, $((size >> 20)) MiB on tmpfs, set up in $((SECONDS - begun)) s, kernel $(uname -r), $(nproc) CPUs"
    for round in $(seq "$rounds"); do
        run_round "$round"
    done
    check_target_cpu
    unmount_disk
    stop_target
    echo 1 >/sys/class/nvme/nvme0/delete_controller
    print_table
    echo "took $((SECONDS - begun)) s"
    echo '@@bench-end'
}

# Runs on the host: waits for the guest's figures and stores them.
host() {
    local file=${RBLK_BENCH_JSON:-$(dirname "$(dirname "$RBLK_BUILD")")/build/bench/nvmeof-${1:-quick}.json}
    until grep -q '^@@bench-end\|^@@rblk-exit' "$RBLK_VM_WORK/console1"; do
        sleep 0.2
    done
    mkdir -p "$(dirname "$file")"
    {
        printf '{"date": "%s", "mode": "%s", "host_load": %s, "results": [\n' "$(date -u +%FT%TZ)" "${1:-quick}" \
            "$(cut -d ' ' -f 1 /proc/loadavg)"
        tr -d '\r' <"$RBLK_VM_WORK/console1" | sed -n 's/^@@json //p' | sed '$!s/$/,/'
        echo ']}'
    } >"$file"
    echo "figures stored in $file; load of this machine: $(cat /proc/loadavg)"
    grep -q '^@@bench-end' "$RBLK_VM_WORK/console1"
}
