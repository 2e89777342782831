/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_target_client -- a target in this process and a client of bare messages, for
 * test_target_*.c
 *
 * The target runs as in rblkd: its control thread is a thread of the test, its reactors are its
 * own. The client is no initiator: it sends what it is told, also what no initiator would. Every
 * wait is bounded.
 */
#ifndef RBLK_TESTS_TEST_TARGET_CLIENT_H
#define RBLK_TESTS_TEST_TARGET_CLIENT_H

#include <check.h>
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/verbs.h"
#include "common/wire.h"
#include "target/config.h"
#include "target/listener.h"
#include "target/target.h"

#define WAIT_MS 5000
#define CLIENT_BUFFER \
    8256 /* bytes of one message buffer: the largest control message, or command with 8 KiB */
#define CLIENT_DEPTH 64
#define CLIENT_DATA (1u << 20)

/* -- the target ------------------------------------------------------------------------------- */

static struct {
    struct config config;
    struct target target;
    pthread_t thread;
    int signal_pipe[2];
    char port[8];
    char directory[64];
    char disk[96], other[96];
    bool stopped;
    int expected; /* result of target_stop */
} server;

#define DISK_SIZE ((3u << 20) + 4097) /* of volume "disk": its last extent and page are short */

__attribute__((unused)) static void make_file(const char *path, size_t size)
{
    FILE *f = fopen(path, "w");

    ck_assert_ptr_nonnull(f);
    for (size_t i = 0; i < size; i++)
        putc((int)(i * 31 + i / 4096) & 0xff, f);
    ck_assert_int_eq(fclose(f), 0);
}

static void *server_main(void *opaque)
{
    target_run(opaque);
    return NULL;
}

/*
 * Volumes: "disk" (DISK_SIZE), "other" (1 MiB), "fixed" (the same size, read-only). Extents of 1
 * MiB.
 */
