#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# symbols -- the software provider has each symbol that programs want, under rdma-core's versions.

. "$(dirname "$0")/lib.sh"

need_foreign
need_command nm ldconfig
export LC_ALL=C # one order for sort and comm

# exported LIBRARY: its symbols with their default versions, NAME@@VERSION.
exported()
{
    nm -D --defined-only --with-symbol-versions "$1" | awk '$3 ~ /@@/ { print $3 }' | sort -u
}

# wanted PROGRAM: what the program takes from rdma-core, as NAME@@VERSION.
wanted()
{
    nm -D --undefined-only --with-symbol-versions "$1" | awk '{ print $NF }' |
        sed -nE 's/^([^@]+)@(IBVERBS|RDMACM)_/\1@@\2_/p' | sort -u
}

# system_library NAME: its path.
system_library()
{
    ldconfig -p | awk -v name="$1" '$1 == name && !found { print $NF; found = 1 }'
}

exported "$SOFTRDMA_LIB" >have.txt
[ "$(wc -l <have.txt)" -gt 100 ] || fail "$SOFTRDMA_LIB exports almost nothing: $(cat have.txt)"

# Programs of Debian. (Those of rsockets, such as rstream, want rsockets, which the provider has not.)
programs=(rping rdma_server rdma_client ucmatose ib_read_lat ib_read_bw ib_write_lat ib_write_bw
    ib_send_lat ib_send_bw ib_atomic_lat ib_atomic_bw fio ibv_devinfo ibv_devices ibv_asyncwatch
    ibv_rc_pingpong ibv_srq_pingpong udaddy mckey cmtime)
need_command "${programs[@]}"
for program in "${programs[@]}"; do
    wanted "$(command -v "$program")" >want.txt
    [ -s want.txt ] || fail "$program wants nothing of rdma-core: is this Debian's?"
    missing=$(comm -23 want.txt have.txt)
    [ -z "$missing" ] || fail "$program wants what the provider has not: $missing"
    cat want.txt >>all.txt
done
measured "${#programs[@]} programs want $(sort -u all.txt | wc -l) symbols; the provider has $(wc -l <have.txt)"

# Our own programs and libraries likewise.
for program in "$RBLK_BUILD/bin/rblkd" "$RBLK_BUILD/bin/rblk-fuse" "$RBLK_BUILD/lib/librblk.so"; do
    wanted "$program" >want.txt
    missing=$(comm -23 want.txt have.txt)
    [ -z "$missing" ] || fail "$program wants what the provider has not: $missing"
done

# Names beyond those, which a program may be built to use.
for name in rdma_migrate_id rdma_reject rdma_notify rdma_create_srq rdma_create_srq_ex \
    rdma_destroy_srq rdma_get_src_port rdma_get_dst_port rdma_get_devices rdma_free_devices \
    ibv_free_device_list ibv_get_device_guid ibv_get_device_index ibv_modify_srq ibv_query_srq \
    ibv_resize_cq ibv_get_async_event ibv_ack_async_event ibv_query_pkey ibv_get_pkey_index \
    ibv_reg_mr_iova ibv_rereg_mr ibv_fork_init ibv_is_fork_initialized ibv_node_type_str \
    ibv_port_state_str ibv_event_type_str ibv_wc_status_str _ibv_query_gid_table ibv_query_ece \
    ibv_set_ece ibv_reg_dmabuf_mr ibv_query_qp_data_in_order; do
    grep -q "^$name@@" have.txt || fail "the provider has no $name"
done

# Whatever the system's libraries offer that takes an object must be here too: left out, it would
# reach them with an object of ours. Not so: conversions of plain numbers and structures, advice
# about address ranges, paths in sysfs, rsockets (rsocket() fails, so there are none), and what only
# drivers call.
cat >objectless.txt <<'END'
ibv_copy_ah_attr_from_kern
ibv_copy_path_rec_from_kern
ibv_copy_path_rec_to_kern
ibv_copy_qp_attr_from_kern
ibv_dofork_range
ibv_dontfork_range
ibv_get_sysfs_path
ibv_rate_to_mbps
ibv_rate_to_mult
END
for library in libibverbs.so.1 librdmacm.so.1; do
    path=$(system_library "$library")
    [ -n "$path" ] || fail "$library is not installed"
    exported "$path" | grep -E '@@(IBVERBS_1|RDMACM)' | grep -E '^_?(ibv|rdma)_' >theirs.txt
    [ -s theirs.txt ] || fail "$path exports nothing"
    missing=$(comm -23 theirs.txt have.txt | sed 's/@.*//' | grep -vxFf objectless.txt || true)
    [ -z "$missing" ] || fail "calls of $library would bypass the provider: $missing"
    # And none under a version that the system's library does not know.
    exported "$path" >theirs.txt
    sed 's/@@.*//' theirs.txt >names.txt
    unknown=$(comm -13 theirs.txt have.txt | grep -xf <(sed 's/.*/&@@.*/' names.txt) || true)
    [ -z "$unknown" ] || fail "other versions than in $library: $unknown"
done

# Nothing else leaks out of the library.
stray=$(grep -vE '@@(IBVERBS_(1\.[0-9]+|PRIVATE_34)|RDMACM_1\.[0-9])$|^rblk_softrdma_version@@' have.txt || true)
[ -z "$stray" ] || fail "unexpected symbols: $stray"
