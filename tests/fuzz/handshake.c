/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * handshake -- the MPA handshake at the passive and at the active side, and what follows it
 *
 * The input begins with four bytes that set the scene; the rest is what the peer sends from the
 * first byte of the TCP stream on. The connection manager's functions are called as worker 0 calls
 * them, on a socket that worker 0 does not know.
 */
#include "device.h"

#include <fcntl.h>

#define STREAM_MAX 8192u

struct run {
    bool active, has_qp, rejects;
    uint8_t private_length;
    uint32_t random;
    int peer;
    struct rdma_event_channel *channel;
    struct soft_cm_id *listener, *id;
    uint32_t handle;
    struct soft_qp *qp;
    struct ibv_cq *cq;
    bool announced, established, failed;
    const uint8_t *stream;
    size_t length, sent;
};

static struct device_output output;

static const uint8_t private_data[SOFT_MAX_PRIVATE] = "what goes along";

static struct soft_cm_id *new_id(struct run *run, int fd)
{
    struct soft_cm_id *id = soft_cm_create(run->channel, NULL, RDMA_PS_TCP);

    FUZZ_CHECK(id != NULL);
    id->ibv.verbs = device.context;
    id->fd = fd;
    id->wanted = IWARP_MPA_FIXED;
    id->deadline_us = soft_now_us() + 60000000u;
    return id;
}

static void make_qp(struct run *run)
{
    run->cq = ibv_create_cq(device.context, 64, NULL, NULL, 0);
    FUZZ_CHECK(run->cq != NULL);
    run->qp = device_qp(run->cq, NULL);
}

static void begin(struct run *run)
{
    int fds[2];

    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
    run->peer = fds[0];
    run->channel = rdma_create_event_channel();
    FUZZ_CHECK(run->channel != NULL);
    FUZZ_CHECK(fcntl(run->channel->fd, F_SETFL, O_NONBLOCK) == 0);
    if (!run->active) {
        run->listener = new_id(run, -1);
        run->listener->state = SOFT_CM_LISTEN;
        run->listener->backlog = SOFT_MIN_BACKLOG;
        atomic_store(&run->listener->pending, 1);
    }
    run->id = new_id(run, fds[1]);
    run->handle = run->id->handle;
    if (run->active) {
        run->id->state = SOFT_CM_REPLY_WAIT;
        run->id->ird = run->id->ord = 16;
        if (run->has_qp) {
            make_qp(run);
            run->id->ibv.qp = &run->qp->ibv;
            run->id->own_qp = run->qp->handle;
        }
    } else {
        run->id->state = SOFT_CM_REQUEST_WAIT;
        run->id->listener = run->listener->handle;
    }
}

/* Private data as the stream has it. */
static void check_private(const struct run *run, const struct rdma_cm_event *event)
{
    uint32_t length = (uint32_t)run->stream[18] << 8 | run->stream[19];
    const uint8_t *data = run->stream + IWARP_MPA_FIXED;

    FUZZ_CHECK(run->sent >= IWARP_MPA_FIXED + length);
    if (run->stream[17] == IWARP_MPA_REVISION && (run->stream[16] & 0x10)) {
        FUZZ_CHECK(length >= IWARP_MPA_V2);
        data += IWARP_MPA_V2;
        length -= IWARP_MPA_V2;
    }
    FUZZ_CHECK(event->param.conn.private_data_len == length);
    FUZZ_CHECK(length == 0 || memcmp(event->param.conn.private_data, data, length) == 0);
    FUZZ_CHECK(event->param.conn.responder_resources <= SOFT_MAX_RD_ATOMIC);
    FUZZ_CHECK(event->param.conn.initiator_depth <= SOFT_MAX_RD_ATOMIC);
}

/* Not a byte beyond the frame was taken from the socket: it is the queue pair's. */
static void check_left(const struct run *run)
{
    size_t frame = IWARP_MPA_FIXED + ((size_t)run->stream[18] << 8 | run->stream[19]);
    int left = 0;

    FUZZ_CHECK(ioctl(run->id->fd, FIONREAD, &left) == 0);
    FUZZ_CHECK((size_t)left == run->sent - frame);
}

