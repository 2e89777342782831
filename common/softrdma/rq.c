/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rq.c -- receive queues: a queue pair's own, and shared ones
 */
#include "softrdma.h"

#include <stdlib.h>
#include <string.h>

/* Prepare an empty queue. Returns 0 or -ENOMEM. */
int soft_rq_init(struct soft_rq *rq, uint32_t size, uint32_t max_sge)
{
    uint32_t ring = 1;

    while (ring < size)
        ring *= 2;
    memset(rq, 0, sizeof(*rq));
    rq->size = size;
    rq->mask = ring - 1;
    rq->max_sge = max_sge > 0 ? max_sge : 1;
    rq->entry = calloc(ring, sizeof(*rq->entry));
    rq->sge = calloc((size_t)ring * rq->max_sge, sizeof(*rq->sge));
    if (rq->entry == NULL || rq->sge == NULL) {
        free(rq->entry);
        free(rq->sge);
        memset(rq, 0, sizeof(*rq));
        return -ENOMEM;
    }
    pthread_mutex_init(&rq->lock, NULL);
    return 0;
}

/* Free what soft_rq_init() took; a zeroed queue is fine. */
void soft_rq_destroy(struct soft_rq *rq)
{
    if (rq->entry == NULL)
        return;
    pthread_mutex_destroy(&rq->lock);
    free(rq->entry);
    free(rq->sge);
    memset(rq, 0, sizeof(*rq));
}

static int put_one(struct soft_rq *rq, const struct ibv_recv_wr *wr)
{
    uint32_t position = rq->tail & rq->mask;
    uint64_t length = 0;

    if (wr->num_sge < 0 || (uint32_t)wr->num_sge > rq->max_sge)
        return EINVAL;
    if (rq->tail - rq->head >= rq->size)
        return ENOMEM;
    for (int i = 0; i < wr->num_sge; i++) {
        rq->sge[(size_t)position * rq->max_sge + (uint32_t)i] = wr->sg_list[i];
        length += wr->sg_list[i].length;
    }
    if (length > UINT32_MAX)
        return EINVAL;
    rq->entry[position].wr_id = wr->wr_id;
    rq->entry[position].sges = (uint32_t)wr->num_sge;
    rq->entry[position].length = (uint32_t)length;
    rq->tail++;
    return 0;
}

/* Append a list of work requests. Returns 0 or an errno with *bad. Thread-safe, leaf lock. */
int soft_rq_post(struct soft_rq *rq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    int r = 0;

    pthread_mutex_lock(&rq->lock);
    for (; wr != NULL; wr = wr->next) {
        r = put_one(rq, wr);
        if (r != 0) {
            *bad = wr;
            break;
        }
    }
    pthread_mutex_unlock(&rq->lock);
    return r;
}

/*
 * Take the oldest work request. False when there is none. *limit_reached (may be NULL): a shared
 * queue just fell below its limit, which is then disarmed.
 */
bool soft_rq_pop(struct soft_rq *rq, struct soft_recv_wqe *wqe, bool *limit_reached)
{
    bool got = false;

    pthread_mutex_lock(&rq->lock);
    if (rq->head != rq->tail) {
        uint32_t position = rq->head & rq->mask;

        wqe->wr_id = rq->entry[position].wr_id;
        wqe->sges = rq->entry[position].sges;
        wqe->length = rq->entry[position].length;
        memcpy(wqe->sge, &rq->sge[(size_t)position * rq->max_sge], wqe->sges * sizeof(wqe->sge[0]));
        rq->head++;
        got = true;
    }
    if (limit_reached != NULL) {
        *limit_reached = rq->limit != 0 && rq->tail - rq->head < rq->limit;
        if (*limit_reached)
            rq->limit = 0;
    }
    pthread_mutex_unlock(&rq->lock);
    return got;
}

/* man ibv_create_srq. */
struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *init)
{
    struct soft_srq *srq;
    int r;

    if (!soft_usable() || pd == NULL || init->attr.max_wr < 1 ||
        init->attr.max_wr > SOFT_MAX_QP_WR || init->attr.max_sge > SOFT_MAX_SGE) {
        errno = soft_usable() ? EINVAL : EIO;
        return NULL;
    }
    srq = calloc(1, sizeof(*srq));
    if (srq == NULL)
        return NULL;
    r = soft_rq_init(&srq->rq, init->attr.max_wr, init->attr.max_sge);
    if (r < 0) {
        free(srq);
        errno = -r;
        return NULL;
    }
    srq->ibv.context = pd->context;
    srq->ibv.srq_context = init->srq_context;
    srq->ibv.pd = pd;
    pthread_mutex_init(&srq->ibv.mutex, NULL);
    pthread_cond_init(&srq->ibv.cond, NULL);
    atomic_fetch_add(&((struct soft_pd *)pd)->users, 1);
    return &srq->ibv;
}

/* man ibv_modify_srq: the limit only. */
int ibv_modify_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr, int mask)
{
    struct soft_srq *srq = (struct soft_srq *)ibsrq;

    if (mask & IBV_SRQ_MAX_WR)
        return EOPNOTSUPP;
    if (mask & IBV_SRQ_LIMIT) {
        if (attr->srq_limit > srq->rq.size)
            return EINVAL;
        pthread_mutex_lock(&srq->rq.lock);
        srq->rq.limit = attr->srq_limit;
        pthread_mutex_unlock(&srq->rq.lock);
    }
    return 0;
}

/* man ibv_query_srq. */
int ibv_query_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr)
{
    struct soft_srq *srq = (struct soft_srq *)ibsrq;

    pthread_mutex_lock(&srq->rq.lock);
    *attr = (struct ibv_srq_attr){
        .max_wr = srq->rq.size, .max_sge = srq->rq.max_sge, .srq_limit = srq->rq.limit};
    pthread_mutex_unlock(&srq->rq.lock);
    return 0;
}

/* man ibv_destroy_srq: EBUSY while queue pairs use it. */
int ibv_destroy_srq(struct ibv_srq *ibsrq)
{
    struct soft_srq *srq = (struct soft_srq *)ibsrq;

    if (srq == NULL)
        return EINVAL;
    if (atomic_load(&srq->users) > 0)
        return EBUSY;
    soft_async_forget(ibsrq->context, srq);
    atomic_fetch_sub(&((struct soft_pd *)ibsrq->pd)->users, 1);
    pthread_mutex_destroy(&ibsrq->mutex);
    pthread_cond_destroy(&ibsrq->cond);
    soft_rq_destroy(&srq->rq);
    free(srq);
    return 0;
}

/* The post_srq_recv operation. */
int soft_srq_post(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    if (!soft_usable()) {
        *bad = wr;
        return EIO;
    }
    return soft_rq_post(&((struct soft_srq *)srq)->rq, wr, bad);
}
