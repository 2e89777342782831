/* SPDX-License-Identifier: BSD-2-Clause */
/* pidfile -- tells others that the program is ready, and its process id */
#include "pidfile.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int write_new(const char *path)
{
    char text[24];
    int len = snprintf(text, sizeof(text), "%ld\n", (long)getpid());
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    int rc = 0;

    if (fd < 0)
        return -errno;
    if (write(fd, text, (size_t)len) != len)
        rc = errno ? -errno : -EIO;
    if (close(fd) < 0 && rc == 0)
        rc = -errno;
    return rc;
}

int pidfile_write(const char *path, char *err, size_t errlen)
{
    char temporary[PATH_MAX];
    int rc = 0, n = snprintf(temporary, sizeof(temporary), "%s.%ld", path, (long)getpid());

    errno = 0;
    if (n < 0 || (size_t)n >= sizeof(temporary))
        rc = -ENAMETOOLONG;
    if (!rc)
        rc = write_new(temporary);
    if (!rc && rename(temporary, path) < 0)
        rc = -errno;
    if (rc) {
        unlink(temporary);
        snprintf(err, errlen,
                 "cannot write the pid file %s: %s; name a file in a folder that exists "
                 "and is writable",
                 path, strerror(-rc));
    }
    return rc;
}

void pidfile_remove(const char *path)
{
    char text[24] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    ssize_t len;

    if (fd < 0)
        return;
    len = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (len > 0 && strtol(text, NULL, 10) == (long)getpid())
        unlink(path);
}
