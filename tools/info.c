/* SPDX-License-Identifier: BSD-2-Clause */
/* info -- rblk info: what is known of a volume; attaches it read-only, so it disturbs nobody */

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <uuid/uuid.h>

#include "log.h"
#include "size.h"
#include "tool.h"

#define OPT_SIZE (TOOL_OPTION + 0)
#define OPT_CAN (TOOL_OPTION + 1)

/* Exit status of --can for no, as nbdinfo has it. */
#define CANNOT 2

struct options {
    bool size;
    const char *can;
};

struct details {
    struct rblk_info info;
    struct rblk_volume volume;
    bool found;
};

static bool answer(const struct details *d, const char *what)
{
    if (strcmp(what, "write") == 0)
        return !d->volume.read_only && !d->volume.failed;
    if (strcmp(what, "flush") == 0)
        return d->info.can_flush;
    if (strcmp(what, "fua") == 0)
        return d->info.can_fua;
    if (strcmp(what, "trim") == 0)
        return d->info.can_trim;
    return d->info.can_zero;
}

static int take(void *opaque, int option, const char *value)
{
    static const char *const known[] = {"write", "flush", "fua", "trim", "zero"};
    struct options *o = opaque;

    if (option == OPT_SIZE) {
        o->size = true;
        return 0;
    }
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(known[i], value) == 0) {
            o->can = value;
            return 0;
        }
    return -EINVAL;
}

static int match(void *opaque, const struct rblk_volume *volume)
{
    struct details *d = opaque;

    if (strcmp(volume->name, d->info.volume) != 0)
        return 0;
    d->volume = *volume;
    d->found = true;
    return 1;
}

/* Attaches, asks, detaches; prints the error. */
static int fetch(struct details *d, const char *uri, const struct tool_arguments *a)
{
    struct rblk *h;
    int rc = tool_connect_volume(&h, uri, RBLK_MODE_RO, a);

    if (rc < 0)
        return rc;
    d->found = false;
    rc = rblk_get_info(h, &d->info);
    if (rc == 0)
        rc = rblk_list(h, match, d); /* read_only of the handle is about our own attachment */
    if (rc < 0)
        log_error("%s", rblk_error(h));
    rblk_close(h);
    if (rc >= 0 && !d->found) {
        log_error("%s: the target no longer lists volume \"%s\"", uri, d->info.volume);
        rc = -ENOENT;
    }
    return rc < 0 ? rc : 0;
}

static int print_json(const struct details *d, const char *uri)
{
    json_object *o = json_object_new_object(), *can = json_object_new_object();
    char uuid[UUID_STR_LEN];

    uuid_unparse_lower(d->info.uuid, uuid);
    tool_json_text(o, "uri", uri);
    tool_json_text(o, "volume", d->info.volume);
    tool_json_text(o, "uuid", uuid);
    tool_json_number(o, "size", d->info.size);
    tool_json_bool(o, "read_only", d->volume.read_only);
    tool_json_bool(o, "failed", d->volume.failed);
    tool_json_bool(o, "attached", d->volume.attached);
    tool_json_number(o, "sessions", d->volume.sessions);
    tool_json_text(o, "target", d->info.target);
    tool_json_text(o, "address", d->info.address);
    tool_json_text(o, "device", d->info.device);
    tool_json_number(o, "extent_size", d->info.extent_size);
    tool_json_number(o, "max_io", d->info.max_io);
    tool_json_number(o, "max_inline", d->info.max_inline);
    tool_json_bool(can, "write", answer(d, "write"));
    tool_json_bool(can, "flush", d->info.can_flush);
    tool_json_bool(can, "fua", d->info.can_fua);
    tool_json_bool(can, "trim", d->info.can_trim);
    tool_json_bool(can, "zero", d->info.can_zero);
    json_object_object_add(o, "can", can);
    return tool_print_json(o);
}

static const char *yes_no(bool yes)
{
    return yes ? "yes" : "no";
}

static int print_text(const struct details *d, const char *uri)
{
    char uuid[UUID_STR_LEN], size[32], extent[32];

    uuid_unparse_lower(d->info.uuid, uuid);
    printf("%s\n", uri);
    printf("  volume       %s\n", d->info.volume);
    printf("  uuid         %s\n", uuid);
    rblk_size_format(size, sizeof(size), d->info.size);
    if (strstr(size, "byte")) /* no whole number of tenths of a unit */
        printf("  size         %s\n", size);
    else
        printf("  size         %llu bytes (%s)\n", (unsigned long long)d->info.size, size);
    printf("  access       %s%s\n", d->volume.read_only ? "read-only" : "read-write",
           d->volume.failed ? ", FAILED: a flush could not be done, the operator must act" : "");
    /* One of the sessions is this command. */
    printf("  clients      %u\n", d->volume.sessions > 0 ? d->volume.sessions - 1 : 0);
    printf("  target       %s at %s\n", d->info.target, d->info.address);
    printf("  device       %s\n", d->info.device);
    printf("  extent size  %s\n", rblk_size_format(extent, sizeof(extent), d->info.extent_size));
    printf("  flush %s, fua %s, trim %s, zero %s\n", yes_no(d->info.can_flush),
           yes_no(d->info.can_fua), yes_no(d->info.can_trim), yes_no(d->info.can_zero));
    return tool_finish_output();
}

int command_info(const struct command *command, int argc, char **argv)
{
    static const struct option own[] = {
        {"size", no_argument, NULL, OPT_SIZE},
        {"can", required_argument, NULL, OPT_CAN},
        {NULL, 0, NULL, 0},
    };
    struct options o = {0};
    struct tool_arguments a;
    struct details d;
    int rc = tool_parse(command, argc, argv, own, take, &o, 1, 1, &a);

    if (rc >= 0)
        return rc;
    if (fetch(&d, a.positional[0], &a) < 0)
        return TOOL_FAILED;
    if (o.can)
        return answer(&d, o.can) ? TOOL_OK : CANNOT;
    if (o.size) {
        printf("%llu\n", (unsigned long long)d.info.size);
        return tool_finish_output();
    }
    return a.json ? print_json(&d, a.positional[0]) : print_text(&d, a.positional[0]);
}
