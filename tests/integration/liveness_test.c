/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * liveness_test.c - a peer in another process that is stopped, killed or cut off is noticed within
 * two intervals, as listener and as dialer, and every pending send ends with an outcome.
 */
#include "support/side.h"
#include "support/peer.h"

#include "support/stall.h"

/* Elsewhere may be an emulated guest, whose CPUs stand still whenever the host's are wanted for
 * something else: the same shares of a longer interval. */
#define INTERVAL (it_soft() ? 200 * MS : 1000 * MS)
#define KEEPALIVE (it_soft() ? "keepalive_ms=200" : "keepalive_ms=1000")
#define WITHIN (2 * INTERVAL + INTERVAL / 4) /* what threads may take to run on a busy machine */

struct end { /* of a session, as this side saw it */
    uint64_t outcomes, unknown, dropped;
    sluice_reason reason;
};

/* A session with another process, each side in its turn the listener. */
static sluice_session meet(struct side *side, struct peer *peer, bool handlers, bool dials) {
    const sluice_link_options link = {.keepalive_ns = INTERVAL};
    sluice_session session;
    char words[32];
    side_open(side, handlers, NULL);
    if (dials) {
        peer_run(peer, "session_peer", "listen", "idle", "handlers", KEEPALIVE);
        side_dial(side, atoi(peer_expect(peer, "port ")), &link);
    } else {
        snprintf(words, sizeof words, "dial:%d", side_listen(side, &link, NULL));
        peer_run(peer, "session_peer", words, "idle", "handlers", KEEPALIVE);
    }
    session = side_expect(side, SLUICE_UP).event.session;
    /* Outcomes of messages that arrived come as usual. */
    must(side_send(side, session, 1000, 1, 1) == 0);
    must(side_expect(side, SLUICE_SENT).event.status == 0);
    peer_expect(peer, "up ");
    return session;
}

/* Nothing happens for so long: the two live. False: the machine stood still for longer than they may be silent. */
static bool stay(struct side *side, uint64_t wait_ns) {
    struct note note;
    stall_begin();
    bool came = side_next(side, &note, wait_ns);
    uint64_t stalled = stall_end();
    if (!came)
        return true;
    fprintf(stderr, "%s (%s), the machine stood still for %llu us\n",
            sluice_event_name(note.event.type), sluice_reason_text(note.event.reason),
            (unsigned long long)(stalled / 1000));
    must(stalled >= INTERVAL && note.event.type == SLUICE_CLOSED &&
         note.event.reason == SLUICE_REASON_KEEPALIVE);
    return false;
}

enum { AGAIN = 5 };

/*
 * sluice-soft ctl PID a b. What it asks for has happened when it ends, and not long ago: under the address sanitizer it would
 * look for leaks first, which takes longer than the silence may last.
 */
static void control(pid_t pid, const char *a, const char *b) {
    struct peer tool;
    char number[16];
    const char *options = getenv("ASAN_OPTIONS");
    char *before = options ? strdup(options) : NULL;
    must(setenv("ASAN_OPTIONS", "detect_leaks=0", 1) == 0);
    snprintf(number, sizeof number, "%d", (int)pid);
    peer_run(&tool, "sluice-soft", "ctl", number, a, b);
    assert_int_equal(peer_join(&tool), 0);
    must((before ? setenv("ASAN_OPTIONS", before, 1) : unsetenv("ASAN_OPTIONS")) == 0);
    free(before);
}

static bool lossy; /* this process, by its plan */

static void lose_all(pid_t pid) {
    lossy = pid == getpid();
    control(pid, "plan", "qp=* send=* loss");
}

/* A session that has stayed for so long. What a failed test left undone is undone. */
static sluice_session meet_and_stay(struct side *side, struct peer *peer, bool handlers, bool dials,
                                    uint64_t wait_ns) {
    if (lossy)
        control(getpid(), "clear", NULL);
    lossy = false;
    for (unsigned tries = 0; tries < AGAIN; tries++) {
        sluice_session session = meet(side, peer, handlers, dials);
        if (stay(side, wait_ns))
            return session;
        peer_kill(peer);
        side_close(side, 0);
    }
    must(!"a session that stays");
    return (sluice_session){0};
}

