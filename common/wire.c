/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * wire -- the rblk protocol: message layouts, their encoders, decoders and validators
 *
 * A layout is a struct of byte arrays: it has no padding, no alignment and no byte order of the
 * machine, and an integer can reach it only through put_*() and get_*(). Decoders build their
 * result in a local variable and copy it out last, so that the caller's stays untouched on failure.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "run_alloc.h"
#include "wire.h"

/* -- little-endian fields ------------------------------------------------------------------ */

struct le16 {
    uint8_t byte[2];
};
struct le32 {
    uint8_t byte[4];
};
struct le64 {
    uint8_t byte[8];
};

static void put16(struct le16 *field, uint16_t value)
{
    field->byte[0] = (uint8_t)value;
    field->byte[1] = (uint8_t)(value >> 8);
}

static void put32(struct le32 *field, uint32_t value)
{
    for (unsigned int i = 0; i < sizeof field->byte; i++)
        field->byte[i] = (uint8_t)(value >> (8 * i));
}

static void put64(struct le64 *field, uint64_t value)
{
    for (unsigned int i = 0; i < sizeof field->byte; i++)
        field->byte[i] = (uint8_t)(value >> (8 * i));
}

static uint16_t get16(const struct le16 *field)
{
    return (uint16_t)(field->byte[0] | field->byte[1] << 8);
}

static uint32_t get32(const struct le32 *field)
{
    uint32_t value = 0;

    for (unsigned int i = 0; i < sizeof field->byte; i++)
        value |= (uint32_t)field->byte[i] << (8 * i);
    return value;
}

static uint64_t get64(const struct le64 *field)
{
    uint64_t value = 0;

    for (unsigned int i = 0; i < sizeof field->byte; i++)
        value |= (uint64_t)field->byte[i] << (8 * i);
    return value;
}

/* -- layouts ------------------------------------------------------------------------------- */

#define ASSERT_SIZE(type, bytes) static_assert(sizeof(struct type) == (bytes), "layout of " #type)

/* What every version keeps of the private data: who it is and which version the rest is. */
struct wire_introduction {
    struct le32 magic;
    struct le16 version;
};
ASSERT_SIZE(wire_introduction, 6);

struct wire_connect {
    struct wire_introduction introduction;
    uint8_t kind;
    uint8_t reserved7;
    struct le16 queue_id;
    struct le16 queue_depth;
    uint8_t reserved12[4];
    uint8_t token[RBLK_TOKEN_LEN];
};
ASSERT_SIZE(wire_connect, RBLK_CONNECT_LEN);
static_assert(RBLK_CONNECT_LEN <= RBLK_PRIVATE_DATA_MAX, "fits into IB private data");

struct wire_accept {
    struct wire_introduction introduction;
    uint8_t kind;
    uint8_t reserved7;
    struct le16 queue_depth;
    uint8_t reserved10[2];
    struct le32 staging_rkey;
    struct le64 staging_addr;
    struct le32 staging_len;
    uint8_t reserved28[4];
};
ASSERT_SIZE(wire_accept, RBLK_ACCEPT_LEN);
static_assert(RBLK_ACCEPT_LEN <= RBLK_PRIVATE_DATA_MAX, "fits into IB private data");
static_assert(RBLK_STAGING_MAX / RBLK_STAGING_GRANULE <= RBLK_RUN_UNITS_MAX,
              "one run_alloc can manage the staging memory of a queue");

struct wire_reject {
    struct wire_introduction introduction;
    struct le16 status;
    uint8_t reserved8[8];
};
ASSERT_SIZE(wire_reject, RBLK_REJECT_LEN);
static_assert(RBLK_REJECT_LEN <= RBLK_PRIVATE_DATA_MAX, "fits into IB private data");

struct wire_header {
    uint8_t type;
    uint8_t reserved1;
    struct le16 status;
    struct le32 length;
    struct le64 tag;
};
ASSERT_SIZE(wire_header, RBLK_HEADER_LEN);

struct wire_hello {
    struct wire_header header;
    struct le16 version_min;
    struct le16 version_max;
    struct le32 features;
    struct le32 keepalive_ms;
    uint8_t reserved28[4];
    char client[RBLK_NAME_LEN];
};
ASSERT_SIZE(wire_hello, 96);

struct wire_hello_reply {
    struct wire_header header;
    struct le16 version;
    struct le16 auth;
    struct le32 features;
    struct le32 keepalive_ms;
    uint8_t reserved28[4];
    uint8_t target_uuid[RBLK_UUID_LEN];
    char target[RBLK_NAME_LEN];
};
ASSERT_SIZE(wire_hello_reply, 112);

struct wire_list {
    struct wire_header header;
    struct le32 first;
    uint8_t reserved20[4];
};
ASSERT_SIZE(wire_list, 24);

struct wire_list_entry {
    struct le64 size;
    struct le32 flags;
    struct le32 sessions;
    uint8_t uuid[RBLK_UUID_LEN];
    char name[RBLK_NAME_LEN];
};
ASSERT_SIZE(wire_list_entry, 96);

struct wire_list_reply {
    struct wire_header header;
    struct le32 total;
    struct le32 first;
    struct le32 count;
    uint8_t reserved28[4];
    struct wire_list_entry entry[];
};
ASSERT_SIZE(wire_list_reply, 32);
static_assert(sizeof(struct wire_list_reply) + RBLK_LIST_MAX * sizeof(struct wire_list_entry) <=
                  RBLK_CONTROL_MAX,
              "the longest LIST reply is a control message");

