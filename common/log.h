/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * log -- what the programs (never the libraries) say: stderr, or syslog priorities under systemd
 *
 * Thread safe; one write per line; errno is preserved.
 */
#ifndef RBLK_COMMON_LOG_H
#define RBLK_COMMON_LOG_H

enum rblk_log_level { RBLK_LOG_ERROR, RBLK_LOG_WARNING, RBLK_LOG_INFO, RBLK_LOG_DEBUG };

/*
 * program: shown before each line, not copied; level: the least important one shown. Call before
 * threads start. When stderr is the systemd journal, lines carry its priorities instead.
 */
void rblk_log_init(const char *program, enum rblk_log_level level);
/* "error", "warning", "info", "debug": 0 or -EINVAL. */
int rblk_log_level_parse(enum rblk_log_level *level, const char *text);
/* One line, without a newline at its end; control bytes become '?'; %m is the caller's errno. */
__attribute__((format(printf, 2, 3))) void rblk_log(enum rblk_log_level level, const char *fmt,
                                                    ...);

#define log_error(...) rblk_log(RBLK_LOG_ERROR, __VA_ARGS__)
#define log_warning(...) rblk_log(RBLK_LOG_WARNING, __VA_ARGS__)
#define log_info(...) rblk_log(RBLK_LOG_INFO, __VA_ARGS__)
#define log_debug(...) rblk_log(RBLK_LOG_DEBUG, __VA_ARGS__)

#endif
