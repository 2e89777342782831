/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_wire -- common/wire.c against byte vectors written by hand from common/PROTOCOL.md
 *
 * One table row per message: its bytes, and the host form they stand for with another value in
 * every field. All tests walk that table. The random test prints its seed and takes one in
 * $RBLK_TEST_SEED.
 */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/wire.h"
#include "random.h"
#include "suite.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define ROUNDS 200000 /* of the random test */

/* 16 bytes that count up from a first one: tokens and UUIDs. */
#define BYTES16(n)                                                                            \
    n, n + 1, n + 2, n + 3, n + 4, n + 5, n + 6, n + 7, n + 8, n + 9, n + 10, n + 11, n + 12, \
        n + 13, n + 14, n + 15
#define TOKEN BYTES16(0x10)
#define UUID_A BYTES16(0x20)
#define UUID_B BYTES16(0x40)

/* Bytes 0 to 15 of a control message of which length and tag fit into two bytes and one. */
#define HEADER(type, status, len, tag) \
    type, 0, status, 0, (len)&0xff, (len) >> 8, 0, 0, tag, 0, 0, 0, 0, 0, 0, 0xa1

#define TAG(n) (UINT64_C(0xa100000000000000) | (n))

union host {
    struct rblk_connect connect;
    struct rblk_accept accept;
    struct rblk_reject reject;
    struct rblk_header header;
    struct rblk_hello hello;
    struct rblk_hello_reply hello_reply;
    struct rblk_list list;
    struct rblk_list_reply list_reply;
    struct rblk_attach attach;
    struct rblk_attach_reply attach_reply;
    struct rblk_extent_map extent_map;
    struct rblk_extent_map_reply extent_map_reply;
    struct rblk_extent_release extent_release;
    struct rblk_extent_recall extent_recall;
    struct rblk_stats_reply stats_reply;
    struct rblk_command command;
    struct rblk_completion completion;
    char detail[RBLK_DETAIL_MAX + 1];
};

/* Wrappers give every codec the same shape. */
#define PLAIN(name)                                                           \
    static size_t encode_##name(void *buf, uint64_t tag, const union host *m) \
    {                                                                         \
        (void)tag;                                                            \
        return rblk_##name##_encode(buf, &m->name);                           \
    }                                                                         \
    static int decode_##name(union host *m, const void *buf, size_t len)      \
    {                                                                         \
        return rblk_##name##_decode(&m->name, buf, len);                      \
    }
#define TAGGED(name)                                                          \
    static size_t encode_##name(void *buf, uint64_t tag, const union host *m) \
    {                                                                         \
        return rblk_##name##_encode(buf, tag, &m->name);                      \
    }                                                                         \
    static int decode_##name(union host *m, const void *buf, size_t len)      \
    {                                                                         \
        return rblk_##name##_decode(&m->name, buf, len);                      \
    }
PLAIN(connect)
PLAIN(accept)
PLAIN(reject)
PLAIN(header)
PLAIN(command)
PLAIN(completion)
TAGGED(hello)
TAGGED(hello_reply)
TAGGED(list)
TAGGED(list_reply)
TAGGED(attach)
TAGGED(attach_reply)
TAGGED(extent_map)
TAGGED(extent_map_reply)
TAGGED(extent_release)
TAGGED(extent_recall)
TAGGED(stats_reply)

static size_t encode_ping(void *buf, uint64_t tag, const union host *m)
{
    (void)m;
    return rblk_empty_encode(buf, RBLK_PING, tag);
}

static int decode_empty(union host *m, const void *buf, size_t len)
{
    (void)m;
    return rblk_empty_decode(buf, len);
}

static size_t encode_error(void *buf, uint64_t tag, const union host *m)
{
    return rblk_error_encode(buf, RBLK_ATTACH, tag, RBLK_STATUS_BUSY, m->detail);
}

static int decode_error(union host *m, const void *buf, size_t len)
{
    return rblk_error_decode(m->detail, buf, len);
}

/* -- the vectors --------------------------------------------------------------------------- */

