/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs_again_test.c - two queue pairs that are used again with each other after an error: through RESET to RTS, one of
 * them before the other or not, as often as it happens.
 */
#include "support/softverbs.h"

#include "soft/rc/pending_ring.h"
#include "support/rows.h"

#define TIMES 4u

enum order { SENDER_FIRST, RECEIVER_FIRST, RESET_FIRST };

struct again {
    enum order order;
    enum sv_down down; /* SV_DOWNS: by a request that the peer refuses */
};

static bool was_offered(struct sv_end *e) {
    soft_lock();
    bool offered = !cds_list_empty(&soft_qp_of(e->qp)->pending_rings);
    soft_unlock();
    return offered;
}

/* Its peer is still in the connection before. */
static void again_before(struct sv_end *e, struct sv_end *peer) {
    must(sv_to(e, IBV_QPS_RESET) == 0);
    sv_connect(e, peer->qp->qp_num);
    sv_until(was_offered(peer));
}

static void passes(struct sv_end *from, struct sv_end *to) {
    must(sv_recv(to, 1, 0, 64) == 0);
    must(sv_send(from, 2, 0, 64, IBV_SEND_SIGNALED) == 0);
    assert_int_equal(sv_poll(from->scq).status, IBV_WC_SUCCESS);
    assert_int_equal(sv_poll(to->rcq).status, IBV_WC_SUCCESS);
}

/* The receive is too short. */
static void is_refused(struct sv_end *from, struct sv_end *to) {
    must(sv_recv(to, 1, 0, 8) == 0);
    must(sv_send(from, 2, 0, 64, IBV_SEND_SIGNALED) == 0);
    assert_int_equal(sv_poll(to->rcq).status, IBV_WC_LOC_LEN_ERR);
    assert_int_equal(sv_poll(from->scq).status, IBV_WC_REM_INV_REQ_ERR);
}

static void queue_pairs_are_used_again(void **state) {
    const struct again *a = *state;
    struct sv_end from, to;
    sv_pair(&from, SV_OPTIONS(), &to, SV_OPTIONS());
    for (unsigned i = 0; i < TIMES; i++) {
        passes(&from, &to);
        passes(&to, &from);
        if (a->down == SV_DOWNS)
            is_refused(&from, &to);
        else
            sv_take_down(&to, a->down);
        switch (a->order) {
        case SENDER_FIRST:
            again_before(&from, &to);
            must(sv_to(&to, IBV_QPS_RESET) == 0);
            sv_connect(&to, from.qp->qp_num);
            break;
        case RECEIVER_FIRST:
            again_before(&to, &from);
            must(sv_to(&from, IBV_QPS_RESET) == 0);
            sv_connect(&from, to.qp->qp_num);
            break;
        case RESET_FIRST:
            must(sv_to(&from, IBV_QPS_RESET) == 0 && sv_to(&to, IBV_QPS_RESET) == 0);
            sv_connect(&to, from.qp->qp_num);
            sv_connect(&from, to.qp->qp_num);
            break;
        }
    }
    passes(&from, &to);
    sv_unpair(&from, &to);
}

/* It was in its next connection already, and left that, too: what it offered for it is not taken. */
TEST(what_was_offered_and_taken_back_is_not_taken) {
    struct sv_end a, b;
    sv_pair(&a, SV_OPTIONS(), &b, SV_OPTIONS());
    passes(&a, &b);
    again_before(&a, &b);
    must(sv_to(&a, IBV_QPS_RESET) == 0);
    must(sv_to(&b, IBV_QPS_RESET) == 0);
    sv_connect(&b, a.qp->qp_num);
    sv_connect(&a, b.qp->qp_num);
    passes(&a, &b);
    passes(&b, &a);
    sv_unpair(&a, &b);
}

#define AGAIN(name, ...)                                                                           \
    ROW(queue_pairs_are_used_again__##name, queue_pairs_are_used_again, again, __VA_ARGS__)

TEST_CASES(AGAIN(the_sender_first_after_a_refusal, SENDER_FIRST, SV_DOWNS),
           AGAIN(the_receiver_first_after_a_refusal, RECEIVER_FIRST, SV_DOWNS),
           AGAIN(both_reset_first_after_a_refusal, RESET_FIRST, SV_DOWNS),
           AGAIN(the_sender_first_after_its_peer_was_in_error, SENDER_FIRST, SV_TO_ERR),
           AGAIN(the_receiver_first_after_it_was_in_error, RECEIVER_FIRST, SV_TO_ERR),
           AGAIN(the_receiver_first_after_a_reset, RECEIVER_FIRST, SV_TO_RESET));
