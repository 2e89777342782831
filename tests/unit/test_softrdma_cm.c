/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_softrdma_cm.c -- connection management of the software RDMA device, and its hostile peers
 */
#include "silent_peer.h"
#include "suite.h"
#include "test_softrdma_pair.h"

#include <netinet/tcp.h>
#include <signal.h>
#include <sys/socket.h>

static uint16_t raw_listener(int *fd)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);

    *fd = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(bind(*fd, (struct sockaddr *)&address, sizeof(address)), 0);
    ck_assert_int_eq(listen(*fd, 8), 0);
    ck_assert_int_eq(getsockname(*fd, (struct sockaddr *)&address, &length), 0);
    return address.sin_port;
}

static int raw_connect(uint16_t port_be)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = port_be, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

static const struct pair_options plain = {.size = 65536,
                                          .depth = 8,
                                          .sq_depth = 64,
                                          .rq_depth = 64,
                                          .cqe = 256,
                                          .access_a = IBV_ACCESS_LOCAL_WRITE,
                                          .access_b = IBV_ACCESS_LOCAL_WRITE};

/* Connect to something that is not there or not RDMA; the event and status that come. */
static void failing_connect(uint16_t port_be, enum rdma_cm_event_type type, int status)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_conn_param param = {.retry_count = 7};
    struct rdma_cm_event *event;
    struct end end = {0};

    end_open(&end, resolve(channel, port_be), &plain, IBV_ACCESS_LOCAL_WRITE);
    ck_assert_int_eq(rdma_connect(end.id, &param), 0);
    event = next_event(channel);
    ck_assert_msg(event->event == type && event->status == status, "got %s, status %d",
                  rdma_event_str(event->event), event->status);
    rdma_ack_cm_event(event);
    end_close(&end);
    rdma_destroy_event_channel(channel);
}

START_TEST(nothing_listens)
{
    int fd;
    uint16_t port = raw_listener(&fd);

    close(fd);
    failing_connect(port, RDMA_CM_EVENT_REJECTED, -ECONNREFUSED);
}
END_TEST

static void *answer_garbage(void *argument)
{
    int peer = accept(*(int *)argument, NULL, NULL);
    char text[512];

    ck_assert_int_gt(recv(peer, text, sizeof(text), 0), 0);
    ck_assert_int_gt(send(peer, "SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n", 32, 0), 0);
    recv(peer, text, sizeof(text), 0);
    close(peer);
    return NULL;
}

START_TEST(peer_speaks_something_else)
{
    pthread_t thread;
    int fd;
    uint16_t port = raw_listener(&fd);

    pthread_create(&thread, NULL, answer_garbage, &fd);
    failing_connect(port, RDMA_CM_EVENT_CONNECT_ERROR, -EPROTO);
    pthread_join(thread, NULL);
    close(fd);
}
END_TEST

static void *answer_close(void *argument)
{
    int peer = accept(*(int *)argument, NULL, NULL);
    char text[512];

    ck_assert_int_gt(recv(peer, text, sizeof(text), 0), 0);
    close(peer);
    return NULL;
}

START_TEST(peer_closes)
{
    pthread_t thread;
    int fd;
    uint16_t port = raw_listener(&fd);

    pthread_create(&thread, NULL, answer_close, &fd);
    failing_connect(port, RDMA_CM_EVENT_CONNECT_ERROR, -ECONNRESET);
    pthread_join(thread, NULL);
    close(fd);
}
END_TEST

START_TEST(peer_is_silent)
{
    int fd;
    uint64_t begin = now_ms(), took;
    uint16_t port = raw_listener(&fd);

    failing_connect(port, RDMA_CM_EVENT_CONNECT_ERROR, -ETIMEDOUT);
    took = now_ms() - begin;
    ck_assert_uint_ge(took, 9900);
    ck_assert_uint_le(took, 11900);
    close(fd);
}
END_TEST

