/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * admit_test.c - admission: how many peers are let in at a time, who waits, who makes room, and
 * that every place comes back.
 *
 * Two nodes in this thread, as in pair.h, but the clock stands still: only the test moves it, so
 * that no slow machine makes a handshake slow.
 */
#include "support/pair.h"
#include "support/log.h"

#include "cm/internal.h"

#include "cm/admission.h"

#define MS 1000000ull
#define DIALS_MAX 32
#define SETTLE 100 /* turns after which what was going to happen has happened */

static bool clock_stands;
static uint64_t clock_ns;

static uint64_t still_now(void *arg) {
    return clock_stands ? clock_ns : pair_now(arg);
}

static const struct sluice_env still_env = {.now_ns = still_now, .random_bytes = pair_random};

struct still {
    struct pair p;
    sluice_session dials[DIALS_MAX];
    sluice_event events[DIALS_MAX]; /* CLOSED or UP of each */
    unsigned count, up_a, up_b, closed_a, closed_b;
    uint8_t order[DIALS_MAX][16]; /* session ids, as they came up on a's side */
    bool connects;                /* a CONNECT event came, asked is its session */
    sluice_session asked;
};

static void still_open_side(struct side *side, const sluice_node_options *given) {
    sluice_node_options o = *given;
    sluice_error e = {0};
    o.size = sizeof o;
    o.device = "soft";
    o.workers = SLUICE_NO_WORKERS;
    memset(side, 0, sizeof *side);
    if (node_open_env(&side->node, &o, &still_env, true, &e) != 0)
        fail_msg("%s", e.text);
    assert_int_equal(sluice_loop_open(side->node, &side->loop, &e), 0);
}

static void still_open(struct still *t, const sluice_node_options *node,
                       const sluice_link_options *link) {
    memset(t, 0, sizeof *t);
    pair_clock = 0;
    clock_ns = env_now(&env_default);
    clock_stands = true;
    still_open_side(&t->p.a, node);
    still_open_side(&t->p.b, PAIR_NODE());
    pair_listen(&t->p, link);
}

static void still_close(struct still *t) {
    clock_stands = false; /* closing waits */
    pair_close(&t->p);
}

static struct cm *cm_of(struct still *t) {
    return t->p.a.node->cm;
}

static uint64_t stat_of(_Atomic uint64_t *counter) {
    return atomic_load(counter);
}

#define STAT(t, name) ((unsigned)stat_of(&cm_of(t)->stats->name))

static void note_a(struct still *t, const sluice_event *event) {
    if (event->type == SLUICE_UP) {
        struct session *s = session_table_find(event->session.id);
        memcpy(t->order[t->up_a++], s->connection->cm.req.session_id, 16);
    } else if (event->type == SLUICE_CONNECT) {
        t->connects = true;
        t->asked = event->session;
    } else {
        assert_int_equal(event->type, SLUICE_CLOSED);
        t->closed_a++;
    }
}

static void note_b(struct still *t, const sluice_event *event) {
    assert_true(event->type == SLUICE_UP || event->type == SLUICE_CLOSED);
    for (unsigned i = 0; i < t->count; i++)
        if (t->dials[i].id == event->session.id)
            t->events[i] = *event;
    *(event->type == SLUICE_UP ? &t->up_b : &t->closed_b) += 1;
}

enum { A_CM = 1, A_LOOP = 2, B_CM = 4, B_LOOP = 8, ALL = 15 };

/* Places are counted twice: by admission, and here by looking at everybody. */
static void check_places(struct still *t) {
    unsigned asking = 0, queued = 0, open = 0;
    struct cm *cm = cm_of(t);
    struct cm_conn *conn;
    cds_list_for_each_entry(conn, &cm->conns, link) {
        unsigned state = conn->owner.state;
        asking += state == CM_AWAITING_APP;
        queued += state == CM_QUEUED;
        open += state == CM_CREATING_QP_PASSIVE || state == CM_ACCEPTING || state == CM_HANDSHAKE;
    }
    assert_int_equal(cm->admission.asking, asking);
    assert_int_equal(cm->admission.queue.count, queued);
    assert_int_equal(cm->admission.open.count, open);
    assert_int_equal(STAT(t, queued), queued);
    assert_int_equal(STAT(t, handshakes), open);
    assert_true(open <= t->p.a.node->options.handshakes_max);
    assert_true(queued + asking <= t->p.a.node->options.requests_max);
}