struct wire_attach {
    struct wire_header header;
    uint8_t mode;
    uint8_t reserved17[7];
    char volume[RBLK_NAME_LEN];
};
ASSERT_SIZE(wire_attach, 88);

struct wire_attach_reply {
    struct wire_header header;
    uint8_t token[RBLK_TOKEN_LEN];
    uint8_t uuid[RBLK_UUID_LEN];
    struct le64 size;
    struct le64 extent_size;
    struct le64 write_verifier;
    struct le32 flags;
    struct le32 max_queues;
    struct le32 max_queue_depth;
    struct le32 max_io;
    struct le32 max_inline;
    struct le32 max_reads;
};
ASSERT_SIZE(wire_attach_reply, 96);

struct wire_extent_map {
    struct wire_header header;
    struct le64 first;
    struct le32 count;
    uint8_t reserved28[4];
};
ASSERT_SIZE(wire_extent_map, 32);

struct wire_extent_entry {
    struct le64 addr;
    struct le64 length;
    struct le32 rkey;
    uint8_t reserved20[4];
};
ASSERT_SIZE(wire_extent_entry, 24);

struct wire_extent_map_reply {
    struct wire_header header;
    struct le64 first;
    struct le32 count;
    uint8_t reserved28[4];
    struct wire_extent_entry entry[];
};
ASSERT_SIZE(wire_extent_map_reply, 32);
static_assert(sizeof(struct wire_extent_map_reply) +
                      RBLK_EXTENTS_PER_MESSAGE * sizeof(struct wire_extent_entry) <=
                  RBLK_CONTROL_MAX,
              "the longest EXTENT_MAP reply is a control message");

struct wire_extent_release {
    struct wire_header header;
    struct le32 count;
    uint8_t reserved20[4];
    struct le64 index[];
};
ASSERT_SIZE(wire_extent_release, 24);
static_assert(sizeof(struct wire_extent_release) + RBLK_EXTENTS_PER_MESSAGE * sizeof(struct le64) <=
                  RBLK_CONTROL_MAX,
              "the longest EXTENT_RELEASE is a control message");

struct wire_extent_recall {
    struct wire_header header;
    struct le32 count;
    uint8_t reserved20[4];
};
ASSERT_SIZE(wire_extent_recall, 24);

struct wire_stats_reply {
    struct wire_header header;
    struct le64 control_messages;
    struct le64 io_messages;
    struct le64 writes;
    struct le64 write_bytes;
    struct le64 flushes;
    struct le64 fua_writes;
    struct le64 fdatasyncs;
    struct le64 errors;
    struct le64 extents_mapped;
    struct le64 extent_bytes;
    struct le64 sessions;
    struct le64 queues;
    struct le64 protocol_errors;
    struct le64 uptime_ms;
};
ASSERT_SIZE(wire_stats_reply, 128);

struct wire_command {
    uint8_t opcode;
    uint8_t flags;
    struct le16 slot;
    struct le32 length;
    struct le64 offset;
    struct le32 staging_offset;
    uint8_t reserved20[12];
};
ASSERT_SIZE(wire_command, RBLK_COMMAND_LEN);

struct wire_completion {
    struct le16 slot;
    struct le16 status;
    uint8_t reserved4[4];
    struct le64 write_verifier;
    uint8_t reserved16[8];
};
ASSERT_SIZE(wire_completion, RBLK_COMPLETION_LEN);

/* -- pieces of validation ------------------------------------------------------------------ */

static bool all_zero(const void *bytes, size_t len)
{
    const uint8_t *byte = bytes;
    uint8_t seen = 0;

    for (size_t i = 0; i < len; i++)
        seen |= byte[i];
    return seen == 0;
}

#define RESERVED_ZERO(layout, field) all_zero(&(layout)->field, sizeof((layout)->field))

/* addr and addr + len - 1 are both addresses. */
static bool range_valid(uint64_t addr, uint64_t len)
{
    return len != 0 && addr <= UINT64_MAX - (len - 1);
}

static bool printable(char c)
{
    return c >= 0x20 && c <= 0x7e;
}

/* A text field: 1..RBLK_NAME_LEN - 1 printable ASCII bytes, then zeros to the end. */
static bool text_valid(const char *field)
{
    size_t len = strnlen(field, RBLK_NAME_LEN);

    if (len == 0 || len == RBLK_NAME_LEN)
        return false;
    for (size_t i = 0; i < len; i++)
        if (!printable(field[i]))
            return false;
    return all_zero(field + len, RBLK_NAME_LEN - len);
}

/* A volume name in a text field. text_valid() makes sure that it ends inside the field. */
static bool name_field_valid(const char *field)
{
    return text_valid(field) && rblk_volume_name_valid(field);
}

static void put_text(char *field, const char *text)
{
    memcpy(field, text, strnlen(text, RBLK_NAME_LEN - 1));
}

bool rblk_volume_name_valid(const char *s)
{
    size_t len = strnlen(s, RBLK_NAME_LEN);

    if (len == 0 || len == RBLK_NAME_LEN || s[0] == '.' || s[0] == '-')
        return false;
    return strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == len;
}

/* -- private data -------------------------------------------------------------------------- */

static void put_introduction(struct wire_introduction *wire, uint16_t version)
{
    put32(&wire->magic, RBLK_WIRE_MAGIC);
    put16(&wire->version, version);
}

