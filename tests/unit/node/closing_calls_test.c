/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * closing_calls_test.c - what other threads do while sluice_close() waits: one that calls or logs again and again is
 * not in its way, however slow the device is; one that is inside and does not return is, and is not waited for. The
 * slow call of the device is the test's, and stays inside until it is let go; real threads.
 */
#include "support/test.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "node/stuck.h"
#include "support/replace_fabric.h"
#include "support/stall.h"
#include "support/wait.h"

#define MS 1000000ull
#define LIMIT_NS (60000 * MS)
#define SLOW_NS (1500 * MS) /* later than somebody who is in the way is given up */
#define BOUND_NS (2000 * MS)

static uint64_t now(void) {
    return env_now(&env_default);
}

/* ---- what is told ------------------------------------------------------------------------------ */

static struct {
    pthread_mutex_t lock;
    char text[2048];
    _Atomic bool closed;        /* sluice_close() has returned */
    _Atomic unsigned late;      /* calls of the log after that */
    _Atomic bool stuck, inside; /* the next line does not return; it has begun */
    _Atomic bool go_on, out;
} told = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void on_log(int level, const char *text, void *arg) {
    (void)level, (void)arg;
    atomic_fetch_add(&told.late, atomic_load(&told.closed));
    pthread_mutex_lock(&told.lock);
    size_t used = strlen(told.text);
    snprintf(told.text + used, sizeof told.text - used, "%s\n", text);
    pthread_mutex_unlock(&told.lock);
    if (!atomic_exchange(&told.stuck, false))
        return;
    atomic_store(&told.inside, true);
    wait_flag(&told.go_on);
    atomic_store(&told.out, true);
}

static bool says(const char *text) {
    pthread_mutex_lock(&told.lock);
    bool found = strstr(told.text, text) != NULL;
    pthread_mutex_unlock(&told.lock);
    return found;
}

/* ---- the slow device --------------------------------------------------------------------------- */

static struct {
    struct fabric_ops fabric;
    uint64_t until_ns; /* closing it takes that long */
    _Atomic bool closed;
    _Atomic bool inside, go_on; /* of the call that makes a CQ */
} device;

static int slow_dealloc_pd(struct ibv_pd *pd) {
    const struct timespec pause = {.tv_nsec = 1000000};
    while (now() < device.until_ns)
        nanosleep(&pause, NULL);
    atomic_store(&device.closed, true);
    return fabric_soft.dealloc_pd(pd);
}

static struct ibv_cq *stuck_create_cq(struct ibv_context *ctx, int cqe, void *cq_context,
                                      struct ibv_comp_channel *channel, int comp_vector) {
    atomic_store(&device.inside, true);
    wait_flag(&device.go_on);
    return fabric_soft.create_cq(ctx, cqe, cq_context, channel, comp_vector);
}

/* So long that a handler would have been given up. */
static int slow_destroy_qp(struct ibv_qp *qp) {
    const struct timespec time = {.tv_nsec = SLOW_NS / 2};
    nanosleep(&time, NULL);
    return fabric_soft.destroy_qp(qp);
}

/* Before any node is open. */
static void begin(void) {
    told.text[0] = 0;
    told.closed = told.stuck = told.inside = told.go_on = told.out = false;
    told.late = 0;
    device.closed = device.inside = device.go_on = false;
    device.fabric = fabric_soft;
}

static sluice_node *open_node_with(uint32_t workers,
                                   void (*log)(int level, const char *text, void *arg)) {
    sluice_node *n;
    sluice_error e;
    if (sluice_open(&n, SLUICE_NODE(.device = "soft", .workers = workers, .log = log), &e) != 0)
        fail_msg("%s", e.text);
    replace_fabric(n, &device.fabric);
    return n;
}

static sluice_node *open_node(void (*log)(int level, const char *text, void *arg)) {
    begin();
    return open_node_with(SLUICE_NO_WORKERS, log);
}

static void close_in_time(sluice_node *n) {
    stall_begin();
    uint64_t start = now();
    sluice_close(n, 0);
    uint64_t took = now() - start;
    atomic_store(&told.closed, true);
    assert_uint_in_range(took, 0, BOUND_NS + stall_end());
    assert_false(says("takes too long"));
}

static void wait_until_gone(sluice_node *n) {
    uint64_t until = now() + LIMIT_NS;
    while (atomic_load(&n->state) != NODE_CLOSED) {
        assert_true(now() < until);
        sched_yield();
    }
}

/* ---- again and again --------------------------------------------------------------------------- */

enum { BUSY = 3 };

static struct {
    sluice_node *node;
    _Atomic bool stop;
} busy;

static void *call_on(void *arg) {
    sluice_node_info info = {.size = sizeof info};
    while (!atomic_load(&busy.stop))
        (void)sluice_node_get_info(busy.node, &info);
    return arg;
}

static const char again[] = "again";

/* A log that is slow: hardly ever is nobody inside. */
static void on_slow_log(int level, const char *text, void *arg) {
    if (strcmp(text, again) != 0)
        on_log(level, text, arg);
    uint64_t until = now() + MS;
    while (now() < until)
        sched_yield();
}

