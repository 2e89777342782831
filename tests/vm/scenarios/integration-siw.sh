# SPDX-License-Identifier: BSD-2-Clause
# integration-siw -- the integration suite, or the tests of it that are named, over siw in one guest
# timeout: 900
# disk: 4G
# shellcheck shell=bash

guest() {
    integration_over siw "$@"
}
