/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * provider -- which RDMA a program runs on: the system's rdma-core or our software provider
 *
 * The software provider is a preloaded library (like rdma-core's librspreload.so), so choosing it
 * means executing the program once more with LD_PRELOAD set.
 */
#ifndef RBLK_COMMON_PROVIDER_H
#define RBLK_COMMON_PROVIDER_H

#include <stdbool.h>
#include <stddef.h>

enum rblk_provider { RBLK_PROVIDER_AUTO, RBLK_PROVIDER_VERBS, RBLK_PROVIDER_SOFT };

/* "auto", "verbs", "soft": 0 or -EINVAL. */
int rblk_provider_parse(enum rblk_provider *p, const char *text);
const char *rblk_provider_name(enum rblk_provider p);

/*
 * Call first thing in main(), before threads and before any other rdma-core call. want: the value
 * of the option --provider, or NULL to take $RBLK_PROVIDER, or auto. auto takes the system's
 * rdma-core when it has a device with an active port, else the software provider. For soft the
 * program executes itself once more with the library preloaded ($RBLK_SOFTRDMA_LIB, ../lib beside
 * the program, or the compiled-in directory), and this call returns only in the second image. That
 * one has the same process id, argv and environment: LD_PRELOAD is put back as it was, so children
 * do not inherit the library.
 *
 * 0 and *chosen is RBLK_PROVIDER_VERBS or RBLK_PROVIDER_SOFT, never AUTO. Or one line in err and
 * -EINVAL: no such provider, or a library path that LD_PRELOAD cannot carry; -ENODEV: verbs wanted
 * without a usable device; -EBUSY: verbs wanted with the software provider preloaded by the user;
 * -ELIBACC: the preload did not take effect; or what finding the library or executing failed with.
 */
int rblk_provider_select(enum rblk_provider *chosen, const char *want, char **argv, char *err,
                         size_t errlen);

/* True when the software provider is loaded: it alone exports rblk_softrdma_version. */
bool rblk_provider_is_soft(void);

#endif
