/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * resume_test.c - sessions that outlive their connection: it is cut at any moment, and what was accepted is delivered once and in order.
 */
#include "support/log.h"
#include "support/pair.h"
#include "support/request.h"
#include "support/where.h"

#include "datapath/session/connections.h"
#include "datapath/session/down.h"
#include "datapath/session/queue_pair.h"

#define SECOND 1000000000ull
#define RESUME_NS (60 * SECOND)

enum { MANY = 300, LARGE = 50000 };

static struct connection *connection_of(struct side *side) {
    return session_connection(pair_session(side));
}

static void open_with(struct pair *p, const sluice_link_options *link, uint32_t rendezvous) {
    pair_open(p, PAIR_NODE(.log = log_nothing, .rendezvous = rendezvous), link);
    pair_connect(p, link);
}

static void open_resumed(struct pair *p, const sluice_link_options *link) {
    open_with(p, link, SLUICE_RENDEZVOUS_AUTO);
}

/* The connection ends as if the network had cut it; neither application has done anything. */
static void cut(struct side *side) {
    struct connection *c = connection_of(side);
    assert_int_equal(side->node->fabric->disconnect(c->cm.owner.id), 0);
}

/* This side finds its queue pair broken; the other does not know. */
static void break_alone(struct side *side) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    assert_true(connection_modify(connection_of(side), &attr, IBV_QP_STATE));
}

static void expect_down(struct pair *p, struct side *side) {
    sluice_event event = pair_expect(p, side, SLUICE_DOWN);
    assert_int_equal(event.reason, SLUICE_REASON_PEER_LOST);
    assert_int_equal(event.session.id, side->session.id);
}

static void expect_up(struct pair *p, struct side *side, uint64_t times) {
    sluice_event event = pair_expect(p, side, SLUICE_UP);
    assert_int_equal(event.session.id, side->session.id);
    assert_int_equal(event.tag, times);
    assert_int_equal(pair_info(side->session).up, 1);
    assert_int_equal(pair_info(side->session).resumed, times);
    assert_true(pair_info(side->session).down_ns_total >= event.value);
}

static void down_and_up(struct pair *p, uint64_t times) {
    expect_down(p, &p->a);
    expect_down(p, &p->b);
    expect_up(p, &p->b, times);
    expect_up(p, &p->a, times);
}

TEST(a_session_lives_on_when_its_connection_is_cut) {
    for (unsigned who = 0; who < 2; who++) {
        struct pair p;
        open_resumed(&p, PAIR_LINK(.resume_ns = RESUME_NS));
        uint16_t framed = connection_of(&p.b)->unacked.framed_end;
        for (unsigned times = 1; times < 6; times++) {
            cut(who ? &p.b : &p.a);
            down_and_up(&p, times);
            assert_int_equal(connection_of(&p.b)->unacked.framed_end, framed);
            assert_int_equal(pair_send(&p.b, 64, times, SLUICE_SEND(.tag = times)), 0);
            assert_true(pair_check(pair_expect(&p, &p.a, SLUICE_MESSAGE).msg, 64, times));
            assert_int_equal(pair_expect(&p, &p.b, SLUICE_SENT).status, 0);
            assert_int_equal(pair_send(&p.a, LARGE, times, NULL), 0);
            assert_true(pair_check(pair_expect(&p, &p.b, SLUICE_MESSAGE).msg, LARGE, times));
        }
        pair_close(&p);
    }
}

