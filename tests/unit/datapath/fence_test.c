/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * fence_test.c - one-sided operations of a session whose connection is lost: none is done twice, and nothing that was accepted
 * behind one of which it is not known whether it was done arrives.
 */
#include "support/fault.h"
#include "support/memory.h"
#include "support/request.h"
#include "support/resume.h"
#include "support/where.h"

#define BYTES (2u << 20)

/* Both nodes, a session that outlives its connection, and both regions. */
static void open_with(struct memory *m, const sluice_link_options *link, uint32_t rendezvous) {
    memset(m, 0, sizeof *m);
    resume_open_with(&m->pair, link, rendezvous);
    memory_regions(m, BYTES, ALL_RIGHTS);
}

/* What b posts from now on waits, until its connection is lost. */
static void hold_sends(struct memory *m) {
    char plan[80];
    (void)m;
    snprintf(plan, sizeof plan, "qp=* send=* delay=60s");
    fault_plan(plan);
}

static int put(struct memory *m, uint64_t bytes, uint64_t tag) {
    memory_fill(memory_here(m), bytes, (unsigned)tag);
    return sluice_put(m->pair.b.session, m->here, 0, bytes, &m->token, 0, SLUICE_SEND(.tag = tag));
}

/* The next event of b that is neither DOWN, UP nor WRITABLE. */
static sluice_event next_of(struct memory *m, struct side *side) {
    sluice_event event;
    do
        must_data(pair_next(&m->pair, side, &event));
    while (event.type == SLUICE_DOWN || event.type == SLUICE_UP || event.type == SLUICE_WRITABLE);
    return event;
}

static void expect_outcome(struct memory *m, sluice_event_type type, uint64_t tag, int status) {
    sluice_event event = next_of(m, &m->pair.b);
    must_data_equal(event.type, type);
    must_data_equal(event.tag, tag);
    assert_int_equal(event.status, status);
}

/* b's connection is lost, and what it is sent from now on moves again. */
static void lose(struct memory *m) {
    resume_break_alone(&m->pair.b);
    resume_alone(&m->pair, &m->pair.b, SLUICE_DOWN);
    fault_clear();
    pair_rnr_provoked = true; /* what is sent to a queue pair that broke finds none */
}

/* One READ after the other: a device may take what is sent behind one before it has answered that. */
TEST(a_side_that_leaves_its_connection_has_no_operation_under_way) {
    struct memory m;
    sluice_event event;
    bool waited = false;
    unsigned open = 0;
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    open_with(&m, PAIR_LINK(.resume_ns = RESUME_NS), SLUICE_RENDEZVOUS_AUTO);
    struct pair *p = &m.pair;
    struct session *s = pair_session(&p->b);
    fault_plan("qp=* send=* delay=20ms");
    assert_true(resume_move(&p->b));
    while (resume_moves(&p->a) || resume_moves(&p->b) || open) {
        assert_true(env_now(&env_default) < limit);
        if (!open && resume_moves(&p->b)) {
            assert_int_equal(
                sluice_get(p->b.session, m.here, 0, 8, &m.token, 0, SLUICE_SEND(.tag = 1)), 0);
            open++;
        }
        assert_false(resume_goes_on(p, &p->a, &event));
        if (resume_goes_on(p, &p->b, &event)) {
            assert_int_equal(event.type, SLUICE_DONE);
            assert_int_equal(event.status, 0);
            open--;
        }
        uint32_t posted = session_connection(s)->rma.posted;
        waited |= s->move.step == MOVE_QUIETS && posted > 0;
        assert_true(s->move.step != MOVE_SAID || posted == 0);
    }
    assert_true(waited);
    fault_clear();
    pair_close(p);
}

/* ---- one by one -------------------------------------------------------------------------------- */

