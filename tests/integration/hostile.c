/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hostile -- a client that sends what no client may send, case by case
 *
 *   hostile [-r] [-x CASE] [-c CASE] [-s SEED] [-n COUNT] [-L LOG -P PATTERN] HOST PORT VOLUME
 *
 * VOLUME must be free, writable, of 1 MiB at least, and is left as it was. Each case must end as its
 * line in the table says. With -L, a case that breaks the protocol must add exactly one line to the
 * target's log that matches the extended regular expression PATTERN. -c: only cases whose name begins
 * so. -n: how many random mutations. -r: the target is on a device, so without the cases that speak to
 * the software provider in plain TCP. -x: without this case.
 */
#include <arpa/inet.h>
#include <poll.h>
#include <regex.h>
#include <signal.h>
#include <unistd.h>

#include "peer.h"

/* Where fields lie on the wire (PROTOCOL.md). */
enum {
    AT_TYPE = 0,
    AT_RESERVED = 1,
    AT_STATUS = 2,
    AT_LENGTH = 4,
    AT_BODY = RBLK_HEADER_LEN,
    AT_HELLO_VERSION_MIN = AT_BODY,
    AT_HELLO_VERSION_MAX = AT_BODY + 2,
    AT_HELLO_FEATURES = AT_BODY + 4,
    AT_HELLO_KEEPALIVE = AT_BODY + 8,
    AT_HELLO_RESERVED = AT_BODY + 12,
    AT_HELLO_CLIENT = AT_BODY + 16,
    AT_ATTACH_MODE = AT_BODY,
    AT_ATTACH_RESERVED = AT_BODY + 1,
    AT_ATTACH_VOLUME = AT_BODY + 8,
    AT_MAP_COUNT = AT_BODY + 8,
    AT_MAP_RESERVED = AT_BODY + 12,
    AT_CONNECT_VERSION = 4,
    AT_CONNECT_KIND = 6,
    AT_CONNECT_RESERVED = 7,
    AT_CONNECT_QUEUE = 8,
    AT_CONNECT_DEPTH = 10,
    AT_CONNECT_TOKEN = 16,
    AT_COMMAND_FLAGS = 1,
    AT_COMMAND_RESERVED = 20,
};

#define QUEUE_DEPTH 8
#define SILENT_CONNECTIONS 200
#define RAW_PATIENCE_MS 20000 /* the provider gives an MPA request 5 s; sanitizers are slow */

static const char *volume, *port_text, *host_text, *log_path, *log_pattern;
static struct sockaddr_storage address;
static uint64_t seed = 1, mutations = 200;
static char reason[512]; /* why the case failed */

/* A client with a session, and maybe an I/O queue. */
struct client {
    struct peer control, io;
    struct rblk_attach_reply volume;
    struct rblk_accept queue;
};

__attribute__((format(printf, 1, 2))) static bool wrong(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(reason, sizeof(reason), format, arguments);
    va_end(arguments);
    return false;
}

static void put16(unsigned char *at, uint16_t value)
{
    at[0] = (unsigned char)value;
    at[1] = (unsigned char)(value >> 8);
}

static void put32(unsigned char *at, uint32_t value)
{
    put16(at, (uint16_t)value);
    put16(at + 2, (uint16_t)(value >> 16));
}

/* -- a client that behaves ----------------------------------------------------------------------- */

static bool control_connect(struct peer *p)
{
    const struct rblk_connect m = {.version = RBLK_WIRE_VERSION, .kind = RBLK_KIND_CONTROL};
    unsigned char data[RBLK_CONNECT_LEN];

    if (!peer_connect(p, (struct sockaddr *)&address, data, rblk_connect_encode(data, &m)))
        return wrong("a good control connection was refused (status %d)", p->status);
    return true;
}

/* Sends length bytes of the send area and takes the answer of the same tag. */
static bool request(struct peer *p, size_t length, struct rblk_header *header, unsigned char *reply)
{
    int got;

    if (!peer_send(p, length))
        return wrong("a request could not be sent");
    got = peer_receive(p, reply, PEER_PATIENCE_MS);
    if (got < 0)
        return wrong("no reply: %s", strerror(-got));
    if (rblk_header_decode(header, reply, (size_t)got) != 0)
        return wrong("the reply is malformed");
    return true;
}

static size_t hello_message(unsigned char *out)
{
    struct rblk_hello m = {.version_min = 1, .version_max = 1, .keepalive_ms = 60000};

    strcpy(m.client, "hostile");
    return rblk_hello_encode(out, 1, &m);
}

static bool hello(struct peer *p)
{
    unsigned char reply[PEER_RECEIVE_LEN];
    struct rblk_header header;

    if (!request(p, hello_message(p->out), &header, reply))
        return false;
    if (header.type != (RBLK_HELLO | RBLK_REPLY) || header.status != RBLK_STATUS_OK)
        return wrong("HELLO was answered with type %#x, status %u", header.type, header.status);
    return true;
}

static size_t attach_message(unsigned char *out, uint8_t mode)
{
    struct rblk_attach m = {.mode = mode};

    snprintf(m.volume, sizeof(m.volume), "%s", volume);
    return rblk_attach_encode(out, 2, &m);
}

static bool attach(struct peer *p, uint8_t mode, struct rblk_attach_reply *m)
{
    unsigned char reply[PEER_RECEIVE_LEN];
    struct rblk_header header;
    uint64_t deadline = rblk_deadline_ms(PEER_PATIENCE_MS);

    /* The case before may have left a session that the target is still taking down. */
    do {
        if (!request(p, attach_message(p->out, mode), &header, reply))
            return false;
        if (header.status != RBLK_STATUS_BUSY)
            break;
        helper_sleep_ms(20);
    } while (rblk_now_ns() < deadline);
    if (header.status != RBLK_STATUS_OK || rblk_attach_reply_decode(m, reply, header.length) != 0)
        return wrong("ATTACH was answered with status %u", header.status);
    return true;
}

static bool queue_connect(struct peer *p, const uint8_t *token, uint16_t queue_id, uint16_t depth)
{
    struct rblk_connect m = {.version = RBLK_WIRE_VERSION,
                             .kind = RBLK_KIND_IO,
                             .queue_id = queue_id,
                             .queue_depth = depth};
    unsigned char data[RBLK_CONNECT_LEN];

    memcpy(m.token, token, sizeof(m.token));
    return peer_connect(p, (struct sockaddr *)&address, data, rblk_connect_encode(data, &m));
}

static bool session(struct client *c, uint8_t mode)
{
    memset(c, 0, sizeof(*c));
    return control_connect(&c->control) && hello(&c->control) &&
           attach(&c->control, mode, &c->volume);
}

static bool session_with_queue(struct client *c, uint8_t mode)
{
    if (!session(c, mode))
        return false;
    if (!queue_connect(&c->io, c->volume.token, 0, QUEUE_DEPTH))
        return wrong("a good I/O queue was refused (status %d)", c->io.status);
    if (rblk_accept_decode(&c->queue, c->io.answer, c->io.answer_len) != 0)
        return wrong("the answer to a good I/O queue is malformed");
    return true;
}

static void client_close(struct client *c)
{
    peer_close(&c->io);
    peer_close(&c->control);
}

/* The queue still works: one in-message write of what is there already. */
static bool command_works(struct client *c)
{
    struct rblk_command m = {.opcode = RBLK_OP_FLUSH, .slot = 1};
    struct rblk_completion completion;
    unsigned char reply[PEER_RECEIVE_LEN];
    int got;

    if (!peer_send(&c->io, rblk_command_encode(c->io.out, &m)))
        return wrong("a good command could not be sent");
    got = peer_receive(&c->io, reply, PEER_PATIENCE_MS);
    if (got < 0 || rblk_completion_decode(&completion, reply, (size_t)got) != 0 ||
        completion.slot != 1 || completion.status != RBLK_STATUS_OK)
        return wrong("a good command was not completed");
    return true;
}

static bool expect_closed(struct peer *p)
{
    return peer_is_closed(p, PEER_PATIENCE_MS) || wrong("the connection was not closed");
}

/* -- connecting ---------------------------------------------------------------------------------- */