START_TEST(private_data_and_reject)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *listener = listen_any(channel);
    struct rdma_conn_param param = {.private_data = "hello target",
                                    .private_data_len = 12,
                                    .responder_resources = 3,
                                    .initiator_depth = 5,
                                    .retry_count = 10};
    struct rdma_cm_event *event;
    struct end end = {0};

    end_open(&end, resolve(channel, rdma_get_src_port(listener)), &plain, IBV_ACCESS_LOCAL_WRITE);
    ck_assert_int_eq(rdma_connect(end.id, &param), 0);
    event = next_event(channel);
    ck_assert_int_eq(event->event, RDMA_CM_EVENT_CONNECT_REQUEST);
    ck_assert_ptr_eq(event->listen_id, listener);
    ck_assert_uint_eq(event->param.conn.private_data_len, 12);
    ck_assert_mem_eq(event->param.conn.private_data, "hello target", 12);
    ck_assert_uint_eq(event->param.conn.responder_resources, 5);
    ck_assert_uint_eq(event->param.conn.initiator_depth, 3);
    ck_assert_int_eq(rdma_reject(event->id, "go away", 7), 0);
    ck_assert_int_eq(rdma_destroy_id(event->id), 0);
    rdma_ack_cm_event(event);
    event = next_event(channel);
    ck_assert_int_eq(event->event, RDMA_CM_EVENT_REJECTED);
    ck_assert_uint_eq(event->param.conn.private_data_len, 7);
    ck_assert_mem_eq(event->param.conn.private_data, "go away", 7);
    rdma_ack_cm_event(event);
    end_close(&end);
    rdma_destroy_id(listener);
    rdma_destroy_event_channel(channel);
}
END_TEST

START_TEST(too_deep_is_refused)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *listener = listen_any(channel);
    struct rdma_conn_param param = {.initiator_depth = 129};
    struct end end = {0};

    end_open(&end, resolve(channel, rdma_get_src_port(listener)), &plain, IBV_ACCESS_LOCAL_WRITE);
    ck_assert_int_eq(rdma_connect(end.id, &param), -1);
    ck_assert_int_eq(errno, EINVAL);
    end_close(&end);
    rdma_destroy_id(listener);
    rdma_destroy_event_channel(channel);
}
END_TEST

START_TEST(event_channel_may_be_polled)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_event *event;

    fcntl(channel->fd, F_SETFL, O_NONBLOCK);
    ck_assert_int_eq(rdma_get_cm_event(channel, &event), -1);
    ck_assert_int_eq(errno, EAGAIN);
    rdma_destroy_event_channel(channel);
}
END_TEST

