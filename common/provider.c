/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * provider -- which RDMA a program runs on: the system's rdma-core or our software provider
 *
 * Everything here runs before the program has threads.
 *
 * Running again: the first image puts the library at the front of LD_PRELOAD, leaves a note in
 * $RBLK_PROVIDER_NOTE ("PID LIBRARY") and executes its own file with its own arguments. The second
 * image, which has the same process id, finds the note: that is how it knows that it must not try
 * once more, and what to take out of LD_PRELOAD again. A note with another process id was inherited
 * from somewhere and means nothing.
 */
#include "provider.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef RBLK_LIBDIR
#define RBLK_LIBDIR "/usr/local/lib"
#endif

#define LIBRARY "librblk-softrdma.so"
#define ENV_PROVIDER "RBLK_PROVIDER"
#define ENV_LIBRARY "RBLK_SOFTRDMA_LIB"
#define ENV_NOTE "RBLK_PROVIDER_NOTE"
#define CM_DEVICE "/dev/infiniband/rdma_cm"
#define DEVICE_CLASS "/sys/class/infiniband"

static const char *const names[] = {
    [RBLK_PROVIDER_AUTO] = "auto",
    [RBLK_PROVIDER_VERBS] = "verbs",
    [RBLK_PROVIDER_SOFT] = "soft",
};

/* Where the text of an error goes. */
struct error {
    char *text;
    size_t len;
};

__attribute__((format(printf, 3, 4))) static int fail(const struct error *err, int rc,
                                                      const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(err->text, err->len, fmt, ap);
    va_end(ap);
    return rc;
}

int rblk_provider_parse(enum rblk_provider *p, const char *text)
{
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(text, names[i]) == 0) {
            *p = (enum rblk_provider)i;
            return 0;
        }
    return -EINVAL;
}

const char *rblk_provider_name(enum rblk_provider p)
{
    return names[p];
}

bool rblk_provider_is_soft(void)
{
    return dlsym(RTLD_DEFAULT, "rblk_softrdma_version") != NULL;
}

/* -- does this machine have an RDMA device? ------------------------------------------------ */

static bool device_class_empty(void)
{
    DIR *dir = opendir(DEVICE_CLASS);
    bool empty = true;
    struct dirent *entry;

    if (!dir)
        return true;
    while (empty && (entry = readdir(dir)))
        empty = entry->d_name[0] == '.';
    closedir(dir);
    return empty;
}

static bool device_has_active_port(struct ibv_device *device)
{
    struct ibv_context *context = ibv_open_device(device);
    struct ibv_device_attr attr;
    bool active = false;

    if (!context)
        return false;
    if (ibv_query_device(context, &attr) == 0)
        for (unsigned int port = 1; !active && port <= attr.phys_port_cnt; port++) {
            struct ibv_port_attr port_attr;

            active = ibv_query_port(context, (uint8_t)port, &port_attr) == 0 &&
                     port_attr.state == IBV_PORT_ACTIVE;
        }
    ibv_close_device(context);
    return active;
}

/* Points stderr at /dev/null and returns a duplicate of what it was, or -1 when that is impossible.
 */
static int silence_stderr(void)
{
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    int saved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);

    if (saved >= 0 && null >= 0)
        dup2(null, STDERR_FILENO);
    if (null >= 0)
        close(null);
    return saved;
}

static void restore_stderr(int saved)
{
    if (saved < 0)
        return;
    dup2(saved, STDERR_FILENO);
    close(saved);
}

/*
 * libibverbs prints warnings about devices that it has no driver for, and about a missing memlock
 * limit. Here the question is only whether there is a usable device, so they would be noise.
 */
static bool any_active_device(void)
{
    int saved = silence_stderr();
    struct ibv_device **devices = ibv_get_device_list(NULL);
    bool active = false;

    for (int i = 0; devices && devices[i] && !active; i++)
        active = device_has_active_port(devices[i]);
    if (devices)
        ibv_free_device_list(devices);
    restore_stderr(saved);
    return active;
}

