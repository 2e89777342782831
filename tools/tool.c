/* SPDX-License-Identifier: BSD-2-Clause */
/* tool -- what the subcommands of rblk share: the table, the command line, connecting, printing */

#include "tool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "log.h"
#include "option.h"
#include "size.h"

#define DEFAULT_TIMEOUT_S 10
#define OWN_OPTIONS_MAX 16

static const struct command commands[] = {
    {"mount", "mount a remote disk on a folder or on a file", "[OPTION]... URI MOUNTPOINT", "",
     command_mount, false},
    {"unmount", "take mounts away", "[OPTION]... MOUNTPOINT...",
     "      --lazy               out of the tree at once; files in use stay usable until closed\n"
     "      --force              always works: aborts what is under way, which loses it\n",
     command_unmount, false},
    {"list", "show what a target exports", "[OPTION]... URI", "", command_list, true},
    {"info", "show what is known of a volume", "[OPTION]... URI",
     "      --size               print its size in bytes and nothing else\n"
     "      --can WHAT           print nothing; status 0 if it can, 2 if not: write, flush, fua,\n"
     "                           trim, zero\n",
     command_info, true},
    {"status", "show the mounts of this machine: link, I/O rates, latency",
     "[OPTION]... [MOUNTPOINT]", "", command_status, false},
    {"ping", "time round trips to a target", "[OPTION]... URI",
     "  -c, --count N            how many (default 4)\n"
     "  -i, --interval SECONDS   pause between two, 0 to 60 (default 1)\n",
     command_ping, true},
    {"read", "copy from a volume to standard output", "[OPTION]... URI",
     "      --offset SIZE        where to begin (default 0)\n"
     "      --length SIZE        how much (default: to the end)\n",
     command_read, true},
    {"write", "copy standard input to a volume", "[OPTION]... URI",
     "      --offset SIZE        where to begin (default 0)\n"
     "      --no-flush           do not wait until the data is on stable storage\n",
     command_write, true},
    {"bench", "measure a volume through librblk; writing modes overwrite it", "[OPTION]... URI",
     "      --mode MODE          randread (default), randwrite, randrw, read, write\n"
     "      --block-size SIZE    of each request (default 4K)\n"
     "      --depth N            requests in flight a job, 1 to 256 (default 16)\n"
     "      --jobs N             threads, each with a queue of its own, 1 to 64 (default 1)\n"
     "      --seconds S          how long (default 5)\n"
     "      --ramp S             not counted before that (default 0.3)\n"
     "      --read-percent N     share of reads of randrw (default 70)\n"
     "      --seed N             of the offsets (default: the time)\n",
     command_bench, true},
    {"stats", "show the counters of a target", "[OPTION]... URI", "", command_stats, true},
    {"doctor", "check what a user of this machine could trip over", "[OPTION]...", "",
     command_doctor, true},
};

static const struct option shared_options[] = {
    {"help", no_argument, NULL, 'h'},
    {"json", no_argument, NULL, 'j'},
    {"timeout", required_argument, NULL, 't'},
    {"provider", required_argument, NULL, 'p'},
};

#define SHARED_OPTIONS (sizeof(shared_options) / sizeof(shared_options[0]))

