/* SPDX-License-Identifier: BSD-2-Clause */
/* mount -- rblk mount: executes rblk-fuse, which knows the options */

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "log.h"
#include "tool.h"

#define PROGRAM "rblk-fuse"

/* Folders beside the folder of this program in which rblk-fuse may be. */
static const char *const places[] = {".", "../libexec/rblk", "../lib/rblk"};

int command_mount(const struct command *command, int argc, char **argv)
{
    char self[PATH_MAX], path[PATH_MAX + 64];
    ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
    char *slash;

    (void)command;
    (void)argc;
    argv[0] = PROGRAM;
    self[len > 0 ? len : 0] = '\0';
    slash = strrchr(self, '/');
    if (slash) {
        *slash = '\0';
        for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
            snprintf(path, sizeof(path), "%s/%s/" PROGRAM, self, places[i]);
            execv(path, argv);
            if (errno != ENOENT) {
                log_error("%s cannot be executed: %s", path, strerror(errno));
                return TOOL_FAILED;
            }
        }
    }
    execvp(PROGRAM, argv);
    log_error(PROGRAM " cannot be found (%s); it belongs in the folder of rblk or into PATH",
              strerror(errno));
    return TOOL_FAILED;
}
