/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * wire -- the rblk protocol: message layouts, their encoders, decoders and validators
 *
 * PROTOCOL.md is the specification. Every message has a host form (struct rblk_NAME, native
 * integers) and three rules: one encoder, one decoder, and the decoder validates completely
 * (length, ranges, reserved bytes, text) before it writes its out-parameter. All integers on the
 * wire are little-endian; the packed layouts stand in wire.c, each with an assertion of its size.
 *
 * Encoders return the number of bytes written; the buffer must hold the bound named beside them.
 * Decoders return 0, or -EPROTO for a malformed message, -EPROTONOSUPPORT for a foreign version
 * (connect private data and HELLO only). All functions are pure and thread safe.
 */
#ifndef RBLK_COMMON_WIRE_H
#define RBLK_COMMON_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RBLK_DEFAULT_PORT 7470
#define RBLK_WIRE_MAGIC 0x6b6c4252u /* "RBlk" read as little-endian */
#define RBLK_WIRE_VERSION 1

/* IB and RoCE carry at most 56 bytes of private data with RDMA_PS_TCP (man rdma_connect). */
#define RBLK_PRIVATE_DATA_MAX 56

#define RBLK_TOKEN_LEN 16
#define RBLK_UUID_LEN 16
#define RBLK_NAME_LEN 64    /* volume names on the wire: 1..63 bytes and zero padding */
#define RBLK_DETAIL_MAX 256 /* text of an error reply, bytes */

/* One control message; each side posts receives of exactly this size on a control connection. */
#define RBLK_CONTROL_MAX 4096
/* Requests a client may have unanswered, and events a target may have unacknowledged. */
#define RBLK_CONTROL_REQUESTS 16
#define RBLK_CONTROL_EVENTS 16

/* I/O queue messages. */
#define RBLK_COMMAND_LEN 32
#define RBLK_COMPLETION_LEN 24
#define RBLK_QUEUE_DEPTH_MAX 256
#define RBLK_QUEUES_MAX 64
#define RBLK_INLINE_MAX 65536 /* the most in-message write data that a target may offer */
#define RBLK_EXTENTS_PER_MESSAGE 128
#define RBLK_STAGING_GRANULE 65536   /* staging memory is handed out in these units, bytes */
#define RBLK_STAGING_MAX (64u << 20) /* staging memory of one queue, bytes: 1024 granules */
#define RBLK_EXTENT_SIZE_MIN 4096
#define RBLK_EXTENTS_MAX (1u << 26) /* of one volume: bounds the extent table */

/* Heartbeat interval, milliseconds. */
#define RBLK_KEEPALIVE_MIN_MS 100
#define RBLK_KEEPALIVE_MAX_MS 600000

/* How a connection introduces itself. */
enum rblk_kind {
    RBLK_KIND_CONTROL = 1,
    RBLK_KIND_IO = 2,
};

enum rblk_attach_mode {
    RBLK_ATTACH_RO = 1,     /* any number of readers */
    RBLK_ATTACH_RW = 2,     /* exclusive writer (readers may be attached beside it) */
    RBLK_ATTACH_SHARED = 3, /* many writers, coordinated by themselves */
};

/* Status of replies, completions and rejects; one table maps it to errno and text (status.c). */
enum rblk_status {
    RBLK_STATUS_OK = 0,
    RBLK_STATUS_MALFORMED = 1,      /* EPROTO: the peer broke the protocol */
    RBLK_STATUS_VERSION = 2,        /* EPROTONOSUPPORT: no common protocol version */
    RBLK_STATUS_NOT_FOUND = 3,      /* ENOENT: no such volume */
    RBLK_STATUS_BUSY = 4,           /* EBUSY: another client holds the volume */
    RBLK_STATUS_READ_ONLY = 5,      /* EROFS */
    RBLK_STATUS_RANGE = 6,          /* EINVAL: beyond the end of the volume or of staging memory */
    RBLK_STATUS_IO = 7,             /* EIO: the backing file failed */
    RBLK_STATUS_NO_SPACE = 8,       /* ENOSPC */
    RBLK_STATUS_NO_MEMORY = 9,      /* ENOMEM */
    RBLK_STATUS_TOKEN = 10,         /* EACCES: no session with that token */
    RBLK_STATUS_LIMIT = 11,         /* EUSERS: a limit of the target is reached */
    RBLK_STATUS_FAILED = 12,        /* EIO: the volume is latched FAILED after an fdatasync error */
    RBLK_STATUS_NOT_SUPPORTED = 13, /* EOPNOTSUPP */
    RBLK_STATUS_SHUTTING_DOWN = 14, /* ESHUTDOWN */
    RBLK_STATUS_PERMISSION = 15,    /* EPERM */
    RBLK_STATUS_STATE = 16,         /* EINVAL: a message that this state does not allow */
    RBLK_STATUS_MAX = RBLK_STATUS_STATE,
};

