/* SPDX-License-Identifier: BSD-2-Clause */
/* config -- what rblkd is told to do: built-in values, the INI file, the command line */
#include "config.h"

#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "provider.h"
#include "run_alloc.h"
#include "size.h"
#include "uri.h"
#include "wake.h"

#define THREADS_MAX 64
#define EXTENT_SIZE_MIN 4096u
#define EXTENT_SIZE_MAX (1ull << 40)
#define CLIENTS_MAX 4096
#define SPIN_US_MAX 10000
#define STAGING_SIZE_MAX ((uint64_t)RBLK_STAGING_GRANULE * RBLK_RUN_UNITS_MAX)
#define INI_LINE_MAX 8192

enum value_type { VALUE_NUMBER, VALUE_SIZE, VALUE_STRING, VALUE_LISTEN, VALUE_LOG_LEVEL };

/* Where a setting is kept and what it may be. */
struct rule {
    enum value_type type;
    size_t offset;
    uint64_t min, max;
};

#define FIELD(name) offsetof(struct config, name)

static const struct config_setting settings[] = {
    {"listen", "ADDR[:PORT]", "address to listen on; may be repeated (default: all, port 7470)"},
    {"pidfile", "FILE", "written when the target is ready, removed at its end"},
    {"provider", "auto|verbs|soft", "RDMA through rdma-core's devices or the software provider"},
    {"log-level", "LEVEL", "error, warning, info (default) or debug"},
    {"threads", "N", "reactor threads (default: one per core)"},
    {"extent-size", "SIZE", "unit in which memory is registered, a power of two (default 64M)"},
    {"queue-depth", "N", "commands in flight of one I/O queue, 1..256 (default 128)"},
    {"max-queues", "N", "I/O queues of one client, 1..64 (default 16)"},
    {"inline", "SIZE", "largest write carried inside a message, up to 64K (default 8K)"},
    {"staging", "SIZE", "write staging memory of one I/O queue, 64K..64M (default 4M)"},
    {"max-clients", "N", "clients connected at once, 1..4096 (default 256)"},
    {"spin", "MICROSECONDS", "longest spin before a thread sleeps (default: 3 wake-ups)"},
};

static const struct rule rules[] = {
    {VALUE_LISTEN, 0, 0, 0},
    {VALUE_STRING, FIELD(pidfile), 0, 0},
    {VALUE_STRING, FIELD(provider), 0, 0},
    {VALUE_LOG_LEVEL, FIELD(log_level), 0, 0},
    {VALUE_NUMBER, FIELD(threads), 0, THREADS_MAX},
    {VALUE_SIZE, FIELD(extent_size), EXTENT_SIZE_MIN, EXTENT_SIZE_MAX},
    {VALUE_NUMBER, FIELD(queue_depth), 1, RBLK_QUEUE_DEPTH_MAX},
    {VALUE_NUMBER, FIELD(max_queues), 1, RBLK_QUEUES_MAX},
    {VALUE_SIZE, FIELD(inline_size), 0, RBLK_INLINE_MAX},
    {VALUE_SIZE, FIELD(staging_size), RBLK_STAGING_GRANULE, STAGING_SIZE_MAX},
    {VALUE_NUMBER, FIELD(max_clients), 1, CLIENTS_MAX},
    {VALUE_NUMBER, FIELD(spin_us), 0, SPIN_US_MAX},
};

#define SETTINGS (sizeof(settings) / sizeof(settings[0]))
_Static_assert(sizeof(rules) / sizeof(rules[0]) == SETTINGS, "one rule for each setting");

void config_init(struct config *c)
{
    memset(c, 0, sizeof(*c));
    c->log_level = RBLK_LOG_INFO;
    c->extent_size = 64u << 20;
    c->queue_depth = 128;
    c->max_queues = 16;
    c->inline_size = 8192;
    c->staging_size = 4u << 20;
    c->max_clients = 256;
    c->spin_us = RBLK_SPIN_AUTO;
}