/* One line for a field, or for a few. */
/* clang-format off */
static const uint8_t connect_control_bytes[] = {
    'R', 'B', 'l', 'k', 1, 0, 1, 0,
    [31] = 0,
};
static const uint8_t connect_io_bytes[] = {
    'R', 'B', 'l', 'k', 1, 0, 2, 0,
    63, 0, 0x80, 0, 0, 0, 0, 0, /* queue, depth */
    TOKEN,
};
static const uint8_t accept_control_bytes[] = {
    'R', 'B', 'l', 'k', 1, 0, 1, 0,
    [31] = 0,
};
static const uint8_t accept_io_bytes[] = {
    'R', 'B', 'l', 'k', 1, 0, 2, 0,
    0x00, 0x01, 0, 0, /* depth */
    0x44, 0x33, 0x22, 0x11, /* rkey */
    0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, /* address */
    0, 0, 3, 0, 0, 0, 0, 0, /* length */
};
static const uint8_t reject_bytes[] = {
    'R', 'B', 'l', 'k', 7, 0, 2, 0,
    0, 0, 0, 0, 0, 0, 0, 0,
};
static const uint8_t ping_bytes[] = {
    HEADER(0x07, 0, 16, 1),
};
static const uint8_t header_bytes[] = {
    HEADER(0x83, 4, 16, 2),
};
static const uint8_t error_bytes[] = {
    HEADER(0x83, 4, 21, 3), 't', 'a', 'k', 'e', 'n',
};
static const uint8_t hello_bytes[] = {
    HEADER(0x01, 0, 96, 4),
    1, 0, 5, 0, /* versions */
    0, 0, 0, 0, /* features */
    0x88, 0x13, 0, 0, 0, 0, 0, 0, /* keep-alive */
    'h', 'o', 's', 't', ' ', '1', '2',
    [95] = 0,
};
static const uint8_t hello_reply_bytes[] = {
    HEADER(0x81, 0, 112, 5),
    1, 0, 0, 0, 0, 0, 0, 0, /* version, authentication, features */
    0xc0, 0x27, 9, 0, 0, 0, 0, 0, /* keep-alive */
    UUID_A,
    't', 'g', 't', '1',
    [111] = 0,
};
static const uint8_t list_bytes[] = {
    HEADER(0x02, 0, 24, 6),
    0x0d, 0x0c, 0x0b, 0x0a, 0, 0, 0, 0,
};
static const uint8_t list_reply_bytes[] = {
    HEADER(0x82, 0, 224, 7),
    9, 0, 0, 0, 7, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, /* total, first, count */
    1, 0x10, 0, 0, 0, 0, 0, 0, /* 4097 bytes */
    1, 0, 0, 0, 3, 0, 0, 0, /* flags, sessions */
    UUID_A,
    'd', 'i', 's', 'k',
    [128] = 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, /* the largest size */
    6, 0, 0, 0, 1, 2, 3, 4,
    UUID_B,
    'B', '-', '2', '.', 'i', 'm', 'g',
    [223] = 0,
};
static const uint8_t list_end_bytes[] = {
    HEADER(0x82, 0, 32, 8),
    2, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
};
static const uint8_t attach_bytes[] = {
    HEADER(0x03, 0, 88, 9),
    2, 0, 0, 0, 0, 0, 0, 0, /* mode */
    'd', 'i', 's', 'k',
    [87] = 0,
};
static const uint8_t attach_reply_bytes[] = {
    HEADER(0x83, 0, 96, 10),
    TOKEN,
    UUID_A,
    1, 0, 0, 4, 0, 0, 0, 0, /* size: 64 MiB and a byte */
    0, 0, 0, 4, 0, 0, 0, 0, /* extent size: 64 MiB */
    0xef, 0xcd, 0xab, 0x89, 0x67, 0x45, 0x23, 0x01, /* write verifier */
    4, 0, 0, 0, 64, 0, 0, 0, 0, 1, 0, 0, /* flags, queues, depth */
    0, 0, 0x10, 0, 0, 0x20, 0, 0, 0x80, 0, 0, 0, /* I/O, in-message data, reads */
};
static const uint8_t extent_map_bytes[] = {
    HEADER(0x05, 0, 32, 11),
    3, 2, 1, 0, 0, 0, 0, 0, /* first */
    0x80, 0, 0, 0, 0, 0, 0, 0, /* count */
};
static const uint8_t extent_map_reply_bytes[] = {
    HEADER(0x85, 0, 80, 12),
    3, 2, 1, 0, 0, 0, 0, 0, /* first */
    2, 0, 0, 0, 0, 0, 0, 0, /* count */
    0x00, 0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, /* address */
    0, 0, 0, 4, 0, 0, 0, 0, /* length */
    0xdd, 0xcc, 0xbb, 0xaa, 0, 0, 0, 0, /* rkey */
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, /* the last address there is */
    1, 0, 0, 0, 0, 0, 0, 0,
    1, 0, 0, 0, 0, 0, 0, 0,
};
static const uint8_t extent_release_bytes[] = {
    HEADER(0x06, 0, 40, 13),
    2, 0, 0, 0, 0, 0, 0, 0, /* count */
    0xff, 0xff, 0xff, 3, 0, 0, 0, 0, /* the last index there is */
    5, 0, 0, 0, 0, 0, 0, 0,
};
static const uint8_t extent_recall_bytes[] = {
    HEADER(0x50, 0, 24, 14),
    0, 0, 0, 4, 0, 0, 0, 0, /* count */
};
static const uint8_t stats_reply_bytes[] = {
    HEADER(0x88, 0, 128, 15),
    1, 0, 0, 0, 0, 0, 0, 0x51, 2, 0, 0, 0, 0, 0, 0, 0x52,
    3, 0, 0, 0, 0, 0, 0, 0x53, 4, 0, 0, 0, 0, 0, 0, 0x54,
    5, 0, 0, 0, 0, 0, 0, 0x55, 6, 0, 0, 0, 0, 0, 0, 0x56,
    7, 0, 0, 0, 0, 0, 0, 0x57, 8, 0, 0, 0, 0, 0, 0, 0x58,
    9, 0, 0, 0, 0, 0, 0, 0x59, 10, 0, 0, 0, 0, 0, 0, 0x5a,
    11, 0, 0, 0, 0, 0, 0, 0x5b, 12, 0, 0, 0, 0, 0, 0, 0x5c,
    13, 0, 0, 0, 0, 0, 0, 0x5d, 14, 0, 0, 0, 0, 0, 0, 0x5e,
};
static const uint8_t write_staged_bytes[] = {
    1, 1, 0xff, 0, /* WRITE, FUA, slot */
    0, 0, 0x10, 0, /* length: 1 MiB */
    0x99, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, /* offset */
    0, 0, 0xf0, 3, /* staging offset: 63 MiB */
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
};
static const uint8_t write_inline_bytes[] = {
    1, 2, 7, 0, /* WRITE, in-message data, slot */
    3, 0, 0, 0, /* length */
    1, 0x10, 0, 0, 0, 0, 0, 0, /* offset */
    [32] = 'x', 'y', 'z',
};
static const uint8_t flush_bytes[] = {
    2, 0, 9, 0,
    [31] = 0,
};
static const uint8_t completion_bytes[] = {
    0xff, 0, 16, 0, 0, 0, 0, 0, /* slot, status */
    1, 2, 3, 4, 5, 6, 7, 8, /* write verifier */
    0, 0, 0, 0, 0, 0, 0, 0,
};
/* clang-format on */

/* How the bytes after the layout are treated. */
enum tail {
    TAIL_NONE,    /* a byte more is malformed */
    TAIL_PADDING, /* zeros may follow, as on InfiniBand */
    TAIL_TEXT,    /* the length is free: every shorter message is a shorter text */
    TAIL_HEADER,  /* the header alone is decoded */
};

