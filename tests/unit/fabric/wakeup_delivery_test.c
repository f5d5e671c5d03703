/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * wakeup_delivery_test.c - no wake is lost, rings are merged, and each way stands in for the other.
 *
 * Every promise is tested on three wakeups: the eventfd alone, the user events of the software
 * device, and those of a made-up rdma_cm that can be told to fail. A lost wake shows as an
 * epoll_wait() that runs into its limit.
 */
#define _GNU_SOURCE
#include "support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "fabric/wakeup.h"
#include "base/mpsc_queue.h"

enum { LOST_MS = 20000 }; /* far above any scheduling delay: running into it means a lost wake */

/* ---- a made-up rdma_cm: user events through a pipe, signal-safe as the real ones ------------- */

static struct {
    int channels, ids, unacked;
    int write_fd;
    _Atomic int write_errno; /* not 0: writes fail with it */
    bool no_channel, no_id;
} fake;

struct fake_event {
    int status;
    uint64_t arg;
};

static struct rdma_event_channel *fake_create_channel(void) {
    if (fake.no_channel) {
        errno = ENODEV;
        return NULL;
    }
    struct rdma_event_channel *channel = calloc(1, sizeof *channel);
    assert_non_null(channel);
    int fds[2];
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    channel->fd = fds[0];
    fake.write_fd = fds[1];
    fake.channels++;
    return channel;
}
static void fake_destroy_channel(struct rdma_event_channel *channel) {
    fake.channels--;
    close(channel->fd);
    close(fake.write_fd);
    free(channel);
}
static int fake_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context,
                          enum rdma_port_space ps) {
    if (fake.no_id) {
        errno = EMFILE;
        return -1;
    }
    *id = calloc(1, sizeof **id);
    assert_non_null(*id);
    (*id)->channel = channel;
    (*id)->context = context;
    (*id)->ps = ps;
    fake.ids++;
    return 0;
}
static int fake_destroy_id(struct rdma_cm_id *id) {
    fake.ids--;
    free(id);
    return 0;
}
static int fake_write(struct rdma_cm_id *id, enum rdma_cm_event_type event, int status,
                      uint64_t arg) {
    int error = fake.write_errno;
    struct fake_event said = {.status = status, .arg = arg};
    if ((int)event != FABRIC_CM_USER)
        error = EINVAL;
    if (error) {
        errno = error;
        return -1;
    }
    (void)id;
    return write(fake.write_fd, &said, sizeof said) == sizeof said ? 0 : -1;
}
static int fake_get(struct rdma_event_channel *channel, struct rdma_cm_event **event) {
    struct fake_event said;
    if (read(channel->fd, &said, sizeof said) != sizeof said)
        return -1;
    *event = calloc(1, sizeof **event);
    assert_non_null(*event);
    (*event)->event = (enum rdma_cm_event_type)FABRIC_CM_USER;
    (*event)->status = said.status;
    memcpy(&(*event)->param, &said.arg, sizeof said.arg);
    fake.unacked++;
    return 0;
}
static int fake_ack(struct rdma_cm_event *event) {
    fake.unacked--;
    free(event);
    return 0;
}

static const struct fabric_ops fake_fabric = {
    .name = "fake",
    .create_event_channel = fake_create_channel,
    .destroy_event_channel = fake_destroy_channel,
    .create_id = fake_create_id,
    .destroy_id = fake_destroy_id,
    .get_cm_event = fake_get,
    .ack_cm_event = fake_ack,
    .write_cm_event = fake_write,
};

/* ---- the three wakeups --------------------------------------------------------------------- */

struct kind {
    const struct fabric_ops *fabric;
    bool cm;
};
static struct kind kinds[] = {{&fake_fabric, false}, {&fake_fabric, true}, {&fabric_soft, true}};

static struct wakeup bell;
static int epoll_fd;

static int open_bell(void **state) {
    const struct kind *kind = *state;
    fake.write_errno = 0;
    fake.no_channel = fake.no_id = false;
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_fd < 0 || wakeup_open(&bell, kind->fabric, kind->cm) != 0)
        return -1;
    if (wakeup_add_to(&bell, epoll_fd, &bell) != 0)
        return -1;
    return kind->cm == (bell.channel != NULL) ? 0 : -1;
}

