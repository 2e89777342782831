/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_initiator_link.c -- what a queue gives its device, and the end of a queue's connection
 *
 * rdma_destroy_qp is wrapped (tests/SConscript): called by librblk's control thread it waits until
 * the test lets it go, as a kernel does whose network device holds on to packets.
 */
#include "initiator/queue.h"
#include "suite.h"
#include "test_target_client.h"

#define WITHIN_MS 3000 /* no time limit of librblk plays a part */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool held, waiting;
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};

/* Names that the linker's --wrap makes. */
void __real_rdma_destroy_qp(struct rdma_cm_id *id);
void __wrap_rdma_destroy_qp(struct rdma_cm_id *id);

void __wrap_rdma_destroy_qp(struct rdma_cm_id *id)
{
    char name[16] = "";

    pthread_getname_np(pthread_self(), name, sizeof(name));
    if (strcmp(name, "rblk-control") == 0) {
        pthread_mutex_lock(&gate.lock);
        gate.waiting = true;
        pthread_cond_broadcast(&gate.cond);
        while (gate.held)
            pthread_cond_wait(&gate.cond, &gate.lock);
        pthread_mutex_unlock(&gate.lock);
    }
    __real_rdma_destroy_qp(id);
}

static void wait_until_held(void)
{
    pthread_mutex_lock(&gate.lock);
    while (!gate.waiting)
        pthread_cond_wait(&gate.cond, &gate.lock);
    pthread_mutex_unlock(&gate.lock);
}

static void let_go(void)
{
    pthread_mutex_lock(&gate.lock);
    gate.held = false;
    pthread_cond_broadcast(&gate.cond);
    pthread_mutex_unlock(&gate.lock);
}

static atomic_uint ended;

static void count_end(void *opaque, int error)
{
    (void)opaque;
    (void)error; /* the target may have answered before it ended */
    ended++;
}

/* Polls both queues until what was in flight has ended. */
static void *poll_main(void *opaque)
{
    while (ended < 2)
        for (unsigned int i = 0; i < 2; i++)
            rblk_queue_poll(rblk_get_queue(opaque, i));
    return NULL;
}

/* While a queue pair is being destroyed requests end, on each queue, and new ones are refused. */
START_TEST(slow_end_of_a_queue_pair)
{
    uint64_t deadline;
    pthread_t thread;
    char uri[64], byte;
    struct rblk *h;
    int rc;

    gate.held = true;
    server_start();
    ck_assert_int_eq(rblk_create(&h), 0);
    ck_assert_int_eq(rblk_set_queues(h, 2), 0);
    snprintf(uri, sizeof(uri), "rblk://127.0.0.1:%s/disk", server.port);
    ck_assert_msg(rblk_connect(h, uri) == 0, "%s", rblk_error(h));
    for (unsigned int i = 0; i < 2; i++) {
        ck_assert_int_eq(rblk_aio_flush(rblk_get_queue(h, i), count_end, NULL), 0);
        ck_assert_int_eq(rblk_queue_submit(rblk_get_queue(h, i)), 0);
    }

    server_stop();
    wait_until_held();
    deadline = rblk_deadline_ms(WITHIN_MS);
    ck_assert_int_eq(pthread_create(&thread, NULL, poll_main, h), 0);
    while ((rc = pthread_tryjoin_np(thread, NULL)) == EBUSY && rblk_deadline_left_ms(deadline) > 0)
        usleep(1000);
    ck_assert_msg(rc == 0, "a request waits for the end of a queue pair");
    ck_assert_int_eq(rblk_pread(h, &byte, 1, 0), -EIO);
    ck_assert_int_eq(rblk_aio_flush(rblk_get_queue(h, 0), count_end, NULL), -EIO);

    let_go();
    rblk_close(h);
}
END_TEST

/* Stands in for the device's post_send, and counts what goes out on one queue pair. */
static struct {
    int (*post_send)(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
    _Atomic(struct ibv_qp *) qp;
    atomic_uint sends, inlined, rdma_writes;
} seen;

static int count_posted(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    for (const struct ibv_send_wr *w = wr; w && qp == seen.qp; w = w->next) {
        seen.sends += w->opcode == IBV_WR_SEND;
        seen.inlined += w->opcode == IBV_WR_SEND && (w->send_flags & IBV_SEND_INLINE);
        seen.rdma_writes += w->opcode == IBV_WR_RDMA_WRITE && w->num_sge > 0;
    }
    return seen.post_send(qp, wr, bad);
}

static void watch_posting(void)
{
    int count;
    struct ibv_context **devices = rdma_get_devices(&count);

    ck_assert_ptr_nonnull(devices);
    ck_assert_int_eq(count, 1);
    seen.post_send = devices[0]->ops.post_send;
    devices[0]->ops.post_send = count_posted;
    rdma_free_devices(devices);
}

/* A command travels in its work request (tests/vm/README.md says why), unless data goes with it. */
START_TEST(commands_without_data_are_inline)
{
    static uint8_t data[64 << 10];
    char uri[64];
    struct rblk *h;

    watch_posting(); /* before there are other threads */
    server_start();
    ck_assert_int_eq(rblk_create(&h), 0);
    snprintf(uri, sizeof(uri), "rblk://127.0.0.1:%s/disk", server.port);
    ck_assert_msg(rblk_connect(h, uri) == 0, "%s", rblk_error(h));
    seen.qp = rblk_get_queue(h, 0)->endpoint.id->qp;

    ck_assert_int_eq(rblk_flush(h), 0);
    ck_assert_uint_eq(seen.sends, 1);
    ck_assert_uint_eq(seen.inlined, 1);
    ck_assert_int_eq(rblk_pwrite(h, data, sizeof(data), 0, 0), 0);
    ck_assert_uint_eq(seen.rdma_writes, seen.sends - 1);
    ck_assert_uint_eq(seen.inlined, seen.sends);
    ck_assert_int_eq(rblk_pwrite(h, data, 512, 0, 0), 0);
    ck_assert_uint_eq(seen.inlined, seen.sends - 1);

    rblk_close(h);
    server_stop();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("initiator/link");
    TCase *tcase = tcase_create("link");

    tcase_set_timeout(tcase, 30);
    tcase_add_test(tcase, commands_without_data_are_inline);
    tcase_add_test(tcase, slow_end_of_a_queue_pair);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
