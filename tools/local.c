/* SPDX-License-Identifier: BSD-2-Clause */
/* local -- the mounts of this machine, as their processes tell on their status sockets */

#include "local.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "clock.h"
#include "runtime.h"

/* A mount process answers at once: its main thread has nothing else to do. */
#define ANSWER_TIMEOUT_MS 2000
#define ANSWER_MAX 65536u

static int connect_socket(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd, rc;

    if (strlen(path) >= sizeof(address.sun_path))
        return -ENAMETOOLONG;
    memcpy(address.sun_path, path, strlen(path) + 1);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
        rc = -errno;
        close(fd);
        return rc;
    }
    return fd;
}

/* Reads to the end of file: length, or -errno. */
static ssize_t read_answer(int fd, char *buf, size_t size)
{
    uint64_t deadline = rblk_deadline_ms(ANSWER_TIMEOUT_MS);
    size_t used = 0;

    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        ssize_t n;
        int rc = poll(&p, 1, rblk_deadline_left_ms(deadline));

        if (rc == 0)
            return -ETIMEDOUT;
        if (rc < 0)
            continue; /* EINTR */
        n = read(fd, buf + used, size - used);
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            return (ssize_t)used;
        used += (size_t)n;
        if (used == size)
            return -EMSGSIZE;
    }
}

/* Removes a socket and the link beside it. */
static void forget(const char *path)
{
    size_t stem = strlen(path) - (sizeof(RBLK_STATUS_SUFFIX) - 1);
    char link[PATH_MAX];

    unlink(path);
    snprintf(link, sizeof(link), "%.*s%s", (int)stem, path, RBLK_MOUNT_LINK_SUFFIX);
    unlink(link);
}

/* What the process behind a socket says; NULL when it says nothing. */
static json_object *ask(const char *path)
{
    int fd = connect_socket(path);
    char *buf = malloc(ANSWER_MAX);
    json_object *object = NULL;
    ssize_t n;

    if (fd == -ECONNREFUSED)
        forget(path); /* its process was killed */
    if (fd >= 0 && buf) {
        n = read_answer(fd, buf, ANSWER_MAX - 1);
        if (n > 0) {
            buf[n] = '\0';
            object = json_tokener_parse(buf);
        }
    }
    if (fd >= 0)
        close(fd);
    free(buf);
    if (object && !json_object_is_type(object, json_type_object)) {
        json_object_put(object);
        object = NULL;
    }
    return object;
}

static bool ends_with(const char *name, const char *suffix)
{
    size_t len = strlen(name), end = strlen(suffix);

    return len > end && strcmp(name + len - end, suffix) == 0;
}

static int is_socket_name(const struct dirent *entry)
{
    return ends_with(entry->d_name, RBLK_STATUS_SUFFIX);
}

static int is_link_name(const struct dirent *entry)
{
    return ends_with(entry->d_name, RBLK_MOUNT_LINK_SUFFIX);
}

/* Is this the mount program? A process id may have passed on to another. */
static bool is_mount_process(pid_t pid)
{
    char path[64], program[PATH_MAX];
    ssize_t n;

    snprintf(path, sizeof(path), "/proc/%ld/exe", (long)pid);
    n = readlink(path, program, sizeof(program) - 1);
    if (n < 0)
        return false;
    program[n] = '\0';
    return strstr(program, "/rblk-fuse") != NULL;
}

pid_t local_process(const char *path)
{
    struct dirent **entries = NULL;
    char dir[108], link[sizeof(dir) + 256 + 1], target[PATH_MAX];
    pid_t found = 0;
    int n;

    if (rblk_runtime_dir(dir, sizeof(dir)) < 0)
        return 0;
    n = scandir(dir, &entries, is_link_name, versionsort);
    for (int i = 0; i < n; i++) {
        pid_t pid = (pid_t)strtol(entries[i]->d_name, NULL, 10);
        ssize_t length;

        snprintf(link, sizeof(link), "%s/%s", dir, entries[i]->d_name);
        length = readlink(link, target, sizeof(target) - 1);
        if (length >= 0) {
            target[length] = '\0';
            if (strcmp(target, path) == 0 && is_mount_process(pid))
                found = pid;
        }
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
    return found;
}

json_object *local_mounts(void)
{
    json_object *list = json_object_new_array();
    struct dirent **entries = NULL;
    char dir[108], path[sizeof(dir) + 256 + 1];
    int n;

    if (!list || rblk_runtime_dir(dir, sizeof(dir)) < 0)
        return list;
    n = scandir(dir, &entries, is_socket_name, versionsort);
    for (int i = 0; i < n; i++) {
        json_object *object;

        snprintf(path, sizeof(path), "%s/%s", dir, entries[i]->d_name);
        object = ask(path);
        if (object)
            json_object_array_add(list, object);
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
    return list;
}

json_object *local_find(json_object *mounts, const char *path)
{
    for (size_t i = 0; i < json_object_array_length(mounts); i++) {
        json_object *object = json_object_array_get_idx(mounts, i);

        if (strcmp(local_text(object, "mountpoint"), path) == 0)
            return object;
    }
    return NULL;
}

const char *local_text(json_object *object, const char *name)
{
    json_object *value;

    return json_object_object_get_ex(object, name, &value) ? json_object_get_string(value) : "";
}

uint64_t local_number(json_object *object, const char *name)
{
    json_object *value;

    return json_object_object_get_ex(object, name, &value) ? json_object_get_uint64(value) : 0;
}
