#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# capture -- what goes over the wire, as tshark's iWARP dissectors, which we did not write, see it.
# time-limit: 200
#
# Every byte that was sent must be decoded, without a warning: MPA request and reply, and each kind of
# RDMAP message, of one and of several FPDUs, with and without CRC. capture.py checks the rest.

. "$(dirname "$0")/lib.sh"

need_root # to capture
need_foreign
need_command tshark rping ib_send_bw

run_hostile()
{
    timeout 60 hostile -c "$1" -n 1 127.0.0.1 "$TARGET_PORT" volume >hostile.out 2>&1 ||
        fail "hostile: $(cat hostile.out)"
}

capturing()
{
    [ -s capture.pcapng ]
}

# captured: dumpcap writes in bursts; a marker that is sent last has reached the file.
captured()
{
    printf '%s\n' "$marker" >"/dev/udp/127.0.0.1/$marker_port"
    grep -qaF "$marker" capture.pcapng
}

ports=()
for _ in 1 2 3; do
    ports+=("$(free_port)")
done
marker_port=$(free_port)
marker=end-of-capture-$RANDOM$RANDOM

# -B: room (MiB) for what comes while the disk is slow.
start_background tshark -Q -i lo -B 64 -w capture.pcapng -f \
    "tcp port ${ports[0]} or tcp port ${ports[1]} or tcp port ${ports[2]} or udp port $marker_port" 2>tshark.err
tshark=$BACKGROUND_PID
wait_for "$PATIENCE" capturing || fail "tshark does not capture: $(cat tshark.err)"

# 1. rping: Send, Read and Write, with CRC, in FPDUs of 4 KiB; the program compares the data.
export RBLK_SOFTRDMA_CRC=1 RBLK_SOFTRDMA_FPDU=4096
start_foreign rping -s -a 127.0.0.1 -p "${ports[0]}" -C 10 -V -S 65000 >server.out 2>&1
wait_for "$PATIENCE" port_listens "${ports[0]}" || fail "rping does not listen: $(cat server.out)"
foreign rping -c -a 127.0.0.1 -p "${ports[0]}" -C 10 -V -S 65000 >client.out 2>&1 ||
    fail "rping: $(cat client.out server.out)"
wait "$BACKGROUND_PID" || fail "rping server: $(cat server.out)"

# 2. Large Sends, with CRC, in FPDUs as they come.
unset RBLK_SOFTRDMA_FPDU
start_foreign ib_send_bw -R -p "${ports[1]}" -s 262144 -n 10 >server.out 2>&1
wait_for "$PATIENCE" port_listens "${ports[1]}" || fail "ib_send_bw does not listen: $(cat server.out)"
foreign ib_send_bw -R -p "${ports[1]}" -s 262144 -n 10 127.0.0.1 >client.out 2>&1 ||
    fail "ib_send_bw: $(cat client.out server.out)"
wait "$BACKGROUND_PID" || fail "ib_send_bw server: $(cat server.out)"

# 3. rblk itself, without CRC, and a client that reads what it may not: a Terminate.
unset RBLK_SOFTRDMA_CRC
make_disk volume 1048576
cp volume before
start_target -p "${ports[2]}" "volume=$TEST_DIR/volume"
timeout 60 rblk write "$TARGET_URI/volume" <before || fail "rblk write"
timeout 60 rblk read "$TARGET_URI/volume" >after || fail "rblk read"
assert_same_bytes before after
run_hostile access-read-wrong-key
run_hostile access-read-beyond-extent
stop_target

# The end of the capture.
wait_for "$PATIENCE" captured ||
    fail "tshark lost what was sent: $(cat tshark.err)"
kill -INT "$tshark"
wait "$tshark" || fail "tshark: $(cat tshark.err)"
! grep -qE '[1-9][0-9]* packets? dropped' tshark.err || fail "tshark dropped packets: $(cat tshark.err)"

# Segments that change places: loopback has a queue per CPU, and a sender may move to another one.
# Not what guesses that a payload may be NFS or SMB.
timeout 100 tshark -r capture.pcapng -o tcp.relative_sequence_numbers:TRUE \
    -o tcp.reassemble_out_of_order:TRUE --disable-protocol rpcordma \
    --disable-protocol smb_direct -Y tcp -T pdml >capture.pdml 2>decode.err ||
    fail "tshark cannot decode: $(cat decode.err)"
timeout 100 python3 "$ROOT/tests/integration/capture.py" capture.pdml \
    "${ports[0]}:1:0123:02" "${ports[1]}:1:3:3" "${ports[2]}:0:01237:" >decoded.out 2>&1 ||
    fail "$(cat decoded.out)"
while read -r line; do
    measured "$line"
done <decoded.out
grep -q '; Terminate 0/1/0' decoded.out || fail "no Terminate for a wrong STag: $(cat decoded.out)"
grep -q '; Terminate 0/1/1' decoded.out || fail "no Terminate for a read out of bounds: $(cat decoded.out)"
