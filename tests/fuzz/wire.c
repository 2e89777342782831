/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * wire -- rblk's own messages, as the target and as the initiator parse them
 *
 * First byte of the input: which kind of message; the rest is the message. Whatever decodes must
 * encode to the same bytes again, because reserved bytes are zero and every value has one form.
 */
#include "fuzz.h"

#include "common/wire.h"
#include "initiator/extent.h"

/* A volume whose last extent is short. */
#define VOLUME_SIZE ((40u << 20) + 4097)
#define EXTENT_SIZE (1u << 20)

static uint8_t out[RBLK_CONTROL_MAX + RBLK_INLINE_MAX];

/* padded: the peer may have put zeros behind the layout (private data on InfiniBand). */
static void same(const uint8_t *message, size_t size, size_t encoded, bool padded)
{
    FUZZ_CHECK(padded ? encoded <= size : encoded == size);
    FUZZ_CHECK(memcmp(message, out, encoded) == 0);
}

static void private_data(uint8_t which, const uint8_t *message, size_t size)
{
    struct rblk_connect connect;
    struct rblk_accept accept;
    struct rblk_reject reject;

    if (which == 0 && rblk_connect_decode(&connect, message, size) == 0) {
        FUZZ_CHECK(connect.queue_id < RBLK_QUEUES_MAX);
        FUZZ_CHECK(connect.queue_depth <= RBLK_QUEUE_DEPTH_MAX);
        same(message, size, rblk_connect_encode(out, &connect), true);
    }
    if (which == 1 && rblk_accept_decode(&accept, message, size) == 0) {
        FUZZ_CHECK(accept.staging_len <= RBLK_STAGING_MAX);
        FUZZ_CHECK(accept.staging_addr + accept.staging_len >= accept.staging_addr);
        same(message, size, rblk_accept_encode(out, &accept), true);
    }
    if (which == 2 && rblk_reject_decode(&reject, message, size) == 0)
        same(message, size, rblk_reject_encode(out, &reject), true);
}

/* What the initiator does with addresses that a target sends. */
static void publish(const struct rblk_extent_map_reply *reply)
{
    struct rblk_extents extents = {0};
    uint64_t address, left;
    uint32_t key;

    FUZZ_CHECK(rblk_extents_init(&extents, VOLUME_SIZE, EXTENT_SIZE) == 0);
    for (uint64_t i = 0; i < extents.count; i++)
        rblk_extents_request(&extents, i);
    for (uint32_t i = 0; i < reply->count; i++) {
        uint64_t index = reply->first + i;

        if (rblk_extents_publish(&extents, index, &reply->entry[i], 1) != 0)
            continue;
        FUZZ_CHECK(rblk_extents_lookup(&extents, index * EXTENT_SIZE, 1, &address, &key, &left));
        FUZZ_CHECK(address == reply->entry[i].addr && left == reply->entry[i].length);
        FUZZ_CHECK(address + (left - 1) >= address);
    }
    rblk_extents_free(&extents);
}

static void request(const struct rblk_header *header, const uint8_t *message, size_t size)
{
    struct rblk_hello hello;
    struct rblk_list list;
    struct rblk_attach attach;
    struct rblk_extent_map map;
    struct rblk_extent_release release;
    struct rblk_extent_recall recall;

    switch (header->type) {
    case RBLK_HELLO:
        if (rblk_hello_decode(&hello, message, size) == 0) {
            FUZZ_CHECK(memchr(hello.client, '\0', sizeof(hello.client)) != NULL);
            same(message, size, rblk_hello_encode(out, header->tag, &hello), false);
        }
        break;
    case RBLK_LIST:
        if (rblk_list_decode(&list, message, size) == 0)
            same(message, size, rblk_list_encode(out, header->tag, &list), false);
        break;
    case RBLK_ATTACH:
        if (rblk_attach_decode(&attach, message, size) == 0) {
            FUZZ_CHECK(rblk_volume_name_valid(attach.volume));
            same(message, size, rblk_attach_encode(out, header->tag, &attach), false);
        }
        break;
    case RBLK_EXTENT_MAP:
        if (rblk_extent_map_decode(&map, message, size) == 0) {
            FUZZ_CHECK(map.count >= 1 && map.count <= RBLK_EXTENTS_PER_MESSAGE);
            FUZZ_CHECK(map.first + map.count >= map.first);
            same(message, size, rblk_extent_map_encode(out, header->tag, &map), false);
        }
        break;
    case RBLK_EXTENT_RELEASE:
        if (rblk_extent_release_decode(&release, message, size) == 0) {
            FUZZ_CHECK(release.count >= 1 && release.count <= RBLK_EXTENTS_PER_MESSAGE);
            same(message, size, rblk_extent_release_encode(out, header->tag, &release), false);
        }
        break;
    case RBLK_EVENT_EXTENT_RECALL:
        if (rblk_extent_recall_decode(&recall, message, size) == 0)
            same(message, size, rblk_extent_recall_encode(out, header->tag, &recall), false);
        break;
    default:
        if (rblk_empty_decode(message, size) == 0)
            same(message, size, rblk_empty_encode(out, header->type, header->tag), false);
        break;
    }
}

