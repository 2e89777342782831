/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * iwarp.h -- iWARP wire formats (MPA, DDP, RDMAP): encode, decode, validate; no I/O
 *
 * Layouts follow RFC 5044 (MPA), RFC 6581 (MPA revision 2), RFC 5041 (DDP) and RFC 5040 (RDMAP)
 * as the Linux kernel's siw driver speaks them. All fields are big-endian on the wire except the
 * CRC, which siw stores little-endian.
 */
#ifndef SOFTRDMA_IWARP_H
#define SOFTRDMA_IWARP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* MPA request and reply frames. */
#define IWARP_MPA_FIXED 20u        /* key, flags and revision, private data length */
#define IWARP_MPA_V2 4u            /* IRD and ORD words at the head of the private data */
#define IWARP_MPA_PRIVATE_MAX 512u /* RFC 5044: private data, version 2 words included */
#define IWARP_MPA_MARKERS 0x8000u
#define IWARP_MPA_CRC 0x4000u
#define IWARP_MPA_REJECT 0x2000u
#define IWARP_MPA_ENHANCED 0x1000u
#define IWARP_MPA_REVISION 2u

/* FPDU. */
#define IWARP_TAGGED_HEADER 16u /* with the two length bytes, like all header sizes here */
#define IWARP_UNTAGGED_HEADER 20u
#define IWARP_READ_REQUEST_HEADER 48u
#define IWARP_HEADER_MAX IWARP_READ_REQUEST_HEADER
#define IWARP_TRAILER 4u        /* CRC field, always present; padding comes before it */
#define IWARP_TERMINATE_MAX 80u /* header, control, copied headers, trailer */
#define IWARP_ULPDU_MAX 65535u

enum iwarp_opcode {
    IWARP_WRITE = 0,
    IWARP_READ_REQUEST = 1,
    IWARP_READ_RESPONSE = 2,
    IWARP_SEND = 3,
    IWARP_SEND_INVALIDATE = 4,
    IWARP_SEND_SOLICITED = 5,
    IWARP_SEND_SOLICITED_INVALIDATE = 6,
    IWARP_TERMINATE = 7,
};

enum iwarp_queue { IWARP_QUEUE_SEND = 0, IWARP_QUEUE_READ = 1, IWARP_QUEUE_TERMINATE = 2 };

/* Terminate: layers, error types and codes (RFC 5040 section 4.8, RFC 5041, RFC 5044). */
enum { IWARP_LAYER_RDMAP = 0, IWARP_LAYER_DDP = 1, IWARP_LAYER_LLP = 2 };
enum { IWARP_RDMAP_LOCAL = 0, IWARP_RDMAP_PROTECTION = 1, IWARP_RDMAP_OPERATION = 2 };
enum {
    IWARP_PROTECTION_STAG = 0,
    IWARP_PROTECTION_BOUNDS = 1,
    IWARP_PROTECTION_ACCESS = 2,
    IWARP_PROTECTION_NOT_ASSOCIATED = 3,
    IWARP_PROTECTION_WRAP = 4,
};
enum {
    IWARP_OPERATION_VERSION = 5,
    IWARP_OPERATION_OPCODE = 6,
    IWARP_OPERATION_STREAM = 7,
    IWARP_OPERATION_INVALIDATE = 9,
};
enum { IWARP_DDP_LOCAL = 0, IWARP_DDP_TAGGED = 1, IWARP_DDP_UNTAGGED = 2 };
enum {
    IWARP_TAGGED_STAG = 0,
    IWARP_TAGGED_BOUNDS = 1,
    IWARP_TAGGED_NOT_ASSOCIATED = 2,
    IWARP_TAGGED_WRAP = 3,
    IWARP_TAGGED_VERSION = 4
};
enum {
    IWARP_UNTAGGED_QUEUE = 1,
    IWARP_UNTAGGED_NO_BUFFER = 2,
    IWARP_UNTAGGED_MSN = 3,
    IWARP_UNTAGGED_MO = 4,
    IWARP_UNTAGGED_TOO_LONG = 5,
    IWARP_UNTAGGED_VERSION = 6
};
enum { IWARP_LLP_MPA = 0 };
enum {
    IWARP_MPA_ERROR_LOST = 1,
    IWARP_MPA_ERROR_CRC = 2,
    IWARP_MPA_ERROR_START = 3,
    IWARP_MPA_ERROR_FRAME = 4,
    IWARP_MPA_ERROR_LOCAL = 5,
    IWARP_MPA_ERROR_IRD = 6,
    IWARP_MPA_ERROR_RTR = 7
};

