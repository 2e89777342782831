/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_softrdma_hostile.c -- peers that break the rules, and an innocent connection beside them
 *
 * A raw TCP socket plays the peer: it says an MPA request by hand, and then what no device would.
 * Meanwhile an innocent pair of queue pairs of the same worker reads, and neither waits long nor gets
 * wrong data.
 */
#include "random.h"
#include "suite.h"
#include "test_softrdma_pair.h"

#include <netinet/tcp.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "../../common/softrdma/iwarp.h"

#define REGION (1u << 20)
#define READ_ONLY_AT (REGION / 2)
#define RECEIVE 4096u
#define RECEIVES 4u
#define WAIT_MS 6000u
/* The longest that the innocent may wait; what would keep it waiting lasts for seconds. */
#define LATENCY_MS 2000u
#define FLOOD_MS 800u
#define BACKLOG 16u

/* ---------------------------------------------------------------- the innocent */

struct innocent {
    struct pair pair;
    pthread_t thread;
    atomic_bool stop;
    uint64_t reads, longest_ms;
};

static void *read_on(void *argument)
{
    struct innocent *in = argument;
    const struct timespec nap = {.tv_nsec = 200000};

    while (!atomic_load(&in->stop)) {
        uint32_t at_byte = (uint32_t)(in->reads * 4096 % 65536);
        uint64_t begin = now_ms(), took;

        memset(in->pair.a.memory, 0, 4096);
        ck_assert_int_eq(post(&in->pair.a, in->reads, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, 0, 4096,
                              at(&in->pair.b, at_byte), in->pair.b.mr->rkey),
                         0);
        expect_wc(&in->pair.a, in->reads, IBV_WC_SUCCESS);
        took = now_ms() - begin;
        ck_assert_mem_eq(in->pair.a.memory, in->pair.b.memory + at_byte, 4096);
        in->longest_ms = took > in->longest_ms ? took : in->longest_ms;
        in->reads++;
        nanosleep(&nap, NULL);
    }
    return NULL;
}

static void innocent_begin(struct innocent *in)
{
    const struct pair_options options = {.size = 65536, .sq_depth = 16, .rq_depth = 16};

    memset(in, 0, sizeof(*in));
    pair_open(&in->pair, &options);
    fill(in->pair.b.memory, in->pair.b.size, 7);
    ck_assert_int_eq(pthread_create(&in->thread, NULL, read_on, in), 0);
}

static void innocent_end(struct innocent *in, const char *beside)
{
    atomic_store(&in->stop, true);
    pthread_join(in->thread, NULL);
    printf("beside %s: %llu reads, %llu ms at most\n", beside, (unsigned long long)in->reads,
           (unsigned long long)in->longest_ms);
    ck_assert_uint_gt(in->reads, 0);
    ck_assert_msg(in->longest_ms < LATENCY_MS, "the innocent had to wait for %llu ms",
                  (unsigned long long)in->longest_ms);
    pair_close(&in->pair);
}

/* ---------------------------------------------------------------- the victim and its peer */

/* One accepted connection: the device's end, and the raw socket. */
struct victim {
    struct rdma_event_channel *channel;
    struct rdma_cm_id *listener;
    struct end end;
    struct ibv_mr *read_only;
    int fd;
    bool crc;
    uint8_t in[256 * 1024]; /* bytes from the device that are not taken apart yet */
    size_t in_length;
    bool eof;
};

static const struct pair_options victim_options = {
    .size = REGION, .sq_depth = 64, .rq_depth = 16, .cqe = 256};

