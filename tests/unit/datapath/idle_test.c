/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * idle_test.c - the idle policy of a live loop: it follows at once, asleep or spinning, whoever asks.
 *
 * Evidence are the loop's own counters: a loop that spins makes empty turns and never sleeps, one that
 * blocks sleeps. Nothing here depends on how long anything takes; what never comes fails after a limit.
 */
#define _GNU_SOURCE
#include "support/test.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <stdio.h>
#include <string.h>

#include "datapath/loop/ownership.h"
#include "node/node.h"

#define LIMIT_NS 60000000000ull
#define MANY 20000u /* empty turns: far more than a loop makes that sleeps in between */

static sluice_node *node;

static void open_node(sluice_idle idle, uint32_t workers) {
    sluice_error e = {0};
    if (sluice_open(&node, SLUICE_NODE(.device = "soft", .idle = idle, .workers = workers), &e) !=
        0)
        fail_msg("%s", e.text);
}

static struct stats_loop *page_of(const sluice_loop *l) {
    return &node->stats.page->loops[l->index];
}

static struct stats_loop *worker(uint32_t i) {
    return page_of(node->workers[i].loop);
}

static uint64_t get(_Atomic uint64_t *counter) {
    return atomic_load_explicit(counter, memory_order_relaxed);
}

/* Between two looks. A thread that yields instead waits for a whole turn of every other one beside a load. */
static void pause_briefly(void) {
    nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
}

static void reach(_Atomic uint64_t *counter, uint64_t value, const char *what) {
    uint64_t limit = sluice_now() + LIMIT_NS;
    while (get(counter) < value) {
        if (sluice_now() > limit)
            fail_msg("%s: %llu, wanted %llu", what, (unsigned long long)get(counter),
                     (unsigned long long)value);
        pause_briefly();
    }
}

static void expect_spinning(struct stats_loop *loop) {
    reach(&loop->empty_progress_calls, get(&loop->empty_progress_calls) + MANY,
          "empty turns of a spinning loop");
    uint64_t sleeps = get(&loop->sleeps);
    reach(&loop->empty_progress_calls, get(&loop->empty_progress_calls) + MANY,
          "empty turns of a spinning loop");
    assert_int_equal(get(&loop->sleeps), sleeps);
}

/* It goes to sleep, and with nothing to do it stays there. */
static void expect_sleep(struct stats_loop *loop, uint64_t sleeps) {
    reach(&loop->sleeps, sleeps + 1, "sleeps");
    uint64_t turns = get(&loop->progress_calls);
    for (int i = 0; i < 200; i++)
        pause_briefly();
    assert_true(get(&loop->progress_calls) - turns < MANY / 100);
}

/* ---- workers --------------------------------------------------------------------------------- */

TEST(a_live_worker_follows) {
    open_node(SLUICE_IDLE_BLOCK, 2);
    expect_sleep(worker(0), 0);
    assert_int_equal(get(&worker(0)->idle), SLUICE_IDLE_BLOCK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(sluice_worker_set_idle(node, 0, SLUICE_IDLE_SPIN), 0);
        expect_spinning(worker(0));
        assert_int_equal(get(&worker(0)->idle), SLUICE_IDLE_SPIN);
        assert_int_equal(get(&worker(1)->idle), SLUICE_IDLE_BLOCK); /* nobody else */

        uint64_t sleeps = get(&worker(0)->sleeps);
        /* No session and no traffic: there is nothing to spin for. */
        assert_int_equal(sluice_worker_set_idle(node, 0, SLUICE_IDLE_ADAPTIVE), 0);
        expect_sleep(worker(0), sleeps);
        assert_int_equal(get(&worker(0)->idle), SLUICE_IDLE_ADAPTIVE);

        assert_int_equal(sluice_worker_set_idle(node, 0, SLUICE_IDLE_SPIN), 0);
        expect_spinning(worker(0));
        sleeps = get(&worker(0)->sleeps);
        assert_int_equal(sluice_worker_set_idle(node, 0, SLUICE_IDLE_DEFAULT), 0);
        expect_sleep(worker(0), sleeps);
        assert_int_equal(get(&worker(0)->idle), SLUICE_IDLE_BLOCK); /* the node's */
    }
    assert_true(get(&worker(1)->empty_progress_calls) < MANY);
    sluice_close(node, 0);
}