static const struct vector {
    const char *name;
    const uint8_t *bytes;
    size_t len;
    size_t (*encode)(void *buf, uint64_t tag, const union host *m);
    int (*decode)(union host *m, const void *buf, size_t len);
    bool control; /* has the header of control messages: bytes 4 to 7 are the length */
    enum tail tail;
    uint64_t tag;
    size_t encoded_len; /* 0: len; else what follows is not the encoder's business */
    union host host;
} vectors[] = {
#define BYTES(name) #name, name##_bytes, sizeof name##_bytes
#define CODEC(name) encode_##name, decode_##name
    {BYTES(connect_control), CODEC(connect), false, TAIL_PADDING, 0, 0,
     .host.connect = {.version = 1, .kind = RBLK_KIND_CONTROL}},
    {BYTES(connect_io), CODEC(connect), false, TAIL_PADDING, 0, 0,
     .host.connect = {1, RBLK_KIND_IO, 63, 128, {TOKEN}}},
    {BYTES(accept_control), CODEC(accept), false, TAIL_PADDING, 0, 0,
     .host.accept = {.version = 1, .kind = RBLK_KIND_CONTROL}},
    {BYTES(accept_io), CODEC(accept), false, TAIL_PADDING, 0, 0,
     .host.accept = {1, RBLK_KIND_IO, 256, 0x11223344, 0x1122334455667788, 3 * 65536}},
    {BYTES(reject), CODEC(reject), false, TAIL_PADDING, 0, 0,
     .host.reject = {7, RBLK_STATUS_VERSION}},
    {BYTES(header), CODEC(header), true, TAIL_HEADER, TAG(2), 0,
     .host.header = {RBLK_ATTACH | RBLK_REPLY, RBLK_STATUS_BUSY, 16, TAG(2)}},
    {BYTES(ping), encode_ping, decode_empty, true, TAIL_NONE, TAG(1), 0, .host.list = {0}},
    {BYTES(error), CODEC(error), true, TAIL_TEXT, TAG(3), 0, .host.detail = "taken"},
    {BYTES(hello), CODEC(hello), true, TAIL_NONE, TAG(4), 0,
     .host.hello = {1, 5, 0, 5000, "host 12"}},
    {BYTES(hello_reply), CODEC(hello_reply), true, TAIL_NONE, TAG(5), 0,
     .host.hello_reply = {1, 0, 0, 600000, {UUID_A}, "tgt1"}},
    {BYTES(list), CODEC(list), true, TAIL_NONE, TAG(6), 0, .host.list = {0x0a0b0c0d}},
    {BYTES(list_reply), CODEC(list_reply), true, TAIL_NONE, TAG(7), 0,
     .host.list_reply = {9,
                         7,
                         2,
                         {{4097, RBLK_VOLUME_RO, 3, {UUID_A}, "disk"},
                          {INT64_MAX,
                           RBLK_VOLUME_FAILED | RBLK_VOLUME_ATTACHED,
                           0x04030201,
                           {UUID_B},
                           "B-2.img"}}}},
    {BYTES(list_end), CODEC(list_reply), true, TAIL_NONE, TAG(8), 0,
     .host.list_reply = {.total = 2, .first = 2}},
    {BYTES(attach), CODEC(attach), true, TAIL_NONE, TAG(9), 0,
     .host.attach = {RBLK_ATTACH_RW, "disk"}},
    {BYTES(attach_reply), CODEC(attach_reply), true, TAIL_NONE, TAG(10), 0,
     .host.attach_reply = {{TOKEN},
                           {UUID_A},
                           (64u << 20) + 1,
                           64u << 20,
                           0x0123456789abcdef,
                           RBLK_VOLUME_ATTACHED,
                           64,
                           256,
                           1u << 20,
                           8192,
                           128}},
    {BYTES(extent_map), CODEC(extent_map), true, TAIL_NONE, TAG(11), 0,
     .host.extent_map = {0x010203, 128}},
    {BYTES(extent_map_reply), CODEC(extent_map_reply), true, TAIL_NONE, TAG(12), 0,
     .host.extent_map_reply = {0x010203,
                               2,
                               {{0x7060504030201000, 64u << 20, 0xaabbccdd}, {UINT64_MAX, 1, 1}}}},
    {BYTES(extent_release), CODEC(extent_release), true, TAIL_NONE, TAG(13), 0,
     .host.extent_release = {2, {RBLK_EXTENTS_MAX - 1, 5}}},
    {BYTES(extent_recall), CODEC(extent_recall), true, TAIL_NONE, TAG(14), 0,
     .host.extent_recall = {RBLK_EXTENTS_MAX}},
#define STAT(n) (UINT64_C(n) | (UINT64_C(0x50) + (n)) << 56)
    {BYTES(stats_reply), CODEC(stats_reply), true, TAIL_NONE, TAG(15), 0,
     .host.stats_reply = {STAT(1), STAT(2), STAT(3), STAT(4), STAT(5), STAT(6), STAT(7), STAT(8),
                          STAT(9), STAT(10), STAT(11), STAT(12), STAT(13), STAT(14)}},
    {BYTES(write_staged), CODEC(command), false, TAIL_NONE, 0, 0,
     .host.command = {RBLK_OP_WRITE, RBLK_CMD_FUA, 255, 1u << 20, 0x2233445566778899, 63u << 20}},
    {BYTES(write_inline), CODEC(command), false, TAIL_NONE, 0, RBLK_COMMAND_LEN,
     .host.command = {RBLK_OP_WRITE, RBLK_CMD_INLINE, 7, 3, 4097, 0}},
    {BYTES(flush), CODEC(command), false, TAIL_NONE, 0, 0,
     .host.command = {RBLK_OP_FLUSH, 0, 9, 0, 0, 0}},
    {BYTES(completion), CODEC(completion), false, TAIL_NONE, 0, 0,
     .host.completion = {255, RBLK_STATUS_STATE, 0x0807060504030201}},
};

static const struct vector *find_vector(const char *name)
{
    for (size_t i = 0; i < COUNT(vectors); i++)
        if (strcmp(vectors[i].name, name) == 0)
            return &vectors[i];
    ck_abort_msg("no vector %s", name);
}

/* -- helpers ------------------------------------------------------------------------------- */

/* Decodes from memory of exactly len bytes, so that a sanitizer sees a read beyond it, and checks
 * that a failure leaves the result alone. */
static int decode_exactly(const struct vector *v, union host *out, const uint8_t *bytes, size_t len)
{
    static union host untouched;
    uint8_t *copy = malloc(len ? len : 1);
    int rc;

    ck_assert_ptr_nonnull(copy);
    memcpy(copy, bytes, len);
    memset(out, 0xa5, sizeof *out);
    memset(&untouched, 0xa5, sizeof untouched);
    rc = v->decode(out, copy, len);
    if (rc < 0)
        ck_assert_msg(memcmp(out, &untouched, sizeof untouched) == 0,
                      "%s: a failed decode wrote its result", v->name);
    free(copy);
    return rc;
}

static void put_length(const struct vector *v, uint8_t *bytes, size_t len)
{
    if (v->control && len >= 8) {
        bytes[4] = (uint8_t)len;
        bytes[5] = (uint8_t)(len >> 8);
    }
}

static void put_number(uint8_t *bytes, size_t offset, unsigned int width, uint64_t value)
{
    for (unsigned int i = 0; i < width; i++)
        bytes[offset + i] = (uint8_t)(value >> (8 * i));
}

/* -- tests that walk the table ------------------------------------------------------------- */

START_TEST(encodes_to_the_bytes)
{
    const struct vector *v = &vectors[_i];
    size_t len = v->encoded_len ? v->encoded_len : v->len;
    uint8_t buf[RBLK_CONTROL_MAX];

    memset(buf, 0x5a, sizeof buf);
    ck_assert_msg(v->encode(buf, v->tag, &v->host) == len, "%s: length", v->name);
    for (size_t i = 0; i < len; i++)
        ck_assert_msg(buf[i] == v->bytes[i], "%s: byte %zu is 0x%02x, expected 0x%02x", v->name, i,
                      buf[i], v->bytes[i]);
    ck_assert_msg(buf[len] == 0x5a, "%s: wrote beyond its length", v->name);
}
END_TEST

/* Every field has a value of its own and encoding is checked above, so encoding again is comparing
 * field by field. */
START_TEST(decodes_from_the_bytes)
{
    const struct vector *v = &vectors[_i];
    size_t len = v->encoded_len ? v->encoded_len : v->len;
    uint8_t buf[RBLK_CONTROL_MAX];
    union host out;

    ck_assert_msg(decode_exactly(v, &out, v->bytes, v->len) == 0, "%s", v->name);
    ck_assert_uint_eq(v->encode(buf, v->tag, &out), len);
    ck_assert_msg(memcmp(buf, v->bytes, len) == 0, "%s: decoded to something else", v->name);
}
END_TEST

START_TEST(every_truncation_is_malformed)
{
    const struct vector *v = &vectors[_i];
    uint8_t bytes[RBLK_CONTROL_MAX];
    union host out;

    for (size_t len = 0; len < v->len; len++) {
        memcpy(bytes, v->bytes, v->len);
        ck_assert_msg(decode_exactly(v, &out, bytes, len) == -EPROTO, "%s cut to %zu bytes",
                      v->name, len);
        /* The same with a header that agrees. A text may be of any length. */
        put_length(v, bytes, len);
        if (v->tail != TAIL_TEXT || len < RBLK_HEADER_LEN)
            ck_assert_msg(decode_exactly(v, &out, bytes, len) == -EPROTO,
                          "%s cut to %zu bytes, length field too", v->name, len);
        else
            ck_assert_int_eq(decode_exactly(v, &out, bytes, len), 0);
    }
}
END_TEST

