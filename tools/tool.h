/* SPDX-License-Identifier: BSD-2-Clause */
/* tool -- what the subcommands of rblk share: the table, the command line, connecting, printing */
#ifndef RBLK_TOOLS_TOOL_H
#define RBLK_TOOLS_TOOL_H

#include <getopt.h>
#include <json-c/json.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "rblk.h"

enum tool_exit {
    TOOL_OK = 0,
    TOOL_FAILED = 1,
    TOOL_USAGE = 2,
};

struct command {
    const char *name;
    const char *summary;   /* one line for rblk --help */
    const char *arguments; /* "[OPTION]... URI" */
    const char *help;      /* the options of its own, one a line; may be empty */
    int (*run)(const struct command *command, int argc, char **argv); /* argv[0] is the name */
    bool uses_rdma; /* needs the provider to be chosen first */
};

/* What rblk --help prints. */
void tool_print_help(void);

/* NULL when there is none of that name. */
const struct command *command_find(const char *name);

int command_mount(const struct command *command, int argc, char **argv);
int command_unmount(const struct command *command, int argc, char **argv);
int command_list(const struct command *command, int argc, char **argv);
int command_info(const struct command *command, int argc, char **argv);
int command_status(const struct command *command, int argc, char **argv);
int command_ping(const struct command *command, int argc, char **argv);
int command_doctor(const struct command *command, int argc, char **argv);
int command_read(const struct command *command, int argc, char **argv);
int command_write(const struct command *command, int argc, char **argv);
int command_bench(const struct command *command, int argc, char **argv);
int command_stats(const struct command *command, int argc, char **argv);

/* -- command line ----------------------------------------------------------------------------- */

/* What every subcommand takes: --help, --json, --timeout SECONDS, --provider NAME. */
struct tool_arguments {
    bool json;
    unsigned int timeout_ms;
    char **positional; /* points into argv */
    int positional_count;
};

/* Options of a subcommand have values from here on; return 0, or -EINVAL when the value is wrong.
 */
#define TOOL_OPTION 256
typedef int (*tool_option)(void *opaque, int option, const char *value);

/*
 * Parses argv. own: options of the subcommand, ended by a zero entry, or NULL; each is given to
 * take. Returns -1 to go on; otherwise the exit status (0 after --help, 2 with the error printed).
 */
int tool_parse(const struct command *command, int argc, char **argv, const struct option *own,
               tool_option take, void *opaque, int least, int most, struct tool_arguments *out);

/* The value of --provider in argv, wherever it stands before "--"; NULL when there is none. */
const char *tool_find_provider(int argc, char **argv);

/* -- connecting ---------------------------------------------------------------------------------
 */

/* To the target alone, or to the volume that the URI names. *out is connected, or the error is
 * printed. */
int tool_connect_target(struct rblk **out, const char *uri, const struct tool_arguments *arguments);
int tool_connect_queues(struct rblk **out, const char *uri, enum rblk_mode mode,
                        unsigned int queues, const struct tool_arguments *arguments);
int tool_connect_volume(struct rblk **out, const char *uri, enum rblk_mode mode,
                        const struct tool_arguments *arguments);

/* -- printing -----------------------------------------------------------------------------------
 */

/* Prints the object on standard output, pretty, with a newline, and releases it. Exit status. */
int tool_print_json(json_object *object);
void tool_json_text(json_object *object, const char *name, const char *text);
void tool_json_number(json_object *object, const char *name, uint64_t value);
void tool_json_bool(json_object *object, const char *name, bool value);
/* One digit after the point. */
void tool_json_rounded(json_object *object, const char *name, double value);
/* Flushes standard output: TOOL_OK, or TOOL_FAILED with the error printed (disk full, closed pipe).
 */
int tool_finish_output(void);

#endif