static int raw_connect(uint16_t port_be)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = port_be, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct timeval patience = {.tv_sec = WAIT_MS / 1000};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

    ck_assert_int_ge(fd, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

/* Version 2 with IRD and ORD, and private data of zeros. */
static size_t mpa_request(uint8_t *out, uint16_t flags, const struct iwarp_mpa_v2 *v2,
                          uint16_t private_length)
{
    const struct iwarp_mpa mpa = {.flags = (uint16_t)(flags | IWARP_MPA_ENHANCED),
                                  .revision = IWARP_MPA_REVISION,
                                  .private_length = (uint16_t)(IWARP_MPA_V2 + private_length)};

    memset(out, 0, IWARP_MPA_FIXED + IWARP_MPA_V2 + private_length);
    iwarp_mpa_encode(out, false, &mpa);
    iwarp_mpa_v2_encode(out + IWARP_MPA_FIXED, v2);
    return IWARP_MPA_FIXED + IWARP_MPA_V2 + private_length;
}

static void raw_send(int fd, const void *data, size_t length)
{
    ck_assert_int_eq(send(fd, data, length, MSG_NOSIGNAL), (ssize_t)length);
}

static void raw_take(int fd, void *data, size_t length)
{
    ck_assert_int_eq(recv(fd, data, length, MSG_WAITALL), (ssize_t)length);
}

static struct rdma_cm_id *listen_few(struct rdma_event_channel *channel)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct rdma_cm_id *id;

    ck_assert_int_eq(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
    ck_assert_int_eq(rdma_bind_addr(id, (struct sockaddr *)&address), 0);
    ck_assert_int_eq(rdma_listen(id, (int)BACKLOG), 0);
    return id;
}

/* Accept what has asked, with receives posted. */
static void victim_accept(struct victim *v, uint8_t ird)
{
    struct rdma_conn_param param = {.responder_resources = ird, .initiator_depth = 4};
    struct rdma_cm_event *event = next_event(v->channel);

    ck_assert_int_eq(event->event, RDMA_CM_EVENT_CONNECT_REQUEST);
    end_open(&v->end, event->id, &victim_options,
             IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
    v->read_only =
        ibv_reg_mr(v->end.pd, v->end.memory + READ_ONLY_AT, 4096, IBV_ACCESS_REMOTE_READ);
    ck_assert_ptr_nonnull(v->read_only);
    for (uint32_t i = 0; i < RECEIVES; i++)
        ck_assert_int_eq(post_recv(&v->end, i, i * RECEIVE, RECEIVE), 0);
    ck_assert_int_eq(rdma_accept(event->id, &param), 0);
    rdma_ack_cm_event(event);
}

static void victim_open(struct victim *v, bool crc, uint8_t ird)
{
    const struct iwarp_mpa_v2 v2 = {.ird = 16, .ord = 128};
    uint8_t frame[64];
    struct iwarp_mpa mpa;

    memset(v, 0, offsetof(struct victim, in));
    v->in_length = 0;
    v->eof = false;
    v->crc = crc;
    v->channel = rdma_create_event_channel();
    v->listener = listen_few(v->channel);
    v->fd = raw_connect(rdma_get_src_port(v->listener));
    raw_send(v->fd, frame, mpa_request(frame, crc ? IWARP_MPA_CRC : 0, &v2, 0));
    victim_accept(v, ird);
    expect_event(v->channel, RDMA_CM_EVENT_ESTABLISHED);
    raw_take(v->fd, frame, IWARP_MPA_FIXED + IWARP_MPA_V2);
    ck_assert_int_eq(iwarp_mpa_decode(frame, true, &mpa), 0);
}

static void victim_close(struct victim *v)
{
    uint64_t begin = now_ms();

    if (v->end.id != NULL && v->end.id->qp != NULL)
        rdma_destroy_qp(v->end.id);
    if (v->read_only != NULL)
        ck_assert_int_eq(ibv_dereg_mr(v->read_only), 0);
    v->read_only = NULL;
    end_close(&v->end);
    rdma_destroy_id(v->listener);
    rdma_destroy_event_channel(v->channel);
    close(v->fd);
    ck_assert_uint_lt(now_ms() - begin, LATENCY_MS);
}

/* The queue pair is in error and every receive has come back. */
static void expect_dead(struct victim *v)
{
    struct ibv_qp_init_attr init;
    struct ibv_qp_attr attr;

    expect_event(v->channel, RDMA_CM_EVENT_DISCONNECTED);
    ck_assert_int_eq(ibv_query_qp(v->end.id->qp, &attr, IBV_QP_STATE, &init), 0);
    ck_assert_int_eq(attr.qp_state, IBV_QPS_ERR);
}

/* The next FPDU from the device, its header in *s. False at the end of the stream. */
static bool next_fpdu(struct victim *v, struct iwarp_segment *s, uint8_t *payload, size_t room)
{
    for (;;) {
        struct iwarp_error error;
        int n = iwarp_segment_decode(v->in, v->in_length, s, &error);
        size_t whole = 0;

        ck_assert_int_ge(n, 0);
        if (n > 0)
            whole = s->header_length + s->payload_length + s->padding + IWARP_TRAILER;
        if (n > 0 && whole <= v->in_length) {
            if (payload != NULL)
                memcpy(payload, v->in + n, s->payload_length < room ? s->payload_length : room);
            v->in_length -= whole;
            memmove(v->in, v->in + whole, v->in_length);
            return true;
        }
        n = (int)recv(v->fd, v->in + v->in_length, sizeof(v->in) - v->in_length, 0);
        if (n <= 0) {
            ck_assert_msg(n == 0 || errno == ECONNRESET, "the device says nothing: %s",
                          strerror(errno));
            v->eof = true;
            return false;
        }
        v->in_length += (size_t)n;
    }
}

/* A Terminate with this reason comes, whatever answers come before it, and nothing after it. */
static void expect_terminate(struct victim *v, const char *name, uint8_t layer, uint8_t type,
                             uint8_t code)
{
    uint8_t payload[IWARP_TERMINATE_MAX];
    struct iwarp_terminate t;
    struct iwarp_segment s;

    do {
        ck_assert_msg(next_fpdu(v, &s, payload, sizeof(payload)), "%s: no Terminate came", name);
    } while (s.opcode != IWARP_TERMINATE);
    ck_assert_int_eq(iwarp_terminate_decode(payload, s.payload_length, &t), 0);
    ck_assert_msg(t.error.layer == layer && t.error.type == type && t.error.code == code,
                  "%s: Terminate %u/%u/%u, not %u/%u/%u", name, t.error.layer, t.error.type,
                  t.error.code, layer, type, code);
    /* DDP and RDMAP errors name the segment, those of MPA do not (RFC 5040 section 4.8). */
    ck_assert_msg(layer == IWARP_LAYER_LLP ? !t.has_header
                                           : t.has_header || type == IWARP_RDMAP_LOCAL,
                  "%s: header of the refused segment: %d", name, t.has_header);
    ck_assert_msg(!next_fpdu(v, &s, NULL, 0), "%s: something follows the Terminate", name);
}

/* ---------------------------------------------------------------- frames */

/* Padding and CRC behind a frame of so many bytes. Returns its size. */
static size_t finish(uint8_t *frame, size_t length, bool crc)
{
    uint32_t padding = iwarp_padding((uint32_t)length);

    memset(frame + length, 0, padding + IWARP_TRAILER);
    length += padding;
    if (crc)
        iwarp_crc_store(frame + length, iwarp_crc32c(0, frame, length));
    return length + IWARP_TRAILER;
}

static size_t send_frame(uint8_t *out, bool last, uint32_t queue, uint32_t msn, uint32_t offset,
                         uint32_t payload)
{
    iwarp_untagged_encode(out, IWARP_SEND, last, queue, msn, offset, payload);
    for (uint32_t i = 0; i < payload; i++)
        out[IWARP_UNTAGGED_HEADER + i] = (uint8_t)(offset + i);
    return finish(out, IWARP_UNTAGGED_HEADER + payload, false);
}

static size_t write_frame(uint8_t *out, bool last, uint32_t stag, uint64_t to, uint32_t payload)
{
    iwarp_tagged_encode(out, IWARP_WRITE, last, stag, to, payload);
    memset(out + IWARP_TAGGED_HEADER, 0x5a, payload);
    return finish(out, IWARP_TAGGED_HEADER + payload, false);
}

static size_t read_frame(uint8_t *out, uint32_t msn, uint32_t length, uint32_t stag, uint64_t from)
{
    return finish(out, iwarp_read_request_encode(out, msn, 1, 0, length, stag, from), false);
}

static size_t terminate_frame(uint8_t *out, uint32_t payload)
{
    iwarp_untagged_encode(out, IWARP_TERMINATE, true, IWARP_QUEUE_TERMINATE, 1, 0, payload);
    fill(out + IWARP_UNTAGGED_HEADER, payload, payload);
    return finish(out, IWARP_UNTAGGED_HEADER + payload, false);
}

/* ---------------------------------------------------------------- broken frames */

/* What is sent, of which v says memory and keys. Returns the number of bytes. */
typedef size_t (*builder)(uint8_t *out, const struct victim *v);

#define BUILDER(name) static size_t name(uint8_t *out, const struct victim *v)

BUILDER(ddp_version)
{
    size_t n = send_frame(out, true, 0, 1, 0, 8);

    (void)v;
    out[2] ^= 0x03;
    return n;
}

BUILDER(ddp_version_tagged)
{
    size_t n = write_frame(out, true, v->end.mr->rkey, at(&v->end, 0), 8);

    out[2] ^= 0x03;
    return n;
}

BUILDER(rdmap_version)
{
    size_t n = send_frame(out, true, 0, 1, 0, 8);

    (void)v;
    out[3] ^= 0xc0;
    return n;
}

BUILDER(unknown_opcode)
{
    size_t n = send_frame(out, true, 0, 1, 0, 8);

    (void)v;
    out[3] = 0x4b;
    return n;
}

BUILDER(tagged_send)
{
    size_t n = send_frame(out, true, 0, 1, 0, 8);

    (void)v;
    out[2] |= 0x80;
    return n;
}

BUILDER(untagged_write)
{
    size_t n = write_frame(out, true, v->end.mr->rkey, at(&v->end, 0), 8);

    out[2] &= 0x7f;
    return n;
}

BUILDER(queue_three)
{
    (void)v;
    return send_frame(out, true, 3, 1, 0, 8);
}

BUILDER(queue_huge)
{
    (void)v;
    return send_frame(out, true, UINT32_MAX, 1, 0, 8);
}

BUILDER(queue_of_reads)
{
    (void)v;
    return send_frame(out, true, 1, 1, 0, 8);
}

BUILDER(sequence_ahead)
{
    (void)v;
    return send_frame(out, true, 0, 2, 0, 8);
}

BUILDER(sequence_again)
{
    size_t n = send_frame(out, true, 0, 1, 0, 8);

    (void)v;
    return n + send_frame(out + n, true, 0, 1, 0, 8);
}

BUILDER(sequence_of_reads)
{
    return read_frame(out, 2, 8, v->end.mr->rkey, at(&v->end, 0));
}

BUILDER(offset_at_begin)
{
    (void)v;
    return send_frame(out, true, 0, 1, 4, 8);
}

BUILDER(offset_overlaps)
{
    size_t n = send_frame(out, false, 0, 1, 0, 100);

    (void)v;
    return n + send_frame(out + n, true, 0, 1, 50, 100);
}

BUILDER(offset_leaves_gap)
{
    size_t n = send_frame(out, false, 0, 1, 0, 100);

    (void)v;
    return n + send_frame(out + n, true, 0, 1, 200, 100);
}

BUILDER(offset_goes_back)
{
    size_t n = send_frame(out, false, 0, 1, 0, 100);

    (void)v;
    return n + send_frame(out + n, false, 0, 1, 0, 100);
}

BUILDER(too_long)
{
    (void)v;
    return send_frame(out, true, 0, 1, 0, RECEIVE + 1);
}

BUILDER(never_ends)
{
    size_t n = 0;

    (void)v;
    for (uint32_t offset = 0; offset <= RECEIVE; offset += 512)
        n += send_frame(out + n, false, 0, 1, offset, 512);
    return n;
}

BUILDER(no_receive_left)
{
    size_t n = 0;

    (void)v;
    for (uint32_t i = 0; i <= RECEIVES; i++)
        n += send_frame(out + n, true, 0, i + 1, 0, 8);
    return n;
}

BUILDER(invalidates)
{
    size_t n = send_frame(out, true, 0, 1, 0, 8);
    uint32_t key = htonl(v->end.mr->rkey);

    out[3] = 0x44;
    memcpy(out + 4, &key, sizeof(key));
    return n;
}

BUILDER(write_without_key)
{
    return write_frame(out, true, v->end.mr->rkey ^ 1, at(&v->end, 0), 64);
}

BUILDER(write_beyond)
{
    return write_frame(out, true, v->end.mr->rkey, at(&v->end, REGION - 63), 64);
}

BUILDER(write_before)
{
    return write_frame(out, true, v->end.mr->rkey, at(&v->end, 0) - 1, 64);
}

BUILDER(write_to_read_only)
{
    return write_frame(out, true, v->read_only->rkey, at(&v->end, READ_ONLY_AT), 64);
}

BUILDER(write_wraps)
{
    return write_frame(out, true, v->end.mr->rkey, UINT64_MAX - 3, 64);
}

BUILDER(read_without_key)
{
    return read_frame(out, 1, 64, v->end.mr->rkey ^ 0x100, at(&v->end, 0));
}

BUILDER(read_beyond)
{
    return read_frame(out, 1, UINT32_MAX, v->end.mr->rkey, at(&v->end, 0));
}

BUILDER(read_wraps)
{
    return read_frame(out, 1, 64, v->end.mr->rkey, UINT64_MAX - 3);
}

BUILDER(read_with_payload)
{
    size_t n = read_frame(out, 1, 8, v->end.mr->rkey, at(&v->end, 0));

    out[1] += 4;
    return n + 4;
}

BUILDER(answer_to_nothing)
{
    iwarp_tagged_encode(out, IWARP_READ_RESPONSE, true, v->end.mr->rkey, at(&v->end, 0), 8);
    memset(out + IWARP_TAGGED_HEADER, 1, 8);
    return finish(out, IWARP_TAGGED_HEADER + 8, false);
}

BUILDER(frame_of_two_bytes)
{
    static const uint8_t bytes[12] = {0, 2, 0x41, 0x43};

    (void)v;
    memcpy(out, bytes, sizeof(bytes));
    return sizeof(bytes);
}

BUILDER(reads_beyond_ird)
{
    size_t n = 0;

    for (uint32_t i = 0; i < 32; i++)
        n += read_frame(out + n, i + 1, 1000, v->end.mr->rkey, at(&v->end, 0));
    return n;
}

BUILDER(wrong_crc)
{
    size_t n = finish(out, send_frame(out, true, 0, 1, 0, 8) - IWARP_TRAILER, true);

    (void)v;
    out[IWARP_UNTAGGED_HEADER] ^= 1;
    return n;
}

BUILDER(half_header)
{
    send_frame(out, true, 0, 1, 0, 8);
    (void)v;
    return 11;
}

BUILDER(half_payload)
{
    (void)v;
    return send_frame(out, true, 0, 1, 0, 64) - 40;
}

BUILDER(half_trailer)
{
    return write_frame(out, true, v->end.mr->rkey, at(&v->end, RECEIVE * RECEIVES), 64) - 1;
}

BUILDER(half_message)
{
    (void)v;
    return send_frame(out, false, 0, 1, 0, 64);
}

BUILDER(half_write)
{
    return write_frame(out, false, v->end.mr->rkey, at(&v->end, RECEIVE * RECEIVES), 64);
}

static const struct {
    const char *name;
    builder build;
    uint8_t layer, type, code;
    bool crc, closes; /* CRCs are agreed on; the peer closes its direction afterwards */
} broken[] = {
    {"DDP version", ddp_version, 1, 2, 6, false, false},
    {"DDP version, tagged", ddp_version_tagged, 1, 1, 4, false, false},
    {"RDMAP version", rdmap_version, 0, 2, 5, false, false},
    {"unknown opcode", unknown_opcode, 0, 2, 6, false, false},
    {"tagged Send", tagged_send, 0, 2, 6, false, false},
    {"untagged Write", untagged_write, 0, 2, 6, false, false},
    {"queue 3", queue_three, 1, 2, 1, false, false},
    {"queue 2^32-1", queue_huge, 1, 2, 1, false, false},
    {"Send on the read queue", queue_of_reads, 1, 2, 1, false, false},
    {"sequence number ahead", sequence_ahead, 1, 2, 3, false, false},
    {"sequence number again", sequence_again, 1, 2, 3, false, false},
    {"sequence number of reads", sequence_of_reads, 1, 2, 3, false, false},
    {"message offset at the begin", offset_at_begin, 1, 2, 4, false, false},
    {"message offset overlaps", offset_overlaps, 1, 2, 4, false, false},
    {"message offset leaves a gap", offset_leaves_gap, 1, 2, 4, false, false},
    {"message offset goes back", offset_goes_back, 1, 2, 4, false, false},
    {"longer than the receive", too_long, 1, 2, 5, false, false},
    {"endless message", never_ends, 1, 2, 5, false, false},
    {"no receive left", no_receive_left, 1, 2, 2, false, false},
    {"Send with invalidate", invalidates, 0, 2, 9, false, false},
    {"Write without key", write_without_key, 1, 1, 0, false, false},
    {"Write beyond the end", write_beyond, 1, 1, 1, false, false},
    {"Write before the begin", write_before, 1, 1, 1, false, false},
    {"Write without right", write_to_read_only, 0, 1, 2, false, false},
    {"Write wraps", write_wraps, 1, 1, 3, false, false},
    {"Read without key", read_without_key, 0, 1, 0, false, false},
    {"Read beyond the end", read_beyond, 0, 1, 1, false, false},
    {"Read wraps", read_wraps, 0, 1, 4, false, false},
    {"Read with payload", read_with_payload, 1, 2, 4, false, false},
    {"answer to nothing", answer_to_nothing, 1, 1, 0, false, false},
    {"frame of two bytes", frame_of_two_bytes, 2, 0, 3, false, false},
    {"more reads than allowed", reads_beyond_ird, 0, 2, 7, false, false},
    {"wrong CRC", wrong_crc, 2, 0, 2, true, false},
    {"end in a header", half_header, 2, 0, 1, false, true},
    {"end in a payload", half_payload, 2, 0, 1, false, true},
    {"end in a trailer", half_trailer, 2, 0, 1, false, true},
    {"end in a message", half_message, 2, 0, 1, false, true},
    {"end in a Write", half_write, 2, 0, 1, false, true},
};

static struct victim victim;

/* Nothing but receives and what lies right behind them is written to by what is good in a case. */
static bool untouched(const struct victim *v)
{
    const uint8_t *rest = v->end.memory + READ_ONLY_AT;

    return rest[0] == 0x11 && memcmp(rest, rest + 1, REGION - READ_ONLY_AT - 1) == 0;
}

START_TEST(broken_frames_are_terminated)
{
    static uint8_t frames[65536];
    struct innocent in;

    innocent_begin(&in);
    for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++) {
        size_t length;

        victim_open(&victim, broken[i].crc, 4);
        memset(victim.end.memory, 0x11, REGION);
        length = broken[i].build(frames, &victim);
        raw_send(victim.fd, frames, length);
        if (broken[i].closes)
            shutdown(victim.fd, SHUT_WR);
        expect_terminate(&victim, broken[i].name, broken[i].layer, broken[i].type, broken[i].code);
        expect_dead(&victim);
        ck_assert_msg(untouched(&victim), "%s changed memory", broken[i].name);
        victim_close(&victim);
    }
    innocent_end(&in, "broken frames are terminated");
}
END_TEST

/* Whatever stands in a Terminate: the connection ends, and nothing but a longer one is refused. */
START_TEST(terminate_of_garbage)
{
    static const uint32_t lengths[] = {0, 1, 3, 4, 5, 20, 24, 51, 52, 79, 80, 81, 4000, 65000};
    static uint8_t frame[70000];

    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        struct iwarp_segment s;

        victim_open(&victim, false, 4);
        raw_send(victim.fd, frame, terminate_frame(frame, lengths[i]));
        if (lengths[i] > IWARP_TERMINATE_MAX)
            expect_terminate(&victim, "long Terminate", 1, 2, 5);
        else
            ck_assert(!next_fpdu(&victim, &s, NULL, 0));
        expect_dead(&victim);
        for (uint32_t r = 0; r < RECEIVES; r++)
            expect_wc(&victim.end, r, IBV_WC_WR_FLUSH_ERR);
        victim_close(&victim);
    }
}
END_TEST

