/* SPDX-License-Identifier: BSD-2-Clause */
/* options -- the command line of rblk-fuse */

#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "option.h"
#include "size.h"
#include "wake.h"

#define DEFAULT_DEPTH 64
#define DEFAULT_TIMEOUT_S 10
#define SPIN_US_MAX 1000

/* From so many CPUs on there are two queues unless told otherwise. */
#define QUEUES_2_CPUS 4

/* Buffer pools of all queues together: with the request buffers it keeps the process below 64 MiB.
 */
#define POOL_TOTAL (32u << 20)
#define POOL_MAX (64u << 20)
#define POOL_DEFAULT_MAX (16u << 20)
/* One read of the largest size, and room for as much again. */
#define POOL_MIN (2u << 20)

const char fuse_options_help[] =
    "Usage: rblk-fuse [OPTION]... rblk://HOST[:PORT]/VOLUME MOUNTPOINT\n"
    "\n"
    "Mounts the volume of a rblkd target: on a directory, which then holds one file\n"
    "named VOLUME, or on an existing regular file, which then is the disk.\n"
    "\n"
    "      --ro               attach read-only\n"
    "      --shared           attach together with other writers\n"
    "      --queues N         I/O queues, one thread each (default: 2, or 1 below 4 CPUs)\n"
    "      --queue-depth N    commands in flight on a queue, 1 to 256 (default 64)\n"
    "      --pool-size SIZE   buffer pool of a queue, 2M to 64M (default: 32M in all)\n"
    "      --timeout SECONDS  for connecting and for control requests (default 10)\n"
    "      --allow-other      let other users in, as file mode and owner permit\n"
    "      --cache            let the kernel cache reads; with --ro only, and only right\n"
    "                         while nobody writes to the volume\n"
    "      --spin MICROSECONDS  longest busy wait before sleeping, 0 to 1000 (default: three\n"
    "                           times what waking up costs here, at least 50)\n"
    "      --provider NAME    auto, verbs or soft (default: $RBLK_PROVIDER, or auto)\n"
    "  -f, --foreground       stay in the foreground\n"
    "      --log-file FILE    append messages to FILE once in the background\n"
    "      --log-level LEVEL  error, warning, info or debug (default info)\n"
    "  -o OPTION[,OPTION]...  mount options: ro, rw, shared, allow_other, cache, nosuid, nodev,\n"
    "                         noexec, noatime, queues=N, queue-depth=N, pool-size=SIZE,\n"
    "                         timeout=SECONDS; those of fstab that say when to mount are ignored\n"
    "  -h, --help             this text\n"
    "  -V, --version          the version\n"
    "\n"
    "Exit status: 0 mounted (or, in the foreground, unmounted cleanly), 1 failure, 2 usage.\n";

enum {
    OPT_RO = 256,
    OPT_SHARED,
    OPT_QUEUES,
    OPT_DEPTH,
    OPT_POOL,
    OPT_TIMEOUT,
    OPT_ALLOW_OTHER,
    OPT_CACHE,
    OPT_SPIN,
    OPT_PROVIDER,
    OPT_LOG_FILE,
    OPT_LOG_LEVEL,
};

static const struct option long_options[] = {
    {"ro", no_argument, NULL, OPT_RO},
    {"shared", no_argument, NULL, OPT_SHARED},
    {"queues", required_argument, NULL, OPT_QUEUES},
    {"queue-depth", required_argument, NULL, OPT_DEPTH},
    {"pool-size", required_argument, NULL, OPT_POOL},
    {"timeout", required_argument, NULL, OPT_TIMEOUT},
    {"allow-other", no_argument, NULL, OPT_ALLOW_OTHER},
    {"cache", no_argument, NULL, OPT_CACHE},
    {"spin", required_argument, NULL, OPT_SPIN},
    {"provider", required_argument, NULL, OPT_PROVIDER},
    {"log-file", required_argument, NULL, OPT_LOG_FILE},
    {"log-level", required_argument, NULL, OPT_LOG_LEVEL},
    {"foreground", no_argument, NULL, 'f'},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, 'V'},
    {NULL, 0, NULL, 0},
};