__attribute__((unused)) static void server_start(void)
{
    char err[512] = "", text[128], fixed[96];

    memset(&server, 0, sizeof(server));
    snprintf(server.directory, sizeof(server.directory), "/tmp/test_target.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(server.directory));
    snprintf(server.disk, sizeof(server.disk), "%s/disk", server.directory);
    snprintf(server.other, sizeof(server.other), "%s/other", server.directory);
    snprintf(fixed, sizeof(fixed), "%s/fixed", server.directory);
    make_file(server.disk, DISK_SIZE);
    make_file(server.other, 1u << 20);
    make_file(fixed, 1u << 20);
    rblk_log_init("test", RBLK_LOG_ERROR);
    config_init(&server.config);
    server.config.extent_size = 1u << 20;
    server.config.threads = 2;
    snprintf(text, sizeof(text), "disk=%s", server.disk);
    ck_assert_int_eq(config_add_volume(&server.config, text, err, sizeof(err)), 0);
    snprintf(text, sizeof(text), "other=%s", server.other);
    ck_assert_int_eq(config_add_volume(&server.config, text, err, sizeof(err)), 0);
    snprintf(text, sizeof(text), "fixed=%s,ro", fixed);
    ck_assert_int_eq(config_add_volume(&server.config, text, err, sizeof(err)), 0);
    ck_assert_int_eq(
        config_set(&server.config, "listen", "127.0.0.1:0", CONFIG_COMMAND_LINE, err, sizeof(err)),
        0);
    ck_assert_int_eq(pipe(server.signal_pipe), 0);
    ck_assert_int_eq(rblk_fd_nonblock(server.signal_pipe[0]), 0);
    ck_assert_msg(
        target_start(&server.target, &server.config, server.signal_pipe[0], err, sizeof(err)) == 0,
        "%s", err);
    listener_describe(&server.target, text, sizeof(text));
    snprintf(server.port, sizeof(server.port), "%s", strrchr(text, ':') + 1);
    ck_assert_int_eq(pthread_create(&server.thread, NULL, server_main, &server.target), 0);
}

__attribute__((unused)) static void server_signal(void)
{
    struct signalfd_siginfo info = {.ssi_signo = SIGTERM};

    ck_assert_int_eq(write(server.signal_pipe[1], &info, sizeof(info)), sizeof(info));
}

/* Ends the target as SIGTERM does and expects good order. */
__attribute__((unused)) static void server_stop(void)
{
    char command[128];

    if (!server.stopped)
        server_signal();
    pthread_join(server.thread, NULL);
    ck_assert_int_eq(target_stop(&server.target), server.expected);
    config_free(&server.config);
    close(server.signal_pipe[0]);
    close(server.signal_pipe[1]);
    snprintf(command, sizeof(command), "rm -r %s", server.directory);
    ck_assert_int_eq(system(command), 0);
}

/* -- the client ------------------------------------------------------------------------------- */

/* A connection of either kind. */
struct client {
    struct rdma_cm_id *id;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_mr *mr, *data_mr;
    uint8_t *buffers; /* CLIENT_DEPTH receives, then one to send from */
    uint8_t *data;    /* CLIENT_DATA bytes, for one-sided work */
    struct rblk_accept accept;
    struct rblk_reject reject;
    bool rejected, failed; /* failed: a work request ended in error */
    uint64_t tag;
    enum ibv_wc_status status; /* of the first failed work request */
};

static void client_post_receive(struct client *c, uint32_t i)
{
    ck_assert_int_eq(rdma_post_recv(c->id, (void *)(uintptr_t)i, c->buffers + i * CLIENT_BUFFER,
                                    CLIENT_BUFFER, c->mr),
                     0);
}

static void client_prepare(struct client *c)
{
    struct rblk_qp_limits limits = {
        .send_wr = 256, .recv_wr = CLIENT_DEPTH, .send_sge = 1, .recv_sge = 1};
    size_t len = (size_t)(CLIENT_DEPTH + 1) * CLIENT_BUFFER;

    c->pd = ibv_alloc_pd(c->id->verbs);
    c->cq = ibv_create_cq(c->id->verbs, 1024, NULL, NULL, 0);
    ck_assert(c->pd && c->cq);
    ck_assert_int_eq(rblk_qp_create(c->id, c->pd, c->cq, c->cq, &limits), 0);
    c->buffers = calloc(1, len);
    c->data = calloc(1, CLIENT_DATA);
    ck_assert(c->buffers && c->data);
    c->mr = rdma_reg_msgs(c->id, c->buffers, len);
    c->data_mr = rdma_reg_msgs(c->id, c->data, CLIENT_DATA);
    ck_assert(c->mr && c->data_mr);
    for (uint32_t i = 0; i < CLIENT_DEPTH; i++)
        client_post_receive(c, i);
}

/* Connects with this private data; what came of it is in accept or reject. */
__attribute__((unused)) static struct client *client_connect_raw(const void *private_data,
                                                                 size_t len)
{
    struct client *c = calloc(1, sizeof(*c));
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST}, *address;
    struct rdma_conn_param param;

    ck_assert_ptr_nonnull(c);
    ck_assert_int_eq(getaddrinfo("127.0.0.1", server.port, &hints, &address), 0);
    ck_assert_int_eq(rdma_create_id(NULL, &c->id, NULL, RDMA_PS_TCP), 0);
    ck_assert_int_eq(rdma_resolve_addr(c->id, NULL, address->ai_addr, WAIT_MS), 0);
    freeaddrinfo(address);
    ck_assert_int_eq(rdma_resolve_route(c->id, WAIT_MS), 0);
    client_prepare(c);
    rblk_conn_param(&param, 16, 0, private_data, (uint8_t)len);
    if (rdma_connect(c->id, &param)) {
        ck_assert_ptr_nonnull(c->id->event);
        c->rejected = true;
        ck_assert_int_eq(c->id->event->event, RDMA_CM_EVENT_REJECTED);
        ck_assert_int_eq(rblk_reject_decode(&c->reject, c->id->event->param.conn.private_data,
                                            c->id->event->param.conn.private_data_len),
                         0);
    } else {
        ck_assert_int_eq(rblk_accept_decode(&c->accept, c->id->event->param.conn.private_data,
                                            c->id->event->param.conn.private_data_len),
                         0);
    }
    return c;
}

__attribute__((unused)) static struct client *client_connect(enum rblk_kind kind,
                                                             const uint8_t *token, uint16_t queue,
                                                             uint16_t depth)
{
    struct rblk_connect m = {.version = RBLK_WIRE_VERSION,
                             .kind = (uint8_t)kind,
                             .queue_id = queue,
                             .queue_depth = depth};
    uint8_t private_data[RBLK_CONNECT_LEN];

    if (token)
        memcpy(m.token, token, sizeof(m.token));
    return client_connect_raw(private_data, rblk_connect_encode(private_data, &m));
}

