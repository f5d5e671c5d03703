/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Spreading: the sessions of a link with several loops go to the one that has fewest, and stay on it. */
#include "support/pair.h"

#include "node/worker_select.h"

enum { LOOPS = 3, MAX = 16 };

struct seen { /* what one loop delivered */
    int up, closed, messages;
    sluice_session sessions[MAX];
};

struct spread {
    sluice_node *a, *b; /* a listens with its three loops, b dials */
    sluice_loop *loop[LOOPS], *dialer;
    sluice_listener listener;
    char address[64];
    struct seen seen[LOOPS], dialed;
    int handled; /* by the handler, if there is one */
};

static sluice_node *open_node(void) {
    sluice_node *n;
    sluice_error e = {0};
    sluice_node_options o = {.size = sizeof o, .device = "soft", .workers = SLUICE_NO_WORKERS};
    if (node_open_env(&n, &o, &pair_env, true, &e) != 0)
        fail_msg("%s", e.text);
    return n;
}

static sluice_loop *open_loop(sluice_node *n) {
    sluice_loop *l;
    sluice_error e = {0};
    if (sluice_loop_open(n, &l, &e) != 0)
        fail_msg("%s", e.text);
    return l;
}

static sluice_listener listen_on(struct spread *t, sluice_loop *const *loops, uint32_t count,
                                 sluice_handler handler, uint32_t flags) {
    sluice_listener listener;
    sluice_error e = {0};
    const sluice_link_options *link =
        SLUICE_LINK(.handler = handler, .handler_arg = t, .loops = loops, .loop_count = count,
                    .flags = flags, .credits = 4);
    if (sluice_listen(t->a, "127.0.0.1:0", link, &listener, &e) != 0)
        fail_msg("%s", e.text);
    snprintf(t->address, sizeof t->address, "127.0.0.1:%d", sluice_listener_port(listener));
    return listener;
}

static void spread_open(struct spread *t, sluice_handler handler) {
    memset(t, 0, sizeof *t);
    pair_clock = 0;
    t->a = open_node();
    t->b = open_node();
    for (int i = 0; i < LOOPS; i++)
        t->loop[i] = open_loop(t->a);
    t->dialer = open_loop(t->b);
    sluice_loop *loops[LOOPS];
    memcpy(loops, t->loop, sizeof loops);
    t->listener = listen_on(t, loops, LOOPS, handler, 0);
    memset(loops, 0xff, sizeof loops); /* the array was copied */
}

static void spread_close(struct spread *t) {
    sluice_close(t->b, 0);
    sluice_close(t->a, 0);
}

static int closed(void **state) {
    spread_close(*state);
    return 0;
}

static void note(struct seen *seen, const sluice_event *event) {
    switch (event->type) {
    case SLUICE_UP:
        assert_true(seen->up < MAX);
        seen->sessions[seen->up++] = event->session;
        break;
    case SLUICE_MESSAGE:
        seen->messages++;
        break;
    case SLUICE_CLOSED:
        seen->closed++;
        break;
    default:
        fail_msg("%s came unexpectedly", sluice_event_name((int)event->type));
    }
}

static void poll_into(sluice_loop *l, struct seen *seen) {
    sluice_event events[4];
    int n = sluice_poll(l, events, 4, 0);
    assert_true(n >= 0);
    for (int i = 0; i < n; i++)
        note(seen, &events[i]);
}

static void turn(struct spread *t) {
    cm_progress(t->a->cm, 0);
    cm_progress(t->b->cm, 0);
    for (int i = 0; i < LOOPS; i++)
        if (t->loop[i])
            poll_into(t->loop[i], &t->seen[i]);
    poll_into(t->dialer, &t->dialed);
    sched_yield();
}

#define UNTIL(t, condition)                                                                        \
    do {                                                                                           \
        uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;                                    \
        while (!(condition) && env_now(&env_default) < limit)                                      \
            turn(t);                                                                               \
        assert_true(condition);                                                                    \
    } while (0)

