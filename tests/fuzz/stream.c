/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * stream -- a queue pair's receive path, fed with an arbitrary byte stream cut at arbitrary places
 *
 * The input begins with eight bytes that set the scene (struct scene); the rest is what the peer
 * sends after the MPA handshake. Afterwards: only memory that the peer may write has changed, only
 * memory that it may read was sent, the stream is consumed or the queue pair is in error, every
 * work request has completed once, and all memory is free again.
 */
#include "device.h"

#define RECEIVE_SLOT 1800u
#define RECEIVES_MAX 8u
#define SENDS_MAX 8u
#define STREAM_MAX 65536u

struct scene {
    bool crc, repair_crc, shared_queue, reads_nothing, half_close, polls, disconnects, posts_late;
    uint32_t ird, receives, receive_length, reads, sends;
    uint32_t random;
};

struct run {
    struct scene scene;
    struct soft_qp *qp;
    struct ibv_cq *cq;
    struct ibv_srq *srq;
    int peer;
    struct device_output *output;
    uint32_t receives_posted, receives_done, sends_posted, sends_done;
    uint32_t receives_seen, sends_seen; /* bit per work request */
};

static struct device_output output;

static struct scene read_scene(struct fuzz_input *in)
{
    uint8_t flags = fuzz_byte(in);
    struct scene scene = {
        .crc = flags & 0x01,
        .repair_crc = flags & 0x02,
        .shared_queue = flags & 0x04,
        .reads_nothing = flags & 0x08,
        .half_close = flags & 0x10,
        .polls = flags & 0x20,
        .disconnects = flags & 0x40,
        .posts_late = flags & 0x80,
    };

    scene.ird = fuzz_byte(in) % (SOFT_MAX_RD_ATOMIC + 1);
    scene.receives = fuzz_byte(in) % (RECEIVES_MAX + 1);
    scene.receive_length = fuzz_byte(in) * 8u % (RECEIVE_SLOT - 8);
    scene.reads = fuzz_byte(in) % 5;
    scene.sends = fuzz_byte(in) % 4;
    scene.random = fuzz_byte(in);
    scene.random |= (uint32_t)fuzz_byte(in) << 8;
    return scene;
}

/* Each in three pieces, the last at an odd address. */
static void post_receive(struct run *run)
{
    uint32_t n = run->receives_posted, length = run->scene.receive_length;
    uint64_t at = device_layout[REGION_RECEIVE].iova + n * RECEIVE_SLOT;
    uint32_t key = device.mr[REGION_RECEIVE]->lkey;
    struct ibv_sge sge[3] = {{at, length / 3, key},
                             {at + length / 3, 0, key},
                             {at + length / 3 + 3, length - length / 3, key}};
    struct ibv_recv_wr wr = {.wr_id = n, .sg_list = sge, .num_sge = 3}, *bad;
    int r;

    if (n >= RECEIVES_MAX)
        return;
    r = run->srq != NULL ? ibv_post_srq_recv(run->srq, &wr, &bad)
                         : ibv_post_recv(&run->qp->ibv, &wr, &bad);
    FUZZ_CHECK(r == 0);
    run->receives_posted++;
}

static void post_send(struct run *run, struct ibv_send_wr *wr)
{
    struct ibv_send_wr *bad;

    wr->wr_id = 100 + run->sends_posted;
    wr->send_flags |= IBV_SEND_SIGNALED;
    FUZZ_CHECK(ibv_post_send(&run->qp->ibv, wr, &bad) == 0);
    run->sends_posted++;
}

/* Reads whose answers the stream may bring, of lengths for the staged and for the direct path. */
static void post_read(struct run *run, uint32_t i)
{
    static const uint32_t lengths[] = {100, 6000, 0, 9000};
    uint64_t at = device_layout[REGION_SINK].iova;
    uint32_t key = device.mr[REGION_SINK]->lkey;
    struct ibv_sge sge[2] = {{at, lengths[i] / 2, key},
                             {at + lengths[i] / 2, lengths[i] - lengths[i] / 2, key}};
    struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_READ, .sg_list = sge, .num_sge = 2};

    wr.wr.rdma.remote_addr = 0x1000;
    wr.wr.rdma.rkey = 0x12345678;
    post_send(run, &wr);
}