/* Magic and version come before everything else: a later version may be laid out differently. */
static int check_introduction(const void *buf, size_t len)
{
    const struct wire_introduction *wire = buf;

    if (len < sizeof *wire || get32(&wire->magic) != RBLK_WIRE_MAGIC)
        return -EPROTO;
    return get16(&wire->version) == RBLK_WIRE_VERSION ? 0 : -EPROTONOSUPPORT;
}

/* InfiniBand delivers private data padded with zeros to the size of its management datagram. */
static bool padding_valid(const void *buf, size_t len, size_t layout_len)
{
    return len >= layout_len && all_zero((const uint8_t *)buf + layout_len, len - layout_len);
}

size_t rblk_connect_encode(void *buf, const struct rblk_connect *m)
{
    struct wire_connect *wire = buf;

    memset(wire, 0, sizeof *wire);
    put_introduction(&wire->introduction, m->version);
    wire->kind = m->kind;
    put16(&wire->queue_id, m->queue_id);
    put16(&wire->queue_depth, m->queue_depth);
    memcpy(wire->token, m->token, sizeof wire->token);
    return sizeof *wire;
}

static bool connect_valid(const struct rblk_connect *m)
{
    bool token_zero = all_zero(m->token, sizeof m->token);

    switch (m->kind) {
    case RBLK_KIND_CONTROL:
        return m->queue_id == 0 && m->queue_depth == 0 && token_zero;
    case RBLK_KIND_IO:
        return m->queue_id < RBLK_QUEUES_MAX && m->queue_depth >= 1 &&
               m->queue_depth <= RBLK_QUEUE_DEPTH_MAX && !token_zero;
    default:
        return false;
    }
}

int rblk_connect_decode(struct rblk_connect *m, const void *buf, size_t len)
{
    const struct wire_connect *wire = buf;
    struct rblk_connect out;
    int rc = check_introduction(buf, len);

    if (rc < 0)
        return rc;
    if (!padding_valid(buf, len, sizeof *wire) || !RESERVED_ZERO(wire, reserved7) ||
        !RESERVED_ZERO(wire, reserved12))
        return -EPROTO;
    out.version = get16(&wire->introduction.version);
    out.kind = wire->kind;
    out.queue_id = get16(&wire->queue_id);
    out.queue_depth = get16(&wire->queue_depth);
    memcpy(out.token, wire->token, sizeof out.token);
    if (!connect_valid(&out))
        return -EPROTO;
    *m = out;
    return 0;
}

size_t rblk_accept_encode(void *buf, const struct rblk_accept *m)
{
    struct wire_accept *wire = buf;

    memset(wire, 0, sizeof *wire);
    put_introduction(&wire->introduction, m->version);
    wire->kind = m->kind;
    put16(&wire->queue_depth, m->queue_depth);
    put32(&wire->staging_rkey, m->staging_rkey);
    put64(&wire->staging_addr, m->staging_addr);
    put32(&wire->staging_len, m->staging_len);
    return sizeof *wire;
}

static bool staging_valid(const struct rblk_accept *m)
{
    if (m->staging_len == 0)
        return m->staging_addr == 0 && m->staging_rkey == 0;
    return m->staging_len % RBLK_STAGING_GRANULE == 0 && m->staging_len <= RBLK_STAGING_MAX &&
           range_valid(m->staging_addr, m->staging_len);
}

static bool accept_valid(const struct rblk_accept *m)
{
    switch (m->kind) {
    case RBLK_KIND_CONTROL:
        return m->queue_depth == 0 && m->staging_len == 0 && staging_valid(m);
    case RBLK_KIND_IO:
        return m->queue_depth >= 1 && m->queue_depth <= RBLK_QUEUE_DEPTH_MAX && staging_valid(m);
    default:
        return false;
    }
}

int rblk_accept_decode(struct rblk_accept *m, const void *buf, size_t len)
{
    const struct wire_accept *wire = buf;
    struct rblk_accept out;
    int rc = check_introduction(buf, len);

    if (rc < 0)
        return rc;
    if (!padding_valid(buf, len, sizeof *wire) || !RESERVED_ZERO(wire, reserved7) ||
        !RESERVED_ZERO(wire, reserved10) || !RESERVED_ZERO(wire, reserved28))
        return -EPROTO;
    out.version = get16(&wire->introduction.version);
    out.kind = wire->kind;
    out.queue_depth = get16(&wire->queue_depth);
    out.staging_rkey = get32(&wire->staging_rkey);
    out.staging_addr = get64(&wire->staging_addr);
    out.staging_len = get32(&wire->staging_len);
    if (!accept_valid(&out))
        return -EPROTO;
    *m = out;
    return 0;
}

size_t rblk_reject_encode(void *buf, const struct rblk_reject *m)
{
    struct wire_reject *wire = buf;

    memset(wire, 0, sizeof *wire);
    put_introduction(&wire->introduction, m->version);
    put16(&wire->status, m->status);
    return sizeof *wire;
}

/* Any version is taken: the layout is the same in all, because it is how versions are told apart.
 */
int rblk_reject_decode(struct rblk_reject *m, const void *buf, size_t len)
{
    const struct wire_reject *wire = buf;
    struct rblk_reject out;

    if (check_introduction(buf, len) == -EPROTO || !padding_valid(buf, len, sizeof *wire) ||
        !RESERVED_ZERO(wire, reserved8))
        return -EPROTO;
    out.version = get16(&wire->introduction.version);
    out.status = get16(&wire->status);
    if (out.version == 0 || out.status == RBLK_STATUS_OK || out.status > RBLK_STATUS_MAX)
        return -EPROTO;
    *m = out;
    return 0;
}

