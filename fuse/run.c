/* SPDX-License-Identifier: BSD-2-Clause */
/* run -- the life of a mount process: set up, serve, tear down; the main thread is described in
 * frontend.h */

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "background.h"
#include "clock.h"
#include "frontend.h"
#include "log.h"
#include "mountpoint.h"
#include "provider.h"
#include "kernel.h"
#include "size.h"
#include "status.h"
#include "uri.h"
#include "worker.h"

#define SAMPLE_MS 1000

/* Connecting takes several bounded steps; after this many time-outs and the rest the parent gives
 * up. */
#define READY_TIMEOUTS 3
#define READY_REST_MS 15000

/* The signals that end a mount, blocked in every thread and read from the descriptor. */
static int open_signals(void)
{
    sigset_t set;

    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static int connect_volume(struct frontend *f, char *err, size_t errlen)
{
    const struct fuse_options *o = f->options;
    int rc = rblk_create(&f->handle);

    if (rc < 0) {
        snprintf(err, errlen, "librblk cannot be started: %s", strerror(-rc));
        return rc;
    }
    rc = rblk_set_mode(f->handle, o->mode);
    if (rc == 0)
        rc = rblk_set_queues(f->handle, o->queues);
    if (rc == 0)
        rc = rblk_set_queue_depth(f->handle, o->queue_depth);
    if (rc == 0)
        rc = rblk_set_pool_size(f->handle, o->pool_size);
    if (rc == 0)
        rc = rblk_set_timeout(f->handle, o->timeout_ms);
    if (rc == 0)
        rc = rblk_connect(f->handle, o->uri);
    if (rc == 0)
        rc = rblk_get_info(f->handle, &f->info);
    if (rc < 0)
        snprintf(err, errlen, "%s", rblk_error(f->handle));
    return rc;
}

static void set_attributes(struct frontend *f)
{
    struct timespec now;

    f->read_only = f->info.read_only || f->options->mode == RBLK_MODE_RO;
    clock_gettime(CLOCK_REALTIME, &now);
    atomic_init(&f->mode, f->read_only ? 0400 : 0600);
    atomic_init(&f->uid, getuid());
    atomic_init(&f->gid, getgid());
    atomic_init(&f->mtime_ns, (int64_t)now.tv_sec * 1000000000 + now.tv_nsec);
    f->mounted_at_ns = rblk_now_ns();
}

static void say_mounted(const struct frontend *f)
{
    char size[32];

    log_info("%s is mounted on %s: %s, %s, %u queue%s on %s (%s)", f->options->uri, f->mountpoint,
             rblk_size_format(size, sizeof(size), f->info.size),
             f->read_only ? "read-only" : "read-write", f->info.queues,
             f->info.queues == 1 ? "" : "s", f->info.device,
             rblk_provider_is_soft() ? "software provider" : "system's RDMA");
}

/* Serves the status socket until a signal or the kernel ends the mount. */
static void serve(struct frontend *f, struct status *status, int signal_fd)
{
    struct pollfd p[] = {
        {.fd = signal_fd, .events = POLLIN},
        {.fd = f->ended_fd, .events = POLLIN},
        {.fd = status->fd, .events = POLLIN}, /* -1 is ignored by poll */
    };
    uint64_t next = rblk_now_ns();
    bool connected = true;

    for (;;) {
        int rc;

        if (rblk_deadline_left_ms(next) == 0) {
            next = rblk_deadline_ms(SAMPLE_MS);
            status_sample(status, f);
            if (connected && !rblk_is_connected(f->handle)) {
                connected = false;
                log_error("%s: the connection is lost, I/O answers EIO (%s); unmount %s and mount "
                          "it again",
                          f->options->uri, rblk_error(f->handle), f->mountpoint);
            }
        }
        rc = poll(p, sizeof(p) / sizeof(p[0]), rblk_deadline_left_ms(next));
        if (rc <= 0)
            continue;
        if (p[0].revents) {
            struct signalfd_siginfo signal_info;

            if (read(signal_fd, &signal_info, sizeof(signal_info)) == sizeof(signal_info))
                log_info("%s: signal %s, unmounting %s", f->options->uri,
                         sigabbrev_np((int)signal_info.ssi_signo), f->mountpoint);
            return;
        }
        if (p[1].revents)
            return;
        if (p[2].revents)
            status_answer(status, f);
    }
}

/* Everything acknowledged goes to stable storage before the process ends. */
static int final_flush(struct frontend *f)
{
    int rc;

    if (!atomic_load(&f->written))
        return 0;
    rc = rblk_flush(f->handle);
    if (rc < 0)
        log_error(
            "%s: the last flush failed, data written since the flush before it may be lost: %s",
            f->options->uri, rblk_error(f->handle));
    return rc;
}

/* Returns the exit status. */
static int run(struct frontend *f, struct background *background)
{
    struct status status = {.fd = -1};
    int signal_fd, rc, result = 1;
    char err[512] = "";

    signal_fd = open_signals();
    f->ended_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (signal_fd < 0 || f->ended_fd < 0) {
        background_failed(background, "no file descriptors left; raise the limit (ulimit -n)");
        goto close_descriptors;
    }
    rc = connect_volume(f, err, sizeof(err));
    if (rc < 0)
        goto close_handle;
    set_attributes(f);
    rc = kernel_open(f, err, sizeof(err));
    if (rc < 0)
        goto close_handle;
    rc = workers_create(f, err, sizeof(err));
    if (rc < 0)
        goto unmount;
    rc = workers_start(f);
    if (rc < 0) {
        snprintf(err, sizeof(err), "threads cannot be started: %s", strerror(-rc));
        goto unmount;
    }
    if (status_open(&status, f->mountpoint, err, sizeof(err)) < 0)
        log_warning("%s; rblk status will not show this mount", err);
    err[0] = '\0';
    say_mounted(f);
    rc = background_ready(background);
    if (rc == 0) {
        serve(f, &status, signal_fd);
        result = 0;
    } else if (rc != -EPIPE) {
        snprintf(err, sizeof(err), "/dev/null cannot be opened: %s", strerror(-rc));
    }

unmount:
    kernel_unmount(f);
    workers_stop(f, rblk_deadline_ms(f->options->timeout_ms));
    if (final_flush(f) < 0)
        result = 1;
close_handle:
    rblk_close(f->handle);
    workers_destroy(f);
    kernel_close(f);
    status_close(&status);
    if (err[0])
        background_failed(background, err);
close_descriptors:
    if (f->ended_fd >= 0)
        close(f->ended_fd);
    if (signal_fd >= 0)
        close(signal_fd);
    return result;
}

int frontend_run(const struct fuse_options *options)
{
    struct background background = {.fd = -1, .log_fd = -1};
    struct mountpoint mountpoint;
    struct frontend *f;
    struct rblk_uri uri;
    char err[512];
    int rc;

    if (rblk_uri_parse(&uri, options->uri, err, sizeof(err)) < 0) {
        log_error("%s", err);
        return 2;
    }
    if (uri.volume[0] == '\0') {
        log_error("%s names no volume; rblk list %s shows what there is", options->uri,
                  options->uri);
        return 2;
    }
    if (mountpoint_check(&mountpoint, options->mountpoint, options->allow_other, err, sizeof(err)) <
        0) {
        log_error("%s", err);
        return 1;
    }
    f = calloc(1, sizeof(*f));
    if (!f) {
        log_error("out of memory");
        return 1;
    }
    f->options = options;
    f->on_file = mountpoint.on_file;
    memcpy(f->mountpoint, mountpoint.path, sizeof(f->mountpoint));
    if (!options->foreground) {
        rc = background_start(&background, options->log_file,
                              options->timeout_ms * READY_TIMEOUTS + READY_REST_MS, err,
                              sizeof(err));
        if (rc < 0) {
            log_error("%s", err);
            free(f);
            return 1;
        }
    }
    rc = run(f, &background);
    free(f);
    return rc;
}
