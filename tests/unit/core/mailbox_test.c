/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * mailbox_test.c - the queue decides, the wakeup only wakes: by both ways no posted message is ever slept
 * on, whoever posts; an event that nobody rang wakes for nothing and is counted.
 */
#define _GNU_SOURCE
#include "support/test.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "core/mailbox.h"

enum { LOST_MS = 20000, PRODUCERS = 3, POSTS = 5000, SIGNALS = 200 };

static struct mailbox box;
static int epoll_fd;
static bool user_events;

/* The software device's, with as many events at a time as the test lets through. */
static struct fabric_ops fabric;
static int let_through;

static int get_some(struct rdma_event_channel *channel, struct rdma_cm_event **event) {
    if (let_through-- > 0)
        return fabric_soft.get_cm_event(channel, event);
    errno = EAGAIN;
    return -1;
}

static int open_box(void **state) {
    fabric = fabric_soft;
    fabric.get_cm_event = get_some;
    let_through = INT32_MAX;
    user_events = *state != NULL;
    memset(&box, 0, sizeof box);
    mpsc_queue_init(&box.queue);
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_fd < 0 || wakeup_open(&box.wakeup, &fabric, user_events) != 0)
        return -1;
    return wakeup_add_to(&box.wakeup, epoll_fd, &box);
}

static int close_box(void **state) {
    (void)state;
    wakeup_close(&box.wakeup);
    close(epoll_fd);
    return 0;
}

static bool readable(int timeout_ms) {
    struct epoll_event event;
    int n;
    do
        n = epoll_wait(epoll_fd, &event, 1, timeout_ms);
    while (n < 0 && errno == EINTR);
    return n == 1;
}

/* Sleeps as a loop does; false: slept on although something should have come. */
static bool rest(void) {
    bool woken = true;
    wakeup_arm(&box.wakeup);
    if (mpsc_queue_empty(&box.queue)) {
        woken = readable(LOST_MS);
        wakeup_drain(&box.wakeup, EPOLLIN);
    }
    wakeup_disarm(&box.wakeup);
    return woken;
}

static int with_user_events;