/* Where there is one CPU each look waits for the end of a spinning worker's time slice. */
static int rounds(void) {
    cpu_set_t cpus;
    return sched_getaffinity(0, sizeof cpus, &cpus) == 0 && CPU_COUNT(&cpus) == 1 ? 200 : 1000;
}

/* Whoever switches may ring just before the worker arms its bell. */
TEST(no_switch_to_spinning_is_slept_on) {
    open_node(SLUICE_IDLE_BLOCK, 1);
    for (int i = 0, end = rounds(); i < end; i++) {
        uint64_t sleeps = get(&worker(0)->sleeps);
        assert_int_equal(sluice_worker_set_idle(node, 0, SLUICE_IDLE_SPIN), 0);
        assert_int_equal(sluice_worker_set_idle(node, 0, SLUICE_IDLE_BLOCK), 0);
        for (uint64_t until = sluice_now() + (uint64_t)(i % 50) * 1000; sluice_now() < until;)
            ; /* before it spins, while it does, or behind it */
        assert_int_equal(sluice_worker_set_idle(node, 0, SLUICE_IDLE_SPIN), 0);
        reach(&worker(0)->empty_progress_calls, get(&worker(0)->empty_progress_calls) + 1024,
              "empty turns");
        sleeps = get(&worker(0)->sleeps);
        assert_int_equal(sluice_worker_set_idle(node, 0, SLUICE_IDLE_BLOCK), 0);
        reach(&worker(0)->sleeps, sleeps + 1, "sleeps");
    }
    sluice_close(node, 0);
}

/* ---- a loop of the application's ------------------------------------------------------------- */

static void *poll_once(void *arg) {
    sluice_event event;
    int n = sluice_poll(arg, &event, 1, SLUICE_OFF);
    return (void *)(uintptr_t)(n == 1 && event.type == SLUICE_WAKE);
}

TEST(a_poll_that_waits_follows) {
    open_node(SLUICE_IDLE_SPIN, SLUICE_NO_WORKERS);
    sluice_error e;
    sluice_loop *loop;
    pthread_t thread;
    assert_int_equal(sluice_loop_open(node, &loop, &e), 0);
    assert_int_equal(sluice_loop_set_idle(loop, SLUICE_IDLE_BLOCK), 0); /* before it is polled */
    assert_int_equal(get(&page_of(loop)->idle), SLUICE_IDLE_BLOCK);
    assert_int_equal(pthread_create(&thread, NULL, poll_once, loop), 0);
    expect_sleep(page_of(loop), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(sluice_loop_set_idle(loop, SLUICE_IDLE_DEFAULT), 0);
        expect_spinning(page_of(loop));
        uint64_t sleeps = get(&page_of(loop)->sleeps);
        assert_int_equal(sluice_loop_set_idle(loop, SLUICE_IDLE_BLOCK), 0);
        expect_sleep(page_of(loop), sleeps);
    }
    /* It waits on, and returns for an event only. */
    sluice_wake(loop);
    void *woken;
    assert_int_equal(pthread_join(thread, &woken), 0);
    assert_non_null(woken);
    sluice_close(node, 0);
}

/* ---- with traffic ---------------------------------------------------------------------------- */

static struct {
    _Atomic uint64_t ups, messages;
    sluice_session session;
} seen;

static void on_event(const sluice_event *event, void *arg) {
    (void)arg;
    if (event->type == SLUICE_UP) {
        seen.session = event->session;
        atomic_fetch_add(&seen.ups, 1);
    }
    if (event->type == SLUICE_MESSAGE)
        atomic_fetch_add(&seen.messages, 1);
}

/* It sleeps; until the sleep is one after which block does not look again. */
static void let_it_sleep(void) {
    uint64_t since = sluice_now();
    while (sluice_now() - since <= LOOP_SHORT_SLEEP_NS)
        sched_yield();
}

/* Empty turns of worker 0 from a message until it slept again. */
static uint64_t turns_after_a_message(void) {
    let_it_sleep();
    uint64_t messages = get(&seen.messages), sleeps = get(&worker(0)->sleeps);
    uint64_t before = get(&worker(0)->empty_progress_calls);
    int status;
    while ((status = sluice_send_copy(seen.session, "x", 1, NULL)) == SLUICE_EAGAIN)
        sched_yield();
    assert_int_equal(status, 0);
    reach(&seen.messages, messages + 1, "messages");
    reach(&worker(0)->sleeps, sleeps + 1, "sleeps");
    return get(&worker(0)->empty_progress_calls) - before;
}

