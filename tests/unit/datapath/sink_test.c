/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * sink_test.c - on a device like iWARP: the memory that a READ goes to is registered for it, and what becomes of
 * an operation where that fails; and that an outcome is the peer's device's, not this side's.
 */
#include "support/memory.h"
#include "soft/fault/inject.h"
#include "soft/fault/plan.h"
#include "datapath/tx/confirm.h"
#include "soft/ipc/control_lock.h"

static void plan(const char *text) {
    struct soft_plan_error error;
    struct soft_plan *parsed = text ? soft_plan_parse(text, &error) : NULL;
    assert_true(parsed || !text);
    soft_lock();
    if (parsed)
        soft_fault_install(parsed);
    else
        soft_fault_clear();
    soft_unlock();
}

static int get(struct memory *m, uint64_t bytes, uint64_t tag) {
    return sluice_get(m->pair.b.session, m->here, 0, bytes, &m->token, 0, SLUICE_SEND(.tag = tag));
}

static int opened(void **state) {
    static struct memory of_test;
    struct memory *m = *state = &of_test;
    memory_open(m, 4 << 20, PAIR_LINK());
    assert_true(m->pair.b.node->traits.sink_is_target);
    memory_fill(memory_there(m), m->bytes, 5);
    return 0;
}

static int closed(void **state) {
    memory_close(*state);
    return 0;
}

#define WITH(set_up, name) TEST_WITH(set_up, closed, name)

WITH(opened, a_get_that_nothing_can_be_registered_for_is_enomem) {
    struct memory *m = *state;
    plan("call=reg_mr errno=ENOMEM");
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(get(m, i ? 2 << 20 : 100, i + 1), 0);
        memory_done(m, i + 1, SLUICE_ENOMEM);
    }
    assert_true(memory_untouched(memory_here(m), m->bytes));
    plan(NULL);
    assert_int_equal(get(m, 2 << 20, 3), 0); /* the session lives */
    memory_done(m, 3, 0);
    assert_true(memory_holds(memory_here(m), 2 << 20, 5));
    assert_int_equal(sluice_region_close(m->here), 0); /* and nothing uses it any more */
    m->here = NULL;
}

/* The third of the eight chunks finds no registration, and is made when one before it is there. */
WITH(opened, a_large_get_goes_on_with_what_comes_back) {
    struct memory *m = *state;
    plan("call=reg_mr n=3 errno=ENOMEM");
    assert_int_equal(get(m, 2 << 20, 1), 0);
    memory_done(m, 1, 0);
    plan(NULL);
    assert_true(memory_holds(memory_here(m), 2 << 20, 5));
    assert_true(memory_untouched(memory_here(m) + (2 << 20), m->bytes - (2 << 20)));
}

/* A put that the peer's device refuses was sent all the same. It is not told as done. */
WITH(opened, a_put_that_was_refused_is_not_done) {
    struct memory *m = *state;
    sluice_error e;
    sluice_token old = m->token;
    assert_int_equal(sluice_region_revoke(m->there, &e), 0);
    assert_int_equal(sluice_put(m->pair.b.session, m->here, 0, 100, &old, 0, SLUICE_SEND(.tag = 1)),
                     0);
    memory_done(m, 1, SLUICE_EUNKNOWN);
    assert_true(memory_holds(memory_there(m), m->bytes, 5));
    assert_int_equal(pair_expect(&m->pair, &m->pair.b, SLUICE_CLOSED).reason,
                     SLUICE_REASON_PEER_LOST);
}

/* Nobody waits for the answer to a READ but who asked to hear of something. */
WITH(opened, only_what_has_a_tag_is_confirmed) {
    struct memory *m = *state;
    struct session *s = pair_session(&m->pair.b);
    assert_true(s->connection->confirm.on && s->connection->confirm.probe_known);
    for (unsigned i = 0; i < 50; i++) {
        assert_int_equal(pair_send(&m->pair.b, 100, i, NULL), 0);
        assert_int_equal(s->connection->confirm.flying, 0);
        pair_expect(&m->pair, &m->pair.a, SLUICE_MESSAGE);
    }
    for (unsigned i = 0; i < 50; i++) {
        assert_int_equal(pair_send(&m->pair.b, 100, i, SLUICE_SEND(.tag = i + 1)), 0);
        assert_uint_in_range(s->connection->confirm.flying, 0, CONFIRMS_MAX);
        pair_expect(&m->pair, &m->pair.a, SLUICE_MESSAGE);
        must_data_equal(pair_expect(&m->pair, &m->pair.b, SLUICE_SENT).tag, i + 1);
    }
}

/* As if the device told of this receive now, once more. */
static void tell_again(struct side *side, struct sluice_msg *msg, uint32_t qp_num) {
    struct sluice_loop *l = side->loop;
    assert_int_equal(l->wc_next, l->wc_count);
    l->wc[0] =
        (struct ibv_wc){.wr_id = (uintptr_t)msg, .qp_num = qp_num, .status = IBV_WC_WR_FLUSH_ERR};
    l->wc_next = 0;
    l->wc_count = 1;
}

/* Of one that completed and is nobody's; that another session has; that this session has posted again. */
WITH(opened, a_receive_that_is_told_of_twice_counts_once) {
    struct memory *m = *state;
    struct session *s = pair_session(&m->pair.a);
    struct recv_queue *q = &s->connection->recv.own;
    assert_true(q->posted > 0 && q->posted < q->depth);
    struct sluice_msg *msg = q->trail[q->trail_next ? q->trail_next - 1 : q->depth - 1];
    uint32_t posted = q->posted, number = s->connection->cm.qp_num;
    tell_again(&m->pair.a, msg, number + 1); /* it was posted anew, elsewhere */
    for (unsigned i = 0; i < 3; i++)
        pair_turn(&m->pair);
    assert_int_equal(q->posted, posted);
    msg = NULL;
    assert_int_equal(sluice_alloc(m->pair.a.node, 100, &msg), 0); /* of nobody */
    tell_again(&m->pair.a, msg, number);
    for (unsigned i = 0; i < 3; i++)
        pair_turn(&m->pair);
    msg->owner = s; /* it was this one's, and is not out */
    tell_again(&m->pair.a, msg, number);
    for (unsigned i = 0; i < 3; i++)
        pair_turn(&m->pair);
    assert_int_equal(q->posted, posted);
    msg->owner = NULL;
    sluice_free(msg);
    assert_int_equal(pair_send(&m->pair.b, 100, 1, NULL), 0);
    pair_expect(&m->pair, &m->pair.a, SLUICE_MESSAGE);
}

int main(void) {
    setenv("SLUICE_SOFT_PROFILE", "iwarp", 1);
    return tests_run(NULL, NULL);
}