#define ON(name, kind)                                                                             \
    { #name " [" #kind "]", name, open_box, close_box, kind }
#define ON_EVENTS(name) TEST_EACH(name, ON(name, &with_user_events))
#define ON_BOTH(name) TEST_EACH(name, ON(name, NULL), ON(name, &with_user_events))

ON_BOTH(posts_are_coalesced_into_one_ring) {
    struct mpsc_queue_item items[50];
    for (unsigned round = 1; round <= 200; round++) {
        wakeup_arm(&box.wakeup);
        for (unsigned i = 0; i < 50; i++)
            mailbox_post(&box, &items[i], 7, 100 + i, 5);
        assert_true(readable(0));
        wakeup_disarm(&box.wakeup);
        wakeup_drain(&box.wakeup, EPOLLIN);
        assert_false(readable(0));
        assert_int_equal(box.wakeup.writes + box.wakeup.fallbacks, round);
        if (user_events) { /* the first message is the one that was signalled for */
            assert_int_equal(box.wakeup.last_status, 7);
            assert_int_equal(box.wakeup.last_arg & 0xffffffffffffu, wakeup_arg(100, 5));
        }
        for (unsigned i = 0; i < 50; i++)
            assert_ptr_equal(mpsc_queue_take(&box.queue), &items[i]);
        assert_int_equal(box.wakeup.stray, 0);
    }
}

/* ---- from any thread, and from a signal handler ---------------------------------------------- */

struct producer {
    pthread_t thread;
    struct mpsc_queue_item item;
    _Atomic uint32_t taken;
};

static void *post(void *arg) {
    struct producer *p = arg;
    for (uint32_t i = 1; i <= POSTS; i++) {
        mailbox_post(&box, &p->item, 1, i, 1);
        while (atomic_load_explicit(&p->taken, memory_order_acquire) != i)
            sched_yield();
    }
    return NULL;
}

ON_BOTH(no_record_is_slept_on) {
    struct producer producers[PRODUCERS];
    memset(producers, 0, sizeof producers);
    for (int i = 0; i < PRODUCERS; i++)
        assert_int_equal(pthread_create(&producers[i].thread, NULL, post, &producers[i]), 0);
    unsigned taken = 0;
    while (taken < PRODUCERS * POSTS) {
        struct mpsc_queue_item *item = mpsc_queue_take(&box.queue);
        if (!item) {
            if (!rest()) /* the producers wait for us: no join */
                fail_msg("slept on with %u of %u taken", taken, PRODUCERS * POSTS);
            continue;
        }
        struct producer *p =
            (struct producer *)(void *)((char *)item - offsetof(struct producer, item));
        assert_int_equal(item->slot, p->taken + 1);
        atomic_store_explicit(&p->taken, item->slot, memory_order_release);
        taken++;
    }
    for (int i = 0; i < PRODUCERS; i++)
        pthread_join(producers[i].thread, NULL);
    while (readable(0)) /* rung late */
        wakeup_drain(&box.wakeup, EPOLLIN);
    assert_true(mpsc_queue_empty(&box.queue));
    assert_int_equal(box.wakeup.stray, 0);
}

static struct mpsc_queue_item signal_items[SIGNALS];
static _Atomic int posted, noticed;

static void on_signal(int number) {
    (void)number;
    int i = atomic_fetch_add(&posted, 1);
    mailbox_post(&box, &signal_items[i], 2, (uint32_t)i, 1);
}

static void *send_signals(void *arg) {
    for (int i = 0; i < SIGNALS; i++) {
        while (atomic_load(&noticed) != i)
            sched_yield();
        pthread_kill(*(pthread_t *)arg, SIGUSR1);
    }
    return NULL;
}

/* The handler runs on the reading thread, between any two of its instructions. */
ON_BOTH(a_signal_handler_may_post) {
    struct sigaction action = {.sa_handler = on_signal}, old;
    pthread_t self = pthread_self(), sender;
    posted = noticed = 0;
    assert_int_equal(sigaction(SIGUSR1, &action, &old), 0);
    assert_int_equal(pthread_create(&sender, NULL, send_signals, &self), 0);
    while (noticed < SIGNALS) {
        struct mpsc_queue_item *item = mpsc_queue_take(&box.queue);
        if (item) {
            assert_int_equal(item->slot, noticed);
            atomic_fetch_add(&noticed, 1);
        } else if (!rest()) {
            fail_msg("slept on after %d signals", (int)noticed);
        }
    }
    pthread_join(sender, NULL);
    sigaction(SIGUSR1, &old, NULL);
    assert_int_equal(box.wakeup.stray, 0);
}

/* ---- events that nobody rang ----------------------------------------------------------------- */

static void forge(int status, uint64_t arg) {
    const enum rdma_cm_event_type user = (enum rdma_cm_event_type)FABRIC_CM_USER;
    assert_int_equal(fabric_soft.write_cm_event(box.wakeup.id, user, status, arg), 0);
}

ON_EVENTS(a_forged_event_is_stray_and_wakes_for_nothing) {
    const struct {
        int status;
        uint64_t arg;
    } forged[] = {
        {0, 0},
        {3, 7},
        {WAKEUP_FLAG, 0},
        {WAKEUP_PROBE, 0},
        {WAKEUP_PROBE, UINT64_C(0x8000) << 48}, /* it was heard when the bell was opened */
        {-1, UINT64_MAX},
        {64, UINT64_C(0x8000) << 48},
        {INT32_MIN, UINT64_C(0x8000) << 48},
        {INT32_MAX, UINT64_MAX}};
    for (unsigned i = 0; i < sizeof forged / sizeof forged[0]; i++) {
        forge(forged[i].status, forged[i].arg);
        assert_true(rest()); /* woken */
        assert_false(readable(0));
        assert_int_equal(box.wakeup.stray, i + 1);
        assert_int_equal(box.wakeup.heard, 0);
        assert_null(mpsc_queue_take(&box.queue)); /* and there is nothing to do */
    }
}

ON_EVENTS(an_event_that_comes_twice_is_stray_once) {
    struct mpsc_queue_item item;
    wakeup_arm(&box.wakeup);
    mailbox_post(&box, &item, 3, 4, 5);
    wakeup_disarm(&box.wakeup);
    wakeup_drain(&box.wakeup, EPOLLIN);
    assert_int_equal(box.wakeup.stray, 0);
    assert_ptr_equal(mpsc_queue_take(&box.queue), &item);
    forge(box.wakeup.last_status, box.wakeup.last_arg);
    assert_true(rest());
    assert_int_equal(box.wakeup.stray, 1);
    assert_int_equal(box.wakeup.heard, 1);
    assert_null(mpsc_queue_take(&box.queue));
}

/*
 * Before the true event of a ring comes one with the ring's number and one thing in it that is not so:
 * of the session that had the slot before, of another slot, another verb. It is stray, and does not hide
 * the true one.
 */
ON_EVENTS(an_event_of_another_generation_slot_or_verb_is_stray) {
    static const struct {
        int verb;
        uint32_t slot, generation;
    } wrong[] = {{3, 4, 4}, {3, 4, 6}, {3, 5, 5}, {4, 4, 5}, {WAKEUP_FLAG, 4, 5}, {-3, 4, 5}};
    struct mpsc_queue_item item;
    for (unsigned i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        uint64_t number = UINT64_C(0x8000) | (box.wakeup.sequence & 0x7fff);
        forge(wrong[i].verb,
              number << WAKEUP_ARG_BITS | wakeup_arg(wrong[i].slot, wrong[i].generation));
        wakeup_arm(&box.wakeup);
        mailbox_post(&box, &item, 3, 4, 5); /* its number is that one */
        wakeup_disarm(&box.wakeup);
        let_through = 1;
        wakeup_drain(&box.wakeup, EPOLLIN);
        assert_int_equal(box.wakeup.last_arg >> WAKEUP_ARG_BITS, number);
        assert_int_equal(box.wakeup.stray, i + 1);
        assert_int_equal(box.wakeup.heard, i);
        let_through = INT32_MAX;
        wakeup_drain(&box.wakeup, EPOLLIN);
        assert_int_equal(box.wakeup.stray, i + 1);
        assert_int_equal(box.wakeup.heard, i + 1);
        assert_ptr_equal(mpsc_queue_take(&box.queue), &item);
        assert_null(mpsc_queue_take(&box.queue));
    }
}

/* The message was taken before its event is read: that is no stray, and no work twice. */
ON_BOTH(an_event_may_come_after_its_record_was_taken) {
    struct mpsc_queue_item item;
    for (unsigned i = 0; i < 30; i++) { /* not drained in between */
        wakeup_arm(&box.wakeup);
        mailbox_post(&box, &item, 3, i, 1);
        wakeup_disarm(&box.wakeup);
        assert_ptr_equal(mpsc_queue_take(&box.queue), &item);
    }
    while (readable(0)) {
        wakeup_drain(&box.wakeup, EPOLLIN);
        assert_null(mpsc_queue_take(&box.queue));
    }
    assert_int_equal(box.wakeup.stray, 0);
}

/* More rings than are remembered, none of them heard: late ones are forgiven, and no more than those. */
ON_EVENTS(late_rings_are_not_called_stray) {
    struct mpsc_queue_item item;
    for (unsigned i = 0; i < 3 * WAKEUP_PENDING_MAX; i++) {
        wakeup_arm(&box.wakeup);
        mailbox_post(&box, &item, 3, i, 1);
        wakeup_disarm(&box.wakeup);
        assert_ptr_equal(mpsc_queue_take(&box.queue), &item);
    }
    while (readable(0))
        wakeup_drain(&box.wakeup, EPOLLIN);
    assert_int_equal(box.wakeup.stray, 0);
    forge(3, 7);
    wakeup_drain(&box.wakeup, EPOLLIN);
    assert_int_equal(box.wakeup.stray, 1);
}
