#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# api_librblk -- what rblk.h promises besides moving bytes, against a real target.

. "$(dirname "$0")/lib.sh"

make_disk disk $((8 * 1048576 + 1))
make_disk constant 100000
start_target "disk=$TEST_DIR/disk" "constant=$TEST_DIR/constant,ro"
timeout 100 api_librblk "$TARGET_URI/disk" "$TARGET_URI/constant"
stop_target
