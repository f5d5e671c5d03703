/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * close_stuck_test.c - sluice_close() while a thread of the application is inside of the library and does not come back:
 * it returns a second after the grace at the latest, says what stays, and calls nothing of the application from then
 * on; what stays goes when that thread does.
 */
#include "support/side.h"

#include <time.h>

#include "support/stall.h"
#include "support/tasks.h"
#include "support/usage.h"

#define GRACE_NS (100 * MS)
#define EXTRA_NS (5000 * MS) /* what a session may take to end after the grace */
#define SLOW_NS (150 * MS)
#define BOUND_NS (2000 * MS) /* one second, and as much for threads to take turns */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool inside, open, closed,
        out; /* the handler, the gate it waits at, sluice_close(), the handler again */
    bool up;
    bool log_waits, log_locks; /* the next line is a long affair; the log has a mutex meanwhile */
    bool asks, holds;          /* the handler has that mutex now and then, and asks; all the time */
    bool slow, slow_inside;    /* handlers of the end take their time; one is inside */
    bool slow_left;            /* one was when sluice_close() returned */
    sluice_event_type stuck_at; /* the event of which the handler makes a long affair */
    unsigned called_after, logged_after, asked_after;
    int answer;
    char log[4096];
} scene = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void set(bool *what, bool value) {
    pthread_mutex_lock(&scene.lock);
    *what = value;
    pthread_cond_broadcast(&scene.changed);
    pthread_mutex_unlock(&scene.lock);
}

static bool get(const bool *what) {
    pthread_mutex_lock(&scene.lock);
    bool value = *what;
    pthread_mutex_unlock(&scene.lock);
    return value;
}

static void await(const bool *what) {
    struct timespec until;
    int error = 0;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)(LIMIT_NS / (1000 * MS));
    pthread_mutex_lock(&scene.lock);
    while (!*what && error == 0)
        error = pthread_cond_timedwait(&scene.changed, &scene.lock, &until);
    bool value = *what;
    pthread_mutex_unlock(&scene.lock);
    must(value);
}

