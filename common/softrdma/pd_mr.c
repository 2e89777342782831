/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pd_mr.c -- protection domains and memory regions
 *
 * An STag is 24 bits of index and 8 bits of key. The index is the slot number with four random
 * bits above it, put through a permutation that is keyed per process; the key is random. So an
 * STag cannot be guessed from others. No memory is pinned: data is copied through the virtual
 * address when it is accessed.
 */
#include "softrdma.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

#define ACCESS_SUPPORTED \
    (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_HUGETLB)

#define SLOT_BITS 20
#define INDEX_BITS 24
#define HALF_BITS (INDEX_BITS / 2)
#define HALF_MASK ((1u << HALF_BITS) - 1)
#define ROUNDS 4

_Static_assert(SOFT_CHUNKS *SOFT_CHUNK_SLOTS == 1u << SLOT_BITS, "slot numbers have 20 bits");

static struct soft_slots regions = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .capacity = SOFT_MAX_MR - 1,
};

static uint64_t permutation_key[ROUNDS];
static pthread_once_t permutation_once = PTHREAD_ONCE_INIT;

static void permutation_init(void)
{
    soft_random(permutation_key, sizeof(permutation_key));
}

static uint32_t round_function(uint32_t half, uint64_t key)
{
    uint64_t x = (half ^ key) * 0x9e3779b97f4a7c15u;

    x = (x ^ x >> 29 ^ key >> 17) * 0xbf58476d1ce4e5b9u;
    return (uint32_t)(x >> 40) & HALF_MASK;
}

static uint32_t permute(uint32_t index)
{
    uint32_t left = index >> HALF_BITS, right = index & HALF_MASK;

    for (int i = 0; i < ROUNDS; i++) {
        uint32_t next = left ^ round_function(right, permutation_key[i]);

        left = right;
        right = next;
    }
    return left << HALF_BITS | right;
}

static uint32_t unpermute(uint32_t index)
{
    uint32_t left = index >> HALF_BITS, right = index & HALF_MASK;

    for (int i = ROUNDS - 1; i >= 0; i--) {
        uint32_t previous = right ^ round_function(left, permutation_key[i]);

        right = left;
        left = previous;
    }
    return left << HALF_BITS | right;
}

/*
 * Refer to a memory region for an access of length bytes at address, checking everything that a
 * device checks. pd: that of the queue pair. On SOFT_MR_OK the caller must soft_mr_put(*mr) soon,
 * without waiting for anything in between. Thread-safe, takes no lock.
 */
enum soft_mr_error soft_mr_get(const struct ibv_pd *pd, uint32_t stag, uint64_t address,
                               uint64_t length, unsigned int access, struct soft_mr **mr)
{
    uint32_t slot = unpermute(stag >> 8) & ((1u << SLOT_BITS) - 1);
    struct soft_mr *found = soft_slots_get(&regions, slot, stag);
    enum soft_mr_error error;

    if (found == NULL)
        return SOFT_MR_STAG;
    if (found->ibv.pd != pd)
        error = SOFT_MR_PD;
    else if (address < found->iova || address - found->iova > found->ibv.length ||
             length > found->ibv.length - (address - found->iova))
        error = SOFT_MR_BOUNDS;
    else if ((found->access & access) != access)
        error = SOFT_MR_ACCESS;
    else
        error = SOFT_MR_OK;
    if (error != SOFT_MR_OK) {
        soft_mr_put(found);
        return error;
    }
    *mr = found;
    return SOFT_MR_OK;
}

/* Give a reference to a memory region back. */
void soft_mr_put(struct soft_mr *mr)
{
    soft_slots_put(&regions, mr->index);
}

/* man ibv_alloc_pd. Thread-safe. */
struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
    struct soft_pd *pd;

    if (!soft_usable()) {
        errno = EIO;
        return NULL;
    }
    pd = calloc(1, sizeof(*pd));
    if (pd == NULL)
        return NULL;
    pd->ibv.context = context;
    return &pd->ibv;
}

/* man ibv_dealloc_pd: EBUSY while anything uses it. Thread-safe. */
int ibv_dealloc_pd(struct ibv_pd *ibpd)
{
    struct soft_pd *pd = (struct soft_pd *)ibpd;

    if (pd == NULL || ibpd == soft_default_pd())
        return pd == NULL ? EINVAL : EBUSY;
    if (atomic_load(&pd->users) > 0)
        return EBUSY;
    free(pd);
    return 0;
}

/* Hardware fails with EFAULT when the range is not mapped; msync() tells without touching it. */
static bool mapped(void *address, size_t length)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = (uintptr_t)address & ~(page - 1);

    return length == 0 ||
           msync((void *)begin, (uintptr_t)address + length - begin, MS_ASYNC) == 0 ||
           errno != ENOMEM;
}

/* man ibv_reg_mr_iova2: iova is the address by which work requests name the region. */
struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *address, size_t length, uint64_t iova,
                                unsigned int access)
{
    struct soft_mr *mr;
    uint32_t stag;
    uint8_t generation, random[2];
    int error = EINVAL;

    if (!soft_usable()) {
        errno = EIO;
        return NULL;
    }
    access &= ~(unsigned int)IBV_ACCESS_OPTIONAL_RANGE;
    if (access & ~(unsigned int)ACCESS_SUPPORTED) {
        errno = EOPNOTSUPP;
        return NULL;
    }
    if (pd == NULL || length == 0 || (uintptr_t)address + length < (uintptr_t)address ||
        iova + length < iova ||
        ((access & IBV_ACCESS_REMOTE_WRITE) && !(access & IBV_ACCESS_LOCAL_WRITE)))
        goto fail;
    if (!mapped(address, length)) {
        error = EFAULT;
        goto fail;
    }
    pthread_once(&permutation_once, permutation_init);
    mr = calloc(1, sizeof(*mr));
    if (mr == NULL)
        return NULL;
    if (soft_slots_reserve(&regions, mr, &mr->index, &generation) < 0) {
        free(mr);
        error = ENOMEM;
        goto fail;
    }
    do {
        soft_random(random, sizeof(random));
        stag = permute((uint32_t)(random[0] & 0x0f) << SLOT_BITS | mr->index) << 8 | random[1];
    } while (stag == 0);
    mr->ibv = (struct ibv_mr){
        .context = pd->context,
        .pd = pd,
        .addr = address,
        .length = length,
        .handle = mr->index,
        .lkey = stag,
        .rkey = stag,
    };
    mr->iova = iova;
    mr->access = access;
    atomic_fetch_add(&((struct soft_pd *)pd)->users, 1);
    soft_slots_publish(&regions, mr->index, stag);
    return &mr->ibv;
fail:
    errno = error;
    return NULL;
}

/* man ibv_reg_mr. Thread-safe. */
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *address, size_t length, int access)
{
    return ibv_reg_mr_iova2(pd, address, length, (uintptr_t)address, (unsigned int)access);
}

/* man ibv_reg_mr. Thread-safe. */
struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *address, size_t length, uint64_t iova,
                               int access)
{
    return ibv_reg_mr_iova2(pd, address, length, iova, (unsigned int)access);
}

/* man ibv_dereg_mr: when it returns, no access to the memory is under way. Thread-safe. */
int ibv_dereg_mr(struct ibv_mr *ibmr)
{
    struct soft_mr *mr = (struct soft_mr *)ibmr;

    if (mr == NULL)
        return EINVAL;
    if (soft_usable())
        soft_slots_retire(&regions, mr->index);
    atomic_fetch_sub(&((struct soft_pd *)ibmr->pd)->users, 1);
    free(mr);
    return 0;
}
