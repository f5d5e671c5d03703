/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * asleep_test.c - a loop that sleeps is woken by what comes over its sockets, or by its peers of this host, and not by another
 * thread of the device; and all that wakes a loop otherwise still does.
 */
#include <poll.h>

#include "support/pair.h"
#include "datapath/loop/loop.h"
#include "soft/ipc/control_lock.h"
#include "soft/object/qp.h"
#include "support/must.h"
#include "fabric/fast.h"

static struct pair p;

struct waiter {
    pthread_t thread;
    uint64_t sleeps; /* before it began */
    sluice_event event;
    int status;
    _Atomic bool over;
};

static void *wait_for_event(void *arg) {
    struct waiter *w = arg;
    w->status = sluice_poll(p.a.loop, &w->event, 1, SLUICE_OFF);
    atomic_store(&w->over, true);
    return NULL;
}

static uint64_t sleeps(void) {
    return atomic_load(&p.a.loop->stats->sleeps);
}

static void await(const struct waiter *w, bool (*is_so)(const struct waiter *)) {
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    while (!is_so(w)) {
        assert_true(sluice_poll(p.b.loop, NULL, 0, 0) >= 0);
        assert_true(env_now(&env_default) < limit);
        sched_yield();
    }
}

static bool sleeps_now(const struct waiter *w) {
    return sleeps() > w->sleeps;
}

static bool is_over(const struct waiter *w) {
    return atomic_load(&w->over);
}

static void fall_asleep(struct waiter *w) {
    *w = (struct waiter){.sleeps = sleeps()};
    must(pthread_create(&w->thread, NULL, wait_for_event, w) == 0);
    await(w, sleeps_now);
}

static void wait_over(struct waiter *w) {
    await(w, is_over);
    pthread_join(w->thread, NULL);
    assert_int_equal(w->status, 1);
}

/* The peer can wake it. */
static bool has_bell(void) {
    soft_lock();
    bool has = soft_qp_of(session_table_at(p.b.session.id)->connection->qp)->bell_out != NULL;
    soft_unlock();
    return has;
}

static int open_pair(void **state) {
    bool net = *(bool *)*state;
    must_end_process = true;
    memset(&p, 0, sizeof p);
    pair_open(&p,
              PAIR_NODE(.soft_net = net ? SLUICE_SOFT_NET_REQUIRE : SLUICE_SOFT_NET_OFF,
                        .idle = SLUICE_IDLE_BLOCK),
              PAIR_LINK(.keepalive_ns = SLUICE_OFF)); /* which would wake it in the end */
    pair_connect(&p, PAIR_LINK(.keepalive_ns = SLUICE_OFF));
    while (!net && !has_bell()) { /* it is made for the first sleep, by the engine */
        struct waiter w;
        fall_asleep(&w);
        sluice_wake(p.a.loop);
        wait_over(&w);
    }
    return 0;
}

static int close_pair(void **state) {
    (void)state;
    pair_close(&p);
    return 0;
}

/* Small ones; and large ones, which take several turns of both sides, and a key that is opened under the control lock. */
static void messages_wake_it_without_the_engine(void **state) {
    (void)state;
    for (unsigned i = 0; i < 40; i++) {
        bool large = i % 4 == 3;
        uint32_t bytes = large ? 300000 : 64;
        struct waiter w;
        fall_asleep(&w);
        if (!large)
            soft_lock();
        must(pair_send(&p.b, bytes, i, NULL) == 0);
        wait_over(&w);
        if (!large)
            soft_unlock();
        assert_int_equal(w.event.type, SLUICE_MESSAGE);
        assert_true(pair_check(w.event.msg, bytes, i));
    }
}

static void a_wake_of_the_application_wakes_it(void **state) {
    struct waiter w;
    (void)state;
    fall_asleep(&w);
    sluice_wake(p.a.loop);
    wait_over(&w);
    assert_int_equal(w.event.type, SLUICE_WAKE);
}

