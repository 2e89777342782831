/* SPDX-License-Identifier: BSD-2-Clause */
/* doctor -- the parts of rblk doctor that depend on nothing */
#ifndef RBLK_TOOLS_DOCTOR_H
#define RBLK_TOOLS_DOCTOR_H

#include <stdbool.h>

/* "6.1.0-13-amd64" is 6 and 1. False when the text does not begin with two numbers. */
bool doctor_kernel_parse(const char *release, unsigned int *major_version,
                         unsigned int *minor_version);

#endif