/* -- header of control messages ------------------------------------------------------------ */

static bool request_type_known(uint8_t type)
{
    return type >= RBLK_HELLO && type <= RBLK_STATS;
}

static bool type_known(uint8_t type)
{
    switch (type) {
    case RBLK_EVENT_ACK:
    case RBLK_EVENT_EXTENT_RECALL:
    case RBLK_EVENT_GOODBYE:
        return true;
    default:
        return request_type_known(type & (uint8_t)~RBLK_REPLY);
    }
}

size_t rblk_header_encode(void *buf, const struct rblk_header *h)
{
    struct wire_header *wire = buf;

    memset(wire, 0, sizeof *wire);
    wire->type = h->type;
    put16(&wire->status, h->status);
    put32(&wire->length, h->length);
    put64(&wire->tag, h->tag);
    return sizeof *wire;
}

int rblk_header_decode(struct rblk_header *h, const void *buf, size_t len)
{
    const struct wire_header *wire = buf;
    struct rblk_header out;

    if (len < sizeof *wire || len > RBLK_CONTROL_MAX || !RESERVED_ZERO(wire, reserved1))
        return -EPROTO;
    out.type = wire->type;
    out.status = get16(&wire->status);
    out.length = get32(&wire->length);
    out.tag = get64(&wire->tag);
    if (out.length != len || !type_known(out.type) || out.status > RBLK_STATUS_MAX)
        return -EPROTO;
    if (out.status != RBLK_STATUS_OK && !(out.type & RBLK_REPLY))
        return -EPROTO;
    *h = out;
    return 0;
}

/* Zeroes a layout of len bytes and writes the header of a message without an error. */
static void begin(void *buf, size_t len, uint8_t type, uint64_t tag)
{
    const struct rblk_header header = {.type = type, .length = (uint32_t)len, .tag = tag};

    memset(buf, 0, len);
    rblk_header_encode(buf, &header);
}

/* A message of this type that carries no error and has at least the fixed part of its layout. */
static bool is_message(const void *buf, size_t len, uint8_t type, size_t fixed_len)
{
    struct rblk_header header;

    return rblk_header_decode(&header, buf, len) == 0 && header.type == type &&
           header.status == RBLK_STATUS_OK && len >= fixed_len;
}

/* -- errors and messages without a body ---------------------------------------------------- */

/* Texts come from a peer and end on a terminal or in a log: nothing but printable ASCII passes. */
static void copy_detail(char *to, const char *from, size_t len)
{
    for (size_t i = 0; i < len; i++)
        to[i] = printable(from[i]) ? from[i] : '?';
}

size_t rblk_error_encode(void *buf, uint8_t request_type, uint64_t tag, uint16_t status,
                         const char *detail)
{
    size_t detail_len = detail ? strnlen(detail, RBLK_DETAIL_MAX) : 0;
    const struct rblk_header header = {
        .type = request_type | RBLK_REPLY,
        .status = status,
        .length = (uint32_t)(RBLK_HEADER_LEN + detail_len),
        .tag = tag,
    };

    rblk_header_encode(buf, &header);
    if (detail_len)
        copy_detail((char *)buf + RBLK_HEADER_LEN, detail, detail_len);
    return header.length;
}

int rblk_error_decode(char *detail, const void *buf, size_t len)
{
    struct rblk_header header;
    size_t detail_len;

    if (rblk_header_decode(&header, buf, len) < 0 || header.status == RBLK_STATUS_OK)
        return -EPROTO;
    detail_len = len - RBLK_HEADER_LEN;
    if (detail_len > RBLK_DETAIL_MAX)
        return -EPROTO;
    copy_detail(detail, (const char *)buf + RBLK_HEADER_LEN, detail_len);
    detail[detail_len] = '\0';
    return 0;
}

static bool type_has_no_body(uint8_t type)
{
    switch (type) {
    case RBLK_PING:
    case RBLK_PING | RBLK_REPLY:
    case RBLK_DETACH:
    case RBLK_DETACH | RBLK_REPLY:
    case RBLK_STATS:
    case RBLK_EXTENT_RELEASE | RBLK_REPLY:
    case RBLK_EVENT_ACK:
    case RBLK_EVENT_GOODBYE:
        return true;
    default:
        return false;
    }
}

size_t rblk_empty_encode(void *buf, uint8_t type, uint64_t tag)
{
    begin(buf, RBLK_HEADER_LEN, type, tag);
    return RBLK_HEADER_LEN;
}

int rblk_empty_decode(const void *buf, size_t len)
{
    struct rblk_header header;

    if (rblk_header_decode(&header, buf, len) < 0 || header.status != RBLK_STATUS_OK ||
        !type_has_no_body(header.type) || len != RBLK_HEADER_LEN)
        return -EPROTO;
    return 0;
}

/* -- HELLO --------------------------------------------------------------------------------- */

static bool keepalive_valid(uint32_t ms)
{
    return ms >= RBLK_KEEPALIVE_MIN_MS && ms <= RBLK_KEEPALIVE_MAX_MS;
}

size_t rblk_hello_encode(void *buf, uint64_t tag, const struct rblk_hello *m)
{
    struct wire_hello *wire = buf;

    begin(wire, sizeof *wire, RBLK_HELLO, tag);
    put16(&wire->version_min, m->version_min);
    put16(&wire->version_max, m->version_max);
    put32(&wire->features, m->features);
    put32(&wire->keepalive_ms, m->keepalive_ms);
    put_text(wire->client, m->client);
    return sizeof *wire;
}

