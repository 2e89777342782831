/* SPDX-License-Identifier: BSD-2-Clause */
/* status -- rblk status: the mounts of this machine */

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "local.h"
#include "log.h"
#include "mounts.h"
#include "size.h"
#include "tool.h"

static const char *const kinds[] = {"read", "write", "flush"};

/* Adds a mount that the kernel knows and no process of ours has answered for. */
static int add_silent(void *opaque, const struct rblk_mount *mount)
{
    json_object *list = opaque, *object;

    if (local_find(list, mount->path))
        return 0;
    object = json_object_new_object();
    tool_json_text(object, "uri", mount->source);
    tool_json_text(object, "mountpoint", mount->path);
    tool_json_text(object, "state", "silent");
    json_object_array_add(list, object);
    return 0;
}

/* A word for the state of each mount: "connected", "disconnected" or "silent". */
static void add_states(json_object *list)
{
    for (size_t i = 0; i < json_object_array_length(list); i++) {
        json_object *object = json_object_array_get_idx(list, i), *connected;

        if (json_object_object_get_ex(object, "connected", &connected))
            tool_json_text(object, "state",
                           json_object_get_boolean(connected) ? "connected" : "disconnected");
    }
}

static double decimal(json_object *object, const char *name)
{
    json_object *value;

    return json_object_object_get_ex(object, name, &value) ? json_object_get_double(value) : 0;
}

static void print_rates(json_object *mount)
{
    printf("  %-6s %12s %10s %10s %9s %9s %9s\n", "", "requests", "IOPS", "MB/s", "p50 us",
           "p99 us", "max us");
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        json_object *io, *latency;

        if (!json_object_object_get_ex(mount, kinds[k], &io) ||
            !json_object_object_get_ex(io, "latency_us", &latency))
            continue;
        printf("  %-6s %12llu %10.0f %10.1f %9.1f %9.1f %9.1f\n", kinds[k],
               (unsigned long long)local_number(io, "requests"), decimal(io, "iops"),
               decimal(io, "bytes_per_second") / 1e6, decimal(latency, "p50"),
               decimal(latency, "p99"), decimal(latency, "max"));
    }
}

static void print_mount(json_object *mount)
{
    const char *state = local_text(mount, "state");
    char size[32];

    printf("%s  %s\n", local_text(mount, "mountpoint"), local_text(mount, "uri"));
    if (strcmp(state, "silent") == 0) {
        printf("  silent: no process of yours answers for it; if it is dead, rblk unmount takes it "
               "away\n");
        return;
    }
    printf("  %s, %s, %s, %llu queue(s) of %llu on %s (%s), pid %llu, %llu s, %llu error(s)\n",
           state, local_text(mount, "mode"),
           rblk_size_format(size, sizeof(size), local_number(mount, "size")),
           (unsigned long long)local_number(mount, "queues"),
           (unsigned long long)local_number(mount, "queue_depth"), local_text(mount, "device"),
           local_text(mount, "provider"), (unsigned long long)local_number(mount, "pid"),
           (unsigned long long)local_number(mount, "seconds"),
           (unsigned long long)local_number(mount, "errors"));
    print_rates(mount);
}

/* Leaves only the mount at that path. */
static void filter(json_object *list, const char *argument)
{
    char path[PATH_MAX];

    if (rblk_mount_path(path, argument) < 0)
        snprintf(path, sizeof(path), "%s", argument);
    for (size_t i = json_object_array_length(list); i-- > 0;)
        if (strcmp(local_text(json_object_array_get_idx(list, i), "mountpoint"), path) != 0)
            json_object_array_del_idx(list, i, 1);
}

int command_status(const struct command *command, int argc, char **argv)
{
    struct tool_arguments a;
    json_object *list;
    int rc = tool_parse(command, argc, argv, NULL, NULL, NULL, 0, 1, &a);

    if (rc >= 0)
        return rc;
    list = local_mounts();
    if (!list) {
        log_error("out of memory");
        return TOOL_FAILED;
    }
    add_states(list);
    rblk_mount_each(add_silent, list);
    if (a.positional_count > 0) {
        filter(list, a.positional[0]);
        if (json_object_array_length(list) == 0) {
            log_error("no disk of rblk is mounted on %s; rblk status lists the mounts",
                      a.positional[0]);
            json_object_put(list);
            return TOOL_FAILED;
        }
    }
    if (a.json)
        return tool_print_json(list);
    if (json_object_array_length(list) == 0)
        printf("no disk of rblk is mounted\n");
    for (size_t i = 0; i < json_object_array_length(list); i++)
        print_mount(json_object_array_get_idx(list, i));
    json_object_put(list);
    return tool_finish_output();
}