/* Small, and of several requests, of which some are not posted. */
TEST(what_is_behind_an_operation_that_may_be_undone_does_not_arrive) {
    static const uint64_t sizes[] = {8, 5000, BYTES};
    for (unsigned i = 0; i < 3; i++) {
        struct memory m;
        open_with(&m, PAIR_LINK(.resume_ns = RESUME_NS), SLUICE_RENDEZVOUS_AUTO);
        struct side *b = &m.pair.b;
        assert_int_equal(pair_send(b, 64, 1, SLUICE_SEND(.tag = 1)), 0);
        must_data_equal(next_of(&m, b).tag, 1);
        hold_sends(&m);
        assert_int_equal(put(&m, sizes[i], 2), 0);
        assert_int_equal(pair_send(b, 64, 2, SLUICE_SEND(.tag = 3)), 0);
        assert_int_equal(pair_send(b, 60000, 3, SLUICE_SEND(.tag = 4)), 0);
        assert_int_equal(pair_request(b, 64, 4, SLUICE_SEND(.tag = 5)), 0);
        assert_int_equal(sluice_get(b->session, m.here, 0, 8, &m.token, 0, SLUICE_SEND(.tag = 6)),
                         0);
        lose(&m);
        assert_int_equal(pair_send(b, 64, 5, SLUICE_SEND(.tag = 7)), 0); /* it is not behind */
        expect_outcome(&m, SLUICE_DONE, 2, SLUICE_EUNKNOWN);
        bool fenced[7] = {false};
        for (unsigned n = 0; n < 4; n++) {
            sluice_event event = next_of(&m, b);
            if (event.tag != 6 || event.status != SLUICE_EUNKNOWN) /* it was posted, too */
                assert_int_equal(event.status, SLUICE_EFENCED);
            must_data(event.tag >= 3 && event.tag <= 6 && !fenced[event.tag]);
            fenced[event.tag] = true;
        }
        expect_outcome(&m, SLUICE_SENT, 7, 0);
        assert_true(pair_check(next_of(&m, &m.pair.a).msg, 64, 1));
        assert_true(pair_check(next_of(&m, &m.pair.a).msg, 64, 5));
        assert_true(memory_untouched(memory_there(&m), BYTES));
        pair_await(&m.pair, pair_info(b->session).window_messages_used == 0);
        memory_close(&m);
    }
}

/* A put is behind its own frame: the peer has that, so it has been done. */
TEST(a_put_with_a_frame_behind_it_that_arrived_was_done) {
    struct memory m;
    open_with(&m, PAIR_LINK(.resume_ns = RESUME_NS), SLUICE_RENDEZVOUS_AUTO);
    struct side *b = &m.pair.b;
    assert_int_equal(put(&m, 5000, 1), 0);
    assert_int_equal(pair_send(b, 64, 2, SLUICE_SEND(.tag = 2)), 0);
    assert_true(pair_check(resume_alone(&m.pair, &m.pair.a, SLUICE_MESSAGE).msg, 64, 2));
    resume_break_alone(b);
    for (bool seen[3] = {true}; !seen[1] || !seen[2];) {
        sluice_event event = next_of(&m, b);
        assert_int_equal(event.status, 0);
        must_data(event.tag <= 2 && !seen[event.tag]);
        seen[event.tag] = true;
    }
    assert_true(memory_holds(memory_there(&m), 5000, 1));
    memory_close(&m);
}

/* Its requester is told, though the answer is fenced off; sent, or waiting to be. */
TEST(a_request_whose_answer_is_behind_such_an_operation_has_an_outcome) {
    enum { MOST = 40 }; /* more large replies than there are numbers for */
    for (unsigned count = 1; count <= MOST; count += MOST - 1) {
        struct memory m;
        uint64_t tokens[MOST];
        open_with(&m, PAIR_LINK(.resume_ns = RESUME_NS), SLUICE_RENDEZVOUS_AUTO);
        struct side *a = &m.pair.a, *b = &m.pair.b;
        for (unsigned i = 0; i < count; i++) {
            assert_int_equal(pair_request(a, 64, 1, SLUICE_SEND(.tag = i + 1)), 0);
            sluice_event event = next_of(&m, b);
            must_data_equal(event.type, SLUICE_REQUEST);
            tokens[i] = event.token;
        }
        hold_sends(&m);
        assert_int_equal(put(&m, 8, 2), 0);
        for (unsigned i = 0; i < count; i++) {
            sluice_msg *msg;
            assert_int_equal(sluice_alloc(b->node, count > 1 ? 60000 : 64, &msg), 0);
            assert_int_equal(sluice_reply(b->session, tokens[i], msg), 0);
        }
        assert_int_equal(pair_session(b)->tx.replies.head != NULL, count > 1);
        lose(&m);
        expect_outcome(&m, SLUICE_DONE, 2, SLUICE_EUNKNOWN);
        bool told[MOST + 1] = {false};
        for (unsigned i = 0; i < count; i++) {
            sluice_event event = next_of(&m, a);
            must_data(event.type == SLUICE_REPLY && event.tag <= count && !told[event.tag]);
            assert_int_equal(event.status, SLUICE_EUNKNOWN);
            told[event.tag] = true;
        }
        memory_close(&m);
    }
}

