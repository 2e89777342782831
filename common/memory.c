/* SPDX-License-Identifier: BSD-2-Clause */
/* memory -- where the buffers of the data path come from */
#include "memory.h"

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_PAGE ((size_t)2 << 20)

static void *map(size_t len)
{
    void *memory = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

void *rblk_memory_map(size_t len)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t pages = (len + page - 1) / page * page;
    size_t before;
    char *memory;

    if (len < HUGE_PAGE)
        return map(len);
    /* More than is asked for has an aligned start in it; what is around that goes back. */
    memory = map(pages + HUGE_PAGE);
    if (!memory)
        return NULL;
    before = (HUGE_PAGE - (uintptr_t)memory % HUGE_PAGE) % HUGE_PAGE;
    if (before)
        munmap(memory, before);
    munmap(memory + before + pages, HUGE_PAGE - before);
    /* Only advice: a kernel without huge pages refuses it. */
    madvise(memory + before, pages, MADV_HUGEPAGE);
    return memory + before;
}

void rblk_memory_unmap(void *memory, size_t len)
{
    if (memory)
        munmap(memory, len);
}