START_TEST(surplus_bytes_are_malformed)
{
    const struct vector *v = &vectors[_i];
    uint8_t bytes[RBLK_CONTROL_MAX] = {0};
    union host out;

    memcpy(bytes, v->bytes, v->len);
    for (size_t len = v->len + 1; len <= RBLK_DETAIL_MAX; len += 1 + len / 8) {
        int expected = v->tail == TAIL_PADDING ? 0 : -EPROTO;

        ck_assert_msg(decode_exactly(v, &out, bytes, len) == expected, "%s with %zu bytes", v->name,
                      len);
        if (!v->control || v->tail == TAIL_TEXT || v->tail == TAIL_HEADER)
            continue;
        put_length(v, bytes, len);
        ck_assert_msg(decode_exactly(v, &out, bytes, len) == -EPROTO,
                      "%s with %zu bytes, length field too", v->name, len);
        put_length(v, bytes, v->len);
    }
    if (v->tail == TAIL_PADDING)
        for (size_t i = v->len; i < RBLK_PRIVATE_DATA_MAX; i++) {
            bytes[i] = 1;
            ck_assert_msg(decode_exactly(v, &out, bytes, RBLK_PRIVATE_DATA_MAX) == -EPROTO,
                          "%s with padding byte %zu set", v->name, i);
            bytes[i] = 0;
        }
}
END_TEST

/* -- reserved bytes ------------------------------------------------------------------------ */

static const struct {
    const char *vector;
    size_t first, last;
} reserved[] = {
    {"connect_control", 7, 7},
    {"connect_control", 12, 15},
    {"connect_io", 7, 7},
    {"connect_io", 12, 15},
    {"accept_control", 7, 7},
    {"accept_control", 10, 11},
    {"accept_control", 28, 31},
    {"accept_io", 7, 7},
    {"accept_io", 10, 11},
    {"accept_io", 28, 31},
    {"reject", 8, 15},
    {"header", 1, 1},
    {"ping", 1, 1},
    {"error", 1, 1},
    {"hello", 1, 1},
    {"hello", 28, 31},
    {"hello", 40, 95}, /* the padding of the text, after what might be one byte more of it */
    {"hello_reply", 1, 1},
    {"hello_reply", 28, 31},
    {"hello_reply", 53, 111},
    {"list", 1, 1},
    {"list", 20, 23},
    {"list_reply", 1, 1},
    {"list_reply", 28, 31},
    {"list_reply", 69, 127},
    {"list_reply", 168, 223},
    {"attach", 1, 1},
    {"attach", 17, 23},
    {"attach", 29, 87},
    {"attach_reply", 1, 1},
    {"extent_map", 1, 1},
    {"extent_map", 28, 31},
    {"extent_map_reply", 1, 1},
    {"extent_map_reply", 28, 31},
    {"extent_map_reply", 52, 55},
    {"extent_map_reply", 76, 79},
    {"extent_release", 1, 1},
    {"extent_release", 20, 23},
    {"extent_recall", 1, 1},
    {"extent_recall", 20, 23},
    {"stats_reply", 1, 1},
    {"write_staged", 20, 31},
    {"write_inline", 16, 31}, /* staging_offset too */
    {"flush", 4, 31},         /* everything but opcode, flags and slot */
    {"flush", 1, 1},
    {"completion", 4, 7},
    {"completion", 16, 23},
};

START_TEST(every_reserved_bit_must_be_zero)
{
    const struct vector *v = find_vector(reserved[_i].vector);
    uint8_t bytes[RBLK_CONTROL_MAX];
    union host out;

    memcpy(bytes, v->bytes, v->len);
    for (size_t offset = reserved[_i].first; offset <= reserved[_i].last; offset++)
        for (unsigned int bit = 0; bit < 8; bit++) {
            ck_assert_msg(bytes[offset] == 0, "%s: byte %zu is not reserved", v->name, offset);
            bytes[offset] = (uint8_t)(1u << bit);
            ck_assert_msg(decode_exactly(v, &out, bytes, v->len) == -EPROTO,
                          "%s: bit %u of byte %zu", v->name, bit, offset);
            bytes[offset] = 0;
        }
}
END_TEST

/* -- limits: the last good and the first bad value of every field -------------------------- */

