/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * resume_walk_test.c - connections are cut at any moment, and sessions move to others, and what was accepted is delivered once and in order.
 */
#include "support/pair.h"
#include "support/resume.h"
#include "support/where.h"

enum { MANY = 300, LARGE = 50000 };

/* What one side has done and seen. */
struct end {
    struct side *side;
    sluice_loop *loops[2]; /* it may move between these */
    unsigned total, sent, received, told, asked, answered, replied;
    unsigned downs, ups;
    bool up, outcome[MANY + 1]; /* by tag */
};

static size_t size_of(unsigned i) {
    static const size_t sizes[] = {0, 1, 64, 200, 511, 3000, 8168, 8169, 20000, LARGE};
    return sizes[i * 7 % (sizeof sizes / sizeof *sizes)];
}

/* As a message, of pieces that are copied, or as one that waits for more. */
static int send_next(struct end *e) {
    unsigned i = e->sent;
    const sluice_send_options *o =
        SLUICE_SEND(.tag = i + 1, .flags = resume_chance(4) == 0 ? SLUICE_MORE : 0);
    if (resume_chance(4) || size_of(i) == 0)
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
    case SLUICE_MOVED:
        assert_ptr_equal(session_mail(pair_session(e->side)), e->side->loop);
        return;
    }
    fail_msg("%s (%s)", sluice_event_name(event->type), sluice_reason_text(event->reason));
}

static void turn_end(struct pair *p, struct end *e) {
    sluice_event event;
    if (resume_chance(3) == 0)
        cm_progress(e->side->node->cm, 0);
    if (e->loops[1])
        e->side->loop = e->loops[resume_chance(2)];
    if (sluice_poll(e->side->loop, &event, 1, 0) == 1)
        see(e, &event);
    (void)p;
}

static void add_loop(struct end *e) {
    sluice_error error;
    e->loops[0] = e->side->loop;
    assert_int_equal(sluice_loop_open(e->side->node, &e->loops[1], &error), 0);
}

/* To the other loop, or to another connection on this one. True: it began. */
static bool move(struct end *e) {
    struct session *s = pair_session(e->side);
    if (resume_chance(3) == 0)
        return s->link_config.dialing && resume_move(e->side);
    return sluice_session_move(e->side->session, e->loops[session_mail(s) == e->loops[0]]) == 0;
}

/* The second loop is given back where it is not on it: the first one is the listener's, too. */
static void settle(struct pair *p, struct end *e) {
    if (!e->loops[1])
        return;
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    while (resume_moves(&p->a) || resume_moves(&p->b)) {
        turn_end(p, e);
        turn_end(p, e + 1);
        assert_true(env_now(&env_default) < limit);
    }
    for (unsigned i = 0; i < 2; i++) {
        e[i].side->loop = session_mail(pair_session(e[i].side));
        while (e[i].side->loop == e[i].loops[0] && sluice_loop_close(e[i].loops[1]) != 0) {
            assert_true(env_now(&env_default) < limit); /* a guest may not be wholly gone */
            pair_turn(p);
        }
    }
}

static bool is_done(const struct end *e, const struct end *other) {
    return e->sent == e->total && other->received == e->total &&
           e->told == e->total - (e->total + 2) / 3 && e->replied == e->asked && e->up;
}

static void one_walk(uint64_t from, unsigned losses, unsigned moves) {
    struct pair p;
    bool breaks = losses > 0, left = moves > 0;
    resume_seed = from;
    uint32_t rendezvous = resume_chance(pair_is_like("iwarp") ? 2 : 3);
    resume_open_with(&p,
                     PAIR_LINK(.resume_ns = RESUME_NS, .requests = 1 + resume_chance(16),
                               .window_messages = resume_chance(2) ? 0 : 1 + resume_chance(40),
                               .credits = resume_chance(2) ? 0 : 4 + resume_chance(60),
                               .flags = resume_chance(2) ? 0 : SLUICE_ISOLATED),
                     rendezvous);
    struct end ends[2] = {{.side = &p.a, .total = MANY, .up = true},
                          {.side = &p.b, .total = MANY, .up = true}};
    for (unsigned i = 0; moves > 0 && i < 2; i++)
        add_loop(&ends[i]);
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    while (!is_done(&ends[0], &ends[1]) || !is_done(&ends[1], &ends[0])) {
        struct end *e = &ends[resume_chance(2)];
        for (unsigned n = resume_chance(4); n > 0 && e->sent < e->total; n--)
            e->sent += send_next(e) == 0;
        if (resume_chance(8) == 0 && e->asked < MANY / 4)
            ask(e);
        turn_end(&p, &ends[resume_chance(2)]);
        if (losses > 0 && ends[0].received + ends[1].received > 0 && resume_chance(60) == 0) {
            resume_lose(ends[resume_chance(2)].side);
            losses--;
        }
        if (moves > 0 && resume_chance(20) == 0)
            moves -= move(&ends[resume_chance(2)]);
        pair_clock += resume_chance(16) == 0 ? 1000000 : 0;
        if (env_now(&env_default) > limit)
            fail_msg("seed %llu: %u of %u, %u of %u messages arrived, %u of %u, %u of %u outcomes",
                     (unsigned long long)from, ends[1].received, ends[0].sent, ends[0].received,
                     ends[1].sent, ends[0].told, ends[0].total, ends[1].told, ends[1].total);
    }
    settle(&p, ends);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(ends[i].downs, ends[i].ups);
        if (!breaks)
            assert_int_equal(ends[i].downs, 0);
        pair_await(&p, pair_info(ends[i].side->session).window_messages_used == 0);
    }
    pair_rnr_provoked =
        breaks || left; /* what is sent to a queue pair that broke, or was left, finds none */
    pair_close(&p);
}

TEST(what_was_accepted_arrives_once_and_in_order_whatever_is_cut) {
    uint64_t last = it_long() ? 300 : 40;
    for (uint64_t from = 1; from <= last; from++)
        one_walk(from, (unsigned)from % 12, 0);
}

/* To another connection, of which no application is told; some lose their connection besides. */
TEST(what_was_accepted_arrives_once_and_in_order_wherever_it_moves) {
    uint64_t last = it_long() ? 300 : 40;
    for (uint64_t from = 1001; from <= 1000 + last; from++)
        one_walk(from, from % 2 ? 0 : (unsigned)from % 7, 1 + (unsigned)from % 9);
}
