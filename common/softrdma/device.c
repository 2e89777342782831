/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * device.c -- the device "softrdma0": list, open, query, asynchronous events, process-wide set-up
 */
#include "softrdma.h"

#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#undef ibv_query_port

struct soft_config soft_config;

static pthread_once_t start_once = PTHREAD_ONCE_INIT;
static int start_result;
static atomic_bool forked;

static struct ibv_context *default_context;
static struct ibv_pd *default_pd;
static struct ibv_device device = {
    .node_type = IBV_NODE_RNIC,
    .transport_type = IBV_TRANSPORT_IWARP,
    .name = "softrdma0",
    .dev_name = "softrdma0",
    .dev_path = "/sys/class/infiniband_verbs/softrdma0",
    .ibdev_path = "/sys/class/infiniband/softrdma0",
};

/* The node's identity: locally administered, fixed, so that tools print something stable. */
static const uint8_t guid[8] = {0x02, 0x52, 0x42, 0xff, 0xfe, 0x4c, 0x4b, 0x00};

static void child_after_fork(void)
{
    atomic_store(&forked, true);
}

static unsigned int environment_number(const char *name, unsigned int fallback, unsigned int max)
{
    const char *text = getenv(name);
    char *end;
    unsigned long value;

    if (text == NULL || *text == '\0')
        return fallback;
    errno = 0;
    value = strtoul(text, &end, 10);
    if (errno != 0 || *end != '\0' || value > max)
        return fallback;
    return (unsigned int)value;
}

static void read_environment(void)
{
    const char *fpdu = getenv("RBLK_SOFTRDMA_FPDU");
    cpu_set_t cpus;
    unsigned int count = 1;

    CPU_ZERO(&cpus);
    if (sched_getaffinity(0, sizeof(cpus), &cpus) == 0)
        count = (unsigned int)CPU_COUNT(&cpus);
    soft_config.single_cpu = count < 2;
    soft_config.workers = environment_number("RBLK_SOFTRDMA_WORKERS", 1, SOFT_MAX_WORKERS);
    if (soft_config.workers == 0)
        soft_config.workers = 1;
    soft_config.spin_us = environment_number("RBLK_SOFTRDMA_SPIN_US", SOFT_SPIN_US, 100000);
    soft_config.tcp_timeout_ms =
        environment_number("RBLK_SOFTRDMA_TCP_TIMEOUT_MS", SOFT_TCP_TIMEOUT_MS, 3600000);
    soft_config.socket_buffer =
        (int)environment_number("RBLK_SOFTRDMA_SOCKET_BUFFER", SOFT_SOCKET_BUFFER, 1u << 30);
    soft_config.congestion = getenv("RBLK_SOFTRDMA_CONGESTION");
    soft_config.crc = environment_number("RBLK_SOFTRDMA_CRC", 0, 1) != 0;
    soft_config.debug = environment_number("RBLK_SOFTRDMA_DEBUG", 0, 1) != 0;
    soft_config.delegate = environment_number("RBLK_SOFTRDMA_DELEGATE", 1, 1) != 0;
    soft_config.fpdu_payload = SOFT_FPDU_PAYLOAD;
    if (fpdu != NULL && strcmp(fpdu, "mss") == 0) {
        soft_config.fpdu_payload = 0;
    } else {
        unsigned int bytes =
            environment_number("RBLK_SOFTRDMA_FPDU", SOFT_FPDU_PAYLOAD, SOFT_FPDU_PAYLOAD);

        if (bytes < SOFT_FPDU_PAYLOAD_MIN)
            bytes = SOFT_FPDU_PAYLOAD_MIN;
        soft_config.fpdu_payload = bytes & ~7u;
    }
}

static void start(void)
{
    read_environment();
    start_result = -pthread_atfork(NULL, NULL, child_after_fork);
    if (start_result == 0)
        start_result = soft_workers_start();
}

/* Start what the process needs once. Returns 0 or a negative errno, -EIO in a forked child. */
int soft_start(void)
{
    if (atomic_load_explicit(&forked, memory_order_relaxed))
        return -EIO;
    pthread_once(&start_once, start);
    return start_result;
}

/* False in a forked child. */
bool soft_usable(void)
{
    return !atomic_load_explicit(&forked, memory_order_relaxed);
}

/* Monotonic time in microseconds. */
uint64_t soft_now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

