# SPDX-License-Identifier: BSD-2-Clause
# coherence-rxe -- RDMA READ over Soft-RoCE sees writes, holes, flushes and dropped page caches of files as it must
# timeout: 240
# shellcheck shell=bash

guest() {
    coherence_over rxe
}