static int sum_up(const struct spread *t) {
    return t->seen[0].up + t->seen[1].up + t->seen[2].up;
}

static void dial(struct spread *t) {
    sluice_session s;
    sluice_error e = {0};
    if (sluice_dial(t->b, t->address, SLUICE_LINK(.loop = t->dialer, .credits = 4), &s, &e) != 0)
        fail_msg("%s", e.text);
}

static void connect_some(struct spread *t, int count) {
    int up = t->dialed.up, passive = sum_up(t) + t->handled;
    for (int i = 0; i < count; i++)
        dial(t);
    UNTIL(t, t->dialed.up == up + count && sum_up(t) + t->handled == passive + count);
}

static uint32_t assigned(sluice_loop *l) {
    return atomic_load(&l->assigned) - atomic_load(&l->listed);
}

static struct sluice_loop *loop_of(sluice_session s) {
    return atomic_load(&session_table_find(s.id)->loop);
}

/* ---- listening ------------------------------------------------------------------------------- */

#define WITH(set_up, name) TEST_WITH(set_up, closed, name)

static int opened(void **state) {
    static struct spread of_test;
    *state = &of_test;
    spread_open(*state, NULL);
    return 0;
}

WITH(opened, twelve_sessions_land_four_on_each_loop) {
    struct spread *t = *state;
    connect_some(t, 12);
    for (int i = 0; i < LOOPS; i++) {
        assert_int_equal(t->seen[i].up, 4);
        for (int k = 0; k < 4; k++) /* each loop only sees its own */
            assert_ptr_equal(loop_of(t->seen[i].sessions[k]), t->loop[i]);
    }
    for (int k = 0; k < 12; k++)
        assert_int_equal(sluice_send_copy(t->dialed.sessions[k], &k, sizeof k, NULL), 0);
    UNTIL(t, t->seen[0].messages + t->seen[1].messages + t->seen[2].messages >= 12);
    for (int i = 0; i < LOOPS; i++)
        must_data_equal(t->seen[i].messages, 4);
}

static void on_event(const sluice_event *event, void *arg) {
    struct spread *t = arg;
    if (event->type == SLUICE_UP)
        t->handled++;
}

TEST(with_a_handler_it_runs_on_the_loops) {
    struct spread t;
    spread_open(&t, on_event);
    connect_some(&t, 6);
    assert_int_equal(t.handled, 6);
    assert_int_equal(sum_up(&t), 0);
    for (int i = 0; i < LOOPS; i++)
        assert_int_equal(assigned(t.loop[i]), 2);
    spread_close(&t);
}

WITH(opened, the_loop_that_lost_its_sessions_gets_the_next) {
    struct spread *t = *state;
    connect_some(t, 9);
    for (int k = 0; k < 3; k++)
        sluice_hangup(t->seen[1].sessions[k], 0);
    UNTIL(t, t->seen[1].closed == 3 && t->dialed.closed == 3 && assigned(t->loop[1]) == 0);
    connect_some(t, 3);
    assert_int_equal(t->seen[0].up, 3);
    assert_int_equal(t->seen[1].up, 6);
    assert_int_equal(t->seen[2].up, 3);
}

/* Sessions are counted, not how many listeners name a loop. */
WITH(opened, a_loop_of_many_listeners_gets_no_fewer_sessions) {
    struct spread *t = *state;
    char first[64];
    memcpy(first, t->address, sizeof first);
    for (int i = 0; i < 5; i++)
        listen_on(t, &t->loop[0], 1, NULL, 0);
    memcpy(t->address, first, sizeof first);
    connect_some(t, 6);
    for (int i = 0; i < LOOPS; i++)
        assert_int_equal(t->seen[i].up, 2);
}

WITH(opened, a_loop_stays_open_while_a_listener_lists_it) {
    struct spread *t = *state;
    for (int i = 0; i < LOOPS; i++)
        assert_int_equal(sluice_loop_close(t->loop[i]), SLUICE_EINVAL);
    sluice_unlisten(t->listener);
    UNTIL(t, atomic_load(&t->loop[2]->assigned) == 0);
    for (int i = 0; i < LOOPS; i++) {
        assert_int_equal(sluice_loop_close(t->loop[i]), 0);
        t->loop[i] = NULL;
    }
}