/* The dial names two places of the same peer, of which one listens at a time. */
TEST(it_fails_over_to_the_other_address_of_its_dial) {
    struct pair p;
    char at[2][64];
    sluice_error e;
    const sluice_link_options *link = PAIR_LINK(.resume_ns = RESUME_NS);
    sluice_link_options own = *link;
    pair_open(&p, PAIR_NODE(.log = log_nothing), link);
    own.size = sizeof own;
    own.loop = p.a.loop;
    sluice_listener other;
    memcpy(at[0], p.address, sizeof at[0]);
    snprintf(at[1], sizeof at[1], "%.*s:0", (int)(strrchr(at[0], ':') - at[0]), at[0]);
    assert_int_equal(sluice_listen(p.a.node, at[1], &own, &other, &e), 0);
    snprintf(strrchr(at[1], ':'), 16, ":%d", sluice_listener_port(other));
    snprintf(p.address, sizeof p.address, "%.30s,%.30s", at[0], at[1]);
    pair_connect(&p, link);
    for (unsigned times = 0; times < 6; times++) {
        if (times > 0)
            down_and_up(&p, times);
        assert_string_equal(pair_info(p.b.session).peer, at[times % 2]);
        assert_int_equal(pair_send(&p.b, LARGE, times, NULL), 0);
        assert_true(pair_check(pair_expect(&p, &p.a, SLUICE_MESSAGE).msg, LARGE, times));
        sluice_unlisten(times % 2 ? other : p.listener);
        if (times > 0)
            assert_int_equal(sluice_listen(p.a.node, at[!(times % 2)], &own,
                                           times % 2 ? &p.listener : &other, &e),
                             0);
        cut(times % 3 ? &p.a : &p.b);
    }
    pair_close(&p);
}

/* ---- traffic that is cut at any moment --------------------------------------------------------- */

/* What one side has done and seen. */
struct end {
    struct side *side;
    unsigned total, sent, received, told, asked, answered, replied;
    unsigned downs, ups;
    bool up, outcome[MANY + 1]; /* by tag */
};

static uint64_t seed;

static uint32_t chance(uint32_t below) {
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(seed >> 33) % below;
}

static size_t size_of(unsigned i) {
    static const size_t sizes[] = {0, 1, 64, 200, 511, 3000, 8168, 8169, 20000, LARGE};
    return sizes[i * 7 % (sizeof sizes / sizeof *sizes)];
}

/* As a message, of pieces that are copied, or as one that waits for more. */
static int send_next(struct end *e) {
    unsigned i = e->sent;
    const sluice_send_options *o =
        SLUICE_SEND(.tag = i + 1, .flags = chance(4) == 0 ? SLUICE_MORE : 0);
    if (chance(4) || size_of(i) == 0)
        return pair_send(e->side, size_of(i), i, i % 3 ? o : NULL);
    static uint8_t bytes[LARGE];
    size_t half = size_of(i) / 2;
    pair_fill_bytes(bytes, size_of(i), i);
    const sluice_piece pieces[] = {{.data = bytes, .bytes = half},
                                   {.data = bytes + half, .bytes = size_of(i) - half}};
    return sluice_send_pieces(e->side->session, pieces, 2, i % 3 ? o : NULL);
}

static void ask(struct end *e) {
    sluice_msg *msg;
    if (sluice_alloc(e->side->node, 1 + size_of(e->asked), &msg) != 0)
        return;
    pair_fill(msg, e->asked);
    if (sluice_request(e->side->session, msg, SLUICE_SEND(.tag = 1000000 + e->asked)) == 0)
        e->asked++;
    else
        sluice_free(msg);
}

static void answer(struct end *e, const sluice_event *event) {
    sluice_msg *msg;
    unsigned i = e->answered++;
    assert_true(pair_check(event->msg, 1 + size_of(i), i)); /* each once, and in order */
    assert_int_equal(sluice_alloc(e->side->node, 10 + size_of(i + 3), &msg), 0);
    pair_fill(msg, i + 1);
    assert_int_equal(sluice_reply(event->session, event->token, msg), 0);
}

