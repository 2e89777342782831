#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# ibv_devinfo -- ibv_devinfo and ibv_devices, unmodified, show the software provider's device.

. "$(dirname "$0")/lib.sh"

# ended_with_error STATUS: not 0, and not because timeout ended it.
ended_with_error()
{
    [ "$1" -ne 0 ] && [ "$1" -ne 124 ] && [ "$1" -ne 137 ]
}

need_foreign
need_command ibv_devinfo ibv_devices

foreign ibv_devices >devices.out 2>&1 || fail "ibv_devices: $(cat devices.out)"
grep -qE '^ *softrdma0[[:space:]]+[0-9a-f]{16}$' devices.out || fail "ibv_devices: $(cat devices.out)"
assert_equal "$(wc -l <devices.out)" 3 "lines of ibv_devices"

foreign ibv_devinfo -l >list.out 2>&1 || fail "ibv_devinfo -l: $(cat list.out)"
grep -q '^1 HCA found' list.out || fail "ibv_devinfo -l: $(cat list.out)"

# shown PATTERN: a line of ibv_devinfo -v.
shown()
{
    grep -qE -- "^[[:space:]]*$1$" info.out || fail "ibv_devinfo shows no \"$1\": $(cat info.out)"
}

foreign ibv_devinfo -v -d softrdma0 -i 1 >info.out 2>&1 || fail "ibv_devinfo -v: $(cat info.out)"
shown 'transport:[[:space:]]+iWARP \(1\)'
shown 'state:[[:space:]]+PORT_ACTIVE \(4\)'
shown 'link_layer:[[:space:]]+Ethernet'
shown 'max_qp_rd_atom:[[:space:]]+128'
shown 'atomic_cap:[[:space:]]+ATOMIC_NONE \(0\)'
shown 'max_mw:[[:space:]]+0'
shown 'GID\[ *0\]:[[:space:]]+fe80:.*'
! grep -qi 'fail' info.out || fail "ibv_devinfo: $(cat info.out)"

# The device that is shown is the one whose node GUID ibv_devices shows.
assert_equal "$(sed -nE 's/^.*node_guid:[[:space:]]+//p' info.out | tr -d :)" \
    "$(awk '$1 == "softrdma0" { print $2 }' devices.out)" "node GUID"

# No such device, no such port.
for options in '-d nosuch' '-d softrdma0 -i 2'; do
    status=0
    # shellcheck disable=SC2086 # several words
    foreign ibv_devinfo $options >info.out 2>&1 || status=$?
    ended_with_error "$status" || fail "ibv_devinfo $options: status $status: $(cat info.out)"
done
