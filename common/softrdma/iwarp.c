/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * iwarp.c -- encode, decode and validate MPA, DDP and RDMAP headers; pure functions
 */
#include "iwarp.h"

#include <errno.h>
#include <string.h>

/* DDP/RDMAP control word. */
#define CONTROL_TAGGED 0x8000u
#define CONTROL_LAST 0x4000u
#define CONTROL_RESERVED_DDP 0x3c00u
#define CONTROL_DDP_VERSION 0x0300u
#define CONTROL_DDP_VERSION_1 0x0100u
#define CONTROL_RDMAP_VERSION 0x00c0u
#define CONTROL_RDMAP_VERSION_1 0x0040u
#define CONTROL_OPCODE 0x000fu

/* Terminate control flags, third byte. */
#define TERMINATE_LENGTH 0x80u
#define TERMINATE_DDP 0x40u
#define TERMINATE_RDMAP 0x20u

static const char request_key[16] = {'M', 'P', 'A', ' ', 'I', 'D', ' ', 'R',
                                     'e', 'q', ' ', 'F', 'r', 'a', 'm', 'e'};
static const char reply_key[16] = {'M', 'P', 'A', ' ', 'I', 'D', ' ', 'R',
                                   'e', 'p', ' ', 'F', 'r', 'a', 'm', 'e'};

static void put16(uint8_t *out, uint32_t value)
{
    out[0] = (uint8_t)(value >> 8);
    out[1] = (uint8_t)value;
}

static void put32(uint8_t *out, uint32_t value)
{
    value = __builtin_bswap32(value);
    memcpy(out, &value, sizeof(value));
}

static void put64(uint8_t *out, uint64_t value)
{
    value = __builtin_bswap64(value);
    memcpy(out, &value, sizeof(value));
}

static uint32_t get16(const uint8_t *in)
{
    return (uint32_t)in[0] << 8 | in[1];
}

static uint32_t get32(const uint8_t *in)
{
    uint32_t value;

    memcpy(&value, in, sizeof(value));
    return __builtin_bswap32(value);
}