/* Strangers on the listener (garbage, half a request, silence) disturb nobody. */
START_TEST(strangers_are_dropped)
{
    struct pair pair;
    int strangers[40];
    char byte;

    pair_open(&pair, &plain);
    for (int i = 0; i < 40; i++) {
        strangers[i] = raw_connect(rdma_get_src_port(pair.listener));
        if (i % 3 == 0)
            ck_assert_int_gt(send(strangers[i], "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27, 0), 0);
        if (i % 3 == 1)
            ck_assert_int_gt(send(strangers[i], "MPA ID Req", 10, 0), 0);
    }
    ck_assert_int_eq(post_recv(&pair.b, 1, 0, 64), 0);
    ck_assert_int_eq(post(&pair.a, 2, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 64, 0, 0), 0);
    expect_wc(&pair.b, 1, IBV_WC_SUCCESS);
    for (int i = 0; i < 40; i += 3)
        ck_assert_int_le(recv(strangers[i], &byte, 1, 0), 0);
    for (int i = 1; i < 40; i += 3) /* five seconds for a request */
        ck_assert_int_le(recv(strangers[i], &byte, 1, 0), 0);
    for (int i = 0; i < 40; i++)
        close(strangers[i]);
    pair_close(&pair);
}
END_TEST

/* A peer that agrees on the connection and then sends nonsense. */
static void hostile_stream(const void *bytes, size_t length)
{
    static const uint8_t request[20] = "MPA ID Req Frame\x00\x01\x00\x00";
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *listener = listen_any(channel);
    struct rdma_conn_param param = {.responder_resources = 4};
    int fd = raw_connect(rdma_get_src_port(listener));
    struct rdma_cm_event *event;
    struct end end = {0};
    uint8_t answer[512];
    uint32_t got = 0, fpdu = 20, last = 20;
    ssize_t n;

    ck_assert_int_eq(send(fd, request, 20, 0), 20);
    event = next_event(channel);
    ck_assert_int_eq(event->event, RDMA_CM_EVENT_CONNECT_REQUEST);
    end_open(&end, event->id, &plain, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
    ck_assert_int_eq(rdma_accept(event->id, &param), 0);
    rdma_ack_cm_event(event);
    expect_event(channel, RDMA_CM_EVENT_ESTABLISHED);
    ck_assert_int_eq(post_recv(&end, 1, 0, 64), 0);
    send(fd, bytes, length, MSG_NOSIGNAL);
    expect_wc(&end, 1, IBV_WC_WR_FLUSH_ERR);
    expect_event(channel, RDMA_CM_EVENT_DISCONNECTED);
    while (got < sizeof(answer) && (n = recv(fd, answer + got, sizeof(answer) - got, 0)) > 0)
        got += (uint32_t)n;
    ck_assert_mem_eq(answer, "MPA ID Rep Frame\x00\x01\x00\x00", 20);
    ck_assert_uint_ge(got, 20 + 28);
    while (fpdu + 4 <= got) { /* length field, padded to 4, and the CRC field */
        last = fpdu;
        fpdu += (((uint32_t)answer[fpdu] << 8 | answer[fpdu + 1]) + 2 + 3) / 4 * 4 + 4;
    }
    ck_assert_uint_eq(fpdu, got);
    ck_assert_uint_eq(answer[last + 3], 0x47); /* a Terminate comes last */
    close(fd);
    end_close(&end);
    rdma_destroy_id(listener);
    rdma_destroy_event_channel(channel);
}

START_TEST(hostile_garbage)
{
    uint8_t bytes[4096];

    fill(bytes, sizeof(bytes), 99);
    hostile_stream(bytes, sizeof(bytes));
}
END_TEST

START_TEST(hostile_response_without_request)
{
    const uint8_t bytes[24] = {0x00, 0x12, 0xc1, 0x42, 1, 2, 3, 4};

    hostile_stream(bytes, sizeof(bytes));
}
END_TEST

START_TEST(hostile_read_requests_beyond_ird)
{
    uint8_t bytes[52 * 64] = {0};

    for (uint32_t i = 0; i < 64; i++) {
        const uint8_t head[20] = {
            0x00, 0x2e, 0x41, 0x41, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, (uint8_t)(i + 1), 0, 0, 0, 0};

        memcpy(bytes + 52 * (size_t)i, head, 20);
    }
    hostile_stream(bytes, sizeof(bytes));
}
END_TEST

START_TEST(hostile_message_number)
{
    const uint8_t bytes[24] = {0x00, 0x12, 0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2};

    hostile_stream(bytes, sizeof(bytes));
}
END_TEST

/* The other process is killed: everything outstanding is flushed and the id told. */
START_TEST(peer_process_killed)
{
    struct rdma_conn_param param = {
        .responder_resources = 8, .initiator_depth = 8, .retry_count = 7};
    struct rdma_event_channel *channel;
    struct rdma_cm_event *event;
    struct rdma_cm_id *listener;
    struct end end = {0};
    uint16_t port;
    int pipes[2];
    pid_t child;

    ck_assert_int_eq(pipe(pipes), 0);
    child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        channel = rdma_create_event_channel();
        listener = listen_any(channel);
        port = rdma_get_src_port(listener);
        if (write(pipes[1], &port, sizeof(port)) != sizeof(port))
            _exit(1);
        event = next_event(channel);
        end_open(&end, event->id, &plain, IBV_ACCESS_LOCAL_WRITE);
        rdma_accept(event->id, &param);
        for (;;)
            pause();
    }
    ck_assert_int_eq(read(pipes[0], &port, sizeof(port)), sizeof(port));
    channel = rdma_create_event_channel();
    end_open(&end, resolve(channel, port), &plain, IBV_ACCESS_LOCAL_WRITE);
    ck_assert_int_eq(rdma_connect(end.id, &param), 0);
    expect_event(channel, RDMA_CM_EVENT_ESTABLISHED);
    for (uint64_t i = 0; i < 8; i++)
        ck_assert_int_eq(post_recv(&end, i, 0, 64), 0);
    kill(child, SIGKILL);
    for (uint64_t i = 0; i < 8; i++)
        expect_wc(&end, i, IBV_WC_WR_FLUSH_ERR);
    expect_event(channel, RDMA_CM_EVENT_DISCONNECTED);
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
    end_close(&end);
    rdma_destroy_event_channel(channel);
    close(pipes[0]);
    close(pipes[1]);
}
END_TEST

START_TEST(forked_child_gets_errors)
{
    struct pair pair;
    int status;
    pid_t child;

    pair_open(&pair, &plain);
    child = fork();
    if (child == 0) {
        struct rdma_event_channel *channel = rdma_create_event_channel();
        int r = post(&pair.a, 1, IBV_WR_SEND, 0, 0, 8, 0, 0);

        _exit(channel == NULL && r == EIO ? 0 : 1);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    pair_close(&pair);
}
END_TEST

/* The TCP sockets of this process: how many, and that each has this congestion control. */
static unsigned int expect_congestion_control(const char *wanted, bool is)
{
    unsigned int sockets = 0;

    for (int fd = 3; fd < 256; fd++) {
        char name[16] = "";
        socklen_t length = sizeof(name) - 1;

        if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &length) < 0)
            continue;
        ck_assert_msg((strcmp(name, wanted) == 0) == is, "%s in place of%s %s", name,
                      is ? "" : " anything but", wanted);
        sockets++;
    }
    return sockets;
}

START_TEST(congestion_control_is_the_systems_but_for_bbr)
{
    char system_choice[16] = "";
    socklen_t length = sizeof(system_choice) - 1;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct pair pair;
    bool is_bbr;

    ck_assert_int_eq(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, system_choice, &length), 0);
    close(fd);
    is_bbr = strncmp(system_choice, "bbr", 3) == 0;
    unsetenv("RBLK_SOFTRDMA_CONGESTION");
    pair_open(&pair, &plain);
    ck_assert_uint_ge(expect_congestion_control(system_choice, !is_bbr), 3); /* one listens */
    pair_close(&pair);
}
END_TEST

