/* SPDX-License-Identifier: BSD-2-Clause */
/* version -- the symbol by which a program can tell that this library is loaded (provider.h) */

const char *rblk_softrdma_version(void);

/* Version of the library, static text. Thread safe. */
const char *rblk_softrdma_version(void)
{
    return RBLK_VERSION;
}