static uint64_t get64(const uint8_t *in)
{
    uint64_t value;

    memcpy(&value, in, sizeof(value));
    return __builtin_bswap64(value);
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the byte swaps assume little-endian");

/* Encode the fixed part of an MPA request (or reply) frame, RFC 5044 section 7.1. */
void iwarp_mpa_encode(uint8_t out[IWARP_MPA_FIXED], bool reply, const struct iwarp_mpa *mpa)
{
    memcpy(out, reply ? reply_key : request_key, 16);
    put16(out + 16, (uint32_t)mpa->flags | mpa->revision);
    put16(out + 18, mpa->private_length);
}

/*
 * Decode the fixed part of an MPA frame. Returns 0, or -EPROTO when it is not an MPA frame of
 * the wanted direction or promises more private data than the RFC allows.
 */
int iwarp_mpa_decode(const uint8_t in[IWARP_MPA_FIXED], bool reply, struct iwarp_mpa *mpa)
{
    uint32_t word = get16(in + 16);
    uint32_t length = get16(in + 18);

    if (memcmp(in, reply ? reply_key : request_key, 16) != 0)
        return -EPROTO;
    if (length > IWARP_MPA_PRIVATE_MAX)
        return -EPROTO;
    mpa->flags = (uint16_t)(word & 0xff00u);
    mpa->revision = (uint8_t)word;
    mpa->private_length = (uint16_t)length;
    return 0;
}

/* Encode the IRD and ORD words of RFC 6581. Values above 14 bits are clipped. */
void iwarp_mpa_v2_encode(uint8_t out[IWARP_MPA_V2], const struct iwarp_mpa_v2 *v2)
{
    uint32_t ird = v2->ird > 0x3fffu ? 0x3fffu : v2->ird;
    uint32_t ord = v2->ord > 0x3fffu ? 0x3fffu : v2->ord;

    put16(out, ird | (v2->peer_to_peer ? 0x8000u : 0) | (v2->rtr_send ? 0x4000u : 0));
    put16(out + 2, ord | (v2->rtr_write ? 0x8000u : 0) | (v2->rtr_read ? 0x4000u : 0));
}

/* Decode the IRD and ORD words of RFC 6581: every bit pattern is valid. */
void iwarp_mpa_v2_decode(const uint8_t in[IWARP_MPA_V2], struct iwarp_mpa_v2 *v2)
{
    uint32_t ird = get16(in), ord = get16(in + 2);

    v2->peer_to_peer = ird & 0x8000u;
    v2->rtr_send = ird & 0x4000u;
    v2->rtr_write = ord & 0x8000u;
    v2->rtr_read = ord & 0x4000u;
    v2->ird = (uint16_t)(ird & 0x3fffu);
    v2->ord = (uint16_t)(ord & 0x3fffu);
}

/* Zero bytes between the payload and the CRC field, given length field, header and payload. */
uint32_t iwarp_padding(uint32_t header_and_payload)
{
    return -header_and_payload & 3u;
}

static uint32_t control(uint8_t opcode, bool tagged, bool last)
{
    return (tagged ? CONTROL_TAGGED : 0) | (last ? CONTROL_LAST : 0) | CONTROL_DDP_VERSION_1 |
           CONTROL_RDMAP_VERSION_1 | opcode;
}

/* Encode a tagged header (RDMA Write, Read Response). Returns its size. */
uint32_t iwarp_tagged_encode(uint8_t *out, uint8_t opcode, bool last, uint32_t stag,
                             uint64_t offset, uint32_t payload)
{
    put16(out, IWARP_TAGGED_HEADER - 2 + payload);
    put16(out + 2, control(opcode, true, last));
    put32(out + 4, stag);
    put64(out + 8, offset);
    return IWARP_TAGGED_HEADER;
}

/* Encode an untagged header (Send, Terminate). Returns its size. */
uint32_t iwarp_untagged_encode(uint8_t *out, uint8_t opcode, bool last, uint32_t queue,
                               uint32_t msn, uint32_t message_offset, uint32_t payload)
{
    put16(out, IWARP_UNTAGGED_HEADER - 2 + payload);
    put16(out + 2, control(opcode, false, last));
    put32(out + 4, 0);
    put32(out + 8, queue);
    put32(out + 12, msn);
    put32(out + 16, message_offset);
    return IWARP_UNTAGGED_HEADER;
}

/* Encode a whole read request, which has no payload. Returns its size. */
uint32_t iwarp_read_request_encode(uint8_t *out, uint32_t msn, uint32_t sink_stag,
                                   uint64_t sink_offset, uint32_t length, uint32_t source_stag,
                                   uint64_t source_offset)
{
    iwarp_untagged_encode(out, IWARP_READ_REQUEST, true, IWARP_QUEUE_READ, msn, 0,
                          IWARP_READ_REQUEST_HEADER - IWARP_UNTAGGED_HEADER);
    put32(out + 20, sink_stag);
    put64(out + 24, sink_offset);
    put32(out + 32, length);
    put32(out + 36, source_stag);
    put64(out + 40, source_offset);
    return IWARP_READ_REQUEST_HEADER;
}

static int refuse(struct iwarp_error *error, uint8_t layer, uint8_t type, uint8_t code)
{
    *error = (struct iwarp_error){layer, type, code};
    return -EPROTO;
}

static int decode_untagged(const uint8_t *in, struct iwarp_segment *s, struct iwarp_error *error)
{
    uint32_t wanted;

    s->invalidate = get32(in + 4);
    s->queue = get32(in + 8);
    s->msn = get32(in + 12);
    s->message_offset = get32(in + 16);
    switch (s->opcode) {
    case IWARP_READ_REQUEST:
        wanted = IWARP_QUEUE_READ;
        break;
    case IWARP_TERMINATE:
        wanted = IWARP_QUEUE_TERMINATE;
        break;
    default:
        wanted = IWARP_QUEUE_SEND;
        break;
    }
    if (s->queue != wanted)
        return refuse(error, IWARP_LAYER_DDP, IWARP_DDP_UNTAGGED, IWARP_UNTAGGED_QUEUE);
    if (s->opcode != IWARP_READ_REQUEST)
        return 0;
    if (s->message_offset != 0 || !s->last || s->payload_length != 0)
        return refuse(error, IWARP_LAYER_DDP, IWARP_DDP_UNTAGGED, IWARP_UNTAGGED_MO);
    s->sink_stag = get32(in + 20);
    s->sink_offset = get64(in + 24);
    s->read_length = get32(in + 32);
    s->source_stag = get32(in + 36);
    s->source_offset = get64(in + 40);
    return 0;
}

/* Does a header, of which four bytes at least are there, belong to a tagged segment? */
bool iwarp_header_tagged(const uint8_t *in)
{
    return get16(in + 2) & CONTROL_TAGGED;
}

/*
 * Decode and validate the header of an FPDU.
 * Returns the header's size when all of it was available; 0 when more bytes are needed; or
 * -EPROTO, with the Terminate reason in *error. On success every length in *segment is
 * consistent with the FPDU's length field; sequence numbers and memory are the caller's to check.
 */
int iwarp_segment_decode(const uint8_t *in, size_t available, struct iwarp_segment *segment,
                         struct iwarp_error *error)
{
    struct iwarp_segment s = {0};
    uint32_t length, word;

    if (available < 4)
        return 0;
    length = get16(in) + 2;
    word = get16(in + 2);
    s.opcode = word & CONTROL_OPCODE;
    s.tagged = word & CONTROL_TAGGED;
    s.last = word & CONTROL_LAST;
    if ((word & CONTROL_DDP_VERSION) != CONTROL_DDP_VERSION_1)
        return refuse(error, IWARP_LAYER_DDP, s.tagged ? IWARP_DDP_TAGGED : IWARP_DDP_UNTAGGED,
                      s.tagged ? IWARP_TAGGED_VERSION : IWARP_UNTAGGED_VERSION);
    if ((word & CONTROL_RDMAP_VERSION) != CONTROL_RDMAP_VERSION_1)
        return refuse(error, IWARP_LAYER_RDMAP, IWARP_RDMAP_OPERATION, IWARP_OPERATION_VERSION);
    if (s.opcode > IWARP_TERMINATE ||
        s.tagged != (s.opcode == IWARP_WRITE || s.opcode == IWARP_READ_RESPONSE))
        return refuse(error, IWARP_LAYER_RDMAP, IWARP_RDMAP_OPERATION, IWARP_OPERATION_OPCODE);

    s.header_length = s.tagged ? IWARP_TAGGED_HEADER : IWARP_UNTAGGED_HEADER;
    if (s.opcode == IWARP_READ_REQUEST)
        s.header_length = IWARP_READ_REQUEST_HEADER;
    if (length < s.header_length)
        return refuse(error, IWARP_LAYER_LLP, IWARP_LLP_MPA, IWARP_MPA_ERROR_START);
    if (available < s.header_length)
        return 0;
    s.payload_length = length - s.header_length;
    s.padding = iwarp_padding(length);
    if (s.tagged) {
        s.stag = get32(in + 4);
        s.offset = get64(in + 8);
        if (s.offset + s.payload_length < s.offset)
            return refuse(error, IWARP_LAYER_DDP, IWARP_DDP_TAGGED, IWARP_TAGGED_WRAP);
    } else {
        int r = decode_untagged(in, &s, error);

        if (r < 0)
            return r;
    }
    *segment = s;
    return (int)s.header_length;
}

/*
 * Encode a whole Terminate FPDU, padding and zero CRC field included (RFC 5040 section 4.8).
 * refused: header of the segment that is refused, length bytes first, or NULL; refused_header: its size.
 * Returns the FPDU's size.
 */
uint32_t iwarp_terminate_encode(uint8_t out[IWARP_TERMINATE_MAX], const struct iwarp_error *error,
                                const uint8_t *refused, uint32_t refused_header)
{
    uint32_t payload = 4, total;

    memset(out, 0, IWARP_TERMINATE_MAX);
    out[IWARP_UNTAGGED_HEADER] = (uint8_t)(error->layer << 4 | (error->type & 0x0f));
    out[IWARP_UNTAGGED_HEADER + 1] = error->code;
    if (refused != NULL && refused_header <= IWARP_HEADER_MAX) {
        out[IWARP_UNTAGGED_HEADER + 2] = TERMINATE_LENGTH | TERMINATE_DDP;
        if (refused_header == IWARP_READ_REQUEST_HEADER)
            out[IWARP_UNTAGGED_HEADER + 2] |= TERMINATE_RDMAP;
        memcpy(out + IWARP_UNTAGGED_HEADER + 4, refused, refused_header);
        payload += refused_header;
    }
    iwarp_untagged_encode(out, IWARP_TERMINATE, true, IWARP_QUEUE_TERMINATE, 1, 0, payload);
    total = IWARP_UNTAGGED_HEADER + payload;
    return total + iwarp_padding(total) + IWARP_TRAILER;
}

/*
 * Decode a Terminate payload (what follows the untagged header). Accepts the RFC's layout and
 * siw's, whose nibbles and flags lie the other way round on little-endian machines.
 * Returns 0, or -EPROTO when it is too short.
 */
int iwarp_terminate_decode(const uint8_t *payload, size_t length, struct iwarp_terminate *out)
{
    struct iwarp_terminate t = {0};
    uint8_t first, flags;
    bool swapped;

    if (length < 4)
        return -EPROTO;
    first = payload[0];
    flags = payload[2];
    swapped = (flags & 0xe0u) == 0 && (flags & 0x07u) != 0;
    t.error.layer = swapped ? first & 0x0f : first >> 4;
    t.error.type = swapped ? first >> 4 : first & 0x0f;
    t.error.code = payload[1];
    if ((flags & (swapped ? 0x02u : TERMINATE_DDP)) && length >= 4 + IWARP_TAGGED_HEADER) {
        uint32_t word = get16(payload + 6);

        t.has_header = true;
        t.opcode = word & CONTROL_OPCODE;
        if (word & CONTROL_TAGGED) {
            t.stag = get32(payload + 4 + 4);
            t.offset = get64(payload + 4 + 8);
        } else if (length >= 4 + IWARP_UNTAGGED_HEADER) {
            t.msn = get32(payload + 4 + 12);
        }
    }
    *out = t;
    return 0;
}

/* Store a CRC the way siw does: little-endian. */
void iwarp_crc_store(uint8_t out[4], uint32_t crc)
{
    memcpy(out, &crc, sizeof(crc));
}

/* Load a CRC stored little-endian. */
uint32_t iwarp_crc_load(const uint8_t in[4])
{
    uint32_t crc;

    memcpy(&crc, in, sizeof(crc));
    return crc;
}
