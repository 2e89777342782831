/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cm_ep.c -- queue pairs on ids, endpoints, address look-up
 */
#include "cm.h"

#include <netdb.h>
#include <stdlib.h>
#include <string.h>

static void destroy_cqs(struct rdma_cm_id *id)
{
    if (id->recv_cq != NULL)
        ibv_destroy_cq(id->recv_cq);
    if (id->send_cq != NULL && id->send_cq != id->recv_cq)
        ibv_destroy_cq(id->send_cq);
    if (id->recv_cq_channel != NULL)
        ibv_destroy_comp_channel(id->recv_cq_channel);
    if (id->send_cq_channel != NULL && id->send_cq_channel != id->recv_cq_channel)
        ibv_destroy_comp_channel(id->send_cq_channel);
    id->recv_cq = id->send_cq = NULL;
    id->recv_cq_channel = id->send_cq_channel = NULL;
}

static int create_cq(struct rdma_cm_id *id, uint32_t entries, struct ibv_comp_channel **channel,
                     struct ibv_cq **cq)
{
    *channel = ibv_create_comp_channel(id->verbs);
    if (*channel == NULL)
        return -errno;
    *cq = ibv_create_cq(id->verbs, entries > 0 ? (int)entries : 1, id, *channel, 0);
    return *cq != NULL ? 0 : -errno;
}

/*
 * man rdma_create_qp. pd NULL: one that all ids share. Completion queues that are missing are made,
 * each with a channel, and their context is the id.
 */
int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
    struct ibv_qp_init_attr own = *init;
    struct ibv_qp_attr state = {.qp_state = IBV_QPS_INIT};
    struct ibv_qp *qp;
    int r = 0;

    if (id->verbs == NULL || id->qp != NULL)
        return soft_errno(EINVAL);
    if (pd == NULL)
        pd = id->pd != NULL ? id->pd : soft_default_pd();
    if (own.send_cq == NULL) {
        r = create_cq(id, own.cap.max_send_wr, &id->send_cq_channel, &id->send_cq);
        own.send_cq = id->send_cq;
    }
    if (r == 0 && own.recv_cq == NULL) {
        r = create_cq(id, own.cap.max_recv_wr, &id->recv_cq_channel, &id->recv_cq);
        own.recv_cq = id->recv_cq;
    }
    if (own.srq == NULL)
        own.srq = id->srq;
    qp = r == 0 ? ibv_create_qp(pd, &own) : NULL;
    if (qp == NULL) {
        r = r < 0 ? -r : errno;
        destroy_cqs(id);
        return soft_errno(r);
    }
    ibv_modify_qp(qp, &state, IBV_QP_STATE);
    init->cap = own.cap;
    id->pd = pd;
    id->qp = qp;
    return 0;
}

/* man rdma_create_qp_ex: what rdma_create_qp can do. */
int rdma_create_qp_ex(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *init)
{
    struct ibv_qp_init_attr basic;
    struct ibv_pd *pd = init->comp_mask & IBV_QP_INIT_ATTR_PD ? init->pd : NULL;
    int r;

    if (init->comp_mask & ~(uint32_t)IBV_QP_INIT_ATTR_PD)
        return soft_errno(EOPNOTSUPP);
    memcpy(&basic, init, sizeof(basic)); /* the extended form begins with the basic one */
    r = rdma_create_qp(id, pd, &basic);
    if (r == 0)
        init->cap = basic.cap;
    return r;
}

/* man rdma_destroy_qp. */
void rdma_destroy_qp(struct rdma_cm_id *id)
{
    if (id->qp == NULL)
        return;
    ibv_destroy_qp(id->qp);
    id->qp = NULL;
    destroy_cqs(id);
}

/* man rdma_create_srq. */
int rdma_create_srq(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_srq_init_attr *init)
{
    struct ibv_srq *srq;

    if (id->verbs == NULL || id->srq != NULL)
        return soft_errno(EINVAL);
    if (pd == NULL)
        pd = id->pd != NULL ? id->pd : soft_default_pd();
    srq = ibv_create_srq(pd, init);
    if (srq == NULL)
        return -1;
    id->pd = pd;
    id->srq = srq;
    return 0;
}