static const struct {
    const char *vector;
    size_t offset;
    unsigned int width;
    uint64_t value;
    int expected;
} limits[] = {
    {"connect_io", 0, 4, 0x6b6c4252, 0},
    {"connect_io", 0, 4, 0x52426c6b, -EPROTO}, /* the other byte order */
    {"connect_io", 0, 4, 0, -EPROTO},
    {"connect_io", 4, 2, 0, -EPROTONOSUPPORT},
    {"connect_io", 4, 2, 2, -EPROTONOSUPPORT},
    {"connect_io", 4, 2, 0x0101, -EPROTONOSUPPORT},
    {"connect_io", 6, 1, 0, -EPROTO},
    {"connect_io", 6, 1, 1, -EPROTO}, /* control, but with a queue */
    {"connect_io", 6, 1, 3, -EPROTO},
    {"connect_io", 8, 2, 0, 0},
    {"connect_io", 8, 2, 64, -EPROTO},
    {"connect_io", 8, 2, 0xffff, -EPROTO},
    {"connect_io", 10, 2, 0, -EPROTO},
    {"connect_io", 10, 2, 1, 0},
    {"connect_io", 10, 2, 256, 0},
    {"connect_io", 10, 2, 257, -EPROTO},
    {"connect_control", 6, 1, 2, -EPROTO}, /* I/O, but without a queue and a token */
    {"connect_control", 8, 2, 1, -EPROTO},
    {"connect_control", 10, 2, 1, -EPROTO},
    {"connect_control", 16, 1, 1, -EPROTO},
    {"connect_control", 31, 1, 1, -EPROTO},
    {"accept_io", 0, 4, 0x6b6c4253, -EPROTO},
    {"accept_io", 4, 2, 2, -EPROTONOSUPPORT},
    {"accept_io", 6, 1, 0, -EPROTO},
    {"accept_io", 6, 1, 1, -EPROTO},
    {"accept_io", 6, 1, 3, -EPROTO},
    {"accept_io", 8, 2, 0, -EPROTO},
    {"accept_io", 8, 2, 1, 0},
    {"accept_io", 8, 2, 257, -EPROTO},
    {"accept_io", 16, 8, UINT64_MAX, -EPROTO}, /* wraps around */
    {"accept_io", 16, 8, UINT64_MAX - 3 * 65536 + 1, 0},
    {"accept_io", 16, 8, UINT64_MAX - 3 * 65536 + 2, -EPROTO},
    {"accept_io", 24, 4, 0, -EPROTO}, /* no staging memory, but an address */
    {"accept_io", 24, 4, 65536, 0},
    {"accept_io", 24, 4, 65537, -EPROTO},
    {"accept_io", 24, 4, 64u << 20, 0},
    {"accept_io", 24, 4, (64u << 20) + 65536, -EPROTO},
    {"accept_io", 24, 4, 0xffff0000, -EPROTO},
    {"accept_control", 8, 2, 1, -EPROTO},
    {"accept_control", 12, 4, 1, -EPROTO},
    {"accept_control", 16, 8, 1, -EPROTO},
    {"accept_control", 24, 4, 65536, -EPROTO},
    {"reject", 0, 4, 0, -EPROTO},
    {"reject", 4, 2, 0, -EPROTO},
    {"reject", 4, 2, 0xffff, 0},
    {"reject", 6, 2, RBLK_STATUS_OK, -EPROTO},
    {"reject", 6, 2, RBLK_STATUS_MALFORMED, 0},
    {"reject", 6, 2, RBLK_STATUS_MAX, 0},
    {"reject", 6, 2, RBLK_STATUS_MAX + 1, -EPROTO},
    {"header", 0, 1, 0x00, -EPROTO},
    {"header", 0, 1, 0x03, -EPROTO}, /* a request with a status */
    {"header", 0, 1, 0x80, -EPROTO},
    {"header", 0, 1, 0x81, 0},
    {"header", 0, 1, 0x88, 0},
    {"header", 0, 1, 0x89, -EPROTO},
    {"header", 0, 1, 0xc0, -EPROTO}, /* replies to events */
    {"header", 0, 1, 0xd0, -EPROTO},
    {"header", 0, 1, 0xff, -EPROTO},
    {"header", 2, 2, RBLK_STATUS_MAX, 0},
    {"header", 2, 2, RBLK_STATUS_MAX + 1, -EPROTO},
    {"header", 2, 2, 0x0400, -EPROTO},
    {"header", 4, 4, 15, -EPROTO},
    {"header", 4, 4, 17, -EPROTO},
    {"header", 4, 4, 0x00010010, -EPROTO},
    {"ping", 0, 1, 0x04, 0},
    {"ping", 0, 1, 0x08, 0},
    {"ping", 0, 1, 0x09, -EPROTO},
    {"ping", 0, 1, 0x40, 0},
    {"ping", 0, 1, 0x41, -EPROTO},
    {"ping", 0, 1, 0x50, -EPROTO}, /* has a body */
    {"ping", 0, 1, 0x51, 0},
    {"ping", 0, 1, 0x52, -EPROTO},
    {"ping", 0, 1, 0x84, 0},
    {"ping", 0, 1, 0x86, 0},
    {"ping", 0, 1, 0x87, 0},
    {"ping", 0, 1, 0x01, -EPROTO},
    {"ping", 0, 1, 0x88, -EPROTO},
    {"ping", 2, 2, 1, -EPROTO},
    {"error", 0, 1, 0x03, -EPROTO},
    {"error", 2, 2, 0, -EPROTO},
    {"hello", 0, 1, 0x02, -EPROTO},
    {"hello", 16, 2, 0, -EPROTO},
    {"hello", 16, 2, 2, -EPROTONOSUPPORT}, /* 2 to 5 */
    {"hello", 16, 2, 5, -EPROTONOSUPPORT},
    {"hello", 16, 2, 6, -EPROTO}, /* 6 to 5 */
    {"hello", 18, 2, 1, 0},
    {"hello", 18, 2, 0, -EPROTO},
    {"hello", 18, 2, 0xffff, 0},
    {"hello", 20, 4, 1, -EPROTO},
    {"hello", 20, 4, 0x80000000, -EPROTO},
    {"hello", 24, 4, 99, -EPROTO},
    {"hello", 24, 4, 100, 0},
    {"hello", 24, 4, 600000, 0},
    {"hello", 24, 4, 600001, -EPROTO},
    {"hello", 32, 1, 0, -EPROTO},    /* begins with the end */
    {"hello", 32, 1, 0x1f, -EPROTO}, /* control byte */
    {"hello", 32, 1, 0x7f, -EPROTO},
    {"hello", 32, 1, 0x80, -EPROTO},
    {"hello", 32, 1, 0x20, 0},
    {"hello", 32, 1, 0x7e, 0},
    {"hello_reply", 16, 2, 0, -EPROTONOSUPPORT},
    {"hello_reply", 16, 2, 2, -EPROTONOSUPPORT},
    {"hello_reply", 18, 2, 1, -EPROTONOSUPPORT},
    {"hello_reply", 20, 4, 1, -EPROTO},
    {"hello_reply", 24, 4, 99, -EPROTO},
    {"hello_reply", 24, 4, 100, 0},
    {"hello_reply", 24, 4, 600001, -EPROTO},
    {"hello_reply", 48, 1, 0, -EPROTO},
    {"hello_reply", 48, 1, 0x1b, -EPROTO},
    {"list", 16, 4, UINT32_MAX, 0},
    {"list_reply", 16, 4, 8, -EPROTO}, /* entries 7 and 8 of 8 */
    {"list_reply", 16, 4, UINT32_MAX, 0},
    {"list_reply", 20, 4, 8, -EPROTO},
    {"list_reply", 20, 4, 9, -EPROTO},
    {"list_reply", 20, 4, UINT32_MAX, -EPROTO}, /* first + count wraps around */
    {"list_reply", 24, 4, 0, -EPROTO},
    {"list_reply", 24, 4, 1, -EPROTO},
    {"list_reply", 24, 4, 3, -EPROTO},
    {"list_reply", 24, 4, 41, -EPROTO},
    {"list_reply", 24, 4, 0x80000002, -EPROTO},
    {"list_reply", 32, 8, 0, -EPROTO},
    {"list_reply", 32, 8, 1, 0},
    {"list_reply", 32, 8, UINT64_C(1) << 63, -EPROTO},
    {"list_reply", 40, 4, 7, 0},
    {"list_reply", 40, 4, 8, -EPROTO},
    {"list_reply", 64, 1, '.', -EPROTO},
    {"list_reply", 64, 1, '-', -EPROTO},
    {"list_reply", 65, 1, '/', -EPROTO},
    {"list_reply", 65, 1, ' ', -EPROTO},
    {"list_reply", 64, 1, 0, -EPROTO},
    {"list_end", 16, 4, 3, -EPROTO}, /* no entries, but the list goes on */
    {"list_end", 16, 4, 1, 0},
    {"attach", 16, 1, 0, -EPROTO},
    {"attach", 16, 1, 1, 0},
    {"attach", 16, 1, 3, 0},
    {"attach", 16, 1, 4, -EPROTO},
    {"attach", 24, 1, '.', -EPROTO},
    {"attach", 24, 1, '-', -EPROTO},
    {"attach", 25, 1, '/', -EPROTO},
    {"attach", 24, 1, 0, -EPROTO},
    {"attach_reply", 48, 8, 0, -EPROTO},
    {"attach_reply", 48, 8, 1, 0},
    {"attach_reply", 48, 8, UINT64_C(1) << 63, -EPROTO},
    {"attach_reply", 48, 8, INT64_MAX, -EPROTO},               /* 2^37 extents */
    {"attach_reply", 48, 8, UINT64_C(1) << 52, 0},             /* 2^26 extents */
    {"attach_reply", 48, 8, (UINT64_C(1) << 52) + 1, -EPROTO}, /* one more */
    {"attach_reply", 56, 8, 0, -EPROTO},
    {"attach_reply", 56, 8, 2048, -EPROTO},
    {"attach_reply", 56, 8, 4096, 0},
    {"attach_reply", 56, 8, 4097, -EPROTO},
    {"attach_reply", 56, 8, 12288, -EPROTO},
    {"attach_reply", 56, 8, UINT64_C(1) << 63, 0},
    {"attach_reply", 64, 8, 0, 0},
    {"attach_reply", 72, 4, 7, 0},
    {"attach_reply", 72, 4, 8, -EPROTO},
    {"attach_reply", 76, 4, 0, -EPROTO},
    {"attach_reply", 76, 4, 1, 0},
    {"attach_reply", 76, 4, 65, -EPROTO},
    {"attach_reply", 80, 4, 0, -EPROTO},
    {"attach_reply", 80, 4, 257, -EPROTO},
    {"attach_reply", 84, 4, 0, -EPROTO},
    {"attach_reply", 84, 4, 1, 0},
    {"attach_reply", 84, 4, 64u << 20, 0},
    {"attach_reply", 84, 4, (64u << 20) + 1, -EPROTO},
    {"attach_reply", 88, 4, 0, 0},
    {"attach_reply", 88, 4, 65536, 0},
    {"attach_reply", 88, 4, 65537, -EPROTO},
    {"attach_reply", 92, 4, 0, -EPROTO},
    {"attach_reply", 92, 4, UINT32_MAX, 0},
    {"extent_map", 16, 8, 0, 0},
    {"extent_map", 16, 8, RBLK_EXTENTS_MAX - 128, 0},
    {"extent_map", 16, 8, RBLK_EXTENTS_MAX - 127, -EPROTO},
    {"extent_map", 16, 8, RBLK_EXTENTS_MAX, -EPROTO},
    {"extent_map", 16, 8, UINT64_MAX, -EPROTO},
    {"extent_map", 24, 4, 0, -EPROTO},
    {"extent_map", 24, 4, 1, 0},
    {"extent_map", 24, 4, 129, -EPROTO},
    {"extent_map", 24, 4, UINT32_MAX, -EPROTO},
    {"extent_map_reply", 16, 8, RBLK_EXTENTS_MAX - 2, 0},
    {"extent_map_reply", 16, 8, RBLK_EXTENTS_MAX - 1, -EPROTO},
    {"extent_map_reply", 24, 4, 0, -EPROTO},
    {"extent_map_reply", 24, 4, 1, -EPROTO},
    {"extent_map_reply", 24, 4, 3, -EPROTO},
    {"extent_map_reply", 24, 4, 129, -EPROTO},
    {"extent_map_reply", 40, 8, 0, -EPROTO},
    {"extent_map_reply", 40, 8, UINT64_MAX, -EPROTO}, /* wraps around */
    {"extent_map_reply", 64, 8, 2, -EPROTO},
    {"extent_release", 16, 4, 0, -EPROTO},
    {"extent_release", 16, 4, 1, -EPROTO},
    {"extent_release", 16, 4, 3, -EPROTO},
    {"extent_release", 16, 4, 129, -EPROTO},
    {"extent_release", 24, 8, RBLK_EXTENTS_MAX, -EPROTO},
    {"extent_release", 32, 8, UINT64_MAX, -EPROTO},
    {"extent_recall", 16, 4, 0, -EPROTO},
    {"extent_recall", 16, 4, 1, 0},
    {"extent_recall", 16, 4, RBLK_EXTENTS_MAX + 1, -EPROTO},
    {"write_staged", 0, 1, 0, -EPROTO},
    {"write_staged", 0, 1, 2, -EPROTO}, /* FLUSH with a range */
    {"write_staged", 0, 1, 3, -EPROTO},
    {"write_staged", 0, 1, 0xff, -EPROTO},
    {"write_staged", 1, 1, 0, 0},
    {"write_staged", 1, 1, 2, -EPROTO}, /* inline without the data */
    {"write_staged", 1, 1, 4, -EPROTO},
    {"write_staged", 1, 1, 0x80, -EPROTO},
    {"write_staged", 2, 2, 0, 0},
    {"write_staged", 2, 2, 256, -EPROTO},
    {"write_staged", 4, 4, 0, -EPROTO},
    {"write_staged", 4, 4, 1, 0},
    {"write_staged", 4, 4, (1u << 20) + 1, -EPROTO}, /* beyond 64 MiB of staging memory */
    {"write_staged", 4, 4, UINT32_MAX, -EPROTO},
    {"write_staged", 8, 8, INT64_MAX - (1 << 20), 0},
    {"write_staged", 8, 8, INT64_MAX - (1 << 20) + 1, -EPROTO},
    {"write_staged", 8, 8, UINT64_MAX, -EPROTO},
    {"write_staged", 16, 4, UINT32_MAX, -EPROTO},
    {"write_inline", 1, 1, 3, 0}, /* with FUA */
    {"write_inline", 1, 1, 0, -EPROTO},
    {"write_inline", 4, 4, 2, -EPROTO},
    {"write_inline", 4, 4, 4, -EPROTO},
    {"write_inline", 4, 4, 0, -EPROTO},
    {"flush", 2, 2, 255, 0},
    {"flush", 2, 2, 256, -EPROTO},
    {"completion", 0, 2, 256, -EPROTO},
    {"completion", 2, 2, 0, 0},
    {"completion", 2, 2, RBLK_STATUS_MAX + 1, -EPROTO},
    {"completion", 2, 2, 0xffff, -EPROTO},
};

