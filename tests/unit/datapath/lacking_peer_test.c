/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * lacking_peer_test.c - sessions between two devices of which one has operations that the other has not: immediate data and
 * atomics, which iWARP knows nothing of. As the fabric says it of a queue pair, so its session does without.
 */
#include "core/wire/token.h"
#include "datapath/rndv/internal.h"
#include "support/memory.h"

static unsigned lacking(struct ibv_qp *qp) {
    return qp ? FABRIC_LACKS_IMMEDIATE | FABRIC_LACKS_ATOMICS : 0;
}

/* From now on each peer of theirs lacks all that may be lacking. */
static void let_peers_lack(struct pair *p) {
    static struct fabric_ops ops;
    ops = *p->a.node->fabric;
    ops.peer_lacks = lacking;
    p->a.node->fabric = p->b.node->fabric = &ops;
}

/* Written it would end with immediate data, and the other end takes no such announcement. */
static void a_large_message_is_read_though_it_was_to_be_written(void **state) {
    (void)state;
    struct pair p;
    const size_t bytes = 300000;
    pair_open(&p, PAIR_NODE(.rendezvous = SLUICE_RENDEZVOUS_WRITE, .rendezvous_bytes = PAIR_LARGE),
              PAIR_LINK());
    let_peers_lack(&p);
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

static void an_atomic_is_refused_and_the_session_goes_on(void **state) {
    (void)state;
    struct pair p;
    sluice_error e = {0};
    sluice_region *its;
    sluice_token token;
    pair_open(&p, PAIR_NODE(), PAIR_LINK());
    let_peers_lack(&p);
    pair_connect(&p, PAIR_LINK());
    assert_int_equal(sluice_region_open(p.a.node, NULL, 4096, TOKEN_RIGHTS, &its, &e), 0);
    assert_int_equal(sluice_region_token(its, 0, 4096, TOKEN_RIGHTS, &token), 0);
    assert_int_equal(sluice_fetch_add(p.b.session, &token, 0, 1, NULL), SLUICE_EDEVICE);
    assert_int_equal(sluice_compare_swap(p.b.session, &token, 0, 1, 2, NULL), SLUICE_EDEVICE);
    assert_int_equal(pair_send(&p.b, 100, 1, NULL), 0);
    assert_true(pair_check(pair_expect(&p, &p.a, SLUICE_MESSAGE).msg, 100, 1));
    assert_int_equal(sluice_region_close(its), 0);
    pair_close(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_large_message_is_read_though_it_was_to_be_written),
        cmocka_unit_test(an_atomic_is_refused_and_the_session_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
