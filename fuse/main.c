/* SPDX-License-Identifier: BSD-2-Clause */
/* main -- rblk-fuse: mounts a remote disk as a file */

#include <stdio.h>

#include "frontend.h"
#include "log.h"
#include "provider.h"

int main(int argc, char **argv)
{
    struct fuse_options options;
    enum rblk_provider provider;
    char err[512];

    rblk_log_init("rblk-fuse", RBLK_LOG_INFO);
    if (fuse_options_parse(&options, argc, argv, err, sizeof(err)) < 0) {
        log_error("%s", err);
        return 2;
    }
    if (options.action == FUSE_ACTION_HELP) {
        fputs(fuse_options_help, stdout);
        return 0;
    }
    if (options.action == FUSE_ACTION_VERSION) {
        printf("rblk-fuse %s\n", rblk_version());
        return 0;
    }
    rblk_log_init("rblk-fuse", options.log_level);
    if (rblk_provider_select(&provider, options.provider, argv, err, sizeof(err)) < 0) {
        log_error("%s", err);
        return 1;
    }
    return frontend_run(&options);
}
