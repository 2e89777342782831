#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# extent_recall -- extents are given back while they are read: no read fails, none is wrong.

. "$(dirname "$0")/lib.sh"

timeout 60 extent_recall "$TEST_ADDRESS" 5 "$TEST_SEED"