static void post_message(struct run *run, uint32_t i)
{
    struct ibv_sge sge = {device_layout[REGION_READABLE].iova, 64 + i * 5000,
                          device.mr[REGION_READABLE]->lkey};
    struct ibv_send_wr wr = {
        .opcode = i == 1 ? IBV_WR_RDMA_WRITE : IBV_WR_SEND, .sg_list = &sge, .num_sge = 1};

    wr.wr.rdma.remote_addr = 0x2000;
    wr.wr.rdma.rkey = 0x87654321;
    post_send(run, &wr);
}

static void count(struct run *run, const struct ibv_wc *wc)
{
    if (wc->wr_id < 100) {
        FUZZ_CHECK(wc->wr_id < run->receives_posted);
        FUZZ_CHECK(!(run->receives_seen & 1u << wc->wr_id));
        FUZZ_CHECK(wc->status != IBV_WC_SUCCESS || wc->byte_len <= run->scene.receive_length);
        run->receives_seen |= 1u << wc->wr_id;
        run->receives_done++;
    } else {
        FUZZ_CHECK(wc->wr_id - 100 < run->sends_posted);
        FUZZ_CHECK(!(run->sends_seen & 1u << (wc->wr_id - 100)));
        run->sends_seen |= 1u << (wc->wr_id - 100);
        run->sends_done++;
    }
}

static void poll_completions(struct run *run)
{
    struct ibv_wc wc[4];
    int n;

    while ((n = ibv_poll_cq(run->cq, 4, wc)) > 0)
        for (int i = 0; i < n; i++)
            count(run, &wc[i]);
    FUZZ_CHECK(n == 0);
}

static void step(struct run *run)
{
    device_drive(run->qp);
    if (run->scene.polls)
        poll_completions(run);
    if (run->scene.posts_late)
        post_receive(run);
    if (!run->scene.reads_nothing && output_read(run->output, run->peer) > 0 &&
        run->qp->tx.want_writable)
        soft_qp_event(run->qp, EPOLLOUT);
}

/* A valid CRC in each FPDU as far as the stream makes FPDUs. */
static void repair(uint8_t *stream, size_t length)
{
    while (length >= 2) {
        size_t body = ((size_t)stream[0] << 8 | stream[1]) + 2;

        body += iwarp_padding((uint32_t)body);
        if (body + IWARP_TRAILER > length)
            return;
        iwarp_crc_store(stream + body, iwarp_crc32c(0, stream, body));
        stream += body + IWARP_TRAILER;
        length -= body + IWARP_TRAILER;
    }
}

static void feed(struct run *run, const uint8_t *stream, size_t length)
{
    uint32_t random = run->scene.random;
    uint32_t style = run->scene.random % 4;
    int refused = 0;

    while (length > 0) {
        size_t cut = style == 0   ? length
                     : style == 1 ? fuzz_random(&random) % 7 + 1
                                  : fuzz_random(&random) % 5000 + 1;
        ssize_t n =
            send(run->peer, stream, cut < length ? cut : length, MSG_DONTWAIT | MSG_NOSIGNAL);

        step(run);
        if (n < 0) {
            FUZZ_CHECK(errno == EAGAIN || errno == EPIPE || errno == ECONNRESET);
            if (errno != EAGAIN)
                return;
            FUZZ_CHECK(++refused < 1000);
            continue;
        }
        refused = 0;
        stream += n;
        length -= (size_t)n;
    }
}