int rblk_hello_decode(struct rblk_hello *m, const void *buf, size_t len)
{
    const struct wire_hello *wire = buf;
    struct rblk_hello out;

    if (!is_message(buf, len, RBLK_HELLO, sizeof *wire))
        return -EPROTO;
    out.version_min = get16(&wire->version_min);
    out.version_max = get16(&wire->version_max);
    if (out.version_min == 0 || out.version_min > out.version_max)
        return -EPROTO;
    if (out.version_min > RBLK_WIRE_VERSION || out.version_max < RBLK_WIRE_VERSION)
        return -EPROTONOSUPPORT;
    out.features = get32(&wire->features);
    out.keepalive_ms = get32(&wire->keepalive_ms);
    if (len != sizeof *wire || out.features != 0 || !keepalive_valid(out.keepalive_ms) ||
        !RESERVED_ZERO(wire, reserved28) || !text_valid(wire->client))
        return -EPROTO;
    memcpy(out.client, wire->client, sizeof out.client);
    *m = out;
    return 0;
}

size_t rblk_hello_reply_encode(void *buf, uint64_t tag, const struct rblk_hello_reply *m)
{
    struct wire_hello_reply *wire = buf;

    begin(wire, sizeof *wire, RBLK_HELLO | RBLK_REPLY, tag);
    put16(&wire->version, m->version);
    put16(&wire->auth, m->auth);
    put32(&wire->features, m->features);
    put32(&wire->keepalive_ms, m->keepalive_ms);
    memcpy(wire->target_uuid, m->target_uuid, sizeof wire->target_uuid);
    put_text(wire->target, m->target);
    return sizeof *wire;
}

int rblk_hello_reply_decode(struct rblk_hello_reply *m, const void *buf, size_t len)
{
    const struct wire_hello_reply *wire = buf;
    struct rblk_hello_reply out;

    if (!is_message(buf, len, RBLK_HELLO | RBLK_REPLY, sizeof *wire))
        return -EPROTO;
    out.version = get16(&wire->version);
    out.auth = get16(&wire->auth);
    if (out.version != RBLK_WIRE_VERSION || out.auth != 0)
        return -EPROTONOSUPPORT;
    out.features = get32(&wire->features);
    out.keepalive_ms = get32(&wire->keepalive_ms);
    if (len != sizeof *wire || out.features != 0 || !keepalive_valid(out.keepalive_ms) ||
        !RESERVED_ZERO(wire, reserved28) || !text_valid(wire->target))
        return -EPROTO;
    memcpy(out.target_uuid, wire->target_uuid, sizeof out.target_uuid);
    memcpy(out.target, wire->target, sizeof out.target);
    *m = out;
    return 0;
}

/* -- LIST ---------------------------------------------------------------------------------- */

static bool size_valid(uint64_t bytes)
{
    return bytes >= 1 && bytes <= INT64_MAX; /* off_t of the file that shows the disk */
}

size_t rblk_list_encode(void *buf, uint64_t tag, const struct rblk_list *m)
{
    struct wire_list *wire = buf;

    begin(wire, sizeof *wire, RBLK_LIST, tag);
    put32(&wire->first, m->first);
    return sizeof *wire;
}

int rblk_list_decode(struct rblk_list *m, const void *buf, size_t len)
{
    const struct wire_list *wire = buf;

    if (!is_message(buf, len, RBLK_LIST, sizeof *wire) || len != sizeof *wire ||
        !RESERVED_ZERO(wire, reserved20))
        return -EPROTO;
    m->first = get32(&wire->first);
    return 0;
}

static void put_list_entry(struct wire_list_entry *wire, const struct rblk_list_entry *entry)
{
    put64(&wire->size, entry->size);
    put32(&wire->flags, entry->flags);
    put32(&wire->sessions, entry->sessions);
    memcpy(wire->uuid, entry->uuid, sizeof wire->uuid);
    put_text(wire->name, entry->name);
}

static bool get_list_entry(struct rblk_list_entry *entry, const struct wire_list_entry *wire)
{
    entry->size = get64(&wire->size);
    entry->flags = get32(&wire->flags);
    entry->sessions = get32(&wire->sessions);
    memcpy(entry->uuid, wire->uuid, sizeof entry->uuid);
    memcpy(entry->name, wire->name, sizeof entry->name);
    return size_valid(entry->size) && !(entry->flags & ~RBLK_VOLUME_FLAGS) &&
           name_field_valid(entry->name);
}

size_t rblk_list_reply_encode(void *buf, uint64_t tag, const struct rblk_list_reply *m)
{
    struct wire_list_reply *wire = buf;
    uint32_t count = m->count < RBLK_LIST_MAX ? m->count : RBLK_LIST_MAX;
    size_t len = sizeof *wire + count * sizeof wire->entry[0];

    begin(wire, len, RBLK_LIST | RBLK_REPLY, tag);
    put32(&wire->total, m->total);
    put32(&wire->first, m->first);
    put32(&wire->count, count);
    for (uint32_t i = 0; i < count; i++)
        put_list_entry(&wire->entry[i], &m->entry[i]);
    return len;
}

/* The entries lie inside the list, and an answer without any is the end of it: a loop that asks for
 * first + count next always ends. */