/* Names that -o knows as options of ours, beside their option. */
static const struct {
    const char *name;
    int option;
    bool has_value;
} mount_names[] = {
    {"ro", OPT_RO, false},
    {"shared", OPT_SHARED, false},
    {"allow_other", OPT_ALLOW_OTHER, false},
    {"cache", OPT_CACHE, false},
    {"queues", OPT_QUEUES, true},
    {"queue-depth", OPT_DEPTH, true},
    {"pool-size", OPT_POOL, true},
    {"timeout", OPT_TIMEOUT, true},
};

/* Options that the kernel understands. */
static const char *const kernel_names[] = {
    "nosuid", "suid",    "nodev",    "dev",        "noexec",   "exec",
    "atime",  "noatime", "relatime", "norelatime", "diratime", "nodiratime",
};

/* Options of fstab that say who mounts and when, not how. */
static const char *const ignored_names[] = {
    "defaults", "rw",    "auto",   "noauto", "nofail", "_netdev",
    "user",     "users", "nouser", "owner",  "group",  "default_permissions",
};

static bool listed(const char *const *names, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

static int number(unsigned int *out, const char *name, const char *text, uint64_t min, uint64_t max,
                  char *err, size_t errlen)
{
    uint64_t value;

    if (rblk_number_parse(&value, text, min, max) < 0) {
        snprintf(err, errlen, "%s \"%s\" is not a number from %llu to %llu", name, text,
                 (unsigned long long)min, (unsigned long long)max);
        return -EINVAL;
    }
    *out = (unsigned int)value;
    return 0;
}

static int set_mode(struct fuse_options *o, enum rblk_mode mode, char *err, size_t errlen)
{
    if (o->mode != RBLK_MODE_RW && o->mode != mode) {
        snprintf(err, errlen, "ro and shared exclude each other; give one of them");
        return -EINVAL;
    }
    o->mode = mode;
    return 0;
}

static int set_pool(struct fuse_options *o, const char *text, char *err, size_t errlen)
{
    uint64_t value;

    if (rblk_size_parse(&value, text) < 0 || value < POOL_MIN || value > POOL_MAX) {
        snprintf(err, errlen, "pool-size \"%s\" is not a size from 2M to 64M", text);
        return -EINVAL;
    }
    o->pool_size = value;
    return 0;
}

static int set_mount_options(struct fuse_options *o, const char *list, char *err, size_t errlen);

/* Takes one option, wherever it came from. */
static int set_option(struct fuse_options *o, int option, char *value, char *err, size_t errlen)
{
    unsigned int seconds;
    int rc;

    switch (option) {
    case OPT_RO:
        return set_mode(o, RBLK_MODE_RO, err, errlen);
    case OPT_SHARED:
        return set_mode(o, RBLK_MODE_SHARED, err, errlen);
    case OPT_QUEUES:
        return number(&o->queues, "queues", value, 1, FUSE_QUEUES_MAX, err, errlen);
    case OPT_DEPTH:
        return number(&o->queue_depth, "queue-depth", value, 1, 256, err, errlen);
    case OPT_POOL:
        return set_pool(o, value, err, errlen);
    case OPT_TIMEOUT:
        rc = number(&seconds, "timeout", value, 1, 3600, err, errlen);
        if (rc == 0)
            o->timeout_ms = seconds * 1000;
        return rc;
    case OPT_SPIN:
        return number(&o->spin_us, "spin", value, 0, SPIN_US_MAX, err, errlen);
    case OPT_LOG_LEVEL:
        if (rblk_log_level_parse(&o->log_level, value) == 0)
            return 0;
        snprintf(err, errlen, "log-level \"%s\" is none of error, warning, info, debug", value);
        return -EINVAL;
    case OPT_ALLOW_OTHER:
        o->allow_other = true;
        return 0;
    case OPT_CACHE:
        o->cache = true;
        return 0;
    case OPT_PROVIDER:
        o->provider = value;
        return 0;
    case OPT_LOG_FILE:
        o->log_file = value;
        return 0;
    case 'f':
        o->foreground = true;
        return 0;
    case 'h':
        o->action = FUSE_ACTION_HELP;
        return 0;
    case 'V':
        o->action = FUSE_ACTION_VERSION;
        return 0;
    default:
        return set_mount_options(o, value, err, errlen);
    }
}

static int append_kernel_option(struct fuse_options *o, const char *name, char *err, size_t errlen)
{
    size_t used = strlen(o->mount_options);
    int n = snprintf(o->mount_options + used, sizeof(o->mount_options) - used, "%s%s",
                     used ? "," : "", name);

    if (n < 0 || (size_t)n >= sizeof(o->mount_options) - used) {
        snprintf(err, errlen, "too many mount options");
        return -EINVAL;
    }
    return 0;
}

static int set_mount_option(struct fuse_options *o, char *name, char *err, size_t errlen)
{
    char *value = strchr(name, '=');

    if (listed(kernel_names, sizeof(kernel_names) / sizeof(kernel_names[0]), name))
        return append_kernel_option(o, name, err, errlen);
    if (listed(ignored_names, sizeof(ignored_names) / sizeof(ignored_names[0]), name) ||
        strncmp(name, "x-", 2) == 0 || strncmp(name, "comment=", 8) == 0)
        return 0;
    if (value)
        *value++ = '\0';
    for (size_t i = 0; i < sizeof(mount_names) / sizeof(mount_names[0]); i++) {
        if (strcmp(mount_names[i].name, name) != 0)
            continue;
        if (mount_names[i].has_value != (value != NULL)) {
            snprintf(err, errlen, "mount option \"%s\" %s", name,
                     value ? "takes no value" : "needs a value");
            return -EINVAL;
        }
        return set_option(o, mount_names[i].option, value, err, errlen);
    }
    snprintf(err, errlen, "mount option \"%s\" is unknown; rblk-fuse --help lists them", name);
    return -EINVAL;
}

static int set_mount_options(struct fuse_options *o, const char *list, char *err, size_t errlen)
{
    char *copy = strdup(list); /* argv stays whole: the program may be executed again with it */
    char *saved = NULL;
    int rc = 0;

    if (!copy) {
        snprintf(err, errlen, "out of memory");
        return -ENOMEM;
    }
    for (char *name = strtok_r(copy, ",", &saved); name && rc == 0;
         name = strtok_r(NULL, ",", &saved))
        rc = set_mount_option(o, name, err, errlen);
    free(copy);
    return rc;
}

/* CPUs that this process may run on. */
static unsigned int cpu_count(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof(set), &set) < 0)
        return 1;
    return (unsigned int)CPU_COUNT(&set);
}