static void see(struct end *e, const sluice_event *event) {
    switch ((sluice_event_type)event->type) {
    case SLUICE_MESSAGE:
        assert_true(pair_check(event->msg, size_of(e->received), e->received));
        e->received++;
        return;
    case SLUICE_SENT:
        /* Once, where a word was wanted; of a large message later than of small ones behind it. */
        assert_in_range(event->tag, 1, e->sent);
        assert_true((event->tag - 1) % 3 != 0 && !e->outcome[event->tag]);
        assert_int_equal(event->status, 0);
        e->outcome[event->tag] = true;
        e->told++;
        return;
    case SLUICE_REQUEST:
        answer(e, event);
        return;
    case SLUICE_REPLY:
        assert_int_equal(event->status, 0);
        assert_int_equal(event->tag, 1000000 + e->replied);
        assert_true(pair_check(event->msg, 10 + size_of(e->replied + 3), e->replied + 1));
        e->replied++;
        return;
    case SLUICE_DOWN:
        assert_true(e->up);
        e->up = false;
        e->downs++;
        return;
    case SLUICE_UP:
        assert_false(e->up);
        e->up = true;
        e->ups++;
        assert_true(event->tag >= e->ups);
        return;
    case SLUICE_WRITABLE:
        return;
    case SLUICE_CLOSED:
    case SLUICE_WAKE:
    case SLUICE_CONNECT:
    case SLUICE_LARGE:
    case SLUICE_DONE:
    case SLUICE_NOTIFIED:
        break;
    }
    fail_msg("%s (%s)", sluice_event_name(event->type), sluice_reason_text(event->reason));
}

/* The connection is lost to both, or one side alone finds its queue pair broken. */
static void lose(struct side *side) {
    const struct connection *c = connection_of(side);
    if (!c->qp || pair_session(side)->state != SESSION_UP)
        return;
    if (chance(2))
        cut(side);
    else
        break_alone(side);
}

static void turn_end(struct pair *p, struct end *e) {
    sluice_event event;
    if (chance(3) == 0)
        cm_progress(e->side->node->cm, 0);
    if (sluice_poll(e->side->loop, &event, 1, 0) == 1)
        see(e, &event);
    (void)p;
}

static bool is_done(const struct end *e, const struct end *other) {
    return e->sent == e->total && other->received == e->total &&
           e->told == e->total - (e->total + 2) / 3 && e->replied == e->asked && e->up;
}

static void one_walk(uint64_t from, unsigned losses) {
    struct pair p;
    bool breaks = losses > 0;
    seed = from;
    uint32_t rendezvous = chance(pair_is_like("iwarp") ? 2 : 3);
    open_with(&p,
              PAIR_LINK(.resume_ns = RESUME_NS, .requests = 1 + chance(16),
                        .window_messages = chance(2) ? 0 : 1 + chance(40),
                        .credits = chance(2) ? 0 : 4 + chance(60),
                        .flags = chance(2) ? 0 : SLUICE_ISOLATED),
              rendezvous);
    struct end ends[2] = {{.side = &p.a, .total = MANY, .up = true},
                          {.side = &p.b, .total = MANY, .up = true}};
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    while (!is_done(&ends[0], &ends[1]) || !is_done(&ends[1], &ends[0])) {
        struct end *e = &ends[chance(2)];
        for (unsigned n = chance(4); n > 0 && e->sent < e->total; n--)
            e->sent += send_next(e) == 0;
        if (chance(8) == 0 && e->asked < MANY / 4)
            ask(e);
        turn_end(&p, &ends[chance(2)]);
        if (losses > 0 && ends[0].received + ends[1].received > 0 && chance(60) == 0) {
            lose(ends[chance(2)].side);
            losses--;
        }
        pair_clock += chance(16) == 0 ? 1000000 : 0;
        if (env_now(&env_default) > limit)
            fail_msg("seed %llu: %u of %u, %u of %u messages arrived, %u of %u, %u of %u outcomes",
                     (unsigned long long)from, ends[1].received, ends[0].sent, ends[0].received,
                     ends[1].sent, ends[0].told, ends[0].total, ends[1].told, ends[1].total);
    }
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(ends[i].downs, ends[i].ups);
        pair_await(&p, pair_info(ends[i].side->session).window_messages_used == 0);
    }
    pair_rnr_provoked = breaks; /* what is sent to a queue pair that broke finds none */
    pair_close(&p);
}

TEST(what_was_accepted_arrives_once_and_in_order_whatever_is_cut) {
    uint64_t last = it_long() ? 300 : 40;
    for (uint64_t from = 1; from <= last; from++)
        one_walk(from, (unsigned)from % 12);
}