/* There is no other connection: what was held until then ends with the session. */
TEST(operations_end_with_a_session_that_does_not_come_back) {
    for (unsigned how = 0; how < 3; how++) {
        struct memory m;
        open_with(&m, PAIR_LINK(.resume_ns = RESUME_NS), SLUICE_RENDEZVOUS_AUTO);
        struct side *b = &m.pair.b;
        sluice_unlisten(m.pair.listener);
        hold_sends(&m);
        assert_int_equal(put(&m, BYTES, 1), 0); /* more than is posted at once */
        assert_int_equal(sluice_get(b->session, m.here, 0, 8, &m.token, 0, SLUICE_SEND(.tag = 2)),
                         0);
        assert_int_equal(pair_send(b, 64, 3, SLUICE_SEND(.tag = 3)), 0);
        lose(&m);
        if (how == 0)
            pair_clock += RESUME_NS;
        else if (how == 1)
            sluice_hangup(b->session, 0);
        for (unsigned outcomes = 0; how < 2 && outcomes < 3; outcomes++) {
            sluice_event event = next_of(&m, b);
            assert_true(event.type == SLUICE_DONE || event.type == SLUICE_SENT);
            assert_int_equal(event.status, event.tag == 1 ? SLUICE_EUNKNOWN : SLUICE_ECLOSED);
        }
        if (how < 2)
            must_data_equal(next_of(&m, b).type, SLUICE_CLOSED);
        memory_close(&m);
    }
}

TEST(operations_are_accepted_while_it_is_down) {
    struct memory m;
    open_with(&m, PAIR_LINK(.resume_ns = RESUME_NS), SLUICE_RENDEZVOUS_AUTO);
    struct side *b = &m.pair.b;
    memory_fill(memory_there(&m), 5000, 3);
    resume_break_alone(b);
    resume_alone(&m.pair, b, SLUICE_DOWN);
    assert_int_equal(sluice_get(b->session, m.here, 0, 5000, &m.token, 0, SLUICE_SEND(.tag = 1)),
                     0);
    expect_outcome(&m, SLUICE_DONE, 1, 0);
    assert_true(memory_holds(memory_here(&m), 5000, 3));
    memory_close(&m);
}

/* ---- everything, cut at any moment ------------------------------------------------------------- */

enum { MESSAGES = 120, PUTS = 60, LARGE_PUT = 300000, LARGE_AT = 1 << 20, GET_AT = 3 << 19 };
enum {
    TAG_REQUEST = 1 << 16,
    TAG_PUT = 2 << 16,
    TAG_ADD = 3 << 16,
    TAG_GET = 4 << 16,
    TAG_FENCE = 5 << 16
};
enum told { NOTHING, DONE, FENCED, UNKNOWN, EXPIRED };

/* What one side has given, and what became of it. */
struct end {
    struct side *side;
    unsigned sent, asked, puts, adds, gets, downs, ups;
    unsigned
        put_floor; /* puts before it have an outcome, or were lost before what comes now was accepted */
    uint8_t message[MESSAGES], request[MESSAGES], put[PUTS]; /* enum told */
    bool arrived[MESSAGES], executed[MESSAGES], notified[PUTS];
    unsigned behind_from[MESSAGES], behind_to[MESSAGES]; /* puts that a message is behind */
    unsigned added, maybe_added, open;
    uint64_t times; /* that it has been up again */
    int last, last_asked, last_notified;
    bool up;
};

static struct memory walk;
static struct end ends[2]; /* a, b */
static unsigned burst;     /* how often what is given waits for more: one time in so many */
static unsigned met[5][2]; /* in all walks, of messages to reads: fenced off, and unknown */
static size_t size_of(unsigned i) {
    static const size_t sizes[] = {8, 64, 200, 511, 3000, 8168, 8169, 20000, 50000};
    return sizes[i * 7 % (sizeof sizes / sizeof *sizes)];
}

static sluice_msg *numbered(struct end *e, unsigned number, size_t bytes) {
    sluice_msg *msg;
    uint64_t word = number;
    if (sluice_alloc(e->side->node, bytes, &msg) != 0)
        return NULL;
    memcpy(sluice_data(msg), &word, sizeof word);
    pair_fill_bytes((uint8_t *)sluice_data(msg) + 8, bytes - 8, number);
    return msg;
}