/* Private data that must be turned away; status 0: whatever reason. */
static bool connect_refused(const void *data, size_t length, uint16_t status)
{
    struct rblk_reject reject;
    struct peer p;
    bool ok;

    if (peer_connect(&p, (struct sockaddr *)&address, data, length))
        ok = wrong("it was accepted");
    else if (!p.rejected)
        ok = wrong("no reject, but status %d", p.status);
    else if (rblk_reject_decode(&reject, p.answer, p.answer_len) != 0)
        ok = wrong("the reject's private data is malformed (%zu bytes)", p.answer_len);
    else if (status != 0 && reject.status != status)
        ok = wrong("rejected with status %u, expected %u", reject.status, status);
    else
        ok = true;
    peer_close(&p);
    return ok;
}

static size_t good_connect(unsigned char *data, uint8_t kind)
{
    struct rblk_connect m = {.version = RBLK_WIRE_VERSION, .kind = kind};

    if (kind == RBLK_KIND_IO) {
        m.queue_depth = QUEUE_DEPTH;
        memset(m.token, 0x77, sizeof(m.token));
    }
    return rblk_connect_encode(data, &m);
}

static bool connect_without_data(void)
{
    return connect_refused(NULL, 0, RBLK_STATUS_MALFORMED);
}

static bool connect_short(void)
{
    unsigned char data[RBLK_CONNECT_LEN];

    good_connect(data, RBLK_KIND_CONTROL);
    return connect_refused(data, RBLK_CONNECT_LEN - 1, RBLK_STATUS_MALFORMED);
}

static bool connect_magic(void)
{
    unsigned char data[RBLK_CONNECT_LEN];
    size_t length = good_connect(data, RBLK_KIND_CONTROL);

    data[0] ^= 1;
    return connect_refused(data, length, RBLK_STATUS_MALFORMED);
}

static bool connect_version(void)
{
    unsigned char data[RBLK_CONNECT_LEN];
    size_t length = good_connect(data, RBLK_KIND_CONTROL);

    put16(data + AT_CONNECT_VERSION, 99);
    return connect_refused(data, length, RBLK_STATUS_VERSION);
}

static bool connect_kind(void)
{
    unsigned char data[RBLK_CONNECT_LEN];
    size_t length = good_connect(data, RBLK_KIND_CONTROL);

    data[AT_CONNECT_KIND] = 7;
    return connect_refused(data, length, RBLK_STATUS_MALFORMED);
}

static bool connect_reserved(void)
{
    unsigned char data[RBLK_CONNECT_LEN];
    size_t length = good_connect(data, RBLK_KIND_CONTROL);

    data[AT_CONNECT_RESERVED] = 1;
    return connect_refused(data, length, RBLK_STATUS_MALFORMED);
}

static bool connect_depth(void)
{
    unsigned char data[RBLK_CONNECT_LEN];
    size_t length = good_connect(data, RBLK_KIND_IO);

    put16(data + AT_CONNECT_DEPTH, RBLK_QUEUE_DEPTH_MAX + 1);
    return connect_refused(data, length, RBLK_STATUS_MALFORMED);
}

static bool connect_zero_token(void)
{
    unsigned char data[RBLK_CONNECT_LEN];
    size_t length = good_connect(data, RBLK_KIND_IO);

    memset(data + AT_CONNECT_TOKEN, 0, RBLK_TOKEN_LEN);
    return connect_refused(data, length, RBLK_STATUS_MALFORMED);
}

static bool connect_wrong_token(void)
{
    unsigned char data[RBLK_CONNECT_LEN];
    size_t length = good_connect(data, RBLK_KIND_IO);

    return connect_refused(data, length, RBLK_STATUS_TOKEN);
}

/* One wrong bit in a token that is good otherwise. */
static bool connect_near_token(void)
{
    unsigned char data[RBLK_CONNECT_LEN];
    size_t length = good_connect(data, RBLK_KIND_IO);
    struct client c;
    bool ok = session(&c, RBLK_ATTACH_RW);

    memcpy(data + AT_CONNECT_TOKEN, c.volume.token, RBLK_TOKEN_LEN);
    data[AT_CONNECT_TOKEN + RBLK_TOKEN_LEN - 1] ^= 0x80;
    ok = ok && connect_refused(data, length, RBLK_STATUS_TOKEN);
    client_close(&c);
    return ok;
}

/* A token that was good until its session ended. */
static bool connect_replayed_token(void)
{
    unsigned char data[RBLK_CONNECT_LEN];
    size_t length = good_connect(data, RBLK_KIND_IO);
    struct client c;
    bool ok = session(&c, RBLK_ATTACH_RW);

    memcpy(data + AT_CONNECT_TOKEN, c.volume.token, RBLK_TOKEN_LEN);
    client_close(&c);
    helper_sleep_ms(100);
    return ok && connect_refused(data, length, RBLK_STATUS_TOKEN);
}

static bool connect_queue_twice(void)
{
    unsigned char data[RBLK_CONNECT_LEN];
    size_t length = good_connect(data, RBLK_KIND_IO);
    struct client c;
    bool ok = session_with_queue(&c, RBLK_ATTACH_RW);

    memcpy(data + AT_CONNECT_TOKEN, c.volume.token, RBLK_TOKEN_LEN);
    ok = ok && connect_refused(data, length, 0) && command_works(&c);
    client_close(&c);
    return ok;
}

static bool connect_queue_number(void)
{
    unsigned char data[RBLK_CONNECT_LEN];
    size_t length = good_connect(data, RBLK_KIND_IO);
    struct client c;
    bool ok = session(&c, RBLK_ATTACH_RW);

    memcpy(data + AT_CONNECT_TOKEN, c.volume.token, RBLK_TOKEN_LEN);
    put16(data + AT_CONNECT_QUEUE, (uint16_t)c.volume.max_queues);
    ok = ok && connect_refused(data, length, 0);
    client_close(&c);
    return ok;
}

/* -- control messages ------------------------------------------------------------------------------ */

/* How far the client has come when it sends the bad message. */
enum stage { CONNECTED, GREETED, ATTACHED };

static bool reach(struct client *c, enum stage stage)
{
    memset(c, 0, sizeof(*c));
    return control_connect(&c->control) && (stage < GREETED || hello(&c->control)) &&
           (stage < ATTACHED || attach(&c->control, RBLK_ATTACH_RW, &c->volume));
}

/* Fills the send area with the bad message; returns its length. */
typedef size_t (*message_fn)(unsigned char *out);

static bool control_closed(enum stage stage, message_fn fill)
{
    struct client c;
    bool ok = reach(&c, stage);

    if (ok) {
        peer_send(&c.control, fill(c.control.out)); /* may fail: the target may be quick to close */
        ok = expect_closed(&c.control);
    }
    client_close(&c);
    return ok;
}

/* Answered with an error, and the connection lives; or closed. */
static bool control_refused(enum stage stage, message_fn fill, uint16_t status)
{
    unsigned char reply[PEER_RECEIVE_LEN];
    struct rblk_header header;
    struct client c;
    bool ok = reach(&c, stage) && request(&c.control, fill(c.control.out), &header, reply);

    if (ok && header.status != status)
        ok = wrong("answered with status %u, expected %u", header.status, status);
    if (ok &&
        !(request(&c.control, rblk_empty_encode(c.control.out, RBLK_PING, 9), &header, reply) &&
          header.status == RBLK_STATUS_OK))
        ok = wrong("the connection does not work any more");
    client_close(&c);
    return ok;
}

static size_t empty_message(unsigned char *out)
{
    (void)out;
    return 0;
}

static size_t one_byte(unsigned char *out)
{
    out[0] = RBLK_PING;
    return 1;
}

static size_t half_header(unsigned char *out)
{
    rblk_empty_encode(out, RBLK_PING, 1);
    return RBLK_HEADER_LEN - 1;
}

static size_t ping_with(unsigned char *out, size_t at, unsigned char value)
{
    rblk_empty_encode(out, RBLK_PING, 1);
    out[at] = value;
    return RBLK_HEADER_LEN;
}

static size_t length_small(unsigned char *out)
{
    return ping_with(out, AT_LENGTH, RBLK_HEADER_LEN - 1);
}

