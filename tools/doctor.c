/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * doctor -- rblk doctor: checks what a user of this machine could trip over
 *
 * Each check adds a finding: ok, a warning (something is slower or missing that not everybody
 * needs), or a failure (rblk cannot work as it is), with what to do. The software provider needs
 * neither a device nor memlock, so what only concerns real devices is never a failure while it is
 * in use.
 */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <limits.h>
#include <linux/io_uring.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "doctor.h"
#include "log.h"
#include "provider.h"
#include "runtime.h"
#include "size.h"
#include "tool.h"

/* What one mount and one extent ask for at least, bytes: below that, registering on a real device
 * fails. */
#define MEMLOCK_NEEDED (256u << 20)

enum level { LEVEL_OK, LEVEL_WARN, LEVEL_FAIL };

static const char *const level_names[] = {"ok", "warn", "fail"};

struct report {
    json_object *list;
    bool failed;
    bool soft; /* the software provider is in use */
    unsigned int kernel_major, kernel_minor;
};

__attribute__((format(printf, 5, 6))) static void add(struct report *r, enum level level,
                                                      const char *check, const char *remedy,
                                                      const char *fmt, ...)
{
    json_object *object = json_object_new_object();
    char text[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    tool_json_text(object, "check", check);
    tool_json_text(object, "level", level_names[level]);
    tool_json_text(object, "found", text);
    tool_json_text(object, "remedy", remedy);
    json_object_array_add(r->list, object);
    if (level == LEVEL_FAIL)
        r->failed = true;
}

bool doctor_kernel_parse(const char *release, unsigned int *major_version,
                         unsigned int *minor_version)
{
    return sscanf(release, "%u.%u", major_version, minor_version) == 2;
}

static bool kernel_is(const struct report *r, unsigned int major_version,
                      unsigned int minor_version)
{
    return r->kernel_major > major_version ||
           (r->kernel_major == major_version && r->kernel_minor >= minor_version);
}

/* -- RDMA ----------------------------------------------------------------------------------------
 */

static void check_provider(struct report *r)
{
    if (r->soft)
        add(r, LEVEL_OK, "provider", "",
            "the software provider is in use (iWARP over TCP), it needs no RDMA device");
    else
        add(r, LEVEL_OK, "provider", "", "the system's rdma-core is in use");
}

static void check_port(struct report *r, struct ibv_context *context, unsigned int port)
{
    const char *name = ibv_get_device_name(context->device);
    struct ibv_port_attr attr;

    if (ibv_query_port(context, (uint8_t)port, &attr) != 0)
        add(r, r->soft ? LEVEL_FAIL : LEVEL_WARN, "rdma port", "see dmesg",
            "%s port %u cannot be queried", name, port);
    else if (attr.state == IBV_PORT_ACTIVE)
        add(r, LEVEL_OK, "rdma port", "", "%s port %u is active", name, port);
    else
        add(r, LEVEL_WARN, "rdma port",
            "bring its network interface up (ip link set DEV up), check the cable, or start a "
            "subnet "
            "manager (InfiniBand)",
            "%s port %u is %s", name, port, ibv_port_state_str(attr.state));
}

/* Devices of the provider in use. */
static void check_devices(struct report *r)
{
    int count = 0;
    struct ibv_device **devices = ibv_get_device_list(&count);

    if (!devices || count == 0)
        add(r, LEVEL_FAIL, "rdma devices", "use --provider soft, or load the driver of the device",
            "there is no RDMA device");
    for (int i = 0; i < count; i++) {
        struct ibv_context *context = ibv_open_device(devices[i]);
        struct ibv_device_attr attr;

        if (!context || ibv_query_device(context, &attr) != 0) {
            add(r, LEVEL_FAIL, "rdma devices", "see the permissions of /dev/infiniband",
                "%s cannot be opened: %s", ibv_get_device_name(devices[i]), strerror(errno));
        } else {
            for (unsigned int port = 1; port <= attr.phys_port_cnt; port++)
                check_port(r, context, port);
        }
        if (context)
            ibv_close_device(context);
    }
    if (devices)
        ibv_free_device_list(devices);
}

/* What the kernel has, whichever provider is in use. */
static void check_kernel_rdma(struct report *r)
{
    DIR *dir = opendir("/sys/class/infiniband");
    enum level problem = r->soft ? LEVEL_WARN : LEVEL_FAIL;
    unsigned int devices = 0;

    for (struct dirent *e = dir ? readdir(dir) : NULL; e; e = readdir(dir))
        devices += e->d_name[0] != '.';
    if (dir)
        closedir(dir);
    if (devices == 0) {
        add(r, r->soft ? LEVEL_OK : LEVEL_FAIL, "kernel rdma",
            r->soft ? "" : "load the driver of the device, or use --provider soft",
            "the kernel has no RDMA device");
        return;
    }
    if (access("/dev/infiniband/rdma_cm", R_OK | W_OK) == 0)
        add(r, LEVEL_OK, "kernel rdma", "", "%u device(s), /dev/infiniband/rdma_cm can be opened",
            devices);
    else if (errno == ENOENT)
        add(r, problem, "kernel rdma",
            "modprobe rdma_ucm ib_uverbs; in a container pass /dev/infiniband",
            "%u device(s), but /dev/infiniband/rdma_cm does not exist", devices);
    else
        add(r, problem, "kernel rdma", "give the user access (group rdma), or run as root",
            "%u device(s), but /dev/infiniband/rdma_cm cannot be opened: %s", devices,
            strerror(errno));
}

static void check_memlock(struct report *r)
{
    static const char remedy[] =
        "ulimit -l unlimited, LimitMEMLOCK=infinity in the unit, or /etc/security/limits.conf";
    struct rlimit limit;
    char text[32];

    if (getrlimit(RLIMIT_MEMLOCK, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY) {
        add(r, LEVEL_OK, "memlock", "", "memory may be locked without limit");
        return;
    }
    rblk_size_format(text, sizeof(text), limit.rlim_cur);
    if (r->soft)
        add(r, LEVEL_OK, "memlock", "", "the limit is %s; the software provider locks no memory",
            text);
    else if (limit.rlim_cur < MEMLOCK_NEEDED)
        add(r, LEVEL_FAIL, "memlock", remedy, "the limit is %s, too little to register buffers",
            text);
    else
        add(r, LEVEL_WARN, "memlock", remedy, "the limit is %s; a target registers whole extents",
            text);
}

static void check_registration(struct report *r)
{
    if (r->soft)
        add(r, LEVEL_OK, "file mappings", "",
            "the software provider registers file mappings on any kernel");
    else if (kernel_is(r, 6, 5))
        add(r, LEVEL_OK, "file mappings", "",
            "a read-only mapping of a file can be registered for remote reading (since 6.2); for "
            "writing no longer (since 6.5), and rblk does not ask for that");
    else if (kernel_is(r, 6, 2))
        add(r, LEVEL_OK, "file mappings", "",
            "a read-only mapping of a file can be registered for remote reading (since 6.2)");
    else
        add(r, LEVEL_WARN, "file mappings", "Linux 6.2 or later on the target does not do that",
            "before Linux 6.2 a file must be mapped for writing to be registered: a target "
            "fills the "
            "holes of sparse files");
}

/* -- FUSE
 * ------------------------------------------------------------------------------------------ */

static void check_fuse(struct report *r)
{
    int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);

    if (fd >= 0) {
        close(fd);
        add(r, LEVEL_OK, "fuse", "", "/dev/fuse can be opened");
    } else if (errno == EACCES || errno == EPERM) {
        add(r, LEVEL_FAIL, "fuse", "chmod 666 /dev/fuse; a container needs --device /dev/fuse",
            "/dev/fuse cannot be opened: %s", strerror(errno));
    } else {
        add(r, LEVEL_FAIL, "fuse",
            "modprobe fuse; a container needs --device /dev/fuse --cap-add SYS_ADMIN",
            "/dev/fuse cannot be opened: %s", strerror(errno));
    }
}

static void check_fusermount(struct report *r)
{
    if (access("/usr/bin/fusermount3", X_OK) == 0 || access("/bin/fusermount3", X_OK) == 0)
        add(r, LEVEL_OK, "fusermount3", "", "fusermount3 is installed");
    else
        add(r, geteuid() == 0 ? LEVEL_WARN : LEVEL_FAIL, "fusermount3", "install the package fuse3",
            "fusermount3 is not installed; only root can mount without it");
}

static void check_parallel_writes(struct report *r)
{
    if (kernel_is(r, 6, 2))
        add(r, LEVEL_OK, "parallel writes", "",
            "direct writes to one disk run side by side (since Linux 6.2)");
    else
        add(r, LEVEL_WARN, "parallel writes", "Linux 6.2 or later; or use librblk without FUSE",
            "before Linux 6.2 direct writes to one mounted disk wait for each other");
}

static void check_loop(struct report *r)
{
    if (access("/dev/loop-control", F_OK) != 0)
        add(r, LEVEL_WARN, "loop", "modprobe loop; a container needs --device /dev/loop-control",
            "/dev/loop-control does not exist: no file system can be put on a mounted disk");
    else if (access("/dev/loop-control", R_OK | W_OK) != 0)
        add(r, LEVEL_WARN, "loop", "run losetup and mount as root",
            "/dev/loop-control cannot be opened: %s", strerror(errno));
    else
        add(r, LEVEL_OK, "loop", "", "loop devices can be made");
}

static void check_runtime(struct report *r)
{
    char dir[108], err[256];

    if (rblk_runtime_prepare(dir, sizeof(dir), err, sizeof(err)) < 0)
        add(r, LEVEL_WARN, "runtime folder", "set RBLK_RUNTIME_DIR to a folder of yours",
            "%s; rblk status shows nothing without it", err);
    else
        add(r, LEVEL_OK, "runtime folder", "", "%s is used for status sockets", dir);
}

/* -- the target's needs
 * ------------------------------------------------------------------------------ */

/* First number in a file of /proc; -1 when there is none. */
static long read_number(const char *path)
{
    FILE *f = fopen(path, "re");
    long value = -1;

    if (!f)
        return -1;
    if (fscanf(f, "%ld", &value) != 1)
        value = -1;
    fclose(f);
    return value;
}

/* True when a seccomp filter is set on this process (man 5 proc, Seccomp in status). */
static bool seccomp_filtered(void)
{
    FILE *f = fopen("/proc/self/status", "re");
    char line[256];
    int mode = 0;

    if (!f)
        return false;
    while (fgets(line, sizeof(line), f))
        if (sscanf(line, "Seccomp: %d", &mode) == 1)
            break;
    fclose(f);
    return mode == 2;
}

static void check_io_uring(struct report *r)
{
    struct io_uring_params params = {0};
    int fd = (int)syscall(SYS_io_uring_setup, 4, &params);
    long disabled;

    if (fd >= 0) {
        close(fd);
        add(r, LEVEL_OK, "io_uring", "", "io_uring can be used");
        return;
    }
    disabled = read_number("/proc/sys/kernel/io_uring_disabled");
    if (errno == EPERM && disabled > 0)
        add(r, LEVEL_FAIL, "io_uring", "sysctl kernel.io_uring_disabled=0; only targets need it",
            "io_uring is forbidden: kernel.io_uring_disabled is %ld", disabled);
    else if (errno == EPERM && seccomp_filtered())
        add(r, LEVEL_FAIL, "io_uring",
            "run the container with --security-opt seccomp=unconfined or a profile that allows "
            "io_uring_setup, io_uring_enter, io_uring_register; only targets need it",
            "io_uring is forbidden by a seccomp filter");
    else if (errno == ENOMEM)
        add(r, LEVEL_FAIL, "io_uring", "ulimit -l unlimited; only targets need it",
            "io_uring has too little memory to lock (old kernels count it as memlock)");
    else
        add(r, LEVEL_FAIL, "io_uring", "a target needs Linux 5.6 or later with io_uring",
            "io_uring cannot be used: %s", strerror(errno));
}

static void check_kernel(struct report *r)
{
    struct utsname name;

    if (uname(&name) < 0 ||
        !doctor_kernel_parse(name.release, &r->kernel_major, &r->kernel_minor)) {
        add(r, LEVEL_WARN, "kernel", "", "the version of the kernel cannot be told");
        return;
    }
    add(r, LEVEL_OK, "kernel", "", "Linux %s", name.release);
}

static void print(const struct report *r)
{
    for (size_t i = 0; i < json_object_array_length(r->list); i++) {
        json_object *o = json_object_array_get_idx(r->list, i);
        const char *remedy = json_object_get_string(json_object_object_get(o, "remedy"));

        printf("%-5s %-16s %s\n", json_object_get_string(json_object_object_get(o, "level")),
               json_object_get_string(json_object_object_get(o, "check")),
               json_object_get_string(json_object_object_get(o, "found")));
        if (remedy[0])
            printf("%-5s %-16s -> %s\n", "", "", remedy);
    }
}

int command_doctor(const struct command *command, int argc, char **argv)
{
    struct report r = {0};
    struct tool_arguments a;
    int rc = tool_parse(command, argc, argv, NULL, NULL, NULL, 0, 0, &a);

    if (rc >= 0)
        return rc;
    r.list = json_object_new_array();
    if (!r.list) {
        log_error("out of memory");
        return TOOL_FAILED;
    }
    r.soft = rblk_provider_is_soft();
    check_kernel(&r);
    check_provider(&r);
    check_devices(&r);
    check_kernel_rdma(&r);
    check_memlock(&r);
    check_registration(&r);
    check_fuse(&r);
    check_fusermount(&r);
    check_parallel_writes(&r);
    check_loop(&r);
    check_io_uring(&r);
    check_runtime(&r);
    if (a.json) {
        rc = tool_print_json(r.list);
    } else {
        print(&r);
        json_object_put(r.list);
        rc = tool_finish_output();
    }
    return r.failed ? TOOL_FAILED : rc;
}