static void answer(struct run *run)
{
    struct rdma_conn_param param = {.private_data = private_data,
                                    .private_data_len = run->private_length,
                                    .responder_resources = RDMA_MAX_RESP_RES,
                                    .initiator_depth = RDMA_MAX_INIT_DEPTH};

    check_left(run);
    if (run->rejects) {
        FUZZ_CHECK(rdma_reject(&run->id->ibv, private_data, run->private_length) == 0);
        return;
    }
    make_qp(run);
    run->id->ibv.qp = &run->qp->ibv;
    if (rdma_accept(&run->id->ibv, &param) == 0)
        FUZZ_CHECK(run->id->fd == -1 && run->qp->fd >= 0);
}

static void take_events(struct run *run)
{
    struct rdma_cm_event *event;

    while (rdma_get_cm_event(run->channel, &event) == 0) {
        switch (event->event) {
        case RDMA_CM_EVENT_CONNECT_REQUEST:
            FUZZ_CHECK(!run->active && !run->announced && event->id == &run->id->ibv);
            run->announced = true;
            check_private(run, event);
            answer(run);
            break;
        case RDMA_CM_EVENT_CONNECT_RESPONSE:
            FUZZ_CHECK(run->active && !run->has_qp);
            check_left(run);
            make_qp(run);
            run->id->ibv.qp = &run->qp->ibv;
            FUZZ_CHECK(rdma_establish(&run->id->ibv) == 0);
            break;
        case RDMA_CM_EVENT_ESTABLISHED:
            FUZZ_CHECK(!run->established && !run->failed);
            run->established = true;
            break;
        case RDMA_CM_EVENT_REJECTED:
        case RDMA_CM_EVENT_CONNECT_ERROR:
            FUZZ_CHECK(run->active && !run->established && !run->failed);
            FUZZ_CHECK(event->param.conn.private_data_len <= SOFT_MAX_PRIVATE);
            run->failed = true;
            break;
        case RDMA_CM_EVENT_DISCONNECTED:
            FUZZ_CHECK(run->qp != NULL);
            break;
        default:
            FUZZ_CHECK(!"an event that no handshake brings");
        }
        rdma_ack_cm_event(event);
    }
}

static void step(struct run *run)
{
    /* An id that was dropped is gone from the table, and so is the memory behind run->id. */
    struct soft_cm_id *id = soft_cm_get(run->handle);
    bool waits =
        id != NULL && (id->state == SOFT_CM_REQUEST_WAIT || id->state == SOFT_CM_REPLY_WAIT);

    if (id != NULL)
        soft_cm_put(id);
    if (waits)
        soft_cm_event(run->handle, EPOLLIN);
    take_events(run);
    if (run->qp != NULL && run->qp->fd >= 0)
        device_drive(run->qp);
    take_events(run);
}

static void feed(struct run *run)
{
    uint32_t style = run->random % 3;

    while (run->sent < run->length) {
        size_t left = run->length - run->sent;
        size_t cut = style == 0 ? left : style == 1 ? 1 : fuzz_random(&run->random) % 40 + 1;
        ssize_t n = send(run->peer, run->stream + run->sent, cut < left ? cut : left,
                         MSG_DONTWAIT | MSG_NOSIGNAL);

        if (n < 0)
            FUZZ_CHECK(errno == EPIPE || errno == ECONNRESET || errno == EAGAIN);
        if (n <= 0)
            break;
        run->sent += (size_t)n;
        step(run);
    }
    shutdown(run->peer, SHUT_WR);
    step(run);
}

/* Is what was sent a whole frame that the other side has to take? Said again, in other words. */
static bool is_good_frame(const struct run *run)
{
    const uint8_t *s = run->stream;
    const char *key = run->active ? "MPA ID Rep Frame" : "MPA ID Req Frame";
    uint32_t length;

    if (run->sent < IWARP_MPA_FIXED || memcmp(s, key, 16) != 0)
        return false;
    length = (uint32_t)s[18] << 8 | s[19];
    if (length > 512 || run->sent < IWARP_MPA_FIXED + length)
        return false;
    if (s[17] < 1 || s[17] > 2 || (s[16] & 0x80))
        return false;
    if (s[17] == 2 && (s[16] & 0x10))
        return length >= 4 && length - 4 <= 255;
    return length <= 255;
}