static size_t length_large(unsigned char *out)
{
    return ping_with(out, AT_LENGTH, RBLK_HEADER_LEN + 1);
}

static size_t length_huge(unsigned char *out)
{
    rblk_empty_encode(out, RBLK_PING, 1);
    put32(out + AT_LENGTH, UINT32_MAX);
    return RBLK_HEADER_LEN;
}

static size_t reserved_set(unsigned char *out)
{
    return ping_with(out, AT_RESERVED, 1);
}

static size_t status_in_request(unsigned char *out)
{
    return ping_with(out, AT_STATUS, RBLK_STATUS_IO);
}

static size_t type_zero(unsigned char *out)
{
    return ping_with(out, AT_TYPE, 0);
}

static size_t type_unknown(unsigned char *out)
{
    return ping_with(out, AT_TYPE, 0x3f);
}

static size_t type_reply(unsigned char *out)
{
    return ping_with(out, AT_TYPE, RBLK_PING | RBLK_REPLY);
}

static size_t type_event(unsigned char *out)
{
    return ping_with(out, AT_TYPE, RBLK_EVENT_GOODBYE);
}

static size_t event_ack_unasked(unsigned char *out)
{
    return rblk_empty_encode(out, RBLK_EVENT_ACK, 12345);
}

static size_t ping_with_body(unsigned char *out)
{
    rblk_empty_encode(out, RBLK_PING, 1);
    put32(out + AT_LENGTH, RBLK_HEADER_LEN + 8);
    return RBLK_HEADER_LEN + 8;
}

static size_t over_long(unsigned char *out)
{
    rblk_empty_encode(out, RBLK_PING, 1);
    put32(out + AT_LENGTH, RBLK_CONTROL_MAX + 4);
    return RBLK_CONTROL_MAX + 4;
}

static size_t far_over_long(unsigned char *out)
{
    rblk_empty_encode(out, RBLK_PING, 1);
    return PEER_OUT_LEN;
}

static size_t attach_first(unsigned char *out)
{
    return attach_message(out, RBLK_ATTACH_RW);
}

static size_t hello_keepalive_zero(unsigned char *out)
{
    size_t length = hello_message(out);

    put32(out + AT_HELLO_KEEPALIVE, 0);
    return length;
}

static size_t hello_keepalive_huge(unsigned char *out)
{
    size_t length = hello_message(out);

    put32(out + AT_HELLO_KEEPALIVE, UINT32_MAX);
    return length;
}

static size_t hello_features(unsigned char *out)
{
    size_t length = hello_message(out);

    put32(out + AT_HELLO_FEATURES, 1);
    return length;
}

static size_t hello_reserved(unsigned char *out)
{
    size_t length = hello_message(out);

    out[AT_HELLO_RESERVED] = 1;
    return length;
}

static size_t hello_versions_reversed(unsigned char *out)
{
    size_t length = hello_message(out);

    put16(out + AT_HELLO_VERSION_MIN, 2);
    return length;
}

static size_t hello_unterminated(unsigned char *out)
{
    size_t length = hello_message(out);

    memset(out + AT_HELLO_CLIENT, 'x', RBLK_NAME_LEN);
    return length;
}

static size_t hello_terminal(unsigned char *out)
{
    size_t length = hello_message(out);

    out[AT_HELLO_CLIENT] = 0x1b; /* would reach an operator's terminal */
    return length;
}

static size_t hello_short(unsigned char *out)
{
    size_t length = hello_message(out) - 1;

    put32(out + AT_LENGTH, (uint32_t)length);
    return length;
}

static size_t attach_mode_zero(unsigned char *out)
{
    return attach_message(out, 0);
}

static size_t attach_mode_unknown(unsigned char *out)
{
    return attach_message(out, 4);
}

static size_t attach_reserved(unsigned char *out)
{
    size_t length = attach_message(out, RBLK_ATTACH_RW);

    out[AT_ATTACH_RESERVED + 6] = 1;
    return length;
}

static size_t attach_name_empty(unsigned char *out)
{
    size_t length = attach_message(out, RBLK_ATTACH_RW);

    memset(out + AT_ATTACH_VOLUME, 0, RBLK_NAME_LEN);
    return length;
}

static size_t attach_name_path(unsigned char *out)
{
    size_t length = attach_message(out, RBLK_ATTACH_RW);

    memset(out + AT_ATTACH_VOLUME, 0, RBLK_NAME_LEN);
    strcpy((char *)out + AT_ATTACH_VOLUME, "../../etc/passwd");
    return length;
}

static size_t attach_name_unterminated(unsigned char *out)
{
    size_t length = attach_message(out, RBLK_ATTACH_RW);

    memset(out + AT_ATTACH_VOLUME, 'v', RBLK_NAME_LEN);
    return length;
}

static size_t attach_name_tail(unsigned char *out)
{
    size_t length = attach_message(out, RBLK_ATTACH_RW);

    out[AT_ATTACH_VOLUME + RBLK_NAME_LEN - 1] = 'v';
    return length;
}

static size_t map_message(unsigned char *out, uint64_t first, uint32_t count)
{
    const struct rblk_extent_map m = {first, count};

    return rblk_extent_map_encode(out, 3, &m);
}

static size_t map_zero(unsigned char *out)
{
    return map_message(out, 0, 0);
}

static size_t map_many(unsigned char *out)
{
    return map_message(out, 0, RBLK_EXTENTS_PER_MESSAGE + 1);
}

static size_t map_overflow(unsigned char *out)
{
    return map_message(out, UINT64_MAX, 1);
}

static size_t map_reserved(unsigned char *out)
{
    size_t length = map_message(out, 0, 1);

    out[AT_MAP_RESERVED] = 1;
    return length;
}

static size_t map_one(unsigned char *out)
{
    return map_message(out, 0, 1);
}

static size_t map_beyond(unsigned char *out)
{
    return map_message(out, 1u << 20, 1);
}

static size_t release_message(unsigned char *out, uint32_t count, uint64_t index)
{
    struct rblk_extent_release m = {.count = count};

    for (unsigned int i = 0; i < RBLK_EXTENTS_PER_MESSAGE; i++)
        m.index[i] = index;
    return rblk_extent_release_encode(out, 4, &m);
}

static size_t release_zero(unsigned char *out)
{
    return release_message(out, 0, 0);
}

static size_t release_count_lies(unsigned char *out)
{
    size_t length = release_message(out, 2, 0);

    put32(out + AT_BODY, 100);
    return length;
}

static size_t release_overflow(unsigned char *out)
{
    return release_message(out, 1, UINT64_MAX);
}

static size_t list_with_tail(unsigned char *out)
{
    const struct rblk_list m = {0};
    size_t length = rblk_list_encode(out, 5, &m) + 4;

    put32(out + AT_LENGTH, (uint32_t)length);
    return length;
}

static size_t hello_again(unsigned char *out)
{
    return hello_message(out);
}

static bool control_not_found(void)
{
    unsigned char reply[PEER_RECEIVE_LEN];
    struct rblk_header header;
    struct client c;
    bool ok = reach(&c, GREETED);

    if (ok) {
        attach_message(c.control.out, RBLK_ATTACH_RW);
        memset(c.control.out + AT_ATTACH_VOLUME, 0, RBLK_NAME_LEN);
        strcpy((char *)c.control.out + AT_ATTACH_VOLUME, "no-such-volume");
        ok = request(&c.control, RBLK_HEADER_LEN + 8 + RBLK_NAME_LEN, &header, reply);
    }
    if (ok && header.status != RBLK_STATUS_NOT_FOUND)
        ok = wrong("answered with status %u", header.status);
    client_close(&c);
    return ok;
}

static bool hello_version_99(void)
{
    unsigned char reply[PEER_RECEIVE_LEN];
    struct rblk_header header;
    struct client c;
    bool ok = reach(&c, CONNECTED);

    if (ok) {
        size_t length = hello_message(c.control.out);

        put16(c.control.out + AT_HELLO_VERSION_MIN, 99);
        put16(c.control.out + AT_HELLO_VERSION_MAX, 99);
        ok = request(&c.control, length, &header, reply);
    }
    if (ok && header.status != RBLK_STATUS_VERSION)
        ok = wrong("answered with status %u, expected %u", header.status, RBLK_STATUS_VERSION);
    client_close(&c);
    return ok;
}