/* -- private data of connect, accept and reject -------------------------------------------- */

#define RBLK_CONNECT_LEN 32
struct rblk_connect {
    uint16_t version;     /* the highest that the initiator speaks: others are -EPROTONOSUPPORT */
    uint8_t kind;         /* enum rblk_kind */
    uint16_t queue_id;    /* 0..max_queues-1; 0 for control */
    uint16_t queue_depth; /* commands outstanding; 0 for control */
    uint8_t token[RBLK_TOKEN_LEN]; /* of the session, never zero; zero for control */
};
size_t rblk_connect_encode(void *buf, const struct rblk_connect *m);
/* len may exceed the layout, here and below: IB pads private data with zeros. */
int rblk_connect_decode(struct rblk_connect *m, const void *buf, size_t len);

#define RBLK_ACCEPT_LEN 32
struct rblk_accept {
    uint16_t version;
    uint8_t kind;
    uint16_t queue_depth;  /* granted, <= asked; 0 for control */
    uint32_t staging_rkey; /* staging memory of this queue, REMOTE_WRITE; length 0 when read-only */
    uint64_t staging_addr;
    uint32_t staging_len; /* bytes, multiple of RBLK_STAGING_GRANULE, <= RBLK_STAGING_MAX */
};
size_t rblk_accept_encode(void *buf, const struct rblk_accept *m);
int rblk_accept_decode(struct rblk_accept *m, const void *buf, size_t len);

#define RBLK_REJECT_LEN 16
struct rblk_reject {
    uint16_t version; /* highest version the target speaks */
    uint16_t status;  /* enum rblk_status */
};
size_t rblk_reject_encode(void *buf, const struct rblk_reject *m);
/* Takes a reject of any version: its layout never changes. */
int rblk_reject_decode(struct rblk_reject *m, const void *buf, size_t len);

/* -- control messages ---------------------------------------------------------------------- */

/* Requests go initiator -> target; reply type = request type | RBLK_REPLY; events go the other way.
 */
#define RBLK_REPLY 0x80
enum rblk_type {
    RBLK_HELLO = 0x01,
    RBLK_LIST = 0x02,
    RBLK_ATTACH = 0x03,
    RBLK_DETACH = 0x04,
    RBLK_EXTENT_MAP = 0x05,
    RBLK_EXTENT_RELEASE = 0x06,
    RBLK_PING = 0x07,
    RBLK_STATS = 0x08,
    RBLK_EVENT_ACK = 0x40,           /* initiator -> target, has no reply */
    RBLK_EVENT_EXTENT_RECALL = 0x50, /* target -> initiator: give `count` extents back */
    RBLK_EVENT_GOODBYE = 0x51,       /* target -> initiator: shutting down */
};

#define RBLK_HEADER_LEN 16
struct rblk_header {
    uint8_t type;    /* enum rblk_type, | RBLK_REPLY in replies */
    uint16_t status; /* enum rblk_status; non-zero only in replies */
    uint32_t length; /* of the whole message, bytes */
    uint64_t tag;    /* chosen by the requester, echoed by the reply; number of an event */
};
/* Writes the 16-byte header. */
size_t rblk_header_encode(void *buf, const struct rblk_header *h);
/* Checks that length == len <= RBLK_CONTROL_MAX, a known type, and a known status, only in replies.
 */
int rblk_header_decode(struct rblk_header *h, const void *buf, size_t len);

/*
 * Bodies. encode functions write header and body: rblk_X_encode(buf, tag, ...). decode functions
 * take the whole message (header included), already split off by rblk_header_decode.
 * buf holds RBLK_CONTROL_MAX bytes.
 */

/*
 * Error reply: status != OK and a text without terminating zero; what is longer than
 * RBLK_DETAIL_MAX bytes is cut off, what is not printable ASCII becomes '?'. detail may be NULL.
 */
size_t rblk_error_encode(void *buf, uint8_t request_type, uint64_t tag, uint16_t status,
                         const char *detail);
/* Copies the text (what is not printable ASCII becomes '?') into detail[RBLK_DETAIL_MAX + 1]. */
int rblk_error_decode(char *detail, const void *buf, size_t len);

