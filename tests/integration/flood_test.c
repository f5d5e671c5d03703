/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * flood_test.c - a peer keeps thousands of handshakes half open and begins new ones as fast as it
 * can: an honest peer still gets in, time and again, before many more of the others had their turn than
 * the line is long, what the listener holds stays bounded, and all of it is gone soon after the flood stops.
 *
 * How long a turn takes depends on the machine; how many come before the honest peer's does not.
 */
#include "support/side.h"
#include "support/peer.h"

#include "common/sanitize.h"
#include "support/stall.h"
#include "support/log.h"
#include "support/usage.h"

enum { BYTES = 300, SESSIONS = 2048, HANDSHAKES = 128 };
/* It may have to try for a place in the line, against all who are not in it: which of them is next when
 * one gets free is chance. One in a thousand is its; twenty thousand without it never happen. */
#define OTHERS_MAX (10 * SESSIONS)

#define MEMORY (64u << 20) /* registered, at most */
#define KEPT (32u << 10)   /* and of other memory for each session, on the device and above it */

#if defined(SANITIZE_ADDRESS) || defined(SANITIZE_THREAD)
/* Handshakes take a hundred times longer, and so does the line in front of them. */
enum { FLOOD = 600, ROUNDS = 5 };
#define LINE_NS (30000 * MS)
#else
enum { FLOOD = 3000, ROUNDS = 11 };
#define LINE_NS (10000 * MS)
#endif
#define GONE_NS                                                                                    \
    (5000 * MS + LINE_NS) /* 5 s a handshake has, and what is left in the line before it */

static void echo(const sluice_event *event, void *arg) {
    (void)arg;
    if (event->type == SLUICE_MESSAGE && sluice_send(event->session, event->msg, NULL) != 0)
        sluice_hangup(event->session, 0);
}

/* One try: a session that carried a message there and back. */
static bool gets_in(struct side *side, int port, uint64_t number) {
    sluice_session session = side_dial(
        side, port,
        &(sluice_link_options){.flags = SLUICE_ONCE, .credits = 4, .timeout_ns = LIMIT_NS});
    struct note note;
    bool back = false;
    for (;;) {
        must(side_next(side, &note, LIMIT_NS));
        sluice_event_type type = (sluice_event_type)note.event.type;
        must(note.event.session.id == session.id);
        if (type == SLUICE_UP)
            (void)side_send(side, session, BYTES, number, 0); /* else CLOSED is on its way */
        if (type == SLUICE_MESSAGE) {
            must(it_matches(note.msg, BYTES, number));
            back = true;
        }
        note_free(&note);
        if (back || type == SLUICE_CLOSED)
            break;
    }
    if (back) {
        sluice_hangup(session, 0);
        side_expect(side, SLUICE_CLOSED);
    }
    return back;
}

static int compare(const void *a, const void *b) {
    const uint64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

/* How many of the flood had their turn so far. */
static uint64_t answered(struct peer *flood) {
    if (!flood)
        return 0;
    peer_tell(flood, "count");
    peer_expect(flood, "counted ");
    return (uint64_t)peer_number(flood, "answered");
}

/* How long it takes and how many come before it each time, with as many tries as it needs. */
static void honest_rounds(struct side *side, int port, struct peer *flood, const char *when) {
    uint64_t took[ROUNDS], most = 0;
    unsigned tries = 0;
    for (unsigned i = 0; i < ROUNDS; i++) {
        uint64_t before = answered(flood), begun = sluice_now();
        do {
            tries++;
            must(sluice_now() - begun < LIMIT_NS);
        } while (!gets_in(side, port, i));
        took[i] = sluice_now() - begun;
        uint64_t others = answered(flood) - before;
        assert_true(others <= OTHERS_MAX);
        most = others > most ? others : most;
    }
    qsort(took, ROUNDS, sizeof took[0], compare);
    print_message(
        "%s: in after %.1f ms (median), %.1f ms (max), %u tries for %d, at most %llu before it\n",
        when, (double)took[ROUNDS / 2] / MS, (double)took[ROUNDS - 1] / MS, tries, ROUNDS,
        (unsigned long long)most);
}

TEST(an_honest_peer_gets_in_during_a_flood) {
    sluice_node *node;
    sluice_listener listener = {0};
    sluice_error e = {0};
    struct side honest;
    struct peer flood;
    char port_text[16], count[16];
    if (sluice_open(&node,
                    SLUICE_NODE(.device = it_device(), .eager_bytes = 1024, .log = log_nothing,
                                .sessions_max = SESSIONS, .handshakes_max = HANDSHAKES,
                                .memory_bytes_max = MEMORY),
                    &e) != 0 ||
        sluice_listen(node, it_address(0), SLUICE_LINK(.handler = echo, .credits = 4), &listener,
                      &e) != 0)
        fail_msg("%s", e.text);
    int port = sluice_listener_port(listener);
    side_open(&honest, false, SLUICE_NODE(.eager_bytes = 1024, .memory_bytes_max = 16 << 20));
    honest_rounds(&honest, port, NULL, "alone");
    unsigned fds = usage_entries("/proc/self/fd");
    size_t resident = usage_resident();

    snprintf(port_text, sizeof port_text, "%d", port);
    snprintf(count, sizeof count, "%d", FLOOD);
    peer_run(&flood, "flood_peer", port_text, count);
    peer_expect(&flood, "flooding");
    honest_rounds(&honest, port, &flood, "in the flood");
    assert_true(side_node_info(node).memory_bytes <= MEMORY);
    assert_true(side_node_info(node).sessions <= SESSIONS);
    /* By the process and by what is under way to it, not by the request. Those of what was just dropped are closed soon. */
    uint64_t until = sluice_now() + LIMIT_NS;
    while (usage_entries("/proc/self/fd") >= fds + HANDSHAKES + 50 && sluice_now() < until)
        poll(NULL, 0, 1);
    assert_true(usage_entries("/proc/self/fd") < fds + HANDSHAKES + 50);
    print_message("%zu KiB more resident\n", (usage_resident() - resident) / 1024);
#if !defined(SANITIZE_ADDRESS) && !defined(SANITIZE_THREAD)
    assert_true(usage_resident() < resident + MEMORY + SESSIONS * KEPT);
#endif

    until = sluice_now() + LIMIT_NS; /* half open: soon after the end of the flood none may be */
    while (side_node_info(node).sessions == 0)
        must(sluice_now() < until);
    peer_tell(&flood, "stop");
    peer_expect(&flood, "stopped ");
    assert_true(peer_number(&flood, "requests") > FLOOD);
    print_message("%lld requests\n", peer_number(&flood, "requests"));
    stall_begin();
    uint64_t stopped = sluice_now();
    while (side_node_info(node).sessions > 0 && sluice_now() - stopped < LIMIT_NS)
        poll(NULL, 0, 1);
    uint64_t took = sluice_now() - stopped, stalled = stall_end();
    print_message("nothing half open %.1f s later, the machine stood still for %.1f s of it\n",
                  (double)took / 1e9, (double)stalled / 1e9);
    assert_int_equal(side_node_info(node).sessions, 0);
    assert_true(took < GONE_NS + stalled);
    assert_int_equal(peer_join(&flood), 0);
    honest_rounds(&honest, port, NULL, "afterwards");
    side_close(&honest, 0);
    sluice_close(node, 0);
}
