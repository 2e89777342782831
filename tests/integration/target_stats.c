/* SPDX-License-Identifier: BSD-2-Clause */
/* target_stats -- prints the counters of the target that a URI names, one "NAME VALUE" a line */
#include "helper.h"
#include "rblk.h"

int main(int argc, char **argv)
{
    struct rblk_target_stats s;
    struct rblk *h = NULL;
    int error;

    helper_select_provider(argv);
    if (argc != 2)
        return HELPER_USAGE;
    error = rblk_create(&h);
    if (error == 0)
        error = rblk_connect_target(h, argv[1]);
    if (error == 0)
        error = rblk_get_target_stats(h, &s);
    if (error != 0)
        helper_fail("%s (%s)", h != NULL ? rblk_error(h) : "", strerror(-error));
#define PRINT(name) printf("%s %llu\n", #name, (unsigned long long)s.name)
    PRINT(control_messages);
    PRINT(io_messages);
    PRINT(writes);
    PRINT(write_bytes);
    PRINT(flushes);
    PRINT(fua_writes);
    PRINT(fdatasyncs);
    PRINT(errors);
    PRINT(extents_mapped);
    PRINT(extent_bytes);
    PRINT(sessions);
    PRINT(queues);
    PRINT(protocol_errors);
    PRINT(uptime_ms);
    rblk_close(h);
    return 0;
}