/* ---- while it is down -------------------------------------------------------------------------- */

/* Only this side's loop goes on, and both CM threads; the next event, or none. */
static bool goes_on(struct pair *p, struct side *side, sluice_event *event) {
    cm_progress(p->a.node->cm, 0);
    cm_progress(p->b.node->cm, 0);
    int n = sluice_poll(side->loop, event, 1, 0);
    assert_true(n >= 0);
    sched_yield();
    return n == 1;
}

static sluice_event alone(struct pair *p, struct side *side, sluice_event_type type) {
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    sluice_event event = {0};
    while (!goes_on(p, side, &event)) {
        if (env_now(&env_default) > limit)
            fail_msg("no event, expected %s", sluice_event_name(type));
    }
    if (event.type != type)
        fail_msg("%s (%s), expected %s", sluice_event_name(event.type),
                 sluice_reason_text(event.reason), sluice_event_name(type));
    return event;
}

TEST(calls_go_on_while_it_is_down_up_to_the_window) {
    enum { WINDOW = 4 };
    struct pair p;
    open_resumed(&p, PAIR_LINK(.resume_ns = RESUME_NS, .window_messages = WINDOW));
    break_alone(&p.b);
    alone(&p, &p.b, SLUICE_DOWN);
    assert_int_equal(pair_info(p.b.session).up, 0);
    for (unsigned i = 0; i < WINDOW; i++) {
        uint64_t deadline = i == 1 ? pair_now(NULL) + SECOND : 0;
        const sluice_send_options *o = SLUICE_SEND(.tag = i + 1, .deadline_ns = deadline);
        assert_int_equal(i == 2 ? pair_request(&p.b, 10, 1, o) : pair_send(&p.b, 64, i, o), 0);
    }
    assert_int_equal(pair_send(&p.b, 64, 0, NULL), SLUICE_EAGAIN);
    sluice_cancel(p.b.session, 3);
    sluice_event event = alone(&p, &p.b, SLUICE_REPLY);
    assert_int_equal(event.tag, 3);
    assert_int_equal(event.status, SLUICE_ECANCELLED);
    pair_clock += 2 * SECOND;
    alone(&p, &p.b, SLUICE_WRITABLE);
    event = alone(&p, &p.b, SLUICE_SENT);
    assert_int_equal(event.tag, 2);
    assert_int_equal(event.status, SLUICE_ETIMEDOUT);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(pair_send(&p.b, 64, 10 + i, NULL), 0);
    assert_int_equal(pair_send(&p.b, 64, 0, NULL), SLUICE_EAGAIN);
    expect_down(&p, &p.a);
    bool up = false, writable = false, sent[WINDOW + 1] = {false};
    while (!up || !writable || !sent[1] || !sent[4]) {
        assert_true(pair_next(&p, &p.b, &event));
        up |= event.type == SLUICE_UP;
        writable |= event.type == SLUICE_WRITABLE;
        if (event.type == SLUICE_SENT) {
            assert_int_equal(event.status, 0);
            sent[event.tag] = true;
        }
    }
    expect_up(&p, &p.a, 1);
    assert_true(pair_check(pair_expect(&p, &p.a, SLUICE_MESSAGE).msg, 64, 0));
    assert_true(pair_check(pair_expect(&p, &p.a, SLUICE_MESSAGE).msg, 64, 3));
    for (unsigned i = 0; i < 2; i++)
        assert_true(pair_check(pair_expect(&p, &p.a, SLUICE_MESSAGE).msg, 64, 10 + i));
    pair_expect_nothing(&p, &p.a);
    pair_close(&p);
}

/* What left and was not acknowledged is unknown, what never left has not gone. */
static void expect_outcomes(struct pair *p, sluice_reason reason, bool arrived) {
    uint64_t tags = 0;
    for (unsigned i = 0; i < 2; i++) {
        sluice_event event = pair_expect(p, &p->b, SLUICE_SENT);
        if (event.tag == 1 && event.status == 0)
            assert_true(arrived); /* and its acknowledgement was faster */
        else
            assert_int_equal(event.status, event.tag == 1 ? SLUICE_EUNKNOWN : SLUICE_ECLOSED);
        tags += event.tag;
    }
    assert_int_equal(tags, 1 + 2);
    assert_int_equal(pair_expect(p, &p->b, SLUICE_CLOSED).reason, reason);
}