static bool list_range_valid(const struct rblk_list_reply *m)
{
    if (m->count == 0)
        return m->first >= m->total;
    return m->count <= RBLK_LIST_MAX && m->first < m->total && m->count <= m->total - m->first;
}

int rblk_list_reply_decode(struct rblk_list_reply *m, const void *buf, size_t len)
{
    const struct wire_list_reply *wire = buf;
    struct rblk_list_reply out;

    if (!is_message(buf, len, RBLK_LIST | RBLK_REPLY, sizeof *wire))
        return -EPROTO;
    memset(&out, 0, sizeof out);
    out.total = get32(&wire->total);
    out.first = get32(&wire->first);
    out.count = get32(&wire->count);
    if (!list_range_valid(&out) || !RESERVED_ZERO(wire, reserved28) ||
        len != sizeof *wire + out.count * sizeof wire->entry[0])
        return -EPROTO;
    for (uint32_t i = 0; i < out.count; i++)
        if (!get_list_entry(&out.entry[i], &wire->entry[i]))
            return -EPROTO;
    *m = out;
    return 0;
}

/* -- ATTACH -------------------------------------------------------------------------------- */

size_t rblk_attach_encode(void *buf, uint64_t tag, const struct rblk_attach *m)
{
    struct wire_attach *wire = buf;

    begin(wire, sizeof *wire, RBLK_ATTACH, tag);
    wire->mode = m->mode;
    put_text(wire->volume, m->volume);
    return sizeof *wire;
}

int rblk_attach_decode(struct rblk_attach *m, const void *buf, size_t len)
{
    const struct wire_attach *wire = buf;

    if (!is_message(buf, len, RBLK_ATTACH, sizeof *wire) || len != sizeof *wire ||
        !RESERVED_ZERO(wire, reserved17) || !name_field_valid(wire->volume) ||
        wire->mode < RBLK_ATTACH_RO || wire->mode > RBLK_ATTACH_SHARED)
        return -EPROTO;
    m->mode = wire->mode;
    memcpy(m->volume, wire->volume, sizeof m->volume);
    return 0;
}

size_t rblk_attach_reply_encode(void *buf, uint64_t tag, const struct rblk_attach_reply *m)
{
    struct wire_attach_reply *wire = buf;

    begin(wire, sizeof *wire, RBLK_ATTACH | RBLK_REPLY, tag);
    memcpy(wire->token, m->token, sizeof wire->token);
    memcpy(wire->uuid, m->uuid, sizeof wire->uuid);
    put64(&wire->size, m->size);
    put64(&wire->extent_size, m->extent_size);
    put64(&wire->write_verifier, m->write_verifier);
    put32(&wire->flags, m->flags);
    put32(&wire->max_queues, m->max_queues);
    put32(&wire->max_queue_depth, m->max_queue_depth);
    put32(&wire->max_io, m->max_io);
    put32(&wire->max_inline, m->max_inline);
    put32(&wire->max_reads, m->max_reads);
    return sizeof *wire;
}

static bool extents_valid(uint64_t size, uint64_t extent_size)
{
    if (extent_size < RBLK_EXTENT_SIZE_MIN || (extent_size & (extent_size - 1)) != 0)
        return false;
    return (size - 1) / extent_size < RBLK_EXTENTS_MAX;
}

static bool attach_reply_valid(const struct rblk_attach_reply *m)
{
    return !all_zero(m->token, sizeof m->token) && size_valid(m->size) &&
           extents_valid(m->size, m->extent_size) && !(m->flags & ~RBLK_VOLUME_FLAGS) &&
           m->max_queues >= 1 && m->max_queues <= RBLK_QUEUES_MAX && m->max_queue_depth >= 1 &&
           m->max_queue_depth <= RBLK_QUEUE_DEPTH_MAX && m->max_io >= 1 &&
           m->max_io <= RBLK_STAGING_MAX && m->max_inline <= RBLK_INLINE_MAX && m->max_reads >= 1;
}

int rblk_attach_reply_decode(struct rblk_attach_reply *m, const void *buf, size_t len)
{
    const struct wire_attach_reply *wire = buf;
    struct rblk_attach_reply out;

    if (!is_message(buf, len, RBLK_ATTACH | RBLK_REPLY, sizeof *wire) || len != sizeof *wire)
        return -EPROTO;
    memcpy(out.token, wire->token, sizeof out.token);
    memcpy(out.uuid, wire->uuid, sizeof out.uuid);
    out.size = get64(&wire->size);
    out.extent_size = get64(&wire->extent_size);
    out.write_verifier = get64(&wire->write_verifier);
    out.flags = get32(&wire->flags);
    out.max_queues = get32(&wire->max_queues);
    out.max_queue_depth = get32(&wire->max_queue_depth);
    out.max_io = get32(&wire->max_io);
    out.max_inline = get32(&wire->max_inline);
    out.max_reads = get32(&wire->max_reads);
    if (!attach_reply_valid(&out))
        return -EPROTO;
    *m = out;
    return 0;
}

/* -- extents ------------------------------------------------------------------------------- */

static bool extent_count_valid(uint32_t count)
{
    return count >= 1 && count <= RBLK_EXTENTS_PER_MESSAGE;
}

static bool extent_run_valid(uint64_t first, uint32_t count)
{
    return extent_count_valid(count) && first < RBLK_EXTENTS_MAX &&
           count <= RBLK_EXTENTS_MAX - first;
}

