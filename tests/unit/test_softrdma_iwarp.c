/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_softrdma_iwarp.c -- iWARP headers against bytes written by hand, and CRC32c vectors
 */
#include <check.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../../common/softrdma/iwarp.h"
#include "suite.h"

START_TEST(crc_known_vectors)
{
    uint8_t zeros[32] = {0}, ones[32], up[32], down[32];

    memset(ones, 0xff, sizeof(ones));
    for (int i = 0; i < 32; i++) {
        up[i] = (uint8_t)i;
        down[i] = (uint8_t)(31 - i);
    }
    /* RFC 3720 appendix B.4, and the usual check string. */
    ck_assert_uint_eq(iwarp_crc32c(0, "123456789", 9), 0xe3069283u);
    ck_assert_uint_eq(iwarp_crc32c(0, zeros, 32), 0x8a9136aau);
    ck_assert_uint_eq(iwarp_crc32c(0, ones, 32), 0x62a8ab43u);
    ck_assert_uint_eq(iwarp_crc32c(0, up, 32), 0x46dd794eu);
    ck_assert_uint_eq(iwarp_crc32c(0, down, 32), 0x113fdb5cu);
    ck_assert_uint_eq(iwarp_crc32c(0, "", 0), 0);
}
END_TEST

START_TEST(crc_table_and_pieces_agree)
{
    uint8_t data[257];

    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)(i * 7 + 3);
    for (size_t n = 0; n <= sizeof(data); n++) {
        uint32_t whole = iwarp_crc32c(0, data, n);

        ck_assert_uint_eq(iwarp_crc32c_table(0, data, n), whole);
        ck_assert_uint_eq(iwarp_crc32c(iwarp_crc32c(0, data, n / 3), data + n / 3, n - n / 3),
                          whole);
    }
}
END_TEST

START_TEST(crc_is_stored_little_endian)
{
    const uint8_t wanted[4] = {0x83, 0x92, 0x06, 0xe3};
    uint8_t out[4];

    iwarp_crc_store(out, iwarp_crc32c(0, "123456789", 9));
    ck_assert_mem_eq(out, wanted, 4);
    ck_assert_uint_eq(iwarp_crc_load(wanted), 0xe3069283u);
}
END_TEST

START_TEST(mpa_request_bytes)
{
    const uint8_t wanted[] = "MPA ID Req Frame\x50\x02\x00\x0c";
    const struct iwarp_mpa mpa = {
        .flags = IWARP_MPA_CRC | IWARP_MPA_ENHANCED, .revision = 2, .private_length = 12};
    struct iwarp_mpa back;
    uint8_t out[IWARP_MPA_FIXED];

    iwarp_mpa_encode(out, false, &mpa);
    ck_assert_mem_eq(out, wanted, sizeof(out));
    ck_assert_int_eq(iwarp_mpa_decode(wanted, false, &back), 0);
    ck_assert_uint_eq(back.flags, 0x5000);
    ck_assert_uint_eq(back.revision, 2);
    ck_assert_uint_eq(back.private_length, 12);
    ck_assert_int_eq(iwarp_mpa_decode(wanted, true, &back), -EPROTO);
}
END_TEST

START_TEST(mpa_refuses_garbage)
{
    uint8_t long_private[] = "MPA ID Rep Frame\x10\x02\x02\x01"; /* 513 bytes */
    struct iwarp_mpa mpa = {0};

    ck_assert_int_eq(iwarp_mpa_decode(long_private, true, &mpa), -EPROTO);
    long_private[19] = 0; /* 512 */
    ck_assert_int_eq(iwarp_mpa_decode(long_private, true, &mpa), 0);
    ck_assert_int_eq(iwarp_mpa_decode((const uint8_t *)"GET / HTTP/1.1\r\n\r\n  ", true, &mpa),
                     -EPROTO);
}
END_TEST

START_TEST(mpa_v2_words)
{
    /* A, IRD 0x80; Write RTR, ORD 0x10. */
    const uint8_t words[4] = {0x80, 0x80, 0x80, 0x10};
    struct iwarp_mpa_v2 v2;
    uint8_t out[4];

    iwarp_mpa_v2_decode(words, &v2);
    ck_assert(v2.peer_to_peer && v2.rtr_write && !v2.rtr_send && !v2.rtr_read);
    ck_assert_uint_eq(v2.ird, 128);
    ck_assert_uint_eq(v2.ord, 16);
    iwarp_mpa_v2_encode(out, &v2);
    ck_assert_mem_eq(out, words, 4);
    v2 = (struct iwarp_mpa_v2){.ird = 0xffff, .ord = 1};
    iwarp_mpa_v2_encode(out, &v2);
    ck_assert_mem_eq(out, "\x3f\xff\x00\x01", 4);
}
END_TEST