/* ---------------------------------------------------------------- slow and fast peers */

/* It asks for megabytes again and again and takes none of them. */
START_TEST(reads_that_nobody_takes)
{
    struct innocent in;
    uint8_t frame[64];
    uint32_t sent = 0;
    uint64_t limit;

    innocent_begin(&in);
    victim_open(&victim, false, 4);
    limit = now_ms() + WAIT_MS;
    while (now_ms() < limit) {
        const struct timespec nap = {.tv_nsec = 2000000};
        size_t n = read_frame(frame, ++sent, REGION, victim.end.mr->rkey, at(&victim.end, 0));

        if (send(victim.fd, frame, n, MSG_NOSIGNAL) != (ssize_t)n)
            break;
        if (sent % 32 == 0) {
            struct pollfd event = {.fd = victim.channel->fd, .events = POLLIN};

            if (poll(&event, 1, 0) == 1)
                break;
        }
        nanosleep(&nap, NULL);
    }
    expect_dead(&victim);
    /* As many as the socket buffers hold, those that may be outstanding, and no more. */
    ck_assert_uint_lt(sent, 512);
    expect_terminate(&victim, "reads that nobody takes", 0, 2, 7);
    victim_close(&victim);
    innocent_end(&in, "reads that nobody takes");
}
END_TEST