static void forget_listen(struct config *c)
{
    for (size_t i = 0; i < c->listen_count; i++)
        free(c->listen[i]);
    free(c->listen);
    c->listen = NULL;
    c->listen_count = 0;
}

void config_free(struct config *c)
{
    for (size_t i = 0; i < c->volume_count; i++)
        free(c->volumes[i].path);
    free(c->volumes);
    forget_listen(c);
    free(c->pidfile);
    free(c->provider);
    memset(c, 0, sizeof(*c));
}

const struct config_setting *config_settings(size_t *count)
{
    *count = SETTINGS;
    return settings;
}

static int add_listen(struct config *c, const char *value, char *err, size_t errlen)
{
    char host[256], **list;
    uint16_t port = 0;
    int rc = rblk_address_parse(host, sizeof(host), &port, value, err, errlen);

    if (rc)
        return rc;
    list = realloc(c->listen, (c->listen_count + 1) * sizeof(*list));
    if (!list)
        return -ENOMEM;
    c->listen = list;
    list[c->listen_count] = strdup(value);
    if (!list[c->listen_count])
        return -ENOMEM;
    c->listen_count++;
    return 0;
}

static int parse_number(const struct rule *rule, const char *value, uint64_t *out)
{
    uint64_t number = 0;
    int rc;

    if (rule->type == VALUE_NUMBER)
        return rblk_number_parse(out, value, rule->min, rule->max);
    rc = rblk_size_parse(&number, value);
    if (rc)
        return rc;
    if (number < rule->min || number > rule->max)
        return -ERANGE;
    *out = number;
    return 0;
}

static int bad_number(const struct config_setting *setting, const struct rule *rule,
                      const char *value, int rc, char *err, size_t errlen)
{
    char low[32], high[32];

    if (rc != -ERANGE) {
        snprintf(err, errlen, "%s: \"%s\" is not a %s", setting->key, value,
                 rule->type == VALUE_SIZE ? "size; write for example 4096, 64K or 4M" : "number");
    } else if (rule->type == VALUE_SIZE) {
        snprintf(err, errlen, "%s: \"%s\" is out of range; it may be %s to %s", setting->key, value,
                 rblk_size_format(low, sizeof(low), rule->min),
                 rblk_size_format(high, sizeof(high), rule->max));
    } else {
        snprintf(err, errlen, "%s: \"%s\" is out of range; it may be %llu to %llu", setting->key,
                 value, (unsigned long long)rule->min, (unsigned long long)rule->max);
    }
    return -EINVAL;
}

static int set_number(struct config *c, size_t i, const char *value, bool keep, char *err,
                      size_t errlen)
{
    uint64_t number = 0;
    int rc = parse_number(&rules[i], value, &number);

    if (rc)
        return bad_number(&settings[i], &rules[i], value, rc, err, errlen);
    if (keep)
        *(uint64_t *)((char *)c + rules[i].offset) = number;
    return 0;
}

static int set_string(struct config *c, size_t i, const char *value, bool keep, char *err,
                      size_t errlen)
{
    char **field = (char **)((char *)c + rules[i].offset);
    enum rblk_provider provider;
    char *copy;

    if (*value == '\0') {
        snprintf(err, errlen, "%s: the value is empty; it should be %s", settings[i].key,
                 settings[i].metavar);
        return -EINVAL;
    }
    if (field == &c->provider && rblk_provider_parse(&provider, value)) {
        snprintf(err, errlen, "provider: \"%s\" is none; it may be auto, verbs or soft", value);
        return -EINVAL;
    }
    if (!keep)
        return 0;
    copy = strdup(value);
    if (!copy)
        return -ENOMEM;
    free(*field);
    *field = copy;
    return 0;
}

