/* SPDX-License-Identifier: BSD-2-Clause */
/* size -- byte counts as people write them ("64M", "1GiB", "4097") and read them */
#include "size.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <strings.h>

static const char units[] = "KMGTPE"; /* units[i] is 1024 to the power of i + 1 */

/* Reads decimal digits at *text and moves it behind them. strtoull() would take signs and blanks.
 */
static int parse_digits(uint64_t *value, const char **text)
{
    const char *c = *text;
    uint64_t out = 0;

    if (*c < '0' || *c > '9')
        return -EINVAL;
    for (; *c >= '0' && *c <= '9'; c++)
        if (__builtin_mul_overflow(out, 10u, &out) ||
            __builtin_add_overflow(out, (uint64_t)(*c - '0'), &out))
            return -ERANGE;
    *value = out;
    *text = c;
    return 0;
}

/* "", "B", "K", "KB", "KiB", ... in either case: the power of 1024, or -EINVAL. */
static int parse_unit(const char *text)
{
    if (*text == '\0' || strcasecmp(text, "B") == 0)
        return 0;
    for (int i = 0; units[i]; i++)
        if (strncasecmp(text, &units[i], 1) == 0) {
            text++;
            if (*text == '\0' || strcasecmp(text, "B") == 0 || strcasecmp(text, "iB") == 0)
                return i + 1;
            return -EINVAL;
        }
    return -EINVAL;
}

int rblk_size_parse(uint64_t *bytes, const char *text)
{
    uint64_t value;
    int power;
    int rc = parse_digits(&value, &text);

    if (rc < 0)
        return rc;
    power = parse_unit(text);
    if (power < 0)
        return power;
    if (value > UINT64_MAX >> (10 * power))
        return -ERANGE;
    *bytes = value << (10 * power);
    return 0;
}

/* Always exact: the largest unit of which the size is a multiple, or a multiple of its tenth. */
const char *rblk_size_format(char *buf, size_t len, uint64_t bytes)
{
    for (int power = sizeof units - 1; power > 0; power--) {
        uint64_t unit = UINT64_C(1) << (10 * power);
        uint64_t tenths = bytes % unit * 10; /* less than 10 * 2^60: fits */

        if (bytes < unit || tenths % unit != 0)
            continue;
        if (tenths == 0)
            snprintf(buf, len, "%" PRIu64 " %ciB", bytes / unit, units[power - 1]);
        else
            snprintf(buf, len, "%" PRIu64 ".%" PRIu64 " %ciB", bytes / unit, tenths / unit,
                     units[power - 1]);
        return buf;
    }
    snprintf(buf, len, "%" PRIu64 " byte%s", bytes, bytes == 1 ? "" : "s");
    return buf;
}

int rblk_number_parse(uint64_t *value, const char *text, uint64_t min, uint64_t max)
{
    uint64_t out;
    int rc = parse_digits(&out, &text);

    if (rc < 0)
        return rc;
    if (*text != '\0')
        return -EINVAL;
    if (out < min || out > max)
        return -ERANGE;
    *value = out;
    return 0;
}