static void turn(struct still *t, unsigned who) {
    sluice_event event;
    if (who & A_CM) {
        cm_progress(cm_of(t), 0);
        check_places(t);
    }
    if (who & B_CM)
        cm_progress(t->p.b.node->cm, 0);
    if (who & A_LOOP && sluice_poll(t->p.a.loop, &event, 1, 0) == 1)
        note_a(t, &event);
    if (who & B_LOOP && sluice_poll(t->p.b.loop, &event, 1, 0) == 1)
        note_b(t, &event);
    sched_yield();
}

#define UNTIL(t, who, condition)                                                                   \
    do {                                                                                           \
        uint64_t until_ = env_now(&env_default) + PAIR_LIMIT_NS;                                   \
        while (!(condition)) {                                                                     \
            turn(t, who);                                                                          \
            if (env_now(&env_default) > until_)                                                    \
                fail_msg("never: %s", #condition);                                                 \
        }                                                                                          \
    } while (0)

static void settle(struct still *t, unsigned who) {
    for (unsigned i = 0; i < SETTLE; i++)
        turn(t, who);
}

/* One more dial. The dialer is told once and does not try again by itself. */
static void dial(struct still *t) {
    assert_true(t->count < DIALS_MAX);
    pair_dial(&t->p, PAIR_LINK(.flags = SLUICE_ONCE, .timeout_ns = 100000 * MS, .credits = 4));
    t->dials[t->count++] = t->p.b.session;
}

/* One more dial whose request has come to the listener, which does not work on handshakes. */
static void dial_stuck(struct still *t) {
    unsigned before = STAT(t, requests);
    dial(t);
    UNTIL(t, ALL & ~A_LOOP, STAT(t, requests) > before);
}

/* ---- bounds ---------------------------------------------------------------------------------- */

TEST(handshakes_never_exceed_the_limit) {
    struct still t;
    unsigned most = 0;
    still_open(&t, PAIR_NODE(.handshakes_max = 4), PAIR_LINK(.credits = 4));
    for (unsigned i = 0; i < 20; i++)
        dial_stuck(&t);
    assert_int_equal(STAT(&t, handshakes), 4);
    assert_int_equal(STAT(&t, queued), 16);
    uint64_t until = env_now(&env_default) + PAIR_LIMIT_NS;
    while ((t.up_a < 20 || t.up_b < 20) && env_now(&env_default) < until) {
        turn(&t, ALL); /* and checks the bound */
        most = STAT(&t, handshakes) > most ? STAT(&t, handshakes) : most;
    }
    assert_int_equal(t.up_a, 20);
    assert_int_equal(t.up_b, 20);
    assert_int_equal(most, 4);
    assert_int_equal(STAT(&t, handshakes) + STAT(&t, queued) + STAT(&t, evicted), 0);
    still_close(&t);
}

static void hangup_as_listener(struct still *t, const uint8_t *id) {
    struct cm_conn *conn;
    cds_list_for_each_entry(conn, &cm_of(t)->conns, link) {
        if (memcmp(conn->req.session_id, id, 16) == 0)
            sluice_hangup((sluice_session){atomic_load(&session_of_conn(conn)->id)}, 0);
    }
}

TEST(waiting_requests_are_served_in_order) {
    enum { COUNT = 8 };
    struct still t;
    uint8_t ids[COUNT][16];
    still_open(&t, PAIR_NODE(.handshakes_max = 1), PAIR_LINK(.credits = 4));
    for (unsigned i = 0; i < COUNT; i++) {
        dial_stuck(&t);
        memcpy(ids[i], session_table_find(t.dials[i].id)->connection->cm.req.session_id, 16);
    }
    /* One in the middle and the last are hung up here: nobody else's turn changes. */
    hangup_as_listener(&t, ids[3]);
    hangup_as_listener(&t, ids[COUNT - 1]);
    UNTIL(&t, A_CM | A_LOOP, STAT(&t, queued) <= COUNT - 3);
    UNTIL(&t, ALL, t.up_a == COUNT - 2 && t.up_b == COUNT - 2);
    for (unsigned i = 0, n = 0; i < COUNT - 1; i++)
        if (i != 3)
            assert_memory_equal(t.order[n++], ids[i], 16);
    still_close(&t);
}

TEST(one_above_the_bound_is_told_to_try_again) {
    struct still t;
    sluice_session_info info = {.size = sizeof info};
    still_open(&t, PAIR_NODE(.handshakes_max = 1, .requests_max = 2), PAIR_LINK(.credits = 4));
    for (unsigned i = 0; i < 4; i++)
        dial_stuck(&t);
    UNTIL(&t, ALL & ~A_LOOP, t.closed_b == 1);
    assert_int_equal(t.events[3].type, SLUICE_CLOSED);
    assert_int_equal(t.events[3].reason, SLUICE_REASON_BUSY);
    assert_int_equal(sluice_session_get_info(t.dials[3], &info), 0);
    assert_string_equal(info.close_text, "told by the listener: busy, try again");
    assert_int_equal(STAT(&t, busy), 1);
    assert_int_equal(STAT(&t, queued), 2);
    UNTIL(&t, ALL, t.up_a == 3 && t.up_b == 3);
    dial(&t); /* and it is right: there is room again */
    UNTIL(&t, ALL, t.up_a == 4 && t.up_b == 4);
    assert_int_equal(STAT(&t, busy), 1);
    still_close(&t);
}

TEST(asking_requests_are_bounded) {
    struct still t;
    still_open(&t, PAIR_NODE(.handshakes_max = 1, .requests_max = 2),
               PAIR_LINK(.flags = SLUICE_ASK, .credits = 4));
    for (unsigned i = 0; i < 3; i++)
        dial_stuck(&t);
    UNTIL(&t, ALL & ~A_LOOP, t.closed_b == 1);
    assert_int_equal(t.events[2].reason, SLUICE_REASON_BUSY);
    assert_int_equal(cm_of(&t)->admission.asking, 2);
    assert_int_equal(STAT(&t, busy), 1);
    UNTIL(&t, ALL, t.connects);
    assert_int_equal(sluice_refuse(t.asked, 7, "no"), 0);
    UNTIL(&t, ALL, t.closed_b == 2);
    assert_int_equal(cm_of(&t)->admission.asking, 1);
    dial_stuck(&t);
    settle(&t, ALL & ~A_LOOP);
    assert_int_equal(cm_of(&t)->admission.asking, 2);
    assert_int_equal(t.closed_b, 2);
    still_close(&t);
}

/* Peers that greet are asked about after HELLO: there is room for no more of them than of others. */
TEST(greeting_is_no_way_around_the_bound) {
    struct still t;
    still_open(&t, PAIR_NODE(.handshakes_max = 1, .requests_max = 2),
               PAIR_LINK(.flags = SLUICE_ASK, .credits = 4));
    for (unsigned i = 0; i < 5; i++) {
        pair_dial(&t.p, PAIR_LINK(.flags = SLUICE_ONCE, .timeout_ns = 100000 * MS, .credits = 4,
                                  .private_data = "x", .private_bytes = 1));
        t.dials[t.count++] = t.p.b.session;
        if (i < 2)
            UNTIL(&t, ALL, cm_of(&t)->admission.asking == i + 1);
        else
            UNTIL(&t, ALL, t.closed_b == i - 1);
        assert_true(i < 2 || t.events[i].reason == SLUICE_REASON_BUSY);
    }
    assert_int_equal(STAT(&t, busy), 3);
    still_close(&t);
}

/* ---- patience -------------------------------------------------------------------------------- */

/* A handshake that takes exactly so long. */
static void handshake_of(struct still *t, uint64_t ns) {
    unsigned up = t->up_a;
    dial_stuck(t);
    UNTIL(t, ALL & ~A_LOOP, STAT(t, handshakes) == 1);
    clock_ns += ns;
    UNTIL(t, ALL, t->up_a == up + 1 && t->up_b == up + 1);
}

static uint64_t smoothed(uint64_t usual, uint64_t took) {
    return usual - usual / 8 + took / 8;
}

TEST(a_slow_handshake_makes_room_only_when_it_is_slow) {
    struct still t;
    still_open(&t, PAIR_NODE(.handshakes_max = 1), PAIR_LINK(.credits = 4));
    struct cm *cm = cm_of(&t);
    assert_int_equal(admission_patience(cm), 2000 * MS); /* nobody is suspected of anything */
    handshake_of(&t, 3 * MS);
    assert_int_equal(admission_patience(cm), 2000 * MS); /* as fast as they may be */

    /* Nobody waits: it may be as slow as it likes. */
    dial_stuck(&t);
    uint64_t begun = clock_ns, patience = 2000 * MS;
    clock_ns += patience - 1;
    settle(&t, ALL & ~A_LOOP);
    dial_stuck(&t); /* somebody waits, but it is not slow yet */
    settle(&t, ALL & ~A_LOOP);
    assert_int_equal(STAT(&t, evicted), 0);
    assert_int_equal(admission_due(cm), begun + patience); /* the thread would wake in time */
    /* And not look at every connection there is, only to find that none has a deadline. */
    assert_true(cm->next_deadline_ns > begun + patience);
    clock_ns += 1;
    UNTIL(&t, ALL & ~A_LOOP, STAT(&t, evicted) == 1);
    assert_int_equal(STAT(&t, handshakes), 1);
    assert_int_equal(STAT(&t, queued), 0);
    UNTIL(&t, ALL, t.closed_b == 1 && t.up_a == 2 && t.up_b == 2);
    assert_int_equal(t.events[1].type, SLUICE_CLOSED);
    assert_int_equal(t.events[1].reason, SLUICE_REASON_BUSY);
    assert_int_equal(t.events[2].type, SLUICE_UP);
    still_close(&t);
}

/* A handshake that no peer waits for has five seconds; where all take longer than an eighth of that, eight times as long as they. */
TEST(where_all_are_slow_no_handshake_has_stopped) {
    static const uint64_t usual[] = {ADMISSION_USUAL_NS, 900 * MS, 100000 * MS};
    static const uint64_t limits[] = {ADMISSION_LIMIT_NS, 8 * 900 * MS,
                                      10000 * MS}; /* the whole way's */
    for (unsigned row = 0; row < 3; row++) {
        struct still t;
        still_open(&t, PAIR_NODE(), PAIR_LINK(.credits = 4));
        struct cm *cm = cm_of(&t);
        cm->admission.usual_ns = usual[row];
        uint64_t begun = clock_ns;
        dial_stuck(&t);
        for (uint64_t at = ADMISSION_LIMIT_NS; at < limits[row]; at = at * 11 / 10) {
            clock_ns = begun + at;
            settle(&t, A_CM | A_LOOP);
            assert_int_equal(STAT(&t, handshakes), 1);
        }
        clock_ns = begun + limits[row] - 1;
        settle(&t, A_CM | A_LOOP);
        assert_int_equal(STAT(&t, handshakes), 1);
        clock_ns++;
        settle(&t, A_CM | A_LOOP);
        assert_int_equal(STAT(&t, handshakes), 0);
        still_close(&t);
    }
}

/* However long one handshake took, or the process stood still, the limits of those that follow grow by little. */
TEST(a_slow_handshake_counts_as_the_limit_at_most) {
    struct still t;
    still_open(&t, PAIR_NODE(), PAIR_LINK(.credits = 4));
    struct cm *cm = cm_of(&t);
    cm->admission.usual_ns = 1000 * MS;
    dial_stuck(&t);
    clock_ns += 7900 * MS;
    UNTIL(&t, ALL, t.up_a == 1 && t.up_b == 1);
    assert_int_equal(cm->admission.usual_ns, smoothed(1000 * MS, ADMISSION_LIMIT_NS));
    still_close(&t);
}

/* One place: half of the grace goes with each that is ended, and half of the rest comes back. */
TEST(patience_shrinks_with_those_who_never_finish) {
    struct still t;
    still_open(&t, PAIR_NODE(.handshakes_max = 1), PAIR_LINK(.credits = 4));
    struct cm *cm = cm_of(&t);
    uint64_t usual = ADMISSION_USUAL_NS, grace = 2000 * MS;
    dial_stuck(&t);
    for (unsigned i = 1; grace > 8 * usual; i++) {
        assert_int_equal(admission_patience(cm), grace);
        dial_stuck(&t);
        clock_ns += grace - 1;
        settle(&t, A_CM);
        assert_int_equal(STAT(&t, evicted), i - 1);
        clock_ns += 1;
        settle(&t, A_CM);
        assert_int_equal(STAT(&t, evicted), i);
        grace -= grace / 2;
    }
    assert_int_equal(STAT(&t, evicted), 6);
    assert_int_equal(admission_patience(cm), 8 * usual); /* from now on as long as others need */
    uint64_t last = clock_ns;
    clock_ns += 3 * MS;
    UNTIL(&t, ALL, t.up_a == 1 && t.up_b == 1);
    usual = smoothed(usual, 3 * MS);
    grace += (2000 * MS - grace) / 2; /* one that was honest */
    assert_int_equal(admission_patience(cm), grace);
    clock_ns = last + 2000 * MS - 1;
    turn(&t, A_CM);
    assert_int_equal(admission_patience(cm), grace);
    clock_ns += 1; /* the last that was ended is long ago */
    turn(&t, A_CM);
    assert_int_equal(admission_patience(cm), 2000 * MS);
    still_close(&t);
}

/* Four handshakes, four that wait, all slow: room is made four times in a patience, not at once. */
TEST(slow_peers_are_not_ended_all_at_once) {
    struct still t;
    still_open(&t, PAIR_NODE(.handshakes_max = 4), PAIR_LINK(.credits = 4));
    for (unsigned i = 0; i < 8; i++)
        dial_stuck(&t);
    uint64_t patience = admission_patience(cm_of(&t));
    clock_ns += patience + patience / 8;
    settle(&t, A_CM);
    assert_int_equal(STAT(&t, evicted), 1);
    patience -= 2 * patience / 7; /* four places and three */
    assert_int_equal(admission_patience(cm_of(&t)), patience);
    clock_ns += patience / 4 - 1;
    settle(&t, A_CM);
    assert_int_equal(STAT(&t, evicted), 1);
    assert_int_equal(admission_due(cm_of(&t)), clock_ns + 1);
    clock_ns += 1;
    settle(&t, A_CM);
    assert_int_equal(STAT(&t, evicted), 2);
    UNTIL(&t, ALL, t.closed_b == 2 && t.up_b == 6); /* the others were lucky */
    still_close(&t);
}

/* Sixteen places: a thread that comes late makes up for two that were due, and no more. */
TEST(a_late_thread_makes_up_for_a_part) {
    struct still t;
    still_open(&t, PAIR_NODE(.handshakes_max = 16), PAIR_LINK(.credits = 4));
    for (unsigned i = 0; i < DIALS_MAX; i++)
        dial_stuck(&t);
    clock_ns += 2 * admission_patience(cm_of(&t));
    settle(&t, A_CM);
    assert_int_equal(STAT(&t, evicted), 3); /* and the one that is due now */
    UNTIL(&t, ALL, t.closed_b == 3 && t.up_b == DIALS_MAX - 3);
    still_close(&t);
}

TEST(patience_has_a_floor_and_a_ceiling) {
    struct still t;
    still_open(&t, PAIR_NODE(.handshakes_max = 1), PAIR_LINK(.credits = 4));
    struct cm *cm = cm_of(&t);
    for (unsigned i = 0; i < 18; i++)
        handshake_of(&t, 0);
    cm->admission.evicted_ns = clock_ns; /* a flood has used up all of the grace */
    cm->admission.grace_ns = 0;
    assert_int_equal(admission_patience(cm), ADMISSION_PATIENCE_MIN_NS);
    handshake_of(&t, 4000 * MS);
    cm->admission.evicted_ns = clock_ns;
    cm->admission.grace_ns = 0;
    assert_int_equal(admission_patience(cm), ADMISSION_PATIENCE_MAX_NS);
    /* A second is the most anybody waits for another then. */
    dial_stuck(&t);
    dial_stuck(&t);
    clock_ns += ADMISSION_PATIENCE_MAX_NS;
    UNTIL(&t, ALL, STAT(&t, evicted) == 1 && t.closed_b == 1 && t.up_b == 20);
    still_close(&t);
}

TEST(nobody_is_ended_while_there_is_room) {
    struct still t;
    still_open(&t, PAIR_NODE(.handshakes_max = 2), PAIR_LINK(.credits = 4));
    dial_stuck(&t);
    clock_ns += 4000 * MS; /* slow by any measure */
    dial_stuck(&t);
    settle(&t, ALL & ~A_LOOP);
    assert_int_equal(STAT(&t, handshakes), 2);
    assert_int_equal(STAT(&t, evicted), 0);
    clock_ns += 1000 * MS; /* but its own limit it has */
    UNTIL(&t, ALL & ~A_LOOP, STAT(&t, handshakes) == 1);
    UNTIL(&t, ALL, t.closed_b == 1 && t.up_b == 1);
    assert_int_equal(t.events[0].reason, SLUICE_REASON_TIMEOUT);
    assert_int_equal(STAT(&t, evicted), 0);
    still_close(&t);
}

/* ---- every end ------------------------------------------------------------------------------- */

enum phase { CREATING_QP, ACCEPTING, QUEUED, AWAITING_APP, PHASES };
enum way { ESTABLISHED, TIMEOUT, PEER_GONE, HANGUP, REFUSED, UNLISTEN, DEVICE, WAYS };

static struct cm_conn *first_conn(struct cm *cm) {
    return cds_list_entry(cm->conns.next, struct cm_conn, link);
}

static void bring_to(struct still *t, enum phase place) {
    dial_stuck(t);
    if (place == QUEUED) {
        dial_stuck(t);
        UNTIL(t, ALL & ~A_LOOP, STAT(t, queued) == 1);
    }
    if (place == ACCEPTING)
        UNTIL(t, A_CM | A_LOOP, first_conn(cm_of(t))->owner.state == CM_ACCEPTING);
    if (place == AWAITING_APP) {
        UNTIL(t, ALL, t->connects);
        assert_int_equal(cm_of(t)->admission.asking, 1);
    } else {
        assert_int_equal(STAT(t, handshakes), 1);
    }
}

static void end_by(struct still *t, enum phase place, enum way way) {
    struct cm_conn *conn;
    switch (way) {
    case ESTABLISHED:
        if (place == AWAITING_APP)
            assert_int_equal(sluice_accept(t->asked, NULL), 0);
        break;
    case TIMEOUT: /* QUEUED: the first, then the second in its place */
        for (unsigned i = 0; i < 2; i++) {
            clock_ns += place == AWAITING_APP ? 8000 * MS : ADMISSION_LIMIT_NS;
            settle(t, A_CM | A_LOOP); /* a dialer that looks late finds that it is over */
        }
        break;
    case PEER_GONE:
        for (unsigned i = 0; i < t->count; i++)
            sluice_hangup(t->dials[i], 0);
        settle(t, B_CM | B_LOOP);
        if (place == AWAITING_APP) /* rdma_cm does not say so before something is answered */
            assert_int_equal(sluice_accept(t->asked, NULL), 0);
        break;
    case HANGUP:
        cds_list_for_each_entry(conn, &cm_of(t)->conns, link)
            sluice_hangup((sluice_session){atomic_load(&session_of_conn(conn)->id)}, 0);
        break;
    case REFUSED:
        assert_int_equal(sluice_refuse(t->asked, 1, "no"), 0);
        break;
    case UNLISTEN:
        sluice_unlisten(t->p.listener);
        settle(t, A_CM);
        assert_int_equal(cm_of(t)->admission.queue.count + cm_of(t)->admission.asking, 0);
        break;
    case DEVICE:
        cm_device_lost(cm_of(t));
        check_places(t);
        assert_int_equal(STAT(t, handshakes) + STAT(t, queued), 0);
        settle(t, A_CM | A_LOOP);
        break;
    case WAYS:
        break;
    }
}

TEST(a_place_is_given_back_however_a_handshake_ends) {
    for (unsigned k = 0; k < PHASES * WAYS; k++) {
        enum phase place = k % PHASES;
        enum way way = k / PHASES;
        struct still t;
        if (way == REFUSED && place != AWAITING_APP)
            continue;
        still_open(&t, PAIR_NODE(.handshakes_max = 1, .log = log_nothing),
                   PAIR_LINK(.flags = place == AWAITING_APP ? SLUICE_ASK : 0, .credits = 4,
                             .timeout_ns = 8000 * MS));
        struct cm *cm = cm_of(&t);
        bring_to(&t, place);
        end_by(&t, place, way);
        UNTIL(&t, ALL, t.up_b + t.closed_b == t.count);
        UNTIL(&t, ALL,
              cm->admission.open.count + cm->admission.queue.count + cm->admission.asking == 0);
        if (way == ESTABLISHED)
            assert_int_equal(t.up_b, t.count);
        if (way == TIMEOUT || way == DEVICE || way == REFUSED) {
            UNTIL(&t, ALL, t.closed_b == t.count);
            /* One that was accepted may be up over there until its device has heard of the end. */
            assert_true(t.up_b <= (place == ACCEPTING || (place == QUEUED && way == TIMEOUT)));
        }
        if (way != UNLISTEN && way != DEVICE) { /* and the place can be used */
            unsigned up = t.up_b;
            t.connects = false;
            dial(&t);
            if (place == AWAITING_APP) {
                UNTIL(&t, ALL, t.connects);
                assert_int_equal(sluice_accept(t.asked, NULL), 0);
            }
            UNTIL(&t, ALL, t.up_b == up + 1);
        }
        still_close(&t);
    }
}