/* More requests than the protocol lets a client have unanswered, in one go. */
static bool flood(void)
{
    unsigned char reply[PEER_RECEIVE_LEN];
    struct client c;
    uint64_t deadline = rblk_deadline_ms(PEER_PATIENCE_MS);
    bool ok = reach(&c, GREETED);
    int got = 0;

    for (unsigned int i = 0; ok && i < 2000 && got != -ECONNRESET; i++) {
        rblk_empty_encode(c.control.out, RBLK_PING, i);
        while (c.control.sends >= PEER_SENDS && rblk_now_ns() < deadline &&
               peer_reap_sends(&c.control, NULL))
            ;
        if (!peer_post(&c.control, IBV_WR_SEND, 0, RBLK_HEADER_LEN, 0, 0))
            break;
        if (i % 16 == 0)
            got = peer_receive(&c.control, reply, 0);
    }
    /* Served or closed, but nobody may suffer: the cases after this one show that. */
    client_close(&c);
    return ok;
}

/* -- commands of I/O queues ---------------------------------------------------------------------------- */

static const struct rblk_command inline_write = {
    .opcode = RBLK_OP_WRITE, .flags = RBLK_CMD_INLINE, .slot = 0, .length = 512, .offset = 0};
static const struct rblk_command staged_write = {
    .opcode = RBLK_OP_WRITE, .slot = 0, .length = RBLK_STAGING_GRANULE, .offset = 0};

static bool io_closed_raw(uint8_t mode, size_t (*fill)(struct client *c, unsigned char *out))
{
    struct client c;
    bool ok = session_with_queue(&c, mode);

    if (ok) {
        peer_send(&c.io, fill(&c, c.io.out));
        ok = expect_closed(&c.io);
    }
    client_close(&c);
    return ok;
}

/* The command is completed with this status and the queue lives, or (may_close) it is closed. */
static bool io_refused(uint8_t mode, const struct rblk_command *m, size_t data, uint16_t status,
                       bool may_close)
{
    struct rblk_completion completion;
    unsigned char reply[PEER_RECEIVE_LEN];
    struct client c;
    bool ok = session_with_queue(&c, mode);
    int got;

    if (!ok)
        goto out;
    memset(c.io.out, 0, RBLK_COMMAND_LEN + data);
    peer_send(&c.io, rblk_command_encode(c.io.out, m) + data);
    got = peer_receive(&c.io, reply, PEER_PATIENCE_MS);
    if (got == -ECONNRESET && may_close)
        goto out;
    if (got < 0)
        ok = wrong("no completion: %s", strerror(-got));
    else if (rblk_completion_decode(&completion, reply, (size_t)got) != 0)
        ok = wrong("the completion is malformed");
    else if (completion.status != status || completion.slot != m->slot)
        ok = wrong("completed with status %u, slot %u; expected %u, %u", completion.status,
                   completion.slot, status, m->slot);
    else if (mode != RBLK_ATTACH_RO)
        ok = command_works(&c);
out:
    client_close(&c);
    return ok;
}

static size_t command_empty(struct client *c, unsigned char *out)
{
    (void)c;
    (void)out;
    return 0;
}

static size_t command_short(struct client *c, unsigned char *out)
{
    (void)c;
    return rblk_command_encode(out, &inline_write) - 1;
}

static size_t command_with(unsigned char *out, size_t at, unsigned char value)
{
    size_t length = rblk_command_encode(out, &inline_write) + inline_write.length;

    out[at] = value;
    return length;
}

static size_t opcode_zero(struct client *c, unsigned char *out)
{
    (void)c;
    return command_with(out, 0, 0);
}

static size_t opcode_unknown(struct client *c, unsigned char *out)
{
    (void)c;
    return command_with(out, 0, 99);
}

static size_t flags_unknown(struct client *c, unsigned char *out)
{
    (void)c;
    return command_with(out, AT_COMMAND_FLAGS, 0x80 | RBLK_CMD_INLINE);
}

static size_t command_reserved(struct client *c, unsigned char *out)
{
    (void)c;
    return command_with(out, AT_COMMAND_RESERVED, 1);
}

static size_t inline_short(struct client *c, unsigned char *out)
{
    (void)c;
    return rblk_command_encode(out, &inline_write) + inline_write.length - 1;
}

static size_t inline_long(struct client *c, unsigned char *out)
{
    (void)c;
    return rblk_command_encode(out, &inline_write) + inline_write.length + 4;
}

static size_t inline_above_limit(struct client *c, unsigned char *out)
{
    struct rblk_command m = inline_write;

    m.length = c->volume.max_inline + 512;
    return rblk_command_encode(out, &m) + m.length;
}

static size_t write_of_nothing(struct client *c, unsigned char *out)
{
    struct rblk_command m = inline_write;

    (void)c;
    m.length = 0;
    return rblk_command_encode(out, &m);
}

static size_t flush_with_range(struct client *c, unsigned char *out)
{
    const struct rblk_command m = {.opcode = RBLK_OP_FLUSH, .length = 4096, .offset = 4096};

    (void)c;
    return rblk_command_encode(out, &m);
}

static size_t flush_with_data(struct client *c, unsigned char *out)
{
    const struct rblk_command m = {.opcode = RBLK_OP_FLUSH};

    (void)c;
    return rblk_command_encode(out, &m) + 16;
}

static size_t slot_at_depth(struct client *c, unsigned char *out)
{
    struct rblk_command m = inline_write;

    m.slot = c->queue.queue_depth;
    return rblk_command_encode(out, &m) + m.length;
}

static size_t slot_huge(struct client *c, unsigned char *out)
{
    struct rblk_command m = inline_write;

    (void)c;
    m.slot = UINT16_MAX;
    return rblk_command_encode(out, &m) + m.length;
}

static size_t staging_overflow(struct client *c, unsigned char *out)
{
    struct rblk_command m = staged_write;

    (void)c;
    m.staging_offset = UINT32_MAX;
    return rblk_command_encode(out, &m);
}

static size_t staged_huge(struct client *c, unsigned char *out)
{
    struct rblk_command m = staged_write;

    (void)c;
    m.length = UINT32_MAX;
    return rblk_command_encode(out, &m);
}

static size_t offset_overflow(struct client *c, unsigned char *out)
{
    struct rblk_command m = inline_write;

    (void)c;
    m.offset = UINT64_MAX - 100;
    return rblk_command_encode(out, &m) + m.length;
}

static size_t command_over_long(struct client *c, unsigned char *out)
{
    (void)c;
    rblk_command_encode(out, &inline_write);
    return PEER_OUT_LEN;
}

static size_t control_on_queue(struct client *c, unsigned char *out)
{
    (void)c;
    return hello_message(out);
}

/* Well formed, but not within this queue's staging memory: refused, and nothing is written. */
static bool staging_refused(uint32_t before_end)
{
    struct rblk_command m = staged_write;
    struct client c;
    bool ok = session_with_queue(&c, RBLK_ATTACH_RW);

    m.staging_offset = c.queue.staging_len - before_end;
    client_close(&c);
    return ok && io_refused(RBLK_ATTACH_RW, &m, 0, RBLK_STATUS_RANGE, false);
}

static bool staging_beyond(void)
{
    return staging_refused(0);
}

static bool staging_across(void)
{
    return staging_refused(1);
}

static bool offset_beyond(void)
{
    struct rblk_command m = inline_write;

    m.offset = 1ull << 50;
    return io_refused(RBLK_ATTACH_RW, &m, m.length, RBLK_STATUS_RANGE, false);
}

static bool write_to_reader(void)
{
    return io_refused(RBLK_ATTACH_RO, &inline_write, inline_write.length, RBLK_STATUS_READ_ONLY,
                      true);
}

static bool staged_write_to_reader(void)
{
    return io_refused(RBLK_ATTACH_RO, &staged_write, 0, RBLK_STATUS_READ_ONLY, true);
}