static struct range { uint64_t least, most; } turns_of(int rounds) {
    struct range turns = {UINT64_MAX, 0};
    for (int i = 0; i < rounds; i++) {
        uint64_t now = turns_after_a_message();
        turns.least = now < turns.least ? now : turns.least;
        turns.most = now > turns.most ? now : turns.most;
    }
    return turns;
}

/*
 * With something to spin for, adaptive makes at least the turns between two looks at the clock. Block makes few, unless
 * something else woke it just before the message, so that it slept too short a time.
 */
TEST(adaptive_spins_after_a_message_and_block_does_not) {
    char address[64];
    sluice_error e;
    sluice_listener listener;
    sluice_session dialed;
    memset(&seen, 0, sizeof seen);
    open_node(SLUICE_IDLE_BLOCK, 1);
    if (ownership_one_cpu()) { /* it would give the CPU away instead */
        sluice_close(node, 0);
        skip();
    }
    const sluice_link_options *link = SLUICE_LINK(.handler = on_event, .keepalive_ns = SLUICE_OFF);
    assert_int_equal(sluice_listen(node, "127.0.0.1:0", link, &listener, &e), 0);
    snprintf(address, sizeof address, "127.0.0.1:%d", sluice_listener_port(listener));
    assert_int_equal(sluice_dial(node, address, link, &dialed, &e), 0);
    reach(&seen.ups, 2, "sessions up");
    turns_after_a_message();
    assert_true(turns_of(50).least < 64);
    assert_int_equal(sluice_worker_set_idle(node, 0, SLUICE_IDLE_ADAPTIVE), 0);
    turns_after_a_message();
    assert_true(turns_of(50).most >= 64);
    assert_int_equal(sluice_worker_set_idle(node, 0, SLUICE_IDLE_BLOCK), 0);
    turns_after_a_message();
    assert_true(turns_of(50).least < 64);
    sluice_close(node, 0);
}

/* ---- refused --------------------------------------------------------------------------------- */

TEST(what_does_not_exist_is_refused) {
    sluice_error e;
    sluice_loop *loop;
    open_node(SLUICE_IDLE_BLOCK, 1);
    assert_int_equal(sluice_loop_open(node, &loop, &e), 0);
    for (int idle = SLUICE_IDLE_DEFAULT; idle <= SLUICE_IDLE_BLOCK; idle++)
        assert_int_equal(sluice_loop_set_idle(loop, (sluice_idle)idle), 0);
    const unsigned wrong[] = {4, 5, 255, 256, 257, 0x7fffffff, 0xffffffff};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(sluice_loop_set_idle(loop, (sluice_idle)wrong[i]), SLUICE_EINVAL);
        assert_int_equal(sluice_worker_set_idle(node, 0, (sluice_idle)wrong[i]), SLUICE_EINVAL);
    }
    assert_int_equal(get(&page_of(loop)->idle), SLUICE_IDLE_BLOCK);
    assert_int_equal(get(&worker(0)->idle), SLUICE_IDLE_BLOCK);
    assert_int_equal(sluice_worker_set_idle(node, 1, SLUICE_IDLE_SPIN), SLUICE_EINVAL);
    assert_int_equal(sluice_worker_set_idle(node, UINT32_MAX, SLUICE_IDLE_SPIN), SLUICE_EINVAL);
    assert_int_equal(sluice_worker_set_idle(NULL, 0, SLUICE_IDLE_SPIN), SLUICE_EINVAL);
    assert_int_equal(sluice_loop_set_idle(NULL, SLUICE_IDLE_SPIN), SLUICE_EINVAL);
    sluice_node *closed = node;
    sluice_close(node, 0);
    assert_int_equal(sluice_worker_set_idle(closed, 0, SLUICE_IDLE_SPIN), SLUICE_ECLOSED);
    assert_int_equal(sluice_loop_set_idle(loop, SLUICE_IDLE_SPIN), SLUICE_ECLOSED);
}
