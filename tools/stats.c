/* SPDX-License-Identifier: BSD-2-Clause */
/* stats -- rblk stats: the counters of a target since it started */

#include <inttypes.h>
#include <stdio.h>

#include "log.h"
#include "tool.h"

int command_stats(const struct command *command, int argc, char **argv)
{
    struct rblk_target_stats s;
    struct tool_arguments a;
    json_object *object;
    struct rblk *h;
    int rc = tool_parse(command, argc, argv, NULL, NULL, NULL, 1, 1, &a);

    if (rc >= 0)
        return rc;
    if (tool_connect_target(&h, a.positional[0], &a) < 0)
        return TOOL_FAILED;
    rc = rblk_get_target_stats(h, &s);
    if (rc < 0)
        log_error("%s", rblk_error(h));
    rblk_close(h);
    if (rc < 0)
        return TOOL_FAILED;
    object = json_object_new_object();
    tool_json_number(object, "uptime_ms", s.uptime_ms);
    tool_json_number(object, "sessions", s.sessions);
    tool_json_number(object, "queues", s.queues);
    tool_json_number(object, "extents_mapped", s.extents_mapped);
    tool_json_number(object, "extent_bytes", s.extent_bytes);
    tool_json_number(object, "control_messages", s.control_messages);
    tool_json_number(object, "io_messages", s.io_messages);
    tool_json_number(object, "writes", s.writes);
    tool_json_number(object, "write_bytes", s.write_bytes);
    tool_json_number(object, "fua_writes", s.fua_writes);
    tool_json_number(object, "flushes", s.flushes);
    tool_json_number(object, "fdatasyncs", s.fdatasyncs);
    tool_json_number(object, "errors", s.errors);
    tool_json_number(object, "protocol_errors", s.protocol_errors);
    if (a.json)
        return tool_print_json(object);
    json_object_object_foreach(object, name, value)
        printf("%-18s %" PRIu64 "\n", name, json_object_get_uint64(value));
    json_object_put(object);
    return tool_finish_output();
}