int config_set(struct config *c, const char *key, const char *value, enum config_source source,
               char *err, size_t errlen)
{
    bool keep = true, repeatable;
    enum rblk_log_level level;
    size_t i = 0;
    int rc = 0;

    while (i < SETTINGS && strcmp(settings[i].key, key) != 0)
        i++;
    if (i == SETTINGS) {
        snprintf(err, errlen, "there is no setting called \"%s\"", key);
        return -ENOENT;
    }
    repeatable = rules[i].type == VALUE_LISTEN;
    if ((c->set[source] & 1u << i) && !repeatable) {
        snprintf(err, errlen, "%s is given twice; keep one", key);
        return -EINVAL;
    }
    for (int stronger = source + 1; stronger <= CONFIG_COMMAND_LINE; stronger++)
        keep = keep && !(c->set[stronger] & 1u << i);

    switch (rules[i].type) {
    case VALUE_NUMBER:
    case VALUE_SIZE:
        rc = set_number(c, i, value, keep, err, errlen);
        break;
    case VALUE_STRING:
        rc = set_string(c, i, value, keep, err, errlen);
        break;
    case VALUE_LISTEN:
        if (keep && !(c->set[source] & 1u << i))
            forget_listen(c);
        if (keep)
            rc = add_listen(c, value, err, errlen);
        break;
    case VALUE_LOG_LEVEL:
        rc = rblk_log_level_parse(&level, value);
        if (rc)
            snprintf(err, errlen,
                     "log-level: \"%s\" is none; it may be error, warning, info or "
                     "debug",
                     value);
        else if (keep)
            c->log_level = level;
        break;
    }
    if (rc == -ENOMEM)
        snprintf(err, errlen, "out of memory");
    if (rc == 0)
        c->set[source] |= 1u << i;
    return rc;
}

static struct config_volume *find_volume(struct config *c, const char *name)
{
    for (size_t i = 0; i < c->volume_count; i++)
        if (strcmp(c->volumes[i].name, name) == 0)
            return &c->volumes[i];
    return NULL;
}

/* Finds or adds a volume of this source; a stronger source replaces a weaker one. */
static int declare_volume(struct config *c, const char *name, enum config_source source,
                          struct config_volume **out, char *err, size_t errlen)
{
    struct config_volume *volume, *list;

    if (!rblk_volume_name_valid(name)) {
        snprintf(err, errlen,
                 "\"%s\" is no volume name; use 1 to 63 of the characters A-Z a-z 0-9 "
                 ". _ - and begin with a letter, a digit or _",
                 name);
        return -EINVAL;
    }
    volume = find_volume(c, name);
    if (volume && volume->source == source) {
        snprintf(err, errlen, "volume %s is given twice; names must differ", name);
        return -EEXIST;
    }
    if (volume) {
        free(volume->path);
        memset(volume, 0, sizeof(*volume));
    } else {
        list = realloc(c->volumes, (c->volume_count + 1) * sizeof(*list));
        if (!list) {
            snprintf(err, errlen, "out of memory");
            return -ENOMEM;
        }
        c->volumes = list;
        volume = &list[c->volume_count++];
        memset(volume, 0, sizeof(*volume));
    }
    snprintf(volume->name, sizeof(volume->name), "%s", name);
    volume->source = source;
    *out = volume;
    return 0;
}

int config_add_volume(struct config *c, const char *text, char *err, size_t errlen)
{
    const char *equals = strchr(text, '=');
    struct config_volume *volume = NULL;
    char name[RBLK_NAME_LEN + 1];
    size_t path_len;
    int rc;

    if (!equals || equals == text || equals[1] == '\0') {
        snprintf(err, errlen,
                 "\"%s\" is no volume; write NAME=PATH or NAME=PATH,ro, for example "
                 "disk=/srv/disk.img",
                 text);
        return -EINVAL;
    }
    snprintf(name, sizeof(name), "%.*s", (int)(equals - text), text);
    if ((size_t)(equals - text) >= sizeof(name)) {
        snprintf(err, errlen, "the volume name in \"%s\" is longer than 63 characters", text);
        return -EINVAL;
    }
    rc = declare_volume(c, name, CONFIG_COMMAND_LINE, &volume, err, errlen);
    if (rc)
        return rc == -EEXIST ? -EINVAL : rc;
    path_len = strlen(equals + 1);
    if (path_len > 3 && strcmp(equals + 1 + path_len - 3, ",ro") == 0) {
        volume->read_only = true;
        path_len -= 3;
    }
    volume->path = strndup(equals + 1, path_len);
    if (!volume->path) {
        snprintf(err, errlen, "out of memory");
        return -ENOMEM;
    }
    return 0;
}

