/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A connection request that the CM thread is just turning into a session while sluice_close() has
 * already found that no session is left: it is refused, and nothing of it is left behind.
 */
#include "support/pair.h"
#include "support/wait.h"

static struct { _Atomic bool armed, entered, go_on; } hold;

/* The request has passed the check that the node is open: its nonce is being made. */
static bool random_that_holds(void *arg, void *out, size_t bytes) {
    bool good = env_default.random_bytes(arg, out, bytes);
    if (!atomic_exchange(&hold.armed, false))
        return good;
    atomic_store(&hold.entered, true);
    while (!atomic_load(&hold.go_on))
        sched_yield();
    return good;
}

static void *closer(void *arg) {
    sluice_close(arg, 0);
    return NULL;
}

TEST(a_request_does_not_become_a_session_of_a_closed_node) {
    struct sluice_env env = env_default;
    env.random_bytes = random_that_holds;
    sluice_node *n, *dialer;
    sluice_loop *loop, *other;
    sluice_listener listener;
    sluice_session session;
    sluice_error e = {0};
    char address[32];
    pthread_t thread;
    sluice_node_options o = {.size = sizeof o, .device = "soft", .workers = SLUICE_NO_WORKERS};
    assert_int_equal(node_open_env(&n, &o, &env, false, &e), 0);
    assert_int_equal(sluice_open(&dialer, &o, &e), 0);
    assert_int_equal(sluice_loop_open(n, &loop, &e), 0);
    assert_int_equal(sluice_loop_open(dialer, &other, &e), 0);
    sluice_link_options link = {.size = sizeof link, .loop = loop};
    assert_int_equal(sluice_listen(n, "127.0.0.1:0", &link, &listener, &e), 0);
    snprintf(address, sizeof address, "127.0.0.1:%d", sluice_listener_port(listener));

    atomic_store(&hold.armed, true);
    link.loop = other;
    link.flags = SLUICE_ONCE;
    assert_int_equal(sluice_dial(dialer, address, &link, &session, &e), 0);
    sluice_event event;
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    while (!atomic_load(&hold.entered)) {
        assert_true(env_now(&env_default) < limit);
        assert_int_equal(sluice_poll(other, &event, 1, 1000000), 0);
    }
    uint32_t index = n->index;
    assert_int_equal(pthread_create(&thread, NULL, closer, n), 0);
    wait_flag(&n->cm->stop); /* no session was left, no loop is: it waits for the CM thread only */
    atomic_store(&hold.go_on, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(session_table_used_count(index), 0);

    assert_int_equal(sluice_poll(other, &event, 1, PAIR_LIMIT_NS), 1);
    assert_int_equal(event.type, SLUICE_CLOSED);
    assert_int_equal(event.reason, SLUICE_REASON_NODE_CLOSED);
    assert_int_equal(event.status, SLUICE_EREJECTED);
    sluice_close(dialer, 0);
}