WITH(opened, a_listener_that_fails_lets_its_loops_go) {
    struct spread *t = *state;
    sluice_listener other;
    sluice_error e = {0};
    uint32_t before = atomic_load(&t->loop[1]->assigned);
    const sluice_link_options *link = SLUICE_LINK(.loops = t->loop, .loop_count = LOOPS);
    assert_int_equal(sluice_listen(t->a, t->address, link, &other, &e), SLUICE_EADDRESS);
    assert_int_equal(atomic_load(&t->loop[1]->assigned), before);
    assert_int_equal(atomic_load(&t->loop[1]->listed), 1);
}

/* A session keeps nothing of its listener's array, whose place another listener takes. */
WITH(opened, sessions_outlive_the_listener_on_their_loops) {
    struct spread *t = *state;
    connect_some(t, 6);
    sluice_unlisten(t->listener);
    UNTIL(t, atomic_load(&t->loop[2]->listed) == 0);
    for (int i = 0; i < LOOPS; i++) {
        const struct session *s = session_table_find(t->seen[i].sessions[0].id);
        assert_null(s->link_config.loops);
        assert_int_equal(s->link_config.loop_count, 0);
        assert_int_equal(sluice_loop_close(t->loop[i]), SLUICE_EINVAL); /* it has sessions */
    }
    listen_on(t, &t->loop[2], 1, NULL, 0);
    for (int k = 0; k < 6; k++)
        assert_int_equal(sluice_send_copy(t->dialed.sessions[k], &k, sizeof k, NULL), 0);
    UNTIL(t, t->seen[0].messages + t->seen[1].messages + t->seen[2].messages >= 6);
    for (int i = 0; i < LOOPS; i++)
        must_data_equal(t->seen[i].messages, 2);
}

/* ---- dialing --------------------------------------------------------------------------------- */

WITH(opened, a_dial_with_loops_takes_one_at_once) {
    struct spread *t = *state;
    sluice_session s[6];
    sluice_error e = {0};
    sluice_loop *own[2] = {open_loop(t->b), open_loop(t->b)};
    for (int i = 0; i < 6; i++) {
        sluice_loop *loops[2] = {own[0], own[1]};
        const sluice_link_options *link = SLUICE_LINK(.loops = loops, .loop_count = 2);
        assert_int_equal(sluice_dial(t->b, t->address, link, &s[i], &e), 0);
        assert_ptr_equal(loop_of(s[i]), own[i % 2]);
        assert_null(session_table_find(s[i].id)->link_config.loops);
    }
    struct seen seen[2] = {{0}};
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    while (seen[0].up + seen[1].up < 6 && env_now(&env_default) < limit) {
        turn(t);
        poll_into(own[0], &seen[0]);
        poll_into(own[1], &seen[1]);
    }
    assert_int_equal(seen[0].up, 3);
    assert_int_equal(seen[1].up, 3);
}

/*
 * sluice_close() closes loops whatever listeners name, and their structs serve the next loop: a listener
 * that lets go of a loop which is not its node's any more must not touch it.
 */
WITH(opened, a_loop_that_was_closed_is_not_let_go) {
    struct spread *t = *state;
    sluice_loop *loops[2] = {t->dialer, t->loop[0]}; /* the first has become another node's */
    const struct link_config link = {.loops = loops, .loop_count = 2};
    worker_select_hold(&link);
    assert_int_equal(atomic_load(&t->loop[0]->listed), 2);
    worker_select_release(t->a, &link);
    assert_int_equal(atomic_load(&t->dialer->listed), 1);
    assert_int_equal(atomic_load(&t->dialer->assigned), 1);
    assert_int_equal(atomic_load(&t->loop[0]->listed), 1);
    assert_int_equal(atomic_load(&t->loop[0]->assigned), 1);
}