START_TEST(congestion_control_can_be_asked_for)
{
    struct pair pair;

    setenv("RBLK_SOFTRDMA_CONGESTION", "reno", 1);
    pair_open(&pair, &plain);
    ck_assert_uint_ge(expect_congestion_control("reno", true), 3);
    pair_close(&pair);
}
END_TEST

#define MANY 64

START_TEST(many_connections)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *listener = listen_any(channel);
    struct rdma_conn_param param = {.responder_resources = 8, .initiator_depth = 8};
    static struct end a[MANY], b[MANY];
    int requests = 0, established = 0;

    memset(a, 0, sizeof(a));
    memset(b, 0, sizeof(b));
    for (int i = 0; i < MANY; i++) {
        uint8_t number = (uint8_t)i;

        param.private_data = &number;
        param.private_data_len = 1;
        end_open(&a[i], resolve(channel, rdma_get_src_port(listener)), &plain,
                 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
        ck_assert_int_eq(rdma_connect(a[i].id, &param), 0);
        while (requests + established < 3 * (i + 1)) {
            struct rdma_cm_event *event = next_event(channel);

            if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
                uint8_t which = *(const uint8_t *)event->param.conn.private_data;

                end_open(&b[which], event->id, &plain,
                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
                ck_assert_int_eq(rdma_accept(event->id, &param), 0);
                requests++;
            } else {
                ck_assert_int_eq(event->event, RDMA_CM_EVENT_ESTABLISHED);
                established++;
            }
            rdma_ack_cm_event(event);
        }
    }
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < MANY; i++)
            ck_assert_int_eq(post(&a[i], (uint64_t)i, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, 0, 4096,
                                  at(&b[i], 0), b[i].mr->rkey),
                             0);
        for (int i = 0; i < MANY; i++)
            expect_wc(&a[i], (uint64_t)i, IBV_WC_SUCCESS);
    }
    for (int i = 0; i < MANY; i++)
        end_close(&a[i]);
    for (int i = 0; i < MANY; i++)
        end_close(&b[i]);
    rdma_destroy_id(listener);
    rdma_destroy_event_channel(channel);
}
END_TEST

static void *destroy_under_load(void *argument)
{
    unsigned int seed = (unsigned int)(uintptr_t)argument;

    for (int round = 0; round < 12; round++) {
        struct pair pair;

        pair_open(&pair, NULL);
        for (uint64_t i = 0; i < 200; i++) {
            post(&pair.a, i, i & 1 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, 0, 0, 65536,
                 at(&pair.b, 1u << 20), pair.b.mr->rkey);
            post(&pair.b, i, i & 1 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, 0, 0, 32768,
                 at(&pair.a, 2u << 20), pair.a.mr->rkey);
        }
        if (rand_r(&seed) & 1)
            usleep((useconds_t)(rand_r(&seed) % 3000));
        if (rand_r(&seed) & 1)
            rdma_disconnect(pair.a.id);
        if (rand_r(&seed) & 1) { /* memory goes before the queue pair */
            ibv_dereg_mr(pair.b.mr);
            pair.b.mr = NULL;
        }
        if (rand_r(&seed) & 1)
            end_close(&pair.b);
        pair_close(&pair);
    }
    return NULL;
}

START_TEST(destruction_under_load)
{
    pthread_t threads[4];

    for (uintptr_t i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, destroy_under_load, (void *)(i + 1)), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
}
END_TEST

