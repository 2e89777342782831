/* SPDX-License-Identifier: BSD-2-Clause */
/* mounts -- what is mounted where, from /proc/self/mountinfo (man 5 proc), and taking it away */

#include "mounts.h"

#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

/* Copies one field and undoes the kernel's octal escapes (\040 is a space). */
static int unescape(char *out, size_t len, const char *in, size_t inlen)
{
    size_t used = 0;

    for (size_t i = 0; i < inlen; i++) {
        char c = in[i];

        if (c == '\\' && i + 3 < inlen && in[i + 1] >= '0' && in[i + 1] <= '3' &&
            in[i + 2] >= '0' && in[i + 2] <= '7' && in[i + 3] >= '0' && in[i + 3] <= '7') {
            c = (char)((in[i + 1] - '0') * 64 + (in[i + 2] - '0') * 8 + (in[i + 3] - '0'));
            i += 3;
        }
        if (used + 1 >= len)
            return -EINVAL;
        out[used++] = c;
    }
    out[used] = '\0';
    return 0;
}

/* The n-th field (from 0) of a line of single spaces; its length in *len. NULL when there is none.
 */
static const char *field(const char *line, unsigned int n, size_t *len)
{
    for (; n > 0; n--) {
        line = strchr(line, ' ');
        if (!line)
            return NULL;
        line++;
    }
    *len = strcspn(line, " \n");
    return *len ? line : NULL;
}

int rblk_mount_parse(struct rblk_mount *mount, const char *line)
{
    static const char separator[] = " - ";
    const char *device, *path, *type, *source, *tail = strstr(line, separator);
    size_t device_len = 0, path_len = 0, type_len = 0, source_len = 0;
    struct rblk_mount *m;
    int rc = -EINVAL;

    if (!tail)
        return -EINVAL;
    tail += sizeof(separator) - 1;
    device = field(line, 2, &device_len);
    path = field(line, 4, &path_len);
    type = field(tail, 0, &type_len);
    source = field(tail, 1, &source_len);
    if (!device || !path || path >= tail || !type)
        return -EINVAL;
    m = calloc(1, sizeof(*m));
    if (!m)
        return -ENOMEM;
    if (sscanf(device, "%u:%u", &m->major, &m->minor) == 2 &&
        unescape(m->path, sizeof(m->path), path, path_len) == 0 &&
        unescape(m->type, sizeof(m->type), type, type_len) == 0 &&
        (!source || unescape(m->source, sizeof(m->source), source, source_len) == 0)) {
        *mount = *m;
        rc = 0;
    }
    free(m);
    return rc;
}

/* Calls back with each mount that could be parsed. */
static int each(int (*callback)(void *opaque, const struct rblk_mount *mount), void *opaque)
{
    struct rblk_mount *mount;
    char *line = NULL;
    size_t size = 0;
    FILE *f;
    int rc = 0;

    f = fopen("/proc/self/mountinfo", "re");
    if (!f)
        return -errno;
    mount = malloc(sizeof(*mount));
    if (!mount)
        rc = -ENOMEM;
    while (rc == 0 && getline(&line, &size, f) > 0)
        if (rblk_mount_parse(mount, line) == 0)
            rc = callback(opaque, mount);
    free(mount);
    free(line);
    fclose(f);
    return rc;
}

struct search {
    const char *path;
    struct rblk_mount *found;
    bool any;
};

static int compare(void *opaque, const struct rblk_mount *mount)
{
    struct search *search = opaque;

    if (strcmp(mount->path, search->path) == 0) {
        *search->found = *mount; /* a later line is mounted on top of an earlier one */
        search->any = true;
    }
    return 0;
}

int rblk_mount_find(struct rblk_mount *mount, const char *path)
{
    struct search search = {path, mount, false};
    int rc = each(compare, &search);

    if (rc < 0)
        return rc;
    return search.any ? 0 : -ENOENT;
}

struct filter {
    int (*callback)(void *opaque, const struct rblk_mount *mount);
    void *opaque;
};