START_TEST(tagged_bytes)
{
    /* Write, last, STag 0x11223344, TO 0x0102030405060708, 5 bytes of payload: length 14 + 5. */
    const uint8_t wanted[16] = {0x00, 0x13, 0xc1, 0x40, 0x11, 0x22, 0x33, 0x44,
                                1,    2,    3,    4,    5,    6,    7,    8};
    struct iwarp_segment s;
    struct iwarp_error error;
    uint8_t out[16];

    ck_assert_uint_eq(
        iwarp_tagged_encode(out, IWARP_WRITE, true, 0x11223344, 0x0102030405060708u, 5), 16);
    ck_assert_mem_eq(out, wanted, 16);
    ck_assert_int_eq(iwarp_segment_decode(wanted, 16, &s, &error), 16);
    ck_assert(s.tagged && s.last);
    ck_assert_uint_eq(s.opcode, IWARP_WRITE);
    ck_assert_uint_eq(s.stag, 0x11223344);
    ck_assert(s.offset == 0x0102030405060708u);
    ck_assert_uint_eq(s.payload_length, 5);
    ck_assert_uint_eq(s.padding, 3); /* 2 + 14 + 5 = 21, so 3 to 24 */
}
END_TEST

START_TEST(send_bytes)
{
    /* Send with solicited event, not last, QN 0, MSN 7, MO 0x1000, no payload. */
    const uint8_t wanted[20] = {0x00, 0x12, 0x01, 0x45, 0, 0, 0, 0, 0,    0,
                                0,    0,    0,    0,    0, 7, 0, 0, 0x10, 0};
    struct iwarp_segment s;
    struct iwarp_error error;
    uint8_t out[20];

    ck_assert_uint_eq(
        iwarp_untagged_encode(out, IWARP_SEND_SOLICITED, false, IWARP_QUEUE_SEND, 7, 0x1000, 0),
        20);
    ck_assert_mem_eq(out, wanted, 20);
    ck_assert_int_eq(iwarp_segment_decode(wanted, 20, &s, &error), 20);
    ck_assert(!s.tagged && !s.last);
    ck_assert_uint_eq(s.msn, 7);
    ck_assert_uint_eq(s.message_offset, 0x1000);
    ck_assert_uint_eq(s.padding, 0);
}
END_TEST

static const uint8_t read_request[48] = {
    0x00, 0x2e, 0x41, 0x41, 0,    0,    0,    0,    0, 0, 0,    1, 0, 0, 0,    3,
    0,    0,    0,    0,    0xaa, 0xbb, 0xcc, 0xdd, 0, 0, 0x7f, 0, 0, 0, 0x10, 0,
    0,    0x10, 0,    0x03, 0x01, 0x02, 0x03, 0x04, 0, 0, 0,    0, 0, 0, 0x20, 0};

START_TEST(read_request_bytes)
{
    struct iwarp_segment s;
    struct iwarp_error error;
    uint8_t out[48];

    ck_assert_uint_eq(iwarp_read_request_encode(out, 3, 0xaabbccdd, 0x00007f0000001000u, 0x100003,
                                                0x01020304, 0x2000),
                      48);
    ck_assert_mem_eq(out, read_request, 48);
    ck_assert_int_eq(iwarp_segment_decode(read_request, 48, &s, &error), 48);
    ck_assert_uint_eq(s.queue, IWARP_QUEUE_READ);
    ck_assert_uint_eq(s.sink_stag, 0xaabbccdd);
    ck_assert(s.sink_offset == 0x00007f0000001000u);
    ck_assert_uint_eq(s.read_length, 0x100003);
    ck_assert_uint_eq(s.source_stag, 0x01020304);
    ck_assert(s.source_offset == 0x2000);
    ck_assert_uint_eq(s.payload_length, 0);
}
END_TEST

START_TEST(every_prefix_asks_for_more)
{
    struct iwarp_segment s;
    struct iwarp_error error;

    for (size_t n = 0; n < sizeof(read_request); n++)
        ck_assert_int_eq(iwarp_segment_decode(read_request, n, &s, &error), 0);
}
END_TEST

static void refused(const uint8_t *bytes, size_t length, uint8_t layer, uint8_t type, uint8_t code)
{
    struct iwarp_segment s;
    struct iwarp_error error = {0xff, 0xff, 0xff};

    ck_assert_int_eq(iwarp_segment_decode(bytes, length, &s, &error), -EPROTO);
    ck_assert_uint_eq(error.layer, layer);
    ck_assert_uint_eq(error.type, type);
    ck_assert_uint_eq(error.code, code);
}

