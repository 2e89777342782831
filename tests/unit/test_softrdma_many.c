/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_softrdma_many.c -- many queue pairs opened, used and destroyed at once, from both ends
 *
 * Each of several threads makes connections one after the other: one end works, a second thread ends
 * the connection at the other end at a random moment in a random manner. Every work request completes
 * exactly once, what was read is right, and at the end descriptors and memory are as before. Prints
 * its seed; RBLK_TEST_SEED repeats it.
 */
#include "random.h"
#include "suite.h"
#include "test_softrdma_pair.h"

#include <dirent.h>
#include <malloc.h>
#include <stdatomic.h>

#define THREADS 6u
#define ROUNDS 12u
#define SIZE 65536u
#define DEPTH 32u
#define RECEIVES 16u
/* Heap that may stay behind: destroyed event channels are kept for a while, tables grow once. */
#define HEAP_SLACK (64u << 10)

enum ending {
    DISCONNECT_FAR,  /* the other end disconnects */
    DISCONNECT_BOTH, /* both do, at once */
    DESTROY_FAR,     /* the other end destroys its queue pair under load */
    ERROR_FAR,       /* it moves its queue pair to error */
    DEREGISTER_FAR,  /* it takes the memory away that is being read */
    DESTROY_BOTH,    /* both destroy theirs, with everything outstanding */
    ENDINGS,
};

struct job {
    pthread_t thread;
    uint32_t seed;
    bool ipv6;
    uint64_t connections, operations;
};

struct link {
    struct pair pair; /* its channel is the near end's */
    struct rdma_event_channel *far;
    enum ending ending;
    uint32_t delay_us;
    atomic_bool go;
};

static uint32_t seed_of_all;

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 16;
}

static const struct pair_options options = {
    .size = SIZE, .sq_depth = DEPTH, .rq_depth = RECEIVES, .cqe = 2 * (DEPTH + RECEIVES)};

#define ACCESS_ALL (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)

