/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * told_twice_test.c - Soft-iWARP may tell of a receive twice, the second time as flushed when its queue pair falls.
 * The second time says nothing: whoever has the buffer by then keeps it, and no session ends of it.
 */
#include "support/pair.h"

static int (*real_poll)(struct ibv_cq *, int, struct ibv_wc *);

static struct {
    struct ibv_cq *cq;
    struct ibv_wc last; /* the receive that completed last */
    struct ibv_wc next; /* told by the next poll, if it is due */
    bool due;
} again;

static int poll_again(struct ibv_cq *cq, int max, struct ibv_wc *wc) {
    if (cq == again.cq && again.due) {
        wc[0] = again.next;
        again.due = false;
        return 1;
    }
    int n = real_poll(cq, max, wc);
    for (int i = 0; cq == again.cq && i < n; i++)
        if (wc[i].wr_id && !(wc[i].wr_id & 1) && wc[i].status == IBV_WC_SUCCESS)
            again.last = wc[i];
    return n;
}

/* The buffer `msg` completes once more, under this number. */
static void tell_again(struct pair *p, const struct sluice_msg *msg, uint32_t qp_num) {
    again.next =
        (struct ibv_wc){.wr_id = (uintptr_t)msg, .qp_num = qp_num, .status = IBV_WC_WR_FLUSH_ERR};
    again.due = true;
    pair_expect_nothing(p, &p->b);
    assert_false(again.due);
}

static struct ibv_context_ops *polled;

static int open_watched(void **state) {
    static struct pair of_test;
    struct pair *p = *state = &of_test;
    pair_open(p, PAIR_NODE(), PAIR_LINK());
    pair_connect(p, PAIR_LINK(.flags = SLUICE_ONCE));
    memset(&again, 0, sizeof again);
    again.cq = p->b.loop->cq;
    assert_true(p->b.loop->flushes_twice);
    polled = &again.cq->context->ops;
    real_poll = polled->poll_cq;
    polled->poll_cq = poll_again;
    return 0;
}

static int close_watched(void **state) {
    struct pair *p = *state;
    polled->poll_cq = real_poll;
    pair_close(p);
    return 0;
}

/* From a to b, which borrows it. */
static sluice_msg *one_message(struct pair *p, unsigned seed) {
    assert_int_equal(pair_send(&p->a, 100, seed, NULL), 0);
    sluice_event event = pair_expect(p, &p->b, SLUICE_MESSAGE);
    assert_true(pair_check(event.msg, 100, seed));
    return event.msg;
}

static void talk(struct pair *p) {
    for (unsigned i = 0; i < 50; i++) /* all the receives, again and again */
        one_message(p, i);
    assert_int_equal(pair_session(&p->b)->state, SESSION_UP);
}

#define WITH(set_up, name) TEST_WITH(set_up, close_watched, name)

WITH(open_watched, a_message_that_the_application_has_stays_its_own) {
    struct pair *p = *state;
    sluice_msg *kept = one_message(p, 1);
    sluice_keep(kept);
    struct ibv_wc first = again.last;
    assert_ptr_equal((void *)(uintptr_t)first.wr_id, kept);
    tell_again(p, kept, first.qp_num);
    talk(p);
    assert_true(pair_check(kept, 100, 1));
    sluice_free(kept);
    talk(p);
}

WITH(open_watched, a_buffer_that_waits_to_be_posted_again_is_posted_once) {
    struct pair *p = *state;
    sluice_msg *borrowed = one_message(p, 1); /* given back by the next poll */
    tell_again(p, borrowed, again.last.qp_num);
    talk(p);
}

WITH(open_watched, a_buffer_that_went_back_stays_nobodys) {
    struct pair *p = *state;
    struct side older = p->b;
    sluice_msg *kept = one_message(p, 1);
    sluice_keep(kept);
    struct ibv_wc first = again.last;
    sluice_hangup(older.session, 0);
    pair_expect(p, &p->b, SLUICE_CLOSED);
    pair_expect(p, &p->a, SLUICE_CLOSED);
    pair_connect(p, PAIR_LINK(.flags = SLUICE_ONCE));
    sluice_free(kept);
    tell_again(p, kept, first.qp_num);
    talk(p);
}

WITH(open_watched, a_buffer_of_another_session_stays_there) {
    struct pair *p = *state;
    uint32_t older = pair_session(&p->b)->connection->cm.qp_num;
    sluice_hangup(p->b.session, 0);
    pair_expect(p, &p->b, SLUICE_CLOSED);
    pair_expect(p, &p->a, SLUICE_CLOSED);
    pair_connect(p, PAIR_LINK(.flags = SLUICE_ONCE));
    struct session *s = pair_session(&p->b);
    assert_int_not_equal(s->connection->cm.qp_num, older);
    tell_again(p, s->connection->recv.own.trail[0], older);
    talk(p);
}

int main(void) {
    setenv("SLUICE_SOFT_PROFILE", "iwarp", 1);
    return tests_run(NULL, NULL);
}
