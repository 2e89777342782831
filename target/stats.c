/* SPDX-License-Identifier: BSD-2-Clause */
/* stats -- the target's counters */
#include "stats.h"

static void add(uint64_t *sum, const counter *c)
{
    *sum += atomic_load_explicit(c, memory_order_relaxed);
}

void stats_add(struct rblk_stats_reply *sum, const struct counters *counters)
{
    add(&sum->control_messages, &counters->control_messages);
    add(&sum->io_messages, &counters->io_messages);
    add(&sum->writes, &counters->writes);
    add(&sum->write_bytes, &counters->write_bytes);
    add(&sum->flushes, &counters->flushes);
    add(&sum->fua_writes, &counters->fua_writes);
    add(&sum->fdatasyncs, &counters->fdatasyncs);
    add(&sum->errors, &counters->errors);
    add(&sum->extents_mapped, &counters->extents_mapped);
    add(&sum->extent_bytes, &counters->extent_bytes);
    add(&sum->sessions, &counters->sessions);
    add(&sum->queues, &counters->queues);
    add(&sum->protocol_errors, &counters->protocol_errors);
}