/* What follows is measured by the clock, but for the time in which the machine did not run us. */
static uint64_t stalled_ns;
static uint64_t late_ns; /* so long before from_now() the silence may have begun */

static uint64_t from_now(void) {
    stalled_ns = late_ns = 0;
    stall_begin();
    return sluice_now();
}

static uint64_t assert_within(uint64_t since_ns, uint64_t limit_ns) {
    uint64_t took = sluice_now() - since_ns;
    stalled_ns += stall_end();
    if (stalled_ns > 0)
        print_message("the machine stood still for %llu us\n",
                      (unsigned long long)(stalled_ns / 1000));
    assert_uint_in_range(took, 0, limit_ns + stalled_ns);
    return took;
}

/* Exactly one CLOSED, within two intervals of since_ns, from from_now(); tells what came before it. */
static struct end await_end(struct side *side, uint64_t since_ns) {
    struct end end = {0};
    struct note note;
    for (;;) {
        must(side_next(side, &note, LIMIT_NS));
        if (note.event.type == SLUICE_CLOSED)
            break;
        must(note.event.type == SLUICE_SENT);
        end.outcomes++;
        end.unknown += note.event.status == SLUICE_EUNKNOWN;
        end.dropped += note.event.status == SLUICE_ECLOSED;
        must(note.event.status == SLUICE_EUNKNOWN || note.event.status == SLUICE_ECLOSED ||
             note.event.status == 0);
    }
    uint64_t took = assert_within(since_ns, WITHIN);
    print_message("closed (%s) after %llu us\n", note.info.close_text,
                  (unsigned long long)(took / 1000));
    end.reason = (sluice_reason)note.event.reason;
    side_expect_nothing(side);
    return end;
}

/* How many the session took before it ended. */
static unsigned send_all(struct side *side, sluice_session session, unsigned sends) {
    unsigned sent = 0;
    while (sent < sends &&
           side_send(side, session, sent % 8 == 7 ? 40000 : 100, sent, sent + 1) == 0)
        sent++;
    return sent;
}

/*
 * False: the machine stood still, or what brought the silence about took its time, so that the silence was long enough
 * before all was sent, or the device took anything of it; then it is done again. A device of its own takes what it has
 * credits for and says so, whether somebody is there or not.
 */
static bool all_taken(const struct end *end, unsigned sent, unsigned sends) {
    must_data_equal(end->outcomes, sent);
    bool some = sends == 0 || (it_answers_alone() ? end->dropped : end->unknown) > 0;
    bool early = stalled_ns > 0 || late_ns > INTERVAL / 4;
    assert_true(some || (early && end->dropped == sent));
    assert_true(sent == sends || early);
    return some && sent == sends;
}

/* ---- processes ------------------------------------------------------------------------------- */

/* Its memory and its device are there, nobody runs: silence is all there is to see. */
static bool stop_one(bool handlers, bool dials, unsigned sends, uint64_t after) {
    struct side side;
    struct peer peer;
    siginfo_t info;
    sluice_session session = meet_and_stay(&side, &peer, handlers, dials, after);
    kill(peer.pid, SIGSTOP);
    must(waitid(P_PID, (id_t)peer.pid, &info, WSTOPPED) == 0);
    uint64_t since = from_now();
    unsigned sent = send_all(&side, session, sends);
    struct end end = await_end(&side, since);
    assert_int_equal(end.reason, SLUICE_REASON_KEEPALIVE);
    bool done = all_taken(&end, sent, sends);
    peer_kill(&peer);
    side_close(&side, 0);
    return done;
}

BOTH_MODES(a_stopped_peer_is_noticed) {
    for (unsigned i = 0; i < (it_soft() ? 4u : 2u); i++) /* at different moments of the interval */
        stop_one(handlers_of(state), i & 1, 0, 3 * INTERVAL + i * INTERVAL / 4);
}

BOTH_MODES(what_was_sent_to_a_stopped_peer_has_its_outcome) {
    for (unsigned i = 0; i < 2; i++) {
        bool done = false;
        for (int k = 0; k < AGAIN && !done; k++)
            done = stop_one(handlers_of(state), i & 1, 80, i * INTERVAL);
        assert_true(done);
    }
}

