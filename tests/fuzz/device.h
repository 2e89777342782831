/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * device.h -- the software device inside a fuzz target: one thread, memory with guards, no clock
 *
 * A queue pair is given a worker that nobody runs, so its receive side moves only when the target
 * calls it and a given input always does the same. Memory regions lie between poisoned guards and
 * are named by fixed addresses; their keys, which are random, stand in an input as "STG0" to "STG5".
 */
#ifndef RBLK_TESTS_FUZZ_DEVICE_H
#define RBLK_TESTS_FUZZ_DEVICE_H

#include "fuzz.h"

#include <sanitizer/allocator_interface.h>
#include <sanitizer/asan_interface.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/softrdma/cm.h"

#define GUARD 4096u
#define REGION 16384u
#define GUARD_BYTE 0xee
#define SECRET_BYTE 0xdd

/* What a queue pair may take, whatever its peer sends: its queues and buffers, and a margin. */
#define MEMORY_BOUND (1u << 20)

enum region {
    REGION_WRITABLE, /* by the peer */
    REGION_READABLE, /* by the peer; all its bytes are below 0x80 */
    REGION_RECEIVE,  /* receives are posted here */
    REGION_FOREIGN,  /* another protection domain */
    REGION_ODD,      /* writable by the peer, at an odd address, 13 bytes */
    REGION_SINK,     /* of the queue pair's own reads */
    REGIONS,
};

static const struct {
    uint64_t iova;
    uint32_t skip, length;
    unsigned int access;
} device_layout[REGIONS] = {
    [REGION_WRITABLE] = {0x10000, 0, REGION, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE},
    [REGION_READABLE] = {0x20000, 0, REGION, IBV_ACCESS_REMOTE_READ},
    [REGION_RECEIVE] = {0x30000, 0, REGION, IBV_ACCESS_LOCAL_WRITE},
    [REGION_FOREIGN] = {0x40000, 0, REGION,
                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ},
    [REGION_ODD] = {0x50003, 3, 13, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE},
    [REGION_SINK] = {0x60000, 0, REGION, IBV_ACCESS_LOCAL_WRITE},
};

static struct {
    struct ibv_context *context;
    struct ibv_pd *pd, *foreign_pd;
    struct ibv_mr *mr[REGIONS];
    uint8_t *memory[REGIONS]; /* the region's first byte */
    uint8_t *arena;
    size_t arena_size;
    struct soft_worker worker;
} device;

static inline uint8_t readable_byte(size_t i)
{
    return (uint8_t)(i * 7 + (i >> 8)) & 0x7f;
}

static inline void device_poison(bool poison)
{
    for (uint32_t i = 0; i <= REGIONS; i++) {
        const uint8_t *guard = device.arena + (size_t)i * (GUARD + REGION);

        if (poison)
            ASAN_POISON_MEMORY_REGION(guard, GUARD);
        else
            ASAN_UNPOISON_MEMORY_REGION(guard, GUARD);
    }
}

/* Memory as it is before an input. */
static inline void device_reset(void)
{
    uint64_t ignored;

    device_poison(false);
    memset(device.arena, GUARD_BYTE, device.arena_size);
    for (uint32_t i = 0; i < REGIONS; i++)
        memset(device.memory[i], SECRET_BYTE, device_layout[i].length);
    for (size_t i = 0; i < REGION; i++)
        device.memory[REGION_READABLE][i] = readable_byte(i);
    device_poison(true);
    if (read(device.worker.wake_fd, &ignored, sizeof(ignored)) < 0)
        FUZZ_CHECK(errno == EAGAIN);
}

static inline bool is_all(const uint8_t *memory, size_t length, uint8_t byte)
{
    return length == 0 || (memory[0] == byte && memcmp(memory, memory + 1, length - 1) == 0);
}

/* Nothing but what the peer may write has changed. */
static inline void device_check(void)
{
    const uint8_t *odd = device.arena + 4 * (GUARD + REGION) + GUARD;

    device_poison(false);
    for (uint32_t i = 0; i <= REGIONS; i++)
        FUZZ_CHECK(is_all(device.arena + (size_t)i * (GUARD + REGION), GUARD, GUARD_BYTE));
    FUZZ_CHECK(is_all(odd, device_layout[REGION_ODD].skip, GUARD_BYTE));
    FUZZ_CHECK(is_all(odd + 16, REGION - 16, GUARD_BYTE));
    FUZZ_CHECK(is_all(device.memory[REGION_FOREIGN], REGION, SECRET_BYTE));
    for (size_t i = 0; i < REGION; i++)
        FUZZ_CHECK(device.memory[REGION_READABLE][i] == readable_byte(i));
    device_poison(true);
}

/* A queue pair whose worker is this program. */
static inline struct soft_qp *device_qp(struct ibv_cq *cq, struct ibv_srq *srq)
{
    struct ibv_qp_init_attr init = {
        .send_cq = cq,
        .recv_cq = cq,
        .srq = srq,
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 16,
                .max_recv_wr = 16,
                .max_send_sge = 3,
                .max_recv_sge = 3,
                .max_inline_data = 64},
    };
    struct ibv_qp_attr ready = {.qp_state = IBV_QPS_INIT};
    struct soft_qp *qp = (struct soft_qp *)ibv_create_qp(device.pd, &init);

    FUZZ_CHECK(qp != NULL);
    qp->worker = &device.worker;
    FUZZ_CHECK(ibv_modify_qp(&qp->ibv, &ready, IBV_QP_STATE) == 0);
    return qp;
}