static void send_and_cut(struct pair *p) {
    assert_int_equal(pair_send(&p->b, 64, 1, SLUICE_SEND(.tag = 1)), 0);
    break_alone(&p->b);
    alone(p, &p->b, SLUICE_DOWN);
    assert_int_equal(pair_send(&p->b, 64, 2, SLUICE_SEND(.tag = 2)), 0);
}

TEST(it_ends_when_its_time_is_over) {
    struct pair p;
    open_resumed(&p, PAIR_LINK(.resume_ns = RESUME_NS));
    sluice_unlisten(p.listener);
    send_and_cut(&p);
    sluice_event event;
    for (unsigned i = 0; i < 50; i++) { /* it dials in vain, again and again */
        pair_clock += SECOND;
        assert_false(goes_on(&p, &p.b, &event));
        cm_progress(p.a.node->cm, 0);
    }
    pair_clock += RESUME_NS - 50 * SECOND;
    expect_outcomes(&p, SLUICE_REASON_RESUME_TIMEOUT, false);
    do {
        pair_clock += SECOND / 10;
        event.type = SLUICE_UP;
        (void)goes_on(&p, &p.a, &event);
    } while (event.type != SLUICE_CLOSED);
    assert_int_equal(event.reason, SLUICE_REASON_RESUME_TIMEOUT);
    pair_close(&p);
}

TEST(a_peer_that_gave_it_up_does_not_know_it) {
    struct pair p;
    open_resumed(&p, PAIR_LINK(.resume_ns = RESUME_NS));
    send_and_cut(&p);
    sluice_event event = alone(&p, &p.a, SLUICE_MESSAGE);
    assert_true(pair_check(event.msg, 64, 1));
    alone(&p, &p.a, SLUICE_DOWN);
    sluice_hangup(p.a.session, 0);
    assert_int_equal(alone(&p, &p.a, SLUICE_CLOSED).reason, SLUICE_REASON_LOCAL_CLOSE);
    expect_outcomes(&p, SLUICE_REASON_SESSION_UNKNOWN, true);
    pair_close(&p);
}

TEST(a_hangup_while_it_is_down_has_its_grace) {
    for (unsigned graceful = 0; graceful < 2; graceful++) {
        struct pair p;
        open_resumed(&p, PAIR_LINK(.resume_ns = RESUME_NS));
        send_and_cut(&p);
        sluice_hangup(p.b.session, graceful ? 20 * SECOND : 0);
        assert_int_equal(pair_send(&p.b, 64, 3, NULL), SLUICE_ECLOSED);
        if (!graceful) {
            expect_outcomes(&p, SLUICE_REASON_LOCAL_CLOSE, false);
            pair_close(&p);
            continue;
        }
        bool told = false;
        for (unsigned got = 0; got < 2;) {
            sluice_event event;
            assert_true(pair_next(&p, &p.a, &event));
            if (event.type == SLUICE_MESSAGE)
                assert_true(pair_check(event.msg, 64, ++got));
            told |= event.type == SLUICE_UP;
        }
        assert_true(told);
        assert_int_equal(pair_expect(&p, &p.a, SLUICE_CLOSED).reason, SLUICE_REASON_PEER_CLOSE);
        sluice_event event;
        for (unsigned sent = 0, up = 0; sent < 2 || up < 1;) {
            assert_true(pair_next(&p, &p.b, &event));
            assert_int_equal(event.status, 0);
            sent += event.type == SLUICE_SENT;
            up += event.type == SLUICE_UP;
        }
        assert_int_equal(pair_expect(&p, &p.b, SLUICE_CLOSED).reason, SLUICE_REASON_LOCAL_CLOSE);
        pair_close(&p);
    }
}

