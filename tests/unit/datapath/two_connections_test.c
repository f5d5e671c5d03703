/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * two_connections_test.c - a session with two connections: it goes from one to the other, and each receives, completes and ends
 * by itself. The second one's queue pairs are moved up by hand, as no call of the library makes one yet.
 */
#include "support/pair.h"

#include <errno.h>

#include "datapath/session/close.h"
#include "datapath/session/connections.h"
#include "datapath/session/drain.h"

enum { MESSAGES = 100, LARGE = 4000, WINDOW = 256 };

/* Own receives of each connection, or those that the sessions of a loop share. */
static const struct variant {
    const char *name;
    uint32_t flags;
} variants[] = {{"own", SLUICE_ISOLATED}, {"shared", 0}};

static struct connection *add(struct side *side) {
    struct session *s = pair_session(side);
    const struct cm_conn *first = &s->connection->cm;
    struct connection *c = connection_add(side->loop, s);
    assert_non_null(c);
    c->cm.passive = first->passive;
    c->cm.req = first->req;
    c->cm.rep = first->rep;
    c->cm.init = first->init;
    c->cm.init_mask = first->init_mask;
    c->cm.rtr = first->rtr;
    c->cm.rtr_mask = first->rtr_mask;
    c->cm.rts = first->rts;
    c->cm.rts_mask = first->rts_mask;
    sluice_reason reason;
    const char *wrong = connection_build(side->loop, c, &reason);
    if (wrong)
        fail_msg("%s: errno %d", wrong, errno);
    connection_agree(c);
    c->recv.heard = true;
    return c;
}

/* Another connection between the two, unused. */
static void add_both(struct pair *p, struct connection *c[2]) {
    struct side *sides[2] = {&p->a, &p->b};
    for (unsigned i = 0; i < 2; i++)
        c[i] = add(sides[i]);
    for (unsigned i = 0; i < 2; i++) {
        c[i]->cm.rtr.dest_qp_num = c[!i]->qp->qp_num;
        assert_true(connection_up(c[i]));
    }
}

static void switch_both(struct pair *p, struct connection *c[2]) {
    assert_true(connection_switch(p->a.loop, pair_session(&p->a), c[0]));
    assert_true(connection_switch(p->b.loop, pair_session(&p->b), c[1]));
}

static void send_some(struct side *side, unsigned from, unsigned count) {
    for (unsigned i = from; i < from + count; i++)
        assert_int_equal(pair_send(side, i % 3 ? 64 : LARGE, i, NULL), 0);
}

static void expect_some(struct pair *p, struct side *side, unsigned from, unsigned count) {
    for (unsigned i = from; i < from + count; i++)
        assert_true(pair_check(pair_expect(p, side, SLUICE_MESSAGE).msg, i % 3 ? 64 : LARGE, i));
}

/* Both ways, in turns that the credits allow. */
static void talk(struct pair *p, unsigned from) {
    for (unsigned i = from; i < from + MESSAGES; i += 10) {
        send_some(&p->a, i, 10);
        send_some(&p->b, i, 10);
        expect_some(p, &p->b, i, 10);
        expect_some(p, &p->a, i, 10);
    }
}

static void open(struct pair *p, const struct variant *v) {
    pair_open(p, PAIR_NODE(), PAIR_LINK(.flags = v->flags));
    pair_connect(p, PAIR_LINK(.flags = v->flags));
    talk(p, 0);
}

/* What the test makes by hand the kernel would have to know of. */
#define NEEDS_RAW_QUEUE_PAIRS()                                                                    \
    if (pair_is_like("iwarp"))                                                                     \
    skip()