/* ---------------------------------------------------------------- segments of any size */

#define RESPONSE (REGION - 65536u)
#define SEGMENT_MAX (65535u - IWARP_TAGGED_HEADER - 8)

/* Nobody wrote to any of these bytes. */
static void expect_untouched(const struct victim *v, uint32_t first, uint32_t end)
{
    while (first < end && v->end.memory[first] == 0xee)
        first++;
    ck_assert_msg(first == end, "byte %u was written", first);
}

/* n bytes at an offset of a response of `of` bytes. */
static size_t segment(uint8_t *out, const struct iwarp_segment *request, const uint8_t *data,
                      uint32_t offset, uint32_t n, uint32_t of)
{
    iwarp_tagged_encode(out, IWARP_READ_RESPONSE, offset + n == of, request->sink_stag,
                        request->sink_offset + offset, n);
    memcpy(out + IWARP_TAGGED_HEADER, data + offset, n);
    return finish(out, IWARP_TAGGED_HEADER + n, false);
}

/* A response to a read of RESPONSE bytes, a segment at a time, and a Send behind it. */
static size_t response(uint8_t *out, const struct iwarp_segment *request, const uint8_t *data,
                       unsigned int usual, unsigned int surprise, unsigned int *seed)
{
    size_t length = 0;

    for (uint32_t offset = 0; offset < RESPONSE;) {
        uint32_t left = RESPONSE - offset;
        uint32_t n = (unsigned int)rand_r(seed) % 100 < surprise
                         ? (uint32_t)rand_r(seed) % SEGMENT_MAX + 1
                         : usual;

        n = n < left ? n : left;
        length += segment(out + length, request, data, offset, n, RESPONSE);
        offset += n;
    }
    return length + send_frame(out + length, true, IWARP_QUEUE_SEND, 1, 0, 100);
}

