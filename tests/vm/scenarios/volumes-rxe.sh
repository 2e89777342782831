# SPDX-License-Identifier: BSD-2-Clause
# volumes-rxe -- rblk over kernel Soft-RoCE: model test and fio verify, backing files on tmpfs, ext4 and xfs
# timeout: 420
# shellcheck shell=bash

guest() {
    volumes_over rxe
}