START_TEST(bad_headers_are_refused)
{
    uint8_t b[48];

    memcpy(b, read_request, 48);
    b[2] = 0x42; /* DDP version 2 */
    refused(b, 48, IWARP_LAYER_DDP, IWARP_DDP_UNTAGGED, IWARP_UNTAGGED_VERSION);
    b[2] = 0xc2;
    refused(b, 48, IWARP_LAYER_DDP, IWARP_DDP_TAGGED, IWARP_TAGGED_VERSION);
    memcpy(b, read_request, 48);
    b[3] = 0x81; /* RDMAP version 2 */
    refused(b, 48, IWARP_LAYER_RDMAP, IWARP_RDMAP_OPERATION, IWARP_OPERATION_VERSION);
    b[3] = 0x48; /* opcode 8 */
    refused(b, 48, IWARP_LAYER_RDMAP, IWARP_RDMAP_OPERATION, IWARP_OPERATION_OPCODE);
    b[3] = 0x40; /* an untagged Write */
    refused(b, 48, IWARP_LAYER_RDMAP, IWARP_RDMAP_OPERATION, IWARP_OPERATION_OPCODE);
    b[2] = 0xc1;
    b[3] = 0x43; /* a tagged Send */
    refused(b, 48, IWARP_LAYER_RDMAP, IWARP_RDMAP_OPERATION, IWARP_OPERATION_OPCODE);
    memcpy(b, read_request, 48);
    b[11] = 0; /* a read request on queue 0 */
    refused(b, 48, IWARP_LAYER_DDP, IWARP_DDP_UNTAGGED, IWARP_UNTAGGED_QUEUE);
    memcpy(b, read_request, 48);
    b[19] = 4; /* message offset */
    refused(b, 48, IWARP_LAYER_DDP, IWARP_DDP_UNTAGGED, IWARP_UNTAGGED_MO);
    memcpy(b, read_request, 48);
    b[1] = 0x2d; /* shorter than its own header */
    refused(b, 48, IWARP_LAYER_LLP, IWARP_LLP_MPA, IWARP_MPA_ERROR_START);
    memcpy(b, read_request, 48);
    b[1] = 0x2f; /* payload behind a read request */
    refused(b, 48, IWARP_LAYER_DDP, IWARP_DDP_UNTAGGED, IWARP_UNTAGGED_MO);
    iwarp_tagged_encode(b, IWARP_WRITE, true, 1, UINT64_MAX - 2, 8);
    refused(b, 16, IWARP_LAYER_DDP, IWARP_DDP_TAGGED, IWARP_TAGGED_WRAP);
}
END_TEST

START_TEST(terminate_bytes)
{
    const struct iwarp_error error = {IWARP_LAYER_RDMAP, IWARP_RDMAP_PROTECTION,
                                      IWARP_PROTECTION_BOUNDS};
    const uint8_t head[24] = {0x00, 0x46, 0x41, 0x47, 0, 0, 0, 0, 0,    0,    0,    2,
                              0,    0,    0,    1,    0, 0, 0, 0, 0x01, 0x01, 0xe0, 0x00};
    uint8_t out[IWARP_TERMINATE_MAX];
    struct iwarp_terminate t;

    ck_assert_uint_eq(iwarp_terminate_encode(out, &error, read_request, 48), 76);
    ck_assert_mem_eq(out, head, 24);
    ck_assert_mem_eq(out + 24, read_request, 48);
    ck_assert_int_eq(iwarp_terminate_decode(out + 20, 52, &t), 0);
    ck_assert_uint_eq(t.error.layer, IWARP_LAYER_RDMAP);
    ck_assert_uint_eq(t.error.type, IWARP_RDMAP_PROTECTION);
    ck_assert_uint_eq(t.error.code, IWARP_PROTECTION_BOUNDS);
    ck_assert(t.has_header);
    ck_assert_uint_eq(t.opcode, IWARP_READ_REQUEST);
    ck_assert_uint_eq(t.msn, 3);
}
END_TEST

START_TEST(terminate_of_siw_is_understood)
{
    /* Layer in the low nibble, flags in the low bits. */
    uint8_t payload[4 + 48] = {0x10, 0x02, 0x07, 0x00};
    struct iwarp_terminate t;

    memcpy(payload + 4, read_request, 48);
    ck_assert_int_eq(iwarp_terminate_decode(payload, sizeof(payload), &t), 0);
    ck_assert_uint_eq(t.error.layer, IWARP_LAYER_RDMAP);
    ck_assert_uint_eq(t.error.type, IWARP_RDMAP_PROTECTION);
    ck_assert_uint_eq(t.opcode, IWARP_READ_REQUEST);
    ck_assert_int_eq(iwarp_terminate_decode(payload, 3, &t), -EPROTO);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("softrdma_iwarp");
    TCase *tcase = tcase_create("headers");

    tcase_add_test(tcase, crc_known_vectors);
    tcase_add_test(tcase, crc_table_and_pieces_agree);
    tcase_add_test(tcase, crc_is_stored_little_endian);
    tcase_add_test(tcase, mpa_request_bytes);
    tcase_add_test(tcase, mpa_refuses_garbage);
    tcase_add_test(tcase, mpa_v2_words);
    tcase_add_test(tcase, tagged_bytes);
    tcase_add_test(tcase, send_bytes);
    tcase_add_test(tcase, read_request_bytes);
    tcase_add_test(tcase, every_prefix_asks_for_more);
    tcase_add_test(tcase, bad_headers_are_refused);
    tcase_add_test(tcase, terminate_bytes);
    tcase_add_test(tcase, terminate_of_siw_is_understood);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