/* Whatever sizes the segments of a response have, and however they come, no byte is misplaced. */
START_TEST(segments_of_any_size)
{
    static const struct {
        unsigned int usual, surprise; /* bytes; per cent of segments that have another size */
    } kinds[] = {{SEGMENT_MAX, 0}, {65472, 0}, {65472, 10}, {65472, 50}, {20000, 10},
                 {16384, 3},       {1460, 0},  {4096, 20},  {65472, 30}, {65472, 5}};
    uint8_t *data = malloc(RESPONSE), *frames = malloc(8 * REGION);
    unsigned int seed = (unsigned int)random_seed();

    fill(data, RESPONSE, seed);
    for (size_t kind = 0; kind < 2 * sizeof(kinds) / sizeof(kinds[0]); kind++) {
        unsigned int usual = kinds[kind / 2].usual, surprise = kinds[kind / 2].surprise;
        struct iwarp_segment request;
        size_t length, sent = 0;

        victim_open(&victim, false, 4);
        memset(victim.end.memory, 0xee, REGION);
        ck_assert_int_eq(
            post(&victim.end, 7, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, 0, RESPONSE, 0x1000, 1), 0);
        ck_assert(next_fpdu(&victim, &request, NULL, 0));
        ck_assert_int_eq(request.opcode, IWARP_READ_REQUEST);
        length = response(frames, &request, data, usual, surprise, &seed);
        while (sent < length) {
            /* All at once, or in bits. */
            size_t n = kind % 2 ? (size_t)rand_r(&seed) % 200000 + 1 : length;

            n = n < length - sent ? n : length - sent;
            raw_send(victim.fd, frames + sent, n);
            sent += n;
        }
        expect_wc(&victim.end, 7, IBV_WC_SUCCESS);
        expect_wc(&victim.end, 0, IBV_WC_SUCCESS);
        /* The Send went to the first receive, which lies inside the destination. */
        ck_assert_msg(memcmp(victim.end.memory + 100, data + 100, RESPONSE - 100) == 0,
                      "segments of %u bytes, %u %% surprises: wrong data", usual, surprise);
        expect_untouched(&victim, RESPONSE, REGION);
        victim_close(&victim);
    }
    free(data);
    free(frames);
}
END_TEST

/* What comes between two segments of a response, or in the place of one. */
enum between { NOTHING, A_SEND, A_TERMINATE, A_WRONG_PLACE, THE_END };

/* Where a read goes: behind the receives. */
#define READ_TO (RECEIVE * RECEIVES)

/* A whole response, with something else before segment number `at_segment`. */
static size_t interrupted_response(uint8_t *out, const struct iwarp_segment *request,
                                   const uint8_t *data, enum between what, uint32_t at_segment)
{
    size_t length = 0;

    for (uint32_t offset = 0, i = 0; offset < RESPONSE; i++) {
        uint32_t left = RESPONSE - offset, n = left < SEGMENT_MAX ? left : SEGMENT_MAX;

        if (i == at_segment && what == A_SEND)
            length += send_frame(out + length, true, IWARP_QUEUE_SEND, 1, 0, 100);
        if (i == at_segment && what == A_TERMINATE)
            length += terminate_frame(out + length, 24);
        if (i == at_segment && what == A_WRONG_PLACE)
            return length + segment(out + length, request, data, offset ? 0 : 64, n, RESPONSE);
        if (i == at_segment && what == THE_END)
            return length;
        length += segment(out + length, request, data, offset, n, RESPONSE);
        offset += n;
    }
    return length;
}

