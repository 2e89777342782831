# SPDX-License-Identifier: BSD-2-Clause
# power-cut-siw -- two guests and a network: the target's machine loses its power under load over siw
# guests: 2
# timeout: 420
# shellcheck shell=bash

guest() {
    power_cut_over siw
}
