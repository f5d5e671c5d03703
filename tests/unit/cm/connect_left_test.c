/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * connect_left_test.c - a node is closed over a session that did not end in time, whose rdma_connect() still blocks
 * (iWARP): its thread ends when the call returns, with the id and the queue pair.
 */
#include "support/child.h"
#include "support/dial.h"
#include "support/wait.h"

#include <semaphore.h>
#include <sys/wait.h>

#include "cm/connector.h"
#include "support/tasks.h"

static sem_t may_return;
static _Atomic unsigned inside, qps_destroyed;

static int blocking_connect(struct rdma_cm_id *id, struct rdma_conn_param *param) {
    (void)id, (void)param;
    atomic_fetch_add(&inside, 1);
    while (sem_wait(&may_return) != 0)
        ;
    return 0;
}

static int counted_destroy_qp(struct ibv_qp *qp) {
    int rc = soft_destroy_qp(qp);
    atomic_fetch_add(&qps_destroyed, 1);
    return rc;
}

#define UNTIL(condition)                                                                           \
    do {                                                                                           \
        uint64_t until_ = env_now(&env_default) + PAIR_LIMIT_NS;                                   \
        while (!(condition)) {                                                                     \
            if (env_now(&env_default) > until_)                                                    \
                fail_msg("%s: %u threads", #condition, tasks_named("sluice-connect"));             \
            nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);                                \
        }                                                                                          \
    } while (0)

/* In a process of its own: the rest of such a node is not given back. */
static void close_over_it(void) {
    struct pair p;
    dialer_open(&p, PAIR_NODE(), PAIR_LINK());
    struct cm *cm = p.b.node->cm;
    dialer_ops.connect = blocking_connect;
    dialer_ops.destroy_qp = counted_destroy_qp;
    assert_non_null(cm->connector); /* of the device as it is */
    assert_false(connector_close(cm->connector, NULL, NULL));
    assert_int_equal(connector_open(&cm->connector, cm->mailbox, &dialer_ops), 0);
    pair_dial_name(&p, "127.0.0.1", PAIR_LINK());
    pair_await(&p, atomic_load(&inside) == 1);
    assert_int_equal(tasks_named("sluice-connect"), 1);
    cm_close(cm);
    (void)connector_close(cm->connector, NULL, NULL);
    sem_post(&may_return);
    UNTIL(tasks_named("sluice-connect") == 0);
    assert_int_equal(atomic_load(&qps_destroyed), 1);
}

TEST(the_thread_of_a_session_that_was_given_up_ends) {
    assert_int_equal(sem_init(&may_return, 0, 0), 0);
    pid_t pid = child_fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close_over_it();
        _exit(0);
    }
    assert_int_equal(wait_exit(pid), 0);
}

int main(void) {
    if (setenv("SLUICE_SOFT_PROFILE", "iwarp", 1) != 0)
        return 1;
    return tests_run(NULL, NULL);
}