/* Segments are received many at a time: what is not one of them is found all the same, wherever. */
START_TEST(something_between_segments)
{
    const uint32_t segments = (RESPONSE + SEGMENT_MAX - 1) / SEGMENT_MAX;
    uint8_t *data = malloc(RESPONSE), *frames = malloc(2 * REGION);

    fill(data, RESPONSE, 5);
    for (uint32_t kind = NOTHING; kind <= THE_END; kind++) {
        for (uint32_t i = kind == NOTHING ? segments - 1 : 0; i < segments; i++) {
            struct iwarp_segment request;

            victim_open(&victim, false, 4);
            memset(victim.end.memory, 0xee, REGION);
            ck_assert_int_eq(post(&victim.end, 7, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, READ_TO,
                                  RESPONSE, 0x1000, 1),
                             0);
            ck_assert(next_fpdu(&victim, &request, NULL, 0));
            raw_send(victim.fd, frames, interrupted_response(frames, &request, data, kind, i));
            if (kind == THE_END)
                ck_assert_int_eq(shutdown(victim.fd, SHUT_WR), 0);
            if (kind == A_SEND) {
                expect_wc(&victim.end, 0, IBV_WC_SUCCESS);
                for (uint32_t at_byte = 0; at_byte < 100; at_byte++)
                    ck_assert_uint_eq(victim.end.memory[at_byte], at_byte);
            }
            if (kind == NOTHING || kind == A_SEND) {
                expect_wc(&victim.end, 7, IBV_WC_SUCCESS);
                ck_assert_mem_eq(victim.end.memory + READ_TO, data, RESPONSE);
            } else {
                expect_dead(&victim);
            }
            expect_untouched(&victim, kind == A_SEND ? RECEIVE : 0, READ_TO);
            expect_untouched(&victim, READ_TO + RESPONSE, REGION);
            victim_close(&victim);
        }
    }
    free(data);
    free(frames);
}
END_TEST

/* Two reads whose responses come in one piece: each gets its own bytes, and they end in order. */
START_TEST(responses_of_two_reads)
{
    const uint32_t lengths[] = {RESPONSE / 2 + 13, RESPONSE / 2 - 17};
    uint8_t *data = malloc(RESPONSE), *frames = malloc(2 * REGION);
    struct iwarp_segment request;
    size_t length = 0;
    uint32_t to = READ_TO;

    fill(data, RESPONSE, 6);
    victim_open(&victim, false, 4);
    memset(victim.end.memory, 0xee, REGION);
    for (uint32_t i = 0; i < 2; to += lengths[i++])
        ck_assert_int_eq(post(&victim.end, 7 + i, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, to,
                              lengths[i], 0x1000, 1),
                         0);
    for (uint32_t i = 0, from = 0; i < 2; from += lengths[i++]) {
        ck_assert(next_fpdu(&victim, &request, NULL, 0));
        for (uint32_t offset = 0; offset < lengths[i];) {
            uint32_t left = lengths[i] - offset, n = left < SEGMENT_MAX ? left : SEGMENT_MAX;

            length += segment(frames + length, &request, data + from, offset, n, lengths[i]);
            offset += n;
        }
    }
    raw_send(victim.fd, frames, length);
    expect_wc(&victim.end, 7, IBV_WC_SUCCESS);
    expect_wc(&victim.end, 8, IBV_WC_SUCCESS);
    ck_assert_mem_eq(victim.end.memory + READ_TO, data, lengths[0] + lengths[1]);
    expect_untouched(&victim, 0, READ_TO);
    expect_untouched(&victim, to, REGION);
    victim_close(&victim);
    free(data);
    free(frames);
}
END_TEST

/* The window is closed for good; what the application sends waits, and nobody else does. */
START_TEST(peer_that_never_reads)
{
    struct innocent in;
    const struct timespec nap = {.tv_nsec = 300000000};

    innocent_begin(&in);
    victim_open(&victim, false, 4);
    for (uint64_t i = 0; i < 64; i++)
        ck_assert_int_eq(
            post(&victim.end, 100 + i, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, REGION, 0, 0), 0);
    nanosleep(&nap, NULL);
    victim_close(&victim);
    innocent_end(&in, "peer that never reads");
}
END_TEST

START_TEST(peer_that_dribbles)
{
    const struct timespec nap = {.tv_nsec = 300000};
    uint8_t frame[1024];
    struct innocent in;
    struct ibv_wc wc;
    size_t length;

    innocent_begin(&in);
    victim_open(&victim, false, 4);
    length = send_frame(frame, false, 0, 1, 0, 301);
    length += send_frame(frame + length, true, 0, 1, 301, 99);
    for (size_t i = 0; i < length; i++) {
        raw_send(victim.fd, frame + i, 1);
        nanosleep(&nap, NULL);
    }
    wc = wait_wc(&victim.end);
    ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
    ck_assert_uint_eq(wc.byte_len, 400);
    for (uint32_t i = 0; i < 400; i++)
        ck_assert_uint_eq(victim.end.memory[i], (uint8_t)i);
    victim_close(&victim);
    innocent_end(&in, "peer that dribbles");
}
END_TEST

/* A thread that takes what the device sends, so that nothing but the device is slow. */
static void *take_all(void *argument)
{
    static uint8_t sink[1 << 20];
    int fd = *(int *)argument;

    while (recv(fd, sink, sizeof(sink), 0) > 0)
        ;
    return NULL;
}

/* The same bytes again and again, as fast as they are taken. Returns whether the device closed. */
static bool flood(int fd, const uint8_t *frames, size_t length, uint64_t ms)
{
    uint64_t limit = now_ms() + ms;

    while (now_ms() < limit)
        for (size_t sent = 0; sent < length;) {
            ssize_t n = send(fd, frames + sent, length - sent, MSG_NOSIGNAL);

            if (n < 0)
                return errno != EAGAIN && errno != EWOULDBLOCK; /* EAGAIN: after WAIT_MS */
            sent += (size_t)n;
        }
    return false;
}

static uint8_t flood_bytes[4 << 20];