static socklen_t loopback(struct sockaddr_storage *address, bool ipv6, uint16_t port_be)
{
    memset(address, 0, sizeof(*address));
    if (ipv6) {
        *(struct sockaddr_in6 *)address = (struct sockaddr_in6){
            .sin6_family = AF_INET6, .sin6_port = port_be, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
        return sizeof(struct sockaddr_in6);
    }
    *(struct sockaddr_in *)address = (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = port_be, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    return sizeof(struct sockaddr_in);
}

static bool have_ipv6(void)
{
    struct sockaddr_storage address;
    socklen_t length = loopback(&address, true, 0);
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool have = fd >= 0 && bind(fd, (struct sockaddr *)&address, length) == 0;

    if (fd >= 0)
        close(fd);
    return have;
}

/* ---------------------------------------------------------------- one connection */

static void link_open(struct link *link, bool ipv6)
{
    struct rdma_conn_param param = {.responder_resources = 8, .initiator_depth = 8};
    struct pair *pair = &link->pair;
    struct sockaddr_storage address;
    struct rdma_cm_event *event;
    struct rdma_cm_id *id;

    pair->channel = rdma_create_event_channel();
    link->far = rdma_create_event_channel();
    ck_assert(pair->channel != NULL && link->far != NULL);
    loopback(&address, ipv6, 0);
    ck_assert_int_eq(rdma_create_id(link->far, &pair->listener, NULL, RDMA_PS_TCP), 0);
    ck_assert_int_eq(rdma_bind_addr(pair->listener, (struct sockaddr *)&address), 0);
    ck_assert_int_eq(rdma_listen(pair->listener, 4), 0);
    loopback(&address, ipv6, rdma_get_src_port(pair->listener));
    ck_assert_int_eq(rdma_create_id(pair->channel, &id, NULL, RDMA_PS_TCP), 0);
    ck_assert_int_eq(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 1000), 0);
    expect_event(pair->channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    ck_assert_int_eq(rdma_resolve_route(id, 1000), 0);
    expect_event(pair->channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
    end_open(&pair->a, id, &options, ACCESS_ALL);
    ck_assert_int_eq(rdma_connect(id, &param), 0);
    event = next_event(link->far);
    ck_assert_int_eq(event->event, RDMA_CM_EVENT_CONNECT_REQUEST);
    end_open(&pair->b, event->id, &options, ACCESS_ALL);
    fill(pair->b.memory, SIZE, 3);
    for (uint32_t i = 0; i < RECEIVES; i++)
        ck_assert_int_eq(post_recv(&pair->b, i, SIZE / 2 + i * 64, 64), 0);
    ck_assert_int_eq(rdma_accept(event->id, &param), 0);
    rdma_ack_cm_event(event);
    expect_event(link->far, RDMA_CM_EVENT_ESTABLISHED);
    expect_event(pair->channel, RDMA_CM_EVENT_ESTABLISHED);
}

static void link_close(struct link *link)
{
    end_close(&link->pair.a);
    end_close(&link->pair.b);
    rdma_destroy_id(link->pair.listener);
    rdma_destroy_event_channel(link->pair.channel);
    rdma_destroy_event_channel(link->far);
}

static void *end_it(void *argument)
{
    struct link *link = argument;
    struct end *far = &link->pair.b;
    struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};

    while (!atomic_load(&link->go))
        sched_yield();
    usleep(link->delay_us);
    switch (link->ending) {
    case DISCONNECT_FAR:
    case DISCONNECT_BOTH:
        rdma_disconnect(far->id);
        break;
    case ERROR_FAR:
        ck_assert_int_eq(ibv_modify_qp(far->id->qp, &error, IBV_QP_STATE), 0);
        break;
    case DEREGISTER_FAR:
        ck_assert_int_eq(ibv_dereg_mr(far->mr), 0);
        far->mr = NULL;
        break;
    default:
        rdma_destroy_qp(far->id);
        break;
    }
    return NULL;
}

struct work {
    uint64_t posted, completed;
    uint64_t expected[DEPTH]; /* work request outstanding in a slot */
    bool read[DEPTH];
    uint32_t offset[DEPTH];
    bool broken; /* a completion was not a success */
    uint32_t sends;
};

/* One more work request in a free slot, of a random kind. The far end posted few receives. */
static void post_one(struct end *near, struct work *w, uint64_t remote, uint32_t key,
                     uint32_t *random)
{
    uint32_t slot = (uint32_t)(w->posted % DEPTH), kind = next_random(random) % 8;
    uint32_t length = kind == 0 ? 1024 : 512;
    enum ibv_wr_opcode opcode = IBV_WR_RDMA_READ;

    w->offset[slot] = next_random(random) % (SIZE / 2 - 1024);
    if (kind == 1)
        opcode = IBV_WR_RDMA_WRITE;
    if (kind == 2 && w->sends < RECEIVES) {
        opcode = IBV_WR_SEND;
        length = 64;
        w->sends++;
    }
    w->read[slot] = opcode == IBV_WR_RDMA_READ;
    w->expected[slot] = w->posted;
    memset(near->memory + slot * 1024, 0, 1024);
    ck_assert_int_eq(
        post(near, w->posted++, opcode, IBV_SEND_SIGNALED, slot * 1024, length,
             opcode == IBV_WR_RDMA_WRITE ? remote + SIZE * 3 / 4 : remote + w->offset[slot], key),
        0);
}

/* Completions of one queue pair come in order. */
static void take(const struct link *link, struct work *w, const struct ibv_wc *wc)
{
    uint32_t slot = (uint32_t)(wc->wr_id % DEPTH);
    const uint8_t *from = link->pair.b.memory + w->offset[slot];

    ck_assert_uint_eq(wc->wr_id, w->completed);
    ck_assert_uint_eq(w->expected[slot], wc->wr_id);
    w->completed++;
    if (wc->status != IBV_WC_SUCCESS) {
        w->broken = true;
        return;
    }
    ck_assert_msg(!w->broken, "a work request succeeded after another had failed");
    if (w->read[slot])
        ck_assert_mem_eq(link->pair.a.memory + slot * 1024, from, 512);
}

static void work_until_it_breaks(struct link *link, uint32_t *random, struct work *w)
{
    struct end *near = &link->pair.a;
    const uint64_t remote = at(&link->pair.b, 0), limit = now_ms() + PAIR_WAIT_MS;
    const uint32_t key = link->pair.b.mr->rkey;
    struct ibv_wc wc[8];

    atomic_store(&link->go, true);
    while (!w->broken) {
        int n;

        ck_assert_msg(now_ms() < limit, "the connection does not break");
        while (w->posted - w->completed < DEPTH && next_random(random) % 8 != 0)
            post_one(near, w, remote, key, random);
        n = ibv_poll_cq(near->cq, 8, wc);
        ck_assert_int_ge(n, 0);
        for (int i = 0; i < n; i++)
            take(link, w, &wc[i]);
        if (link->ending == DISCONNECT_BOTH && next_random(random) % 256 == 0)
            rdma_disconnect(near->id);
        if (link->ending == DESTROY_BOTH && next_random(random) % 1024 == 0)
            return;
    }
    while (w->completed < w->posted) {
        int n = ibv_poll_cq(near->cq, 8, wc);

        ck_assert_msg(now_ms() < limit, "%llu work requests never complete",
                      (unsigned long long)(w->posted - w->completed));
        for (int i = 0; i < n; i++)
            take(link, w, &wc[i]);
    }
    expect_event(link->pair.channel, RDMA_CM_EVENT_DISCONNECTED);
}

static void connection(struct job *job, uint32_t *random)
{
    struct link link = {.ending = next_random(random) % ENDINGS,
                        .delay_us = next_random(random) % 3000};
    struct work work = {0};
    pthread_t thread;

    link_open(&link, job->ipv6 && next_random(random) % 2 == 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, end_it, &link), 0);
    work_until_it_breaks(&link, random, &work);
    if (link.ending == DESTROY_BOTH)
        rdma_destroy_qp(link.pair.a.id);
    pthread_join(thread, NULL);
    link_close(&link);
    job->connections++;
    job->operations += work.completed;
}

static void *run_job(void *argument)
{
    struct job *job = argument;
    uint32_t random = job->seed;

    for (uint32_t i = 0; i < ROUNDS; i++)
        connection(job, &random);
    return NULL;
}

/* ---------------------------------------------------------------- all of them */

static unsigned int open_descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    unsigned int count = 0;

    ck_assert_ptr_nonnull(dir);
    while (readdir(dir) != NULL)
        count++;
    closedir(dir);
    return count;
}

