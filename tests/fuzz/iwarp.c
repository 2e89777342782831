/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * iwarp -- decoding alone: MPA frames, FPDU headers, Terminate messages
 *
 * First byte of the input: which decoder; the rest is what it is given. Whatever decodes must encode
 * to the same bytes again, reserved bits aside, and a decoder given less asks for more or refuses.
 */
#include "fuzz.h"

#include "common/softrdma/iwarp.h"

#define CONTROL_RESERVED 0x3c30u /* of the DDP and RDMAP control word */

static void mpa(const uint8_t *data, size_t size, bool reply)
{
    struct iwarp_mpa frame = {0};
    struct iwarp_mpa_v2 v2;
    uint8_t again[IWARP_MPA_FIXED], words[IWARP_MPA_V2];
    uint8_t *exact;

    if (size < IWARP_MPA_FIXED)
        return;
    exact = fuzz_copy(data, IWARP_MPA_FIXED);
    if (iwarp_mpa_decode(exact, reply, &frame) == 0) {
        FUZZ_CHECK(frame.private_length <= IWARP_MPA_PRIVATE_MAX);
        iwarp_mpa_encode(again, reply, &frame);
        FUZZ_CHECK(memcmp(again, data, sizeof(again)) == 0);
    }
    free(exact);
    if (size < IWARP_MPA_FIXED + IWARP_MPA_V2)
        return;
    exact = fuzz_copy(data + IWARP_MPA_FIXED, IWARP_MPA_V2);
    iwarp_mpa_v2_decode(exact, &v2);
    iwarp_mpa_v2_encode(words, &v2);
    FUZZ_CHECK(memcmp(words, exact, sizeof(words)) == 0);
    free(exact);
}

static void check_again(const uint8_t *data, const struct iwarp_segment *s)
{
    uint8_t given[IWARP_HEADER_MAX], again[IWARP_HEADER_MAX];

    memcpy(given, data, s->header_length);
    given[2] &= (uint8_t) ~(CONTROL_RESERVED >> 8);
    given[3] &= (uint8_t)~CONTROL_RESERVED;
    if (s->opcode == IWARP_READ_REQUEST)
        iwarp_read_request_encode(again, s->msn, s->sink_stag, s->sink_offset, s->read_length,
                                  s->source_stag, s->source_offset);
    else if (s->tagged)
        iwarp_tagged_encode(again, s->opcode, s->last, s->stag, s->offset, s->payload_length);
    else
        iwarp_untagged_encode(again, s->opcode, s->last, s->queue, s->msn, s->message_offset,
                              s->payload_length);
    if (!s->tagged)
        memset(given + 4, 0, 4); /* the STag to invalidate: an encoder's caller puts it in */
    FUZZ_CHECK(memcmp(given, again, s->header_length) == 0);
}

/* The first header of the bytes. Returns how many of them the FPDU has in all, 0 for no FPDU. */
static size_t header(const uint8_t *data, size_t size)
{
    struct iwarp_segment s, less;
    struct iwarp_error error = {0}, error_less = {0};
    size_t given = size < IWARP_HEADER_MAX ? size : IWARP_HEADER_MAX;
    uint8_t *exact = fuzz_copy(data, given);
    int n = iwarp_segment_decode(exact, given, &s, &error);

    FUZZ_CHECK(n == 0 || n == -71 /* EPROTO */ || (n > 0 && (size_t)n <= given));
    for (size_t part = 0; part < given; part++) {
        uint8_t *cut = fuzz_copy(data, part);
        int m = iwarp_segment_decode(cut, part, &less, &error_less);

        FUZZ_CHECK(m == 0 || m == n);
        FUZZ_CHECK(m <= 0 || (size_t)m <= part);
        free(cut);
    }
    if (n < 0)
        FUZZ_CHECK(error.layer <= IWARP_LAYER_LLP);
    if (n <= 0) {
        free(exact);
        return 0;
    }
    FUZZ_CHECK((uint32_t)n == s.header_length);
    FUZZ_CHECK(s.payload_length <= IWARP_ULPDU_MAX);
    FUZZ_CHECK(s.header_length + s.payload_length <= IWARP_ULPDU_MAX + 2);
    FUZZ_CHECK(s.padding < 4 && (s.header_length + s.payload_length + s.padding) % 4 == 0);
    FUZZ_CHECK(!s.tagged || s.offset + s.payload_length >= s.offset);
    check_again(exact, &s);
    free(exact);
    return s.header_length + s.payload_length + s.padding + IWARP_TRAILER;
}

static void headers(const uint8_t *data, size_t size)
{
    while (size > 0) {
        size_t n = header(data, size);

        if (n == 0 || n > size)
            return;
        data += n;
        size -= n;
    }
}

static void terminate(const uint8_t *data, size_t size)
{
    struct iwarp_terminate t = {0}, back = {0};
    uint8_t message[IWARP_TERMINATE_MAX];
    uint8_t *exact = fuzz_copy(data, size);
    uint32_t length;
    struct iwarp_segment s;
    struct iwarp_error error;

    if (iwarp_terminate_decode(exact, size, &t) == 0) {
        FUZZ_CHECK(t.error.layer < 16 && t.error.type < 16);
        length = iwarp_terminate_encode(message, &t.error, size >= 52 ? exact + 4 : NULL, 48);
        FUZZ_CHECK(length <= sizeof(message) && length % 4 == 0);
        FUZZ_CHECK(iwarp_segment_decode(message, length, &s, &error) > 0);
        FUZZ_CHECK(s.opcode == IWARP_TERMINATE && s.last);
        FUZZ_CHECK(s.header_length + s.payload_length + s.padding + IWARP_TRAILER == length);
        FUZZ_CHECK(iwarp_terminate_decode(message + s.header_length, s.payload_length, &back) == 0);
        FUZZ_CHECK(back.error.layer == t.error.layer && back.error.type == t.error.type &&
                   back.error.code == t.error.code);
    }
    free(exact);
}

static void checksum(const uint8_t *data, size_t size)
{
    FUZZ_CHECK(iwarp_crc32c(0, data, size) == iwarp_crc32c_table(0, data, size));
    FUZZ_CHECK(iwarp_crc32c(iwarp_crc32c(0, data, size / 3), data + size / 3, size - size / 3) ==
               iwarp_crc32c(0, data, size));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};

    switch (fuzz_byte(&in) % 5) {
    case 0:
        mpa(in.data, in.left, false);
        break;
    case 1:
        mpa(in.data, in.left, true);
        break;
    case 2:
        headers(in.data, in.left);
        break;
    case 3:
        terminate(in.data, in.left);
        break;
    default:
        checksum(in.data, in.left);
        break;
    }
    return 0;
}