static int close_wakeup(void **state) {
    (void)state;
    wakeup_close(&bell);
    wakeup_close(&bell); /* twice is harmless */
    close(epoll_fd);
    return fake.channels == 0 && fake.ids == 0 && fake.unacked == 0 ? 0 : -1;
}

static bool readable(int timeout_ms) {
    struct epoll_event event;
    int n;
    do
        n = epoll_wait(epoll_fd, &event, 1, timeout_ms);
    while (n < 0 && errno == EINTR);
    if (n == 1)
        assert_ptr_equal(event.data.ptr, &bell);
    return n == 1;
}

/* From now on the bell's events are fetched by a call that fails with failing_error, if that is not 0. */
static struct fabric_ops failing_fabric;
static const struct fabric_ops *failing_otherwise;
static int failing_error;
static unsigned failing_calls;

static int failing_get(struct rdma_event_channel *channel, struct rdma_cm_event **event) {
    if (failing_error == 0)
        return failing_otherwise->get_cm_event(channel, event);
    failing_calls++;
    errno = failing_error;
    return -1;
}

static void fail_fetching(int error) {
    if (bell.fabric != &failing_fabric)
        failing_otherwise = bell.fabric;
    failing_fabric = *failing_otherwise;
    failing_fabric.get_cm_event = failing_get;
    bell.fabric = &failing_fabric;
    failing_error = error;
    failing_calls = 0;
}

