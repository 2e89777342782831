/* SPDX-License-Identifier: BSD-2-Clause */
/* ping -- rblk ping: times round trips on a target's control connection */

#include <errno.h>
#include <poll.h>
#include <stdio.h>

#include "log.h"
#include "size.h"
#include "tool.h"

struct options {
    unsigned int count;
    unsigned int interval_ms;
};

struct result {
    unsigned int received;
    uint64_t least, most, sum; /* ns */
};

static int take(void *opaque, int option, const char *value)
{
    struct options *o = opaque;
    uint64_t number;

    if (option == 'c') {
        if (rblk_number_parse(&number, value, 1, 1000000) < 0)
            return -EINVAL;
        o->count = (unsigned int)number;
        return 0;
    }
    if (rblk_number_parse(&number, value, 0, 60) < 0)
        return -EINVAL;
    o->interval_ms = (unsigned int)number * 1000;
    return 0;
}

/* Stops at the first that fails: the connection is gone then. */
static int run(struct rblk *h, const struct options *o, const char *uri, bool quiet,
               struct result *r)
{
    for (unsigned int i = 0; i < o->count; i++) {
        uint64_t ns;
        int rc;

        if (i > 0)
            poll(NULL, 0, (int)o->interval_ms);
        rc = rblk_ping(h, &ns);
        if (rc < 0) {
            log_error("%s", rblk_error(h));
            return rc;
        }
        if (r->received == 0 || ns < r->least)
            r->least = ns;
        if (ns > r->most)
            r->most = ns;
        r->sum += ns;
        r->received++;
        if (!quiet) {
            printf("%s: %u: %.1f us\n", uri, i + 1, (double)ns / 1e3);
            fflush(stdout);
        }
    }
    return 0;
}

int command_ping(const struct command *command, int argc, char **argv)
{
    static const struct option own[] = {
        {"count", required_argument, NULL, 'c'},
        {"interval", required_argument, NULL, 'i'},
        {NULL, 0, NULL, 0},
    };
    struct options o = {.count = 4, .interval_ms = 1000};
    struct result r = {0};
    struct tool_arguments a;
    double mean;
    struct rblk *h;
    int rc = tool_parse(command, argc, argv, own, take, &o, 1, 1, &a), failed;

    if (rc >= 0)
        return rc;
    if (tool_connect_target(&h, a.positional[0], &a) < 0)
        return TOOL_FAILED;
    failed = run(h, &o, a.positional[0], a.json, &r) < 0;
    rblk_close(h);
    mean = r.received ? (double)r.sum / r.received / 1e3 : 0;
    if (a.json) {
        json_object *object = json_object_new_object();

        tool_json_text(object, "uri", a.positional[0]);
        tool_json_number(object, "sent", r.received + (failed ? 1u : 0u));
        tool_json_number(object, "received", r.received);
        tool_json_rounded(object, "min_us", (double)r.least / 1e3);
        tool_json_rounded(object, "mean_us", mean);
        tool_json_rounded(object, "max_us", (double)r.most / 1e3);
        rc = tool_print_json(object);
    } else {
        printf("%u of %u answered, min/mean/max %.1f/%.1f/%.1f us\n", r.received, o.count,
               (double)r.least / 1e3, mean, (double)r.most / 1e3);
        rc = tool_finish_output();
    }
    return failed ? TOOL_FAILED : rc;
}
