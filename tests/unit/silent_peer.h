/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * silent_peer.h -- the passive end of an iWARP stream, by hand: it agrees and then counts what comes
 *
 * One thread, silent_peer_main; who started it reads the counters after it has been joined.
 */
#ifndef RBLK_TESTS_SILENT_PEER_H
#define RBLK_TESTS_SILENT_PEER_H

#include <arpa/inet.h>
#include <check.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SILENT_PEER_MPA 20 /* bytes of an MPA request or reply before its private data */

struct silent_peer {
    int listener;
    uint16_t port_be;
    const void *private_data; /* of its reply */
    uint8_t private_len;
    bool answers; /* with one Send, to the first that comes */
    uint32_t sends, empty_writes, others;
};

static inline void silent_peer_listen(struct silent_peer *peer)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);

    peer->listener = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(bind(peer->listener, (struct sockaddr *)&address, sizeof(address)), 0);
    ck_assert_int_eq(listen(peer->listener, 8), 0);
    ck_assert_int_eq(getsockname(peer->listener, (struct sockaddr *)&address, &length), 0);
    peer->port_be = address.sin_port;
}

static inline void silent_peer_count(struct silent_peer *peer, const uint8_t *frame,
                                     uint32_t length)
{
    if (frame[3] == 0x43) /* RDMAP version 1, Send */
        peer->sends++;
    else if (frame[3] == 0x40 && length == 14) /* Write, nothing behind STag and offset */
        peer->empty_writes++;
    else
        peer->others++;
}

static inline void silent_peer_agree(const struct silent_peer *peer, int fd)
{
    uint8_t frame[SILENT_PEER_MPA + UINT8_MAX];
    ssize_t n;

    ck_assert_int_eq(recv(fd, frame, SILENT_PEER_MPA, MSG_WAITALL), SILENT_PEER_MPA);
    n = frame[18] << 8 | frame[19];
    ck_assert_int_le(n, UINT8_MAX);
    ck_assert_int_eq(recv(fd, frame + SILENT_PEER_MPA, (size_t)n, MSG_WAITALL), n);
    memcpy(frame, "MPA ID Rep Frame\x00\x01\x00", 19);
    frame[19] = peer->private_len;
    if (peer->private_len > 0)
        memcpy(frame + SILENT_PEER_MPA, peer->private_data, peer->private_len);
    n = SILENT_PEER_MPA + peer->private_len;
    ck_assert_int_eq(send(fd, frame, (size_t)n, 0), n);
}

/* Serves one connection until that ends. */
static inline void *silent_peer_main(void *opaque)
{
    /* Untagged, last, Send, queue 0, message 1, four bytes, CRC field. */
    static const uint8_t answer[28] = {0, 22, 0x41, 0x43, [15] = 1, [20] = 'r', 'b', 'l', 'k'};
    struct silent_peer *peer = opaque;
    int fd = accept(peer->listener, NULL, NULL);
    uint8_t in[4096];
    uint32_t got = 0;
    ssize_t n;

    silent_peer_agree(peer, fd);
    while ((n = recv(fd, in + got, sizeof(in) - got, 0)) > 0) {
        got += (uint32_t)n;
        for (;;) {
            uint32_t length = got >= 2 ? (uint32_t)in[0] << 8 | in[1] : 0;
            uint32_t whole = (length + 2 + 3) / 4 * 4 + 4;

            if (got < 4 || got < whole)
                break;
            silent_peer_count(peer, in, length);
            memmove(in, in + whole, got - whole);
            got -= whole;
            if (peer->answers && peer->sends == 1 && peer->empty_writes == 0)
                ck_assert_int_eq(send(fd, answer, sizeof(answer), 0), sizeof(answer));
        }
    }
    close(fd);
    close(peer->listener);
    return NULL;
}

#endif