#define ON(kind, name)                                                                             \
    { #name " [" #kind "]", name, open_bell, close_wakeup, &kinds[kind] }
#define ON_CHANNELS(name) TEST_EACH(name, ON(1, name), ON(2, name))
#define ON_ALL(name) TEST_EACH(name, ON(0, name), ON(1, name), ON(2, name))

ON_ALL(starts_silent_and_cloexec) {
    const struct kind *kind = *state;
    assert_false(readable(0));
    assert_true(fcntl(bell.event_fd, F_GETFD) & FD_CLOEXEC);
    const char *text = wakeup_describe(&bell);
    assert_true(strlen(text) > 0 && strlen(text) < 96);
    assert_int_equal(strncmp(text, "eventfd", 7) != 0, kind->cm);
}

ON_ALL(an_awake_owner_costs_no_system_call) {
    for (int i = 0; i < 1000; i++)
        wakeup_signal(&bell, 3, (uint64_t)i);
    wakeup_arm(&bell);
    wakeup_disarm(&bell);
    for (int i = 0; i < 1000; i++)
        wakeup_signal(&bell, 3, (uint64_t)i);
    assert_int_equal(bell.merged, 0);
    assert_int_equal(bell.writes + bell.fallbacks, 0);
    assert_false(readable(0));
}

ON_ALL(rings_are_merged_and_the_first_argument_travels) {
    const struct kind *kind = *state;
    for (uint64_t round = 1; round <= 100; round++) {
        wakeup_arm(&bell);
        assert_false(readable(0));
        errno = 4711;
        for (uint64_t i = 0; i < 50; i++)
            wakeup_signal(&bell, (uint32_t)(round % WAKEUP_VERBS), round << 32 | i);
        assert_int_equal(errno, 4711);
        assert_true(readable(0));
        wakeup_disarm(&bell);
        wakeup_drain(&bell, EPOLLIN);
        assert_false(readable(0));
        assert_int_equal(bell.merged, round * 49);
        assert_int_equal(bell.writes, kind->cm ? round : 0);
        assert_int_equal(bell.fallbacks, kind->cm ? 0 : round);
        if (kind->cm) {
            assert_int_equal(bell.last_arg & 0xffffffffffffu, round << 32);
            assert_int_equal(bell.last_status, round % WAKEUP_VERBS);
        }
        assert_int_equal(bell.heard, kind->cm ? round : 0);
        assert_int_equal(bell.stray, 0);
    }
}

/* What the owner shows of its bell is what happened to it, and nothing more. */
ON_ALL(every_wake_is_counted_once) {
    const struct kind *kind = *state;
    struct stats_wakeup shown;
    wakeup_publish(&bell, &shown);
    assert_int_equal(shown.user_events_written + shown.user_events_received +
                         shown.user_events_stray,
                     0); /* no probe */
    assert_int_equal(shown.wakeups_merged + shown.wakeups_by_eventfd, 0);
    for (int i = 0; i < 10; i++) {
        wakeup_arm(&bell);
        wakeup_signal(&bell, 5, wakeup_arg(7, 11));
        wakeup_signal_flag(&bell);
        wakeup_disarm(&bell);
        wakeup_drain(&bell, EPOLLIN);
    }
    wakeup_signal_flag(&bell); /* awake: no wake */
    wakeup_publish(&bell, &shown);
    assert_int_equal(shown.user_events_written, kind->cm ? 10 : 0);
    assert_int_equal(shown.user_events_received, kind->cm ? 10 : 0);
    assert_int_equal(shown.user_events_stray, 0);
    assert_int_equal(shown.wakeups_merged, 10);
    assert_int_equal(shown.wakeups_by_eventfd, kind->cm ? 0 : 10);
}

/* Slot, generation and verb at their limits, and a handle with its node's index in it. */
ON_CHANNELS(verb_slot_and_generation_travel) {
    static const struct {
        uint32_t verb, slot, generation;
    } cases[] = {{0, 0, 1},
                 {WAKEUP_VERBS - 1, 65535, UINT32_MAX},
                 {1, 65535, 0},
                 {9, 0, UINT32_MAX},
                 {WAKEUP_FLAG, 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t record = wakeup_arg(cases[i].slot, cases[i].generation);
        wakeup_arm(&bell);
        wakeup_signal(&bell, cases[i].verb, record | UINT64_C(63) << 56);
        wakeup_disarm(&bell);
        wakeup_drain(&bell, EPOLLIN);
        assert_int_equal(bell.last_status, cases[i].verb);
        assert_int_equal(bell.last_arg & ((UINT64_C(1) << WAKEUP_ARG_BITS) - 1), record);
        assert_int_equal(bell.heard, i + 1);
        assert_int_equal(bell.stray, 0);
    }
}

/* Undrained bells stay readable; draining takes all of them; draining nothing does not block. */
ON_ALL(nothing_is_lost_without_draining) {
    wakeup_drain(&bell, EPOLLIN);
    for (int i = 0; i < 20; i++) {
        wakeup_arm(&bell);
        wakeup_signal_flag(&bell);
        wakeup_disarm(&bell);
    }
    for (int drains = 0; readable(0); drains++) {
        assert_uint_in_range(drains, 0, 20);
        wakeup_drain(&bell, EPOLLIN);
    }
    wakeup_arm(&bell);
    wakeup_signal_flag(&bell);
    assert_true(readable(0));
    wakeup_disarm(&bell);
    wakeup_drain(&bell, EPOLLIN);
    assert_false(readable(0));
}

/* ---- lossless under contention --------------------------------------------------------------- */

enum { RINGERS = 3, ITEMS = 10000 };

struct ringer {
    pthread_t thread;
    struct mpsc_queue *box;
    struct mpsc_queue_item item;
    _Atomic uint32_t posted, taken;
    unsigned number;
};

/* Posts a record, waits until it was taken, posts the next: the owner sleeps as often as can be. */
static void *post_and_ring(void *arg) {
    struct ringer *r = arg;
    for (uint32_t i = 1; i <= ITEMS; i++) {
        r->item.slot = r->number;
        r->item.verb = i;
        atomic_store(&r->posted, i);
        if (mpsc_queue_post(r->box, &r->item))
            wakeup_signal(&bell, 1, i);
        while (atomic_load_explicit(&r->taken, memory_order_acquire) != i)
            sched_yield();
    }
    return NULL;
}

static unsigned take_all(struct mpsc_queue *box, struct ringer *ringers) {
    unsigned count = 0;
    struct mpsc_queue_item *item;
    while ((item = mpsc_queue_take(box)) != NULL) {
        struct ringer *r = &ringers[item->slot];
        assert_int_equal(item->verb, r->taken + 1);
        atomic_store_explicit(&r->taken, item->verb, memory_order_release);
        count++;
    }
    return count;
}

/* At `fail_at` records fetching events begins to fail. */
static void run_ringers(unsigned fail_at) {
    struct mpsc_queue box;
    struct ringer ringers[RINGERS];
    memset(ringers, 0, sizeof ringers);
    mpsc_queue_init(&box);
    for (unsigned i = 0; i < RINGERS; i++) {
        ringers[i].box = &box;
        ringers[i].number = i;
        assert_int_equal(pthread_create(&ringers[i].thread, NULL, post_and_ring, &ringers[i]), 0);
    }
    unsigned taken = 0, sleeps = 0, lost = 0;
    while (taken < RINGERS * ITEMS && !lost) {
        taken += take_all(&box, ringers);
        if (taken >= fail_at)
            failing_error = EIO;
        wakeup_arm(&bell);
        if (mpsc_queue_empty(&box) && taken < RINGERS * ITEMS) {
            sleeps++;
            lost += !readable(LOST_MS);
            wakeup_disarm(&bell);
            wakeup_drain(&bell, EPOLLIN);
        } else {
            wakeup_disarm(&bell);
        }
    }
    if (lost) /* the ringers wait for us: show what happened instead of hanging */
        fail_msg("slept on with %u of %u taken", taken, RINGERS * ITEMS);
    for (unsigned i = 0; i < RINGERS; i++)
        pthread_join(ringers[i].thread, NULL);
    assert_true(mpsc_queue_empty(&box));
    assert_true(sleeps > 0);
    assert_true(bell.writes + bell.fallbacks > 0);
    while (readable(0)) /* a ringer that was late */
        wakeup_drain(&bell, EPOLLIN);
    assert_int_equal(bell.stray, 0);
}

ON_ALL(no_wake_is_ever_lost) {
    run_ringers(UINT_MAX);
    assert_int_equal(bell.heard, bell.writes);
}

ON_CHANNELS(none_is_lost_when_events_cannot_be_fetched_any_more) {
    fail_fetching(0);
    run_ringers(RINGERS * ITEMS / 4);
    assert_int_equal(bell.failed, 1);
    assert_int_equal(failing_calls, 1);
    assert_true(bell.writes > 0 && bell.fallbacks > 0);
}

/* ---- from a signal handler ------------------------------------------------------------------- */

enum { SIGNALS = 200 };
static _Atomic int published; /* signals handled */
static _Atomic int noticed;   /* ... and seen by the owner */

static void on_signal(int number) {
    (void)number;
    atomic_fetch_add(&published, 1);
    wakeup_signal(&bell, 9, 9);
}

static void *send_signals(void *arg) {
    pthread_t *owner = arg;
    for (int i = 0; i < SIGNALS; i++) {
        while (atomic_load(&noticed) != i)
            sched_yield();
        pthread_kill(*owner, SIGUSR1);
    }
    return NULL;
}

/* The handler runs on the sleeping thread itself, between any two of its instructions. */
ON_ALL(a_signal_handler_may_ring) {
    struct sigaction action = {.sa_handler = on_signal}, old;
    assert_int_equal(sigaction(SIGUSR1, &action, &old), 0);
    pthread_t self = pthread_self(), sender;
    published = noticed = 0;
    assert_int_equal(pthread_create(&sender, NULL, send_signals, &self), 0);
    bool lost = false;
    while (noticed < SIGNALS && !lost) {
        wakeup_arm(&bell);
        if (atomic_load(&published) == noticed)
            lost = !readable(LOST_MS);
        wakeup_disarm(&bell);
        wakeup_drain(&bell, EPOLLIN);
        atomic_store(&noticed, atomic_load(&published));
    }
    if (lost)
        fail_msg("slept on after %d signals", (int)noticed);
    pthread_join(sender, NULL);
    sigaction(SIGUSR1, &old, NULL);
}

/* ---- when the user events fail --------------------------------------------------------------- */

TEST_EACH(a_failing_write_rings_the_eventfd, ON(1, a_failing_write_rings_the_eventfd)) {
    const int errors[] = {EINVAL, ENXIO, ENOMEM, ENOENT};
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        fake.write_errno = errors[i];
        wakeup_arm(&bell);
        wakeup_signal_flag(&bell);
        assert_true(readable(0));
        assert_int_equal(bell.fallbacks, i + 1);
        assert_int_equal(bell.writes, 0);
        wakeup_disarm(&bell);
        wakeup_drain(&bell, EPOLLIN);
        assert_false(readable(0));
    }
    fake.write_errno = 0;
    wakeup_arm(&bell);
    wakeup_signal_flag(&bell);
    assert_int_equal(bell.writes, 1);
}

ON_CHANNELS(a_failing_fetch_is_the_last_and_the_eventfd_rings) {
    static const int errors[] = {EBADF, EIO, ENODEV, ENOMEM, EINVAL};
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        struct stats_wakeup shown;
        assert_int_equal(close_wakeup(state), 0);
        assert_int_equal(open_bell(state), 0);
        fail_fetching(errors[i]);
        wakeup_arm(&bell);
        wakeup_signal_flag(&bell);
        assert_true(readable(LOST_MS)); /* by an event that nobody will hear */
        wakeup_disarm(&bell);
        assert_int_equal(wakeup_drain(&bell, EPOLLIN), errors[i]);
        assert_false(readable(0)); /* though it is still there */
        assert_int_equal(wakeup_drain(&bell, EPOLLIN), 0);
        for (unsigned wake = 1; wake <= 3; wake++) {
            wakeup_arm(&bell);
            wakeup_signal_flag(&bell);
            assert_true(readable(0));
            wakeup_disarm(&bell);
            assert_int_equal(wakeup_drain(&bell, EPOLLIN), 0);
            assert_false(readable(0));
            assert_int_equal(bell.fallbacks, wake);
        }
        assert_int_equal(failing_calls, 1);
        assert_int_equal(bell.writes, 1);
        wakeup_publish(&bell, &shown);
        assert_int_equal(shown.user_events_failed, 1);
        assert_non_null(strstr(wakeup_describe(&bell), "cannot be fetched"));
        assert_true(strlen(wakeup_describe(&bell)) < 96);
    }
}

