/* SPDX-License-Identifier: BSD-2-Clause */
/* uri -- rblk://HOST[:PORT][/VOLUME], and HOST[:PORT] alone */
#ifndef RBLK_COMMON_URI_H
#define RBLK_COMMON_URI_H

#include <stddef.h>
#include <stdint.h>

#include "wire.h"

struct rblk_uri {
    char host[256];             /* without brackets; a zone (%eth0) is kept */
    uint16_t port;              /* RBLK_DEFAULT_PORT when the URI has none */
    char volume[RBLK_NAME_LEN]; /* empty when the URI names a target only */
};

/*
 * Parses text. Returns 0, or -EINVAL with one line in err[errlen] that names the URI, what is wrong
 * with it and what it should look like. *uri is untouched on failure.
 */
int rblk_uri_parse(struct rblk_uri *uri, const char *text, char *err, size_t errlen);

/*
 * Parses "HOST", "HOST:PORT", "[V6]:PORT", "[V6]" or ":PORT" (host becomes "") as rblkd --listen
 * takes it. Without a port *port is RBLK_DEFAULT_PORT; port 0 is taken, for "any free one". 0, or
 * -EINVAL with one line in err; outputs are untouched on failure.
 */
int rblk_address_parse(char *host, size_t hostlen, uint16_t *port, const char *text, char *err,
                       size_t errlen);

/* Writes the URI back, with brackets and port when they are needed. Returns as snprintf does. */
int rblk_uri_format(char *buf, size_t len, const struct rblk_uri *uri);

#endif