START_TEST(limits_hold)
{
    const struct vector *v = find_vector(limits[_i].vector);
    uint8_t bytes[RBLK_CONTROL_MAX];
    union host out;
    int rc;

    memcpy(bytes, v->bytes, v->len);
    put_number(bytes, limits[_i].offset, limits[_i].width, limits[_i].value);
    rc = decode_exactly(v, &out, bytes, v->len);
    ck_assert_msg(rc == limits[_i].expected, "%s: offset %zu value %#llx gave %d, expected %d",
                  v->name, limits[_i].offset, (unsigned long long)limits[_i].value, rc,
                  limits[_i].expected);
}
END_TEST

/* -- single points ------------------------------------------------------------------------- */

START_TEST(zero_tokens_are_malformed)
{
    const struct vector *v = find_vector("connect_io");
    uint8_t bytes[128];
    union host out;

    memcpy(bytes, v->bytes, v->len);
    memset(bytes + 16, 0, RBLK_TOKEN_LEN);
    ck_assert_int_eq(decode_exactly(v, &out, bytes, v->len), -EPROTO);
    bytes[31] = 1;
    ck_assert_int_eq(decode_exactly(v, &out, bytes, v->len), 0);

    v = find_vector("attach_reply");
    memcpy(bytes, v->bytes, v->len);
    memset(bytes + 16, 0, RBLK_TOKEN_LEN);
    ck_assert_int_eq(decode_exactly(v, &out, bytes, v->len), -EPROTO);
}
END_TEST

START_TEST(read_only_queues_have_no_staging_memory)
{
    const struct vector *v = find_vector("accept_io");
    uint8_t bytes[RBLK_ACCEPT_LEN];
    union host out;

    memcpy(bytes, v->bytes, v->len);
    memset(bytes + 12, 0, 16); /* rkey, address, length */
    ck_assert_int_eq(decode_exactly(v, &out, bytes, v->len), 0);
    ck_assert_uint_eq(out.accept.staging_len, 0);
    bytes[12] = 1;
    ck_assert_int_eq(decode_exactly(v, &out, bytes, v->len), -EPROTO);
}
END_TEST

