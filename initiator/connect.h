/* SPDX-License-Identifier: BSD-2-Clause */
/* connect -- from a URI to an attached volume with open queues, and what to say when that fails */
#ifndef RBLK_INITIATOR_CONNECT_H
#define RBLK_INITIATOR_CONNECT_H

#include <netdb.h>
#include <stddef.h>
#include <stdint.h>

#include "endpoint.h"
#include "handle.h"

/* Ends everything that connecting made, in order: detach is true when a volume may be attached.
 * Requests in flight end with `error` and their callbacks run. The handle is NEW again. */
void rblk_teardown(struct rblk *h, bool detach, int error);

/* -- connect_error.c ------------------------------------------------------------------------- */

/*
 * Says why a connection did not come about. rc: what rblk_endpoint_open or rblk_endpoint_connect
 * returned; address: the peer as text. Returns the errno for the caller (negative) and the line in
 * text[len].
 */
int rblk_connect_error(char *text, size_t len, const char *address, const struct rblk_endpoint *ep,
                       int rc);
/* The same, kept as the handle's error text. */
int rblk_fail_connect(const struct rblk *h, const char *address, const struct rblk_endpoint *ep,
                      int rc);
/* A memory registration of len bytes failed with `error` (negative errno). */
int rblk_fail_register(const struct rblk *h, int error, size_t len);

/* -- resolve.c ------------------------------------------------------------------------------- */

/*
 * getaddrinfo(3) for TCP with a deadline: 0 and *out (freeaddrinfo), an EAI_ code (positive or
 * negative as the C library has them), or EAI_SYSTEM with errno ETIMEDOUT when the deadline passed.
 */
int rblk_resolve(struct addrinfo **out, const char *host, uint16_t port, uint64_t deadline_ns);

#endif