static inline void device_open(void)
{
    struct ibv_device **list;
    struct ibv_cq *cq;

    if (device.context != NULL)
        return;
    list = ibv_get_device_list(NULL);
    FUZZ_CHECK(list != NULL);
    device.context = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    FUZZ_CHECK(device.context != NULL);
    device.pd = ibv_alloc_pd(device.context);
    device.foreign_pd = ibv_alloc_pd(device.context);
    FUZZ_CHECK(device.pd != NULL && device.foreign_pd != NULL);
    device.arena_size = REGIONS * (GUARD + REGION) + GUARD;
    device.arena =
        mmap(NULL, device.arena_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    FUZZ_CHECK(device.arena != MAP_FAILED);
    for (uint32_t i = 0; i < REGIONS; i++) {
        device.memory[i] =
            device.arena + (size_t)i * (GUARD + REGION) + GUARD + device_layout[i].skip;
        device.mr[i] = ibv_reg_mr_iova2(i == REGION_FOREIGN ? device.foreign_pd : device.pd,
                                        device.memory[i], device_layout[i].length,
                                        device_layout[i].iova, device_layout[i].access);
        FUZZ_CHECK(device.mr[i] != NULL);
    }
    pthread_mutex_init(&device.worker.lock, NULL);
    device.worker.number = 1;
    device.worker.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    device.worker.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    FUZZ_CHECK(device.worker.epoll_fd >= 0 && device.worker.wake_fd >= 0);
    /* The first queue pair makes tables that stay. */
    cq = ibv_create_cq(device.context, 1, NULL, NULL, 0);
    FUZZ_CHECK(cq != NULL && ibv_destroy_qp(&device_qp(cq, NULL)->ibv) == 0);
    FUZZ_CHECK(ibv_destroy_cq(cq) == 0);
}

/* Puts the keys of the regions where the input names them. */
static inline void device_name_keys(uint8_t *stream, size_t length)
{
    for (size_t i = 0; i + 4 <= length; i++) {
        if (memcmp(stream + i, "STG", 3) != 0 || stream[i + 3] < '0' ||
            stream[i + 3] >= '0' + REGIONS)
            continue;
        uint32_t key = __builtin_bswap32(device.mr[stream[i + 3] - '0']->rkey);

        memcpy(stream + i, &key, sizeof(key));
        i += 3;
    }
}

/* Receives what a stream socket holds, as long as that makes progress. */
static inline void device_drive(struct soft_qp *qp)
{
    /* Each call takes something or ends the loop; far more calls than any input needs. */
    for (int i = 0; i < 10000; i++)
        if (!soft_rx_drive(qp, true))
            return;
    FUZZ_CHECK(!"the receive side does not come to an end");
}

/* After all was given: it is consumed, or the queue pair is in error and lets go in time. */
static inline void device_settle(struct soft_qp *qp)
{
    int left = 0;

    for (int i = 0; i < 100 && qp->fd >= 0 && !qp->tx.closed; i++) {
        FUZZ_CHECK(ioctl(qp->fd, FIONREAD, &left) == 0);
        if (left == 0)
            break;
        soft_rx_drive(qp, true);
    }
    FUZZ_CHECK(left == 0 || atomic_load(&qp->state) == IBV_QPS_ERR);
    if (atomic_load(&qp->state) != IBV_QPS_ERR || qp->fd < 0)
        return;
    soft_qp_tick(qp, soft_now_us() + 2 * SOFT_LINGER_MS * 1000u);
    FUZZ_CHECK(qp->deadline_us == 0 && qp->tx.closed && !qp->epoll_registered);
}

/* ------------------------------------------------------------------------------------------
 * What the device sends.
 */
struct device_output {
    uint8_t bytes[2 * 65536];
    size_t length;
    bool crc, ended;
    uint64_t frames;
};

static inline void output_frame(struct device_output *out, const struct iwarp_segment *s,
                                size_t length)
{
    const uint8_t *payload = out->bytes + s->header_length;

    FUZZ_CHECK(!out->ended); /* a Terminate is the last */
    out->frames++;
    out->ended = s->opcode == IWARP_TERMINATE;
    if (out->crc)
        FUZZ_CHECK(iwarp_crc32c(0, out->bytes, length - IWARP_TRAILER) ==
                   iwarp_crc_load(out->bytes + length - IWARP_TRAILER));
    if (s->opcode == IWARP_READ_RESPONSE)
        for (uint32_t i = 0; i < s->payload_length; i++)
            FUZZ_CHECK(payload[i] < 0x80); /* only the readable region has such bytes alone */
}

static inline void output_parse(struct device_output *out)
{
    struct iwarp_segment s;
    struct iwarp_error error;

    for (;;) {
        int n = iwarp_segment_decode(out->bytes, out->length, &s, &error);
        size_t length;

        FUZZ_CHECK(n >= 0);
        if (n == 0)
            return;
        length = s.header_length + s.payload_length + s.padding + IWARP_TRAILER;
        if (length > out->length)
            return;
        output_frame(out, &s, length);
        out->length -= length;
        memmove(out->bytes, out->bytes + length, out->length);
    }
}

/* Reads what the device has sent; returns how much it was. */
static inline size_t output_read(struct device_output *out, int fd)
{
    size_t total = 0;

    for (;;) {
        ssize_t n =
            recv(fd, out->bytes + out->length, sizeof(out->bytes) - out->length, MSG_DONTWAIT);

        if (n <= 0)
            return total;
        out->length += (size_t)n;
        total += (size_t)n;
        output_parse(out);
    }
}

#endif
