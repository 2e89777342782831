/* SPDX-License-Identifier: BSD-2-Clause */
/* uri -- rblk://HOST[:PORT][/VOLUME], and HOST[:PORT] alone */
#include "uri.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "size.h"

#define SCHEME "rblk://"
#define SHOWN_MAX 80 /* bytes of the user's text that an error repeats: enough to recognise it */

static const char expected_uri[] = "rblk://HOST[:PORT]/VOLUME";
static const char expected_address[] = "HOST[:PORT] or [IPV6]:PORT";

/* What is wrong, and where: static text. */
struct problem {
    const char *cause;
};

static int fail(struct problem *problem, const char *cause)
{
    problem->cause = cause;
    return -EINVAL;
}

static bool host_name_valid(const char *host)
{
    return host[0] != '-' &&
           strspn(host, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") ==
               strlen(host);
}

/* What stands between brackets: an IPv6 address and perhaps a zone, "fe80::1%eth0" (RFC 4007). */
static bool ipv6_valid(const char *host)
{
    char address[INET6_ADDRSTRLEN];
    const char *zone = strchrnul(host, '%');
    size_t len = (size_t)(zone - host);
    struct in6_addr binary;

    if (len >= sizeof address)
        return false;
    memcpy(address, host, len);
    address[len] = '\0';
    if (inet_pton(AF_INET6, address, &binary) != 1)
        return false;
    if (*zone == '\0')
        return true;
    zone++;
    return *zone != '\0' && strlen(zone) < IF_NAMESIZE && !strpbrk(zone, "%/ \t[]");
}

/* Copies text[0..len) as a string. */
static int copy_host(char *host, size_t hostlen, const char *text, size_t len,
                     struct problem *problem)
{
    if (len >= hostlen)
        return fail(problem, "the host is too long");
    memcpy(host, text, len);
    host[len] = '\0';
    return 0;
}

/* Splits "[V6]" or "[V6]:PORT"; *port_text becomes NULL when there is no port. */
static int split_brackets(char *host, size_t hostlen, const char **port_text, const char *text,
                          struct problem *problem)
{
    const char *close = strchr(text, ']');
    int rc;

    if (!close)
        return fail(problem, "the closing bracket is missing");
    if (close[1] != '\0' && close[1] != ':')
        return fail(problem, "something other than a port follows the closing bracket");
    rc = copy_host(host, hostlen, text + 1, (size_t)(close - text - 1), problem);
    if (rc < 0)
        return rc;
    if (!ipv6_valid(host))
        return fail(problem, "there is no IPv6 address in the brackets");
    *port_text = close[1] == ':' ? close + 2 : NULL;
    return 0;
}

static int split_name(char *host, size_t hostlen, const char **port_text, const char *text,
                      struct problem *problem)
{
    const char *colon = strchr(text, ':');
    size_t len = colon ? (size_t)(colon - text) : strlen(text);
    int rc;

    if (colon && strchr(colon + 1, ':'))
        return fail(problem, "an IPv6 address needs brackets, as in [::1]:7470");
    rc = copy_host(host, hostlen, text, len, problem);
    if (rc < 0)
        return rc;
    if (!host_name_valid(host))
        return fail(problem, "the host has a character that no host name has");
    *port_text = colon ? colon + 1 : NULL;
    return 0;
}

/* host and port of "HOST", "HOST:PORT", "[V6]", "[V6]:PORT", ":PORT"; outputs only on success. */
static int split_address(char *host, size_t hostlen, uint16_t *port, const char *text,
                         uint16_t port_min, struct problem *problem)
{
    const char *port_text;
    uint64_t number = RBLK_DEFAULT_PORT;
    int rc;

    if (text[0] == '[')
        rc = split_brackets(host, hostlen, &port_text, text, problem);
    else
        rc = split_name(host, hostlen, &port_text, text, problem);
    if (rc < 0)
        return rc;
    if (port_text && rblk_number_parse(&number, port_text, port_min, UINT16_MAX) < 0)
        return fail(problem, port_min ? "the port is not a number from 1 to 65535"
                                      : "the port is not a number up to 65535");
    *port = (uint16_t)number;
    return 0;
}

/* The authority is text up to the first slash; what follows the slash is the volume. */
static int split_uri(struct rblk_uri *uri, const char *text, struct problem *problem)
{
    char authority[sizeof uri->host + 16]; /* brackets, colon, port */
    const char *slash = strchrnul(text, '/');
    size_t len = (size_t)(slash - text);
    int rc;

    if (len >= sizeof authority)
        return fail(problem, "the host is too long");
    memcpy(authority, text, len);
    authority[len] = '\0';
    rc = split_address(uri->host, sizeof uri->host, &uri->port, authority, 1, problem);
    if (rc < 0)
        return rc;
    if (uri->host[0] == '\0')
        return fail(problem, "the host is missing");
    if (*slash == '\0' || slash[1] == '\0')
        return 0; /* a target, no volume */
    if (!rblk_volume_name_valid(slash + 1))
        return fail(problem, "the volume is not 1 to 63 letters, digits, '.', '_' or '-'");
    strcpy(uri->volume, slash + 1); /* a valid name fits */
    return 0;
}

static void explain(char *err, size_t errlen, const char *what, const char *text,
                    const struct problem *problem, const char *expected)
{
    snprintf(err, errlen, "%s \"%.*s\"%s: %s; it should look like %s", what, SHOWN_MAX, text,
             strlen(text) > SHOWN_MAX ? "..." : "", problem->cause, expected);
}

int rblk_uri_parse(struct rblk_uri *uri, const char *text, char *err, size_t errlen)
{
    struct problem problem = {NULL};
    struct rblk_uri out;
    int rc;

    memset(&out, 0, sizeof out);
    if (strncasecmp(text, SCHEME, strlen(SCHEME)) == 0)
        rc = split_uri(&out, text + strlen(SCHEME), &problem);
    else if (strstr(text, "://"))
        rc = fail(&problem, "the scheme is not rblk");
    else if (strchr(text, '/'))
        rc = fail(&problem, "the scheme is missing");
    else
        rc = split_uri(&out, text, &problem);
    if (rc < 0) {
        explain(err, errlen, "URI", text, &problem, expected_uri);
        return rc;
    }
    *uri = out;
    return 0;
}

int rblk_address_parse(char *host, size_t hostlen, uint16_t *port, const char *text, char *err,
                       size_t errlen)
{
    struct problem problem = {NULL};
    char out_host[sizeof((struct rblk_uri *)0)->host];
    uint16_t out_port;
    int rc;

    rc = split_address(out_host, sizeof out_host, &out_port, text, 0, &problem);
    if (rc == 0 && strlen(out_host) >= hostlen)
        rc = fail(&problem, "the host is too long");
    if (rc == 0 && text[0] == '\0')
        rc = fail(&problem, "it is empty");
    if (rc < 0) {
        explain(err, errlen, "address", text, &problem, expected_address);
        return rc;
    }
    strcpy(host, out_host);
    *port = out_port;
    return 0;
}

int rblk_uri_format(char *buf, size_t len, const struct rblk_uri *uri)
{
    bool brackets = strchr(uri->host, ':') != NULL;
    char port[8] = "";

    if (uri->port != RBLK_DEFAULT_PORT)
        snprintf(port, sizeof port, ":%u", uri->port);
    return snprintf(buf, len, "rblk://%s%s%s%s%s%s", brackets ? "[" : "", uri->host,
                    brackets ? "]" : "", port, uri->volume[0] ? "/" : "", uri->volume);
}