/* There is nothing, or a signal came, or the descriptor says something without an error. */
ON_CHANNELS(what_is_no_failure_gives_nothing_up) {
    static const int errors[] = {EAGAIN, EINTR};
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        fail_fetching(errors[i]);
        wakeup_arm(&bell);
        wakeup_signal_flag(&bell);
        assert_true(readable(LOST_MS));
        wakeup_disarm(&bell);
        assert_int_equal(wakeup_drain(&bell, EPOLLIN), 0);
        assert_int_equal(bell.failed, 0);
        fail_fetching(0);
        assert_int_equal(wakeup_drain(&bell, EPOLLIN | EPOLLHUP), 0); /* it brought one */
        assert_int_equal(bell.heard, i + 1);
    }
    assert_int_equal(bell.fallbacks, 0);
}

/* What a channel says whose driver is gone: it would be reported for ever. */
ON_CHANNELS(an_error_of_the_channel_is_a_failure) {
    fail_fetching(EAGAIN);
    assert_int_equal(wakeup_drain(&bell, EPOLLERR), EIO);
    assert_int_equal(bell.failed, 1);
    wakeup_arm(&bell);
    wakeup_signal_flag(&bell);
    assert_int_equal(bell.fallbacks, 1);
    assert_true(readable(0));
}