/* A good request is announced, a good reply establishes, unless it says no; all else fails. */
static void check_outcome(const struct run *run)
{
    bool good = is_good_frame(run);

    if (!run->active) {
        FUZZ_CHECK(run->announced == good);
        return;
    }
    good = good && !(run->stream[16] & 0x20);
    FUZZ_CHECK(run->failed == !good);
    FUZZ_CHECK(!run->has_qp || run->established == good);
}

static void end(struct run *run)
{
    struct soft_cm_id *id = soft_cm_get(run->handle);

    if (run->qp != NULL)
        device_settle(run->qp);
    take_events(run);
    if (run->qp != NULL)
        FUZZ_CHECK(ibv_destroy_qp(&run->qp->ibv) == 0);
    if (run->cq != NULL)
        FUZZ_CHECK(ibv_destroy_cq(run->cq) == 0);
    if (id != NULL) {
        /* A handshake that is over by the peer's doing leaves nothing that waits. */
        FUZZ_CHECK(id->state != SOFT_CM_REPLY_WAIT && id->state != SOFT_CM_REQUEST_WAIT);
        soft_cm_put(id);
        FUZZ_CHECK(rdma_destroy_id(&id->ibv) == 0);
    }
    if (run->listener != NULL) {
        FUZZ_CHECK(atomic_load(&run->listener->pending) == 0);
        FUZZ_CHECK(rdma_destroy_id(&run->listener->ibv) == 0);
    }
    rdma_destroy_event_channel(run->channel);
    close(run->peer);
}

static void check_output(struct run *run)
{
    uint8_t frame[SOFT_MPA_BUFFER];
    struct iwarp_mpa mpa;
    ssize_t n;

    if (run->active || !run->announced)
        return;
    /* The reply, which is the first thing that the passive side says. */
    n = recv(run->peer, frame, IWARP_MPA_FIXED, MSG_DONTWAIT);
    FUZZ_CHECK(n == IWARP_MPA_FIXED && iwarp_mpa_decode(frame, true, &mpa) == 0);
    FUZZ_CHECK(!(mpa.flags & IWARP_MPA_REJECT) == !run->rejects);
    FUZZ_CHECK(recv(run->peer, frame, mpa.private_length, MSG_DONTWAIT) == mpa.private_length);
    output.length = 0;
    output.ended = false;
    output.crc = run->qp != NULL && run->qp->crc;
    output_read(&output, run->peer);
}

/* Returns by how many bytes of memory more are in use afterwards. */
static size_t one(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    uint8_t flags = fuzz_byte(&in);
    struct run run = {
        .active = flags & 1,
        .has_qp = flags & 2,
        .rejects = flags & 4,
        .private_length = fuzz_byte(&in) % (SOFT_MAX_PRIVATE + 1),
    };
    uint8_t *stream;
    size_t before = __sanitizer_get_current_allocated_bytes();

    run.random = fuzz_byte(&in);
    run.random |= (uint32_t)fuzz_byte(&in) << 8;
    soft_config.crc = flags & 8;
    run.length = in.left < STREAM_MAX ? in.left : STREAM_MAX;
    stream = fuzz_copy(in.data, run.length);
    device_name_keys(stream, run.length);
    run.stream = stream;
    device_reset();
    begin(&run);
    feed(&run);
    FUZZ_CHECK(__sanitizer_get_current_allocated_bytes() - before <= MEMORY_BOUND);
    check_output(&run);
    check_outcome(&run);
    end(&run);
    device_check();
    free(stream);
    return __sanitizer_get_current_allocated_bytes() - before;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool warm;

    device_open();
    /* What is allocated once, is allocated now; destroyed event channels are kept for a while. */
    for (int i = 0; i < 100 && !warm; i++)
        one(data, 0);
    warm = true;
    FUZZ_CHECK(one(data, size) == 0);
    return 0;
}
