#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# read_counters -- reads run no target code: thousands of them leave the target's counters as they were.

. "$(dirname "$0")/lib.sh"

make_disk disk $((16 * 1048576))
start_target "disk=$TEST_DIR/disk"

# own_ticks: CPU time in user mode of the threads of rblkd that are not the provider's.
own_ticks()
{
    local task ticks=0 fields
    for task in "/proc/$TARGET_PID/task/"*; do
        case $(cat "$task/comm") in
        *softrdma*) continue ;;
        esac
        fields=$(sed 's/.*) //' "$task/stat")
        ticks=$((ticks + $(echo "$fields" | cut -d ' ' -f 12)))
    done
    echo "$ticks"
}

before=$(own_ticks)
begun=$(now_ms)
timeout 100 read_counters "$TARGET_URI/disk" "$(scaled 20000)"
took=$(($(now_ms) - begun))
own=$((($(own_ticks) - before) * 1000 / $(getconf CLK_TCK)))
measured "CPU user time of rblkd outside the provider meanwhile: $own ms of $took ms"
# Connecting, mapping and a few ticks of rounding; nothing that grows with the reads.
[ "$own" -le $((30 + took / 20)) ] || fail "rblkd itself was busy for $own ms while it was read from"
stop_target
