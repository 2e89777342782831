/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * main -- rblkd: exports files and block devices as volumes over RDMA
 *
 * The main thread becomes the control thread (target.h). Signals reach it through a descriptor; all
 * threads have them blocked.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "config.h"
#include "log.h"
#include "options.h"
#include "pidfile.h"
#include "provider.h"
#include "size.h"
#include "target.h"
#include "verbs.h"
#include "volume.h"

#define ERROR_LEN 1024
#define SYNC_TIMEOUT_SECS 20 /* for the last sync at the end; SIGALRM ends the process then */

enum { EXIT_GOOD = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

static int failed(const char *err)
{
    log_error("%s", err);
    return EXIT_FAILED;
}

static int check_only(const struct config *c)
{
    char err[ERROR_LEN];
    int result = EXIT_GOOD;

    for (size_t i = 0; i < c->volume_count; i++) {
        struct volume v;

        if (volume_open(&v, &c->volumes[i], (unsigned int)i, true, err, sizeof(err)))
            result = failed(err);
        else
            volume_close(&v);
    }
    if (result == EXIT_GOOD)
        printf("the configuration is good: %zu volume%s\n", c->volume_count,
               c->volume_count == 1 ? "" : "s");
    return result;
}

/*
 * Real devices pin what is registered, and the kernel counts that against RLIMIT_MEMLOCK: say so
 * now rather than when the first client comes. Who may raise the limit gets it raised.
 */
static int check_memlock(const struct config *c, char *err, size_t errlen)
{
    struct rlimit unlimited = {RLIM_INFINITY, RLIM_INFINITY};
    uint64_t need =
        c->extent_size + c->staging_size + c->queue_depth * (RBLK_COMMAND_LEN + c->inline_size);
    char need_text[32], have_text[32];

    if (setrlimit(RLIMIT_MEMLOCK, &unlimited) == 0 || rblk_memlock_limit() >= need)
        return 0;
    snprintf(
        err, errlen,
        "the limit of locked memory is %s, one client needs %s; raise it "
        "(LimitMEMLOCK=infinity in the unit, ulimit -l unlimited, or CAP_SYS_RESOURCE), or use "
        "--provider soft",
        rblk_size_format(have_text, sizeof(have_text), rblk_memlock_limit()),
        rblk_size_format(need_text, sizeof(need_text), need));
    return -ENOMEM;
}

/* Every connection needs descriptors; the usual soft limit is for programs that use select(2). */
static void raise_file_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static int open_signals(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a limit on file sizes is an error of one write */
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
        return -1;
    return signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

/*
 * From here on a signal, or too much time, ends the process: nothing is left but to sync and to
 * free.
 */
static void unblock_signals(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    alarm(SYNC_TIMEOUT_SECS);
}

static int serve(const struct config *config, int signal_fd)
{
    static struct target target;
    char err[ERROR_LEN] = "";
    int rc = target_start(&target, config, signal_fd, err, sizeof(err));

    if (rc)
        return failed(err[0] ? err : strerror(-rc));
    if (config->pidfile && pidfile_write(config->pidfile, err, sizeof(err))) {
        target_stop(&target);
        return failed(err);
    }
    sd_notify(0, "READY=1");
    target_run(&target);
    if (config->pidfile)
        pidfile_remove(config->pidfile);
    if (target.stop_now)
        return EXIT_FAILED;
    unblock_signals();
    rc = target_stop(&target);
    if (rc == 0)
        log_info("stopped");
    return rc ? EXIT_FAILED : EXIT_GOOD;
}

static int run(struct options *o, char **argv)
{
    enum rblk_provider chosen;
    char err[ERROR_LEN] = "";
    int signal_fd, result;

    if (o->check)
        return check_only(&o->config);
    if (rblk_provider_select(&chosen, o->config.provider, argv, err, sizeof(err)))
        return failed(err);
    log_info("rblkd %s, RDMA provider: %s", RBLK_VERSION, rblk_provider_name(chosen));
    if (chosen != RBLK_PROVIDER_SOFT && check_memlock(&o->config, err, sizeof(err)))
        return failed(err);
    raise_file_limit();
    signal_fd = open_signals();
    if (signal_fd < 0)
        return failed("cannot create a signalfd");
    result = serve(&o->config, signal_fd);
    close(signal_fd);
    return result;
}

int main(int argc, char **argv)
{
    struct options o;
    char err[ERROR_LEN] = "";
    int result;

    rblk_log_init("rblkd", RBLK_LOG_INFO);
    if (options_parse(&o, argc, argv, err, sizeof(err))) {
        log_error("%s", err);
        result = EXIT_USAGE;
    } else if (o.help) {
        options_usage(stdout);
        result = EXIT_GOOD;
    } else if (o.version) {
        printf("rblkd %s\n", RBLK_VERSION);
        result = EXIT_GOOD;
    } else {
        rblk_log_init("rblkd", o.config.log_level);
        result = run(&o, argv);
    }
    config_free(&o.config);
    return result;
}
