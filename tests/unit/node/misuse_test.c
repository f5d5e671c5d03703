/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * misuse_test.c - what an application does wrong with its messages, through the public calls: with
 * SLUICE_POOL_DEBUG=1 it is told, without it nothing comes of it, and the address sanitizer stops who
 * touches a message that is not his.
 */
#include "support/child.h"
#include "support/pair.h"
#include "support/pool_stats.h"
#include "support/reports.h"
#include "support/skip.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/sanitize.h"

static sluice_node *open_node(const char *debug) {
    sluice_node *node = NULL;
    sluice_error e = {0};
    setenv("SLUICE_POOL_DEBUG", debug, 1);
    const sluice_node_options *o = SLUICE_NODE(.device = "soft", .workers = SLUICE_NO_WORKERS);
    assert_int_equal(sluice_open(&node, o, &e), 0);
    unsetenv("SLUICE_POOL_DEBUG");
    reports_of(node->pool);
    reports_of(node->rx_pool);
    reports[0] = 0;
    return node;
}

/* ---- the address sanitizer ------------------------------------------------------------------------- */

enum touch { TOUCH_FREED, TOUCH_BEHIND };

/* With a loop the message goes to its cache, by another way. */
static void touch(sluice_node *node, size_t bytes, bool looped, enum touch what) {
    sluice_msg *msg;
    sluice_loop *loop;
    if (looped && (sluice_loop_open(node, &loop, NULL) != 0 || sluice_poll(loop, NULL, 0, 0) != 0))
        _exit(99);
    if (sluice_alloc(node, bytes, &msg) != 0)
        _exit(99);
    volatile uint8_t *data = sluice_data(msg);
    data[bytes - 1] = 1; /* may be done */
    if (what == TOUCH_FREED)
        sluice_free(msg);
    data[what == TOUCH_FREED ? bytes - 1 : bytes] = 2;
}

#ifdef SANITIZE_ADDRESS
/* In a child, which must not come to its end. */
static void expect_stopped(const char *debug, size_t bytes, bool looped, enum touch what) {
    int status;
    pid_t child = child_fork();
    assert_true(child >= 0);
    if (child == 0) {
        int quiet = open("/dev/null", O_WRONLY);
        sluice_node *node = open_node(debug);
        dup2(quiet, STDERR_FILENO); /* its report is no news */
        touch(node, bytes, looped, what);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(!WIFEXITED(status) || (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != 99));
}
#endif

/* First: a process that opened a node has none in its children. */
TEST(the_address_sanitizer_stops_who_touches_a_freed_message) {
#ifndef SANITIZE_ADDRESS
    print_message("SKIPPED: THIS BUILD HAS NO ADDRESS SANITIZER\n");
    (void)touch;
    skip();
#else
    static const size_t sizes[] = {1000, 1 << 20, 3 << 20};
    for (int i = 0; i < 12; i++)
        expect_stopped(i & 1 ? "1" : "0", sizes[i / 4], i & 2, TOUCH_FREED);
#endif
}

/* Where a buffer is larger than what was asked for. With SLUICE_POOL_DEBUG a zone is looked at instead. */
TEST(the_address_sanitizer_stops_who_writes_behind_a_message) {
#ifndef SANITIZE_ADDRESS
    skip_with("THIS BUILD HAS NO ADDRESS SANITIZER");
#else
    static const size_t sizes[] = {3, 1000, 70000, 3 << 20 | 5};
    for (int i = 0; i < 8; i++)
        expect_stopped("0", sizes[i / 2], i & 1, TOUCH_BEHIND);
#endif
}

/* ---- without it --------------------------------------------------------------------------------- */

/* With a loop the message goes to its cache, without one to the shared lists. */
TEST(freeing_twice_is_told_and_harmless) {
    static const size_t sizes[] = {1000, 3 << 20};
    for (int i = 0; i < 8; i++) {
        bool debug = i & 1, looped = i & 2;
        size_t bytes = sizes[i >> 2];
        sluice_node *node = open_node(debug ? "1" : "0");
        sluice_loop *loop = NULL;
        sluice_msg *msg, *other;
        if (looped) {
            assert_int_equal(sluice_loop_open(node, &loop, NULL), 0);
            assert_int_equal(sluice_poll(loop, NULL, 0, 0), 0);
        }
        assert_int_equal(sluice_alloc(node, bytes, &msg), 0);
        sluice_free(msg);
        assert_string_equal(reports, "");
        sluice_free(msg);
        sluice_free(msg);
        assert_int_equal(reports_count("is returned twice"), debug ? 2 : 0);
        assert_int_equal(reports_count("first by: "), debug ? 2 : 0);
        /* It is there once. */
        assert_int_equal(sluice_alloc(node, bytes, &msg), 0);
        assert_int_equal(sluice_alloc(node, bytes, &other), 0);
        assert_ptr_not_equal(msg, other);
        sluice_free(msg);
        sluice_free(other);
        assert_int_equal(pool_in_use(node->pool), 0);
        reports[0] = 0;
        sluice_close(node, 0);
        assert_string_equal(reports, "");
    }
}

/* Freed though it was sent, or only lent: not the caller's, and nothing is told of what may be done. */
TEST(a_message_that_is_lent_may_be_freed) {
    struct pair p;
    sluice_msg *msg;
    setenv("SLUICE_POOL_DEBUG", "1", 1);
    pair_open(&p, PAIR_NODE(), PAIR_LINK());
    unsetenv("SLUICE_POOL_DEBUG");
    struct pool *const pools[] = {p.a.node->pool, p.a.node->rx_pool, p.b.node->pool,
                                  p.b.node->rx_pool};
    for (int i = 0; i < 4; i++)
        reports_of(pools[i]);
    reports[0] = 0;
    pair_connect(&p, PAIR_LINK());
    assert_int_equal(sluice_alloc(p.b.node, 3000, &msg), 0);
    pair_fill_bytes(sluice_data(msg), 3000, 1);
    assert_int_equal(sluice_send(p.b.session, msg, SLUICE_SEND(.tag = 1)), 0);
    sluice_free(msg); /* it is on its way */
    sluice_event event = pair_expect(&p, &p.a, SLUICE_MESSAGE);
    assert_true(pair_check(event.msg, 3000, 1));
    sluice_free(event.msg);
    (void)pair_expect(&p, &p.b, SLUICE_SENT);
    assert_string_equal(reports, "");
    sluice_free(msg); /* it is the library's again */
    assert_int_equal(reports_count("is returned twice"), 1);
    reports[0] = 0;
    pair_close(&p);
    assert_string_equal(reports, "");
}