BOTH_MODES(a_killed_peer_is_noticed) {
    for (unsigned i = 0; i < 2; i++) {
        struct side side;
        struct peer peer;
        meet_and_stay(&side, &peer, handlers_of(state), i & 1, INTERVAL);
        uint64_t since = from_now();
        kill(peer.pid, SIGKILL);
        struct end end = await_end(&side, since);
        assert_true(end.reason == SLUICE_REASON_PEER_LOST || end.reason == SLUICE_REASON_KEEPALIVE);
        peer_kill(&peer); /* and takes its status */
        side_close(&side, 0);
    }
}

/* ---- the fabric ------------------------------------------------------------------------------ */

/* Of two ends that hear nothing the first takes its queue pair away, which the other's device may see. */
static void assert_one_was_first(long long one, long long other) {
    assert_true(one == SLUICE_REASON_KEEPALIVE || other == SLUICE_REASON_KEEPALIVE);
    assert_true(one == SLUICE_REASON_KEEPALIVE || one == SLUICE_REASON_PEER_LOST);
    assert_true(other == SLUICE_REASON_KEEPALIVE || other == SLUICE_REASON_PEER_LOST);
}

/* What one process sends never arrives: the other notices, long before retries are exhausted. */
BOTH_MODES(a_peer_whose_sends_are_lost_is_noticed) {
    if (!it_soft() || it_iwarp()) /* TCP loses nothing of what it carries */
        skip();
    for (unsigned i = 0; i < 4; i++) {
        struct side side;
        struct peer peer;
        meet_and_stay(&side, &peer, handlers_of(state), i & 1, INTERVAL);
        lose_all(i < 2 ? peer.pid : getpid());
        uint64_t since = from_now(); /* what the tool takes is not counted */
        if (i < 2) {
            struct end end = await_end(&side, since);
            peer_expect(&peer, "closed ");
            assert_one_was_first(end.reason, peer_number(&peer, "reason"));
        } else {
            long long mine = SLUICE_REASON_PEER_LOST; /* if the peer is the first */
            while (!peer_ready(&peer)) {              /* we, too, have to run */
                struct note note;
                must(sluice_now() < since + LIMIT_NS);
                if (!side_next(&side, &note, MS))
                    continue;
                must(note.event.type == SLUICE_CLOSED);
                mine = note.event.reason;
            }
            peer_expect(&peer, "closed ");
            assert_within(since, WITHIN);
            assert_one_was_first(mine, peer_number(&peer, "reason"));
        }
        peer_quit(&peer);
        side_close(&side, 0);
        lossy = false; /* the plan went with the node's device */
    }
}

/* Nothing goes either way. */
static bool cut_one(bool handlers, bool dials, unsigned sends) {
    struct side side;
    struct peer peer;
    sluice_session session = meet_and_stay(&side, &peer, handlers, dials, INTERVAL);
    uint64_t asked = sluice_now();
    control(peer.pid, "device", "port-down");
    uint64_t since = from_now();
    late_ns = since - asked;
    unsigned sent = send_all(&side, session, sends);
    struct end end = await_end(&side, since);
    bool done = all_taken(&end, sent, sends);
    stall_begin();
    peer_expect(&peer, "closed ");
    assert_within(since, WITHIN + 50 * MS); /* await_end() listens for as long */
    assert_one_was_first(end.reason, peer_number(&peer, "reason"));
    peer_quit(&peer);
    side_close(&side, 0);
    return done;
}

BOTH_MODES(both_sides_of_a_cut_notice) {
    if (!it_soft() || it_iwarp()) /* TCP loses nothing of what it carries */
        skip();
    for (unsigned i = 0; i < 4; i++) {
        bool done = false;
        for (int k = 0; k < AGAIN && !done; k++)
            done = cut_one(handlers_of(state), i & 1, i < 2 ? 0 : 40);
        assert_true(done || late_ns > INTERVAL / 4); /* else nothing can be sent into the silence */
    }
}
