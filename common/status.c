/* SPDX-License-Identifier: BSD-2-Clause */
/* status -- the one table between the protocol's status numbers, errno and text */
#include <errno.h>

#include "wire.h"

static const struct {
    int error; /* what the initiator's caller gets, positive errno */
    const char *text;
} table[RBLK_STATUS_MAX + 1] = {
    [RBLK_STATUS_OK] = {0, "success"},
    [RBLK_STATUS_MALFORMED] = {EPROTO, "malformed message"},
    [RBLK_STATUS_VERSION] = {EPROTONOSUPPORT, "no common protocol version"},
    [RBLK_STATUS_NOT_FOUND] = {ENOENT, "no such volume"},
    [RBLK_STATUS_BUSY] = {EBUSY, "another client holds the volume"},
    [RBLK_STATUS_READ_ONLY] = {EROFS, "the volume is read-only"},
    [RBLK_STATUS_RANGE] = {EINVAL, "beyond the end of the volume or of staging memory"},
    [RBLK_STATUS_IO] = {EIO, "I/O error of the backing file"},
    [RBLK_STATUS_NO_SPACE] = {ENOSPC, "no space left under the backing file"},
    [RBLK_STATUS_NO_MEMORY] = {ENOMEM, "the target is out of memory"},
    [RBLK_STATUS_TOKEN] = {EACCES, "no session with that token"},
    [RBLK_STATUS_LIMIT] = {EUSERS, "a limit of the target is reached"},
    [RBLK_STATUS_FAILED] = {EIO, "the volume failed: a flush was lost"},
    [RBLK_STATUS_NOT_SUPPORTED] = {EOPNOTSUPP, "not supported by the target"},
    [RBLK_STATUS_SHUTTING_DOWN] = {ESHUTDOWN, "the target is shutting down"},
    [RBLK_STATUS_PERMISSION] = {EPERM, "not permitted by the target"},
    [RBLK_STATUS_STATE] = {EINVAL, "message not allowed in this state"},
};

int rblk_status_to_errno(uint16_t status)
{
    return status <= RBLK_STATUS_MAX ? table[status].error : EPROTO;
}

const char *rblk_status_text(uint16_t status)
{
    return status <= RBLK_STATUS_MAX ? table[status].text : "unknown status";
}

/*
 * Not the table read backwards: what a backing file reports is a smaller set, and an EINVAL or
 * EPROTO of the kernel is a failure of the target, not a mistake of the client.
 */
enum rblk_status rblk_status_from_errno(int error)
{
    switch (error) {
    case 0:
        return RBLK_STATUS_OK;
    case ENOENT:
        return RBLK_STATUS_NOT_FOUND;
    case EBUSY:
        return RBLK_STATUS_BUSY;
    case EROFS:
        return RBLK_STATUS_READ_ONLY;
    case ENOSPC:
    case EDQUOT:
        return RBLK_STATUS_NO_SPACE;
    case ENOMEM:
    case ENOBUFS:
        return RBLK_STATUS_NO_MEMORY;
    case EMFILE:
    case ENFILE:
    case EUSERS:
        return RBLK_STATUS_LIMIT;
    case EOPNOTSUPP:
        return RBLK_STATUS_NOT_SUPPORTED;
    case ESHUTDOWN:
        return RBLK_STATUS_SHUTTING_DOWN;
    case EPERM:
    case EACCES:
        return RBLK_STATUS_PERMISSION;
    default:
        return RBLK_STATUS_IO;
    }
}
