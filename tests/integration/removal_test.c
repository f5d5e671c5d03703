/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * removal_test.c - the device is taken away under a live node: every session says why it ended, the
 * node lets go of the device whether anybody polls or not, and what was pending is told afterwards.
 *
 * On the software device, which can be told to go; the kernel's is in tests/kernel/removal_test.c.
 */
#include "support/side.h"

enum { SESSIONS = 20 };
#define REMOVAL_NS (5000 * MS)

static const char *const orders[] = {"fatal-first", "removal-first", "fatal-only", "removal-only"};

/* A node says in its log when it has let go of a removed device. */
static void log_line(int level, const char *text, void *arg) {
    (void)level;
    if (strstr(text, "let go of"))
        __atomic_add_fetch((unsigned *)arg, 1, __ATOMIC_RELEASE);
}

static unsigned let_go;

static void couple_open_watched(struct couple *c, bool handlers) {
    __atomic_store_n(&let_go, 0, __ATOMIC_RELAXED);
    couple_open(c, handlers, SLUICE_NODE(.log = log_line, .log_arg = &let_go));
}

static void device_command(const char *what, const char *words) {
    const char *bin = getenv("SLUICE_BIN_DIR");
    char path[512], pid[16];
    must(bin);
    snprintf(path, sizeof path, "%s/sluice-soft", bin ? bin : ".");
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    char *argv[] = {path,
                    (char *)(uintptr_t) "ctl",
                    pid,
                    (char *)(uintptr_t) "device",
                    (char *)(uintptr_t)what,
                    (char *)(uintptr_t)words,
                    NULL};
    pid_t child;
    int status;
    posix_spawn_file_actions_t quiet;
    posix_spawn_file_actions_init(&quiet);
    posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", O_WRONLY, 0);
    must(posix_spawn(&child, path, &quiet, NULL, argv, environ) == 0);
    posix_spawn_file_actions_destroy(&quiet);
    must(waitpid(child, &status, 0) == child);
    must(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void take_device_away(const char *order) {
    char words[64];
    snprintf(words, sizeof words, "order=%s", order);
    device_command("remove", words);
}

/* Returns how long that took. */
static uint64_t await_let_go(unsigned nodes) {
    uint64_t since = sluice_now();
    while (__atomic_load_n(&let_go, __ATOMIC_ACQUIRE) < nodes) {
        must(sluice_now() < since + REMOVAL_NS);
        poll(NULL, 0, 1);
    }
    return sluice_now() - since;
}

static void connect_many(struct couple *c, unsigned sessions) {
    for (unsigned i = 0; i < sessions; i++) {
        couple_connect(c, &(sluice_link_options){.credits = 8});
        must(side_send(&c->b, c->at_b, 100, i, 0) == 0);
        struct note note = side_expect(&c->a, SLUICE_MESSAGE);
        note_free(&note);
    }
}

static void expect_all_closed(struct side *side, unsigned sessions) {
    for (; sessions > 0; sessions--)
        side_expect_closed(side, SLUICE_REASON_DEVICE_REMOVED);
    side_expect_nothing(side);
}

/* In every order of the notices. */
BOTH_MODES(sessions_end_and_the_node_lets_go) {
    for (unsigned i = 0; i < sizeof orders / sizeof orders[0]; i++) {
        struct couple c;
        couple_open_watched(&c, handlers_of(state));
        connect_many(&c, SESSIONS);
        take_device_away(orders[i]);
        expect_all_closed(&c.a, SESSIONS);
        expect_all_closed(&c.b, SESSIONS);
        await_let_go(2);
        couple_close(&c);
    }
}

/* What a thread that comes back to its loop after the device is gone still gets, exactly once. */
TEST(a_loop_nobody_polls_is_no_obstacle) {
    for (unsigned i = 0; i < sizeof orders / sizeof orders[0]; i++) {
        struct couple c;
        couple_open_watched(&c, false);
        connect_many(&c, SESSIONS);
        must(side_send(&c.b, c.at_b, 5000, 7, 77) == 0);
        take_device_away(orders[i]);
        await_let_go(2);
        side_expect_removed(&c.b, SESSIONS, 77);
        couple_close(&c); /* a's events are never fetched */
    }
}

/* A message that the last poll lent stays whole until the next one, device or not. */
TEST(a_borrowed_message_survives) {
    struct couple c;
    sluice_event event = {0};
    couple_open_watched(&c, false);
    connect_many(&c, 1);
    must(side_send(&c.b, c.at_b, 9000, 3, 0) == 0);
    uint64_t until = sluice_now() + LIMIT_NS;
    while (event.type != SLUICE_MESSAGE) {
        must(sluice_poll(c.b.loop, NULL, 0, 0) >= 0 && sluice_now() < until);
        must(sluice_poll(c.a.loop, &event, 1, MS) >= 0);
    }
    take_device_away("fatal-first");
    await_let_go(2);
    must(it_matches(event.msg, 9000, 3));
    sluice_keep(event.msg);
    side_expect_closed(&c.a, SLUICE_REASON_DEVICE_REMOVED);
    must(it_matches(event.msg, 9000, 3));
    sluice_free(event.msg);
    couple_close(&c);
}

/* The library has the loop for a turn now and then: a thread that polls meanwhile is not told. */
struct poller {
    struct side *side;
    unsigned closed;
    int status;
};

static void *poll_all_the_time(void *arg) {
    struct poller *p = arg;
    uint64_t until = sluice_now() + LIMIT_NS;
    while (p->closed < SESSIONS && sluice_now() < until) {
        sluice_event event;
        int n = sluice_poll(p->side->loop, &event, 1, 0);
        if (n < 0) {
            p->status = n;
            return NULL;
        }
        p->closed += n == 1 && event.type == SLUICE_CLOSED && !side_of_listener(&event);
        if (n == 0 && p->closed > 0)
            poll(NULL, 0, 1); /* so that there are moments without */
    }
    return NULL;
}

TEST(polling_goes_on_while_the_device_goes) {
    for (unsigned i = 0; i < sizeof orders / sizeof orders[0]; i++) {
        struct couple c;
        pthread_t threads[2];
        couple_open_watched(&c, false);
        connect_many(&c, SESSIONS);
        struct poller pollers[2] = {{.side = &c.a}, {.side = &c.b}};
        for (unsigned t = 0; t < 2; t++)
            must(pthread_create(&threads[t], NULL, poll_all_the_time, &pollers[t]) == 0);
        take_device_away(orders[i]);
        await_let_go(2);
        for (unsigned t = 0; t < 2; t++) {
            pthread_join(threads[t], NULL);
            assert_int_equal(pollers[t].status, 0);
            assert_int_equal(pollers[t].closed, SESSIONS);
        }
        couple_close(&c);
    }
}

/* A node without its device: what it still does, what it refuses, and that it can be closed. */
BOTH_MODES(a_node_without_a_device_says_so) {
    struct couple c;
    sluice_listener listener;
    sluice_loop *loop;
    sluice_msg *msg;
    sluice_error e = {0};
    couple_open_watched(&c, handlers_of(state));
    connect_many(&c, 1);
    must(sluice_alloc(c.b.node, 1000, &msg) == 0);
    take_device_away("fatal-first");
    expect_all_closed(&c.b, 1);
    await_let_go(2);
    it_fill(msg, 1);
    must(it_matches(msg, 1000, 1));
    sluice_free(msg);
    int status = sluice_alloc(c.b.node, 16 << 20, &msg); /* more than is registered */
    assert_int_equal(status, SLUICE_ENOMEM);
    sluice_link_options link = side_link(&c.b, NULL);
    assert_int_equal(sluice_listen(c.b.node, it_address(0), &link, &listener, &e), SLUICE_EDEVICE);
    assert_int_equal(e.reason, SLUICE_REASON_DEVICE_REMOVED);
    assert_int_equal(sluice_loop_open(c.b.node, &loop, &e), SLUICE_EDEVICE);
    assert_int_equal(e.reason, SLUICE_REASON_DEVICE_REMOVED);
    side_dial(&c.b, 7471, NULL);
    side_expect_closed(&c.b, SLUICE_REASON_DEVICE_REMOVED);
    sluice_unlisten(c.listener);
    couple_close(&c);
}

/* ---- listeners --------------------------------------------------------------------------------- */

BOTH_MODES(a_listener_is_told_of_and_answers_with_an_error) {
    for (unsigned i = 0; i < sizeof orders / sizeof orders[0]; i++) {
        struct couple c;
        sluice_listener other;
        couple_open_watched(&c, handlers_of(state));
        side_listen(&c.a, NULL, &c.listener);
        must(side_listen(&c.a, NULL, &other) > 0);
        must(sluice_listener_port(other) > 0);
        take_device_away(orders[i]);
        side_expect_listeners_lost(&c.a, 2);
        side_expect_listeners_lost(&c.b, 0); /* it has none */
        assert_int_equal(sluice_listener_port(other), SLUICE_EDEVICE);
        await_let_go(2);
        sluice_unlisten(other);
        assert_int_equal(sluice_listener_port(other), SLUICE_ECLOSED);
        sluice_unlisten(other);
        assert_int_equal(sluice_listener_port(c.listener), SLUICE_EDEVICE);
        couple_close(&c);
        assert_int_equal(sluice_listener_port(c.listener), SLUICE_ECLOSED);
    }
}

/* What the event says, to a handler and in an array. */
static _Atomic unsigned last_words;

static void expect_last_words(const sluice_event *event, sluice_listener listener, void *arg) {
    must(event->type == SLUICE_CLOSED && event->reason == SLUICE_REASON_DEVICE_REMOVED);
    must(event->status == SLUICE_EDEVICE && event->vendor == 0 && event->arg == arg);
    must(event->session.id == listener.id);
    must(sluice_listener_port(listener) == SLUICE_EDEVICE);
    /* It looks like no session. */
    must(sluice_send_copy(event->session, "x", 1, NULL) == SLUICE_ECLOSED);
    sluice_hangup(event->session, 0);
    sluice_unlisten(listener); /* here is a good place for it */
    must(sluice_listener_port(listener) == SLUICE_ECLOSED);
}

static sluice_listener with_handler;

static void hear_last_words(const sluice_event *event, void *arg) {
    expect_last_words(event, with_handler, arg);
    atomic_fetch_add(&last_words, 1);
}

TEST(the_event_names_the_listener) {
    struct side side;
    sluice_listener plain;
    sluice_loop *loop;
    sluice_error e;
    sluice_event event;
    int mine;
    unsigned polled = 0;
    let_go = 0;
    atomic_store(&last_words, 0);
    side_open(&side, true, SLUICE_NODE(.log = log_line, .log_arg = &let_go)); /* has a worker */
    must(sluice_loop_open(side.node, &loop, &e) == 0);
    must(sluice_listen(side.node, it_address(0), SLUICE_LINK(.loop = loop, .arg = &mine), &plain,
                       &e) == 0);
    must(sluice_listen(side.node, it_address(0),
                       SLUICE_LINK(.handler = hear_last_words, .handler_arg = &mine, .arg = &mine),
                       &with_handler, &e) == 0); /* by the worker */
    must(plain.id != with_handler.id);
    take_device_away("fatal-first");
    uint64_t until = sluice_now() + LIMIT_NS;
    while (polled == 0 || atomic_load(&last_words) == 0) {
        if (sluice_poll(loop, &event, 1, MS) == 1) {
            expect_last_words(&event, plain, &mine);
            polled++;
        }
        must(sluice_now() < until);
    }
    await_let_go(1);
    for (int i = 0; i < 20; i++)
        polled += sluice_poll(loop, &event, 1, MS) == 1;
    assert_int_equal(polled, 1);
    assert_int_equal(atomic_load(&last_words), 1);
    side_close(&side, 0);
}

/* A loop that nobody polls, and a poll that has no room, lose nothing. */
TEST(a_listener_is_told_of_when_somebody_polls) {
    struct side side;
    sluice_listener listeners[3];
    sluice_event events[2];
    let_go = 0;
    side_open(&side, false, SLUICE_NODE(.log = log_line, .log_arg = &let_go));
    for (unsigned i = 0; i < 3; i++)
        side_listen(&side, NULL, &listeners[i]);
    take_device_away("removal-only");
    await_let_go(1); /* the library has run the loop */
    assert_int_equal(sluice_poll(side.loop, NULL, 0, 0), 0);
    sluice_unlisten(listeners[1]); /* who gives it back does not want to hear of it any more */
    assert_int_equal(sluice_poll(side.loop, events, 1, 0), 1);
    assert_int_equal(sluice_poll(side.loop, events + 1, 1, 0), 1);
    must(events[0].session.id == listeners[0].id && events[1].session.id == listeners[2].id);
    assert_int_equal(sluice_poll(side.loop, events, 2, 0), 0);
    side_close(&side, 0); /* with two that nobody gave back */
}

static void put_device_back(void) {
    device_command("restore", NULL);
}

/* The device is back: the node says that it is of no use, and another is. */
BOTH_MODES(a_device_that_is_back_needs_a_new_node) {
    struct couple c;
    sluice_listener listener;
    sluice_loop *loop;
    sluice_error e = {0};
    couple_open_watched(&c, handlers_of(state));
    connect_many(&c, 1);
    take_device_away("fatal-first");
    expect_all_closed(&c.a, 1);
    expect_all_closed(&c.b, 1);
    side_expect_listeners_lost(&c.a, 1);
    await_let_go(2);
    put_device_back();
    sluice_link_options link = side_link(&c.a, NULL);
    assert_int_equal(sluice_listen(c.a.node, it_address(0), &link, &listener, &e), SLUICE_EDEVICE);
    assert_int_equal(e.reason, SLUICE_REASON_DEVICE_REMOVED);
    must(strstr(e.text, "the node must be closed and opened again"));
    assert_int_equal(sluice_loop_open(c.a.node, &loop, &e), SLUICE_EDEVICE);
    must(strstr(e.text, "the node must be closed and opened again"));
    side_dial(&c.a, 7471, NULL);
    struct note note = side_expect(&c.a, SLUICE_CLOSED);
    assert_int_equal(note.event.reason, SLUICE_REASON_DEVICE_REMOVED);
    must(strstr(note.info.close_text, "the node must be closed and opened again"));
    couple_close(&c);
    couple_open(&c, handlers_of(state), NULL);
    connect_many(&c, 1);
    couple_close(&c);
}

/*
 * Closing while the device goes: neither waits for the other for ever. The first round measures how long nodes take to let
 * go of it; the others close at once, and in the milliseconds around that moment.
 */
BOTH_MODES(closing_at_the_same_moment) {
    uint64_t moment = 0;
    for (unsigned i = 0; i < 10; i++) {
        struct couple c;
        couple_open_watched(&c, handlers_of(state));
        connect_many(&c, 4);
        take_device_away(orders[i % 4]);
        uint64_t start = sluice_now();
        if (i == 0)
            moment = await_let_go(1);
        else if (i % 2)
            poll(NULL, 0, (int)(moment / MS > 5 ? moment / MS - 5 + i : i));
        uint64_t closes = sluice_now();
        couple_close(&c);
        assert_uint_in_range(sluice_now() - closes, 0, REMOVAL_NS);
        print_message("    closed %llu us after it went\n",
                      (unsigned long long)(closes - start) / 1000);
    }
}