/* Ends the connection without a word, as a killed process does. */
__attribute__((unused)) static void client_close(struct client *c)
{
    if (!c)
        return;
    rdma_disconnect(c->id);
    rdma_destroy_qp(c->id);
    rdma_dereg_mr(c->data_mr);
    rdma_dereg_mr(c->mr);
    rdma_destroy_id(c->id);
    ibv_destroy_cq(c->cq);
    ibv_dealloc_pd(c->pd);
    free(c->data);
    free(c->buffers);
    free(c);
}

/*
 * Takes work completions until one of the kind wanted: its buffer and length. NULL: failed or too
 * late.
 */
static const uint8_t *client_wait(struct client *c, enum ibv_wc_opcode wanted, uint32_t *len)
{
    uint64_t deadline = rblk_deadline_ms(WAIT_MS);
    struct ibv_wc wc;

    while (!c->failed && rblk_now_ns() < deadline) {
        int n = ibv_poll_cq(c->cq, 1, &wc);

        ck_assert_int_ge(n, 0);
        if (n == 0) {
            sched_yield();
        } else if (wc.status != IBV_WC_SUCCESS) {
            c->failed = true;
            c->status = wc.status;
        } else if (wc.opcode == wanted) {
            if (len)
                *len = wc.byte_len;
            return c->buffers + (size_t)wc.wr_id * CLIENT_BUFFER;
        }
    }
    return NULL;
}

__attribute__((unused)) static void client_send(struct client *c, const void *message, size_t len)
{
    uint8_t *buffer = c->buffers + (size_t)CLIENT_DEPTH * CLIENT_BUFFER;

    ck_assert_uint_le(len, CLIENT_BUFFER);
    if (message != buffer)
        memcpy(buffer, message, len);
    ck_assert_int_eq(rdma_post_send(c->id, NULL, buffer, len, c->mr, IBV_SEND_SIGNALED), 0);
}

/* True when the target ends this connection. */
__attribute__((unused)) static bool client_is_dropped(struct client *c)
{
    client_wait(c, IBV_WC_RDMA_READ, NULL);
    return c->failed;
}

/* Sends a control message and waits for a message back, which is copied to `reply`. */
__attribute__((unused)) static size_t client_request(struct client *c, const void *message,
                                                     size_t len, uint8_t *reply)
{
    uint32_t got = 0;
    const uint8_t *buffer;

    client_send(c, message, len);
    buffer = client_wait(c, IBV_WC_RECV, &got);
    if (!buffer)
        return 0;
    memcpy(reply, buffer, got);
    client_post_receive(c, (uint32_t)((size_t)(buffer - c->buffers) / CLIENT_BUFFER));
    return got;
}

/* Status of the reply to a request. */
__attribute__((unused)) static int client_status(struct client *c, const void *message, size_t len,
                                                 uint8_t *reply, size_t *reply_len)
{
    struct rblk_header header;

    *reply_len = client_request(c, message, len, reply);
    ck_assert_uint_ge(*reply_len, RBLK_HEADER_LEN);
    ck_assert_int_eq(rblk_header_decode(&header, reply, *reply_len), 0);
    return header.status;
}

/* A control connection that has said HELLO. */
__attribute__((unused)) static struct client *client_hello(uint32_t keepalive_ms)
{
    struct rblk_hello hello = {
        .version_min = 1, .version_max = 1, .keepalive_ms = keepalive_ms, .client = "test"};
    struct client *c = client_connect(RBLK_KIND_CONTROL, NULL, 0, 0);
    uint8_t message[RBLK_CONTROL_MAX], reply[RBLK_CONTROL_MAX];
    struct rblk_hello_reply answer;
    size_t len;

    ck_assert(!c->rejected);
    ck_assert_int_eq(
        client_status(c, message, rblk_hello_encode(message, ++c->tag, &hello), reply, &len),
        RBLK_STATUS_OK);
    ck_assert_int_eq(rblk_hello_reply_decode(&answer, reply, len), 0);
    ck_assert_uint_eq(answer.keepalive_ms, keepalive_ms);
    return c;
}