/* Bytes in use, or 0 where the allocator does not say (sanitizers look for leaks themselves). */
static size_t heap_in_use(void)
{
    struct mallinfo2 info = mallinfo2();

    return info.uordblks + info.hblkhd;
}

static void run_all(uint32_t threads, uint32_t seed, struct job *jobs)
{
    bool ipv6 = have_ipv6();

    for (uint32_t i = 0; i < threads; i++) {
        jobs[i] = (struct job){.seed = seed + i * 7919, .ipv6 = ipv6};
        ck_assert_int_eq(pthread_create(&jobs[i].thread, NULL, run_job, &jobs[i]), 0);
    }
    for (uint32_t i = 0; i < threads; i++)
        pthread_join(jobs[i].thread, NULL);
}

static void many(const char *workers)
{
    struct job jobs[THREADS];
    uint64_t connections = 0, operations = 0;
    unsigned int descriptors;
    size_t heap;

    setenv("RBLK_SOFTRDMA_WORKERS", workers, 1);
    printf("seed %u, %s workers\n", seed_of_all, workers);
    fflush(stdout);
    run_all(THREADS, seed_of_all ^ 0x5555, jobs); /* tables and thread caches grow once */
    descriptors = open_descriptors();
    heap = heap_in_use();
    run_all(THREADS, seed_of_all, jobs);
    for (uint32_t i = 0; i < THREADS; i++) {
        connections += jobs[i].connections;
        operations += jobs[i].operations;
    }
    printf("measured: %llu connections, %llu work requests, %u descriptors, %zu bytes of heap "
           "before and %zu after\n",
           (unsigned long long)connections, (unsigned long long)operations, descriptors, heap,
           heap_in_use());
    ck_assert_uint_eq(connections, THREADS * ROUNDS);
    ck_assert_uint_eq(open_descriptors(), descriptors);
    ck_assert_uint_le(heap_in_use(), heap + HEAP_SLACK);
}

START_TEST(one_worker)
{
    many("1");
}
END_TEST

START_TEST(four_workers)
{
    many("4");
}
END_TEST