/* Fill with unpredictable bytes. */
void soft_random(void *out, size_t length)
{
    uint8_t *p = out;

    while (length > 0) {
        ssize_t n = getrandom(p, length, 0);

        if (n < 0 && errno != EINTR)
            abort(); /* unguessable keys are what keeps peers apart; there is no second best */
        if (n > 0) {
            p += n;
            length -= (size_t)n;
        }
    }
}

/* Print to stderr when RBLK_SOFTRDMA_DEBUG=1. Preserves errno. */
void soft_debug(const char *format, ...)
{
    int saved = errno;
    va_list arguments;

    if (!soft_config.debug)
        return;
    fprintf(stderr, "softrdma[%d] %llu: ", (int)getpid(), (unsigned long long)soft_now_us());
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    errno = saved;
}

static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr,
                      size_t length)
{
    struct ibv_port_attr full = {
        .state = IBV_PORT_ACTIVE,
        .max_mtu = IBV_MTU_4096,
        .active_mtu = IBV_MTU_4096,
        .gid_tbl_len = 1,
        .max_msg_sz = 1u << 31,
        .pkey_tbl_len = 1,
        .active_width = 2,
        .active_speed = 4,
        .phys_state = 5,
        .link_layer = IBV_LINK_LAYER_ETHERNET,
    };

    (void)context;
    if (port != 1)
        return EINVAL;
    memset(attr, 0, length);
    memcpy(attr, &full, length < sizeof(full) ? length : sizeof(full));
    return 0;
}

/* man ibv_query_port; callers of the exported symbol pass the structure's older, shorter form. */
int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr)
{
    return query_port(context, port, (struct ibv_port_attr *)attr,
                      offsetof(struct ibv_port_attr, port_cap_flags2));
}

/* man ibv_query_device. */
int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
    (void)context;
    *attr = (struct ibv_device_attr){
        .fw_ver = "1",
        .max_mr_size = UINT64_MAX,
        .page_size_cap = 4096,
        .hw_ver = 1,
        .max_qp = SOFT_MAX_QP,
        .max_qp_wr = SOFT_MAX_QP_WR,
        .max_sge = SOFT_MAX_SGE,
        .max_sge_rd = SOFT_MAX_SGE,
        .max_cq = 1 << 16,
        .max_cqe = SOFT_MAX_CQE,
        .max_mr = SOFT_MAX_MR - 1,
        .max_pd = 1 << 16,
        .max_qp_rd_atom = SOFT_MAX_RD_ATOMIC,
        .max_res_rd_atom = SOFT_MAX_RD_ATOMIC * 1024,
        .max_qp_init_rd_atom = SOFT_MAX_RD_ATOMIC,
        .atomic_cap = IBV_ATOMIC_NONE,
        .max_srq = 1 << 16,
        .max_srq_wr = SOFT_MAX_QP_WR,
        .max_srq_sge = SOFT_MAX_SGE,
        .max_pkeys = 1,
        .phys_port_cnt = 1,
    };
    memcpy(&attr->node_guid, guid, sizeof(guid));
    memcpy(&attr->sys_image_guid, guid, sizeof(guid));
    return 0;
}

static int query_device_ex(struct ibv_context *context,
                           const struct ibv_query_device_ex_input *input,
                           struct ibv_device_attr_ex *attr, size_t size)
{
    struct ibv_device_attr_ex full = {.phys_port_cnt_ex = 1};

    if (input != NULL && input->comp_mask != 0)
        return EINVAL;
    ibv_query_device(context, &full.orig_attr);
    memset(attr, 0, size);
    memcpy(attr, &full, size < sizeof(full) ? size : sizeof(full));
    return 0;
}

static struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
    (void)pd;
    (void)type;
    errno = EOPNOTSUPP;
    return NULL;
}

static int bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
    (void)qp;
    (void)mw;
    (void)bind;
    return EOPNOTSUPP;
}

static int dealloc_mw(struct ibv_mw *mw)
{
    (void)mw;
    return EOPNOTSUPP;
}

/* man ibv_open_device. Starts the provider's threads. Thread-safe. */
struct ibv_context *ibv_open_device(struct ibv_device *which)
{
    struct soft_context *context;
    int r = soft_start();

