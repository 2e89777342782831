/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * extent_recall -- a target takes extents back all the time while threads read: nothing fails,
 * nothing is wrong
 *
 *   extent_recall ADDRESS [SECONDS [SEED]]
 *
 * A small target of its own runs in a thread of this process. It maps few extents at once, recalls
 * some whenever it can, and deregisters an extent the moment it is released. So a read that librblk
 * would still have under way then, or would post afterwards with the old key, ends in an access
 * error.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "initiator/rblk.h"
#include "peer.h"

#define EXTENT_SIZE 65536u
#define EXTENTS 48u
#define VOLUME_SIZE (EXTENTS * EXTENT_SIZE - 17)
#define HELD_MAX 24u /* recalls begin above a half of it */
#define CLIENTS_MAX 8u
#define READERS 4u
#define QUEUES 3u
#define READ_MAX (3 * EXTENT_SIZE)
#define OUT_SLOTS (PEER_OUT_LEN / RBLK_CONTROL_MAX)

static unsigned char *volume;
static uint64_t seed, deadline_ns;
static _Atomic bool done;
static _Atomic uint64_t maps, recalled, released, reads;
static uint16_t port;

/* -- the target: one thread ------------------------------------------------------------------ */

static struct peer peers[CLIENTS_MAX];
static struct peer *control; /* the one that attached */
static struct ibv_mr *held[EXTENTS];
static unsigned int held_count, out_slot, events_open;
static uint64_t events_sent;

static size_t bytes_of(uint64_t index)
{
    return index == EXTENTS - 1 ? VOLUME_SIZE - index * EXTENT_SIZE : EXTENT_SIZE;
}

/* The next place of the send area; far fewer messages than places are ever under way. */
static unsigned char *place(size_t *offset)
{
    *offset = (size_t)(out_slot++ % OUT_SLOTS) * RBLK_CONTROL_MAX;
    return control->out + *offset;
}

static size_t attach_reply(unsigned char *out, uint64_t tag)
{
    struct rblk_attach_reply m = {
        .size = VOLUME_SIZE,
        .extent_size = EXTENT_SIZE,
        .write_verifier = 1,
        .flags = RBLK_VOLUME_RO,
        .max_queues = QUEUES,
        .max_queue_depth = 16,
        .max_io = EXTENT_SIZE * 2,
        .max_inline = 4096,
        .max_reads = 16,
    };

    memset(m.token, 0x33, sizeof(m.token));
    return rblk_attach_reply_encode(out, tag, &m);
}

static size_t map_reply(unsigned char *out, uint64_t tag, const unsigned char *message, size_t len)
{
    static struct rblk_extent_map_reply m;
    struct rblk_extent_map asked;

    if (rblk_extent_map_decode(&asked, message, len) || asked.first + asked.count > EXTENTS)
        helper_fail("a wrong EXTENT_MAP");
    m.first = asked.first;
    m.count = 0;
    while (m.count < asked.count && (m.count == 0 || held_count < HELD_MAX)) {
        uint64_t index = asked.first + m.count;

        if (held[index])
            helper_fail("extent %llu is asked for twice", (unsigned long long)index);
        held[index] = ibv_reg_mr(control->id->pd, volume + index * EXTENT_SIZE, bytes_of(index),
                                 IBV_ACCESS_REMOTE_READ);
        if (!held[index])
            helper_fail("ibv_reg_mr: %s", strerror(errno));
        held_count++;
        m.entry[m.count].addr = (uintptr_t)(volume + index * EXTENT_SIZE);
        m.entry[m.count].length = bytes_of(index);
        m.entry[m.count].rkey = held[index]->rkey;
        m.count++;
        atomic_fetch_add(&maps, 1);
    }
    return rblk_extent_map_reply_encode(out, tag, &m);
}

static size_t release_reply(unsigned char *out, uint64_t tag, const unsigned char *message,
                            size_t len)
{
    static struct rblk_extent_release m;

    if (rblk_extent_release_decode(&m, message, len))
        helper_fail("a malformed EXTENT_RELEASE");
    for (uint32_t i = 0; i < m.count; i++) {
        if (m.index[i] >= EXTENTS || !held[m.index[i]])
            helper_fail("extent %llu is given back and was not held",
                        (unsigned long long)m.index[i]);
        ibv_dereg_mr(held[m.index[i]]);
        held[m.index[i]] = NULL;
        held_count--;
        atomic_fetch_add(&released, 1);
    }
    return rblk_empty_encode(out, RBLK_EXTENT_RELEASE | RBLK_REPLY, tag);
}