static void begin(struct run *run, struct soft_attach *attach)
{
    struct ibv_srq_init_attr shared = {.attr = {.max_wr = RECEIVES_MAX, .max_sge = 3}};
    int fds[2];

    run->cq = ibv_create_cq(device.context, 64, NULL, NULL, 0);
    FUZZ_CHECK(run->cq != NULL);
    if (run->scene.shared_queue) {
        run->srq = ibv_create_srq(device.pd, &shared);
        FUZZ_CHECK(run->srq != NULL);
    }
    run->qp = device_qp(run->cq, run->srq);
    for (uint32_t i = 0; i < run->scene.receives; i++)
        post_receive(run);
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
    run->peer = fds[0];
    attach->fd = fds[1];
    FUZZ_CHECK(soft_qp_attach(run->qp, attach) == 0);
    for (uint32_t i = 0; i < run->scene.reads; i++)
        post_read(run, i);
    for (uint32_t i = 0; i < run->scene.sends; i++)
        post_message(run, i);
}

static void end(struct run *run)
{
    struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};

    if (run->scene.disconnects)
        soft_qp_disconnect(run->qp);
    if (run->scene.half_close)
        shutdown(run->peer, SHUT_WR);
    step(run);
    device_settle(run->qp);
    if (!run->scene.reads_nothing)
        output_read(run->output, run->peer);
    FUZZ_CHECK(ibv_modify_qp(&run->qp->ibv, &error, IBV_QP_STATE) == 0);
    poll_completions(run);
    FUZZ_CHECK(run->sends_done == run->sends_posted);
    FUZZ_CHECK(run->srq != NULL || run->receives_done == run->receives_posted);
    FUZZ_CHECK(ibv_destroy_qp(&run->qp->ibv) == 0);
    if (run->srq != NULL)
        FUZZ_CHECK(ibv_destroy_srq(run->srq) == 0);
    FUZZ_CHECK(ibv_destroy_cq(run->cq) == 0);
    close(run->peer);
}

/* What no receive covers keeps its bytes. */
static void check_receives(const struct run *run)
{
    const uint8_t *memory = device.memory[REGION_RECEIVE];
    uint32_t first = run->scene.receive_length / 3, length = run->scene.receive_length;

    for (uint32_t i = 0; i < run->receives_posted; i++) {
        const uint8_t *slot = memory + i * RECEIVE_SLOT;

        FUZZ_CHECK(is_all(slot + first, 3, SECRET_BYTE));
        FUZZ_CHECK(is_all(slot + length + 3, RECEIVE_SLOT - length - 3, SECRET_BYTE));
    }
    FUZZ_CHECK(is_all(memory + run->receives_posted * RECEIVE_SLOT,
                      REGION - run->receives_posted * RECEIVE_SLOT, SECRET_BYTE));
    if (run->scene.reads == 0)
        FUZZ_CHECK(is_all(device.memory[REGION_SINK], REGION, SECRET_BYTE));
    FUZZ_CHECK(is_all(device.memory[REGION_SINK] + 9000, REGION - 9000, SECRET_BYTE));
}

/* Returns by how many bytes of memory more are in use afterwards. */
static size_t one(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    struct run run = {.scene = read_scene(&in), .output = &output};
    struct soft_attach attach = {.crc = run.scene.crc, .ird = run.scene.ird, .ord = 4};
    size_t length = in.left < STREAM_MAX ? in.left : STREAM_MAX;
    uint8_t *stream = fuzz_copy(in.data, length);
    size_t before = __sanitizer_get_current_allocated_bytes();

    device_reset();
    output.length = 0;
    output.ended = false;
    output.crc = run.scene.crc;
    device_name_keys(stream, length);
    if (run.scene.repair_crc)
        repair(stream, length);
    begin(&run, &attach);
    feed(&run, stream, length);
    FUZZ_CHECK(__sanitizer_get_current_allocated_bytes() - before <= MEMORY_BOUND);
    end(&run);
    device_check();
    check_receives(&run);
    before = __sanitizer_get_current_allocated_bytes() - before;
    free(stream);
    return before;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool warm;

    device_open();
    if (!warm)
        one(data, 0); /* what is allocated once, is allocated now */
    warm = true;
    FUZZ_CHECK(one(data, size) == 0);
    return 0;
}