static bool read_staged(void)
{
    const struct rblk_command m = {.opcode = 3, .length = 4096};

    return io_refused(RBLK_ATTACH_RW, &m, 0, RBLK_STATUS_NOT_SUPPORTED, true);
}

/* The same slot again while its command is under way: many flushes in one go. */
static bool slot_in_use(void)
{
    const struct rblk_command m = {.opcode = RBLK_OP_FLUSH, .slot = 3};
    struct client c;
    bool ok = session_with_queue(&c, RBLK_ATTACH_RW);

    if (ok) {
        rblk_command_encode(c.io.out, &m);
        for (unsigned int i = 0; i < QUEUE_DEPTH; i++)
            peer_post(&c.io, IBV_WR_SEND, 0, RBLK_COMMAND_LEN, 0, 0);
        ok = expect_closed(&c.io);
    }
    client_close(&c);
    return ok;
}

/* More commands than the queue is deep. */
static bool too_many_commands(void)
{
    struct rblk_command m = {.opcode = RBLK_OP_FLUSH};
    struct client c;
    bool ok = session_with_queue(&c, RBLK_ATTACH_RW);

    for (unsigned int i = 0; ok && i < PEER_SENDS; i++) {
        m.slot = (uint16_t)(i % QUEUE_DEPTH);
        rblk_command_encode(c.io.out + (size_t)i * RBLK_COMMAND_LEN, &m);
        peer_post(&c.io, IBV_WR_SEND, (size_t)i * RBLK_COMMAND_LEN, RBLK_COMMAND_LEN, 0, 0);
    }
    ok = ok && expect_closed(&c.io);
    client_close(&c);
    return ok;
}

/* -- one-sided operations ------------------------------------------------------------------------------ */

static bool map_first_extent(struct client *c, struct rblk_extent_entry *entry)
{
    struct rblk_extent_map_reply m;
    unsigned char reply[PEER_RECEIVE_LEN];
    struct rblk_header header;

    if (!request(&c->control, map_message(c->control.out, 0, 1), &header, reply))
        return false;
    if (rblk_extent_map_reply_decode(&m, reply, header.length) != 0)
        return wrong("EXTENT_MAP was answered with status %u", header.status);
    *entry = m.entry[0];
    return true;
}

/* A one-sided operation that must fail and end the connection that it came over. */
static bool access_refused(struct peer *p, enum ibv_wr_opcode opcode, size_t length, uint64_t addr,
                           uint32_t rkey)
{
    memset(p->out, 0xee, length);
    if (peer_run(p, opcode, 0, length, addr, rkey) == IBV_WC_SUCCESS && opcode == IBV_WR_RDMA_READ)
        return wrong("it succeeded");
    for (size_t i = 0; opcode == IBV_WR_RDMA_READ && i < length; i++)
        if (p->out[i] != 0xee)
            return wrong("data arrived");
    return expect_closed(p);
}

/* What an honest client does, so that the cases below mean something. */
static bool honest_read_and_staged_write(void)
{
    struct rblk_extent_entry entry;
    struct rblk_completion completion;
    unsigned char reply[PEER_RECEIVE_LEN];
    struct client c;
    bool ok = session_with_queue(&c, RBLK_ATTACH_RW) && map_first_extent(&c, &entry);
    int got;

    if (ok && (peer_run(&c.io, IBV_WR_RDMA_READ, 0, staged_write.length, entry.addr, entry.rkey) !=
                   IBV_WC_SUCCESS ||
               peer_run(&c.io, IBV_WR_RDMA_WRITE, 0, staged_write.length, c.queue.staging_addr,
                        c.queue.staging_rkey) != IBV_WC_SUCCESS))
        ok = wrong("RDMA READ or WRITE failed");
    if (ok) {
        peer_send(&c.io, rblk_command_encode(c.io.out, &staged_write));
        got = peer_receive(&c.io, reply, PEER_PATIENCE_MS);
        ok = (got > 0 && rblk_completion_decode(&completion, reply, (size_t)got) == 0 &&
              completion.status == RBLK_STATUS_OK) ||
             wrong("the staged write was not completed");
    }
    client_close(&c);
    return ok;
}

static bool read_wrong_key(void)
{
    struct rblk_extent_entry entry;
    struct client c;
    bool ok = session_with_queue(&c, RBLK_ATTACH_RW) && map_first_extent(&c, &entry) &&
              access_refused(&c.io, IBV_WR_RDMA_READ, 4096, entry.addr, entry.rkey ^ 0x5a00);

    client_close(&c);
    return ok;
}

static bool read_beyond_extent(void)
{
    struct rblk_extent_entry entry;
    struct client c;
    bool ok =
        session_with_queue(&c, RBLK_ATTACH_RW) && map_first_extent(&c, &entry) &&
        access_refused(&c.io, IBV_WR_RDMA_READ, 4096, entry.addr + entry.length - 4095, entry.rkey);

    client_close(&c);
    return ok;
}

static bool read_before_extent(void)
{
    struct rblk_extent_entry entry;
    struct client c;
    bool ok = session_with_queue(&c, RBLK_ATTACH_RW) && map_first_extent(&c, &entry) &&
              access_refused(&c.io, IBV_WR_RDMA_READ, 4096, entry.addr - 1, entry.rkey);

    client_close(&c);
    return ok;
}

static bool write_into_extent(void)
{
    struct rblk_extent_entry entry;
    struct client c;
    bool ok = session_with_queue(&c, RBLK_ATTACH_RW) && map_first_extent(&c, &entry) &&
              access_refused(&c.io, IBV_WR_RDMA_WRITE, 4096, entry.addr, entry.rkey);

    client_close(&c);
    return ok;
}

static bool read_from_staging(void)
{
    struct client c;
    bool ok =
        session_with_queue(&c, RBLK_ATTACH_RW) &&
        access_refused(&c.io, IBV_WR_RDMA_READ, 4096, c.queue.staging_addr, c.queue.staging_rkey);

    client_close(&c);
    return ok;
}

static bool write_beyond_staging(void)
{
    struct client c;
    bool ok =
        session_with_queue(&c, RBLK_ATTACH_RW) &&
        access_refused(&c.io, IBV_WR_RDMA_WRITE, 4096,
                       c.queue.staging_addr + c.queue.staging_len - 4095, c.queue.staging_rkey);

    client_close(&c);
    return ok;
}

/* The control connection's protection domain holds no volume memory. */
static bool read_over_control(void)
{
    struct rblk_extent_entry entry;
    struct client c;
    bool ok = session_with_queue(&c, RBLK_ATTACH_RW) && map_first_extent(&c, &entry) &&
              access_refused(&c.control, IBV_WR_RDMA_READ, 4096, entry.addr, entry.rkey);

    client_close(&c);
    return ok;
}

/* A reader must reach neither the writer's staging memory nor the writer's mapping. */
static bool reach_into_other_session(enum ibv_wr_opcode opcode)
{
    struct rblk_extent_entry entry;
    struct client writer, reader;
    bool ok = session_with_queue(&writer, RBLK_ATTACH_RW) && map_first_extent(&writer, &entry);

    memset(&reader, 0, sizeof(reader));
    ok = ok && session_with_queue(&reader, RBLK_ATTACH_RO);
    if (ok && opcode == IBV_WR_RDMA_WRITE)
        ok = access_refused(&reader.io, opcode, 4096, writer.queue.staging_addr,
                            writer.queue.staging_rkey);
    else if (ok)
        ok = access_refused(&reader.io, opcode, 4096, entry.addr, entry.rkey);
    ok = ok && command_works(&writer);
    client_close(&reader);
    client_close(&writer);
    return ok;
}

static bool write_into_other_staging(void)
{
    return reach_into_other_session(IBV_WR_RDMA_WRITE);
}

static bool read_other_mapping(void)
{
    return reach_into_other_session(IBV_WR_RDMA_READ);
}

/* -- mutations -------------------------------------------------------------------------------------------- */