TEST(a_session_goes_from_connection_to_connection_and_back) {
    NEEDS_RAW_QUEUE_PAIRS();
    for (unsigned v = 0; v < 2; v++) {
        struct pair p;
        struct connection *first[2], *second[2];
        open(&p, &variants[v]);
        first[0] = pair_session(&p.a)->connection, first[1] = pair_session(&p.b)->connection;
        add_both(&p, second);
        talk(&p, 1000); /* as if the second one were not there */
        assert_int_equal(second[0]->tx.sequence + second[0]->rx.sequence, 0);
        for (unsigned turn = 0; turn < 3; turn++) {
            uint32_t before = first[0]->rx.sequence;
            switch_both(&p, second);
            talk(&p, 2000 + 1000 * turn);
            assert_int_equal(first[0]->rx.sequence, before);
            before = second[0]->rx.sequence;
            assert_int_not_equal(before, 0);
            switch_both(&p, first);
            talk(&p, 5000 + 1000 * turn);
            assert_int_equal(second[0]->rx.sequence, before);
        }
        pair_close(&p);
    }
}

TEST(what_was_sent_before_a_switch_arrives_and_completes_where_it_was_sent) {
    NEEDS_RAW_QUEUE_PAIRS();
    for (unsigned v = 0; v < 2; v++) {
        struct pair p;
        struct connection *second[2];
        open(&p, &variants[v]);
        add_both(&p, second);
        for (unsigned i = 0; i < 50; i++) { /* if a credit were lost in each, none would be left */
            unsigned n = 1 + i % 7;
            struct session *s = pair_session(&p.b);
            struct connection *before = s->connection;
            uint32_t sent = before->tx.sequence;
            send_some(&p.b, 100 * n, n);
            assert_int_equal(before->tx.sequence, sent + n);
            assert_true(connection_switch(p.b.loop, s, before->next));
            expect_some(&p, &p.a, 100 * n, n);
            assert_true(connection_switch(p.a.loop, pair_session(&p.a),
                                          pair_session(&p.a)->connection->next));
            talk(&p, 1000 * i);
            pair_await(&p, before->sq.head == before->sq.tail);
            assert_int_equal(before->tx.sequence, sent + n);
        }
        pair_close(&p);
    }
}

TEST(a_connection_that_is_retired_leaves_the_session_as_it_is) {
    NEEDS_RAW_QUEUE_PAIRS();
    for (unsigned v = 0; v < 2; v++)
        for (unsigned twice = 0; twice < 2; twice++) {
            struct pair p;
            struct connection *next[2], *first;
            open(&p, &variants[v]);
            uint32_t used = p.b.loop->cq_used;
            first = pair_session(&p.b)->connection;
            uint64_t late = wr_send_id(first, first->sq.tail - 1);
            for (unsigned i = 0; i <= twice; i++) {
                add_both(&p, next);
                switch_both(&p, next);
                talk(&p, 1000);
                /* One side retires it; the other one hears that it is gone, or retires it as well. */
                connection_retire(p.b.loop, next[1]->next);
                if (twice)
                    connection_retire(p.a.loop, next[0]->next);
                pair_await(&p, !next[1]->next && (!twice || !next[0]->next));
                talk(&p, 2000);
            }
            assert_null(wr_send_connection(p.b.node->connections, late));
            assert_int_equal(p.b.loop->cq_used, used);
            assert_int_equal(pair_session(&p.b)->state, SESSION_UP);
            sluice_hangup(p.b.session, 0);
            assert_int_equal(pair_expect(&p, &p.b, SLUICE_CLOSED).reason,
                             SLUICE_REASON_LOCAL_CLOSE);
            assert_int_equal(pair_expect(&p, &p.a, SLUICE_CLOSED).reason, SLUICE_REASON_PEER_CLOSE);
            pair_close(&p);
        }
}

