/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * storm_test.c - a thousand peers dial one listener at the same moment: all are let in at the first
 * dial, each gets its message echoed, and nothing is left when they are gone. What the library tries
 * again by itself does not count; a dial or session that ended too early does.
 */
#include "support/side.h"
#include "support/peer.h"
#include "support/usage.h"

#include "common/sanitize.h"

enum { PEERS = 2 };
#ifdef SANITIZE_THREAD /* all of it takes twenty times as long, but for the patience of who dials */
#define SOFT_EACH 200
#else
#define SOFT_EACH 500
#endif
#define EACH (it_soft() ? SOFT_EACH : 50) /* elsewhere a queue pair costs the kernel much more */
#define ALL (PEERS * EACH)

static struct { _Atomic unsigned ups, closed, messages; } seen;

static void echo(const sluice_event *event, void *arg) {
    (void)arg;
    switch ((sluice_event_type)event->type) {
    case SLUICE_UP:
        seen.ups++;
        break;
    case SLUICE_MESSAGE:
        seen.messages++;
        if (sluice_send(event->session, event->msg, NULL) != 0)
            sluice_hangup(event->session, 0); /* its dialer will miss the answer */
        break;
    case SLUICE_CLOSED:
        seen.closed++;
        break;
    default:
        break;
    }
}

/* All are up at the same time; then all end. */
static void storm(sluice_node *node, int port) {
    struct peer peers[PEERS];
    char number[16], count[16];
    /* By atomic stores: a handler on a thread of the library is the other side. */
    seen.ups = seen.closed = seen.messages = 0;
    snprintf(number, sizeof number, "%d", port);
    snprintf(count, sizeof count, "%d", EACH);
    for (unsigned i = 0; i < PEERS; i++)
        peer_run(&peers[i], "storm_peer", number, count);
    for (unsigned i = 0; i < PEERS; i++)
        peer_expect(&peers[i], "ready");
    uint64_t begun = sluice_now();
    long long again = 0;
    for (unsigned i = 0; i < PEERS; i++)
        peer_tell(&peers[i], "go");
    for (unsigned i = 0; i < PEERS; i++) {
        peer_expect(&peers[i], "done ");
        must_data_equal(peer_number(&peers[i], "messages"), EACH);
        long long ended = peer_number(&peers[i], "refused") + peer_number(&peers[i], "lost");
        if (ended > 0) /* with the reason */
            print_message("%s\n", peers[i].line);
        again += ended;
    }
    print_message("%d sessions in %.0f ms, %lld dialed again\n", ALL,
                  (double)(sluice_now() - begun) / MS, again);
    assert_int_equal(again, 0);
    assert_int_equal(side_node_info(node).sessions, ALL);
    for (unsigned i = 0; i < PEERS; i++)
        peer_tell(&peers[i], "end");
    for (unsigned i = 0; i < PEERS; i++) {
        peer_expect(&peers[i], "gone");
        assert_int_equal(peer_join(&peers[i]), 0);
    }
    uint64_t until = sluice_now() + LIMIT_NS;
    while (side_node_info(node).sessions > 0 && sluice_now() < until)
        poll(NULL, 0, 1);
    assert_int_equal(side_node_info(node).sessions, 0);
    must_data_equal(seen.messages, ALL);
    assert_int_equal(seen.ups, ALL);
    assert_int_equal(seen.closed, ALL);
}

/* What peers held is put away some time after their end: of the first storm maybe after the count. */
static void descriptors_are_back_at(unsigned before) {
    uint64_t until = sluice_now() + 10000 * MS;
    while (usage_entries("/proc/self/fd") > before && sluice_now() < until)
        poll(NULL, 0, 1);
    assert_uint_in_range(usage_entries("/proc/self/fd"), 0, before);
}

static void storms_of(const sluice_node_options *options) {
    sluice_node *node;
    sluice_listener listener;
    sluice_error e = {0};
    if (sluice_open(&node, options, &e) != 0)
        fail_msg("%s", e.text);
    if (sluice_listen(node, it_address(0), SLUICE_LINK(.handler = echo, .credits = 4), &listener,
                      &e) != 0)
        fail_msg("%s", e.text);
    storm(node, sluice_listener_port(listener));
    /* What the first took and kept for later is enough for the second. */
    uint64_t registered = side_node_info(node).memory_bytes;
    unsigned fds = usage_entries("/proc/self/fd");
    storm(node, sluice_listener_port(listener));
    descriptors_are_back_at(fds);
    assert_true(side_node_info(node).memory_bytes <= registered);
    sluice_close(node, 0);
}

TEST(a_thousand_dials_at_once_all_come_up) {
    storms_of(SLUICE_NODE(.device = it_device(), .eager_bytes = 1024, .memory_bytes_max = 64 << 20,
                          .requests_max = ALL));
}

/* The dialers are told that it is busy, and try again by themselves: no application hears of it. */
TEST(a_small_listener_is_tried_again_until_it_has_room) {
    storms_of(SLUICE_NODE(.device = it_device(), .eager_bytes = 1024, .memory_bytes_max = 64 << 20,
                          .handshakes_max = 8, .requests_max = 64));
}