const struct command *command_find(const char *name)
{
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

void tool_print_help(void)
{
    printf("Usage: rblk COMMAND [OPTION]... [ARGUMENT]...\n\n"
           "Remote disks over RDMA. A disk is named rblk://HOST[:PORT]/VOLUME.\n\n");
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        printf("  %-9s %s\n", commands[i].name, commands[i].summary);
    printf("\n\"rblk COMMAND --help\" tells more. \"rblk --version\" prints the version.\n\n"
           "Exit status: 0 success, 1 failure, 2 wrong usage (info --can: 2 means no).\n");
}

static void print_command_help(const struct command *command)
{
    printf("Usage: rblk %s %s\n\n%c%s.\n\n%s", command->name, command->arguments,
           command->summary[0] - 'a' + 'A', command->summary + 1, command->help);
    printf("      --json               print JSON\n"
           "      --timeout SECONDS    longest wait for an answer (default %d)\n"
           "      --provider NAME      auto, verbs or soft (default: $RBLK_PROVIDER, or auto)\n"
           "  -h, --help               this text\n",
           DEFAULT_TIMEOUT_S);
}

static int usage(const struct command *command, const char *what, const char *which)
{
    log_error("%s%s%s; usage: rblk %s %s", which, *which ? " " : "", what, command->name,
              command->arguments);
    return TOOL_USAGE;
}

/* The short options that go with the long ones, for getopt. */
static void short_options(char *text, size_t size, const struct option *options)
{
    size_t used = 0;

    text[used++] = ':';
    for (; options->name && used + 3 < size; options++) {
        if (options->val >= TOOL_OPTION)
            continue;
        if (options->val == 'j' || options->val == 't' || options->val == 'p')
            continue; /* these have a long form only */
        text[used++] = (char)options->val;
        if (options->has_arg == required_argument)
            text[used++] = ':';
    }
    text[used] = '\0';
}

int tool_parse(const struct command *command, int argc, char **argv, const struct option *own,
               tool_option take, void *opaque, int least, int most, struct tool_arguments *out)
{
    struct tool_arguments a = {.timeout_ms = DEFAULT_TIMEOUT_S * 1000};
    struct option options[OWN_OPTIONS_MAX + SHARED_OPTIONS + 1] = {0};
    char letters[64], letter[3];
    uint64_t seconds;
    size_t n = 0;
    int c;

    for (; own && own[n].name && n < OWN_OPTIONS_MAX; n++)
        options[n] = own[n];
    memcpy(options + n, shared_options, sizeof(shared_options));
    short_options(letters, sizeof(letters), options);
    optind = 0;
    opterr = 0;
    while ((c = getopt_long(argc, argv, letters, options, NULL)) != -1) {
        switch (c) {
        case '?':
            return usage(command, "is unknown or takes no value",
                         rblk_rejected_option(argv, letter));
        case ':':
            return usage(command, "needs a value", rblk_rejected_option(argv, letter));
        case 'h':
            print_command_help(command);
            return tool_finish_output();
        case 'j':
            a.json = true;
            break;
        case 'p':
            break; /* taken before, by tool_find_provider */
        case 't':
            if (rblk_number_parse(&seconds, optarg, 1, 3600) < 0)
                return usage(command, "is not a number of seconds from 1 to 3600", optarg);
            a.timeout_ms = (unsigned int)seconds * 1000;
            break;
        default:
            if (take(opaque, c, optarg) < 0)
                return usage(command, "is not a valid value", optarg ? optarg : "");
        }
    }
    a.positional = argv + optind;
    a.positional_count = argc - optind;
    if (a.positional_count < least)
        return usage(command, "an argument is missing", "");
    if (a.positional_count > most)
        return usage(command, "is one argument too many", a.positional[most]);
    *out = a;
    return -1;
}

const char *tool_find_provider(int argc, char **argv)
{
    static const char name[] = "--provider";
    const char *found = NULL;

    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], name) == 0 && i + 1 < argc)
            found = argv[i + 1];
        else if (strncmp(argv[i], name, sizeof(name) - 1) == 0 && argv[i][sizeof(name) - 1] == '=')
            found = argv[i] + sizeof(name);
    }
    return found;
}

/* A new handle with the time-out set; NULL with the error printed. */
static struct rblk *new_handle(const struct tool_arguments *arguments)
{
    struct rblk *h;
    int rc = rblk_create(&h);

    if (rc < 0) {
        log_error("librblk cannot be started: %s", strerror(-rc));
        return NULL;
    }
    if (rblk_set_timeout(h, arguments->timeout_ms) < 0) {
        log_error("%s", rblk_error(h));
        rblk_close(h);
        return NULL;
    }
    return h;
}

int tool_connect_target(struct rblk **out, const char *uri, const struct tool_arguments *arguments)
{
    struct rblk *h = new_handle(arguments);
    int rc;

    if (!h)
        return -EIO;
    rc = rblk_connect_target(h, uri);
    if (rc < 0) {
        log_error("%s", rblk_error(h));
        rblk_close(h);
        return rc;
    }
    *out = h;
    return 0;
}

int tool_connect_queues(struct rblk **out, const char *uri, enum rblk_mode mode,
                        unsigned int queues, const struct tool_arguments *arguments)
{
    struct rblk *h = new_handle(arguments);
    int rc;

    if (!h)
        return -EIO;
    rc = rblk_set_mode(h, mode);
    if (rc == 0)
        rc = rblk_set_queues(h, queues);
    if (rc == 0)
        rc = rblk_connect(h, uri);
    if (rc < 0) {
        log_error("%s", rblk_error(h));
        rblk_close(h);
        return rc;
    }
    *out = h;
    return 0;
}

int tool_connect_volume(struct rblk **out, const char *uri, enum rblk_mode mode,
                        const struct tool_arguments *arguments)
{
    return tool_connect_queues(out, uri, mode, 1, arguments);
}

int tool_print_json(json_object *object)
{
    puts(json_object_to_json_string_ext(object, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED |
                                                    JSON_C_TO_STRING_NOSLASHESCAPE));
    json_object_put(object);
    return tool_finish_output();
}

void tool_json_text(json_object *object, const char *name, const char *text)
{
    json_object_object_add(object, name, json_object_new_string(text));
}

void tool_json_number(json_object *object, const char *name, uint64_t value)
{
    json_object_object_add(object, name, json_object_new_uint64(value));
}

void tool_json_bool(json_object *object, const char *name, bool value)
{
    json_object_object_add(object, name, json_object_new_boolean(value));
}

void tool_json_rounded(json_object *object, const char *name, double value)
{
    char text[32];

    snprintf(text, sizeof(text), "%.1f", value);
    json_object_object_add(object, name, json_object_new_double_s(value, text));
}

int tool_finish_output(void)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return TOOL_OK;
    log_error("standard output cannot be written: %s", strerror(errno));
    return TOOL_FAILED;
}