TEST(a_frame_that_is_held_keeps_its_connection) {
    NEEDS_RAW_QUEUE_PAIRS();
    for (unsigned v = 0; v < 2; v++) {
        struct pair p;
        struct connection *next[2];
        open(&p, &variants[v]);
        add_both(&p, next);
        send_some(&p.b, 0, 5);
        pair_await(&p, pair_session(&p.a)->rx.held.head); /* these turns deliver nothing */
        pair_turns(&p, 4);
        switch_both(&p, next);
        connection_retire(p.a.loop, next[0]->next);
        connection_retire(p.b.loop, next[1]->next);
        pair_await(&p, !next[1]->next && next[0]->next->drain.over);
        pair_turns(&p, 4);
        expect_some(&p, &p.a, 0, 5);
        pair_await(&p, !next[0]->next);
        talk(&p, 1000);
        pair_close(&p);
    }
}

TEST(a_connection_that_breaks_behind_the_switch_ends_no_session) {
    NEEDS_RAW_QUEUE_PAIRS();
    for (unsigned v = 0; v < 2; v++) {
        struct pair p;
        struct connection *next[2];
        open(&p, &variants[v]);
        add_both(&p, next);
        switch_both(&p, next);
        struct connection *former = next[1]->next;
        assert_int_equal(p.b.node->fabric->modify_qp(former->qp,
                                                     &(struct ibv_qp_attr){.qp_state = IBV_QPS_ERR},
                                                     IBV_QP_STATE),
                         0);
        if (v == 0) /* own receives are flushed, and say so; of shared ones the CM thread hears */
            pair_await(&p, !next[1]->next);
        talk(&p, 1000);
        pair_close(&p);
    }
}

TEST(a_session_ends_with_all_its_connections) {
    NEEDS_RAW_QUEUE_PAIRS();
    for (unsigned v = 0; v < 2; v++)
        for (unsigned over = 0; over < 2; over++) { /* the first one, or the second */
            struct pair p;
            struct connection *second[2];
            open(&p, &variants[v]);
            add_both(&p, second);
            if (over)
                switch_both(&p, second);
            talk(&p, 1000);
            sluice_hangup(p.a.session, 0);
            assert_int_equal(pair_expect(&p, &p.a, SLUICE_CLOSED).reason,
                             SLUICE_REASON_LOCAL_CLOSE);
            assert_int_equal(pair_expect(&p, &p.b, SLUICE_CLOSED).reason, SLUICE_REASON_PEER_CLOSE);
            pair_close(&p);
        }
}

TEST(a_kept_message_withholds_its_credit_from_the_next_connection) {
    NEEDS_RAW_QUEUE_PAIRS();
    for (unsigned v = 0; v < 2; v++) {
        struct pair p;
        struct connection *second[2];
        sluice_msg *kept;
        open(&p, &variants[v]);
        add_both(&p, second);
        assert_int_equal(pair_send(&p.b, 64, 1, NULL), 0);
        kept = pair_expect(&p, &p.a, SLUICE_MESSAGE).msg;
        sluice_keep(kept);
        pair_turns(&p, 4);
        assert_int_equal(pair_session(&p.a)->connection->credits.retained, 1);
        switch_both(&p, second);
        assert_int_equal(second[0]->credits.retained, 1);
        assert_int_equal(second[0]->next->credits.retained, 0);
        talk(&p, 1000);
        assert_int_equal(second[0]->credits.withheld_due, 0);
        assert_true(pair_check(kept, 64, 1));
        sluice_free(kept);
        talk(&p, 2000);
        assert_int_equal(second[0]->credits.retained, 0);
        pair_close(&p);
    }
}

TEST(a_message_kept_behind_the_switch_gives_no_credit_twice) {
    NEEDS_RAW_QUEUE_PAIRS();
    for (unsigned v = 0; v < 2; v++) {
        struct pair p;
        struct connection *second[2];
        sluice_msg *kept;
        open(&p, &variants[v]);
        add_both(&p, second);
        assert_int_equal(pair_send(&p.b, 64, 1, NULL), 0);
        kept = pair_expect(&p, &p.a, SLUICE_MESSAGE).msg;
        switch_both(&p, second);
        sluice_keep(kept); /* it came by the first one */
        talk(&p, 1000);
        assert_int_equal(second[0]->credits.retained, 1);
        sluice_free(kept);
        talk(&p, 2000);
        assert_int_equal(second[0]->credits.retained, 0);
        pair_turns(&p, 4); /* nothing is lent any more */
        assert_int_equal(second[0]->rx.granted + second[0]->rx.unreported +
                             second[0]->rx.repost_count + second[0]->recv.missing,
                         second[0]->credits.granted);
        pair_close(&p);
    }
}