static void answer(struct peer *p, const unsigned char *message, size_t len)
{
    struct rblk_hello_reply hello = {.version = 1, .keepalive_ms = 5000, .target = "recall"};
    struct rblk_header header;
    unsigned char *out;
    size_t offset, reply;

    if (rblk_header_decode(&header, message, len))
        helper_fail("a malformed control message");
    if (header.type == RBLK_EVENT_ACK) {
        if (header.tag != events_sent || events_open != 1)
            helper_fail("a wrong acknowledgement");
        events_open = 0;
        return;
    }
    control = p;
    out = place(&offset);
    switch (header.type) {
    case RBLK_HELLO:
        reply = rblk_hello_reply_encode(out, header.tag, &hello);
        break;
    case RBLK_ATTACH:
        reply = attach_reply(out, header.tag);
        break;
    case RBLK_EXTENT_MAP:
        reply = map_reply(out, header.tag, message, len);
        break;
    case RBLK_EXTENT_RELEASE:
        reply = release_reply(out, header.tag, message, len);
        break;
    default:
        reply = rblk_empty_encode(out, header.type | RBLK_REPLY, header.tag);
    }
    peer_post(p, IBV_WR_SEND, offset, reply, 0, 0);
}

static void recall_some(uint64_t *random)
{
    struct rblk_extent_recall m = {.count = 1 + (uint32_t)helper_below(random, 6)};
    unsigned char *out;
    size_t offset;

    if (!control || !control->id || events_open || held_count < HELD_MAX / 2)
        return;
    out = place(&offset);
    events_open = 1;
    atomic_fetch_add(&recalled, m.count);
    peer_post(control, IBV_WR_SEND, offset, rblk_extent_recall_encode(out, ++events_sent, &m), 0,
              0);
}

static void accept_client(struct rdma_cm_id *id, const void *data, size_t len)
{
    struct rblk_accept grant = {.version = RBLK_WIRE_VERSION};
    struct rblk_connect asked;
    struct rdma_conn_param param;
    unsigned char reply[RBLK_ACCEPT_LEN];
    unsigned int i = 0;

    while (i < CLIENTS_MAX && peers[i].id)
        i++;
    if (i == CLIENTS_MAX || rblk_connect_decode(&asked, data, len))
        helper_fail("a wrong connection request");
    peers[i].id = id;
    if (peer_prepare(&peers[i]))
        helper_fail("no queue pair: %s", strerror(errno));
    grant.kind = asked.kind;
    grant.queue_depth = asked.queue_depth;
    rblk_accept_encode(reply, &grant);
    rblk_conn_param(&param, 16, 16, reply, sizeof(reply));
    if (rdma_accept(id, &param))
        helper_fail("rdma_accept: %s", strerror(errno));
}

static bool take_event(struct rdma_event_channel *channel)
{
    struct rdma_cm_event *event;
    struct rdma_cm_id *id;
    unsigned char data[256];
    size_t len = 0;
    bool request;

    if (rdma_get_cm_event(channel, &event))
        return false;
    id = event->id;
    request = event->event == RDMA_CM_EVENT_CONNECT_REQUEST;
    if (request) {
        len = event->param.conn.private_data_len;
        memcpy(data, event->param.conn.private_data, len);
    }
    rdma_ack_cm_event(event);
    if (request)
        accept_client(id, data, len);
    return true;
}

static void serve(struct peer *p)
{
    unsigned char message[PEER_RECEIVE_LEN];
    int len;

    while ((len = peer_receive(p, message, 0)) >= 0)
        answer(p, message, (size_t)len);
    peer_reap_sends(p, NULL);
    if (len != -ECONNRESET)
        return;
    if (control == p)
        control = NULL;
    peer_close(p);
}

static void *target_main(void *arg)
{
    struct rdma_event_channel *channel = arg;
    uint64_t random = seed, next_recall = 0;

    while (!atomic_load(&done)) {
        while (take_event(channel))
            ;
        for (unsigned int i = 0; i < CLIENTS_MAX; i++)
            if (peers[i].id)
                serve(&peers[i]);
        if (helper_now() >= next_recall) {
            recall_some(&random);
            next_recall = helper_now() + helper_below(&random, 2000000);
        }
        if (helper_below(&random, 4) == 0) {
            struct timespec nap = {0, 50000};

            nanosleep(&nap, NULL);
        }
    }
    for (unsigned int i = 0; i < CLIENTS_MAX; i++)
        peer_close(&peers[i]);
    for (unsigned int i = 0; i < EXTENTS; i++)
        if (held[i])
            ibv_dereg_mr(held[i]);
    return NULL;
}

