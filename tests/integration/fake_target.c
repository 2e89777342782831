/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fake_target -- listens where a target should be, and misbehaves in one chosen way until SIGTERM
 *
 *   fake_target MODE HOST PORT
 *
 * Modes tcp-* speak plain TCP; the others are a rblk target with one fault (see `faults`). It says
 * "listening" when it is ready. "good" has no fault: a volume of 1 MiB that reads as zeros, and takes
 * writes of up to 2 KiB without keeping them.
 */
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include "peer.h"

#define CLIENTS_MAX 32
#define VOLUME_SIZE (1u << 20)
#define INLINE_MAX 2048 /* bytes; the receives of a peer are too short for the usual 8 KiB */

enum fault {
    GOOD,
    REJECT_VERSION, /* rejects, and says that it speaks version 99 */
    REJECT_EMPTY,   /* rejects without private data */
    REJECT_GARBAGE,
    ACCEPT_VERSION, /* accepts with private data of version 99 */
    ACCEPT_EMPTY,   /* accepts without private data, as a foreign RDMA server does */
    ACCEPT_GARBAGE,
    SILENT,        /* accepts and never answers */
    HELLO_VERSION, /* answers HELLO with the error VERSION */
    HELLO_99,      /* answers HELLO with version 99 */
    HELLO_GARBAGE,
    HELLO_SHORT,
    HELLO_EMPTY,    /* a message of no bytes */
    HELLO_TAG,      /* answers to another request */
    HELLO_TERMINAL, /* an escape sequence in the target's name */
    HELLO_FLOOD,    /* more messages than the client has receives */
    CLOSE_AT_HELLO,
    CLOSE_AT_ATTACH,
    SILENT_AT_ATTACH,
    ERROR_TERMINAL, /* an error text with escape sequences and line feeds */
    ATTACH_SIZE_ZERO,
    ATTACH_SIZE_HUGE,
    ATTACH_EXTENT_SIZE,
    ATTACH_QUEUES,
    ATTACH_SHORT,
    LIST_COUNT,   /* a list that never ends */
    LIST_NAME,    /* a volume name that is none */
    QUEUE_REJECT, /* attaches, then rejects the I/O queue */
    QUEUE_GARBAGE,
    QUEUE_DEPTH,     /* grants more depth than was asked for */
    EXTENT_SHORT,    /* an extent that is shorter than the volume needs */
    EXTENT_WRONG,    /* an extent with a key that opens nothing */
    EXTENT_OTHER,    /* not the extent that was asked for */
    COMPLETION_SLOT, /* completes a slot that was never used */
    COMPLETION_SHORT,
    COMPLETION_TWICE,
    COMPLETION_STATUS, /* a status that does not exist */
};

static const struct {
    const char *name;
    enum fault fault;
} faults[] = {
    {"good", GOOD},
    {"reject-version", REJECT_VERSION},
    {"reject-empty", REJECT_EMPTY},
    {"reject-garbage", REJECT_GARBAGE},
    {"accept-version", ACCEPT_VERSION},
    {"accept-empty", ACCEPT_EMPTY},
    {"accept-garbage", ACCEPT_GARBAGE},
    {"silent", SILENT},
    {"hello-version", HELLO_VERSION},
    {"hello-99", HELLO_99},
    {"hello-garbage", HELLO_GARBAGE},
    {"hello-short", HELLO_SHORT},
    {"hello-empty", HELLO_EMPTY},
    {"hello-tag", HELLO_TAG},
    {"hello-terminal", HELLO_TERMINAL},
    {"hello-flood", HELLO_FLOOD},
    {"close-at-hello", CLOSE_AT_HELLO},
    {"close-at-attach", CLOSE_AT_ATTACH},
    {"silent-at-attach", SILENT_AT_ATTACH},
    {"error-terminal", ERROR_TERMINAL},
    {"attach-size-zero", ATTACH_SIZE_ZERO},
    {"attach-size-huge", ATTACH_SIZE_HUGE},
    {"attach-extent-size", ATTACH_EXTENT_SIZE},
    {"attach-queues", ATTACH_QUEUES},
    {"attach-short", ATTACH_SHORT},
    {"list-count", LIST_COUNT},
    {"list-name", LIST_NAME},
    {"queue-reject", QUEUE_REJECT},
    {"queue-garbage", QUEUE_GARBAGE},
    {"queue-depth", QUEUE_DEPTH},
    {"extent-short", EXTENT_SHORT},
    {"extent-wrong", EXTENT_WRONG},
    {"extent-other", EXTENT_OTHER},
    {"completion-slot", COMPLETION_SLOT},
    {"completion-short", COMPLETION_SHORT},
    {"completion-twice", COMPLETION_TWICE},
    {"completion-status", COMPLETION_STATUS},
};

