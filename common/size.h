/* SPDX-License-Identifier: BSD-2-Clause */
/* size -- byte counts as people write them ("64M", "1GiB", "4097") and read them */
#ifndef RBLK_COMMON_SIZE_H
#define RBLK_COMMON_SIZE_H

#include <stddef.h>
#include <stdint.h>

/*
 * Whole numbers with K, M, G, T, P, E and optional iB or B, in either case: powers of 1024. 0, or
 * -EINVAL (not such a text), -ERANGE (more than 64 bits); *bytes is untouched on failure.
 */
int rblk_size_parse(uint64_t *bytes, const char *text);
/* "64 MiB", "1.5 GiB", "4097 bytes": always exact, never rounded. Returns buf. */
const char *rblk_size_format(char *buf, size_t len, uint64_t bytes);
/* An unsigned decimal number within [min, max]; 0, -EINVAL or -ERANGE. */
int rblk_number_parse(uint64_t *value, const char *text, uint64_t min, uint64_t max);

#endif