/* -- the INI file --------------------------------------------------------------------------- */

/*
 * libinih tells its handler neither the line nor of a section without keys, and cuts section names
 * to 49 bytes; so its reader, which is ours, keeps both.
 */
struct ini_state {
    struct config *config;
    FILE *stream;
    const char *file;
    unsigned int line;
    bool in_target, in_volume;
    struct config_volume *volume; /* of the section; NULL: overridden by the command line */
    char ignored_name[RBLK_NAME_LEN];
    int rc; /* of the first error */
    char *err;
    size_t errlen;
};

__attribute__((format(printf, 3, 4))) static void ini_fail(struct ini_state *s, int rc,
                                                           const char *fmt, ...)
{
    char text[512];
    va_list ap;

    if (s->rc)
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    snprintf(s->err, s->errlen, "%s:%u: %s", s->file, s->line, text);
    s->rc = rc;
}

static void ini_volume_section(struct ini_state *s, const char *name)
{
    struct config_volume *known = find_volume(s->config, name);
    char text[512];
    int rc;

    s->in_volume = true;
    s->volume = NULL;
    if (known && known->source > CONFIG_FILE)
        return;
    rc = declare_volume(s->config, name, CONFIG_FILE, &s->volume, text, sizeof(text));
    if (rc)
        ini_fail(s, rc == -EEXIST ? -EINVAL : rc, "%s", text);
}

static void ini_section(struct ini_state *s, char *text)
{
    char *end = strchr(text, ']'), *name;

    s->in_target = s->in_volume = false;
    if (!end)
        return; /* libinih reports it as a syntax error */
    *end = '\0';
    if (strcmp(text, "target") == 0) {
        s->in_target = true;
        return;
    }
    if (strncmp(text, "volume", 6) == 0 && isspace((unsigned char)text[6])) {
        for (name = text + 7; isspace((unsigned char)*name); name++)
            ;
        ini_volume_section(s, name);
        return;
    }
    ini_fail(s, -EINVAL, "there is no section [%s]; a file has [target] and [volume NAME]", text);
}

static char *ini_read_line(char *buf, int size, void *opaque)
{
    struct ini_state *s = opaque;
    char copy[INI_LINE_MAX], *p;
    size_t len;

    if (s->rc || !fgets(buf, size, s->stream))
        return NULL;
    s->line++;
    len = strlen(buf);
    if (len + 1 == (size_t)size && buf[len - 1] != '\n') {
        ini_fail(s, -EINVAL, "the line is too long; %d bytes are the most", size - 2);
        return NULL;
    }
    snprintf(copy, sizeof(copy), "%s", buf);
    p = copy;
    if (s->line == 1 && strncmp(p, "\xef\xbb\xbf", 3) == 0)
        p += 3;
    while (isspace((unsigned char)*p))
        p++;
    if (*p == '[')
        ini_section(s, p + 1);
    return buf;
}