static void set_defaults(struct fuse_options *o)
{
    /* A second worker competes with the application and the provider for the CPU where there are few. */
    if (o->queues == 0)
        o->queues = cpu_count() < QUEUES_2_CPUS ? 1 : 2;
    if (o->pool_size == 0) {
        o->pool_size = POOL_TOTAL / o->queues;
        o->pool_size -= o->pool_size % 4096;
        if (o->pool_size > POOL_DEFAULT_MAX)
            o->pool_size = POOL_DEFAULT_MAX;
        if (o->pool_size < POOL_MIN)
            o->pool_size = POOL_MIN;
    }
}

int fuse_options_parse(struct fuse_options *out, int argc, char **argv, char *err, size_t errlen)
{
    struct fuse_options o = {
        .queue_depth = DEFAULT_DEPTH,
        .timeout_ms = DEFAULT_TIMEOUT_S * 1000,
        .spin_us = RBLK_SPIN_AUTO,
        .log_level = RBLK_LOG_INFO,
    };
    char letter[3];
    int c, rc;

    optind = 0; /* glibc: start afresh, this may run twice */
    opterr = 0;
    while ((c = getopt_long(argc, argv, ":fhVo:", long_options, NULL)) != -1) {
        if (c == '?' || c == ':') {
            snprintf(err, errlen, "option \"%s\" %s; rblk-fuse --help lists them",
                     rblk_rejected_option(argv, letter),
                     c == ':' ? "needs a value" : "is unknown or takes no value");
            return -EINVAL;
        }
        rc = set_option(&o, c, optarg, err, errlen);
        if (rc < 0)
            return rc;
        if (o.action != FUSE_ACTION_MOUNT) {
            *out = o;
            return 0;
        }
    }
    if (argc - optind != 2) {
        snprintf(err, errlen,
                 "%s; usage: rblk-fuse [OPTION]... rblk://HOST[:PORT]/VOLUME MOUNTPOINT",
                 argc - optind < 2 ? "URI or mountpoint is missing" : "too many arguments");
        return -EINVAL;
    }
    if (o.cache && o.mode != RBLK_MODE_RO) {
        snprintf(err, errlen, "cache is allowed with ro only; add --ro or leave --cache out");
        return -EINVAL;
    }
    o.uri = argv[optind];
    o.mountpoint = argv[optind + 1];
    set_defaults(&o);
    *out = o;
    return 0;
}
