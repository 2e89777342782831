# SPDX-License-Identifier: BSD-2-Clause
# coherence-siw -- RDMA READ over siw sees writes, holes, flushes and dropped page caches of files as it must
# timeout: 240
# shellcheck shell=bash

guest() {
    coherence_over siw
}
