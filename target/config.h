/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * config -- what rblkd is told to do: built-in values, the INI file, the command line
 *
 * Later sources win: the file over the built-in values, the command line over the file. Not thread
 * safe; read-only once the program runs.
 */
#ifndef RBLK_TARGET_CONFIG_H
#define RBLK_TARGET_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "log.h"
#include "wire.h"

enum config_source { CONFIG_DEFAULT, CONFIG_FILE, CONFIG_COMMAND_LINE };

struct config_volume {
    char name[RBLK_NAME_LEN];
    char *path;
    bool read_only, read_only_given;
    enum config_source source;
};

struct config {
    struct config_volume *volumes;
    size_t volume_count;
    char **listen; /* "ADDR[:PORT]"; none: all addresses, default port */
    size_t listen_count;
    char *pidfile;  /* NULL: none */
    char *provider; /* NULL: $RBLK_PROVIDER or auto */
    enum rblk_log_level log_level;
    uint64_t threads;      /* reactors; 0: one per usable core */
    uint64_t extent_size;  /* bytes, power of two */
    uint64_t queue_depth;  /* most commands in flight of one I/O queue */
    uint64_t max_queues;   /* I/O queues of one client */
    uint64_t inline_size;  /* bytes: most write data inside a command message */
    uint64_t staging_size; /* bytes of staging memory of one I/O queue */
    uint64_t max_clients;  /* control connections */
    uint64_t spin_us;      /* longest spin of a reactor before it sleeps, or RBLK_SPIN_AUTO */
    uint32_t set[CONFIG_COMMAND_LINE + 1]; /* which settings each source has given */
};

/* One line of --help, in the order of the table. */
struct config_setting {
    const char *key;     /* the long option, and the key in [target] */
    const char *metavar; /* of its value */
    const char *help;
};

/* Fills in the built-in values. */
void config_init(struct config *c);
/* Frees what the configuration owns. */
void config_free(struct config *c);

/* The settings, `count` of them. Static. */
const struct config_setting *config_settings(size_t *count);

/*
 * Sets one setting. A value of a weaker source than the one it already has is checked and then
 * ignored. Given twice by one source: an error, except for "listen", which may be repeated.
 * 0, -ENOENT (no such setting), -EINVAL, -ENOMEM; the reason in err.
 */
int config_set(struct config *c, const char *key, const char *value, enum config_source source,
               char *err, size_t errlen);

/* Takes NAME=PATH[,ro] from the command line. 0, -EINVAL, -ENOMEM; the reason in err. */
int config_add_volume(struct config *c, const char *text, char *err, size_t errlen);

/* Reads an INI file through libinih. 0, or a negative errno and "FILE:LINE: reason" in err. */
int config_load(struct config *c, const char *file, char *err, size_t errlen);

/* Checks that the settings fit together. 0, or -EINVAL and the reason in err. */
int config_check(const struct config *c, char *err, size_t errlen);

#endif