/* From then on the program sleeps elsewhere, and the engine reads the sockets; a peer of this host needs no engine. */
static void a_loop_whose_descriptor_is_used_is_told_there(void **state) {
    bool net = *(bool *)*state;
    struct waiter w;
    fall_asleep(&w);
    sluice_wake(p.a.loop);
    wait_over(&w);
    int fd = sluice_fd(p.a.loop);
    assert_true(fd >= 0);
    for (unsigned i = 0; i < 20; i++) {
        sluice_event event;
        while (sluice_poll(p.a.loop, &event, 1, 0) == 1)
            ;
        if (!net)
            soft_lock();
        struct pollfd in = {.fd = fd, .events = POLLIN};
        assert_int_equal(pair_send(&p.b, 64, i, NULL), 0);
        int n;
        do {
            assert_true(sluice_poll(p.b.loop, NULL, 0, 0) >= 0);
            assert_int_equal(poll(&in, 1, 20000), 1);
            n = sluice_poll(p.a.loop, &event, 1, 0);
        } while (n == 0);
        if (!net)
            soft_unlock();
        assert_int_equal(event.type, SLUICE_MESSAGE);
        assert_true(pair_check(event.msg, 64, i));
    }
}

/* How many turns it takes from a message's event until it sleeps again. *alone: whether the loop has only one CPU. */
static uint64_t turns_before_sleep(bool short_sleep, bool *alone) {
    struct waiter w;
    fall_asleep(&w);
    must(pair_send(&p.b, 64, 1, NULL) == 0);
    wait_over(&w);
    p.a.loop->slept_short = short_sleep;
    *alone = p.a.loop->alone;
    uint64_t turns = p.a.loop->totals.progress_calls;
    fall_asleep(&w);
    uint64_t counted = atomic_load(&p.a.loop->stats->progress_calls) - turns;
    sluice_wake(p.a.loop);
    wait_over(&w);
    return counted;
}

static void it_looks_again_only_where_sleeps_are_short(void **state) {
    (void)state;
    bool alone;
    assert_in_range(turns_before_sleep(false, &alone), 1, 8);
    uint64_t turns = turns_before_sleep(true, &alone);
    if (alone) /* the CPU is its peer's meanwhile */
        assert_in_range(turns, 1, 8);
    else
        assert_in_range(turns, 9, 4096);
}

/* The device has something to do that completes nothing, for some turns: before the CQ is armed, or in the turn behind that. */
static struct unfinished {
    bool armed;
    unsigned turns;
    uint64_t sleeps; /* when it was asked last */
} unfinished;

static bool is_unfinished(struct ibv_cq *cq) {
    (void)cq;
    if (unfinished.turns == 0 || unfinished.armed != p.a.loop->cq_armed)
        return false;
    unfinished.turns--;
    unfinished.sleeps = p.a.loop->totals.sleeps;
    return true;
}

static void it_does_not_sleep_on_unfinished_work(void **state) {
    const struct fabric_ops *fabric = p.a.node->fabric;
    struct fabric_ops busy = *fabric;
    struct fabric_fast fast = *fabric->fast;
    sluice_event event;
    (void)state;
    fast.sleep_unfinished = is_unfinished;
    busy.fast = &fast;
    p.a.node->fabric = &busy;
    for (unsigned armed = 0; armed < 2; armed++) {
        unfinished = (struct unfinished){.armed = armed, .turns = 5};
        uint64_t before = p.a.loop->totals.sleeps;
        assert_int_equal(sluice_poll(p.a.loop, &event, 1, 20000000), 0);
        assert_int_equal(unfinished.turns, 0);
        assert_int_equal(unfinished.sleeps, before);
    }
    p.a.node->fabric = fabric;
}

static bool net = true, near = false;
#define WAY_TEST(fn, way)                                                                          \
    { #fn " (" #way ")", fn, open_pair, close_pair, &(way) }

TEST_CASES(WAY_TEST(messages_wake_it_without_the_engine, net),
           WAY_TEST(messages_wake_it_without_the_engine, near),
           WAY_TEST(a_wake_of_the_application_wakes_it, net),
           WAY_TEST(it_does_not_sleep_on_unfinished_work, net),
           WAY_TEST(it_looks_again_only_where_sleeps_are_short, near),
           WAY_TEST(a_loop_whose_descriptor_is_used_is_told_there, net),
           WAY_TEST(a_loop_whose_descriptor_is_used_is_told_there, near));