size_t rblk_extent_map_encode(void *buf, uint64_t tag, const struct rblk_extent_map *m)
{
    struct wire_extent_map *wire = buf;

    begin(wire, sizeof *wire, RBLK_EXTENT_MAP, tag);
    put64(&wire->first, m->first);
    put32(&wire->count, m->count);
    return sizeof *wire;
}

int rblk_extent_map_decode(struct rblk_extent_map *m, const void *buf, size_t len)
{
    const struct wire_extent_map *wire = buf;
    struct rblk_extent_map out;

    if (!is_message(buf, len, RBLK_EXTENT_MAP, sizeof *wire) || len != sizeof *wire ||
        !RESERVED_ZERO(wire, reserved28))
        return -EPROTO;
    out.first = get64(&wire->first);
    out.count = get32(&wire->count);
    if (!extent_run_valid(out.first, out.count))
        return -EPROTO;
    *m = out;
    return 0;
}

static void put_extent_entry(struct wire_extent_entry *wire, const struct rblk_extent_entry *entry)
{
    put64(&wire->addr, entry->addr);
    put64(&wire->length, entry->length);
    put32(&wire->rkey, entry->rkey);
}

static bool get_extent_entry(struct rblk_extent_entry *entry, const struct wire_extent_entry *wire)
{
    entry->addr = get64(&wire->addr);
    entry->length = get64(&wire->length);
    entry->rkey = get32(&wire->rkey);
    return range_valid(entry->addr, entry->length) && RESERVED_ZERO(wire, reserved20);
}

size_t rblk_extent_map_reply_encode(void *buf, uint64_t tag, const struct rblk_extent_map_reply *m)
{
    struct wire_extent_map_reply *wire = buf;
    uint32_t count = m->count < RBLK_EXTENTS_PER_MESSAGE ? m->count : RBLK_EXTENTS_PER_MESSAGE;
    size_t len = sizeof *wire + count * sizeof wire->entry[0];

    begin(wire, len, RBLK_EXTENT_MAP | RBLK_REPLY, tag);
    put64(&wire->first, m->first);
    put32(&wire->count, count);
    for (uint32_t i = 0; i < count; i++)
        put_extent_entry(&wire->entry[i], &m->entry[i]);
    return len;
}

int rblk_extent_map_reply_decode(struct rblk_extent_map_reply *m, const void *buf, size_t len)
{
    const struct wire_extent_map_reply *wire = buf;
    struct rblk_extent_map_reply out;

    if (!is_message(buf, len, RBLK_EXTENT_MAP | RBLK_REPLY, sizeof *wire))
        return -EPROTO;
    memset(&out, 0, sizeof out);
    out.first = get64(&wire->first);
    out.count = get32(&wire->count);
    if (!extent_run_valid(out.first, out.count) || !RESERVED_ZERO(wire, reserved28) ||
        len != sizeof *wire + out.count * sizeof wire->entry[0])
        return -EPROTO;
    for (uint32_t i = 0; i < out.count; i++)
        if (!get_extent_entry(&out.entry[i], &wire->entry[i]))
            return -EPROTO;
    *m = out;
    return 0;
}

size_t rblk_extent_release_encode(void *buf, uint64_t tag, const struct rblk_extent_release *m)
{
    struct wire_extent_release *wire = buf;
    uint32_t count = m->count < RBLK_EXTENTS_PER_MESSAGE ? m->count : RBLK_EXTENTS_PER_MESSAGE;
    size_t len = sizeof *wire + count * sizeof wire->index[0];

    begin(wire, len, RBLK_EXTENT_RELEASE, tag);
    put32(&wire->count, count);
    for (uint32_t i = 0; i < count; i++)
        put64(&wire->index[i], m->index[i]);
    return len;
}

int rblk_extent_release_decode(struct rblk_extent_release *m, const void *buf, size_t len)
{
    const struct wire_extent_release *wire = buf;
    struct rblk_extent_release out;

    if (!is_message(buf, len, RBLK_EXTENT_RELEASE, sizeof *wire))
        return -EPROTO;
    memset(&out, 0, sizeof out);
    out.count = get32(&wire->count);
    if (!extent_count_valid(out.count) || !RESERVED_ZERO(wire, reserved20) ||
        len != sizeof *wire + out.count * sizeof wire->index[0])
        return -EPROTO;
    for (uint32_t i = 0; i < out.count; i++) {
        out.index[i] = get64(&wire->index[i]);
        if (out.index[i] >= RBLK_EXTENTS_MAX)
            return -EPROTO;
    }
    *m = out;
    return 0;
}

size_t rblk_extent_recall_encode(void *buf, uint64_t tag, const struct rblk_extent_recall *m)
{
    struct wire_extent_recall *wire = buf;

    begin(wire, sizeof *wire, RBLK_EVENT_EXTENT_RECALL, tag);
    put32(&wire->count, m->count);
    return sizeof *wire;
}

int rblk_extent_recall_decode(struct rblk_extent_recall *m, const void *buf, size_t len)
{
    const struct wire_extent_recall *wire = buf;
    uint32_t count;

    if (!is_message(buf, len, RBLK_EVENT_EXTENT_RECALL, sizeof *wire) || len != sizeof *wire ||
        !RESERVED_ZERO(wire, reserved20))
        return -EPROTO;
    count = get32(&wire->count);
    if (count < 1 || count > RBLK_EXTENTS_MAX)
        return -EPROTO;
    m->count = count;
    return 0;
}

/* -- STATS --------------------------------------------------------------------------------- */