/* Good messages with some bytes changed: answered or closed, never worse. Writes go to no volume. */
static bool mutate_control(void)
{
    uint64_t random = seed;

    for (uint64_t i = 0; i < mutations; i++) {
        static const message_fn good[] = {hello_again,    attach_first,       map_one,
                                          list_with_tail, release_count_lies, event_ack_unasked};
        unsigned char reply[PEER_RECEIVE_LEN];
        unsigned int which = (unsigned int)helper_below(&random, 6);
        struct client c;
        size_t length;

        if (!reach(&c, which == 0 ? CONNECTED : which < 2 ? GREETED : ATTACHED)) {
            client_close(&c);
            return false;
        }
        length = good[which](c.control.out);
        for (uint64_t n = 1 + helper_below(&random, 3); n > 0; n--)
            c.control.out[helper_below(&random, length)] = (unsigned char)helper_random(&random);
        if (helper_below(&random, 4) == 0)
            length = helper_below(&random, RBLK_CONTROL_MAX + 8);
        peer_send(&c.control, length);
        peer_receive(&c.control, reply, 5);
        client_close(&c);
    }
    return true;
}

static bool mutate_commands(void)
{
    uint64_t random = seed + 1;

    for (uint64_t i = 0; i < mutations; i++) {
        unsigned char reply[PEER_RECEIVE_LEN];
        struct client c;
        /* A reader: whatever the mutation makes of the command, it may not change the volume. */
        bool ok = session_with_queue(&c, RBLK_ATTACH_RO);
        size_t length;

        for (unsigned int k = 0; ok && k < 8 && !c.io.closed; k++) {
            length = rblk_command_encode(c.io.out, k & 1 ? &inline_write : &staged_write);
            length += k & 1 ? inline_write.length : 0;
            for (uint64_t n = 1 + helper_below(&random, 3); n > 0; n--)
                c.io.out[helper_below(&random, RBLK_COMMAND_LEN)] =
                    (unsigned char)helper_random(&random);
            peer_send(&c.io, length);
            peer_receive(&c.io, reply, 5);
        }
        client_close(&c);
        if (!ok)
            return false;
    }
    return true;
}

/* -- plain TCP ---------------------------------------------------------------------------------------------- */

static int raw_connect(void)
{
    int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t length =
        address.ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);

    if (fd < 0 || connect(fd, (struct sockaddr *)&address, length) != 0)
        helper_fail("%s:%s: %s", host_text, port_text, strerror(errno));
    return fd;
}

/* The target closes the connection, after whatever it says; closes fd. */
static bool raw_closed(int fd, uint64_t timeout_ms)
{
    uint64_t deadline = rblk_deadline_ms(timeout_ms);
    char buffer[4096];
    bool closed = false;

    while (!closed && rblk_now_ns() < deadline) {
        struct pollfd p = {fd, POLLIN, 0};

        if (poll(&p, 1, 100) > 0)
            closed = recv(fd, buffer, sizeof(buffer), MSG_DONTWAIT) <= 0;
    }
    close(fd);
    return closed ||
           wrong("the connection was still open after %llu ms", (unsigned long long)timeout_ms);
}

static bool raw_bytes(const void *data, size_t length)
{
    int fd = raw_connect();

    if (length > 0 && send(fd, data, length, MSG_NOSIGNAL) != (ssize_t)length)
        helper_fail("send: %s", strerror(errno));
    return raw_closed(fd, RAW_PATIENCE_MS);
}

/* An MPA request (RFC 5044) with flags and length given, and as much private data as asked. */
static size_t mpa_request(unsigned char *out, uint16_t flags, uint16_t claimed, size_t present)
{
    memcpy(out, "MPA ID Req Frame", 16);
    out[16] = (unsigned char)(flags >> 8);
    out[17] = (unsigned char)flags;
    out[18] = (unsigned char)(claimed >> 8);
    out[19] = (unsigned char)claimed;
    memset(out + 20, 0, present);
    return 20 + present;
}

static bool raw_http(void)
{
    static const char text[] = "GET / HTTP/1.1\r\nHost: target\r\n\r\n";

    return raw_bytes(text, sizeof(text) - 1);
}

static bool raw_random(void)
{
    unsigned char data[4096];
    uint64_t random = seed;

    helper_random_bytes(&random, data, sizeof(data));
    return raw_bytes(data, sizeof(data));
}

static bool raw_huge_private_data(void)
{
    unsigned char data[64];

    return raw_bytes(data, mpa_request(data, 0x1002, 65535, 36));
}

static bool raw_markers(void)
{
    unsigned char data[64];

    return raw_bytes(data, mpa_request(data, 0x9002, 36, 36));
}

static bool raw_revision(void)
{
    unsigned char data[64];

    return raw_bytes(data, mpa_request(data, 0x1009, 36, 36));
}

static bool raw_reply_frame(void)
{
    unsigned char data[64];
    size_t length = mpa_request(data, 0x1002, 36, 36);

    memcpy(data, "MPA ID Rep Frame", 16);
    return raw_bytes(data, length);
}

/* A good handshake by hand, then what is given in place of a framed message. */
static bool raw_after_handshake(const void *data, size_t length)
{
    unsigned char message[128], answer[256];
    int fd = raw_connect();
    ssize_t got;

    mpa_request(message, 0x1002, 4 + RBLK_CONNECT_LEN, 4);
    message[21] = 1; /* IRD */
    message[23] = 1; /* ORD */
    good_connect(message + 24, RBLK_KIND_CONTROL);
    if (send(fd, message, 24 + RBLK_CONNECT_LEN, MSG_NOSIGNAL) != 24 + RBLK_CONNECT_LEN)
        helper_fail("send: %s", strerror(errno));
    got = recv(fd, answer, 20, MSG_WAITALL);
    if (got != 20 || memcmp(answer, "MPA ID Rep Frame", 16) != 0 || (answer[16] & 0x20) != 0) {
        close(fd);
        return wrong("a handshake by hand was refused");
    }
    got = recv(fd, answer, (size_t)(answer[18] << 8 | answer[19]), MSG_WAITALL);
    if (got < 0 || send(fd, data, length, MSG_NOSIGNAL) != (ssize_t)length)
        helper_fail("send: %s", strerror(errno));
    return raw_closed(fd, RAW_PATIENCE_MS);
}

static bool frame_version(void)
{
    /* Length 18, DDP version 3 */
    static const unsigned char data[24] = {0, 18, 0x43, 0xc3};

    return raw_after_handshake(data, sizeof(data));
}

static bool frame_opcode(void)
{
    static const unsigned char data[24] = {0, 18, 0x41, 0x4f};

    return raw_after_handshake(data, sizeof(data));
}

static bool frame_queue_number(void)
{
    /* A Send to queue number 9 */
    static const unsigned char data[24] = {0, 18, 0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1};

    return raw_after_handshake(data, sizeof(data));
}

static bool frame_sequence(void)
{
    /* A Send whose message sequence number is 77 */
    static const unsigned char data[24] = {0, 18, 0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 77};

    return raw_after_handshake(data, sizeof(data));
}

static bool frame_tagged_to_nowhere(void)
{
    /* An RDMA WRITE to STag 0xdeadbeef */
    static const unsigned char data[24] = {0, 18, 0xc1, 0x40, 0xde, 0xad, 0xbe, 0xef, 0, 0,
                                           0, 0,  0,    0,    0,    0,    1,    2,    3, 4};

    return raw_after_handshake(data, sizeof(data));
}

static bool frame_too_short(void)
{
    static const unsigned char data[12] = {0, 2, 0x41, 0x43};

    return raw_after_handshake(data, sizeof(data));
}

static bool frame_random(void)
{
    unsigned char data[2048];
    uint64_t random = seed + 2;

    helper_random_bytes(&random, data, sizeof(data));
    data[0] = 0;
    return raw_after_handshake(data, sizeof(data));
}

/*
 * Connections that say nothing, or not enough, at every stage: all are closed in time, and a good
 * client gets in meanwhile.
 */