static void *log_on(void *arg) {
    while (!atomic_load(&busy.stop))
        log_write(&busy.node->log, SLUICE_LOG_DEBUG, "%s", again);
    return arg;
}

static void closes_while(void *(*run)(void *arg), unsigned threads) {
    pthread_t busies[BUSY];
    sluice_node *n = open_node(on_slow_log);
    device.fabric.dealloc_pd = slow_dealloc_pd;
    busy.node = n;
    busy.stop = false;
    for (unsigned i = 0; i < threads; i++)
        assert_int_equal(pthread_create(&busies[i], NULL, run, NULL), 0);
    device.until_ns = now() + SLOW_NS;
    sluice_close(n, 0);
    assert_true(atomic_load(&device.closed));
    assert_false(says("gives up"));
    atomic_store(&busy.stop, true);
    for (unsigned i = 0; i < threads; i++)
        assert_int_equal(pthread_join(busies[i], NULL), 0);
}

TEST(threads_that_call_again_and_again_are_not_in_the_way) {
    closes_while(call_on, BUSY);
}

TEST(a_thread_that_logs_again_and_again_is_not_in_the_way) {
    closes_while(log_on, 1);
}

/* ---- a loop with much to do --------------------------------------------------------------------- */

static struct heard { _Atomic unsigned up, closed; } at_server, at_client;

static void on_event(const sluice_event *event, void *arg) {
    struct heard *heard = arg;
    atomic_fetch_add(&heard->up, event->type == SLUICE_UP);
    atomic_fetch_add(&heard->closed, event->type == SLUICE_CLOSED);
}

static void open_sessions(sluice_node *server, sluice_node *client, unsigned count) {
    char address[32];
    sluice_listener listener;
    sluice_session session;
    uint64_t until = now() + LIMIT_NS;
    assert_int_equal(sluice_listen(server, "127.0.0.1:0",
                                   SLUICE_LINK(.handler = on_event, .handler_arg = &at_server),
                                   &listener, NULL),
                     0);
    snprintf(address, sizeof address, "127.0.0.1:%d", sluice_listener_port(listener));
    for (unsigned i = 0; i < count; i++)
        assert_int_equal(sluice_dial(client, address,
                                     SLUICE_LINK(.handler = on_event, .handler_arg = &at_client),
                                     &session, NULL),
                         0);
    while (atomic_load(&at_server.up) + atomic_load(&at_client.up) < 2 * count) {
        assert_true(now() < until);
        sched_yield();
    }
}

/* It takes seconds to end its sessions, and calls no handler meanwhile; one after the other ends. */
TEST(a_loop_that_takes_long_by_itself_is_no_stuck_handler) {
    enum { SESSIONS = 8 }; /* in all longer than closing waits for one */
    begin();
    device.fabric.destroy_qp = slow_destroy_qp;
    sluice_node *client = open_node_with(1, on_log), *n = open_node_with(1, on_log);
    replace_fabric(client, &fabric_soft);
    open_sessions(n, client, SESSIONS);
    sluice_close(n, 200 * MS); /* the end of that finds the loop at it */
    assert_int_equal(atomic_load(&n->state), NODE_CLOSED);
    assert_int_equal(atomic_load(&at_server.closed), SESSIONS);
    assert_false(says("gives up"));
    assert_false(says("given up"));
    sluice_close(client, 0);
    assert_int_equal(atomic_load(&at_client.closed), SESSIONS);
}

/* ---- and stays --------------------------------------------------------------------------------- */

static void *ask(void *arg) {
    sluice_node_info info = {.size = sizeof info};
    assert_int_equal(sluice_node_get_info(arg, &info), 0);
    return NULL;
}

TEST(a_call_that_does_not_return_is_given_up) {
    pthread_t thread;
    sluice_node *n = open_node(on_log);
    device.fabric.create_cq = stuck_create_cq;
    assert_int_equal(pthread_create(&thread, NULL, ask, n), 0);
    wait_flag(&device.inside);
    close_in_time(n);
    assert_true(says("1 calls in other threads do not return"));
    assert_int_equal(atomic_load(&n->state), NODE_CLOSING);
    atomic_store(&device.go_on, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    wait_until_gone(n);
    assert_int_equal(told.late, 0);
}

/* As a call does that has something to tell. */
static void *call_and_log(void *arg) {
    assert_true(context_call_begin(arg));
    log_write(&((sluice_node *)arg)->log, SLUICE_LOG_WARNING, "a line");
    context_call_end(arg);
    return NULL;
}

TEST(a_call_that_is_stuck_in_the_log_is_given_up) {
    pthread_t thread;
    sluice_node *n = open_node(on_log);
    atomic_store(&told.stuck, true);
    assert_int_equal(pthread_create(&thread, NULL, call_and_log, n), 0);
    wait_flag(&told.inside);
    close_in_time(n);
    assert_int_equal(atomic_load(&n->state), NODE_CLOSING);
    atomic_store(&told.go_on, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    wait_until_gone(n);
    assert_true(told.out);
    assert_int_equal(told.late, 0);
}