TEST(a_hangup_is_not_forgotten_when_the_connection_is_lost) {
    struct pair p;
    open_resumed(&p, PAIR_LINK(.resume_ns = RESUME_NS));
    assert_int_equal(pair_send(&p.b, 64, 1, SLUICE_SEND(.tag = 1)), 0);
    sluice_hangup(p.b.session, 20 * SECOND);
    sluice_event event;
    while (pair_session(&p.b)->state != SESSION_FLUSHING)
        assert_false(goes_on(&p, &p.b, &event));
    break_alone(&p.b);
    alone(&p, &p.b, SLUICE_DOWN);
    assert_int_equal(pair_send(&p.b, 64, 2, NULL), SLUICE_ECLOSED);
    do
        assert_true(pair_next(&p, &p.a, &event));
    while (event.type != SLUICE_MESSAGE);
    do
        assert_true(pair_next(&p, &p.b, &event));
    while (event.type != SLUICE_CLOSED);
    assert_int_equal(event.reason, SLUICE_REASON_LOCAL_CLOSE);
    do
        assert_true(pair_next(&p, &p.a, &event));
    while (event.type != SLUICE_CLOSED);
    assert_int_equal(event.reason, SLUICE_REASON_PEER_CLOSE);
    pair_close(&p);
}

/* Messages in one frame and in several, and requests, of which some are on their way. Each has one outcome. */
TEST(a_session_may_end_at_any_moment_of_a_loss) {
    for (unsigned steps = 0; steps < 60; steps++) {
        struct pair p;
        sluice_event event;
        unsigned outcomes = 0, closed = 0;
        seed = steps;
        open_resumed(&p, PAIR_LINK(.resume_ns = RESUME_NS));
        for (unsigned i = 0; i < 6; i++)
            assert_int_equal(
                i % 3 == 1 ? pair_request(&p.b, 10, i, SLUICE_SEND(.tag = i + 1))
                           : pair_send(&p.b, i % 3 ? LARGE : 64, i, SLUICE_SEND(.tag = i + 1)),
                0);
        lose(chance(2) ? &p.a : &p.b);
        struct side *sides[2] = {&p.a, &p.b}, *ends = sides[chance(2)];
        for (unsigned i = 0; closed < 2; i++) {
            struct side *side = sides[chance(2)];
            if (i == steps)
                sluice_hangup(ends->session, 0);
            pair_clock += i > 400 ? SECOND / 10 : 0; /* what nothing else ends */
            if (chance(2))
                cm_progress(side->node->cm, 0);
            if (sluice_poll(side->loop, &event, 1, 0) != 1)
                continue;
            closed += event.type == SLUICE_CLOSED;
            outcomes += event.type == SLUICE_SENT || event.type == SLUICE_REPLY;
            if (event.type == SLUICE_CLOSED && side == &p.b)
                assert_int_equal(outcomes, 6);
        }
        pair_rnr_provoked = true;
        pair_close(&p);
    }
}

/* ---- whose it is ------------------------------------------------------------------------------- */

#define SECRET "0123456789abcdef"

TEST(with_a_key_each_connection_is_authenticated) {
    struct pair p;
    const sluice_key key = {7, sizeof SECRET - 1, SECRET};
    open_resumed(&p, PAIR_LINK(.resume_ns = RESUME_NS, .keys = &key, .key_count = 1));
    for (unsigned times = 1; times < 4; times++) {
        cut(times % 2 ? &p.a : &p.b);
        down_and_up(&p, times);
        assert_int_equal(pair_send(&p.b, 64, times, NULL), 0);
        assert_true(pair_check(pair_expect(&p, &p.a, SLUICE_MESSAGE).msg, 64, times));
        assert_int_equal(connection_of(&p.a)->cm.req.key_id, 7);
    }
    pair_close(&p);
}