static unsigned number_of(const sluice_event *event, size_t (*bytes)(unsigned)) {
    uint64_t word;
    must_data(event->bytes >= 8);
    memcpy(&word, sluice_data(event->msg), sizeof word);
    must_data(word < MESSAGES && event->bytes == bytes((unsigned)word) &&
              pair_holds((uint8_t *)sluice_data(event->msg) + 8, event->bytes - 8, (unsigned)word));
    return (unsigned)word;
}

static void give_message(struct end *e) {
    unsigned i = e->sent;
    sluice_msg *msg = i < MESSAGES ? numbered(e, i, size_of(i)) : NULL;
    if (!msg)
        return;
    const sluice_send_options *o =
        SLUICE_SEND(.tag = i + 1, .flags = resume_chance(burst) == 0 ? SLUICE_MORE : 0,
                    .deadline_ns = resume_chance(10) == 0 ? pair_now(NULL) + 2000000 : 0);
    if (resume_chance(4) == 0) {
        const sluice_piece pieces[] = {
            {.data = sluice_data(msg), .bytes = 8},
            {.data = (uint8_t *)sluice_data(msg) + 8, .bytes = size_of(i) - 8}};
        int status = sluice_send_pieces(e->side->session, pieces, 2, o);
        sluice_free(msg);
        if (status != 0)
            return;
    } else if (sluice_send(e->side->session, msg, o) != 0) {
        sluice_free(msg);
        return;
    }
    e->behind_from[i] = e->put_floor;
    e->behind_to[i] = e->puts;
    e->sent++;
    e->open++;
}

static void give_request(struct end *e) {
    unsigned i = e->asked;
    sluice_msg *msg = i < MESSAGES / 4 ? numbered(e, i, size_of(i)) : NULL;
    if (!msg)
        return;
    const sluice_send_options *o =
        SLUICE_SEND(.tag = TAG_REQUEST + i, .flags = resume_chance(burst) == 0 ? SLUICE_MORE : 0,
                    .deadline_ns = resume_chance(10) == 0 ? pair_now(NULL) + 2000000 : 0);
    if (sluice_request(e->side->session, msg, o) != 0) {
        sluice_free(msg);
        return;
    }
    e->asked++;
    e->open++;
    if (resume_chance(10) == 0)
        sluice_cancel(e->side->session, TAG_REQUEST + resume_chance(e->asked));
}

static bool is_large(unsigned k) {
    return k % 4 == 1;
}

static bool notifies(unsigned k) {
    return k % 3 == 1;
}

/* Each small one has a word of its own. */
static void give_put(struct end *e) {
    unsigned k = e->puts;
    if (k >= PUTS)
        return;
    uint64_t at = is_large(k) ? LARGE_AT : 8 * k, bytes = is_large(k) ? LARGE_PUT : 8;
    if (!is_large(k)) /* those read the same bytes */
        memory_here(&walk)[at] = (uint8_t)(k + 1);
    const sluice_send_options *o =
        SLUICE_SEND(.tag = TAG_PUT + k, .flags = resume_chance(burst) == 0 ? SLUICE_MORE : 0);
    int status =
        notifies(k)
            ? sluice_put_notify(e->side->session, walk.here, at, bytes, &walk.token, at, k, o)
            : sluice_put(e->side->session, walk.here, at, bytes, &walk.token, at, o);
    e->puts += status == 0;
    e->open += status == 0;
}

static void give_read(struct end *e) {
    sluice_session s = e->side->session;
    if (resume_chance(3) == 0) {
        e->open += sluice_fence(s, SLUICE_SEND(.tag = TAG_FENCE)) == 0;
    } else if (resume_chance(2) && memory_rights(&walk) & SLUICE_MAY_ATOMIC) {
        e->open += sluice_fetch_add(s, &walk.token, 8 * PUTS, 1, SLUICE_SEND(.tag = TAG_ADD)) == 0;
    } else {
        e->open += sluice_get(s, walk.here, GET_AT, 20000, &walk.token, GET_AT,
                              SLUICE_SEND(.tag = TAG_GET)) == 0;
    }
}

