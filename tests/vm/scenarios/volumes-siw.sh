# SPDX-License-Identifier: BSD-2-Clause
# volumes-siw -- rblk over kernel siw: model test and fio verify, backing files on tmpfs, ext4 and xfs
# timeout: 420
# shellcheck shell=bash

guest() {
    volumes_over siw
}
