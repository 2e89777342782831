/* SPDX-License-Identifier: BSD-2-Clause */
/* option -- which option getopt_long(3) has just rejected */
#ifndef RBLK_COMMON_OPTION_H
#define RBLK_COMMON_OPTION_H

#include <getopt.h>
#include <string.h>

/*
 * The text to name after getopt_long returned '?' or ':'; letter holds it when it is a single one. Inside a
 * cluster of letters optind has not moved on, so the argument before it would be the wrong one to name.
 */
static inline const char *rblk_rejected_option(char *const *argv, char letter[3])
{
    const char *text = argv[optind - 1];

    if (optopt <= ' ' || optopt >= 0x7f || strncmp(text, "--", 2) == 0)
        return text;
    letter[0] = '-';
    letter[1] = (char)optopt;
    letter[2] = '\0';
    return letter;
}

#endif
