/* SPDX-License-Identifier: BSD-2-Clause */
/* main -- rblk: the command; each subcommand has a file of its own */

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "log.h"
#include "provider.h"
#include "tool.h"

int main(int argc, char **argv)
{
    const struct command *command;
    enum rblk_provider provider;
    char err[512];

    rblk_log_init("rblk", RBLK_LOG_WARNING);
    if (argc < 2) {
        log_error("no command given; rblk --help lists them");
        return TOOL_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        tool_print_help();
        return tool_finish_output();
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
        printf("rblk %s\n", rblk_version());
        return tool_finish_output();
    }
    command = command_find(argv[1]);
    if (!command) {
        log_error("there is no command \"%s\"; rblk --help lists them", argv[1]);
        return TOOL_USAGE;
    }
    if (command->uses_rdma && rblk_provider_select(&provider, tool_find_provider(argc, argv), argv,
                                                   err, sizeof(err)) < 0) {
        log_error("%s", err);
        return TOOL_FAILED;
    }
    signal(SIGPIPE, SIG_IGN); /* a closed standard output is an error like any other */
    return command->run(command, argc - 1, argv + 1);
}
