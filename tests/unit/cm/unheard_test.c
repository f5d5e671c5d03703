/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * unheard_test.c - fetching events fails, and nobody spins: it is counted, logged once, tried again after
 * pauses; when it lasts the sessions end with DEVICE_ERROR, and when it does not they live.
 *
 * The failing calls are made up; the descriptors and what makes them readable are the software device's. The
 * clock is the test's, so what lasts is not a matter of the machine.
 */
#include "support/pair.h"
#include "support/log.h"

#include <errno.h>
#include <sys/epoll.h>

#include "soft/control/device_state.h"
#include "soft/ipc/engine.h"

static struct {
    int error; /* not 0: fetching fails with it */
    unsigned calls, warnings;
} unheard;

static int unheard_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event) {
    if (unheard.error == 0)
        return soft_get_cm_event(channel, event);
    unheard.calls++;
    errno = unheard.error;
    return -1;
}

static int unheard_get_async_event(struct ibv_context *context, struct ibv_async_event *event) {
    if (unheard.error == 0)
        return soft_get_async_event(context, event);
    unheard.calls++;
    errno = unheard.error;
    return -1;
}

static struct fabric_ops unheard_cm, unheard_device;

static void unheard_log(int level, const char *text, void *arg) {
    (void)arg;
    unheard.warnings += level <= SLUICE_LOG_WARNING && strstr(text, "cannot be fetched") != NULL;
}

static void unheard_open(struct pair *p, const struct fabric_ops *fabric) {
    memset(&unheard, 0, sizeof unheard);
    unheard_cm = unheard_device = fabric_soft;
    unheard_cm.get_cm_event = unheard_get_cm_event;
    unheard_device.get_async_event = unheard_get_async_event;
    memset(p, 0, sizeof *p);
    pair_clock = pair_step = 0;
    pair_frozen = env_now(&env_default);
    pair_open_side(&p->a, PAIR_NODE(.log = log_nothing));
    pair_open_side(&p->b, PAIR_NODE(.log = unheard_log));
    p->b.node->fabric = fabric;
    pair_listen(p, PAIR_LINK(.keepalive_ns = SLUICE_OFF));
    pair_connect(p, PAIR_LINK(.keepalive_ns = SLUICE_OFF));
}

static void unheard_close(struct pair *p) {
    unheard.error = 0;
    pair_frozen = 0;
    p->b.node->fabric = &fabric_soft;
    pair_close(p);
}

/* Something is there to be fetched. */
static void make_readable(struct pair *p, bool device) {
    if (device) {
        soft_lock();
        soft_device_address_moved(NULL); /* GID_CHANGE */
        soft_unlock();
    } else {
        assert_int_equal(soft_write_cm_event(p->b.node->cm->watch.id,
                                             (enum rdma_cm_event_type)FABRIC_CM_USER, 0, 0),
                         0);
    }
}

/* The loops live by their own clocks and see nothing of this; the CM thread sleeps as it would. */
static void turn(struct pair *p, uint64_t ns) {
    pair_clock += ns;
    cm_progress(p->b.node->cm, 0);
}

/* Until so many calls have failed; the clock moves only while nothing is to be done. */
static void fail_times(struct pair *p, unsigned calls, uint64_t ns) {
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    while (unheard.calls < calls) {
        turn(p, ns);
        assert_true(env_now(&env_default) < limit);
    }
}

static uint64_t counted(struct pair *p, bool device) {
    const struct stats_cm *stats = &p->b.node->stats.page->cm;
    return atomic_load(device ? &stats->async_failed : &stats->fetch_failed);
}

static const struct fabric_ops *failing(bool device) {
    return device ? &unheard_device : &unheard_cm;
}

TEST(a_failing_fetch_never_spins) {
    for (int device = 0; device < 2; device++) {
        struct pair p;
        unheard_open(&p, failing(device));
        make_readable(&p, device);
        unheard.error = EBADF;
        fail_times(&p, 1, 0);
        for (int i = 0; i < 1000; i++) /* within the pause */
            turn(&p, 0);
        assert_int_equal(unheard.calls, 1);
        assert_true(event_source_due(device ? &p.b.node->cm->async_source : &p.b.node->cm->source) <
                    UINT64_MAX); /* it wakes by itself to try again */
        for (int ms = 0; ms < 2000; ms++)
            turn(&p, 1000000);
        assert_uint_in_range(unheard.calls, 5, 15);
        assert_int_equal(counted(&p, device), unheard.calls);
        assert_int_equal(unheard.warnings, 1);
        unheard_close(&p);
    }
}

TEST(a_failure_that_lasts_ends_sessions_with_device_error) {
    static const int errors[] = {EBADF, EIO, ENODEV};
    for (int i = 0; i < 6; i++) {
        struct pair p;
        bool device = i & 1;
        unheard_open(&p, failing(device));
        make_readable(&p, device);
        unheard.error = errors[i / 2];
        for (int ms = 0; ms < 900; ms++)
            turn(&p, 1000000);
        pair_expect_nothing(&p, &p.b);
        for (int ms = 0; ms < 1200; ms++)
            turn(&p, 1000000);
        pair_frozen = 0; /* draining has a limit by the clock */
        sluice_event event = pair_expect(&p, &p.b, SLUICE_CLOSED);
        assert_int_equal(event.reason, SLUICE_REASON_DEVICE_ERROR);
        sluice_session_info info = pair_info(event.session);
        assert_non_null(strstr(info.close_text, "cannot be fetched"));
        unheard_close(&p);
    }
}

