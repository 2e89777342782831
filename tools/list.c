/* SPDX-License-Identifier: BSD-2-Clause */
/* list -- rblk list: what a target exports */

#include <stdio.h>
#include <uuid/uuid.h>

#include "log.h"
#include "size.h"
#include "tool.h"

static int add(void *opaque, const struct rblk_volume *volume)
{
    json_object *list = opaque, *object = json_object_new_object();
    char uuid[UUID_STR_LEN];

    uuid_unparse_lower(volume->uuid, uuid);
    tool_json_text(object, "name", volume->name);
    tool_json_text(object, "uuid", uuid);
    tool_json_number(object, "size", volume->size);
    tool_json_bool(object, "read_only", volume->read_only);
    tool_json_bool(object, "failed", volume->failed);
    tool_json_bool(object, "attached", volume->attached);
    tool_json_number(object, "sessions", volume->sessions);
    json_object_array_add(list, object);
    return 0;
}

static int print(void *opaque, const struct rblk_volume *volume)
{
    char size[32];
    bool *first = opaque;

    if (*first)
        printf("%-24s %14s  %-6s %8s  %s\n", "VOLUME", "SIZE", "ACCESS", "CLIENTS", "STATE");
    *first = false;
    printf("%-24s %14s  %-6s %8u  %s\n", volume->name,
           rblk_size_format(size, sizeof(size), volume->size), volume->read_only ? "ro" : "rw",
           volume->sessions,
           volume->failed     ? "failed"
           : volume->attached ? "in use"
                              : "free");
    return 0;
}

int command_list(const struct command *command, int argc, char **argv)
{
    json_object *list = NULL;
    struct tool_arguments a;
    bool first = true;
    struct rblk *h;
    int rc = tool_parse(command, argc, argv, NULL, NULL, NULL, 1, 1, &a);

    if (rc >= 0)
        return rc;
    if (tool_connect_target(&h, a.positional[0], &a) < 0)
        return TOOL_FAILED;
    if (a.json)
        list = json_object_new_array();
    rc = rblk_list(h, a.json ? add : print, a.json ? (void *)list : (void *)&first);
    if (rc < 0)
        log_error("%s", rblk_error(h));
    rblk_close(h);
    if (rc < 0) {
        json_object_put(list);
        return TOOL_FAILED;
    }
    if (a.json)
        return tool_print_json(list);
    if (first)
        printf("the target exports no volume\n");
    return tool_finish_output();
}