/* man rdma_create_srq. The extended kinds (XRC, tag matching) do not exist here. */
int rdma_create_srq_ex(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex *init)
{
    struct ibv_srq_init_attr basic = {.srq_context = init->srq_context, .attr = init->attr};

    if ((init->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) && init->srq_type != IBV_SRQT_BASIC)
        return soft_errno(EOPNOTSUPP);
    return rdma_create_srq(id, init->comp_mask & IBV_SRQ_INIT_ATTR_PD ? init->pd : NULL, &basic);
}

/* man rdma_destroy_srq. */
void rdma_destroy_srq(struct rdma_cm_id *id)
{
    if (id->srq != NULL)
        ibv_destroy_srq(id->srq);
    id->srq = NULL;
}

static int create_passive_ep(struct soft_cm_id *id, struct rdma_addrinfo *address,
                             struct ibv_pd *pd, const struct ibv_qp_init_attr *init)
{
    if (rdma_bind_addr(&id->ibv, address->ai_src_addr) < 0)
        return -1;
    id->ep_pd = pd;
    if (init == NULL)
        return 0;
    id->qp_init = malloc(sizeof(*id->qp_init));
    if (id->qp_init == NULL)
        return -1;
    *id->qp_init = *init;
    id->qp_init->qp_type = (enum ibv_qp_type)address->ai_qp_type;
    return 0;
}

static int create_active_ep(struct soft_cm_id *id, struct rdma_addrinfo *address, struct ibv_pd *pd,
                            struct ibv_qp_init_attr *init)
{
    if (rdma_resolve_addr(&id->ibv, address->ai_src_addr, address->ai_dst_addr, 2000) < 0 ||
        rdma_resolve_route(&id->ibv, 2000) < 0)
        return -1;
    if (init == NULL)
        return 0;
    init->qp_type = (enum ibv_qp_type)address->ai_qp_type;
    return rdma_create_qp(&id->ibv, pd, init);
}

/* man rdma_create_ep: a synchronous id, bound or resolved, with its queue pair. */
int rdma_create_ep(struct rdma_cm_id **out, struct rdma_addrinfo *address, struct ibv_pd *pd,
                   struct ibv_qp_init_attr *init)
{
    struct rdma_cm_id *id;
    int r;

    if (rdma_create_id(NULL, &id, NULL, (enum rdma_port_space)address->ai_port_space) < 0)
        return -1;
    if (address->ai_flags & RAI_PASSIVE)
        r = create_passive_ep((struct soft_cm_id *)id, address, pd, init);
    else
        r = create_active_ep((struct soft_cm_id *)id, address, pd, init);
    if (r < 0) {
        int error = errno;

        rdma_destroy_ep(id);
        errno = error;
        return -1;
    }
    *out = id;
    return 0;
}

/* man rdma_destroy_ep. */
void rdma_destroy_ep(struct rdma_cm_id *id)
{
    if (id == NULL)
        return;
    rdma_destroy_qp(id);
    rdma_destroy_srq(id);
    rdma_destroy_id(id);
}

/* man rdma_get_request: the next connection of a synchronous listener. */
int rdma_get_request(struct rdma_cm_id *listen, struct rdma_cm_id **out)
{
    struct soft_cm_id *listener = (struct soft_cm_id *)listen;
    struct rdma_cm_event *event;
    struct rdma_cm_id *id;

    if (!listener->sync)
        return soft_errno(EINVAL);
    if (listen->event != NULL)
        rdma_ack_cm_event(listen->event);
    listen->event = NULL;
    if (rdma_get_cm_event(listen->channel, &event) < 0)
        return -1;
    if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST || event->status != 0) {
        int status = event->status;

        rdma_ack_cm_event(event);
        return soft_errno(status != 0 ? (status < 0 ? -status : status) : EINVAL);
    }
    id = event->id;
    if (rdma_migrate_id(id, NULL) < 0)
        goto fail;
    if (listener->qp_init != NULL) {
        struct ibv_qp_init_attr init = *listener->qp_init;

        if (rdma_create_qp(id, listener->ep_pd, &init) < 0)
            goto fail;
    }
    id->event = event;
    *out = id;
    return 0;
