/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* sleepers.c - see sleepers.h. */
#include "support/sleepers.h"

const sluice_node_options sleepers_options = {.idle = SLUICE_IDLE_BLOCK};

static struct stats_page *page_of(const struct side *side) {
    return side->node->stats.page;
}

/* The wakeup of a thread: the CM thread's, or of a loop. */
static const struct stats_wakeup *wakeup_of(const struct side *side, int loop) {
    return loop < 0 ? &page_of(side)->cm.wakeup : &page_of(side)->loops[loop].wakeup;
}

static uint64_t sleeps_of(const struct side *side) {
    return atomic_load(&page_of(side)->loops[0].sleeps);
}

/* Until the worker has armed its wakeup and found nothing once more. */
static void wait_asleep(const struct side *side, uint64_t before) {
    uint64_t until = sluice_now() + LIMIT_NS;
    while (sleeps_of(side) == before) {
        must(sluice_now() < until);
        sched_yield();
    }
}

void sleepers_talk(struct couple *c, unsigned rounds) {
    for (unsigned i = 0; i < rounds; i++) {
        uint64_t a = sleeps_of(&c->a), b = sleeps_of(&c->b);
        must(side_send(&c->b, c->at_b, it_mixed(i), i, 0) == 0);
        struct note note = side_expect(&c->a, SLUICE_MESSAGE);
        must(it_matches(note.msg, it_mixed(i), i));
        note_free(&note);
        wait_asleep(&c->a, a);
        wait_asleep(&c->b, b);
    }
}

/* Every user event that was written has been heard, as far as is shown. */
static void wait_heard(const struct side *side, int loop) {
    const struct stats_wakeup *wakeup = wakeup_of(side, loop);
    uint64_t until = sluice_now() + LIMIT_NS;
    while (atomic_load(&wakeup->user_events_written) !=
           atomic_load(&wakeup->user_events_received)) {
        must(sluice_now() < until);
        sched_yield();
    }
}

/* Wakes of all kinds that this thread has seen. */
static uint64_t wakes_of(const struct side *side, int loop) {
    const struct stats_wakeup *wakeup = wakeup_of(side, loop);
    return atomic_load(&wakeup->user_events_written) + atomic_load(&wakeup->wakeups_by_eventfd);
}

void sleepers_expect_wakes(const struct side *side, int loop, bool user_events) {
    const struct stats_wakeup *wakeup = wakeup_of(side, loop);
    wait_heard(side, loop);
    uint64_t written = atomic_load(&wakeup->user_events_written),
             heard = atomic_load(&wakeup->user_events_received),
             eventfd = atomic_load(&wakeup->wakeups_by_eventfd);
    print_message("loop %d: %llu user events, %llu by eventfd, %llu merged\n", loop,
                  (unsigned long long)written, (unsigned long long)eventfd,
                  (unsigned long long)atomic_load(&wakeup->wakeups_merged));
    assert_int_equal(wakeup->user_events_stray, 0);
    assert_int_equal(heard, written);
    if (user_events)
        assert_int_equal(eventfd, 0);
    else
        assert_int_equal(written, 0);
    assert_true(wakes_of(side, loop) > 0);
}

void sleepers_check_every_wake(bool user_events) {
    struct couple c;
    couple_open(&c, true, &sleepers_options);
    couple_connect(&c, NULL);
    uint64_t before = wakes_of(&c.b, 0);
    sleepers_talk(&c, ROUNDS);
    wait_heard(&c.b, 0);
    assert_true(wakes_of(&c.b, 0) - before >= ROUNDS / 10); /* most found it asleep */
    /* a lookup tells the CM thread, a hang-up the worker, both ends of a listener the CM thread */
    sluice_link_options link = side_link(&c.b, &(sluice_link_options){.flags = SLUICE_ONCE});
    sluice_session named;
    sluice_error e = {0};
    char address[80];
    snprintf(address, sizeof address, "%s:%d", "localhost", c.port);
    must(sluice_dial(c.b.node, address, &link, &named, &e) == 0);
    struct note note;
    must(side_next(&c.b, &note,
                   LIMIT_NS)); /* UP or CLOSED: where the device is reached as localhost */
    if (note.event.type == SLUICE_UP)
        must(side_expect(&c.a, SLUICE_UP).event.session.id != c.at_a.id);
    must(sluice_worker_set_idle(c.b.node, 0, SLUICE_IDLE_ADAPTIVE) == 0);
    sluice_hangup(c.at_b, 0);
    side_expect_closed(&c.b, SLUICE_REASON_LOCAL_CLOSE);
    side_expect_closed(&c.a, SLUICE_REASON_PEER_CLOSE);
    sluice_unlisten(c.listener);
    for (int loop = -1; loop <= 0; loop++) {
        sleepers_expect_wakes(&c.a, loop, user_events);
        sleepers_expect_wakes(&c.b, loop, user_events);
    }
    couple_close(&c);
}