/* Messages without a body: PING, PING reply, DETACH, DETACH reply, STATS, EXTENT_RELEASE reply,
 * EVENT_ACK (tag = number of the event), GOODBYE. */
size_t rblk_empty_encode(void *buf, uint8_t type, uint64_t tag);
int rblk_empty_decode(const void *buf, size_t len);

struct rblk_hello {
    uint16_t version_min, version_max;
    uint32_t features;          /* none defined in version 1: zero */
    uint32_t keepalive_ms;      /* wanted heartbeat interval, 100..600000 */
    char client[RBLK_NAME_LEN]; /* printable: host name and pid, shown to operators */
};
size_t rblk_hello_encode(void *buf, uint64_t tag, const struct rblk_hello *m);
int rblk_hello_decode(struct rblk_hello *m, const void *buf, size_t len);

struct rblk_hello_reply {
    uint16_t version;
    uint16_t auth; /* 0: no authentication asked; others are -EPROTONOSUPPORT in version 1 */
    uint32_t features;
    uint32_t keepalive_ms; /* granted */
    uint8_t target_uuid[RBLK_UUID_LEN];
    char target[RBLK_NAME_LEN];
};
size_t rblk_hello_reply_encode(void *buf, uint64_t tag, const struct rblk_hello_reply *m);
int rblk_hello_reply_decode(struct rblk_hello_reply *m, const void *buf, size_t len);

struct rblk_list {
    uint32_t first; /* index of the first volume wanted */
};
size_t rblk_list_encode(void *buf, uint64_t tag, const struct rblk_list *m);
int rblk_list_decode(struct rblk_list *m, const void *buf, size_t len);

#define RBLK_VOLUME_RO (1u << 0)       /* exported read-only */
#define RBLK_VOLUME_FAILED (1u << 1)   /* latched after an fdatasync error */
#define RBLK_VOLUME_ATTACHED (1u << 2) /* some client has it attached for writing */
#define RBLK_VOLUME_FLAGS 0x7u
#define RBLK_LIST_MAX 40 /* entries of one reply */
struct rblk_list_entry {
    uint64_t size; /* bytes */
    uint32_t flags;
    uint32_t sessions; /* clients attached */
    uint8_t uuid[RBLK_UUID_LEN];
    char name[RBLK_NAME_LEN];
};
struct rblk_list_reply {
    uint32_t total; /* volumes on the target */
    uint32_t first, count;
    struct rblk_list_entry entry[RBLK_LIST_MAX];
};
size_t rblk_list_reply_encode(void *buf, uint64_t tag, const struct rblk_list_reply *m);
int rblk_list_reply_decode(struct rblk_list_reply *m, const void *buf, size_t len);

struct rblk_attach {
    uint8_t mode; /* enum rblk_attach_mode */
    char volume[RBLK_NAME_LEN];
};
size_t rblk_attach_encode(void *buf, uint64_t tag, const struct rblk_attach *m);
int rblk_attach_decode(struct rblk_attach *m, const void *buf, size_t len);

struct rblk_attach_reply {
    uint8_t token[RBLK_TOKEN_LEN];
    uint8_t uuid[RBLK_UUID_LEN]; /* of the volume: survives a restart of the target */
    uint64_t size;               /* bytes, exact */
    uint64_t extent_size;        /* bytes, power of two >= 4096 */
    uint64_t write_verifier;     /* changes when acknowledged, unflushed writes may be lost */
    uint32_t flags;              /* RBLK_VOLUME_* */
    uint32_t max_queues;         /* 1..RBLK_QUEUES_MAX */
    uint32_t max_queue_depth;    /* 1..RBLK_QUEUE_DEPTH_MAX */
    uint32_t max_io;             /* bytes of one WRITE, >= 1, <= staging_len of a writable queue */
    uint32_t max_inline;         /* bytes of in-message write data, <= RBLK_INLINE_MAX */
    uint32_t max_reads; /* outstanding RDMA READs that the target's device serves per QP, >= 1 */
};
size_t rblk_attach_reply_encode(void *buf, uint64_t tag, const struct rblk_attach_reply *m);
int rblk_attach_reply_decode(struct rblk_attach_reply *m, const void *buf, size_t len);

struct rblk_extent_map {
    uint64_t first; /* extent index */
    uint32_t count; /* 1..RBLK_EXTENTS_PER_MESSAGE */
};
size_t rblk_extent_map_encode(void *buf, uint64_t tag, const struct rblk_extent_map *m);
int rblk_extent_map_decode(struct rblk_extent_map *m, const void *buf, size_t len);