static int ini_volume_key(struct ini_state *s, const char *key, const char *value)
{
    struct config_volume *v = s->volume;

    if (strcmp(key, "path") == 0) {
        if (!v)
            return 0;
        if (v->path) {
            ini_fail(s, -EINVAL, "path is given twice; keep one");
            return -EINVAL;
        }
        v->path = strdup(value);
        if (!v->path)
            ini_fail(s, -ENOMEM, "out of memory");
        else if (*value == '\0')
            ini_fail(s, -EINVAL, "path is empty; it should name a file or a block device");
        return s->rc;
    }
    if (strcmp(key, "read-only") == 0) {
        bool yes = strcmp(value, "yes") == 0 || strcmp(value, "true") == 0;

        if (!yes && strcmp(value, "no") != 0 && strcmp(value, "false") != 0)
            ini_fail(s, -EINVAL, "read-only: \"%s\" is neither yes nor no", value);
        else if (v && v->read_only_given)
            ini_fail(s, -EINVAL, "read-only is given twice; keep one");
        if (v && !s->rc) {
            v->read_only = yes;
            v->read_only_given = true;
        }
        return s->rc;
    }
    ini_fail(s, -EINVAL, "there is no key \"%s\" in [volume NAME]; it has path and read-only", key);
    return -EINVAL;
}

/* libinih's handler: non-zero is success. */
static int ini_key(void *opaque, const char *section, const char *key, const char *value)
{
    struct ini_state *s = opaque;
    char text[512];
    int rc;

    (void)section;
    if (s->rc)
        return 0;
    if (s->in_volume)
        return ini_volume_key(s, key, value) == 0;
    if (!s->in_target) {
        ini_fail(s, -EINVAL, "\"%s\" stands before the first section; put it under [target]", key);
        return 0;
    }
    rc = config_set(s->config, key, value, CONFIG_FILE, text, sizeof(text));
    if (rc == -ENOENT)
        ini_fail(s, -EINVAL, "there is no key \"%s\" in [target]; rblkd --help lists them", key);
    else if (rc)
        ini_fail(s, rc, "%s", text);
    return rc == 0;
}

int config_load(struct config *c, const char *file, char *err, size_t errlen)
{
    struct ini_state s = {.config = c, .file = file, .err = err, .errlen = errlen};
    int line;

    s.stream = fopen(file, "re");
    if (!s.stream) {
        int rc = -errno;

        snprintf(err, errlen, "cannot read the configuration file %s: %s", file, strerror(errno));
        return rc;
    }
    ini_use_stack = false;
    ini_allow_realloc = false;
    ini_max_line = ini_initial_alloc = INI_LINE_MAX;
    ini_allow_multiline = false;
    line = ini_parse_stream(ini_read_line, &s, ini_key, &s);
    if (!s.rc && ferror(s.stream))
        ini_fail(&s, -EIO, "reading failed: %s", strerror(errno));
    if (!s.rc && line > 0) {
        s.line = (unsigned int)line;
        ini_fail(&s, -EINVAL, "the line is neither [section] nor key = value");
    }
    if (!s.rc && line < 0)
        ini_fail(&s, -ENOMEM, "out of memory");
    fclose(s.stream);
    return s.rc;
}

int config_check(const struct config *c, char *err, size_t errlen)
{
    if (c->volume_count == 0) {
        snprintf(err, errlen,
                 "there is no volume to export; name one, for example: "
                 "rblkd disk=/srv/disk.img");
        return -EINVAL;
    }
    for (size_t i = 0; i < c->volume_count; i++) {
        if (!c->volumes[i].path) {
            snprintf(err, errlen, "volume %s has no path; add path = FILE to its section",
                     c->volumes[i].name);
            return -EINVAL;
        }
    }
    if (c->extent_size & (c->extent_size - 1)) {
        snprintf(err, errlen, "extent-size: %llu bytes is not a power of two; use for example 64M",
                 (unsigned long long)c->extent_size);
        return -EINVAL;
    }
    if (c->staging_size % RBLK_STAGING_GRANULE) {
        snprintf(err, errlen, "staging: %llu bytes is not a multiple of 64K; use for example 4M",
                 (unsigned long long)c->staging_size);
        return -EINVAL;
    }
    return 0;
}