static void expect_eventfd_only(const struct fabric_ops *fabric, const char *why) {
    struct wakeup other;
    assert_int_equal(wakeup_open(&other, fabric, true), 0);
    assert_null(other.channel);
    assert_null(other.id);
    if (!strstr(wakeup_describe(&other), why))
        fail_msg("\"%s\" does not say \"%s\"", wakeup_describe(&other), why);
    assert_true(strlen(wakeup_describe(&other)) < 96);
    wakeup_arm(&other);
    wakeup_signal_flag(&other);
    assert_int_equal(other.fallbacks, 1);
    wakeup_close(&other);
}

TEST(the_probe_tells_why_there_is_only_the_eventfd) {
    fake.write_errno = ENOSYS;
    expect_eventfd_only(&fake_fabric, "librdmacm before 60");
    fake.write_errno = EINVAL;
    expect_eventfd_only(&fake_fabric, "kernel");
    fake.write_errno = 0;
    fake.no_id = true;
    expect_eventfd_only(&fake_fabric, "id");
    fake.no_channel = true;
    expect_eventfd_only(&fake_fabric, "channel");
    struct fabric_ops without = fake_fabric;
    without.write_cm_event = NULL;
    expect_eventfd_only(&without, "rdma_write_cm_event");
    assert_int_equal(fake.channels, 0);
    assert_int_equal(fake.ids, 0);
}

/* On a machine without an RDMA device or with an old library this ends at the eventfd as well. */
TEST(the_system_fabric_always_has_a_bell) {
    struct wakeup other;
    assert_int_equal(wakeup_open(&other, &fabric_system, true), 0);
    wakeup_arm(&other);
    wakeup_signal_flag(&other);
    assert_int_equal(other.writes + other.fallbacks, 1);
    assert_int_equal(other.fallbacks, other.channel == NULL);
    wakeup_drain(&other, EPOLLIN);
    wakeup_close(&other);
}