/* The fixed part of an MPA request or reply. */
struct iwarp_mpa {
    uint16_t flags; /* IWARP_MPA_* */
    uint8_t revision;
    uint16_t private_length; /* bytes that follow, the version 2 words included */
};

/* The words that open the private data of an enhanced (revision 2) frame. */
struct iwarp_mpa_v2 {
    bool peer_to_peer;
    bool rtr_send, rtr_write, rtr_read; /* ready-to-receive frames on offer (or chosen) */
    uint16_t ird, ord;                  /* 14 bits each */
};

/* A reason to end a stream, as a Terminate message carries it. */
struct iwarp_error {
    uint8_t layer, type, code;
};

/* One decoded DDP segment. Lengths are bytes. */
struct iwarp_segment {
    uint8_t opcode;
    bool tagged, last;
    uint32_t header_length; /* with the two length bytes */
    uint32_t payload_length;
    uint32_t padding;    /* zero bytes before the CRC field */
    uint32_t stag;       /* tagged: destination */
    uint64_t offset;     /* tagged: destination address (TO) */
    uint32_t invalidate; /* untagged: STag to invalidate */
    uint32_t queue, msn, message_offset;
    uint32_t sink_stag, source_stag, read_length; /* read request */
    uint64_t sink_offset, source_offset;
};

/* A decoded Terminate message. */
struct iwarp_terminate {
    struct iwarp_error error;
    bool has_header; /* the next two are known */
    uint8_t opcode;  /* of the segment that was refused */
    uint32_t msn;    /* of an untagged segment that was refused, else 0 */
    uint32_t stag;   /* and of a tagged one, with the offset, else 0 */
    uint64_t offset;
};

void iwarp_mpa_encode(uint8_t out[IWARP_MPA_FIXED], bool reply, const struct iwarp_mpa *mpa);
int iwarp_mpa_decode(const uint8_t in[IWARP_MPA_FIXED], bool reply, struct iwarp_mpa *mpa);
void iwarp_mpa_v2_encode(uint8_t out[IWARP_MPA_V2], const struct iwarp_mpa_v2 *v2);
void iwarp_mpa_v2_decode(const uint8_t in[IWARP_MPA_V2], struct iwarp_mpa_v2 *v2);

uint32_t iwarp_padding(uint32_t header_and_payload);
uint32_t iwarp_tagged_encode(uint8_t *out, uint8_t opcode, bool last, uint32_t stag,
                             uint64_t offset, uint32_t payload);
uint32_t iwarp_untagged_encode(uint8_t *out, uint8_t opcode, bool last, uint32_t queue,
                               uint32_t msn, uint32_t message_offset, uint32_t payload);
uint32_t iwarp_read_request_encode(uint8_t *out, uint32_t msn, uint32_t sink_stag,
                                   uint64_t sink_offset, uint32_t length, uint32_t source_stag,
                                   uint64_t source_offset);
bool iwarp_header_tagged(const uint8_t *in);
int iwarp_segment_decode(const uint8_t *in, size_t available, struct iwarp_segment *segment,
                         struct iwarp_error *error);

uint32_t iwarp_terminate_encode(uint8_t out[IWARP_TERMINATE_MAX], const struct iwarp_error *error,
                                const uint8_t *refused, uint32_t refused_header);
int iwarp_terminate_decode(const uint8_t *payload, size_t length, struct iwarp_terminate *out);

uint32_t iwarp_crc32c(uint32_t crc, const void *data, size_t length);
uint32_t iwarp_crc32c_table(uint32_t crc, const void *data, size_t length);
void iwarp_crc_store(uint8_t out[4], uint32_t crc);
uint32_t iwarp_crc_load(const uint8_t in[4]);

#endif