TEST(who_was_accepted_is_not_asked_about_again) {
    struct pair p;
    pair_open(&p, PAIR_NODE(.log = log_nothing),
              PAIR_LINK(.resume_ns = RESUME_NS, .flags = SLUICE_ASK));
    pair_dial(&p, PAIR_LINK(.resume_ns = RESUME_NS, .private_data = "me", .private_bytes = 2));
    sluice_event event = pair_expect(&p, &p.a, SLUICE_CONNECT);
    assert_int_equal(sluice_accept(event.session, &p), 0);
    pair_expect(&p, &p.b, SLUICE_UP);
    assert_ptr_equal(pair_expect(&p, &p.a, SLUICE_UP).arg, &p);
    cut(&p.b);
    down_and_up(&p, 1);
    assert_int_equal(pair_send(&p.b, 64, 1, NULL), 0);
    event = pair_expect(&p, &p.a, SLUICE_MESSAGE);
    assert_ptr_equal(event.arg, &p);
    pair_close(&p);
}

/* A dial that says it is another connection of the session there is between the two; its reason at the end. */
static sluice_reason pretend(struct pair *p, const sluice_link_options *link, const uint8_t id[16],
                             uint32_t sequence) {
    struct side first = p->b;
    pair_dial(p, link);
    struct cm_conn *conn = &connection_of(&p->b)->cm; /* before the CM thread looks at it */
    conn->resume.on = true;
    memcpy(conn->resume.session_id, id, 16);
    conn->resume.last_sequence = sequence;
    conn->resume.deadline_ns = pair_now(NULL) + SECOND;
    sluice_event event;
    do {
        pair_clock += SECOND / 100;
        assert_true(pair_next(p, &p->b, &event));
    } while (event.session.id != p->b.session.id);
    assert_int_equal(event.type, SLUICE_CLOSED);
    p->b = first;
    return (sluice_reason)event.reason;
}

static void still_talk(struct pair *p) {
    assert_int_equal(pair_send(&p->b, 64, 5, NULL), 0);
    assert_true(pair_check(pair_expect(p, &p->a, SLUICE_MESSAGE).msg, 64, 5));
}

TEST(who_forges_a_resume_harms_no_session) {
    struct pair p;
    uint8_t id[16], other[16];
    open_resumed(&p, PAIR_LINK(.resume_ns = RESUME_NS, .keepalive_ns = SLUICE_OFF));
    const sluice_link_options *link = PAIR_LINK(.resume_ns = RESUME_NS);
    memcpy(id, connection_of(&p.b)->cm.req.session_id, sizeof id);
    memcpy(other, id, sizeof other);
    other[15] ^= 1;
    still_talk(&p);
    assert_int_equal(pretend(&p, link, other, 0), SLUICE_REASON_SESSION_UNKNOWN);
    still_talk(&p);
    assert_int_equal(pretend(&p, link, id, 1), SLUICE_REASON_VALUE); /* of a frame never sent */
    still_talk(&p);
    assert_int_equal(pretend(&p, link, id, UINT32_MAX), SLUICE_REASON_VALUE);
    still_talk(&p);
    assert_int_equal(pair_info(p.a.session).resumed, 0);
    pair_close(&p);
}

/* Frames of a connection that is not up yet, of which the first is none: the session waits for the next connection. */
TEST(what_a_connection_sends_that_was_given_up_is_not_looked_at) {
    static const struct frame wrong = {.type = FRAME_TYPES, .length = 8};
    struct pair p;
    sluice_event event;
    if (pair_is_like("iwarp"))
        skip(); /* where there is a handshake first */
    open_resumed(&p, PAIR_LINK(.resume_ns = RESUME_NS));
    break_alone(&p.b);
    alone(&p, &p.b, SLUICE_DOWN);
    while (pair_session(&p.b)->state != SESSION_UP) {
        if (connection_of(&p.a)->cm.owner.state != CM_ACCEPTING)
            cm_progress(p.a.node->cm, 0);
        cm_progress(p.b.node->cm, 0);
        assert_true(sluice_poll(p.a.loop, NULL, 0, 0) >= 0);
        assert_true(sluice_poll(p.b.loop, NULL, 0, 0) >= 0);
    }
    const struct connection *refused = connection_of(&p.a);
    (void)pair_forge(&p.b, &wrong, &(uint64_t){0}, 8);
    assert_int_equal(pair_send(&p.b, 64, 5, NULL), 0);
    while (connection_of(&p.a) == refused)
        assert_true(sluice_poll(p.a.loop, NULL, 0, 0) >= 0);
    bool arrived = false;
    while (!arrived) {
        assert_true(pair_next(&p, &p.a, &event));
        arrived = event.type == SLUICE_MESSAGE;
    }
    assert_true(pair_check(event.msg, 64, 5));
    assert_int_equal(pair_session(&p.a)->state, SESSION_UP);
    pair_close(&p);
}

