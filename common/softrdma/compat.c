/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * compat.c -- verbs that the device does not have: each answers with an error
 *
 * They must exist: a verb left out would reach the system's libibverbs, which would take our
 * objects for its own. Two helpers that touch no object stand here too, so that programs also find
 * them when this library takes the place of rdma-core's.
 */
#include "softrdma.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include <rdma/rsocket.h>

/* man ibv_rereg_mr. */
int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *address, size_t length,
                 int access)
{
    (void)mr;
    (void)flags;
    (void)pd;
    (void)address;
    (void)length;
    (void)access;
    errno = EOPNOTSUPP;
    return IBV_REREG_MR_ERR_INPUT;
}

/* man ibv_reg_dmabuf_mr. */
struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova,
                                 int fd, int access)
{
    (void)pd;
    (void)offset;
    (void)length;
    (void)iova;
    (void)fd;
    (void)access;
    errno = EOPNOTSUPP;
    return NULL;
}

/* man ibv_resize_cq. */
int ibv_resize_cq(struct ibv_cq *cq, int entries)
{
    (void)cq;
    (void)entries;
    return EOPNOTSUPP;
}

/* man ibv_create_ah: no datagrams. */
struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
    (void)pd;
    (void)attr;
    errno = EOPNOTSUPP;
    return NULL;
}

/* man ibv_create_ah_from_wc. */
struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh,
                                     uint8_t port)
{
    (void)pd;
    (void)wc;
    (void)grh;
    (void)port;
    errno = EOPNOTSUPP;
    return NULL;
}

/* man ibv_create_ah_from_wc. */
int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port, struct ibv_wc *wc,
                        struct ibv_grh *grh, struct ibv_ah_attr *attr)
{
    (void)context;
    (void)port;
    (void)wc;
    (void)grh;
    (void)attr;
    return soft_errno(EOPNOTSUPP);
}

/* man ibv_create_ah. */
int ibv_destroy_ah(struct ibv_ah *ah)
{
    (void)ah;
    return EOPNOTSUPP;
}

/* man ibv_attach_mcast. */
int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
    (void)qp;
    (void)gid;
    (void)lid;
    return EOPNOTSUPP;
}

/* man ibv_attach_mcast. */
int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
    (void)qp;
    (void)gid;
    (void)lid;
    return EOPNOTSUPP;
}

/* The extended posting interface: programs fall back to ibv_post_send. */
struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
    (void)qp;
    errno = EOPNOTSUPP;
    return NULL;
}

/* man ibv_query_ece. */
int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
    (void)qp;
    (void)ece;
    return EOPNOTSUPP;
}

/* man ibv_set_ece. */
int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
    (void)qp;
    (void)ece;
    return EOPNOTSUPP;
}

/* man ibv_query_qp_data_in_order: never promised. */
int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
    (void)qp;
    (void)op;
    (void)flags;
    return 0;
}

/* man ibv_fork_init: nothing is pinned, so a fork harms no memory region. */
int ibv_fork_init(void)
{
    return 0;
}

/* man ibv_is_fork_initialized. */
enum ibv_fork_status ibv_is_fork_initialized(void)
{
    return IBV_FORK_UNNEEDED;
}

/* man ibv_import_device. */
struct ibv_context *ibv_import_device(int fd)
{
    (void)fd;
    errno = EOPNOTSUPP;
    return NULL;
}

/* man ibv_import_pd. */
struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t handle)
{
    (void)context;
    (void)handle;
    errno = EOPNOTSUPP;
    return NULL;
}

/* man ibv_import_pd. */
void ibv_unimport_pd(struct ibv_pd *pd)
{
    (void)pd;
}

/* man ibv_import_mr. */
struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t handle)
{
    (void)pd;
    (void)handle;
    errno = EOPNOTSUPP;
    return NULL;
}

/* man ibv_import_mr. */
void ibv_unimport_mr(struct ibv_mr *mr)
{
    (void)mr;
}

/* man ibv_import_dm. */
struct ibv_dm *ibv_import_dm(struct ibv_context *context, uint32_t handle)
{
    (void)context;
    (void)handle;
    errno = EOPNOTSUPP;
    return NULL;
}

/* man ibv_import_dm. */
void ibv_unimport_dm(struct ibv_dm *dm)
{
    (void)dm;
}

/* The link-layer address behind a GID, for address handles, which do not exist here. */
int ibv_resolve_eth_l2_from_gid(struct ibv_context *context, struct ibv_ah_attr *attr,
                                uint8_t mac[ETHERNET_LL_SIZE], uint16_t *vlan)
{
    (void)context;
    (void)attr;
    (void)mac;
    (void)vlan;
    return soft_errno(EOPNOTSUPP);
}

/*
 * libibverbs' helper behind ibv_devinfo: the first bytes of folder/file, without a newline at the
 * end. Returns how many, or -1. No installed header declares it.
 */
int ibv_read_sysfs_file(const char *folder, const char *file, char *buffer, size_t size);
int ibv_read_sysfs_file(const char *folder, const char *file, char *buffer, size_t size)
{
    char path[PATH_MAX];
    int fd, length;
    ssize_t n;

    length = snprintf(path, sizeof(path), "%s/%s", folder, file);
    if (length < 0 || (size_t)length >= sizeof(path))
        return -1;
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    n = read(fd, buffer, size);
    close(fd);
    if (n > 0 && buffer[n - 1] == '\n')
        buffer[--n] = '\0';
    else if (n >= 0 && (size_t)n < size)
        buffer[n] = '\0';
    return (int)n;
}

/* man rsocket: there are none here. */
int rsocket(int domain, int type, int protocol)
{
    (void)domain;
    (void)type;
    (void)protocol;
    return soft_errno(EOPNOTSUPP);
}

/* man rsocket: as there are no rsockets, every descriptor is an ordinary one. */
int rpoll(struct pollfd *fds, nfds_t count, int timeout)
{
    return poll(fds, count, timeout);
}

/* man rdma_join_multicast. */
int rdma_join_multicast(struct rdma_cm_id *id, struct sockaddr *address, void *context)
{
    (void)id;
    (void)address;
    (void)context;
    return soft_errno(EOPNOTSUPP);
}

/* man rdma_join_multicast_ex. */
int rdma_join_multicast_ex(struct rdma_cm_id *id, struct rdma_cm_join_mc_attr_ex *attr,
                           void *context)
{
    (void)id;
    (void)attr;
    (void)context;
    return soft_errno(EOPNOTSUPP);
}

/* man rdma_leave_multicast. */
int rdma_leave_multicast(struct rdma_cm_id *id, struct sockaddr *address)
{
    (void)id;
    (void)address;
    return soft_errno(EOPNOTSUPP);
}

/* man rdma_set_local_ece. */
int rdma_set_local_ece(struct rdma_cm_id *id, struct ibv_ece *ece)
{
    (void)id;
    (void)ece;
    return soft_errno(EOPNOTSUPP);
}

/* man rdma_get_remote_ece. */
int rdma_get_remote_ece(struct rdma_cm_id *id, struct ibv_ece *ece)
{
    (void)id;
    (void)ece;
    return soft_errno(EOPNOTSUPP);
}

/* man rdma_reject_ece: a plain reject. */
int rdma_reject_ece(struct rdma_cm_id *id, const void *private_data, uint8_t length)
{
    return rdma_reject(id, private_data, length);
}
