/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * log -- what the programs (never the libraries) say: stderr, or syslog priorities under systemd
 *
 * Threads: the settings below are written by rblk_log_init() before threads start and only read
 * afterwards. A line is put together on the caller's stack and goes out in one write(2), so lines
 * of several threads never mix and no lock is needed.
 */
#include "log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINE_MAX_BYTES 2048 /* longer lines are cut off: room for a path and its explanation */

static struct {
    const char *program;
    enum rblk_log_level level;
    bool journal; /* stderr is the journal: it adds time and name, and wants a priority */
} settings = {.program = "rblk", .level = RBLK_LOG_INFO};

static const struct {
    const char *name;
    const char *prefix;   /* in a line that people read: information needs no label */
    const char *priority; /* sd-daemon(3) */
} levels[] = {
    [RBLK_LOG_ERROR] = {"error", "error: ", "<3>"},
    [RBLK_LOG_WARNING] = {"warning", "warning: ", "<4>"},
    [RBLK_LOG_INFO] = {"info", "", "<6>"},
    [RBLK_LOG_DEBUG] = {"debug", "debug: ", "<7>"},
};
#define LEVEL_COUNT (sizeof levels / sizeof levels[0])

/* $JOURNAL_STREAM is device:inode of what systemd connected to stderr (systemd.exec(5)); it says
 * nothing once somebody has redirected stderr. */
static bool stderr_is_journal(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    unsigned long long device, inode;
    struct stat st;

    return stream && sscanf(stream, "%llu:%llu", &device, &inode) == 2 &&
           fstat(STDERR_FILENO, &st) == 0 && st.st_dev == device && st.st_ino == inode;
}

void rblk_log_init(const char *program, enum rblk_log_level level)
{
    int saved = errno;

    settings.program = program;
    settings.level = level;
    settings.journal = stderr_is_journal();
    errno = saved;
}

int rblk_log_level_parse(enum rblk_log_level *level, const char *text)
{
    for (size_t i = 0; i < LEVEL_COUNT; i++)
        if (strcmp(text, levels[i].name) == 0) {
            *level = (enum rblk_log_level)i;
            return 0;
        }
    return -EINVAL;
}

/* snprintf's result as the number of bytes that are really in a buffer of len bytes. */
static size_t written(int rc, size_t len)
{
    if (rc < 0)
        return 0;
    return (size_t)rc < len ? (size_t)rc : len - 1;
}

/* A peer's text must neither start a line of its own nor command the terminal. */
static void replace_control_bytes(char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            text[i] = text[i] == '\t' ? ' ' : '?';
}

static void write_all(const char *text, size_t len)
{
    while (len > 0) {
        ssize_t done = write(STDERR_FILENO, text, len);

        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return; /* there is nowhere left to say so */
        text += done;
        len -= (size_t)done;
    }
}

void rblk_log(enum rblk_log_level level, const char *fmt, ...)
{
    char line[LINE_MAX_BYTES + 1]; /* and the newline */
    size_t start, len;
    int saved = errno;
    va_list ap;

    if (level > settings.level)
        return;
    if (settings.journal)
        start =
            written(snprintf(line, LINE_MAX_BYTES, "%s", levels[level].priority), LINE_MAX_BYTES);
    else
        start = written(
            snprintf(line, LINE_MAX_BYTES, "%s: %s", settings.program, levels[level].prefix),
            LINE_MAX_BYTES);
    errno = saved; /* for %m */
    va_start(ap, fmt);
    len = start +
          written(vsnprintf(line + start, LINE_MAX_BYTES - start, fmt, ap), LINE_MAX_BYTES - start);
    va_end(ap);
    replace_control_bytes(line + start, len - start);
    line[len++] = '\n';
    write_all(line, len);
    errno = saved;
}
