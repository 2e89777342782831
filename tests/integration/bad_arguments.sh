#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# bad_arguments -- sizes, numbers, names, URIs and options that make no sense are refused in one line.

. "$(dirname "$0")/lib.sh"

make_disk disk 4096
mkdir mnt
export_disk="disk=$TEST_DIR/disk"
port=$(free_port)

# URIs, for every command that takes one.
uris=(
    '' 'disk' 'http://127.0.0.1/disk' 'rblk:/127.0.0.1/disk' 'rblk://' 'rblk:///disk'
    'rblk://127.0.0.1:0/disk' 'rblk://127.0.0.1:65536/disk' 'rblk://127.0.0.1:abc/disk'
    'rblk://127.0.0.1:/disk' 'rblk://127.0.0.1:-1/disk' 'rblk://127.0.0.1:7470x/disk'
    'rblk://[::1/disk' 'rblk://[]/disk' 'rblk://127.0.0.1/../etc' 'rblk://127.0.0.1/a/b'
    'rblk://127.0.0.1/-disk' 'rblk://127.0.0.1/.disk' 'rblk://127.0.0.1/di sk'
    "rblk://127.0.0.1/$(printf 'x%.0s' {1..64})" "rblk://$(printf 'h%.0s' {1..300})/disk"
)
for uri in "${uris[@]}"; do
    expect_failure 'rblk://|names no volume' rblk info "$uri"
done
for command in list ping; do
    expect_failure 'rblk://' rblk "$command" 'http://127.0.0.1'
    expect_failure 'rblk://' rblk "$command" 'rblk://127.0.0.1:99999'
done

# Options of the initiator.
good=rblk://$TEST_ADDRESS:$port/disk
for option in --no-such-option --queues=0 --queues=65 --queues=two --queues= --queue-depth=0 \
    --queue-depth=257 --queue-depth=1.5 --pool-size=1 --pool-size=lots --pool-size=-2M \
    --pool-size=99999999999999999999 --timeout=0 --timeout=-1 --timeout=never --provider=fast \
    --spin=-1 --log-level=loud -ono_such_option -oqueues=0 --cache; do
    expect_failure "$(sed 's/^--//; s/^-o//; s/=.*//' <<<"$option")" \
        rblk mount "$option" "$good" "$TEST_DIR/mnt"
done
expect_failure 'rblk://' rblk mount 'rblk://127.0.0.1:0/disk' "$TEST_DIR/mnt"
expect_failure 'volume' rblk mount 'rblk://127.0.0.1' "$TEST_DIR/mnt"
expect_failure 'ro.*shared' rblk mount --ro --shared "$good" "$TEST_DIR/mnt"
expect_failure 'mount' rblk mount "$good"
expect_failure 'argument' rblk mount "$good" "$TEST_DIR/mnt" more
expect_failure 'argument' rblk list "$good" more
expect_failure 'no-such-command' rblk no-such-command
expect_failure 'no-such-thing' rblk info --can no-such-thing "$good"
expect_failure 'no-such-option' rblk info --no-such-option "$good"
RBLK_PROVIDER=fast expect_failure 'fast' rblk list "rblk://$TEST_ADDRESS:$port"
assert_nothing_mounted "$TEST_DIR/mnt"

# Options of the target.
for option in --no-such-option --listen=127.0.0.1:0x1 --listen=127.0.0.1:70000 --listen=[::1 \
    --threads=-1 --threads=1000 --extent-size=3000 --extent-size=12345678 --extent-size=64Q \
    --queue-depth=0 --queue-depth=1000 --max-queues=0 --inline=1T --staging=1 --staging=100000 \
    --max-clients=0 --spin=-3 --log-level=loud --provider=fast; do
    expect_failure "$(sed 's/^--//; s/=.*//' <<<"$option")|address" rblkd "$option" "$export_disk"
done
expect_failure 'no-such-host\.invalid' rblkd --listen no-such-host.invalid "$export_disk"
expect_failure '203\.0\.113\.9' rblkd --listen "203.0.113.9:$port" "$export_disk"
expect_failure 'volume' rblkd --listen "$TEST_ADDRESS:$port"
expect_failure '(option|volume).*-x' rblkd --listen "$TEST_ADDRESS:$port" "-x=$TEST_DIR/disk"
for volume in disk =x "disk=" "a/b=$TEST_DIR/disk" "a b=$TEST_DIR/disk" \
    "$(printf 'x%.0s' {1..64})=$TEST_DIR/disk"; do
    expect_failure 'NAME=PATH|name|path|unknown' rblkd --listen "$TEST_ADDRESS:$port" "$volume"
done
expect_failure 'pidfile|no-such-folder' rblkd --listen "$TEST_ADDRESS:$port" \
    --pidfile "$TEST_DIR/no-such-folder/pid" "$export_disk"

# The configuration file: the line is named.
refused_config()
{
    printf '%b' "$2" >bad.conf
    expect_failure "$1" rblkd --listen "$TEST_ADDRESS:$port" --config "$TEST_DIR/bad.conf"
}
expect_failure 'missing\.conf' rblkd --config "$TEST_DIR/missing.conf" "$export_disk"
refused_config 'bad\.conf:2: .*colour' '[target]\ncolour = blue\n'
refused_config 'bad\.conf:2: .*queue-depth' '[target]\nqueue-depth = many\n'
refused_config 'bad\.conf:1: .*section' '[elsewhere]\nx = y\n'
refused_config 'bad\.conf:2' '[target]\nthis is no line\n'
refused_config 'bad\.conf:3: .*read-only' "[volume disk]\npath = $TEST_DIR/disk\nread-only = perhaps\n"
refused_config 'disk.*path' '[volume disk]\n'
! port_listens "$port" || fail "a refused target listens"