TEST(a_switch_away_from_a_connection_that_is_down_keeps_the_session) {
    NEEDS_RAW_QUEUE_PAIRS();
    for (unsigned v = 0; v < 2; v++) {
        struct pair p;
        struct connection *second[2];
        open(&p, &variants[v]);
        add_both(&p, second);
        struct session *s = pair_session(&p.b);
        s->connection->cm.down.reason = SLUICE_REASON_PEER_LOST;
        session_down(p.b.loop, s); /* as the CM thread would tell */
        assert_int_equal(p.b.loop->downs, 1);
        switch_both(&p, second);
        assert_int_equal(p.b.loop->downs, 0);
        pair_await(&p, !second[1]->next);
        talk(&p, 1000);
        pair_close(&p);
    }
}

static int refuse_to_post(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad) {
    (void)qp;
    *bad = wr;
    return ENOMEM;
}

TEST(no_switch_when_the_device_ends_the_session) {
    NEEDS_RAW_QUEUE_PAIRS();
    struct pair p;
    struct connection *second[2];
    open(&p, &variants[0]);
    add_both(&p, second);
    struct session *s = pair_session(&p.b);
    struct connection *first = s->connection;
    assert_int_equal(pair_send(&p.b, 64, 1, NULL), 0);
    struct ibv_context_ops *ops = &first->qp->context->ops;
    int (*post)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **) = ops->post_send;
    ops->post_send = refuse_to_post;
    bool switched = connection_switch(p.b.loop, s, second[1]);
    ops->post_send = post;
    assert_false(switched);
    assert_ptr_equal(s->connection, first);
    pair_expect(&p, &p.b, SLUICE_CLOSED);
    pair_close(&p);
}

TEST(the_next_connection_is_watched_like_the_first) {
    NEEDS_RAW_QUEUE_PAIRS();
    struct pair p;
    struct connection *second[2];
    open(&p, &variants[1]);
    add_both(&p, second);
    uint64_t interval = pair_session(&p.b)->connection->keepalive.interval_ns;
    assert_int_not_equal(interval, 0);
    switch_both(&p, second);
    assert_int_equal(second[1]->keepalive.interval_ns, interval);
    pair_close(&p);
}

TEST(no_switch_in_the_middle_of_a_message_or_of_a_request) {
    NEEDS_RAW_QUEUE_PAIRS();
    struct pair p;
    struct connection *second[2];
    open(&p, &variants[1]);
    struct session *s = pair_session(&p.b);
    assert_false(connection_switch(p.b.loop, s, s->connection));
    add_both(&p, second);
    sluice_msg *request;
    assert_int_equal(sluice_alloc(p.b.node, 64, &request), 0);
    pair_fill(request, 1);
    assert_int_equal(sluice_request(p.b.session, request, NULL), 0);
    assert_false(connection_switch(p.b.loop, s, second[1]));
    sluice_event event = pair_expect(&p, &p.a, SLUICE_REQUEST);
    assert_int_equal(sluice_reply(event.session, event.token, event.msg), 0);
    pair_expect(&p, &p.b, SLUICE_REPLY);
    pair_turns(&p, 4);
    assert_true(connection_switch(p.b.loop, s, second[1]));
    struct connection *first = second[1]->next;
    connection_retire(p.b.loop, first);
    assert_false(connection_switch(p.b.loop, s, first)); /* it is on its way out */
    pair_close(&p);
}