/* NULL when the system's rdma-core can be used, else why not. */
static const char *verbs_problem(void)
{
    if (device_class_empty())
        return "this machine has no RDMA device";
    if (access(CM_DEVICE, F_OK) < 0)
        return CM_DEVICE " does not exist (load the kernel module rdma_ucm)";
    if (access(CM_DEVICE, R_OK | W_OK) < 0)
        return CM_DEVICE " may not be opened by this user";
    if (!any_active_device())
        return "no RDMA device has an active port";
    return NULL;
}

/* -- the software provider ----------------------------------------------------------------- */

/* The file of this program: the link is read because to execve(2) it would be valgrind's own. */
static int own_file(char path[PATH_MAX])
{
    ssize_t len = readlink("/proc/self/exe", path, PATH_MAX - 1);

    if (len < 0)
        return -errno;
    path[len] = '\0';
    return 0;
}

/* folder/../lib/LIBRARY beside the program as an absolute path: 0, or -errno. */
static int library_beside(char library[PATH_MAX], const char *program)
{
    char path[PATH_MAX + sizeof "/../lib/" LIBRARY];
    const char *slash = strrchr(program, '/');

    if (!slash)
        return -ENOENT;
    snprintf(path, sizeof path, "%.*s/../lib/" LIBRARY, (int)(slash - program), program);
    return realpath(path, library) ? 0 : -errno;
}

static int find_library(char library[PATH_MAX], const char *program, const struct error *err)
{
    const char *named = getenv(ENV_LIBRARY);

    if (named && *named) {
        if (!realpath(named, library))
            return fail(
                err, -errno,
                "cannot use the software RDMA provider %s: %m; correct or unset " ENV_LIBRARY,
                named);
        return 0;
    }
    if (library_beside(library, program) == 0 || realpath(RBLK_LIBDIR "/" LIBRARY, library))
        return 0;
    return fail(err, -ENOENT,
                "the software RDMA provider " LIBRARY
                " is neither in ../lib beside %s nor in " RBLK_LIBDIR
                "; install it, or name it in " ENV_LIBRARY,
                program);
}

/* LD_PRELOAD as it is with `library` at its front: 0, or -errno. */
static int preload_add(const char *library)
{
    const char *before = getenv("LD_PRELOAD");
    char *value;
    int rc = 0;

    if (asprintf(&value, "%s%s%s", library, before && *before ? ":" : "", before ? before : "") < 0)
        return -ENOMEM;
    if (setenv("LD_PRELOAD", value, 1) < 0)
        rc = -errno;
    free(value);
    return rc;
}

/*
 * LD_PRELOAD without `library`. Only that one entry goes: another program on the way (valgrind) may
 * have added some of its own.
 */
static void preload_remove(const char *library)
{
    static const char separators[] = ": "; /* ld.so(8) */
    char *value = getenv("LD_PRELOAD");    /* edited in place: it can only become shorter */
    char *entry = value;
    size_t len = strlen(library);

    while (entry && *entry) {
        size_t entry_len = strcspn(entry, separators);
        char *next = entry + entry_len + (entry[entry_len] != '\0');

        if (entry_len == len && memcmp(entry, library, len) == 0) {
            if (*next == '\0' && entry > value)
                entry[-1] = '\0'; /* the last one: its separator goes too */
            else
                memmove(entry, next, strlen(next) + 1);
            break;
        }
        entry = next;
    }
    if (value && *value == '\0')
        unsetenv("LD_PRELOAD");
}

/* Leaves the note for the second image. */
static int note_write(const char *library)
{
    char *note;
    int rc = 0;

    if (asprintf(&note, "%ld %s", (long)getpid(), library) < 0)
        return -ENOMEM;
    if (setenv(ENV_NOTE, note, 1) < 0)
        rc = -errno;
    free(note);
    return rc;
}