static volatile sig_atomic_t ended;
static enum fault fault;
static struct peer clients[CLIENTS_MAX];
static bool is_queue[CLIENTS_MAX];
static struct ibv_mr *volume; /* in the protection domain that all connections share */

static void end(int number)
{
    (void)number;
    ended = 1;
}

static void say_listening(void)
{
    puts("listening");
    fflush(stdout);
}

/* -- plain TCP ----------------------------------------------------------------------------------- */

static void tcp_answer(int fd, const char *mode)
{
    char buffer[4096];
    uint64_t random = 1;

    if (strcmp(mode, "tcp-silent") == 0)
        return; /* stays open until the program ends */
    if (strcmp(mode, "tcp-close") == 0) {
        close(fd);
        return;
    }
    if (recv(fd, buffer, sizeof(buffer), 0) < 0)
        helper_fail("recv: %s", strerror(errno));
    if (strcmp(mode, "tcp-garbage") == 0) {
        helper_random_bytes(&random, buffer, sizeof(buffer));
        send(fd, buffer, sizeof(buffer), MSG_NOSIGNAL);
    } else if (strcmp(mode, "tcp-http") == 0) {
        static const char text[] = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n";

        send(fd, text, sizeof(text) - 1, MSG_NOSIGNAL);
        close(fd);
    } else if (strcmp(mode, "tcp-half") == 0) { /* half of an MPA reply */
        send(fd, "MPA ID Rep", 10, MSG_NOSIGNAL);
    } else if (strcmp(mode, "tcp-huge") ==
               0) { /* a reply that claims 65535 bytes of private data */
        send(fd, "MPA ID Rep Frame\x10\x02\xff\xff", 20, MSG_NOSIGNAL);
    } else {
        helper_end(HELPER_USAGE, "there is no mode \"%s\"", mode);
    }
}

