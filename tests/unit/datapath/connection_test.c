/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* connection_test.c - a completion belongs to the connection that posted its send, and to no other of that session. */
#include "support/pair.h"

#include "datapath/tx/post.h"
#include "datapath/session/send_completion.h"

/* A send of the dialer's that is not complete: what it has to give back is in its queue. */
static struct session *post_one(struct pair *p) {
    struct session *s = pair_session(&p->b);
    assert_int_equal(pair_send(&p->b, 4000, 1, NULL), 0);
    assert_int_not_equal(sq_used(s->connection), 0);
    return s;
}

static void complete(struct side *side, uint64_t wr_id) {
    const struct ibv_wc wc = {.wr_id = wr_id, .status = IBV_WC_SUCCESS, .opcode = IBV_WC_SEND};
    send_completed(side->loop, &wc);
}

PAIR_WITH(pair_connected, a_completion_of_an_earlier_connection_gives_nothing_back) {
    struct pair *p = *state;
    struct session *s = post_one(p);
    uint32_t used = sq_used(s->connection);
    uint64_t window = atomic_load(&s->window.own_messages);
    uint64_t one = 1ull << WR_GENERATION_SHIFT;
    complete(&p->b, wr_send_id(s->connection, s->connection->sq.tail - 1) - one);
    assert_int_equal(sq_used(s->connection), used);
    assert_int_equal(atomic_load(&s->window.own_messages), window);
    assert_true(pair_check(pair_expect(p, &p->a, SLUICE_MESSAGE).msg, 4000, 1));
}

PAIR_WITH(pair_opened, each_connection_has_another_name) {
    struct pair *p = *state;
    uint64_t last = 0;
    for (unsigned i = 0; i < 5; i++) {
        pair_connect(p, PAIR_LINK());
        uint64_t name = atomic_load(&pair_session(&p->b)->connection->name);
        assert_int_not_equal(name, last);
        assert_ptr_equal(wr_send_connection(p->b.node->connections,
                                            wr_send_id(pair_session(&p->b)->connection, 7)),
                         pair_session(&p->b)->connection);
        assert_null(last ? wr_send_connection(p->b.node->connections, last) : NULL);
        last = name;
        sluice_hangup(p->b.session, 0);
        pair_expect(p, &p->b, SLUICE_CLOSED);
        pair_expect(p, &p->a, SLUICE_CLOSED);
    }
}

/* A session that was given up, or that another thread is inside of, still points to it. */
TEST(a_connection_stays_where_it_is_when_its_node_is_closed) {
    struct pair p;
    pair_open(&p, PAIR_NODE(), PAIR_LINK());
    pair_connect(&p, PAIR_LINK());
    struct connection *c = pair_session(&p.b)->connection;
    uint64_t name = atomic_load(&c->name);
    pair_close(&p);
    assert_int_equal(atomic_load(&c->name), name + (1ull << WR_GENERATION_SHIFT));
    /* And a node that takes its place gives the slot another generation. */
    pair_open(&p, PAIR_NODE(), PAIR_LINK());
    pair_connect(&p, PAIR_LINK());
    assert_true(atomic_load(&pair_session(&p.b)->connection->name) > name);
    pair_close(&p);
}