/* A text that fills its field has no zero byte: it must not be read beyond. */
START_TEST(texts_end_inside_their_fields)
{
    static const struct {
        const char *vector;
        size_t offset;
    } texts[] = {{"hello", 32}, {"hello_reply", 48}, {"attach", 24}, {"list_reply", 160}};

    for (size_t i = 0; i < COUNT(texts); i++) {
        const struct vector *v = find_vector(texts[i].vector);
        uint8_t bytes[256];
        union host out;

        memcpy(bytes, v->bytes, v->len);
        memset(bytes + texts[i].offset, 'n', RBLK_NAME_LEN - 1);
        bytes[texts[i].offset + RBLK_NAME_LEN - 1] = 0;
        ck_assert_msg(decode_exactly(v, &out, bytes, v->len) == 0, "%s: 63 bytes", v->name);
        bytes[texts[i].offset + RBLK_NAME_LEN - 1] = 'n';
        ck_assert_msg(decode_exactly(v, &out, bytes, v->len) == -EPROTO, "%s: 64 bytes", v->name);
    }
}
END_TEST

START_TEST(encoders_cut_long_texts)
{
    struct rblk_hello hello = {1, 1, 0, 5000, ""};
    struct rblk_hello out;
    uint8_t buf[RBLK_CONTROL_MAX];
    size_t len;

    memset(hello.client, 'c', sizeof hello.client); /* not terminated */
    len = rblk_hello_encode(buf, 1, &hello);
    ck_assert_int_eq(rblk_hello_decode(&out, buf, len), 0);
    ck_assert_uint_eq(strlen(out.client), RBLK_NAME_LEN - 1);
}
END_TEST

/* Only one version is known, so what a later one puts behind the version must not matter. */
START_TEST(foreign_versions_are_told_apart_first)
{
    uint8_t bytes[56];
    struct rblk_connect connect;
    struct rblk_accept accept;
    struct rblk_hello hello;
    uint8_t buf[128];
    size_t len;

    memset(bytes, 0xff, sizeof bytes);
    put_number(bytes, 0, 4, RBLK_WIRE_MAGIC);
    put_number(bytes, 4, 2, 2);
    for (len = 6; len <= sizeof bytes; len++) {
        ck_assert_int_eq(rblk_connect_decode(&connect, bytes, len), -EPROTONOSUPPORT);
        ck_assert_int_eq(rblk_accept_decode(&accept, bytes, len), -EPROTONOSUPPORT);
    }
    memset(buf, 0xff, sizeof buf);
    memcpy(buf, hello_bytes, 16);
    buf[4] = sizeof buf; /* longer than ours */
    put_number(buf, 16, 2, 2);
    put_number(buf, 18, 2, 2);
    ck_assert_int_eq(rblk_hello_decode(&hello, buf, sizeof buf), -EPROTONOSUPPORT);
    put_number(buf, 16, 2, 1); /* includes ours: then it has to be ours */
    ck_assert_int_eq(rblk_hello_decode(&hello, buf, sizeof buf), -EPROTO);
}
END_TEST

START_TEST(header_bounds)
{
    uint8_t buf[RBLK_CONTROL_MAX + 1] = {HEADER(0x07, 0, 16, 1)};
    struct rblk_header h;

    put_number(buf, 4, 4, RBLK_CONTROL_MAX);
    ck_assert_int_eq(rblk_header_decode(&h, buf, RBLK_CONTROL_MAX), 0);
    ck_assert_uint_eq(h.length, RBLK_CONTROL_MAX);
    put_number(buf, 4, 4, RBLK_CONTROL_MAX + 1);
    ck_assert_int_eq(rblk_header_decode(&h, buf, RBLK_CONTROL_MAX + 1), -EPROTO);
}
END_TEST

START_TEST(known_types)
{
    static const uint8_t known[] = {0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x40, 0x50,
                                    0x51, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88};
    uint8_t buf[] = {HEADER(0, 0, 16, 1)};
    struct rblk_header h;

    for (unsigned int type = 0; type < 256; type++) {
        bool expected = memchr(known, (int)type, sizeof known) != NULL;

        buf[0] = (uint8_t)type;
        ck_assert_msg((rblk_header_decode(&h, buf, sizeof buf) == 0) == expected, "type 0x%02x",
                      type);
        /* A status is for replies only. */
        buf[2] = RBLK_STATUS_IO;
        ck_assert_msg((rblk_header_decode(&h, buf, sizeof buf) == 0) == (expected && type >= 0x80),
                      "type 0x%02x with a status", type);
        buf[2] = 0;
    }
}
END_TEST

START_TEST(error_texts)
{
    uint8_t buf[RBLK_CONTROL_MAX];
    char detail[RBLK_DETAIL_MAX + 1];
    char longer[RBLK_DETAIL_MAX + 100];
    size_t len;

    len = rblk_error_encode(buf, RBLK_LIST, 5, RBLK_STATUS_IO, NULL);
    ck_assert_uint_eq(len, RBLK_HEADER_LEN);
    ck_assert_int_eq(rblk_error_decode(detail, buf, len), 0);
    ck_assert_str_eq(detail, "");

    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    len = rblk_error_encode(buf, RBLK_LIST, 5, RBLK_STATUS_IO, longer);
    ck_assert_uint_eq(len, RBLK_HEADER_LEN + RBLK_DETAIL_MAX);
    ck_assert_int_eq(rblk_error_decode(detail, buf, len), 0);
    ck_assert_uint_eq(strlen(detail), RBLK_DETAIL_MAX);
    buf[len] = 'x'; /* one more than a text may have */
    put_number(buf, 4, 4, len + 1);
    ck_assert_int_eq(rblk_error_decode(detail, buf, len + 1), -EPROTO);

    /* What could command a terminal or forge a log line is replaced, by the receiver too. */
    len = rblk_error_encode(buf, RBLK_LIST, 5, RBLK_STATUS_IO, "a\nb\033[2Jc\x9b");
    ck_assert_mem_eq(buf + RBLK_HEADER_LEN, "a?b?[2Jc?", 9);
    memcpy(buf + RBLK_HEADER_LEN, "\0\r~\x7f", 4);
    ck_assert_int_eq(rblk_error_decode(detail, buf, len), 0);
    ck_assert_str_eq(detail, "??~?[2Jc?");
}
END_TEST

START_TEST(longest_messages)
{
    static struct rblk_list_reply list;
    static struct rblk_extent_map_reply map;
    static struct rblk_extent_release release;
    static union host out;
    uint8_t buf[RBLK_CONTROL_MAX];
    size_t len;

    list = (struct rblk_list_reply){.total = 100, .first = 60, .count = RBLK_LIST_MAX};
    for (unsigned int i = 0; i < RBLK_LIST_MAX; i++) {
        list.entry[i].size = i + 1;
        strcpy(list.entry[i].name, "v");
    }
    len = rblk_list_reply_encode(buf, 1, &list);
    ck_assert_uint_eq(len, 32 + 40 * 96);
    ck_assert_int_eq(rblk_list_reply_decode(&out.list_reply, buf, len), 0);
    ck_assert_uint_eq(out.list_reply.entry[RBLK_LIST_MAX - 1].size, RBLK_LIST_MAX);

    map = (struct rblk_extent_map_reply){.first = 1, .count = RBLK_EXTENTS_PER_MESSAGE};
    for (unsigned int i = 0; i < RBLK_EXTENTS_PER_MESSAGE; i++)
        map.entry[i] = (struct rblk_extent_entry){4096 * i, 4096, i};
    len = rblk_extent_map_reply_encode(buf, 1, &map);
    ck_assert_uint_eq(len, 32 + 128 * 24);
    ck_assert_int_eq(rblk_extent_map_reply_decode(&out.extent_map_reply, buf, len), 0);
    ck_assert_uint_eq(out.extent_map_reply.entry[127].rkey, 127);

    release = (struct rblk_extent_release){.count = RBLK_EXTENTS_PER_MESSAGE};
    for (unsigned int i = 0; i < RBLK_EXTENTS_PER_MESSAGE; i++)
        release.index[i] = 1000 + i;
    len = rblk_extent_release_encode(buf, 1, &release);
    ck_assert_uint_eq(len, 24 + 128 * 8);
    ck_assert_int_eq(rblk_extent_release_decode(&out.extent_release, buf, len), 0);
    ck_assert_uint_eq(out.extent_release.index[127], 1127);
}
END_TEST

