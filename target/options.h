/* SPDX-License-Identifier: BSD-2-Clause */
/* options -- rblkd's command line */
#ifndef RBLK_TARGET_OPTIONS_H
#define RBLK_TARGET_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "config.h"

struct options {
    struct config config;
    bool check, help, version;
};

/*
 * Reads the command line, and the configuration file that it names. 0: o->config is complete and
 * owned by the caller; or a negative errno and one line in err. config_free(&o->config) in either
 * case.
 */
int options_parse(struct options *o, int argc, char **argv, char *err, size_t errlen);
/* Prints --help. */
void options_usage(FILE *to);

#endif
