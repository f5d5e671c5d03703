/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * keyed_test.c - large messages on a device like Soft-RoCE, whose keys are not for one message alone and whose
 * READ is not to be trusted: what goes in frames, what is written, and a peer whose memory goes too early.
 */
#include "support/announced.h"
#include "support/memory.h"
#include "datapath/rndv/internal.h"
#include "datapath/rndv/mw.h"

#define BYTES 65536u

static void opened(struct pair *p, uint64_t rendezvous_bytes, sluice_rendezvous way) {
    memset(p, 0, sizeof *p);
    pair_open(p, PAIR_NODE(.rendezvous_bytes = rendezvous_bytes, .rendezvous = way), PAIR_LINK());
    pair_connect(p, PAIR_LINK());
    assert_true(p->b.node->traits.reads_unsafe && !p->b.node->traits.exact_windows);
}

TEST(large_messages_go_in_frames_unless_asked_otherwise) {
    struct pair p;
    opened(&p, 0, SLUICE_RENDEZVOUS_AUTO);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(pair_send(&p.b, BYTES, i, SLUICE_SEND(.flags = SLUICE_MORE)), 0);
    for (unsigned i = 0; i < 4; i++)
        assert_true(pair_check(pair_expect(&p, &p.a, SLUICE_MESSAGE).msg, BYTES, i));
    assert_int_equal(announced(&p), 0);
    pair_close(&p);
}

/* Soft-RoCE's READ may deliver wrong bytes when packets were lost. */
TEST(no_message_is_read_unless_it_is_asked_for) {
    for (unsigned asked = 0; asked < 2; asked++) {
        struct pair p;
        opened(&p, BYTES - 1, asked ? SLUICE_RENDEZVOUS_READ : SLUICE_RENDEZVOUS_AUTO);
        announced_send(&p, BYTES);
        assert_int_equal(pair_session(&p.b)->rndv->out[0].way,
                         asked ? RNDV_BY_READ : RNDV_BY_WRITE);
        assert_true(pair_check(pair_expect(&p, &p.a, SLUICE_MESSAGE).msg, BYTES, 0));
        pair_close(&p);
    }
}

/* Soft-RoCE takes an old acknowledgement for the end of an answer of several packets. */
TEST(a_get_is_made_of_reads_of_one_packet) {
    struct memory m;
    memory_open(&m, BYTES, PAIR_LINK());
    const struct session *s = pair_session(&m.pair.b);
    const uint32_t packet = 128u << s->connection->cm.rtr.path_mtu, before = s->connection->sq.tail;
    assert_int_equal(BYTES % packet, 0);
    memory_fill(memory_there(&m), BYTES, 1);
    assert_int_equal(
        sluice_get(m.pair.b.session, m.here, 0, BYTES, &m.token, 0, SLUICE_SEND(.tag = 1)), 0);
    memory_done(&m, 1, 0);
    assert_true(memory_holds(memory_here(&m), BYTES, 1));
    assert_int_equal(s->connection->sq.tail - before, BYTES / packet);
    memory_close(&m);
}

/* As a kernel does with a killed process, whose memory goes before its queue pairs. */
TEST(memory_that_goes_before_it_was_read_is_the_peers_end) {
    struct pair p;
    opened(&p, BYTES - 1, SLUICE_RENDEZVOUS_READ);
    announced_lost(&p, BYTES);
    pair_close(&p);
}

static struct rndv_rx *moving(struct pair *p) {
    struct rndv *r = pair_session(&p->a)->rndv;
    return r && r->first && r->first->state == RNDV_RX_MOVES ? r->first : NULL;
}

/* Where the message was being written there whether it arrived is not known, and it was no one's mistake. */
TEST(memory_that_goes_before_it_was_written_is_the_peers_end) {
    struct pair p;
    opened(&p, BYTES - 1, SLUICE_RENDEZVOUS_WRITE);
    assert_int_equal(pair_send(&p.b, BYTES, 0, SLUICE_SEND(.tag = 9)), 0);
    while (!announced(&p))
        assert_int_equal(sluice_poll(p.b.loop, NULL, 0, 0), 0);
    while (!moving(&p))
        assert_int_equal(sluice_poll(p.a.loop, NULL, 0, 0), 0);
    mw_free(p.a.node, moving(&p)->mw);
    sluice_event event = pair_expect(&p, &p.b, SLUICE_SENT);
    assert_int_equal(event.tag, 9);
    assert_int_equal(event.status, SLUICE_EUNKNOWN);
    event = pair_expect(&p, &p.b, SLUICE_CLOSED);
    assert_int_equal(event.reason, SLUICE_REASON_PEER_LOST);
    assert_int_equal(event.vendor, IBV_WC_REM_ACCESS_ERR);
    pair_expect(&p, &p.a, SLUICE_CLOSED);
    pair_close(&p);
}

int main(void) {
    setenv("SLUICE_SOFT_PROFILE", "rxe", 1);
    return tests_run(NULL, NULL);
}
