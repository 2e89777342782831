/* SPDX-License-Identifier: BSD-2-Clause */
/* connect_error -- what to tell a user whose connection did not come about: object, cause, remedy
 * */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/size.h"
#include "common/verbs.h"
#include "connect.h"
#include "control.h"

/* The target itself refused, with a reason of the protocol. */
static int refused_by_target(char *text, size_t len, const char *address,
                             const struct rblk_reject *reject)
{
    int error = -rblk_status_to_errno(reject->status);

    if (reject->status == RBLK_STATUS_VERSION)
        snprintf(text, len,
                 "%s speaks version %u of the rblk protocol and this program version %u; update "
                 "the older side",
                 address, reject->version, RBLK_WIRE_VERSION);
    else if (reject->status == RBLK_STATUS_SHUTTING_DOWN)
        snprintf(text, len, "%s is shutting down; try again when rblkd runs again", address);
    else if (reject->status == RBLK_STATUS_LIMIT)
        snprintf(text, len, "%s has no room for another connection; close one, or raise its limits",
                 address);
    else
        snprintf(text, len, "%s refuses the connection: %s", address,
                 rblk_status_text(reject->status));
    return error;
}

static int not_rblk(char *text, size_t len, const char *address, const char *what)
{
    snprintf(text, len,
             "%s: connected, but the peer does not speak iWARP or rblk (%s); is that rblkd's port, "
             "and do both ends use the same kind of provider (soft talks to soft or to iWARP "
             "devices)?",
             address, what);
    return -EPROTO;
}

static int unreachable(char *text, size_t len, const char *address, int error)
{
    snprintf(text, len, "%s cannot be reached: %s; check the address and the route to it", address,
             strerror(error));
    return -error;
}

static int nobody_listens(char *text, size_t len, const char *address)
{
    snprintf(text, len, "%s refused the connection; is rblkd running there, and is that its port?",
             address);
    return -ECONNREFUSED;
}

static int timed_out(char *text, size_t len, const char *address)
{
    snprintf(text, len,
             "%s does not answer; is the host up, does a firewall drop its port, is it rblkd?",
             address);
    return -ETIMEDOUT;
}

static int no_device(char *text, size_t len, const char *address, int error)
{
    snprintf(text, len,
             "no RDMA device of this machine leads to %s (%s); use the software provider "
             "(--provider soft) or another address",
             address, strerror(error));
    return -error;
}

static int rejected(char *text, size_t len, const char *address, const struct rblk_endpoint *ep)
{
    struct rblk_reject reject;

    if (rblk_reject_decode(&reject, ep->private_data, ep->private_len) == 0)
        return refused_by_target(text, len, address, &reject);
    /* Kernel iWARP reports a peer that hangs up during the handshake this way. */
    if (ep->status == -ECONNRESET)
        return not_rblk(text, len, address, "it closed the connection at once");
    return nobody_listens(text, len, address);
}

static int from_event(char *text, size_t len, const char *address, const struct rblk_endpoint *ep)
{
    int error = ep->status < 0 ? -ep->status : EHOSTUNREACH;

    switch (ep->event) {
    case RDMA_CM_EVENT_REJECTED:
        return rejected(text, len, address, ep);
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
        return error == ENODEV ? no_device(text, len, address, error)
                               : unreachable(text, len, address, error);
    case RDMA_CM_EVENT_UNREACHABLE:
        break;
    case RDMA_CM_EVENT_CONNECT_ERROR:
        if (error == EPROTO)
            return not_rblk(text, len, address, "its answer makes no sense");
        if (error == ECONNRESET)
            return not_rblk(text, len, address, "it closed the connection at once");
        if (error == ETIMEDOUT)
            return not_rblk(text, len, address, "it says nothing");
        break;
    default:
        return not_rblk(text, len, address, "it closed the connection");
    }
    if (error == ECONNREFUSED)
        return nobody_listens(text, len, address);
    if (error == ETIMEDOUT)
        return timed_out(text, len, address);
    return unreachable(text, len, address, error);
}

int rblk_connect_error(char *text, size_t len, const char *address, const struct rblk_endpoint *ep,
                       int rc)
{
    switch (rc) {
    case -EIO:
        return from_event(text, len, address, ep);
    case -ETIMEDOUT:
        return timed_out(text, len, address);
    case -ENODEV:
        return no_device(text, len, address, -rc);
    case -ECONNREFUSED:
        return nobody_listens(text, len, address);
    default:
        return unreachable(text, len, address, -rc);
    }
}

int rblk_fail_connect(const struct rblk *h, const char *address, const struct rblk_endpoint *ep,
                      int rc)
{
    char text[RBLK_ERROR_TEXT_MAX];

    /* The control connection failed first, and its reason is the true one. */
    if (rc == -ECANCELED && ep->conn && rblk_conn_failed(ep->conn))
        return rblk_fail(h, rblk_conn_failed(ep->conn), "%s", ep->conn->failure_text);
    rc = rblk_connect_error(text, sizeof(text), address, ep, rc);
    return rblk_fail(h, rc, "%s", text);
}

int rblk_fail_register(const struct rblk *h, int error, size_t len)
{
    uint64_t limit = rblk_memlock_limit();
    char need[32], allowed[32];

    rblk_size_format(need, sizeof(need), len);
    if (error == -ENOMEM && limit != UINT64_MAX)
        return rblk_fail(h, error,
                         "cannot register %s of memory: the limit of locked memory (memlock) is "
                         "%s; raise it with ulimit -l, LimitMEMLOCK= or CAP_IPC_LOCK",
                         need, rblk_size_format(allowed, sizeof(allowed), limit));
    return rblk_fail(h, error, "cannot register %s of memory with the RDMA device: %s", need,
                     strerror(-error));
}