START_TEST(flood_of_writes)
{
    struct innocent in;
    size_t length = 0;

    innocent_begin(&in);
    victim_open(&victim, false, 4);
    while (length + 40000 < sizeof(flood_bytes))
        length += write_frame(flood_bytes + length, true, victim.end.mr->rkey,
                              at(&victim.end, length % 65536 + RECEIVE * RECEIVES), 32768);
    ck_assert(!flood(victim.fd, flood_bytes, length, FLOOD_MS));
    victim_close(&victim);
    innocent_end(&in, "flood of writes");
}
END_TEST

START_TEST(flood_of_nothing)
{
    struct innocent in;
    size_t length = 0;

    innocent_begin(&in);
    victim_open(&victim, false, 4);
    while (length + 64 < sizeof(flood_bytes))
        length += send_frame(flood_bytes + length, false, 0, 1, 0, 0);
    /* The worker is slower than such a peer: who is served without end is so for all of this time. */
    ck_assert(!flood(victim.fd, flood_bytes, length, 2 * LATENCY_MS));
    victim_close(&victim);
    innocent_end(&in, "flood of nothing");
}
END_TEST

/* Far more reads than may be outstanding, each of them answered with much, and taken at once. */
START_TEST(flood_of_reads)
{
    struct innocent in;
    pthread_t taker;
    size_t length = 0;

    innocent_begin(&in);
    victim_open(&victim, false, 128);
    ck_assert_int_eq(pthread_create(&taker, NULL, take_all, &victim.fd), 0);
    for (uint32_t i = 1; length + 64 < sizeof(flood_bytes); i++)
        length += read_frame(flood_bytes + length, i, i % 2 ? 256 * 1024 : 4096,
                             victim.end.mr->rkey, at(&victim.end, 0));
    flood(victim.fd, flood_bytes, length, FLOOD_MS);
    expect_dead(&victim);
    pthread_join(taker, NULL);
    victim_close(&victim);
    innocent_end(&in, "flood of reads");
}
END_TEST

/* After its Terminate the device discards what comes, for a while, and then it hangs up. */
START_TEST(flood_after_terminate)
{
    struct innocent in;
    size_t length;

    innocent_begin(&in);
    victim_open(&victim, false, 4);
    length = queue_three(flood_bytes, &victim);
    raw_send(victim.fd, flood_bytes, length);
    expect_terminate(&victim, "queue 3", 1, 2, 1);
    memset(flood_bytes, 0x42, sizeof(flood_bytes));
    ck_assert_msg(flood(victim.fd, flood_bytes, sizeof(flood_bytes), WAIT_MS),
                  "the device listens to it still");
    victim_close(&victim);
    innocent_end(&in, "flood after terminate");
}
END_TEST

/* ---------------------------------------------------------------- before the handshake */

/* Between connections, so that it is not the kernel's queue that is full. */
static const struct timespec pace = {.tv_nsec = 3000000};

/* An honest client gets in, at once. */
static void expect_welcome(struct rdma_event_channel *channel, struct rdma_cm_id *listener)
{
    const struct pair_options options = {.size = 4096, .sq_depth = 4, .rq_depth = 4, .cqe = 16};
    struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
    struct rdma_event_channel *own = rdma_create_event_channel();
    struct end end = {0};
    struct rdma_cm_event *event;
    struct rdma_cm_id *id;
    uint64_t begin = now_ms();

    end_open(&end, resolve(own, rdma_get_src_port(listener)), &options, IBV_ACCESS_LOCAL_WRITE);
    ck_assert_int_eq(rdma_connect(end.id, &param), 0);
    event = next_event(channel);
    ck_assert_int_eq(event->event, RDMA_CM_EVENT_CONNECT_REQUEST);
    ck_assert_uint_lt(now_ms() - begin, LATENCY_MS);
    id = event->id;
    ck_assert_int_eq(rdma_reject(id, NULL, 0), 0);
    rdma_ack_cm_event(event);
    rdma_destroy_id(id);
    expect_event(own, RDMA_CM_EVENT_REJECTED);
    end_close(&end);
    rdma_destroy_event_channel(own);
}

START_TEST(silent_ones_keep_nobody_out)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *listener = listen_few(channel);
    const struct iwarp_mpa_v2 v2 = {.ird = 1, .ord = 1};
    int fds[3 * BACKLOG];
    uint8_t frame[64], byte;
    uint32_t open = 0;
    size_t length = mpa_request(frame, 0, &v2, 0);

    for (uint32_t i = 0; i < 3 * BACKLOG; i++) {
        fds[i] = raw_connect(rdma_get_src_port(listener));
        nanosleep(&pace, NULL);
        if (i % 3 > 0)
            raw_send(fds[i], frame, i % 3 == 1 ? 1 : length - 1);
    }
    expect_welcome(channel, listener);
    expect_welcome(channel, listener);
    /* The newest are still welcome to speak; the oldest had to go. */
    for (uint32_t i = 0; i < 3 * BACKLOG; i++) {
        ssize_t n = recv(fds[i], &byte, 1, MSG_DONTWAIT);

        open += n < 0 && errno == EAGAIN;
        if (i < BACKLOG)
            ck_assert_msg(n == 0 || errno == ECONNRESET, "connection %u is kept", i);
        close(fds[i]);
    }
    ck_assert_uint_gt(open, 0);
    ck_assert_uint_le(open, BACKLOG);
    rdma_destroy_id(listener);
    rdma_destroy_event_channel(channel);
}
END_TEST

