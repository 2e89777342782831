# SPDX-License-Identifier: BSD-2-Clause
# integration-rxe -- the integration suite, or the tests of it that are named, over Soft-RoCE in one guest
# timeout: 900
# disk: 4G
# shellcheck shell=bash

guest() {
    integration_over rxe "$@"
}