struct rblk_extent_entry {
    uint64_t addr;   /* remote address of the extent's first byte */
    uint64_t length; /* bytes, >= 1 */
    uint32_t rkey;
};
struct rblk_extent_map_reply {
    uint64_t first;
    uint32_t count; /* 1..asked: a target may map fewer, at least one */
    struct rblk_extent_entry entry[RBLK_EXTENTS_PER_MESSAGE];
};
size_t rblk_extent_map_reply_encode(void *buf, uint64_t tag, const struct rblk_extent_map_reply *m);
int rblk_extent_map_reply_decode(struct rblk_extent_map_reply *m, const void *buf, size_t len);

/* The initiator has stopped using these extents and drained its reads: the target may deregister.
 */
struct rblk_extent_release {
    uint32_t count; /* 1..RBLK_EXTENTS_PER_MESSAGE */
    uint64_t index[RBLK_EXTENTS_PER_MESSAGE];
};
size_t rblk_extent_release_encode(void *buf, uint64_t tag, const struct rblk_extent_release *m);
int rblk_extent_release_decode(struct rblk_extent_release *m, const void *buf, size_t len);

struct rblk_extent_recall {
    uint32_t count; /* extents that the target wants back (>= 1), the initiator chooses which */
};
size_t rblk_extent_recall_encode(void *buf, uint64_t tag, const struct rblk_extent_recall *m);
int rblk_extent_recall_decode(struct rblk_extent_recall *m, const void *buf, size_t len);

/* Counters since the target started (of the whole target, not of one client). */
struct rblk_stats_reply {
    uint64_t control_messages; /* received */
    uint64_t io_messages;      /* commands received on I/O queues */
    uint64_t writes, write_bytes, flushes, fua_writes;
    uint64_t fdatasyncs;      /* io_uring fsync operations completed */
    uint64_t errors;          /* commands answered with a status other than OK */
    uint64_t extents_mapped;  /* registrations held now */
    uint64_t extent_bytes;    /* bytes registered now */
    uint64_t sessions;        /* attached now */
    uint64_t queues;          /* I/O queues connected now */
    uint64_t protocol_errors; /* connections closed for breaking the protocol */
    uint64_t uptime_ms;
};
size_t rblk_stats_reply_encode(void *buf, uint64_t tag, const struct rblk_stats_reply *m);
int rblk_stats_reply_decode(struct rblk_stats_reply *m, const void *buf, size_t len);

/* -- messages of I/O queues ---------------------------------------------------------------- */

enum rblk_opcode {
    RBLK_OP_WRITE = 1,
    RBLK_OP_FLUSH = 2,
    /* 3 READ_STAGED, 4 DISCARD, 5 WRITE_ZEROES are reserved for later versions */
};
#define RBLK_CMD_FUA (1u << 0)    /* WRITE: durable before it completes */
#define RBLK_CMD_INLINE (1u << 1) /* WRITE: the data follows the command in the same message */
#define RBLK_CMD_FLAGS 0x3u

struct rblk_command {
    uint8_t opcode;
    uint8_t flags;
    uint16_t slot;           /* 0..queue_depth-1, not in use: this is the credit */
    uint32_t length;         /* bytes written; 0 for FLUSH */
    uint64_t offset;         /* in the volume, bytes; 0 for FLUSH */
    uint32_t staging_offset; /* WRITE without INLINE: where in staging memory the data lies */
};
/* Writes RBLK_COMMAND_LEN bytes; inline data is not copied. */
size_t rblk_command_encode(void *buf, const struct rblk_command *m);
/* len is the whole message: checks that inline data has exactly `length` bytes, and 1 <= length for
 * WRITE. Bounds against volume, staging and depth are the target's (it knows them). */
int rblk_command_decode(struct rblk_command *m, const void *buf, size_t len);

struct rblk_completion {
    uint16_t slot;
    uint16_t status;
    uint64_t write_verifier;
};
size_t rblk_completion_encode(void *buf, const struct rblk_completion *m);
int rblk_completion_decode(struct rblk_completion *m, const void *buf, size_t len);

/* -- status table (status.c) --------------------------------------------------------------- */

/* Positive errno for a status; unknown numbers give EPROTO. */
int rblk_status_to_errno(uint16_t status);
/* Status for a positive errno of the backing file; unknown numbers give RBLK_STATUS_IO. */
enum rblk_status rblk_status_from_errno(int error);
/* Static text, never NULL. */
const char *rblk_status_text(uint16_t status);

/* True when s is 1..63 bytes of [A-Za-z0-9._-], not starting with '.' or '-'. */
bool rblk_volume_name_valid(const char *s);

#endif
