/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * alone_test.c - on a device like Soft-RoCE a large message goes in frames while it is alone, and by rendezvous
 * while others wait behind it or are under way.
 */
#include "pair.h"

#include "datapath/rendezvous.h"

#define BYTES 65536u

static void opened(struct pair *p, uint64_t rendezvous_bytes) {
    memset(p, 0, sizeof *p);
    pair_open(p, PAIR_NODE(.rendezvous_bytes = rendezvous_bytes), PAIR_LINK());
    pair_connect(p, PAIR_LINK());
    assert_false(p->b.node->traits.exact_windows || p->b.node->traits.sink_is_target);
}

static uint64_t announced(struct pair *p) {
    const struct rendezvous *r = pair_session(&p->b)->rendezvous;
    return r ? r->out_order : 0;
}

static void arrive(struct pair *p, unsigned count) {
    for (unsigned i = 0; i < count; i++)
        assert_true(pair_check(pair_expect(p, &p->a, SLUICE_MESSAGE).msg, BYTES, i));
}

static void a_large_message_alone_goes_in_frames(void **state) {
    (void)state;
    struct pair p;
    opened(&p, 0);
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(pair_send(&p.b, BYTES, 0, NULL), 0);
        arrive(&p, 1);
    }
    assert_int_equal(announced(&p), 0);
    pair_close(&p);
}

/* All but the last, which nothing is behind: but the others are under way then. */
static void large_messages_together_go_by_rendezvous(void **state) {
    (void)state;
    struct pair p;
    opened(&p, 0);
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(pair_send(&p.b, BYTES, i, SLUICE_SEND(.flags = SLUICE_MORE)), 0);
    arrive(&p, 8);
    assert_int_equal(announced(&p), 8);
    while (pair_session(&p.b)->rendezvous->out_count > 0) /* until their keys are taken back */
        pair_turn(&p);
    assert_int_equal(pair_send(&p.b, BYTES, 0, NULL), 0); /* and then one is alone again */
    arrive(&p, 1);
    assert_int_equal(announced(&p), 8);
    pair_close(&p);
}

static void what_the_option_says_holds_for_one_alone_too(void **state) {
    (void)state;
    struct pair p;
    opened(&p, BYTES - 1);
    assert_int_equal(pair_send(&p.b, BYTES, 0, NULL), 0);
    arrive(&p, 1);
    assert_int_equal(announced(&p), 1);
    pair_close(&p);
    opened(&p, 2 * BYTES);
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(pair_send(&p.b, BYTES, i, SLUICE_SEND(.flags = SLUICE_MORE)), 0);
    arrive(&p, 8);
    assert_int_equal(announced(&p), 0);
    pair_close(&p);
}

/* As a kernel does with a killed process, whose memory goes before its queue pairs. */
static void memory_that_goes_before_it_was_read_is_the_peers_end(void **state) {
    (void)state;
    struct pair p;
    opened(&p, BYTES - 1);
    assert_int_equal(pair_send(&p.b, BYTES, 0, NULL), 0);
    while (announced(&p) == 0)
        assert_int_equal(sluice_poll(p.b.loop, NULL, 0, 0), 0);
    for (unsigned i = 0; i < NUMBERS; i++)
        window_free(p.b.node, &pair_session(&p.b)->rendezvous->out[i].window);
    sluice_event event = pair_expect(&p, &p.a, SLUICE_CLOSED);
    assert_int_equal(event.reason, SLUICE_REASON_PEER_LOST);
    assert_int_equal(event.vendor, IBV_WC_REM_ACCESS_ERR);
    pair_expect(&p, &p.b, SLUICE_CLOSED);
    pair_close(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_large_message_alone_goes_in_frames),
        cmocka_unit_test(large_messages_together_go_by_rendezvous),
        cmocka_unit_test(what_the_option_says_holds_for_one_alone_too),
        cmocka_unit_test(memory_that_goes_before_it_was_read_is_the_peers_end),
    };
    setenv("SLUICE_SOFT_PROFILE", "rxe", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