static bool silent_many(void)
{
    static int fds[SILENT_CONNECTIONS];
    unsigned char request_frame[64];
    size_t length = mpa_request(request_frame, 0x1002, 36, 20);
    struct client c, accepted;
    bool ok;

    for (unsigned int i = 0; i < SILENT_CONNECTIONS; i++) {
        size_t part = i % 4 == 0 ? length : i % 4 == 1 ? 11 : 0;

        fds[i] = raw_connect();
        if (part > 0 && send(fds[i], request_frame, part, MSG_NOSIGNAL) != (ssize_t)part)
            helper_fail("send: %s", strerror(errno));
    }
    ok = reach(&accepted, CONNECTED) && session_with_queue(&c, RBLK_ATTACH_RW) && command_works(&c);
    client_close(&c);
    if (ok && !peer_is_closed(&accepted.control, RAW_PATIENCE_MS))
        ok = wrong("an accepted connection may stay silent for %d ms", RAW_PATIENCE_MS);
    client_close(&accepted);
    for (unsigned int i = 0; i < SILENT_CONNECTIONS; i++)
        if (!raw_closed(fds[i], RAW_PATIENCE_MS))
            ok = false;
    return ok;
}

/* -- the table ------------------------------------------------------------------------------------------------ */

/* What the target's log says afterwards. */
enum logged {
    ONCE,   /* exactly one line: the protocol was broken */
    NO_MORE /* one line at most: a refusal, or broken below the protocol */
};

#define CONTROL_CASE(stage, fill)           \
    static bool case_##fill(void)           \
    {                                       \
        return control_closed(stage, fill); \
    }
#define COMMAND_CASE(fill)                          \
    static bool case_##fill(void)                   \
    {                                               \
        return io_closed_raw(RBLK_ATTACH_RW, fill); \
    }

CONTROL_CASE(GREETED, empty_message)
CONTROL_CASE(GREETED, one_byte)
CONTROL_CASE(GREETED, half_header)
CONTROL_CASE(GREETED, length_small)
CONTROL_CASE(GREETED, length_large)
CONTROL_CASE(GREETED, length_huge)
CONTROL_CASE(GREETED, reserved_set)
CONTROL_CASE(GREETED, status_in_request)
CONTROL_CASE(GREETED, type_zero)
CONTROL_CASE(GREETED, type_unknown)
CONTROL_CASE(GREETED, type_reply)
CONTROL_CASE(GREETED, type_event)
CONTROL_CASE(GREETED, event_ack_unasked)
CONTROL_CASE(GREETED, ping_with_body)
CONTROL_CASE(GREETED, over_long)
CONTROL_CASE(GREETED, far_over_long)
CONTROL_CASE(CONNECTED, attach_first)
CONTROL_CASE(CONNECTED, hello_keepalive_zero)
CONTROL_CASE(CONNECTED, hello_keepalive_huge)
CONTROL_CASE(CONNECTED, hello_features)
CONTROL_CASE(CONNECTED, hello_reserved)
CONTROL_CASE(CONNECTED, hello_versions_reversed)
CONTROL_CASE(CONNECTED, hello_unterminated)
CONTROL_CASE(CONNECTED, hello_terminal)
CONTROL_CASE(CONNECTED, hello_short)
CONTROL_CASE(GREETED, attach_mode_zero)
CONTROL_CASE(GREETED, attach_mode_unknown)
CONTROL_CASE(GREETED, attach_reserved)
CONTROL_CASE(GREETED, attach_name_empty)
CONTROL_CASE(GREETED, attach_name_path)
CONTROL_CASE(GREETED, attach_name_unterminated)
CONTROL_CASE(GREETED, attach_name_tail)
CONTROL_CASE(ATTACHED, map_zero)
CONTROL_CASE(ATTACHED, map_many)
CONTROL_CASE(ATTACHED, map_overflow)
CONTROL_CASE(ATTACHED, map_reserved)
CONTROL_CASE(ATTACHED, release_zero)
CONTROL_CASE(ATTACHED, release_count_lies)
CONTROL_CASE(ATTACHED, release_overflow)
CONTROL_CASE(GREETED, list_with_tail)
COMMAND_CASE(command_empty)
COMMAND_CASE(command_short)
COMMAND_CASE(opcode_zero)
COMMAND_CASE(opcode_unknown)
COMMAND_CASE(flags_unknown)
COMMAND_CASE(command_reserved)
COMMAND_CASE(inline_short)
COMMAND_CASE(inline_long)
COMMAND_CASE(inline_above_limit)
COMMAND_CASE(write_of_nothing)
COMMAND_CASE(flush_with_range)
COMMAND_CASE(flush_with_data)
COMMAND_CASE(slot_at_depth)
COMMAND_CASE(slot_huge)
COMMAND_CASE(staging_overflow)
COMMAND_CASE(staged_huge)
COMMAND_CASE(offset_overflow)
COMMAND_CASE(command_over_long)
COMMAND_CASE(control_on_queue)

static bool map_before_attach(void)
{
    return control_refused(GREETED, map_one, RBLK_STATUS_STATE);
}

static bool hello_twice(void)
{
    return control_refused(GREETED, hello_again, RBLK_STATUS_STATE);
}

static bool map_beyond_end(void)
{
    return control_refused(ATTACHED, map_beyond, RBLK_STATUS_RANGE);
}

static bool attach_again(void)
{
    return control_refused(ATTACHED, attach_first, RBLK_STATUS_STATE);
}

