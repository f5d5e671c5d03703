/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * slow_test.c - a device that takes its time to make a queue pair, or to register memory, holds up the
 * session it is for and no other connection: such work is the worker's, never the CM thread's. The
 * slow call is the test's, and stays inside until it is let go; real threads.
 */
#include "support/test.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "support/replace_fabric.h"
#include "support/wait.h"

/* ---- the slow device ------------------------------------------------------------------------- */

static struct fabric_ops slow_ops;
static _Atomic bool slow; /* the next call stays inside */
static sem_t entered, may_go;
static pthread_t inside; /* the thread that is */

static void stay_inside(void) {
    if (!atomic_exchange(&slow, false))
        return;
    inside = pthread_self();
    sem_post(&entered);
    wait_semaphore(&may_go);
}

static struct ibv_qp *slow_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr) {
    stay_inside();
    return fabric_soft.create_qp(pd, attr);
}

static int slow_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask) {
    if (attr->qp_state == IBV_QPS_RTR)
        stay_inside();
    return fabric_soft.modify_qp(qp, attr, mask);
}

/* ---- sessions -------------------------------------------------------------------------------- */

struct end {
    sem_t up, message, closed;
};

static void end_init(struct end *end) {
    sem_init(&end->up, 0, 0);
    sem_init(&end->message, 0, 0);
    sem_init(&end->closed, 0, 0);
}

static void on_event(const sluice_event *event, void *arg) {
    struct end *end = event->arg ? event->arg : arg;
    if (event->type == SLUICE_UP)
        sem_post(&end->up);
    else if (event->type == SLUICE_MESSAGE)
        sem_post(&end->message);
    else if (event->type == SLUICE_CLOSED)
        sem_post(&end->closed);
}

static sluice_node *open_node(void) {
    static const int no_pinning[] = {-1, -1};
    sluice_node *n;
    sluice_error e;
    if (sluice_open(&n, SLUICE_NODE(.device = "soft", .workers = 2, .worker_cpus = no_pinning),
                    &e) != 0)
        fail_msg("%s", e.text);
    return n;
}

static sluice_session dial(sluice_node *n, int port, struct end *end) {
    char to[32];
    sluice_session s;
    sluice_error e;
    snprintf(to, sizeof to, "127.0.0.1:%d", port);
    if (sluice_dial(n, to, SLUICE_LINK(.handler = on_event, .arg = end), &s, &e) != 0)
        fail_msg("%s", e.text);
    return s;
}

/* While one session's call is inside, others of the same node come up, speak, listen and end. */
static void others_go_on(void (*break_it)(struct fabric_ops *ops)) {
    struct end accepted, first, others[4];
    sluice_listener listener, later;
    sluice_error e;
    sem_init(&entered, 0, 0);
    sem_init(&may_go, 0, 0);
    end_init(&accepted);
    end_init(&first);
    sluice_node *a = open_node(), *b = open_node();
    assert_int_equal(sluice_listen(a, "127.0.0.1:0",
                                   SLUICE_LINK(.handler = on_event, .handler_arg = &accepted),
                                   &listener, &e),
                     0);
    int port = sluice_listener_port(listener);
    slow_ops = fabric_soft;
    break_it(&slow_ops);
    replace_fabric(b, &slow_ops);
    atomic_store(&slow, true);
    dial(b, port, &first);
    wait_semaphore(&entered); /* on one of the two workers, so the others go to the other one */
    assert_false(pthread_equal(inside, b->cm->thread));
    struct sluice_loop *busy = NULL;
    for (unsigned w = 0; w < 2; w++)
        if (pthread_equal(inside, b->workers[w].thread))
            busy = b->workers[w].loop;
    assert_non_null(busy);
    assert_int_equal(sluice_worker_drain(b, busy == b->workers[1].loop, 1), 0);
    for (unsigned i = 0; i < 4; i++) {
        end_init(&others[i]);
        sluice_session s = dial(b, port, &others[i]);
        wait_semaphore(&others[i].up);
        wait_semaphore(&accepted.up);
        assert_int_equal(sluice_send_copy(s, "x", 1, NULL), 0);
        wait_semaphore(&accepted.message);
        if (i % 2) {
            sluice_hangup(s, 0);
            wait_semaphore(&others[i].closed);
            wait_semaphore(&accepted.closed);
        }
    }
    assert_int_equal(sluice_listen(b, "127.0.0.1:0",
                                   SLUICE_LINK(.handler = on_event, .handler_arg = &accepted),
                                   &later, &e),
                     0);
    sluice_unlisten(later);
    assert_int_not_equal(sem_trywait(&first.up), 0);
    sem_post(&may_go);
    wait_semaphore(&first.up);
    sluice_close(b, 0);
    sluice_close(a, 0);
}

static void slow_create(struct fabric_ops *ops) {
    ops->create_qp = slow_create_qp;
}

static void slow_modify(struct fabric_ops *ops) {
    ops->modify_qp = slow_modify_qp;
}

TEST(a_slow_queue_pair_delays_no_other_connection) {
    others_go_on(slow_create);
}

TEST(a_slow_transition_delays_no_other_connection) {
    others_go_on(slow_modify);
}