static void good_reply(const struct rblk_header *header, const uint8_t *message, size_t size)
{
    struct rblk_hello_reply hello;
    struct rblk_list_reply list;
    struct rblk_attach_reply attach;
    struct rblk_extent_map_reply map;
    struct rblk_stats_reply stats;

    switch (header->type) {
    case RBLK_HELLO | RBLK_REPLY:
        if (rblk_hello_reply_decode(&hello, message, size) == 0)
            same(message, size, rblk_hello_reply_encode(out, header->tag, &hello), false);
        break;
    case RBLK_LIST | RBLK_REPLY:
        if (rblk_list_reply_decode(&list, message, size) == 0) {
            FUZZ_CHECK(list.count <= RBLK_LIST_MAX);
            same(message, size, rblk_list_reply_encode(out, header->tag, &list), false);
        }
        break;
    case RBLK_ATTACH | RBLK_REPLY:
        if (rblk_attach_reply_decode(&attach, message, size) == 0) {
            FUZZ_CHECK(attach.extent_size >= RBLK_EXTENT_SIZE_MIN);
            FUZZ_CHECK((attach.extent_size & (attach.extent_size - 1)) == 0);
            FUZZ_CHECK(attach.max_queues >= 1 && attach.max_queues <= RBLK_QUEUES_MAX);
            same(message, size, rblk_attach_reply_encode(out, header->tag, &attach), false);
        }
        break;
    case RBLK_EXTENT_MAP | RBLK_REPLY:
        if (rblk_extent_map_reply_decode(&map, message, size) == 0) {
            FUZZ_CHECK(map.count >= 1 && map.count <= RBLK_EXTENTS_PER_MESSAGE);
            same(message, size, rblk_extent_map_reply_encode(out, header->tag, &map), false);
            publish(&map);
        }
        break;
    case RBLK_STATS | RBLK_REPLY:
        if (rblk_stats_reply_decode(&stats, message, size) == 0)
            same(message, size, rblk_stats_reply_encode(out, header->tag, &stats), false);
        break;
    default:
        if (rblk_empty_decode(message, size) == 0)
            same(message, size, rblk_empty_encode(out, header->type, header->tag), false);
        break;
    }
}

static void control(const uint8_t *message, size_t size)
{
    char detail[RBLK_DETAIL_MAX + 1];
    struct rblk_header header;

    if (rblk_header_decode(&header, message, size) != 0)
        return;
    FUZZ_CHECK(header.length == size && size <= RBLK_CONTROL_MAX);
    if (!(header.type & RBLK_REPLY)) {
        FUZZ_CHECK(header.status == RBLK_STATUS_OK);
        request(&header, message, size);
    } else if (header.status == RBLK_STATUS_OK) {
        good_reply(&header, message, size);
    } else if (rblk_error_decode(detail, message, size) == 0) {
        FUZZ_CHECK(strlen(detail) <= RBLK_DETAIL_MAX);
        FUZZ_CHECK(rblk_status_to_errno(header.status) > 0);
        FUZZ_CHECK(rblk_error_encode(out, header.type & (uint8_t)~RBLK_REPLY, header.tag,
                                     header.status, detail) == size);
    }
}

static void queue(uint8_t which, const uint8_t *message, size_t size)
{
    struct rblk_command command;
    struct rblk_completion completion;

    if (which == 4 && rblk_command_decode(&command, message, size) == 0) {
        FUZZ_CHECK(command.opcode == RBLK_OP_WRITE || command.opcode == RBLK_OP_FLUSH);
        same(message, size, rblk_command_encode(out, &command), true);
        FUZZ_CHECK(size ==
                   RBLK_COMMAND_LEN + (command.flags & RBLK_CMD_INLINE ? command.length : 0));
    }
    if (which == 5 && rblk_completion_decode(&completion, message, size) == 0)
        same(message, size, rblk_completion_encode(out, &completion), false);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    uint8_t which = fuzz_byte(&in) % 6;
    uint8_t *message;

    if (in.left > RBLK_COMMAND_LEN + RBLK_INLINE_MAX)
        return 0;
    message = fuzz_copy(in.data, in.left);
    if (which < 3)
        private_data(which, message, in.left);
    else if (which == 3)
        control(message, in.left);
    else
        queue(which, message, in.left);
    free(message);
    return 0;
}