    if (r < 0 || which != &device) {
        errno = r < 0 ? -r : ENODEV;
        return NULL;
    }
    context = calloc(1, sizeof(*context));
    if (context == NULL)
        return NULL;
    pthread_mutex_init(&context->async_lock, NULL);
    context->verbs.query_port = query_port;
    context->verbs.query_device_ex = query_device_ex;
    context->verbs.sz = sizeof(struct verbs_context);
    context->verbs.context.device = &device;
    context->verbs.context.ops = (struct ibv_context_ops){
        .alloc_mw = alloc_mw,
        .bind_mw = bind_mw,
        .dealloc_mw = dealloc_mw,
        .poll_cq = soft_cq_poll,
        .req_notify_cq = soft_cq_notify,
        .post_srq_recv = soft_srq_post,
        .post_send = soft_qp_post_send,
        .post_recv = soft_qp_post_recv,
    };
    context->verbs.context.cmd_fd = -1;
    context->verbs.context.num_comp_vectors = 1;
    pthread_mutex_init(&context->verbs.context.mutex, NULL);
    context->verbs.context.abi_compat = (void *)UINTPTR_MAX;
    context->verbs.context.async_fd = eventfd(0, EFD_CLOEXEC);
    if (context->verbs.context.async_fd < 0) {
        free(context);
        return NULL;
    }
    return &context->verbs.context;
}

/* man ibv_close_device. */
int ibv_close_device(struct ibv_context *ibcontext)
{
    struct soft_context *context;

    if (ibcontext == NULL || ibcontext == default_context)
        return soft_errno(ibcontext == NULL ? EINVAL : 0);
    context = soft_context_of(ibcontext);
    while (context->async_head != NULL) {
        struct soft_async_event *next = context->async_head->next;

        free(context->async_head);
        context->async_head = next;
    }
    close(ibcontext->async_fd);
    pthread_mutex_destroy(&context->async_lock);
    pthread_mutex_destroy(&ibcontext->mutex);
    free(context);
    return 0;
}

static pthread_once_t default_once = PTHREAD_ONCE_INIT;

static void open_default(void)
{
    default_context = ibv_open_device(&device);
    if (default_context != NULL)
        default_pd = ibv_alloc_pd(default_context);
}

/* The context that connection ids use; opened once and kept. NULL with errno on failure. */
struct ibv_context *soft_default_context(void)
{
    if (soft_start() < 0) {
        errno = EIO;
        return NULL;
    }
    pthread_once(&default_once, open_default);
    if (default_pd == NULL) {
        errno = ENOMEM;
        return NULL;
    }
    return default_context;
}

/* The protection domain of ids that were given none, as librdmacm has one. NULL before use. */
struct ibv_pd *soft_default_pd(void)
{
    return default_pd;
}

/* man ibv_get_device_list: always the one device. */
struct ibv_device **ibv_get_device_list(int *count)
{
    struct ibv_device **list = calloc(2, sizeof(*list));

    if (list == NULL)
        return NULL;
    list[0] = &device;
    if (count != NULL)
        *count = 1;
    return list;
}

/* man ibv_free_device_list. */
void ibv_free_device_list(struct ibv_device **list)
{
    free(list);
}

/* man rdma_get_devices. */
struct ibv_context **rdma_get_devices(int *count)
{
    struct ibv_context **list;
    struct ibv_context *context = soft_default_context();

    if (context == NULL)
        return NULL;
    list = calloc(2, sizeof(struct ibv_context *));
    if (list == NULL)
        return NULL;
    list[0] = context;
    if (count != NULL)
        *count = 1;
    return list;
}

/* man rdma_free_devices. */
void rdma_free_devices(struct ibv_context **list)
{
    free(list);
}

/* man ibv_get_device_name. */
const char *ibv_get_device_name(struct ibv_device *which)
{
    return which->name;
}

/* man ibv_get_device_index: the kernel knows no such device. */
int ibv_get_device_index(struct ibv_device *which)
{
    (void)which;
    return -1;
}

/* man ibv_get_device_guid. */
__be64 ibv_get_device_guid(struct ibv_device *which)
{
    __be64 value;

    (void)which;
    memcpy(&value, guid, sizeof(value));
    return value;
}

/* man ibv_query_gid: one GID, made from the GUID. */
int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
    (void)context;
    if (port != 1 || index != 0)
        return soft_errno(EINVAL);
    memset(gid, 0, sizeof(*gid));
    gid->raw[0] = 0xfe;
    gid->raw[1] = 0x80;
    memcpy(gid->raw + 8, guid, sizeof(guid));
    return 0;
}

/* man ibv_query_gid_ex. */
int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index,
                      struct ibv_gid_entry *entry, uint32_t flags, size_t size)
{
    struct ibv_gid_entry full = {.port_num = 1, .gid_type = IBV_GID_TYPE_IB};

