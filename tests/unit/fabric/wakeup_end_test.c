/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * wakeup_end_test.c - a wakeup is closed by a thread that found the work while its signaller was yet to make its system
 * call: nothing is used behind its end.
 */
#include "support/test.h"

#include <pthread.h>
#include <sched.h>

#include "fabric/wakeup.h"

static struct wakeup ending;
static _Atomic unsigned
    at; /* 1: a signaller is in the call that wakes; 2: it may go on; 3: it has */
static _Atomic bool used_after;

static int slow_write(struct rdma_cm_id *id, enum rdma_cm_event_type event, int status,
                      uint64_t arg) {
    if (status == (int)WAKEUP_PROBE)
        return fabric_soft.write_cm_event(id, event, status, arg);
    atomic_store(&at, 1);
    while (atomic_load(&at) == 1)
        sched_yield();
    int rc = atomic_load(&used_after) ? 0 : fabric_soft.write_cm_event(id, event, status, arg);
    atomic_store(&at, 3);
    return rc;
}

static int watched_destroy(struct rdma_cm_id *id) {
    atomic_store(&used_after, atomic_load(&at) != 3);
    return fabric_soft.destroy_id(id);
}

static void *signal_once(void *arg) {
    wakeup_signal_flag(&ending);
    return arg;
}

static void *close_it(void *arg) {
    wakeup_close(&ending);
    return arg;
}

TEST(its_end_waits_for_who_is_inside) {
    struct fabric_ops slow = fabric_soft;
    pthread_t signaller, closer;
    slow.write_cm_event = slow_write;
    slow.destroy_id = watched_destroy;
    assert_int_equal(wakeup_open(&ending, &slow, true), 0);
    assert_non_null(ending.id);
    wakeup_arm(&ending);
    assert_int_equal(pthread_create(&signaller, NULL, signal_once, NULL), 0);
    while (atomic_load(&at) == 0)
        sched_yield();
    assert_int_equal(pthread_create(&closer, NULL, close_it, NULL), 0);
    for (int i = 0; i < 1000 && !atomic_load(&used_after); i++)
        sched_yield(); /* an end that does not wait is over by then, or nearly always */
    atomic_store(&at, 2);
    pthread_join(signaller, NULL);
    pthread_join(closer, NULL);
    assert_false(atomic_load(&used_after));
    wakeup_signal_flag(&ending); /* a late one finds nothing to do */
    assert_int_equal(ending.fallbacks, 0);
}