TEST(a_failure_that_passes_ends_nothing) {
    for (int device = 0; device < 2; device++) {
        struct pair p;
        unheard_open(&p, failing(device));
        make_readable(&p, device);
        unheard.error = ENOMEM;
        fail_times(&p, 3, 1000000);
        unheard.error = 0;
        pair_clock += EVENT_SOURCE_PAUSE_MAX_NS;
        pair_expect_nothing(&p, &p.b);
        assert_int_equal(
            device ? p.b.node->cm->async_source.failures : p.b.node->cm->source.failures, 0);
        /* What came meanwhile is heard: the end of the connection too. */
        sluice_hangup(p.a.session, 0);
        assert_int_equal(pair_expect(&p, &p.b, SLUICE_CLOSED).reason, SLUICE_REASON_PEER_CLOSE);
        unheard_close(&p);
    }
}

static int unheard_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq,
                                void **context) {
    if (unheard.error == 0)
        return soft_get_cq_event(channel, cq, context);
    unheard.calls++;
    errno = unheard.error;
    return -1;
}

TEST(a_failing_completion_channel_never_spins_and_ends_the_sessions) {
    struct pair p;
    struct fabric_ops fabric = fabric_soft;
    fabric.get_cq_event = unheard_get_cq_event;
    unheard_open(&p, &fabric);
    assert_int_equal(sluice_loop_set_idle(p.b.loop, SLUICE_IDLE_BLOCK), 0);
    unheard.error = EIO;
    pair_step = 10; /* a poll's own wait ends */
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    while (unheard.calls == 0) { /* until the loop slept on its channel and was woken */
        assert_int_equal(pair_send(&p.a, 8, 1, NULL), 0);
        assert_true(sluice_poll(p.a.loop, NULL, 0, 0) >= 0);
        assert_true(sluice_poll(p.b.loop, NULL, 0, 1) >= 0);
        assert_true(env_now(&env_default) < limit);
    }
    for (int i = 0; i < 200; i++) /* within the pause */
        assert_true(sluice_poll(p.b.loop, NULL, 0, 1) >= 0);
    assert_int_equal(unheard.calls, 1);
    for (int ms = 0; ms < 2500; ms++) {
        pair_clock += 1000000;
        assert_true(sluice_poll(p.b.loop, NULL, 0, 1) >= 0);
    }
    assert_uint_in_range(unheard.calls, 5, 20);
    assert_int_equal(unheard.warnings, 1);
    pair_frozen = pair_step = 0;
    sluice_event event;
    do
        assert_true(pair_next(&p, &p.b, &event));
    while (event.type != SLUICE_CLOSED);
    assert_int_equal(event.reason, SLUICE_REASON_DEVICE_ERROR);
    unheard_close(&p);
}

static void ring(struct wakeup *bell) {
    wakeup_arm(bell);
    wakeup_signal_flag(bell);
}

/* The wakeups have channels of their own, without which the threads can do. */
TEST(a_failing_doorbell_never_spins_and_ends_nothing) {
    struct pair p;
    unheard_open(&p, &fabric_soft);
    struct wakeup *wakeups[] = {&p.b.node->cm_mailbox.wakeup, &p.b.loop->mailbox.wakeup};
    const struct stats_page *page = p.b.node->stats.page;
    const struct stats_wakeup *shown[] = {&page->cm.wakeup, &page->loops[p.b.loop->index].wakeup};
    assert_int_equal(sluice_loop_set_idle(p.b.loop, SLUICE_IDLE_BLOCK), 0);
    unheard.error = EBADF;
    for (unsigned i = 0; i < 2; i++) {
        wakeups[i]->fabric = &unheard_cm;
        for (int n = 0; n < 100; n++) { /* only the first is heard of */
            ring(wakeups[i]);
            cm_progress(p.b.node->cm, 0);
            pair_step = 10; /* a poll's own wait ends */
            assert_true(sluice_poll(p.b.loop, NULL, 0, 1) >= 0);
            pair_step = 0;
        }
        assert_int_equal(unheard.calls, i + 1);
        assert_int_equal(unheard.warnings, i + 1);
        loop_publish(p.b.loop);
        assert_int_equal(atomic_load(&shown[i]->user_events_failed), 1);
        assert_true(atomic_load(&shown[i]->wakeups_by_eventfd) > 0);
    }
    unheard.error = 0;
    pair_frozen = 0;
    assert_int_equal(pair_send(&p.a, 8, 1, NULL), 0);
    sluice_event event = pair_expect(&p, &p.b, SLUICE_MESSAGE);
    assert_true(pair_check(event.msg, 8, 1));
    sluice_hangup(p.b.session, 0);
    assert_int_equal(pair_expect(&p, &p.b, SLUICE_CLOSED).reason, SLUICE_REASON_LOCAL_CLOSE);
    unheard_close(&p);
}

/* What a device says whose driver is gone: an error of the descriptor, and nothing to be fetched. */
TEST(an_error_of_the_descriptor_is_a_failure) {
    assert_int_equal(event_source_result(EPOLLIN, 0, EAGAIN), 0);
    assert_int_equal(event_source_result(EPOLLIN, 1, 0), 0);
    assert_int_equal(event_source_result(EPOLLIN | EPOLLERR, 1, EAGAIN), 0);
    assert_int_equal(event_source_result(EPOLLERR, 0, EAGAIN), EIO);
    assert_int_equal(event_source_result(EPOLLHUP, 0, EINTR), EIO);
    assert_int_equal(event_source_result(EPOLLIN, 3, ENODEV), ENODEV);
}
