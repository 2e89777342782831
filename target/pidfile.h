/* SPDX-License-Identifier: BSD-2-Clause */
/* pidfile -- tells others that the program is ready, and its process id */
#ifndef RBLK_TARGET_PIDFILE_H
#define RBLK_TARGET_PIDFILE_H

#include <stddef.h>

/*
 * Writes the process id to path in one step (a new file renamed over the old one), so that nobody
 * reads half of it. 0, or a negative errno and one line in err.
 */
int pidfile_write(const char *path, char *err, size_t errlen);
/* Removes the file if it still holds this process's id. */
void pidfile_remove(const char *path);

#endif
