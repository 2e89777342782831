/* SPDX-License-Identifier: BSD-2-Clause */
/* local -- the mounts of this machine, as their processes tell on their status sockets */
#ifndef RBLK_TOOLS_LOCAL_H
#define RBLK_TOOLS_LOCAL_H

#include <json-c/json.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * An array of the objects that the mount processes of this user answer with (to be released with
 * json_object_put); NULL when out of memory. A socket that nobody listens on any more is removed.
 * No process is waited for longer than a moment.
 */
json_object *local_mounts(void);

/* The one of the mount at this absolute path, owned by the array; NULL when none has answered for
 * it. */
json_object *local_find(json_object *mounts, const char *path);

/* The living mount process of this user that serves this absolute path, whether it answers or not; 0
 * when there is none. */
pid_t local_process(const char *path);

/* Text or number of an object, or "" and 0 when it has none. */
const char *local_text(json_object *object, const char *name);
uint64_t local_number(json_object *object, const char *name);

#endif
