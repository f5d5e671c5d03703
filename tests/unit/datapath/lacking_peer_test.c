/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * lacking_peer_test.c - sessions between two devices of which one has what the other has not: immediate data and atomics,
 * which iWARP knows nothing of, and completions that say what arrived. As the fabric says it of a queue pair, so its session
 * does without.
 */
#include "core/wire/token.h"
#include "datapath/rndv/internal.h"
#include "support/memory.h"
#include "fabric/fast.h"

static unsigned lacked;

static unsigned lacking(struct ibv_qp *qp) {
    return qp ? lacked : 0;
}

/* From now on each peer of theirs lacks that. */
static void let_peers_lack(struct pair *p, unsigned what) {
    static struct fabric_ops ops;
    static struct fabric_fast fast;
    lacked = what;
    ops = *p->a.node->fabric;
    fast = *ops.fast;
    fast.peer_lacks = lacking;
    ops.fast = &fast;
    p->a.node->fabric = p->b.node->fabric = &ops;
}

/* Written it would end with immediate data, and the other end takes no such announcement. */
TEST(a_large_message_is_read_though_it_was_to_be_written) {
    struct pair p;
    const size_t bytes = 300000;
    pair_open(&p, PAIR_NODE(.rendezvous = SLUICE_RENDEZVOUS_WRITE, .rendezvous_bytes = PAIR_LARGE),
              PAIR_LINK());
    let_peers_lack(&p, FABRIC_LACKS_IMMEDIATE);
    pair_connect(&p, PAIR_LINK());
    for (unsigned i = 0; i < 4; i++) {
        struct side *from = i % 2 ? &p.a : &p.b, *to = i % 2 ? &p.b : &p.a;
        assert_int_equal(pair_send(from, bytes, i, SLUICE_SEND(.tag = i + 1)), 0);
        assert_int_equal(pair_session(from)->rndv->out_count, 1);
        assert_int_equal(pair_session(from)->rndv->out_writes, 0);
        assert_true(pair_check(pair_expect(&p, to, SLUICE_MESSAGE).msg, bytes, i));
        assert_int_equal(pair_expect(&p, from, SLUICE_SENT).status, 0);
    }
    pair_close(&p);
}

PAIR_WITH(pair_opened, an_atomic_is_refused_and_the_session_goes_on) {
    struct pair *p = *state;
    sluice_error e = {0};
    sluice_region *its;
    sluice_token token;
    let_peers_lack(p, FABRIC_LACKS_ATOMICS);
    pair_connect(p, PAIR_LINK());
    assert_int_equal(sluice_region_open(p->a.node, NULL, 4096, TOKEN_RIGHTS, &its, &e), 0);
    assert_int_equal(sluice_region_token(its, 0, 4096, TOKEN_RIGHTS, &token), 0);
    assert_int_equal(sluice_fetch_add(p->b.session, &token, 0, 1, NULL), SLUICE_EDEVICE);
    assert_int_equal(sluice_compare_swap(p->b.session, &token, 0, 1, 2, NULL), SLUICE_EDEVICE);
    assert_int_equal(pair_send(&p->b, 100, 1, NULL), 0);
    assert_true(pair_check(pair_expect(p, &p->a, SLUICE_MESSAGE).msg, 100, 1));
    assert_int_equal(sluice_region_close(its), 0);
}

/* READs of this session's that are no part of a message. */
static uint32_t asked(struct side *side) {
    return pair_session(side)->connection->sq.frameless;
}

/*
 * Where a completion says only that something was sent, a READ behind it says that it arrived: of a byte that the peer
 * named in the handshake that its device needs.
 */
PAIR_WITH(pair_opened, an_outcome_waits_for_a_read_where_completions_do_not_tell_what_arrived) {
    struct pair *p = *state;
    let_peers_lack(p, FABRIC_LACKS_ARRIVAL);
    p->a.node->traits.dialer_first = true;
    pair_connect(p, PAIR_LINK());
    for (unsigned i = 0; i < 4; i++) {
        struct side *from = i % 2 ? &p->a : &p->b, *to = i % 2 ? &p->b : &p->a;
        uint32_t before = asked(from);
        assert_int_equal(pair_send(from, 100, i, SLUICE_SEND(.tag = i + 1)), 0);
        assert_true(pair_check(pair_expect(p, to, SLUICE_MESSAGE).msg, 100, i));
        sluice_event event = pair_expect(p, from, SLUICE_SENT);
        must_data_equal(event.tag, i + 1);
        assert_int_equal(event.status, 0);
        assert_int_equal(asked(from), before + 1);
    }
}

/* Nobody whose completions say it asks, whatever the other end proposes. */
PAIR_WITH(pair_opened, nobody_asks_where_completions_tell_what_arrived) {
    struct pair *p = *state;
    let_peers_lack(p, 0);
    p->a.node->traits.dialer_first = true;
    pair_connect(p, PAIR_LINK());
    assert_int_equal(pair_send(&p->b, 100, 1, SLUICE_SEND(.tag = 1)), 0);
    assert_true(pair_check(pair_expect(p, &p->a, SLUICE_MESSAGE).msg, 100, 1));
    assert_int_equal(pair_expect(p, &p->b, SLUICE_SENT).status, 0);
    assert_int_equal(asked(&p->b), 0);
    assert_false(pair_session(&p->a)->connection->confirm.probe_known);
    assert_false(pair_session(&p->b)->connection->confirm.probe_known);
    sluice_hangup(p->b.session, 0);
    pair_expect(p, &p->a, SLUICE_CLOSED);
    pair_expect(p, &p->b, SLUICE_CLOSED);
}