static void give(struct end *e) {
    unsigned what = resume_chance(e == &ends[1] ? 12 : 6);
    if (what < 4)
        give_message(e);
    else if (what < 6)
        give_request(e);
    else if (what < 10)
        give_put(e);
    else
        give_read(e);
}

static enum told told_of(int status) {
    bool expired = status == SLUICE_ETIMEDOUT || status == SLUICE_ECANCELLED;
    must_data(status == 0 || status == SLUICE_EFENCED || status == SLUICE_EUNKNOWN || expired);
    return status == 0 ? DONE : expired ? EXPIRED : status == SLUICE_EFENCED ? FENCED : UNKNOWN;
}

static void count(unsigned kind, int status) {
    met[kind][0] += status == SLUICE_EFENCED;
    met[kind][1] += status == SLUICE_EUNKNOWN;
}

static void note(uint8_t *told, int status) {
    must_data_equal(*told, NOTHING); /* one outcome */
    *told = (uint8_t)told_of(status);
}

static void see_done(struct end *e, const sluice_event *event) {
    unsigned k = (unsigned)(event->tag - TAG_PUT);
    enum told told = told_of(event->status);
    count(event->tag < TAG_ADD ? 2 + notifies(k) : 4, event->status);
    if (event->tag < TAG_ADD) {
        note(&e->put[k], event->status);
        while (e->put_floor < e->puts && e->put[e->put_floor] != NOTHING)
            e->put_floor++;
    } else if (event->tag == TAG_ADD) {
        e->added += told == DONE;
        e->maybe_added += told != FENCED;
    } else if (told == DONE && event->tag == TAG_GET) {
        must_data(memory_holds(memory_here(&walk) + GET_AT, 20000, 9));
    }
}

/* A message of e's is here: what it is behind was done. */
static void see_message(struct end *e, unsigned i) {
    must_data((int)i > e->last && (e->message[i] == NOTHING || e->message[i] == DONE));
    e->last = (int)i;
    e->arrived[i] = true;
    for (unsigned k = e->behind_from[i]; k < e->behind_to[i]; k++)
        if (!is_large(k))
            must_data_equal(memory_there(&walk)[8 * k], k + 1);
}

static size_t reply_size(unsigned i) {
    return size_of(i + 3);
}

static void see_request(struct end *e, struct end *other, const sluice_event *event) {
    unsigned i = number_of(event, size_of);
    must_data((int)i > other->last_asked);
    other->last_asked = (int)i;
    other->executed[i] = true;
    sluice_msg *msg = numbered(e, i, reply_size(i));
    assert_non_null(msg);
    assert_int_equal(sluice_reply(event->session, event->token, msg), 0);
}

static void see(struct end *e, struct end *other, const sluice_event *event) {
    switch ((sluice_event_type)event->type) {
    case SLUICE_MESSAGE:
        see_message(other, number_of(event, size_of));
        return;
    case SLUICE_NOTIFIED:
        must_data((int)event->value > other->last_notified);
        other->last_notified = (int)event->value;
        other->notified[event->value] = true;
        return;
    case SLUICE_REQUEST:
        see_request(e, other, event);
        return;
    case SLUICE_SENT:
        must_data(event->status != SLUICE_EUNKNOWN);
        count(0, event->status);
        note(&e->message[event->tag - 1], event->status);
        break;
    case SLUICE_REPLY:
        count(1, event->status);
        note(&e->request[event->tag - TAG_REQUEST], event->status);
        if (event->status == 0)
            must_data_equal(number_of(event, reply_size), event->tag - TAG_REQUEST);
        break;
    case SLUICE_DONE:
        see_done(e, event);
        break;
    case SLUICE_DOWN:
        e->put_floor = e->puts; /* what is accepted now is behind none of these */
        e->downs++;
        e->up = false;
        return;
    case SLUICE_UP:
        if (event->tag > e->times + 1) /* it was down again, which is told by this */
            e->put_floor = e->puts;
        e->times = event->tag;
        e->ups++;
        e->up = true;
        return;
    case SLUICE_WRITABLE:
        return;
    case SLUICE_CLOSED:
    case SLUICE_WAKE:
    case SLUICE_MOVED:
    case SLUICE_CONNECT:
    case SLUICE_LARGE:
        fail_msg("%s (%s)", sluice_event_name(event->type), sluice_reason_text(event->reason));
    }
    must_data(e->open > 0);
    e->open--;
}