/* True when this process was executed again with `library`; takes the note and the preload back. */
static bool note_take(char library[PATH_MAX])
{
    const char *note = getenv(ENV_NOTE);
    char *end;
    bool mine;

    if (!note)
        return false;
    mine = strtol(note, &end, 10) == (long)getpid() && *end == ' ' && strlen(end + 1) < PATH_MAX;
    if (mine) {
        strcpy(library, end + 1);
        preload_remove(library);
    }
    unsetenv(ENV_NOTE);
    return mine;
}

/* Runs the program again with the library preloaded. Returns only when that fails. */
static int run_again(char **argv, const struct error *err)
{
    char program[PATH_MAX], library[PATH_MAX];
    int rc = own_file(program);

    if (rc < 0)
        return fail(err, rc,
                    "cannot find out which file this program is: /proc/self/exe: %s; is "
                    "/proc mounted?",
                    strerror(-rc));
    rc = find_library(library, program, err);
    if (rc < 0)
        return rc;
    if (strpbrk(library, ": "))
        return fail(
            err, -EINVAL,
            "the path \"%s\" has a blank or a colon, which LD_PRELOAD cannot carry; copy the "
            "library elsewhere and name it in " ENV_LIBRARY,
            library);
    rc = preload_add(library);
    if (rc == 0)
        rc = note_write(library);
    if (rc == 0) {
        execv(program, argv);
        if (errno == ENOENT) /* the file was replaced while this image ran */
            execv("/proc/self/exe", argv);
        rc = -errno;
    }
    preload_remove(library);
    unsetenv(ENV_NOTE);
    return fail(err, rc, "cannot run %s again with %s preloaded: %s", program, library,
                strerror(-rc));
}

/* -- selection ----------------------------------------------------------------------------- */

static int wanted(enum rblk_provider *p, const char *want, const struct error *err)
{
    const char *text = want ? want : getenv(ENV_PROVIDER);

    if (!text || *text == '\0') {
        *p = RBLK_PROVIDER_AUTO;
        return 0;
    }
    if (rblk_provider_parse(p, text) == 0)
        return 0;
    return fail(err, -EINVAL,
                "there is no RDMA provider \"%.40s\" (from %s); use auto, verbs or soft", text,
                want ? "--provider" : ENV_PROVIDER);
}

int rblk_provider_select(enum rblk_provider *chosen, const char *want, char **argv, char *err,
                         size_t errlen)
{
    const struct error error = {err, errlen};
    char library[PATH_MAX];
    enum rblk_provider provider = RBLK_PROVIDER_AUTO;
    bool again = note_take(library);
    const char *problem;
    int rc = wanted(&provider, want, &error);

    if (rc < 0)
        return rc;
    if (rblk_provider_is_soft()) {
        if (provider == RBLK_PROVIDER_VERBS)
            return fail(&error, -EBUSY,
                        "the provider \"verbs\" is wanted, but the software provider is preloaded; "
                        "take " LIBRARY " out of LD_PRELOAD");
        *chosen = RBLK_PROVIDER_SOFT;
        return 0;
    }
    if (again)
        return fail(&error, -ELIBACC,
                    "%s was preloaded but is not in effect: the dynamic linker refused it (see its "
                    "message above, or \"ldd %s\"), or this program runs with raised privileges, "
                    "where LD_PRELOAD is ignored; use --provider verbs, or run without them",
                    library, library);
    if (provider == RBLK_PROVIDER_SOFT)
        return run_again(argv, &error);
    problem = verbs_problem();
    if (problem && provider == RBLK_PROVIDER_AUTO)
        return run_again(argv, &error);
    if (problem)
        return fail(&error, -ENODEV,
                    "the provider \"verbs\" cannot be used: %s; or use "
                    "--provider soft, which needs no device",
                    problem);
    *chosen = RBLK_PROVIDER_VERBS;
    return 0;
}