/* What is announced again was announced, and was not whole. */
TEST(who_announces_again_what_was_not_lost_is_refused) {
    static const struct {
        const char *name;
        uint64_t word, place, more;
    } cases[] = {
        {"no rendezvous", FRAME_DATA << 16 | 2 << 24, 0, 0},
        {"a number that there is not", 99 | FRAME_DATA << 16 | 2 << 24, 0, 0},
        {"a way that there is not", FRAME_DATA << 16 | 9 << 24, 0, 0},
        {"with answers", FRAME_DATA << 16 | 2 << 24, 0, 1},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pair p;
        open_resumed(&p, PAIR_LINK(.resume_ns = RESUME_NS));
        if (i > 0) { /* one that was whole */
            assert_int_equal(pair_send(&p.b, 1 << 20, 1, SLUICE_SEND(.tag = 1)), 0);
            assert_true(pair_check(pair_expect(&p, &p.a, SLUICE_MESSAGE).msg, 1 << 20, 1));
            pair_expect(&p, &p.b, SLUICE_SENT);
        }
        cut(&p.b);
        down_and_up(&p, 1);
        const struct frame again = {
            .type = FRAME_AGAIN, .length = FRAME_RTS_BYTES, .total = 1 << 20};
        const uint64_t payload[] = {htole64(cases[i].word), cases[i].place, 0,
                                    htole64(cases[i].more), 0};
        sluice_msg *forged = pair_forge(&p.b, &again, payload, sizeof payload);
        sluice_event event = pair_expect(&p, &p.a, SLUICE_CLOSED);
        if (event.reason != SLUICE_REASON_PROTOCOL)
            fail_msg("%s: %s", cases[i].name, sluice_reason_text(event.reason));
        pair_close(&p);
        (void)forged;
    }
}

/* Nor is another key of the same listener, or a listener without keys. */
TEST(with_keys_the_id_alone_is_no_proof) {
    struct pair p;
    uint8_t id[16];
    const sluice_key keys[] = {{7, sizeof SECRET - 1, SECRET},
                               {8, sizeof SECRET - 1, "the other secret"},
                               {7, sizeof SECRET - 1, "another secret !"}};
    pair_open(&p, PAIR_NODE(.log = log_nothing),
              PAIR_LINK(.resume_ns = RESUME_NS, .keys = keys, .key_count = 2));
    pair_connect(&p, PAIR_LINK(.resume_ns = RESUME_NS, .keys = keys, .key_count = 1));
    memcpy(id, connection_of(&p.b)->cm.req.session_id, sizeof id);
    still_talk(&p);
    assert_int_equal(pretend(&p, PAIR_LINK(.resume_ns = RESUME_NS), id, 0),
                     SLUICE_REASON_AUTH_REQUIRED);
    still_talk(&p);
    (void)pretend(&p, PAIR_LINK(.resume_ns = RESUME_NS, .keys = &keys[2], .key_count = 1), id, 0);
    still_talk(&p);
    assert_int_equal(
        pretend(&p, PAIR_LINK(.resume_ns = RESUME_NS, .keys = &keys[1], .key_count = 1), id, 0),
        SLUICE_REASON_SESSION_UNKNOWN);
    still_talk(&p);
    pair_listen(&p, PAIR_LINK(.resume_ns = RESUME_NS));
    assert_int_equal(pretend(&p, PAIR_LINK(.resume_ns = RESUME_NS), id, 0),
                     SLUICE_REASON_SESSION_UNKNOWN);
    still_talk(&p);
    assert_int_equal(pair_info(p.a.session).resumed, 0);
    pair_close(&p);
}
