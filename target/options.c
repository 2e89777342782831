/* SPDX-License-Identifier: BSD-2-Clause */
/* options -- rblkd's command line */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "option.h"

enum { OPTION_SETTING = 1, OPTION_CONFIG, OPTION_CHECK, OPTION_HELP, OPTION_VERSION };

#define OWN_OPTIONS 4
#define SETTINGS_MAX 32

void options_usage(FILE *to)
{
    const struct config_setting *settings;
    size_t count;

    settings = config_settings(&count);
    fputs("Usage: rblkd [OPTION]... NAME=PATH[,ro]...\n"
          "Exports files and block devices as volumes over RDMA.\n\n"
          "  NAME=PATH         export the file or block device PATH as volume NAME\n"
          "  NAME=PATH,ro      the same, read-only\n\n"
          "Options:\n",
          to);
    for (size_t i = 0; i < count; i++)
        fprintf(to, "  --%s %s\n        %s\n", settings[i].key, settings[i].metavar,
                settings[i].help);
    fputs("  --config FILE\n        read settings and volumes from an INI file\n"
          "  --check\n        check the configuration and the backing files, then exit\n"
          "  --version, -V\n        print the version\n"
          "  --help, -h\n        print this\n\n"
          "Sizes: 4096, 64K, 4M, 1G. Example:\n"
          "  rblkd --listen 10.0.0.1 disk=/srv/disk.img iso=/srv/debian.iso,ro\n\n"
          "Exit status: 0 ended by a signal in good order, 1 failure, 2 wrong usage.\n",
          to);
}

static size_t long_options(struct option *list)
{
    static const struct option own[OWN_OPTIONS] = {
        {"config", required_argument, NULL, OPTION_CONFIG},
        {"check", no_argument, NULL, OPTION_CHECK},
        {"help", no_argument, NULL, OPTION_HELP},
        {"version", no_argument, NULL, OPTION_VERSION},
    };
    const struct config_setting *settings;
    size_t count;

    settings = config_settings(&count);
    for (size_t i = 0; i < count; i++)
        list[i] = (struct option){settings[i].key, required_argument, NULL, OPTION_SETTING};
    memcpy(list + count, own, sizeof(own));
    memset(list + count + OWN_OPTIONS, 0, sizeof(*list));
    return count;
}

static int bad_option(char **argv, int c, char *err, size_t errlen)
{
    char letter[3];

    snprintf(err, errlen,
             c == ':' ? "option %s needs a value; rblkd --help lists the options"
                      : "there is no option %s; rblkd --help lists the options",
             rblk_rejected_option(argv, letter));
    return -EINVAL;
}

static int parse_volumes(struct config *c, int argc, char **argv, char *err, size_t errlen)
{
    int rc = 0;

    for (int i = optind; i < argc && rc == 0; i++)
        rc = config_add_volume(c, argv[i], err, errlen);
    return rc;
}

int options_parse(struct options *o, int argc, char **argv, char *err, size_t errlen)
{
    struct option list[SETTINGS_MAX + OWN_OPTIONS + 1];
    const char *file = NULL;
    int c, which = 0, rc = 0;

    memset(o, 0, sizeof(*o));
    config_init(&o->config);
    long_options(list);
    optind = 0; /* GNU getopt: start over */
    opterr = 0;
    while (rc == 0 && (c = getopt_long(argc, argv, ":hV", list, &which)) != -1) {
        switch (c) {
        case OPTION_SETTING:
            rc = config_set(&o->config, list[which].name, optarg, CONFIG_COMMAND_LINE, err, errlen);
            break;
        case OPTION_CONFIG:
            if (file) {
                snprintf(err, errlen, "config is given twice; keep one");
                rc = -EINVAL;
            }
            file = optarg;
            break;
        case OPTION_CHECK:
            o->check = true;
            break;
        case 'h':
        case OPTION_HELP:
            o->help = true;
            return 0;
        case 'V':
        case OPTION_VERSION:
            o->version = true;
            return 0;
        default:
            rc = bad_option(argv, c, err, errlen);
        }
    }
    if (rc == 0)
        rc = parse_volumes(&o->config, argc, argv, err, errlen);
    if (rc == 0 && file)
        rc = config_load(&o->config, file, err, errlen);
    if (rc == 0)
        rc = config_check(&o->config, err, errlen);
    return rc;
}