/* The listener goes while requests wait for an answer. */
START_TEST(listener_destroyed_with_requests)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_event_channel *quiet = rdma_create_event_channel();
    struct rdma_cm_id *listener = listen_any(quiet);
    struct rdma_conn_param param = {.retry_count = 7};
    struct pollfd wait = {.fd = quiet->fd, .events = POLLIN};
    struct rdma_cm_event *event;
    struct end end = {0};
    int half = raw_connect(rdma_get_src_port(listener));

    end_open(&end, resolve(channel, rdma_get_src_port(listener)), &plain, IBV_ACCESS_LOCAL_WRITE);
    ck_assert_int_eq(rdma_connect(end.id, &param), 0);
    ck_assert_int_eq(poll(&wait, 1, 5000), 1);
    ck_assert_int_eq(rdma_destroy_id(listener), 0);
    event = next_event(channel);
    ck_assert_int_eq(event->event, RDMA_CM_EVENT_REJECTED);
    rdma_ack_cm_event(event);
    close(half);
    end_close(&end);
    rdma_destroy_event_channel(channel);
    rdma_destroy_event_channel(quiet);
}
END_TEST

static void nudged(struct silent_peer *peer)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_conn_param param = {.retry_count = 7};
    struct end end = {0};
    unsigned int done = 0; /* bits by work request */
    pthread_t thread;

    silent_peer_listen(peer);
    pthread_create(&thread, NULL, silent_peer_main, peer);
    end_open(&end, resolve(channel, peer->port_be), &plain, IBV_ACCESS_LOCAL_WRITE);
    ck_assert_int_eq(post_recv(&end, 1, 0, 64), 0);
    ck_assert_int_eq(rdma_connect(end.id, &param), 0);
    expect_event(channel, RDMA_CM_EVENT_ESTABLISHED);
    usleep(100000); /* nothing is sent before the application sends */
    ck_assert_int_eq(post(&end, 2, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 4, 0, 0), 0);
    /* Send and receive queue have no order between them: the answer may be seen first. */
    for (unsigned int i = 0; i < (peer->answers ? 2 : 1); i++) {
        struct ibv_wc wc = wait_wc(&end);

        ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
        done |= 1u << wc.wr_id;
    }
    ck_assert_uint_eq(done, peer->answers ? 1u << 1 | 1u << 2 : 1u << 2);
    usleep(1000000);
    rdma_disconnect(end.id);
    pthread_join(thread, NULL);
    end_close(&end);
    rdma_destroy_event_channel(channel);
}

/* What kernel siw needs as the passive side (tx.c, soft_tx_nudge): six within 630 ms. */
START_TEST(silent_peer_is_nudged)
{
    struct silent_peer peer = {0};

    nudged(&peer);
    ck_assert_uint_eq(peer.sends, 1);
    ck_assert_uint_eq(peer.empty_writes, 6);
    ck_assert_uint_eq(peer.others, 0);
}
END_TEST

START_TEST(answering_peer_is_left_alone)
{
    struct silent_peer peer = {.answers = true};

    nudged(&peer);
    ck_assert_uint_eq(peer.sends, 1);
    /* One may have gone out before a busy machine let the answer through. */
    ck_assert_uint_lt(peer.empty_writes, 3);
    ck_assert_uint_eq(peer.others, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("softrdma_cm");
    TCase *tcase = tcase_create("cm");

    tcase_set_timeout(tcase, 90);
    tcase_add_test(tcase, nothing_listens);
    tcase_add_test(tcase, peer_speaks_something_else);
    tcase_add_test(tcase, peer_closes);
    tcase_add_test(tcase, peer_is_silent);
    tcase_add_test(tcase, private_data_and_reject);
    tcase_add_test(tcase, too_deep_is_refused);
    tcase_add_test(tcase, event_channel_may_be_polled);
    tcase_add_test(tcase, strangers_are_dropped);
    tcase_add_test(tcase, hostile_garbage);
    tcase_add_test(tcase, hostile_response_without_request);
    tcase_add_test(tcase, hostile_read_requests_beyond_ird);
    tcase_add_test(tcase, hostile_message_number);
    tcase_add_test(tcase, peer_process_killed);
    tcase_add_test(tcase, forked_child_gets_errors);
    tcase_add_test(tcase, congestion_control_is_the_systems_but_for_bbr);
    tcase_add_test(tcase, congestion_control_can_be_asked_for);
    tcase_add_test(tcase, many_connections);
    tcase_add_test(tcase, destruction_under_load);
    tcase_add_test(tcase, listener_destroyed_with_requests);
    tcase_add_test(tcase, silent_peer_is_nudged);
    tcase_add_test(tcase, answering_peer_is_left_alone);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