static void one_turn(unsigned i) {
    struct end *e = &ends[i];
    sluice_event event;
    if (resume_chance(3) == 0)
        cm_progress(e->side->node->cm, 0);
    int n = sluice_poll(e->side->loop, &event, 1, 0);
    if (n == 1)
        see(e, &ends[!i], &event);
}

/* What was said of each is so. */
static void check(const struct end *e) {
    for (unsigned i = 0; i < e->sent; i++)
        must_data_equal(e->arrived[i], e->message[i] == DONE);
    for (unsigned i = 0; i < e->asked; i++)
        if (e->request[i] != EXPIRED)
            must_data_equal(e->executed[i], e->request[i] != FENCED);
    for (unsigned k = 0; k < e->puts; k++) {
        if (notifies(k))
            must_data_equal(e->notified[k], e->put[k] == DONE);
        if (!is_large(k) && e->put[k] != UNKNOWN)
            must_data_equal(memory_there(&walk)[8 * k], e->put[k] == DONE ? k + 1 : 0);
    }
}

/* The peer's library has some that its application has not seen yet. */
static bool is_awaited(const struct end *e) {
    for (unsigned i = 0; i < e->sent; i++)
        if (e->message[i] == DONE && !e->arrived[i])
            return true;
    for (unsigned k = 0; k < e->puts; k++)
        if (notifies(k) && e->put[k] == DONE && !e->notified[k])
            return true;
    return false;
}

static bool goes_on(void) {
    for (unsigned i = 0; i < 2; i++)
        if (ends[i].sent < MESSAGES || ends[i].open > 0 || !ends[i].up || is_awaited(&ends[i]))
            return true;
    return false;
}

static void one_walk(uint64_t from, unsigned losses) {
    resume_seed = from;
    memset(ends, 0, sizeof ends);
    burst = 2 + resume_chance(6);
    uint32_t rendezvous = resume_chance(pair_is_like("iwarp") ? 2 : 3);
    open_with(&walk,
              PAIR_LINK(.resume_ns = RESUME_NS, .requests = 1 + resume_chance(16),
                        .window_messages = resume_chance(2) ? 0 : 1 + resume_chance(40),
                        .credits = resume_chance(2) ? 0 : 4 + resume_chance(60),
                        .flags = resume_chance(2) ? 0 : SLUICE_ISOLATED),
              rendezvous);
    memset(memory_there(&walk), 0, 16 * PUTS);
    memset(memory_here(&walk), 0, 16 * PUTS);
    memory_fill(memory_there(&walk) + GET_AT, 20000, 9);
    ends[0].side = &walk.pair.a, ends[1].side = &walk.pair.b;
    for (unsigned i = 0; i < 2; i++)
        ends[i].last = ends[i].last_asked = ends[i].last_notified = -1, ends[i].up = true;
    if (from % 2)
        fault_plan("qp=* send=* delay=50us");
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    while (goes_on()) {
        struct end *e = &ends[resume_chance(2)];
        for (unsigned n = resume_chance(4); n > 0 && e->sent < MESSAGES; n--)
            give(e);
        one_turn(resume_chance(2));
        if (losses > 0 && ends[0].sent > 4 && resume_chance(60) == 0) {
            resume_lose(ends[resume_chance(2)].side);
            losses--;
        }
        pair_clock += resume_chance(16) == 0 ? 1000000 : 0;
        if (env_now(&env_default) > limit)
            fail_msg("seed %llu: %u and %u have no outcome", (unsigned long long)from, ends[0].open,
                     ends[1].open);
    }
    fault_clear();
    for (unsigned i = 0; i < 2; i++) {
        check(&ends[i]);
        pair_await(&walk.pair, pair_info(ends[i].side->session).window_messages_used == 0);
    }
    uint64_t added;
    memcpy(&added, memory_there(&walk) + 8 * PUTS, sizeof added);
    must_data(added >= ends[1].added && added <= ends[1].maybe_added);
    pair_rnr_provoked = true; /* as in lose() */
    memory_close(&walk);
}

TEST(nothing_is_done_twice_and_nothing_arrives_that_should_not_whatever_is_cut) {
    uint64_t last = it_long() ? 300 : 40;
    for (uint64_t from = 1; from <= last; from++)
        one_walk(from, (unsigned)from % 12);
    for (unsigned kind = 0; kind < 5; kind++) /* or it was not tried */
        assert_true((kind == 4 || met[kind][0] > 0) && (kind == 0 || met[kind][1] > 0));
}