START_TEST(inline_data_of_every_bound)
{
    static const uint32_t lengths[] = {1, 4096, 8192, 65535, 65536, 65537};
    static uint8_t message[RBLK_COMMAND_LEN + RBLK_INLINE_MAX + 2];
    struct rblk_command m;

    for (size_t i = 0; i < COUNT(lengths); i++) {
        struct rblk_command command = {RBLK_OP_WRITE, RBLK_CMD_INLINE, 0, lengths[i], 0, 0};
        size_t len = rblk_command_encode(message, &command) + lengths[i];
        int expected = lengths[i] <= RBLK_INLINE_MAX ? 0 : -EPROTO;

        ck_assert_int_eq(rblk_command_decode(&m, message, len), expected);
        ck_assert_int_eq(rblk_command_decode(&m, message, len - 1), -EPROTO);
        ck_assert_int_eq(rblk_command_decode(&m, message, len + 1), -EPROTO);
    }
}
END_TEST

START_TEST(volume_names)
{
    static const char *const good[] = {
        "a",
        "disk",
        "A-1_b.c",
        "0",
        "_",
        "a..b",
        "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz01234567890"};
    static const char *const bad[] = {
        "",        ".",   "..",
        ".hidden", "-rf", "a/b",
        "a b",     "a\n", "\xc3\xa4",
        "a:b",     "a%b", "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz012345678901"};

    for (size_t i = 0; i < COUNT(good); i++)
        ck_assert_msg(rblk_volume_name_valid(good[i]), "\"%s\"", good[i]);
    for (size_t i = 0; i < COUNT(bad); i++)
        ck_assert_msg(!rblk_volume_name_valid(bad[i]), "\"%s\"", bad[i]);
}
END_TEST

/* -- random bytes -------------------------------------------------------------------------- */

/* A valid message with a few bytes changed: gets further than noise does. */
static size_t random_message(uint64_t *state, uint8_t *bytes, const struct vector *v)
{
    size_t len = v->len;
    unsigned int changes = (unsigned int)(random_next(state) % 6);

    memcpy(bytes, v->bytes, len);
    if (random_next(state) % 4 == 0) {
        len = random_next(state) % (2 * v->len + 1);
        for (size_t i = v->len; i < len; i++)
            bytes[i] = (uint8_t)random_next(state);
        put_length(v, bytes, len);
    }
    for (unsigned int i = 0; i < changes && len > 0; i++)
        bytes[random_next(state) % len] =
            (uint8_t)(random_next(state) >> (random_next(state) % 64));
    return len;
}

static size_t random_noise(uint64_t *state, uint8_t *bytes)
{
    size_t len = random_next(state) % 300;

    for (size_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)random_next(state);
    return len;
}

/* Whatever a decoder accepts must be what the encoder writes for it: no bit goes unchecked. */
static void check_canonical(const struct vector *v, const union host *m, const uint8_t *bytes,
                            size_t len, uint64_t seed)
{
    static uint8_t again[RBLK_CONTROL_MAX];
    uint64_t tag = 0;
    size_t again_len;

    if (v->tail == TAIL_TEXT || v->encode == encode_ping)
        return; /* the text is sanitised, the type is not part of the result */
    for (unsigned int i = 0; v->control && i < 8; i++)
        tag |= (uint64_t)bytes[8 + i] << (8 * i);
    again_len = v->encode(again, tag, m);
    ck_assert_msg(again_len <= len && memcmp(again, bytes, again_len) == 0,
                  "%s: accepted what it would not write; RBLK_TEST_SEED=%llu", v->name,
                  (unsigned long long)seed);
}

START_TEST(random_bytes)
{
    uint64_t seed = random_seed();
    uint64_t state = seed;
    unsigned int accepted = 0;
    static uint8_t bytes[1024];
    static union host out;

    for (unsigned int round = 0; round < ROUNDS; round++) {
        const struct vector *v = &vectors[random_next(&state) % COUNT(vectors)];
        size_t len =
            round % 8 == 0 ? random_noise(&state, bytes) : random_message(&state, bytes, v);
        int rc = decode_exactly(v, &out, bytes, len);

        ck_assert_msg(rc == 0 || rc == -EPROTO || rc == -EPROTONOSUPPORT,
                      "%s: result %d; RBLK_TEST_SEED=%llu", v->name, rc, (unsigned long long)seed);
        if (rc < 0)
            continue;
        accepted++;
        check_canonical(v, &out, bytes, len, seed);
    }
    printf("test_wire: %u random messages, %u accepted\n", ROUNDS, accepted);
    ck_assert_uint_gt(accepted, ROUNDS / 20); /* else the test looks at noise only */
}
END_TEST

static Suite *wire_suite(void)
{
    Suite *suite = suite_create("wire");
    TCase *tables = tcase_create("tables");
    TCase *points = tcase_create("points");
    TCase *noise = tcase_create("random");

    tcase_add_loop_test(tables, encodes_to_the_bytes, 0, COUNT(vectors));
    tcase_add_loop_test(tables, decodes_from_the_bytes, 0, COUNT(vectors));
    tcase_add_loop_test(tables, every_truncation_is_malformed, 0, COUNT(vectors));
    tcase_add_loop_test(tables, surplus_bytes_are_malformed, 0, COUNT(vectors));
    tcase_add_loop_test(tables, every_reserved_bit_must_be_zero, 0, COUNT(reserved));
    tcase_add_loop_test(tables, limits_hold, 0, COUNT(limits));
    suite_add_tcase(suite, tables);

    tcase_add_test(points, zero_tokens_are_malformed);
    tcase_add_test(points, read_only_queues_have_no_staging_memory);
    tcase_add_test(points, texts_end_inside_their_fields);
    tcase_add_test(points, encoders_cut_long_texts);
    tcase_add_test(points, foreign_versions_are_told_apart_first);
    tcase_add_test(points, header_bounds);
    tcase_add_test(points, known_types);
    tcase_add_test(points, error_texts);
    tcase_add_test(points, longest_messages);
    tcase_add_test(points, inline_data_of_every_bound);
    tcase_add_test(points, volume_names);
    suite_add_tcase(suite, points);

    tcase_set_timeout(noise, 120);
    tcase_add_test(noise, random_bytes);
    suite_add_tcase(suite, noise);
    return suite;
}

int main(void)
{
    return suite_run(wire_suite());
}
