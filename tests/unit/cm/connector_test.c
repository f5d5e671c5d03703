/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * connector_test.c - the threads that call rdma_connect() where it blocks: as many as calls that may be under way, no more
 * of them to one host than its share, few of them without work, and none when it is closed.
 */
#include "support/test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "base/env.h"
#include "cm/connector.h"
#include "support/tasks.h"
#include "fabric/fabric.h"

#define HOST_MAX 4 /* as in connect_queue.c */
#define IDLE_MAX 2
#define HOSTS 12
#define CALLS 7
#define LIMIT_NS UINT64_C(60000000000)

static sem_t may_return;
static _Atomic unsigned inside, most_inside, destroyed;

static int blocking_connect(struct rdma_cm_id *id, struct rdma_conn_param *param) {
    (void)id, (void)param;
    unsigned now = atomic_fetch_add(&inside, 1) + 1, most = atomic_load(&most_inside);
    while (now > most && !atomic_compare_exchange_weak(&most_inside, &most, now))
        ;
    while (sem_wait(&may_return) != 0)
        ;
    atomic_fetch_sub(&inside, 1);
    return 0;
}

static sem_t may_destroy;
static _Atomic bool destroying_blocks;

static int destroy_id(struct rdma_cm_id *id) {
    (void)id;
    while (atomic_load(&destroying_blocks) && sem_wait(&may_destroy) != 0)
        ;
    atomic_fetch_add(&destroyed, 1);
    return 0;
}

static const struct fabric_ops blocking = {.connect = blocking_connect, .destroy_id = destroy_id};

static unsigned threads(void) {
    return tasks_named("sluice-connect");
}

#define UNTIL(condition)                                                                           \
    do {                                                                                           \
        uint64_t until_ = env_now(&env_default) + LIMIT_NS;                                        \
        while (!(condition)) {                                                                     \
            if (env_now(&env_default) > until_)                                                    \
                fail_msg("%s: %u inside, %u threads", #condition, atomic_load(&inside),            \
                         threads());                                                               \
            nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);                                \
        }                                                                                          \
    } while (0)

struct call {
    struct cm_conn *conn;
    struct cm_connect *call;
};

static void start(struct cm_connector *c, struct call *call, unsigned host) {
    static const struct rdma_conn_param none;
    struct cm_conn *conn = calloc(1, sizeof *conn);
    assert_non_null(conn);
    conn->owner.id = (struct rdma_cm_id *)(void *)conn; /* nothing looks into it */
    conn->candidates[0].v4.sin_family = AF_INET;
    conn->candidates[0].v4.sin_addr.s_addr = htonl(0x0a000000 + host);
    call->conn = conn;
    call->call = connector_connect(c, conn, &none);
    assert_non_null(call->call);
}

static void answer_all(struct cm_connector *c, struct call *calls, unsigned count) {
    for (unsigned left = count; left > 0;) {
        int error;
        struct cm_conn *conn = NULL;
        UNTIL((conn = connector_answer(c, &error)) != NULL);
        for (unsigned i = 0; i < count; i++)
            if (calls[i].conn == conn) {
                assert_int_equal(error, 0);
                connector_end(calls[i].call);
                calls[i].conn = NULL;
                left--;
            }
        free(conn);
    }
}

static struct cm_connector *opened(void) {
    struct cm_connector *c;
    assert_int_equal(sem_init(&may_return, 0, 0), 0);
    atomic_store(&inside, 0);
    atomic_store(&most_inside, 0);
    assert_int_equal(connector_open(&c, NULL, &blocking), 0);
    assert_int_equal(threads(), 0); /* until something is connected */
    return c;
}

TEST(a_host_keeps_no_more_threads_than_its_share) {
    struct cm_connector *c = opened();
    struct call calls[CALLS + 1];
    for (unsigned i = 0; i < CALLS; i++)
        start(c, &calls[i], 1);
    UNTIL(atomic_load(&inside) == HOST_MAX);
    assert_int_equal(threads(), HOST_MAX); /* none waits for its turn */
    start(c, &calls[CALLS], 2);            /* another one goes ahead */
    UNTIL(atomic_load(&inside) == HOST_MAX + 1);
    assert_int_equal(threads(), HOST_MAX + 1);
    for (unsigned i = 0; i < CALLS + 1; i++)
        sem_post(&may_return);
    answer_all(c, calls, CALLS + 1);
    assert_int_equal(atomic_load(&most_inside), HOST_MAX + 1);
    assert_false(connector_close(c, NULL, NULL));
    UNTIL(threads() == 0);
}

TEST(threads_without_work_end) {
    struct cm_connector *c = opened();
    struct call calls[HOSTS];
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < HOSTS; i++)
            start(c, &calls[i], i);
        UNTIL(atomic_load(&inside) == HOSTS);
        assert_int_equal(threads(), HOSTS);
        for (unsigned i = 0; i < HOSTS; i++)
            sem_post(&may_return);
        answer_all(c, calls, HOSTS);
        UNTIL(threads() <= IDLE_MAX);
    }
    assert_false(connector_close(c, NULL, NULL));
    UNTIL(threads() == 0);
}

/* Its call returns after everything was closed; then its id goes, and the threads. */
TEST(what_was_left_ends_behind_the_closing) {
    struct cm_connector *c = opened();
    struct call calls[HOSTS];
    unsigned before = atomic_load(&destroyed);
    for (unsigned i = 0; i < HOSTS; i++)
        start(c, &calls[i], i);
    UNTIL(atomic_load(&inside) == HOSTS);
    for (unsigned i = 0; i < HOSTS; i++) {
        assert_true(connector_leave(c, calls[i].call));
        connector_give(c, calls[i].call, NULL);
        free(calls[i].conn);
    }
    assert_true(connector_close(c, NULL, NULL));
    for (unsigned i = 0; i < HOSTS; i++)
        sem_post(&may_return);
    UNTIL(threads() == 0);
    assert_int_equal(atomic_load(&destroyed) - before, HOSTS);
}

/* Destroying an id that was left may block as connecting does: the host's next call does not wait for that. */
TEST(a_call_does_not_wait_for_the_end_of_one_that_was_left) {
    struct cm_connector *c = opened();
    struct call calls[HOST_MAX], next;
    assert_int_equal(sem_init(&may_destroy, 0, 0), 0);
    atomic_store(&destroying_blocks, true);
    for (unsigned i = 0; i < HOST_MAX; i++)
        start(c, &calls[i], 1);
    UNTIL(atomic_load(&inside) == HOST_MAX);
    start(c, &next, 1);
    for (unsigned i = 0; i < HOST_MAX; i++) {
        assert_true(connector_leave(c, calls[i].call));
        connector_give(c, calls[i].call, NULL);
        free(calls[i].conn);
    }
    for (unsigned i = 0; i < HOST_MAX + 1; i++)
        sem_post(&may_return);
    answer_all(c, &next, 1);
    atomic_store(&destroying_blocks, false);
    for (unsigned i = 0; i < HOST_MAX; i++)
        sem_post(&may_destroy);
    (void)connector_close(c, NULL, NULL);
    UNTIL(threads() == 0);
}