fail:
    rdma_ack_cm_event(event);
    rdma_destroy_id(id);
    return -1;
}

static int copy_address(const struct sockaddr *from, socklen_t length, struct sockaddr **to,
                        socklen_t *to_length)
{
    *to = calloc(1, sizeof(struct sockaddr_storage));
    if (*to == NULL)
        return -ENOMEM;
    memcpy(*to, from, length);
    *to_length = length;
    return 0;
}

static int convert(const struct addrinfo *found, const struct rdma_addrinfo *hints,
                   struct rdma_addrinfo **out)
{
    struct rdma_addrinfo *address = calloc(1, sizeof(*address));
    bool passive = hints != NULL && (hints->ai_flags & RAI_PASSIVE);
    int r;

    if (address == NULL)
        return -ENOMEM;
    address->ai_flags = hints != NULL ? hints->ai_flags : 0;
    address->ai_family = found->ai_family;
    address->ai_qp_type = IBV_QPT_RC;
    address->ai_port_space =
        hints != NULL && hints->ai_port_space != 0 ? hints->ai_port_space : RDMA_PS_TCP;
    if (passive)
        r = copy_address(found->ai_addr, found->ai_addrlen, &address->ai_src_addr,
                         &address->ai_src_len);
    else
        r = copy_address(found->ai_addr, found->ai_addrlen, &address->ai_dst_addr,
                         &address->ai_dst_len);
    if (r == 0 && !passive && hints != NULL && hints->ai_src_len > 0 &&
        hints->ai_src_len <= sizeof(struct sockaddr_storage))
        r = copy_address(hints->ai_src_addr, hints->ai_src_len, &address->ai_src_addr,
                         &address->ai_src_len);
    if (r < 0) {
        rdma_freeaddrinfo(address);
        return r;
    }
    *out = address;
    return 0;
}

/*
 * man rdma_getaddrinfo, by way of getaddrinfo(). Returns 0, -1 with errno, or getaddrinfo()'s
 * error as librdmacm does.
 */
int rdma_getaddrinfo(const char *node, const char *service, const struct rdma_addrinfo *hints,
                     struct rdma_addrinfo **out)
{
    struct addrinfo ask = {.ai_socktype = SOCK_STREAM}, *found;
    struct rdma_addrinfo *first = NULL, **tail = &first;
    int r;

    if (hints != NULL) {
        ask.ai_family =
            hints->ai_flags & RAI_FAMILY || hints->ai_family != 0 ? hints->ai_family : 0;
        ask.ai_flags = (hints->ai_flags & RAI_PASSIVE ? AI_PASSIVE : 0) |
                       (hints->ai_flags & RAI_NUMERICHOST ? AI_NUMERICHOST : 0);
    }
    if (node == NULL && service == NULL)
        return soft_errno(EINVAL);
    r = getaddrinfo(node, service, &ask, &found);
    if (r != 0)
        return r;
    r = 0;
    for (const struct addrinfo *at = found; at != NULL && r == 0; at = at->ai_next) {
        if (at->ai_family != AF_INET && at->ai_family != AF_INET6)
            continue;
        r = convert(at, hints, tail);
        if (r == 0)
            tail = &(*tail)->ai_next;
    }
    freeaddrinfo(found);
    if (r == 0 && first == NULL)
        r = -EAFNOSUPPORT;
    if (r < 0) {
        rdma_freeaddrinfo(first);
        return soft_errno(-r);
    }
    *out = first;
    return 0;
}

/* man rdma_freeaddrinfo. */
void rdma_freeaddrinfo(struct rdma_addrinfo *address)
{
    while (address != NULL) {
        struct rdma_addrinfo *next = address->ai_next;

        free(address->ai_src_addr);
        free(address->ai_dst_addr);
        free(address);
        address = next;
    }
}
