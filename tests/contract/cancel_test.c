/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cancel_test.c - a thread that waits for an event may be cancelled there, as programs do that end such a thread: it ends at once,
 * and the next thread gets the events.
 */
#include "contract/contract.h"

#include "support/rows.h"

#include <sched.h>

struct scene {
    struct rdma_event_channel *channel;
    struct rdma_cm_id *id;
    struct ibv_comp_channel *completions;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
};

struct source {
    int (*wait)(struct scene *s);    /* for an event, and acknowledges it; 0 */
    void (*bring)(struct scene *s);  /* one about; NULL: nothing brings one */
    void (*settle)(struct scene *s); /* so that the next can be brought */
    int (*descriptor)(struct scene *s);
};

/* ---- what can be waited for ---------------------------------------------------------------------- */

static int wait_connection(struct scene *s) {
    struct rdma_cm_event *event;
    int rc = rdma_get_cm_event(s->channel, &event);
    return rc ? rc : rdma_ack_cm_event(event);
}

static void bring_connection(struct scene *s) {
    struct sockaddr_in to = ct_address(4711);
    s->id = ct_id(s->channel);
    assert_int_equal(rdma_resolve_addr(s->id, NULL, (struct sockaddr *)&to, 2000), 0);
}

static void settle_connection(struct scene *s) {
    ct_destroy(s->id);
    s->id = NULL;
}

static int connection_descriptor(struct scene *s) {
    return s->channel->fd;
}

static int wait_completion(struct scene *s) {
    struct ibv_cq *cq;
    void *context;
    int rc = ibv_get_cq_event(s->completions, &cq, &context);
    if (rc == 0)
        ibv_ack_cq_events(cq, 1);
    return rc;
}

/* A receive that is flushed. */
static void bring_completion(struct scene *s) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    struct ibv_recv_wr wr = {.wr_id = 1}, *bad;
    assert_int_equal(ibv_req_notify_cq(s->cq, 0), 0);
    assert_int_equal(
        ibv_modify_qp(s->qp, &attr,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
        0);
    assert_int_equal(ibv_post_recv(s->qp, &wr, &bad), 0);
    attr.qp_state = IBV_QPS_ERR;
    assert_int_equal(ibv_modify_qp(s->qp, &attr, IBV_QP_STATE), 0);
}

static void settle_completion(struct scene *s) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
    struct ibv_wc wc;
    while (ibv_poll_cq(s->cq, 1, &wc) == 0)
        ct_pause();
    assert_int_equal(ibv_modify_qp(s->qp, &attr, IBV_QP_STATE), 0);
}

static int completion_descriptor(struct scene *s) {
    return s->completions->fd;
}

static int wait_device(struct scene *s) {
    struct ibv_async_event event;
    int rc = ibv_get_async_event(s->cq->context, &event);
    if (rc == 0)
        ibv_ack_async_event(&event);
    return rc;
}

/* ---- on what ---------------------------------------------------------------------------------------- */

static void scene_open(struct scene *s) {
    *s = (struct scene){.channel = ct_channel()};
    struct rdma_cm_id *id = ct_id(s->channel);
    ct_resolve_addr(id, 4711);
    s->completions = ibv_create_comp_channel(id->verbs);
    assert_non_null(s->completions);
    s->cq = ibv_create_cq(id->verbs, 16, NULL, s->completions, 0);
    assert_non_null(s->cq);
    struct ibv_qp_init_attr attr = {
        .send_cq = s->cq, .recv_cq = s->cq, .qp_type = IBV_QPT_RC, .cap = {1, 1, 1, 1, 0}};
    s->qp = ibv_create_qp(id->pd, &attr);
    assert_non_null(s->qp);
    s->id = id;
}

static void scene_close(struct scene *s, struct rdma_cm_id *id) {
    assert_int_equal(ibv_destroy_qp(s->qp), 0);
    assert_int_equal(ibv_destroy_cq(s->cq), 0);
    assert_int_equal(ibv_destroy_comp_channel(s->completions), 0);
    ct_destroy(id);
    rdma_destroy_event_channel(s->channel);
}

