/* SPDX-License-Identifier: BSD-2-Clause */
/* runtime -- the folder in which the mounts of this machine keep their status sockets */

#include "runtime.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int rblk_runtime_dir(char *buf, size_t len)
{
    const char *explicit_dir = getenv("RBLK_RUNTIME_DIR");
    const char *xdg = getenv("XDG_RUNTIME_DIR");
    int n;

    if (explicit_dir && explicit_dir[0] == '/')
        n = snprintf(buf, len, "%s", explicit_dir);
    else if (geteuid() == 0)
        n = snprintf(buf, len, "/run/rblk");
    else if (xdg && xdg[0] == '/')
        n = snprintf(buf, len, "%s/rblk", xdg);
    else
        n = snprintf(buf, len, "/tmp/rblk-%u", (unsigned int)geteuid());
    return n < 0 || (size_t)n >= len ? -ENAMETOOLONG : 0;
}

int rblk_runtime_prepare(char *buf, size_t len, char *err, size_t errlen)
{
    struct stat st;
    int rc = rblk_runtime_dir(buf, len);

    if (rc < 0) {
        snprintf(err, errlen,
                 "the path of the runtime folder is too long; shorten RBLK_RUNTIME_DIR");
        return rc;
    }
    if (mkdir(buf, 0700) < 0 && errno != EEXIST) {
        rc = -errno;
        snprintf(err, errlen, "runtime folder %s cannot be created: %s; set RBLK_RUNTIME_DIR", buf,
                 strerror(-rc));
        return rc;
    }
    /* /tmp/rblk-UID could have been put there by somebody else. */
    if (lstat(buf, &st) < 0) {
        rc = -errno;
        snprintf(err, errlen, "runtime folder %s: %s", buf, strerror(-rc));
        return rc;
    }
    if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid()) {
        snprintf(err, errlen, "runtime folder %s is not a folder of yours; set RBLK_RUNTIME_DIR",
                 buf);
        return -EPERM;
    }
    return 0;
}
