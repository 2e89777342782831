# SPDX-License-Identifier: BSD-2-Clause
# volumes-siw -- rblk over kernel siw: backing files on tmpfs, ext4 and xfs, model tests, fio verify, ext4 on top
# timeout: 420
# shellcheck shell=bash

guest() {
    rblk_over siw
}