static void begin(void) {
    pthread_mutex_lock(&scene.lock);
    scene.inside = scene.open = scene.closed = scene.out = false;
    scene.up = scene.log_waits = scene.log_locks = scene.asks = scene.holds = false;
    scene.slow = scene.slow_inside = scene.slow_left = false;
    scene.called_after = scene.logged_after = scene.asked_after = 0;
    scene.stuck_at = SLUICE_MESSAGE;
    scene.log[0] = 0;
    pthread_mutex_unlock(&scene.lock);
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* the application's */

static void on_log(int level, const char *text, void *arg) {
    (void)level, (void)arg;
    pthread_mutex_lock(&scene.lock);
    scene.logged_after += scene.closed;
    size_t used = strlen(scene.log);
    snprintf(scene.log + used, sizeof scene.log - used, "%s\n", text);
    bool waits = scene.log_waits && !scene.inside, locks = scene.log_locks;
    pthread_mutex_unlock(&scene.lock);
    if (locks)
        pthread_mutex_lock(&mutex);
    if (waits) {
        set(&scene.inside, true);
        await(&scene.open);
        set(&scene.out, true);
    }
    if (locks)
        pthread_mutex_unlock(&mutex);
}

static void ask(sluice_session session) {
    sluice_session_info info = {.size = sizeof info};
    pthread_mutex_lock(&mutex);
    must(sluice_session_get_info(session, &info) == 0);
    pthread_mutex_unlock(&mutex);
}

/* It returns, every time. */
static void take_time(void) {
    const struct timespec time = {.tv_nsec = (long)SLOW_NS};
    set(&scene.slow_inside, true);
    nanosleep(&time, NULL);
    set(&scene.slow_inside, false);
}

/* Of the first of these events it makes a long affair, and afterwards uses what it was given. */
static void on_event(const sluice_event *event, void *arg) {
    (void)arg;
    pthread_mutex_lock(&scene.lock);
    scene.called_after += scene.closed;
    scene.up |= event->type == SLUICE_UP;
    pthread_cond_broadcast(&scene.changed);
    bool first = event->type == scene.stuck_at && !scene.inside;
    bool slow = scene.slow && event->type == SLUICE_CLOSED;
    pthread_mutex_unlock(&scene.lock);
    if (slow)
        take_time();
    if (!first)
        return;
    if (scene.holds)
        pthread_mutex_lock(&mutex);
    set(&scene.inside, true);
    while (scene.asks && !get(&scene.open))
        ask(event->session);
    await(&scene.open);
    if (scene.holds)
        pthread_mutex_unlock(&mutex);
    must_data(event->type != SLUICE_MESSAGE || memcmp(sluice_data(event->msg), "hello", 5) == 0);
    scene.answer = sluice_send_copy(event->session, "too late", 8, NULL);
    set(&scene.out, true);
}

static void on_other(const sluice_event *event, void *arg) {
    if (event->type == SLUICE_UP)
        set(arg, true);
}

struct nodes {
    sluice_node *server, *client;
    char address[64]; /* where the server listens */
    bool keyed;       /* with a key, of which the server asks its application */
};

struct poller {
    sluice_loop *loop;
    bool polling;
    int end; /* what the last sluice_poll() returned */
};

static struct poller polled, beside;

static void *poll_on(void *arg) {
    struct poller *poller = arg;
    sluice_event events[8];
    int status;
    while ((status = sluice_poll(poller->loop, events, 8, SLUICE_OFF)) >= 0)
        ;
    poller->end = status;
    set(&poller->polling, false);
    return NULL;
}

static void start_polling(struct poller *poller, sluice_node *n) {
    pthread_t thread;
    *poller = (struct poller){.polling = true};
    must(sluice_loop_open(n, &poller->loop, NULL) == 0);
    must(pthread_create(&thread, NULL, poll_on, poller) == 0);
    pthread_detach(thread);
}

static const char secret[] = "thirty-two bytes are long enough";

static uint32_t look_up(uint32_t key_id, void *out, void *arg) {
    (void)key_id, (void)arg;
    pthread_mutex_lock(&scene.lock);
    scene.asked_after += scene.closed;
    pthread_mutex_unlock(&scene.lock);
    memcpy(out, secret, sizeof secret - 1);
    return sizeof secret - 1;
}

static void serve(struct nodes *nodes, bool polls, uint32_t workers) {
    sluice_listener listener;
    must(sluice_open(&nodes->server,
                     SLUICE_NODE(.log = on_log, .workers = polls ? SLUICE_NO_WORKERS : workers),
                     NULL) == 0);
    must(sluice_open(&nodes->client, SLUICE_NODE(.name = "client"), NULL) == 0);
    if (polls)
        start_polling(&polled, nodes->server);
    must(sluice_listen(nodes->server, "127.0.0.1:0",
                       SLUICE_LINK(.handler = on_event, .key_lookup = nodes->keyed ? look_up : NULL,
                                   .loop = polls ? polled.loop : NULL),
                       &listener, NULL) == 0);
    snprintf(nodes->address, sizeof nodes->address, "127.0.0.1:%d", sluice_listener_port(listener));
}

static sluice_session dial(struct nodes *nodes, bool *up) {
    const sluice_key key = {.id = 7, .bytes = sizeof secret - 1, .secret = secret};
    sluice_session session;
    must(sluice_dial(nodes->client, nodes->address,
                     SLUICE_LINK(.handler = on_other, .handler_arg = up,
                                 .keys = nodes->keyed ? &key : NULL, .key_count = nodes->keyed),
                     &session, NULL) == 0);
    return session;
}

/* A session is up. */
static sluice_session open_session(struct nodes *nodes, bool polls) {
    bool up = false;
    serve(nodes, polls, 1);
    sluice_session session = dial(nodes, &up);
    await(&up);
    await(&scene.up);
    return session;
}

/* A message is in the server's handler, more of them wait behind it. */
static void say_hello(struct nodes *nodes, bool polls) {
    sluice_session session = open_session(nodes, polls);
    for (unsigned i = 0; i < 20; i++)
        must(sluice_send_copy(session, "hello", 5, NULL) == 0);
    await(&scene.inside);
}

static void meet(struct nodes *nodes, bool polls) {
    begin();
    say_hello(nodes, polls);
}

static bool says(const char *text) {
    pthread_mutex_lock(&scene.lock);
    bool found = strstr(scene.log, text) != NULL;
    pthread_mutex_unlock(&scene.lock);
    return found;
}

struct closer {
    sluice_node *node;
    uint64_t grace_ns, took_ns;
};

static void *close_it(void *arg) {
    struct closer *closer = arg;
    uint64_t start = sluice_now();
    sluice_close(closer->node, closer->grace_ns);
    closer->took_ns = sluice_now() - start;
    scene.slow_left = get(&scene.slow_inside);
    set(&scene.closed, true);
    return NULL;
}

/* And for no other reason than that somebody is in the way. */
static void closes_in_time(sluice_node *n, uint64_t grace_ns) {
    pthread_t thread;
    struct closer closer = {.node = n, .grace_ns = grace_ns};
    stall_begin();
    must(pthread_create(&thread, NULL, close_it, &closer) == 0);
    await(&scene.closed);
    must(pthread_join(thread, NULL) == 0);
    assert_uint_in_range(closer.took_ns, 0, grace_ns + BOUND_NS + stall_end());
    assert_false(says("takes too long"));
}

static void wait_until_gone(void) {
    uint64_t until = sluice_now() + LIMIT_NS;
    while (tasks_named("sluice-close") > 0 || get(&polled.polling) || get(&beside.polling))
        must(sluice_now() < until);
}

BOTH_MODES(a_handler_that_does_not_return_is_given_up) {
    struct nodes nodes = {0};
    sluice_node *first; /* leaves what the first one of a process does */
    must(sluice_open(&first, NULL, NULL) == 0);
    sluice_close(first, 0);
    unsigned fds = usage_entries("/proc/self/fd");
    meet(&nodes, !handlers_of(state));
    closes_in_time(nodes.server, GRACE_NS);
    assert_true(says(handlers_of(state) ? "a handler of worker 0 does not return"
                                        : "sluice_poll() does not return"));
    assert_true(says("1 sessions, their memory and the device stay"));
    must(!get(&scene.out));
    set(&scene.open, true);
    await(
        &scene
             .out); /* it could read its message, and was told that the session is closed, or is being so */
    assert_true(scene.answer == 0 || scene.answer == SLUICE_ECLOSED ||
                scene.answer == SLUICE_EAGAIN);
    wait_until_gone();
    assert_int_equal(scene.called_after, 0);
    assert_int_equal(scene.logged_after, 0);
    sluice_close(nodes.client, 0);
    wait_until_gone();
    assert_int_equal(usage_entries("/proc/self/fd"), fds);
}

/* Later than a session is given up that does not end by itself. */
BOTH_MODES(a_handler_that_returns_late_leaves_nothing_behind) {
    struct nodes nodes = {0};
    unsigned fds = usage_entries("/proc/self/fd");
    meet(&nodes, !handlers_of(state));
    uint64_t late = sluice_now() + GRACE_NS + EXTRA_NS + 1000 * MS;
    closes_in_time(nodes.server, GRACE_NS);
    while (sluice_now() < late)
        usleep(1000);
    set(&scene.open, true);
    await(&scene.out);
    wait_until_gone();
    sluice_close(nodes.client, 0);
    wait_until_gone();
    assert_int_equal(usage_entries("/proc/self/fd"), fds);
}

/* It was not inside when the grace ended: it is called because of that. */
TEST(a_handler_of_the_end_that_does_not_return_is_given_up) {
    struct nodes nodes = {0};
    begin();
    scene.stuck_at = SLUICE_CLOSED;
    open_session(&nodes, false);
    closes_in_time(nodes.server, 0);
    assert_true(get(&scene.inside));
    assert_true(says("a handler of worker 0 does not return"));
    set(&scene.open, true);
    await(&scene.out);
    sluice_close(nodes.client, 0);
    wait_until_gone();
    assert_int_equal(scene.called_after, 0);
}

/* Half of the sessions are the other worker's, whose handlers are called one after the other for over a second. */
TEST(a_handler_that_is_slow_is_waited_for_and_not_named) {
    enum { SESSIONS = 24 };
    struct nodes nodes = {0};
    bool ups[SESSIONS] = {false};
    sluice_session first = {0};
    begin();
    serve(&nodes, false, 2);
    for (unsigned i = 0; i < SESSIONS; i++) {
        sluice_session session = dial(&nodes, &ups[i]);
        await(&ups[i]);
        first = i == 0 ? session : first;
    }
    must(sluice_send_copy(first, "hello", 5, NULL) == 0);
    await(&scene.inside);
    set(&scene.slow, true);
    closes_in_time(nodes.server, GRACE_NS);
    assert_false(scene.slow_left);
    assert_true(says("a handler of worker 0") != says("a handler of worker 1"));
    set(&scene.open, true);
    await(&scene.out);
    sluice_close(nodes.client, 0);
    wait_until_gone();
    assert_int_equal(scene.called_after, 0);
}

/* A second one dials, and its request waits for the worker that is stuck. */
TEST(nobody_is_asked_for_a_key_after_closing) {
    struct nodes nodes = {.keyed = true};
    bool up = false;
    sluice_node_info info = {.size = sizeof info};
    meet(&nodes, false);
    dial(&nodes, &up);
    uint64_t until = sluice_now() + LIMIT_NS;
    while (info.sessions < 2) {
        must(sluice_node_get_info(nodes.server, &info) == 0);
        must(sluice_now() < until);
    }
    closes_in_time(nodes.server, GRACE_NS);
    set(&scene.open, true);
    await(&scene.out);
    wait_until_gone();
    assert_int_equal(scene.asked_after, 0);
    assert_int_equal(scene.called_after, 0);
    sluice_close(nodes.client, 0);
    wait_until_gone();
}

/* As far as the caller can see the node is closed: its handles are stale, and others can be opened. */
TEST(what_was_given_up_is_closed_to_the_application) {
    struct nodes nodes = {0};
    sluice_node *next;
    sluice_error error;
    meet(&nodes, false);
    closes_in_time(nodes.server, GRACE_NS);
    sluice_loop *loop;
    must(sluice_loop_open(nodes.server, &loop, &error) == SLUICE_ECLOSED);
    sluice_close(nodes.server, 0); /* once more does no harm */
    must(sluice_open(&next, SLUICE_NODE(.name = "next"), NULL) == 0);
    sluice_close(next, 0);
    set(&scene.open, true);
    await(&scene.out);
    sluice_close(nodes.client, 0);
    wait_until_gone();
}

/* The loop of the one that is stuck was opened first. */
TEST(a_thread_that_polls_beside_a_stuck_one_is_told) {
    struct nodes nodes = {0};
    meet(&nodes, true);
    start_polling(&beside, nodes.server);
    closes_in_time(nodes.server, GRACE_NS);
    uint64_t until = sluice_now() + LIMIT_NS;
    while (get(&beside.polling))
        must(sluice_now() < until);
    assert_int_equal(beside.end, SLUICE_ECLOSED);
    assert_false(get(&scene.out));
    set(&scene.open, true);
    await(&scene.out);
    sluice_close(nodes.client, 0);
    wait_until_gone();
    assert_int_equal(polled.end, SLUICE_ECLOSED);
}

/* The line is one of the CM thread's: no listener there. */
static void give_up_the_log(bool locks) {
    sluice_node *n;
    sluice_session session;
    begin();
    must(sluice_open(&n, SLUICE_NODE(.log = on_log, .workers = 1), NULL) == 0);
    scene.log_locks = locks;
    set(&scene.log_waits, true);
    must(sluice_dial(n, "127.0.0.1:1", SLUICE_LINK(.handler = on_event), &session, NULL) == 0);
    await(&scene.inside);
    closes_in_time(n, GRACE_NS);
    assert_false(get(&scene.out));
    set(&scene.open, true);
    await(&scene.out);
    wait_until_gone();
    assert_int_equal(scene.logged_after, 0);
    assert_int_equal(scene.called_after, 0);
}

TEST(a_log_that_does_not_return_is_given_up) {
    give_up_the_log(false);
}

TEST(a_log_that_has_a_mutex_while_it_does_not_return_is_given_up) {
    give_up_the_log(true);
}

static void give_up_the_mutex(bool *what) {
    struct nodes nodes = {0};
    begin();
    *what = scene.log_locks = true;
    say_hello(&nodes, false);
    closes_in_time(nodes.server, GRACE_NS);
    assert_true(scene.holds || says("a handler of worker 0 does not return"));
    assert_false(get(&scene.out));
    set(&scene.open, true);
    await(&scene.out);
    sluice_close(nodes.client, 0);
    wait_until_gone();
    assert_int_equal(scene.logged_after, 0);
    assert_int_equal(scene.called_after, 0);
}

TEST(a_handler_that_asks_with_the_log_s_mutex_is_named) {
    give_up_the_mutex(&scene.asks);
}

TEST(a_handler_that_keeps_the_log_s_mutex_is_given_up) {
    give_up_the_mutex(&scene.holds);
}