/* ---- a loop that a thread of the application sleeps in -------------------------------------------- */

struct waker {
    struct side *side;
    pthread_t thread;
    _Atomic unsigned seen;
    uint64_t sleeps;
};

static void *wake_again_and_again(void *arg) {
    struct waker *w = arg;
    for (unsigned i = 0; i < ROUNDS; i++) {
        uint64_t until = sluice_now() + LIMIT_NS;
        while (atomic_load(&w->seen) != i || sleeps_of(w->side) == w->sleeps) {
            if (sluice_now() >= until)
                return w; /* the test says so */
            sched_yield();
        }
        sluice_wake(w->side->loop);
    }
    return NULL;
}

void sleepers_check_public_wake(bool user_events) {
    struct side side;
    struct waker waker = {.side = &side};
    void *failed;
    side_open(&side, false, &sleepers_options);
    must(pthread_create(&waker.thread, NULL, wake_again_and_again, &waker) == 0);
    for (unsigned i = 0; i < ROUNDS; i++) {
        sluice_event event;
        must(sluice_poll(side.loop, &event, 1, LIMIT_NS) == 1);
        must(event.type == SLUICE_WAKE);
        waker.sleeps = sleeps_of(&side); /* it sleeps again after this */
        atomic_store(&waker.seen, i + 1);
    }
    must(pthread_join(waker.thread, &failed) == 0 && !failed);
    must(sluice_poll(side.loop, NULL, 0, MS) == 0); /* shows what it has counted before it sleeps */
    sleepers_expect_wakes(&side, 0, user_events);
    assert_int_equal(wakes_of(&side, 0), ROUNDS);
    side_close(&side, 0);
}

/* ---- events that nobody rang ------------------------------------------------------------------------- */

void sleepers_check_forged_events(void) {
    static const uint64_t generations[] = {0, 1, UINT32_MAX};
    struct couple c;
    couple_open(&c, true, &sleepers_options);
    couple_connect(&c, NULL);
    sleepers_talk(&c, 3);
    struct session *s = session_table_find(c.at_b.id);
    struct wakeup *wakeup = &atomic_load(&s->loop)->mailbox.wakeup;
    const struct fabric_ops *fabric = c.b.node->fabric;
    uint64_t forged = 0;
    for (int verb = -1; verb <= (int)WAKEUP_FLAG; verb += 8)
        for (unsigned g = 0; g < sizeof generations / sizeof *generations; g++, forged++) {
            uint64_t arg =
                UINT64_C(0x8000) << WAKEUP_ARG_BITS | wakeup_arg(s->slot, (uint32_t)generations[g]);
            must(fabric->write_cm_event(wakeup->id, (enum rdma_cm_event_type)FABRIC_CM_USER, verb,
                                        arg) == 0);
            sleepers_talk(&c, 1);
        }
    uint64_t until = sluice_now() + LIMIT_NS;
    while (atomic_load(&wakeup_of(&c.b, 0)->user_events_stray) < forged)
        must(sluice_now() < until);
    wait_heard(&c.b, 0);
    assert_int_equal(wakeup_of(&c.b, 0)->user_events_stray, forged);
    assert_int_equal(wakeup_of(&c.b, 0)->wakeups_by_eventfd, 0);
    assert_int_equal(wakeup_of(&c.b, -1)->user_events_stray, 0);
    couple_close(&c);
}

void sleepers_check_cm_events(bool user_events) {
    struct couple c;
    couple_open(&c, true, &sleepers_options);
    couple_connect(&c, NULL);
    struct side *sides[] = {&c.a, &c.b};
    for (unsigned i = 0; i < 2; i++) {
        uint64_t heard, counted, until = sluice_now() + LIMIT_NS;
        for (;;) { /* who was awake whenever it was told something was not woken */
            wait_heard(sides[i], -1);
            heard = atomic_load(&wakeup_of(sides[i], -1)->user_events_received);
            counted = page_of(sides[i])->cm.events[FABRIC_CM_USER];
            if (counted == heard && (heard > 0 || !user_events)) /* else one comes just now */
                break;
            sluice_listener again;
            side_listen(sides[i], NULL, &again);
            sluice_unlisten(again);
            must(sluice_now() < until);
        }
        assert_int_equal(counted, heard);
        assert_int_equal(heard > 0, user_events);
    }
    couple_close(&c);
}