static const struct {
    const char *name;
    bool (*run)(void);
    enum logged logged;
} cases[] = {
    {"honest", honest_read_and_staged_write, NO_MORE},
    {"connect-without-data", connect_without_data, ONCE},
    {"connect-short", connect_short, ONCE},
    {"connect-magic", connect_magic, ONCE},
    {"connect-version", connect_version, ONCE},
    {"connect-kind", connect_kind, ONCE},
    {"connect-reserved", connect_reserved, ONCE},
    {"connect-depth", connect_depth, ONCE},
    {"connect-zero-token", connect_zero_token, ONCE},
    {"connect-wrong-token", connect_wrong_token, ONCE},
    {"connect-near-token", connect_near_token, ONCE},
    {"connect-replayed-token", connect_replayed_token, ONCE},
    {"connect-queue-twice", connect_queue_twice, ONCE},
    {"connect-queue-number", connect_queue_number, ONCE},
    {"control-empty-message", case_empty_message, ONCE},
    {"control-one-byte", case_one_byte, ONCE},
    {"control-half-header", case_half_header, ONCE},
    {"control-length-small", case_length_small, ONCE},
    {"control-length-large", case_length_large, ONCE},
    {"control-length-huge", case_length_huge, ONCE},
    {"control-reserved", case_reserved_set, ONCE},
    {"control-status-in-request", case_status_in_request, ONCE},
    {"control-type-zero", case_type_zero, ONCE},
    {"control-type-unknown", case_type_unknown, ONCE},
    {"control-type-reply", case_type_reply, ONCE},
    {"control-type-event", case_type_event, ONCE},
    {"control-event-ack-unasked", case_event_ack_unasked, ONCE},
    {"control-ping-with-body", case_ping_with_body, ONCE},
    {"control-over-long", case_over_long, NO_MORE},
    {"control-far-over-long", case_far_over_long, NO_MORE},
    {"control-attach-first", case_attach_first, ONCE},
    {"control-hello-version", hello_version_99, NO_MORE},
    {"control-hello-keepalive-zero", case_hello_keepalive_zero, ONCE},
    {"control-hello-keepalive-huge", case_hello_keepalive_huge, ONCE},
    {"control-hello-features", case_hello_features, ONCE},
    {"control-hello-reserved", case_hello_reserved, ONCE},
    {"control-hello-versions-reversed", case_hello_versions_reversed, ONCE},
    {"control-hello-unterminated", case_hello_unterminated, ONCE},
    {"control-hello-terminal", case_hello_terminal, ONCE},
    {"control-hello-short", case_hello_short, ONCE},
    {"control-hello-again", hello_twice, NO_MORE},
    {"control-attach-mode-zero", case_attach_mode_zero, ONCE},
    {"control-attach-mode-unknown", case_attach_mode_unknown, ONCE},
    {"control-attach-reserved", case_attach_reserved, ONCE},
    {"control-attach-name-empty", case_attach_name_empty, ONCE},
    {"control-attach-name-path", case_attach_name_path, ONCE},
    {"control-attach-name-unterminated", case_attach_name_unterminated, ONCE},
    {"control-attach-name-tail", case_attach_name_tail, ONCE},
    {"control-attach-not-found", control_not_found, NO_MORE},
    {"control-attach-again", attach_again, NO_MORE},
    {"control-map-before-attach", map_before_attach, NO_MORE},
    {"control-map-zero", case_map_zero, ONCE},
    {"control-map-many", case_map_many, ONCE},
    {"control-map-overflow", case_map_overflow, ONCE},
    {"control-map-reserved", case_map_reserved, ONCE},
    {"control-map-beyond", map_beyond_end, NO_MORE},
    {"control-release-zero", case_release_zero, ONCE},
    {"control-release-count-lies", case_release_count_lies, ONCE},
    {"control-release-overflow", case_release_overflow, ONCE},
    {"control-list-with-tail", case_list_with_tail, ONCE},
    {"control-flood", flood, NO_MORE},
    {"command-empty", case_command_empty, ONCE},
    {"command-short", case_command_short, ONCE},
    {"command-opcode-zero", case_opcode_zero, ONCE},
    {"command-opcode-unknown", case_opcode_unknown, ONCE},
    {"command-flags-unknown", case_flags_unknown, ONCE},
    {"command-reserved", case_command_reserved, ONCE},
    {"command-inline-short", case_inline_short, ONCE},
    {"command-inline-long", case_inline_long, ONCE},
    {"command-inline-above-limit", case_inline_above_limit, NO_MORE},
    {"command-write-of-nothing", case_write_of_nothing, ONCE},
    {"command-flush-with-range", case_flush_with_range, ONCE},
    {"command-flush-with-data", case_flush_with_data, ONCE},
    {"command-slot-at-depth", case_slot_at_depth, ONCE},
    {"command-slot-huge", case_slot_huge, ONCE},
    {"command-slot-in-use", slot_in_use, NO_MORE},
    {"command-too-many", too_many_commands, NO_MORE},
    {"command-staging-beyond", staging_beyond, NO_MORE},
    {"command-staging-across", staging_across, NO_MORE},
    {"command-staging-overflow", case_staging_overflow, ONCE},
    {"command-staged-huge", case_staged_huge, ONCE},
    {"command-over-long", case_command_over_long, NO_MORE},
    {"command-control-message", case_control_on_queue, ONCE},
    {"command-offset-beyond", offset_beyond, NO_MORE},
    {"command-offset-overflow", case_offset_overflow, ONCE},
    {"command-write-to-reader", write_to_reader, NO_MORE},
    {"command-staged-write-to-reader", staged_write_to_reader, NO_MORE},
    {"command-read-staged", read_staged, NO_MORE},
    {"access-read-wrong-key", read_wrong_key, NO_MORE},
    {"access-read-beyond-extent", read_beyond_extent, NO_MORE},
    {"access-read-before-extent", read_before_extent, NO_MORE},
    {"access-write-into-extent", write_into_extent, NO_MORE},
    {"access-read-from-staging", read_from_staging, NO_MORE},
    {"access-write-beyond-staging", write_beyond_staging, NO_MORE},
    {"access-read-over-control", read_over_control, NO_MORE},
    {"access-write-into-other-staging", write_into_other_staging, NO_MORE},
    {"access-read-other-mapping", read_other_mapping, NO_MORE},
    {"mutate-control", mutate_control, NO_MORE},
    {"mutate-commands", mutate_commands, NO_MORE},
    {"tcp-http", raw_http, NO_MORE},
    {"tcp-random", raw_random, NO_MORE},
    {"tcp-huge-private-data", raw_huge_private_data, NO_MORE},
    {"tcp-markers", raw_markers, NO_MORE},
    {"tcp-revision", raw_revision, NO_MORE},
    {"tcp-reply-frame", raw_reply_frame, NO_MORE},
    {"frame-version", frame_version, NO_MORE},
    {"frame-opcode", frame_opcode, NO_MORE},
    {"frame-queue-number", frame_queue_number, NO_MORE},
    {"frame-sequence", frame_sequence, NO_MORE},
    {"frame-tagged-to-nowhere", frame_tagged_to_nowhere, NO_MORE},
    {"frame-too-short", frame_too_short, NO_MORE},
    {"frame-random", frame_random, NO_MORE},
    {"silent-many", silent_many, ONCE},
};

static unsigned int lines_in_log(const regex_t *pattern)
{
    char *line = NULL;
    size_t room = 0;
    unsigned int lines = 0;
    FILE *file = fopen(log_path, "re");

    if (file == NULL)
        helper_fail("%s: %s", log_path, strerror(errno));
    while (getline(&line, &room, file) > 0)
        lines += regexec(pattern, line, 0, NULL, 0) == 0;
    free(line);
    fclose(file);
    return lines;
}

/* Mutations are of any number and kind, so are the lines about them. */
static bool log_is_right(const char *name, enum logged logged, const regex_t *pattern,
                         unsigned int before)
{
    uint64_t deadline = rblk_deadline_ms(5000);
    unsigned int added = 0;

    if (strncmp(name, "mutate-", 7) == 0)
        return true;
    while (logged == ONCE && added == 0 && rblk_now_ns() < deadline) {
        helper_sleep_ms(5);
        added = lines_in_log(pattern) - before;
    }
    helper_sleep_ms(10);
    added = lines_in_log(pattern) - before;
    if (logged == ONCE && added != 1)
        return wrong("it was logged %u times", added);
    return added <= 1 || wrong("it was logged %u times", added);
}

static const char *left_out; /* a case, or NULL */

static bool is_plain_tcp(const char *name)
{
    return strncmp(name, "tcp-", 4) == 0 || strncmp(name, "frame-", 6) == 0 ||
           strcmp(name, "silent-many") == 0;
}

static unsigned int run_cases(const char *only, bool rdma_only, const regex_t *pattern,
                              unsigned int *failures)
{
    unsigned int done = 0;

    for (unsigned int i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        unsigned int before = log_path != NULL ? lines_in_log(pattern) : 0;
        uint64_t begun = helper_now();

        if (strncmp(cases[i].name, only, strlen(only)) != 0 ||
            (rdma_only && is_plain_tcp(cases[i].name)) ||
            (left_out != NULL && strcmp(cases[i].name, left_out) == 0))
            continue;
        done++;
        reason[0] = '\0';
        if (!cases[i].run() ||
            (log_path != NULL && !log_is_right(cases[i].name, cases[i].logged, pattern, before))) {
            fprintf(stderr, "hostile: %s: %s\n", cases[i].name, reason);
            (*failures)++;
        }
        printf("%-34s %6.1f ms\n", cases[i].name, (double)(helper_now() - begun) / 1e6);
        fflush(stdout);
    }
    return done;
}

int main(int argc, char **argv)
{
    const char *only = "";
    unsigned int failures = 0, done;
    bool rdma_only = false;
    regex_t pattern;
    int option;

    helper_select_provider(argv);
    while ((option = getopt(argc, argv, "rx:c:s:n:L:P:")) != -1) {
        switch (option) {
        case 'r':
            rdma_only = true;
            break;
        case 'x':
            left_out = optarg;
            break;
        case 'c':
            only = optarg;
            break;
        case 's':
            seed = helper_number(optarg);
            break;
        case 'n':
            mutations = helper_number(optarg);
            break;
        case 'L':
            log_path = optarg;
            break;
        case 'P':
            log_pattern = optarg;
            break;
        default:
            return HELPER_USAGE;
        }
    }
    if (argc - optind != 3 || (log_path != NULL && log_pattern == NULL))
        return HELPER_USAGE;
    if (log_pattern != NULL && regcomp(&pattern, log_pattern, REG_EXTENDED | REG_NOSUB) != 0)
        helper_end(HELPER_USAGE, "\"%s\" is not a regular expression", log_pattern);
    host_text = argv[optind];
    port_text = argv[optind + 1];
    volume = argv[optind + 2];
    address = peer_address(host_text, port_text);
    signal(SIGPIPE, SIG_IGN);
    done = run_cases(only, rdma_only, &pattern, &failures);
    if (log_pattern != NULL)
        regfree(&pattern);
    printf("measured: %u hostile cases, seed %llu: %u went wrong\n", done, (unsigned long long)seed,
           failures);
    return failures == 0 && done > 0 ? 0 : HELPER_FAILED;
}