/* ---------------------------------------------------------------- one listener, many clients */

struct client {
    pthread_t thread;
    uint16_t port_be;
    uint32_t seed;
};

/* Connects and gives up somewhere on the way. */
static void *come_and_go(void *argument)
{
    struct client *client = argument;
    struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
    uint32_t random = client->seed;

    for (uint32_t i = 0; i < ROUNDS; i++) {
        struct rdma_event_channel *channel = rdma_create_event_channel();
        struct rdma_cm_event *event;
        struct end end = {0};

        end_open(&end, resolve(channel, client->port_be), &options, ACCESS_ALL);
        ck_assert_int_eq(rdma_connect(end.id, &param), 0);
        if (next_random(&random) % 4 > 0) {
            event = next_event(channel);
            ck_assert_msg(event->event == RDMA_CM_EVENT_ESTABLISHED ||
                              event->event == RDMA_CM_EVENT_REJECTED,
                          "got %s", rdma_event_str(event->event));
            rdma_ack_cm_event(event);
            if (next_random(&random) % 2)
                rdma_disconnect(end.id);
        } else {
            usleep(next_random(&random) % 1000);
        }
        end_close(&end);
        rdma_destroy_event_channel(channel);
    }
    return NULL;
}

struct server {
    struct rdma_event_channel *channel;
    struct rdma_cm_id *listener;
    atomic_bool stop;
    uint32_t seed;
};

static void serve_event(struct rdma_cm_event *event, uint32_t *random)
{
    struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
    struct rdma_cm_id *id = event->id;
    enum rdma_cm_event_type type = event->event;
    struct end *end;

    if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
        if (next_random(random) % 8 == 0) {
            rdma_ack_cm_event(event);
            rdma_reject(id, NULL, 0);
            rdma_destroy_id(id);
            return;
        }
        end = calloc(1, sizeof(*end));
        ck_assert_ptr_nonnull(end);
        end_open(end, id, &options, ACCESS_ALL);
        id->context = end;
        if (rdma_accept(id, &param) != 0) {
            rdma_ack_cm_event(event);
            end_close(end);
            free(end);
            return;
        }
    }
    rdma_ack_cm_event(event);
    if (type == RDMA_CM_EVENT_DISCONNECTED) {
        end = id->context;
        end_close(end);
        free(end);
    }
}

static void *serve(void *argument)
{
    struct server *server = argument;
    struct pollfd wait = {.fd = server->channel->fd, .events = POLLIN};
    uint32_t random = server->seed;

    for (;;) {
        struct rdma_cm_event *event;

        if (poll(&wait, 1, 100) == 0) {
            if (atomic_load(&server->stop))
                return NULL;
            continue;
        }
        ck_assert_int_eq(rdma_get_cm_event(server->channel, &event), 0);
        serve_event(event, &random);
    }
}

/* Clients that come and go, some before they are accepted; the server gets an end for each begin. */
START_TEST(clients_come_and_go)
{
    struct server server = {.seed = seed_of_all};
    struct client clients[THREADS];
    unsigned int descriptors;
    pthread_t thread;

    printf("seed %u\n", seed_of_all);
    fflush(stdout);
    server.channel = rdma_create_event_channel();
    server.listener = listen_any(server.channel);
    descriptors = open_descriptors();
    ck_assert_int_eq(pthread_create(&thread, NULL, serve, &server), 0);
    for (uint32_t i = 0; i < THREADS; i++) {
        clients[i] = (struct client){.port_be = rdma_get_src_port(server.listener),
                                     .seed = seed_of_all + i * 104729};
        ck_assert_int_eq(pthread_create(&clients[i].thread, NULL, come_and_go, &clients[i]), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++)
        pthread_join(clients[i].thread, NULL);
    atomic_store(&server.stop, true);
    pthread_join(thread, NULL);
    ck_assert_uint_eq(open_descriptors(), descriptors);
    rdma_destroy_id(server.listener);
    rdma_destroy_event_channel(server.channel);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("softrdma_many");
    TCase *tcase = tcase_create("many");

    seed_of_all = (uint32_t)random_seed();
    tcase_add_test(tcase, one_worker);
    tcase_add_test(tcase, four_workers);
    tcase_add_test(tcase, clients_come_and_go);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
