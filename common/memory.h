/* SPDX-License-Identifier: BSD-2-Clause */
/* memory -- where the buffers of the data path come from */
#ifndef RBLK_COMMON_MEMORY_H
#define RBLK_COMMON_MEMORY_H

#include <stddef.h>

/*
 * Maps len bytes of zeroed memory for buffers, which take up room only once they are touched. From
 * 2 MiB on they begin at a multiple of that and the kernel is asked for huge pages (man madvise,
 * MADV_HUGEPAGE): what copies and pins large buffers then has one page where it had 512. NULL when
 * there is no memory, with errno set. Any thread.
 */
void *rblk_memory_map(size_t len);
/* Gives it back; memory may be NULL. */
void rblk_memory_unmap(void *memory, size_t len);

#endif
