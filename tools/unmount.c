/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * unmount -- rblk unmount: takes a mount away and waits until its process has ended
 *
 * Order: flush the disk, so that an error of that is seen by whoever unmounts; unmount; wait for
 * the process, which ends its I/O and says goodbye to the target. --force leaves out whatever could
 * wait.
 */

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "child.h"
#include "clock.h"
#include "local.h"
#include "log.h"
#include "mounts.h"
#include "tool.h"

#define OPT_LAZY (TOOL_OPTION + 0)
#define OPT_FORCE (TOOL_OPTION + 1)

/* A loop device that was detached a moment ago may hold the file a little longer. */
#define BUSY_RETRY_MS 2000
#define BUSY_PAUSE_MS 50

/* What a process that was aborted, then told to end, then killed gets each time. */
#define FORCE_WAIT_MS 2000

struct options {
    enum rblk_remove how;
};

static int take(void *opaque, int option, const char *value)
{
    struct options *o = opaque;

    (void)value;
    if (option == OPT_FORCE)
        o->how = RBLK_REMOVE_FORCE;
    else if (o->how == RBLK_REMOVE_NORMAL)
        o->how = RBLK_REMOVE_LAZY;
    return 0;
}

static int sync_file(const void *disk)
{
    int fd = open(disk, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    return fd < 0 || fsync(fd) < 0 ? -errno : 0;
}

/* Flushes a living, writable mount. False, with the error printed, when data may be lost. */
static bool flush_mount(json_object *mount, const char *path, unsigned int timeout_ms)
{
    char disk[PATH_MAX + 128];
    int rc;

    if (!mount || strcmp(local_text(mount, "mode"), "ro") == 0)
        return true;
    if (strcmp(local_text(mount, "form"), "file") == 0)
        snprintf(disk, sizeof(disk), "%s", path);
    else
        snprintf(disk, sizeof(disk), "%s/%s", path, local_text(mount, "volume"));
    rc = rblk_child_call(sync_file, disk, timeout_ms); /* the mount may hang */
    if (rc == 0)
        return true;
    log_error(
        "%s: the flush before unmounting failed (%s), data written since the flush before it may "
        "be lost",
        path, strerror(-rc));
    return false;
}

/* Unmounts; *mount is scratch afterwards. */
static int remove_mount(struct rblk_mount *mount, enum rblk_remove how)
{
    uint64_t deadline = rblk_deadline_ms(BUSY_RETRY_MS);
    char path[PATH_MAX], err[512];
    int rc;

    memcpy(path, mount->path, sizeof(path));

    for (;;) {
        rc = rblk_mount_remove(path, how, err, sizeof(err));
        if (rc != -EBUSY || rblk_deadline_left_ms(deadline) == 0)
            break;
        poll(NULL, 0, BUSY_PAUSE_MS);
    }
    /* An aborted process takes its mount away by itself, and may have been faster. */
    if (rc < 0 && rblk_mount_find(mount, path) == -ENOENT)
        rc = 0;
    if (rc < 0)
        log_error("%s", err);
    return rc;
}

/* Cuts the connection of the kernel to the process; works for its owner too, where fusectl is
 * mounted. */
static void abort_connection(unsigned int device_minor)
{
    char path[64];
    int fd;

    snprintf(path, sizeof(path), "/sys/fs/fuse/connections/%u/abort", device_minor);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    if (write(fd, "1", 1) != 1)
        log_debug("%s: %s", path, strerror(errno));
    close(fd);
}

/* Waits for the process; with force, makes it end. */
static int wait_for_process(int fd, pid_t pid, enum rblk_remove how, unsigned int timeout_ms)
{
    if (how == RBLK_REMOVE_LAZY) /* it ends when the last file is closed */
        return TOOL_OK;
    if (how == RBLK_REMOVE_NORMAL) {
        if (rblk_child_wait(fd, timeout_ms))
            return TOOL_OK;
        log_error(
            "process %ld is still ending its I/O after %u seconds; wait longer (--timeout) or "
            "kill it",
            (long)pid, timeout_ms / 1000);
        return TOOL_FAILED;
    }
    if (rblk_child_wait(fd, FORCE_WAIT_MS))
        return TOOL_OK;
    syscall(SYS_pidfd_send_signal, fd, SIGTERM, NULL, 0);
    if (rblk_child_wait(fd, FORCE_WAIT_MS))
        return TOOL_OK;
    syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0);
    if (rblk_child_wait(fd, FORCE_WAIT_MS))
        return TOOL_OK;
    log_error("process %ld does not end, it hangs in the kernel; the mount is gone all the same",
              (long)pid);
    return TOOL_FAILED;
}

/* The mount that an argument means: at the path itself, or in the folder of a disk file. */
static int find_path(struct rblk_mount *mount, const char *argument)
{
    char path[PATH_MAX];
    int rc = rblk_mount_path(path, argument);
    char *slash;

    if (rc < 0) {
        log_error("%s: %s", argument, strerror(-rc));
        return rc;
    }
    rc = rblk_mount_find(mount, path);
    slash = strrchr(path, '/');
    if (rc == -ENOENT && slash && slash != path) {
        *slash = '\0';
        rc = rblk_mount_find(mount, path);
        if (rc == 0 && strcmp(mount->type, RBLK_MOUNT_TYPE) != 0)
            rc = -ENOENT;
    }
    if (rc == -ENOENT)
        log_error("nothing is mounted on %s; rblk status lists the mounts", argument);
    else if (rc < 0)
        log_error("%s: the table of mounts cannot be read: %s", argument, strerror(-rc));
    if (rc < 0)
        return rc;
    if (strcmp(mount->type, RBLK_MOUNT_TYPE) != 0) {
        log_error("%s is a mount of type %s, not one of rblk; use umount", mount->path,
                  mount->type);
        return -EINVAL;
    }
    return 0;
}

static int unmount(const char *argument, enum rblk_remove how, unsigned int timeout_ms)
{
    struct rblk_mount *mount = calloc(1, sizeof(*mount));
    json_object *mounts = NULL, *living;
    int fd = -1, result = TOOL_FAILED;
    bool flushed = true;
    pid_t pid;

    if (!mount || find_path(mount, argument) < 0)
        goto free_mount;
    mounts = local_mounts();
    living = mounts ? local_find(mounts, mount->path) : NULL;
    pid = local_process(mount->path); /* also one that does not answer */
    fd = rblk_child_open(pid);
    if (how == RBLK_REMOVE_FORCE)
        abort_connection(mount->minor);
    else
        flushed = flush_mount(living, mount->path, timeout_ms);
    if (remove_mount(mount, how) < 0)
        goto free_mount;
    result = fd >= 0 ? wait_for_process(fd, pid, how, timeout_ms) : TOOL_OK;
    if (!flushed)
        result = TOOL_FAILED;

free_mount:
    if (fd >= 0)
        close(fd);
    json_object_put(mounts);
    free(mount);
    return result;
}

int command_unmount(const struct command *command, int argc, char **argv)
{
    static const struct option own[] = {
        {"lazy", no_argument, NULL, OPT_LAZY},
        {"force", no_argument, NULL, OPT_FORCE},
        {NULL, 0, NULL, 0},
    };
    struct options o = {.how = RBLK_REMOVE_NORMAL};
    struct tool_arguments a;
    int rc = tool_parse(command, argc, argv, own, take, &o, 1, 1024, &a), result = TOOL_OK;

    if (rc >= 0)
        return rc;
    for (int i = 0; i < a.positional_count; i++)
        if (unmount(a.positional[i], o.how, a.timeout_ms) != TOOL_OK)
            result = TOOL_FAILED;
    return result;
}