static int pass_ours(void *opaque, const struct rblk_mount *mount)
{
    struct filter *filter = opaque;

    if (strcmp(mount->type, RBLK_MOUNT_TYPE) != 0)
        return 0;
    return filter->callback(filter->opaque, mount);
}

int rblk_mount_each(int (*callback)(void *opaque, const struct rblk_mount *mount), void *opaque)
{
    struct filter filter = {callback, opaque};

    return each(pass_ours, &filter);
}

int rblk_mount_path(char out[PATH_MAX], const char *path)
{
    char parent[PATH_MAX], full[PATH_MAX];
    const char *name;
    char *slash;
    size_t len = strlen(path);
    int n;

    if (realpath(path, out))
        return 0;
    /* A dead mount refuses to be looked at; its parent folder does not. */
    if (errno != ENOTCONN && errno != EACCES)
        return -errno;
    if (len >= sizeof(parent))
        return -ENAMETOOLONG;
    memcpy(parent, path, len + 1);
    while (len > 1 && parent[len - 1] == '/')
        parent[--len] = '\0';
    slash = strrchr(parent, '/');
    name = slash ? slash + 1 : parent;
    if (!slash) {
        if (!realpath(".", full))
            return -errno;
    } else {
        if (slash == parent) {
            snprintf(full, sizeof(full), "/");
        } else {
            *slash = '\0';
            if (!realpath(parent, full))
                return -errno;
        }
    }
    n = snprintf(out, PATH_MAX, "%s/%s", strcmp(full, "/") == 0 ? "" : full, name);
    return n < 0 || n >= PATH_MAX ? -ENAMETOOLONG : 0;
}

/* Runs fusermount3 -u and gives its message, if any, in said. 0, or -errno. */
static int run_fusermount(const char *path, bool lazy, char *said, size_t saidlen)
{
    char *argv[] = {"fusermount3", "-u", lazy ? "-z" : "--", (char *)path, NULL};
    posix_spawn_file_actions_t actions;
    int catcher, status = 0, rc;
    ssize_t n;
    pid_t pid;

    catcher = memfd_create("stderr", MFD_CLOEXEC);
    if (catcher < 0)
        return -errno;
    rc = -posix_spawn_file_actions_init(&actions);
    if (rc < 0)
        goto close_catcher;
    rc = -posix_spawn_file_actions_adddup2(&actions, catcher, STDERR_FILENO);
    if (rc == 0)
        rc = -posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (rc < 0) {
        snprintf(said, saidlen, "fusermount3 cannot be run (%s); install the package fuse3",
                 strerror(-rc));
        goto close_catcher;
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    n = pread(catcher, said, saidlen - 1, 0);
    said[n > 0 ? n : 0] = '\0';
    said[strcspn(said, "\n")] = '\0';
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        rc = strstr(said, "busy") ? -EBUSY : -EPERM;

close_catcher:
    close(catcher);
    return rc;
}

int rblk_mount_remove(const char *path, enum rblk_remove how, char *err, size_t errlen)
{
    char said[256] = "";
    int rc = 0;

    /* MNT_FORCE aborts the FUSE connection; the mount may still be in use then, so detach it too.
     */
    if (how == RBLK_REMOVE_FORCE && umount2(path, MNT_FORCE | UMOUNT_NOFOLLOW) == 0)
        return 0;
    if (umount2(path, (how == RBLK_REMOVE_NORMAL ? 0 : MNT_DETACH) | UMOUNT_NOFOLLOW) < 0)
        rc = -errno;
    if (rc == -EPERM)
        rc = run_fusermount(path, how != RBLK_REMOVE_NORMAL, said, sizeof(said));
    if (rc == -EBUSY)
        snprintf(
            err, errlen,
            "%s is in use: close the files on it, detach loop devices (losetup -j), or use --lazy",
            path);
    else if (rc < 0)
        snprintf(err, errlen, "%s cannot be unmounted: %s", path, said[0] ? said : strerror(-rc));
    return rc;
}
