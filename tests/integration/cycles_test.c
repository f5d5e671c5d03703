/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cycles_test.c - a thousand sessions one after the other, and nodes opened and closed: descriptors,
 * threads, registered memory and resident memory are back where they were.
 */
#include "support/side.h"
#include "support/peer.h"

#include "common/sanitize.h"
#include "support/tasks.h"
#include "support/usage.h"

/* The pool grows ahead of a load, once: after that a thousand sessions change nothing. */
enum { CYCLES = 1000, WARM = 50, POOL_WARM = 600 };

/* Where everything is emulated, those that make the pool grow are of the thousand. */
static unsigned many(void) {
    return it_soft() ? CYCLES : CYCLES - POOL_WARM;
}

/* Where the thousand is not the point; fewer where everything is emulated. */
static unsigned few(void) {
    return it_soft() ? CYCLES / 4 : CYCLES / 10;
}

struct level {
    unsigned fds, threads;
    uint64_t registered, sessions;
    size_t resident;
};

static struct level level_of(struct side *side) {
    sluice_node_info info = {.size = sizeof info};
    must(sluice_node_get_info(side->node, &info) == 0);
    return (struct level){.fds = usage_entries("/proc/self/fd"),
                          .threads = tasks_alive(),
                          .registered = info.memory_bytes,
                          .sessions = info.sessions,
                          .resident = usage_resident()};
}

/* The level without a session. What is put away after the last event may take a turn or two more. */
static struct level level_without(struct side *side) {
    uint64_t until = sluice_now() + LIMIT_NS;
    struct level now;
    struct note note;
    do {
        must(sluice_now() < until);
        must(!side_next(side, &note, MS));
        now = level_of(side);
    } while (now.sessions);
    return now;
}

/* No more than before: a descriptor or a thread of the last session may have been there yet when that was counted. */
static void settles_at(struct side *side, const struct level *before) {
    uint64_t until = sluice_now() + LIMIT_NS;
    struct level now;
    do
        now = level_without(side);
    while ((now.fds > before->fds || now.threads > before->threads) && sluice_now() < until);
    assert_uint_in_range(now.fds, 1, before->fds);
    assert_uint_in_range(now.threads, 1, before->threads);
    assert_int_equal(now.registered, before->registered);
#if !defined(SANITIZE_ADDRESS) && !defined(SANITIZE_THREAD) /* those keep freed memory */
    if (now.resident > before->resident + (2u << 20))
        print_error("%zu bytes resident, %zu before\n", now.resident, before->resident);
    assert_true(now.resident <= before->resident + (2u << 20));
#endif
}

static void one_session(struct side *side, int port, unsigned i) {
    sluice_session session = side_dial(side, port, NULL);
    side_expect(side, SLUICE_UP);
    if (i % 3) {
        size_t bytes = i % 3 == 1 ? 100 : 40000;
        must(side_send(side, session, bytes, i, 0) == 0);
        struct note note = side_expect(side, SLUICE_MESSAGE);
        must(it_matches(note.msg, bytes, i));
        note_free(&note);
    }
    sluice_hangup(session, 0);
    side_expect_closed(side, SLUICE_REASON_LOCAL_CLOSE);
}

BOTH_MODES(a_thousand_sessions_leave_nothing_behind) {
    struct peer peer;
    struct side side;
    struct level before = {0};
    char path[64];
    unsigned peer_fds = 0;
    peer_run(&peer, "session_peer", "listen", "echo", handlers_of(state) ? "polled" : "handlers");
    int port = atoi(peer_expect(&peer, "port "));
    snprintf(path, sizeof path, "/proc/%d/fd", (int)peer.pid);
    side_open(&side, handlers_of(state), NULL);
    for (unsigned i = 0; i < POOL_WARM + many(); i++) {
        if (i == POOL_WARM) {
            before = level_without(&side);
            peer_fds = usage_entries(path);
        }
        one_session(&side, port, i);
        peer_expect(&peer, "up ");
        peer_expect(&peer, "closed ");
    }
    settles_at(&side, &before);
    uint64_t until = sluice_now() + 10000 * MS; /* its descriptors of the last one may linger */
    while (usage_entries(path) > peer_fds && sluice_now() < until)
        ;
    assert_uint_in_range(usage_entries(path), 0, peer_fds);
    side_close(&side, 0);
    peer_quit(&peer);
}

/* The listening side hangs up, in this process. */
BOTH_MODES(sessions_within_one_process_leave_nothing_behind) {
    struct couple c;
    struct level before = {0};
    couple_open(&c, handlers_of(state), NULL);
    for (unsigned i = 0; i < WARM + few(); i++) {
        if (i == WARM)
            before = level_without(&c.a);
        couple_connect(&c, NULL);
        must(side_send(&c.b, c.at_b, 100, i, 0) == 0);
        struct note note = side_expect(&c.a, SLUICE_MESSAGE);
        note_free(&note);
        sluice_hangup(c.at_a, 0);
        side_expect_closed(&c.a, SLUICE_REASON_LOCAL_CLOSE);
        side_expect_closed(&c.b, SLUICE_REASON_PEER_CLOSE);
    }
    settles_at(&c.a, &before);
    couple_close(&c);
}

BOTH_MODES(failed_dials_leave_nothing_behind) {
    struct side side, other;
    struct level before = {0};
    side_open(&other, handlers_of(state), NULL);
    int port = side_listen(&other, NULL, NULL);
    side_close(&other, 0); /* nobody there any more */
    side_open(&side, handlers_of(state), NULL);
    for (unsigned i = 0; i < WARM + few(); i++) {
        if (i == WARM)
            before = level_without(&side);
        side_dial(&side, port, NULL);
        side_expect_closed(&side, SLUICE_REASON_NO_LISTENER);
    }
    settles_at(&side, &before);
    side_close(&side, 0);
}

BOTH_MODES(nodes_opened_and_closed_leave_nothing_behind) {
    unsigned fds = 0, threads = 0;
    size_t resident = 0;
    for (unsigned i = 0; i < 40; i++) {
        struct couple c;
        couple_open(&c, handlers_of(state), NULL);
        couple_connect(&c, NULL);
        must(side_send(&c.b, c.at_b, 100000, i, 0) == 0);
        struct note note = side_expect(&c.a, SLUICE_MESSAGE);
        note_free(&note);
        couple_close(&c);
        if (i == 4) {
            fds = usage_entries("/proc/self/fd");
            threads = tasks_alive();
            resident = usage_resident();
        }
    }
    assert_uint_in_range(usage_entries("/proc/self/fd"), 1, fds);
    assert_uint_in_range(tasks_alive(), 1, threads);
#if !defined(SANITIZE_ADDRESS) && !defined(SANITIZE_THREAD)
    assert_true(usage_resident() <= resident + (2u << 20));
#else
    (void)resident;
#endif
}