size_t rblk_stats_reply_encode(void *buf, uint64_t tag, const struct rblk_stats_reply *m)
{
    struct wire_stats_reply *wire = buf;

    begin(wire, sizeof *wire, RBLK_STATS | RBLK_REPLY, tag);
    put64(&wire->control_messages, m->control_messages);
    put64(&wire->io_messages, m->io_messages);
    put64(&wire->writes, m->writes);
    put64(&wire->write_bytes, m->write_bytes);
    put64(&wire->flushes, m->flushes);
    put64(&wire->fua_writes, m->fua_writes);
    put64(&wire->fdatasyncs, m->fdatasyncs);
    put64(&wire->errors, m->errors);
    put64(&wire->extents_mapped, m->extents_mapped);
    put64(&wire->extent_bytes, m->extent_bytes);
    put64(&wire->sessions, m->sessions);
    put64(&wire->queues, m->queues);
    put64(&wire->protocol_errors, m->protocol_errors);
    put64(&wire->uptime_ms, m->uptime_ms);
    return sizeof *wire;
}

int rblk_stats_reply_decode(struct rblk_stats_reply *m, const void *buf, size_t len)
{
    const struct wire_stats_reply *wire = buf;

    if (!is_message(buf, len, RBLK_STATS | RBLK_REPLY, sizeof *wire) || len != sizeof *wire)
        return -EPROTO;
    m->control_messages = get64(&wire->control_messages);
    m->io_messages = get64(&wire->io_messages);
    m->writes = get64(&wire->writes);
    m->write_bytes = get64(&wire->write_bytes);
    m->flushes = get64(&wire->flushes);
    m->fua_writes = get64(&wire->fua_writes);
    m->fdatasyncs = get64(&wire->fdatasyncs);
    m->errors = get64(&wire->errors);
    m->extents_mapped = get64(&wire->extents_mapped);
    m->extent_bytes = get64(&wire->extent_bytes);
    m->sessions = get64(&wire->sessions);
    m->queues = get64(&wire->queues);
    m->protocol_errors = get64(&wire->protocol_errors);
    m->uptime_ms = get64(&wire->uptime_ms);
    return 0;
}

/* -- messages of I/O queues ---------------------------------------------------------------- */

size_t rblk_command_encode(void *buf, const struct rblk_command *m)
{
    struct wire_command *wire = buf;

    memset(wire, 0, sizeof *wire);
    wire->opcode = m->opcode;
    wire->flags = m->flags;
    put16(&wire->slot, m->slot);
    put32(&wire->length, m->length);
    put64(&wire->offset, m->offset);
    put32(&wire->staging_offset, m->staging_offset);
    return sizeof *wire;
}

/* data_len: bytes of the message that follow the command. */
static bool write_valid(const struct rblk_command *m, size_t data_len)
{
    if (m->length == 0 || m->offset > INT64_MAX || m->length > INT64_MAX - m->offset)
        return false;
    if (m->flags & RBLK_CMD_INLINE)
        return m->staging_offset == 0 && m->length <= RBLK_INLINE_MAX && data_len == m->length;
    return m->length <= RBLK_STAGING_MAX && m->staging_offset <= RBLK_STAGING_MAX - m->length &&
           data_len == 0;
}

static bool flush_valid(const struct rblk_command *m, size_t data_len)
{
    return m->flags == 0 && m->length == 0 && m->offset == 0 && m->staging_offset == 0 &&
           data_len == 0;
}

static bool command_valid(const struct rblk_command *m, size_t data_len)
{
    if (m->flags & ~RBLK_CMD_FLAGS || m->slot >= RBLK_QUEUE_DEPTH_MAX)
        return false;
    switch (m->opcode) {
    case RBLK_OP_WRITE:
        return write_valid(m, data_len);
    case RBLK_OP_FLUSH:
        return flush_valid(m, data_len);
    default:
        return false;
    }
}

int rblk_command_decode(struct rblk_command *m, const void *buf, size_t len)
{
    const struct wire_command *wire = buf;
    struct rblk_command out;

    if (len < sizeof *wire || !RESERVED_ZERO(wire, reserved20))
        return -EPROTO;
    out.opcode = wire->opcode;
    out.flags = wire->flags;
    out.slot = get16(&wire->slot);
    out.length = get32(&wire->length);
    out.offset = get64(&wire->offset);
    out.staging_offset = get32(&wire->staging_offset);
    if (!command_valid(&out, len - sizeof *wire))
        return -EPROTO;
    *m = out;
    return 0;
}

size_t rblk_completion_encode(void *buf, const struct rblk_completion *m)
{
    struct wire_completion *wire = buf;

    memset(wire, 0, sizeof *wire);
    put16(&wire->slot, m->slot);
    put16(&wire->status, m->status);
    put64(&wire->write_verifier, m->write_verifier);
    return sizeof *wire;
}

int rblk_completion_decode(struct rblk_completion *m, const void *buf, size_t len)
{
    const struct wire_completion *wire = buf;
    struct rblk_completion out;

    if (len != sizeof *wire || !RESERVED_ZERO(wire, reserved4) || !RESERVED_ZERO(wire, reserved16))
        return -EPROTO;
    out.slot = get16(&wire->slot);
    out.status = get16(&wire->status);
    out.write_verifier = get64(&wire->write_verifier);
    if (out.slot >= RBLK_QUEUE_DEPTH_MAX || out.status > RBLK_STATUS_MAX)
        return -EPROTO;
    *m = out;
    return 0;
}