    if (flags != 0 || port != 1 || index != 0)
        return flags != 0 ? EOPNOTSUPP : EINVAL;
    if (ibv_query_gid(context, 1, 0, &full.gid) < 0)
        return errno;
    memset(entry, 0, size);
    memcpy(entry, &full, size < sizeof(full) ? size : sizeof(full));
    return 0;
}

/* man ibv_query_gid_table. */
ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t max,
                             uint32_t flags, size_t size)
{
    int r;

    if (max < 1)
        return -EINVAL;
    r = _ibv_query_gid_ex(context, 1, 0, entries, flags, size);
    return r == 0 ? 1 : -r;
}

/* libibverbs' private call behind ibv_devinfo: 0 stands for IB and RoCE version 1. */
int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index, int *type);
int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index, int *type)
{
    (void)context;
    if (port != 1 || index != 0)
        return soft_errno(EINVAL);
    *type = 0;
    return 0;
}

/* man ibv_query_pkey. */
int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey)
{
    (void)context;
    if (port != 1 || index != 0)
        return soft_errno(EINVAL);
    *pkey = 0xffff;
    return 0;
}

/* man ibv_get_pkey_index. */
int ibv_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey)
{
    (void)context;
    if (port != 1 || pkey != 0xffff)
        return soft_errno(EINVAL);
    return 0;
}

/* Queue an asynchronous event. Dropped when the application reads none. Thread-safe, leaf lock. */
void soft_async_push(struct ibv_context *ibcontext, enum ibv_event_type type, void *element)
{
    struct soft_context *context = soft_context_of(ibcontext);
    struct soft_async_event *event = calloc(1, sizeof(*event));
    const uint64_t one = 1;
    bool first = false;

    if (event == NULL)
        return;
    event->event.event_type = type;
    event->event.element.qp = element;
    pthread_mutex_lock(&context->async_lock);
    if (context->async_count < SOFT_MAX_ASYNC_EVENTS) {
        first = context->async_head == NULL;
        if (first)
            context->async_head = event;
        else
            context->async_tail->next = event;
        context->async_tail = event;
        context->async_count++;
        if (first && write(ibcontext->async_fd, &one, sizeof(one)) < 0)
            soft_debug("async event descriptor: %s", strerror(errno));
        event = NULL;
    }
    pthread_mutex_unlock(&context->async_lock);
    free(event);
}

static void async_settle(struct soft_context *context)
{
    uint64_t value;

    if (context->async_head == NULL &&
        read(context->verbs.context.async_fd, &value, sizeof(value)) < 0)
        soft_debug("async event descriptor: %s", strerror(errno));
}

/* Drop queued events of an object that is being destroyed. */
void soft_async_forget(struct ibv_context *ibcontext, const void *element)
{
    struct soft_context *context = soft_context_of(ibcontext);
    struct soft_async_event **link;
    bool had;

    pthread_mutex_lock(&context->async_lock);
    had = context->async_head != NULL;
    context->async_tail = NULL;
    for (link = &context->async_head; *link != NULL;) {
        struct soft_async_event *event = *link;

        if (event->event.element.qp == element) {
            *link = event->next;
            context->async_count--;
            free(event);
        } else {
            context->async_tail = event;
            link = &event->next;
        }
    }
    if (had)
        async_settle(context);
    pthread_mutex_unlock(&context->async_lock);
}

/* man ibv_get_async_event: blocks unless async_fd has O_NONBLOCK. */
int ibv_get_async_event(struct ibv_context *ibcontext, struct ibv_async_event *event)
{
    struct soft_context *context = soft_context_of(ibcontext);

    for (;;) {
        struct pollfd wait = {.fd = ibcontext->async_fd, .events = POLLIN};
        struct soft_async_event *first;

        pthread_mutex_lock(&context->async_lock);
        first = context->async_head;
        if (first != NULL) {
            context->async_head = first->next;
            context->async_count--;
            async_settle(context);
        }
        pthread_mutex_unlock(&context->async_lock);
        if (first != NULL) {
            *event = first->event;
            free(first);
            return 0;
        }
        if (soft_fd_nonblocking(ibcontext->async_fd))
            return soft_errno(EAGAIN);
        if (poll(&wait, 1, -1) < 0)
            return -1;
    }
}

/* man ibv_ack_async_event: objects do not wait for it, so there is nothing to count. */
void ibv_ack_async_event(struct ibv_async_event *event)
{
    (void)event;
}