/* -- the readers ----------------------------------------------------------------------------- */

struct reader {
    pthread_t thread;
    struct rblk *h;
    uint64_t random;
};

static void *reader_main(void *arg)
{
    struct reader *r = arg;
    unsigned char *buffer = malloc(READ_MAX);

    if (!buffer)
        helper_fail("no memory");
    while (helper_now() < deadline_ns) {
        size_t len =
            1 + (size_t)helper_below(&r->random, helper_below(&r->random, 8) ? 5000 : READ_MAX);
        uint64_t offset = helper_below(&r->random, VOLUME_SIZE - len + 1);

        memset(buffer, 0x5a, len);
        if (rblk_pread(r->h, buffer, len, offset))
            helper_end(HELPER_IO_ERROR, "%s", rblk_error(r->h));
        if (memcmp(buffer, volume + offset, len) != 0)
            helper_fail("%zu bytes at %llu are wrong", len, (unsigned long long)offset);
        atomic_fetch_add(&reads, 1);
    }
    free(buffer);
    return NULL;
}

static struct rdma_event_channel *listen_somewhere(const char *host, struct rdma_cm_id **listener)
{
    struct sockaddr_storage address = peer_address(host, "0");
    struct rdma_event_channel *channel = rdma_create_event_channel();

    if (!channel || rblk_fd_nonblock(channel->fd) ||
        rdma_create_id(channel, listener, NULL, RDMA_PS_TCP) ||
        rdma_bind_addr(*listener, (struct sockaddr *)&address) || rdma_listen(*listener, 16))
        helper_fail("cannot listen: %s", strerror(errno));
    port = ntohs(rdma_get_src_port(*listener));
    return channel;
}

static void read_for_a_while(struct rblk *h)
{
    struct reader reader[READERS];

    for (unsigned int i = 0; i < READERS; i++) {
        reader[i].h = h;
        reader[i].random = seed + 1 + i;
        if (pthread_create(&reader[i].thread, NULL, reader_main, &reader[i]))
            helper_fail("cannot start a thread");
    }
    for (unsigned int i = 0; i < READERS; i++)
        pthread_join(reader[i].thread, NULL);
}

int main(int argc, char **argv)
{
    struct rdma_event_channel *channel;
    struct rdma_cm_id *listener;
    pthread_t target;
    struct rblk *h;
    char uri[128];

    helper_select_provider(argv);
    if (argc < 2 || argc > 4)
        helper_end(HELPER_USAGE, "usage: extent_recall ADDRESS [SECONDS [SEED]]");
    deadline_ns = helper_now() + (argc > 2 ? helper_number(argv[2]) : 5) * 1000000000u;
    seed = argc > 3 ? helper_number(argv[3]) : helper_now();
    printf("seed %llu\n", (unsigned long long)seed);
    volume = aligned_alloc(4096, EXTENTS * EXTENT_SIZE);
    if (!volume)
        helper_fail("no memory");
    {
        uint64_t random = seed;

        helper_random_bytes(&random, volume, EXTENTS * EXTENT_SIZE);
    }
    channel = listen_somewhere(argv[1], &listener);
    if (pthread_create(&target, NULL, target_main, channel))
        helper_fail("cannot start the target");
    snprintf(uri, sizeof(uri), "rblk://%s:%u/disk", argv[1], port);
    if (rblk_create(&h) || rblk_set_mode(h, RBLK_MODE_RO) || rblk_set_queues(h, QUEUES) ||
        rblk_connect(h, uri))
        helper_fail("%s", rblk_error(h));
    read_for_a_while(h);
    rblk_close(h);
    atomic_store(&done, true);
    pthread_join(target, NULL);
    rdma_destroy_id(listener);
    rdma_destroy_event_channel(channel);
    free(volume);
    printf("measured: %llu reads are right while %llu extents were mapped, %llu recalled and %llu "
           "released\n",
           (unsigned long long)reads, (unsigned long long)maps, (unsigned long long)recalled,
           (unsigned long long)released);
    if (released == 0)
        helper_fail("no extent was ever released");
    return 0;
}