/* ---- the tests ---------------------------------------------------------------------------------------- */

struct waiter {
    struct scene *scene;
    const struct source *source;
    _Atomic pid_t tid;
    atomic_bool got;
};

static void *wait_for_one(void *arg) {
    struct waiter *waiter = arg;
    atomic_store(&waiter->tid, gettid());
    int rc = waiter->source->wait(waiter->scene);
    atomic_store(&waiter->got, rc == 0);
    return NULL;
}

static void until_asleep(const struct waiter *waiter) {
    char path[64], text[256] = "";
    while (atomic_load(&waiter->tid) == 0)
        sched_yield();
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", atomic_load(&waiter->tid));
    while (!strstr(text, ") S ")) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        assert_true(fd >= 0 && read(fd, text, sizeof text - 1) > 0);
        close(fd);
    }
}

static void start(pthread_t *thread, struct waiter *waiter) {
    assert_int_equal(pthread_create(thread, NULL, wait_for_one, waiter), 0);
}

/* True: it was cancelled. */
static bool cancel(pthread_t thread) {
    void *result;
    pthread_cancel(thread);
    assert_int_equal(pthread_join(thread, &result), 0);
    return result == PTHREAD_CANCELED;
}

static void a_thread_that_waits_is_cancelled(void **state) {
    const struct source *source = *state;
    struct scene s;
    scene_open(&s);
    struct rdma_cm_id *id = s.id;
    for (unsigned round = 0; round < 3; round++) {
        struct waiter waiter = {.scene = &s, .source = source};
        pthread_t thread;
        start(&thread, &waiter);
        until_asleep(&waiter);
        assert_true(cancel(thread));
        if (!source->bring)
            continue;
        source->bring(&s);
        assert_int_equal(source->wait(&s), 0);
        source->settle(&s);
    }
    scene_close(&s, id);
}

/* Of the kernel's it may be, with a C library that disables cancellation some instructions after a system call. */
static void no_event_goes_with_a_thread(void **state) {
    const struct source *source = *state;
    struct scene s;
#ifndef CONTRACT_SOFT
    ct_skip("the C library may lose what a system call had fetched");
#endif
    scene_open(&s);
    struct rdma_cm_id *id = s.id;
    for (unsigned round = 0; round < 200; round++) {
        struct waiter waiter = {.scene = &s, .source = source};
        pthread_t thread;
        start(&thread, &waiter);
        if (round % 2)
            until_asleep(&waiter);
        source->bring(&s);
        for (unsigned i = 0; i < round % 64; i++)
            sched_yield();
        (void)cancel(thread);
        struct pollfd ready = {.fd = source->descriptor(&s), .events = POLLIN};
        if (!atomic_load(&waiter.got)) {
            assert_int_equal(poll(&ready, 1, facts.wait_ms), 1);
            assert_int_equal(source->wait(&s), 0);
        }
        assert_int_equal(poll(&ready, 1, 0), 0); /* it came once */
        source->settle(&s);
    }
    scene_close(&s, id);
}

#define CONNECTION wait_connection, bring_connection, settle_connection, connection_descriptor
#define COMPLETION wait_completion, bring_completion, settle_completion, completion_descriptor

TEST_CASES(
    ROW(a_thread_that_waits_for_a_connection, a_thread_that_waits_is_cancelled, source, CONNECTION),
    ROW(a_thread_that_waits_for_a_completion, a_thread_that_waits_is_cancelled, source, COMPLETION),
    ROW(a_thread_that_waits_for_the_device, a_thread_that_waits_is_cancelled, source,
        .wait = wait_device),
    ROW(no_event_of_a_connection_goes_with_it, no_event_goes_with_a_thread, source, CONNECTION),
    ROW(no_event_of_a_completion_goes_with_it, no_event_goes_with_a_thread, source, COMPLETION));

int main(void) {
    return ct_run();
}