/* Attaches; a status. */
__attribute__((unused)) static int client_attach(struct client *c, const char *volume,
                                                 enum rblk_attach_mode mode,
                                                 struct rblk_attach_reply *out)
{
    uint8_t message[RBLK_CONTROL_MAX], reply[RBLK_CONTROL_MAX];
    struct rblk_attach m = {.mode = (uint8_t)mode};
    size_t len;
    int status;

    snprintf(m.volume, sizeof(m.volume), "%s", volume);
    status = client_status(c, message, rblk_attach_encode(message, ++c->tag, &m), reply, &len);
    if (status == RBLK_STATUS_OK)
        ck_assert_int_eq(rblk_attach_reply_decode(out, reply, len), 0);
    return status;
}

/* Sends a request without body; a status. */
__attribute__((unused)) static int client_simple(struct client *c, enum rblk_type type)
{
    uint8_t message[RBLK_CONTROL_MAX], reply[RBLK_CONTROL_MAX];
    size_t len;

    return client_status(c, message, rblk_empty_encode(message, (uint8_t)type, ++c->tag), reply,
                         &len);
}

__attribute__((unused)) static void client_stats(struct client *c, struct rblk_stats_reply *out)
{
    uint8_t message[RBLK_CONTROL_MAX], reply[RBLK_CONTROL_MAX];
    size_t len;

    ck_assert_int_eq(
        client_status(c, message, rblk_empty_encode(message, RBLK_STATS, ++c->tag), reply, &len),
        RBLK_STATUS_OK);
    ck_assert_int_eq(rblk_stats_reply_decode(out, reply, len), 0);
}

/* True as soon as the target has counted so many protocol errors and no more. */
__attribute__((unused)) static bool client_sees_protocol_errors(struct client *c, uint64_t count)
{
    uint64_t deadline = rblk_deadline_ms(WAIT_MS);
    struct rblk_stats_reply stats;

    /* The provider may tell the offender of its fault before it tells the target. */
    do
        client_stats(c, &stats);
    while (stats.protocol_errors < count && rblk_now_ns() < deadline);
    return stats.protocol_errors == count;
}

/* Maps extents; a status. */
__attribute__((unused)) static int client_map(struct client *c, uint64_t first, uint32_t count,
                                              struct rblk_extent_map_reply *out)
{
    uint8_t message[RBLK_CONTROL_MAX], reply[RBLK_CONTROL_MAX];
    struct rblk_extent_map m = {.first = first, .count = count};
    size_t len;
    int status =
        client_status(c, message, rblk_extent_map_encode(message, ++c->tag, &m), reply, &len);

    if (status == RBLK_STATUS_OK)
        ck_assert_int_eq(rblk_extent_map_reply_decode(out, reply, len), 0);
    return status;
}

/* Reads with RDMA into c->data; the status of the work request. */
__attribute__((unused)) static enum ibv_wc_status client_read(struct client *c, uint64_t addr,
                                                              uint32_t rkey, size_t len)
{
    ck_assert_int_eq(
        rdma_post_read(c->id, NULL, c->data, len, c->data_mr, IBV_SEND_SIGNALED, addr, rkey), 0);
    if (client_wait(c, IBV_WC_RDMA_READ, NULL))
        return IBV_WC_SUCCESS;
    return c->failed ? c->status : IBV_WC_RESP_TIMEOUT_ERR;
}

/*
 * Sends a command, inline data behind it; the status of its completion, or -1 when the queue
 * broke.
 */
__attribute__((unused)) static int client_command(struct client *c, const struct rblk_command *m,
                                                  const void *inline_data)
{
    uint8_t message[CLIENT_BUFFER];
    struct rblk_completion done;
    const uint8_t *buffer;
    uint32_t len = 0;
    size_t data_len = m->flags & RBLK_CMD_INLINE ? m->length : 0;

    rblk_command_encode(message, m);
    if (data_len)
        memcpy(message + RBLK_COMMAND_LEN, inline_data, data_len);
    client_send(c, message, RBLK_COMMAND_LEN + data_len);
    buffer = client_wait(c, IBV_WC_RECV, &len);
    if (!buffer)
        return -1;
    ck_assert_int_eq(rblk_completion_decode(&done, buffer, len), 0);
    ck_assert_uint_eq(done.slot, m->slot);
    client_post_receive(c, (uint32_t)((size_t)(buffer - c->buffers) / CLIENT_BUFFER));
    return done.status;
}

#endif