static int tcp_serve(const char *mode, const struct sockaddr_storage *address)
{
    socklen_t length =
        address->ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    int one = 1, fd = socket(address->ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (fd < 0 || bind(fd, (const struct sockaddr *)address, length) != 0 || listen(fd, 64) != 0)
        helper_fail("cannot listen: %s", strerror(errno));
    say_listening();
    while (!ended) {
        struct pollfd p = {fd, POLLIN, 0};

        if (poll(&p, 1, 200) > 0) {
            int client = accept(fd, NULL, NULL);

            if (client >= 0)
                tcp_answer(client, mode);
        }
    }
    return 0;
}

/* -- connections ------------------------------------------------------------------------------------ */

static void reject(struct rdma_cm_id *id)
{
    struct rblk_reject m = {99, RBLK_STATUS_VERSION};
    unsigned char data[RBLK_REJECT_LEN];
    size_t length = rblk_reject_encode(data, &m);

    if (fault == REJECT_EMPTY)
        length = 0;
    if (fault == REJECT_GARBAGE)
        memset(data, 0xc3, sizeof(data));
    if (fault == QUEUE_REJECT) {
        m.version = RBLK_WIRE_VERSION;
        m.status = RBLK_STATUS_LIMIT;
        length = rblk_reject_encode(data, &m);
    }
    rdma_reject(id, length > 0 ? data : NULL, (uint8_t)length);
}

static size_t accept_data(const struct rblk_connect *asked, unsigned char *data)
{
    struct rblk_accept m = {
        .version = RBLK_WIRE_VERSION, .kind = asked->kind, .queue_depth = asked->queue_depth};

    if (asked->kind == RBLK_KIND_IO) {
        m.staging_addr = 1u << 20;
        m.staging_rkey = 0x1234;
        m.staging_len = 1u << 20;
        if (fault == QUEUE_DEPTH)
            m.queue_depth = (uint16_t)(asked->queue_depth + 1);
    }
    if (fault == ACCEPT_VERSION)
        m.version = 99;
    rblk_accept_encode(data, &m);
    if (fault == ACCEPT_GARBAGE || (fault == QUEUE_GARBAGE && asked->kind == RBLK_KIND_IO))
        memset(data, 0xc3, RBLK_ACCEPT_LEN);
    return fault == ACCEPT_EMPTY ? 0 : RBLK_ACCEPT_LEN;
}

static void connect_request(struct rdma_cm_id *id, const void *data, size_t length)
{
    struct rblk_connect asked;
    struct rdma_conn_param param;
    unsigned char answer[RBLK_ACCEPT_LEN];
    unsigned int i = 0;

    while (i < CLIENTS_MAX && clients[i].id != NULL)
        i++;
    if (i == CLIENTS_MAX || rblk_connect_decode(&asked, data, length) != 0 ||
        fault == REJECT_VERSION || fault == REJECT_EMPTY || fault == REJECT_GARBAGE ||
        (fault == QUEUE_REJECT && asked.kind == RBLK_KIND_IO)) {
        reject(id);
        return;
    }
    is_queue[i] = asked.kind == RBLK_KIND_IO;
    clients[i].id = id;
    if (peer_prepare(&clients[i]) != 0)
        helper_fail("no queue pair: %s", strerror(errno));
    if (volume == NULL)
        volume = ibv_reg_mr(id->pd, calloc(1, VOLUME_SIZE), VOLUME_SIZE, IBV_ACCESS_REMOTE_READ);
    if (volume == NULL)
        helper_fail("no memory region: %s", strerror(errno));
    length = accept_data(&asked, answer);
    rblk_conn_param(&param, 16, 16, length > 0 ? answer : NULL, (uint8_t)length);
    if (rdma_accept(id, &param) != 0)
        helper_fail("rdma_accept: %s", strerror(errno));
}

/* -- answers -------------------------------------------------------------------------------------------- */

static size_t hello_reply(unsigned char *out, uint64_t tag)
{
    struct rblk_hello_reply m = {.version = 1, .keepalive_ms = 5000, .target = "fake"};
    size_t length;

    if (fault == HELLO_VERSION)
        return rblk_error_encode(out, RBLK_HELLO, tag, RBLK_STATUS_VERSION, "I speak version 99");
    if (fault == HELLO_99)
        m.version = 99;
    if (fault == HELLO_TERMINAL)
        strcpy(m.target, "\x1b[2Jfake");
    length = rblk_hello_reply_encode(out, fault == HELLO_TAG ? tag + 1 : tag, &m);
    if (fault == HELLO_GARBAGE)
        memset(out, 0xc3, length);
    if (fault == HELLO_SHORT)
        return length / 2;
    return fault == HELLO_EMPTY ? 0 : length;
}

static size_t attach_reply(unsigned char *out, uint64_t tag)
{
    struct rblk_attach_reply m = {
        .size = VOLUME_SIZE,
        .extent_size = 64u << 20,
        .write_verifier = 1,
        .max_queues = 4,
        .max_queue_depth = 64,
        .max_io = 1u << 20,
        .max_inline = INLINE_MAX,
        .max_reads = 16,
    };

    memset(m.token, 0x33, sizeof(m.token));
    if (fault == ERROR_TERMINAL)
        return rblk_error_encode(out, RBLK_ATTACH, tag, RBLK_STATUS_PERMISSION,
                                 "no\n\x1b[31mroot# rm -rf /\x1b[0m\r\nway");
    if (fault == ATTACH_SIZE_ZERO)
        m.size = 0;
    if (fault == ATTACH_SIZE_HUGE)
        m.size = UINT64_MAX;
    if (fault == ATTACH_EXTENT_SIZE)
        m.extent_size = 4097;
    if (fault == ATTACH_QUEUES)
        m.max_queues = 0;
    return rblk_attach_reply_encode(out, tag, &m) - (fault == ATTACH_SHORT ? 8 : 0);
}

static size_t list_reply(unsigned char *out, uint64_t tag)
{
    static struct rblk_list_reply m; /* large */

    m.total = 1;
    m.count = fault == LIST_COUNT ? 0 : 1;
    m.entry[0].size = VOLUME_SIZE;
    strcpy(m.entry[0].name, fault == LIST_NAME ? "../disk" : "disk");
    return rblk_list_reply_encode(out, tag, &m);
}

static size_t extent_reply(unsigned char *out, uint64_t tag)
{
    static struct rblk_extent_map_reply m; /* large */

    m.count = 1;
    m.first = fault == EXTENT_OTHER ? 7 : 0;
    m.entry[0].addr = (uintptr_t)volume->addr;
    m.entry[0].rkey = fault == EXTENT_WRONG ? volume->rkey ^ 0x5a00 : volume->rkey;
    m.entry[0].length = fault == EXTENT_SHORT ? 512 : VOLUME_SIZE;
    return rblk_extent_map_reply_encode(out, tag, &m);
}

/* The answer to one control message; SIZE_MAX: none. */
static size_t answer(struct peer *p, const unsigned char *message, size_t length)
{
    struct rblk_header header;

    if (rblk_header_decode(&header, message, length) != 0 || fault == SILENT)
        return SIZE_MAX;
    switch (header.type) {
    case RBLK_HELLO:
        if (fault == CLOSE_AT_HELLO) {
            rdma_disconnect(p->id);
            return SIZE_MAX;
        }
        return hello_reply(p->out, header.tag);
    case RBLK_ATTACH:
        if (fault == CLOSE_AT_ATTACH)
            rdma_disconnect(p->id);
        if (fault == CLOSE_AT_ATTACH || fault == SILENT_AT_ATTACH)
            return SIZE_MAX;
        return attach_reply(p->out, header.tag);
    case RBLK_LIST:
        return list_reply(p->out, header.tag);
    case RBLK_EXTENT_MAP:
        return extent_reply(p->out, header.tag);
    case RBLK_PING:
    case RBLK_DETACH:
        return rblk_empty_encode(p->out, header.type | RBLK_REPLY, header.tag);
    default:
        return rblk_error_encode(p->out, header.type & 0x7f, header.tag, RBLK_STATUS_NOT_SUPPORTED,
                                 "a fake does not do that");
    }
}

static void complete(struct peer *p, const unsigned char *message, size_t length)
{
    struct rblk_command command;
    struct rblk_completion m = {.status = RBLK_STATUS_OK, .write_verifier = 1};
    size_t reply;

    if (rblk_command_decode(&command, message, length) != 0)
        return;
    m.slot = fault == COMPLETION_SLOT ? 255 : command.slot;
    if (fault == COMPLETION_STATUS)
        m.status = 999;
    reply = rblk_completion_encode(p->out, &m) - (fault == COMPLETION_SHORT ? 4 : 0);
    peer_post(p, IBV_WR_SEND, 0, reply, 0, 0);
    if (fault == COMPLETION_TWICE)
        peer_post(p, IBV_WR_SEND, 0, reply, 0, 0);
}

static void serve_client(unsigned int i)
{
    unsigned char message[PEER_RECEIVE_LEN];
    struct peer *p = &clients[i];
    int length = peer_receive(p, message, 0);
    size_t reply;

    peer_reap_sends(p, NULL);
    if (length == -ECONNRESET) {
        peer_close(p);
        return;
    }
    if (length < 0)
        return;
    if (is_queue[i]) {
        complete(p, message, (size_t)length);
        return;
    }
    reply = answer(p, message, (size_t)length);
    if (reply == SIZE_MAX)
        return;
    for (unsigned int n = 0; n < (fault == HELLO_FLOOD ? PEER_SENDS : 1); n++)
        peer_post(p, IBV_WR_SEND, 0, reply, 0, 0);
}

static bool take_event(struct rdma_event_channel *channel)
{
    struct rdma_cm_event *event;
    struct rdma_cm_id *id;
    unsigned char data[256];
    size_t length;
    enum rdma_cm_event_type kind;

    if (rdma_get_cm_event(channel, &event) != 0)
        return false;
    kind = event->event;
    id = event->id;
    length = event->param.conn.private_data_len;
    if (kind == RDMA_CM_EVENT_CONNECT_REQUEST && length > 0)
        memcpy(data, event->param.conn.private_data, length);
    rdma_ack_cm_event(event);
    if (kind == RDMA_CM_EVENT_CONNECT_REQUEST)
        connect_request(id, data, length);
    return true;
}

static int rdma_serve(const struct sockaddr_storage *address)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *listener;

    if (channel == NULL || rblk_fd_nonblock(channel->fd) != 0 ||
        rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) != 0 ||
        rdma_bind_addr(listener, (struct sockaddr *)(uintptr_t)address) != 0 ||
        rdma_listen(listener, 64) != 0)
        helper_fail("cannot listen: %s", strerror(errno));
    say_listening();
    while (!ended) {
        while (take_event(channel))
            ;
        for (unsigned int i = 0; i < CLIENTS_MAX; i++)
            if (clients[i].id != NULL)
                serve_client(i);
        helper_sleep_ms(1);
    }
    for (unsigned int i = 0; i < CLIENTS_MAX; i++)
        peer_close(&clients[i]);
    if (volume != NULL) {
        void *memory = volume->addr;

        ibv_dereg_mr(volume);
        free(memory);
    }
    rdma_destroy_id(listener);
    rdma_destroy_event_channel(channel);
    return 0;
}

int main(int argc, char **argv)
{
    struct sockaddr_storage address;

    helper_select_provider(argv);
    if (argc != 4)
        return HELPER_USAGE;
    signal(SIGTERM, end);
    signal(SIGPIPE, SIG_IGN);
    address = peer_address(argv[2], argv[3]);
    if (strncmp(argv[1], "tcp-", 4) == 0)
        return tcp_serve(argv[1], &address);
    for (unsigned int i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        if (strcmp(argv[1], faults[i].name) == 0) {
            fault = faults[i].fault;
            return rdma_serve(&address);
        }
    }
    helper_end(HELPER_USAGE, "there is no mode \"%s\"", argv[1]);
}