/* Requests that the application does not take are bounded in number, and so is what they hold. */
START_TEST(requests_that_nobody_answers)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *listener = listen_few(channel);
    const struct iwarp_mpa_v2 v2 = {.ird = 1, .ord = 1};
    int fds[3 * BACKLOG];
    uint8_t frame[512], byte;
    uint32_t open = 0, taken = 0;
    struct rdma_cm_event *event;
    size_t length = mpa_request(frame, 0, &v2, 255);
    struct pollfd wait = {.fd = channel->fd, .events = POLLIN};
    const struct timespec nap = {.tv_nsec = 300000000};

    for (uint32_t i = 0; i < 3 * BACKLOG; i++) {
        fds[i] = raw_connect(rdma_get_src_port(listener));
        nanosleep(&pace, NULL);
        send(fds[i], frame, length, MSG_NOSIGNAL);
    }
    nanosleep(&nap, NULL);
    for (uint32_t i = 0; i < 3 * BACKLOG; i++) {
        ssize_t n = recv(fds[i], &byte, 1, MSG_DONTWAIT);

        open += n < 0 && errno == EAGAIN;
    }
    ck_assert_uint_gt(open, 0);
    ck_assert_uint_le(open, BACKLOG);
    while (poll(&wait, 1, 100) == 1) {
        struct rdma_cm_id *id;

        ck_assert_int_eq(rdma_get_cm_event(channel, &event), 0);
        id = event->id;
        ck_assert_uint_eq(event->param.conn.private_data_len, 255);
        rdma_ack_cm_event(event);
        rdma_destroy_id(id);
        taken++;
    }
    ck_assert_uint_eq(taken, open);
    expect_welcome(channel, listener);
    for (uint32_t i = 0; i < 3 * BACKLOG; i++)
        close(fds[i]);
    rdma_destroy_id(listener);
    rdma_destroy_event_channel(channel);
}
END_TEST

static uint64_t cpu_ms(void)
{
    struct timespec used;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (uint64_t)used.tv_sec * 1000u + (uint64_t)used.tv_nsec / 1000000u;
}

static int highest_descriptor(void)
{
    int fd = dup(0);

    close(fd);
    return fd;
}

/* Without a descriptor for a connection the worker waits; it does not spin, and it gets over it. */
START_TEST(descriptors_run_out)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *listener = listen_few(channel);
    const struct iwarp_mpa_v2 v2 = {.ird = 1, .ord = 1};
    const struct timespec nap = {.tv_nsec = 500000000};
    struct rdma_cm_event *event;
    struct rdma_cm_id *id;
    struct rlimit before, few;
    uint8_t frame[64];
    uint64_t used;
    int fd;

    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
    fd = raw_connect(rdma_get_src_port(listener));
    close(fd);
    nanosleep(&nap, NULL);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    few = before;
    few.rlim_cur = (rlim_t)highest_descriptor();
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
    ck_assert_int_eq(connect(fd, &listener->route.addr.src_addr, sizeof(struct sockaddr_in)), 0);
    raw_send(fd, frame, mpa_request(frame, 0, &v2, 0));
    used = cpu_ms();
    nanosleep(&nap, NULL);
    used = cpu_ms() - used;
    ck_assert_msg(used < 125, "the worker used %llu ms of 500", (unsigned long long)used);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
    event = next_event(channel);
    ck_assert_int_eq(event->event, RDMA_CM_EVENT_CONNECT_REQUEST);
    id = event->id;
    rdma_ack_cm_event(event);
    rdma_destroy_id(id);
    close(fd);
    rdma_destroy_id(listener);
    rdma_destroy_event_channel(channel);
}
END_TEST

/* ---------------------------------------------------------------- a peer of RFC 6581 */

/*
 * Peer-to-peer mode: established is what has got the ready-to-receive frame. kind: 0 a Write, 1 a
 * Read.
 */
static void ready_to_receive(int kind)
{
    const struct iwarp_mpa_v2 v2 = {
        .ird = 1, .ord = 1, .peer_to_peer = true, .rtr_write = kind == 0, .rtr_read = kind == 1};
    struct pollfd wait;
    struct iwarp_mpa_v2 answer;
    struct iwarp_segment s;
    struct ibv_wc wc;
    uint8_t frame[128];

    memset(&victim, 0, offsetof(struct victim, in));
    victim.in_length = 0;
    victim.channel = rdma_create_event_channel();
    victim.listener = listen_few(victim.channel);
    victim.fd = raw_connect(rdma_get_src_port(victim.listener));
    raw_send(victim.fd, frame, mpa_request(frame, 0, &v2, 0));
    victim_accept(&victim, 1);
    raw_take(victim.fd, frame, IWARP_MPA_FIXED + IWARP_MPA_V2);
    iwarp_mpa_v2_decode(frame + IWARP_MPA_FIXED, &answer);
    ck_assert(answer.peer_to_peer && answer.rtr_write == (kind == 0) &&
              answer.rtr_read == (kind == 1) && !answer.rtr_send);
    wait = (struct pollfd){.fd = victim.channel->fd, .events = POLLIN};
    ck_assert_int_eq(poll(&wait, 1, 100), 0);
    raw_send(victim.fd, frame,
             kind == 0 ? write_frame(frame, true, 1, 0, 0) : read_frame(frame, 1, 0, 1, 0));
    expect_event(victim.channel, RDMA_CM_EVENT_ESTABLISHED);
    if (kind == 1) {
        ck_assert(next_fpdu(&victim, &s, NULL, 0));
        ck_assert(s.opcode == IWARP_READ_RESPONSE && s.payload_length == 0 && s.last);
    }
    raw_send(victim.fd, frame, send_frame(frame, true, 0, 1, 0, 32));
    wc = wait_wc(&victim.end);
    ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
    ck_assert_uint_eq(wc.byte_len, 32);
    victim_close(&victim);
}

START_TEST(ready_to_receive_write)
{
    ready_to_receive(0);
}
END_TEST

START_TEST(ready_to_receive_read)
{
    ready_to_receive(1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("softrdma_hostile");
    TCase *tcase = tcase_create("hostile");

    tcase_add_test(tcase, broken_frames_are_terminated);
    tcase_add_test(tcase, terminate_of_garbage);
    tcase_add_test(tcase, reads_that_nobody_takes);
    tcase_add_test(tcase, segments_of_any_size);
    tcase_add_test(tcase, something_between_segments);
    tcase_add_test(tcase, responses_of_two_reads);
    tcase_add_test(tcase, peer_that_never_reads);
    tcase_add_test(tcase, peer_that_dribbles);
    tcase_add_test(tcase, flood_of_writes);
    tcase_add_test(tcase, flood_of_nothing);
    tcase_add_test(tcase, flood_of_reads);
    tcase_add_test(tcase, flood_after_terminate);
    tcase_add_test(tcase, silent_ones_keep_nobody_out);
    tcase_add_test(tcase, requests_that_nobody_answers);
    tcase_add_test(tcase, descriptors_run_out);
    tcase_add_test(tcase, ready_to_receive_write);
    tcase_add_test(tcase, ready_to_receive_read);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
