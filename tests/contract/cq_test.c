/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cq_test.c - completion queues and channels: one event for each arming, solicited only, the pollable
 * descriptor, acknowledgement, overrun, what a destroyed queue pair or queue leaves behind.
 */
#include "contract/ends.h"

#include "support/emulated.h"

static struct ct_end a, b;

static int open_default(void **state) {
    (void)state;
    struct ct_options o = CT_OPTIONS(.channel = true);
    ct_open_pair(&a, &b, o, o);
    return 0;
}

static int open_short_cq(void **state) {
    (void)state;
    ct_open_pair(&a, &b, CT_OPTIONS(), CT_OPTIONS(.cqe = 4));
    return 0;
}

static int close_pair(void **state) {
    (void)state;
    ct_close(&a);
    ct_close(&b);
    return 0;
}

static bool readable(const struct ct_end *e, int ms) {
    struct pollfd fd = {.fd = e->channel->fd, .events = POLLIN};
    return poll(&fd, 1, ms) == 1;
}

/* The event that must come, with its CQ and context; acknowledged. */
static void event_of(struct ct_end *e, struct ibv_cq *cq) {
    struct ibv_cq *got = NULL;
    void *context = NULL;
    assert_true(readable(e, facts.wait_ms));
    assert_int_equal(ibv_get_cq_event(e->channel, &got, &context), 0);
    assert_ptr_equal(got, cq);
    assert_ptr_equal(context, e);
    ibv_ack_cq_events(got, 1);
}

static void no_event(struct ct_end *e) {
    assert_false(readable(e, facts.silence_ms));
}

static void message(unsigned flags) {
    assert_int_equal(ct_send(&a, 1, 0, 32, flags), 0);
}

static void receives(unsigned n) {
    for (unsigned i = 0; i < n; i++)
        assert_int_equal(ct_recv(&b, i, 0, 64), 0);
}

static void take(void) {
    assert_int_equal(ct_poll(b.rcq).status, IBV_WC_SUCCESS);
}

/* ---- arming ---------------------------------------------------------------------------------------------- */

#define WITH(open, name) TEST_WITH(open, close_pair, name)

WITH(open_default, an_armed_queue_gives_one_event_and_must_be_armed_again) {
    receives(6);
    assert_int_equal(ibv_req_notify_cq(b.rcq, 0), 0);
    message(0);
    event_of(&b, b.rcq);
    take();
    message(0);
    take();
    no_event(&b); /* not armed */
    assert_int_equal(ibv_req_notify_cq(b.rcq, 0), 0);
    assert_int_equal(ibv_req_notify_cq(b.rcq, 0), 0); /* twice is once */
    message(0);
    message(0);
    event_of(&b, b.rcq);
    take();
    take();
    no_event(&b);
}

WITH(open_default, an_unarmed_queue_is_silent) {
    receives(1);
    message(IBV_SEND_SIGNALED | IBV_SEND_SOLICITED);
    take();
    ct_wc(a.scq, 1, IBV_WC_SUCCESS);
    no_event(&b);
    no_event(&a);
}

/* Applications poll again after arming, and need not be told of what they find there. */
WITH(open_default, a_completion_from_before_the_arming) {
    receives(2);
    message(IBV_SEND_SIGNALED);
    ct_wc(a.scq, 1, IBV_WC_SUCCESS); /* so it was received */
    assert_int_equal(ibv_req_notify_cq(b.rcq, 0), 0);
    if (facts.arming_tells_of_old)
        event_of(&b, b.rcq);
    else
        no_event(&b);
    take();
    assert_int_equal(ibv_req_notify_cq(b.rcq, 0), 0);
    message(0);
    event_of(&b, b.rcq);
    take();
}

WITH(open_default, send_completions_fire_too) {
    receives(1);
    assert_int_equal(ibv_req_notify_cq(a.scq, 0), 0);
    message(IBV_SEND_SIGNALED);
    take();
    event_of(&a, a.scq);
    ct_wc(a.scq, 1, IBV_WC_SUCCESS);
}

WITH(open_default, solicited_only_waits_for_a_solicited_message) {
    receives(4);
    assert_int_equal(ibv_req_notify_cq(b.rcq, 1), 0);
    message(0);
    no_event(&b);
    message(IBV_SEND_SOLICITED);
    event_of(&b, b.rcq);
    take();
    take();
    assert_int_equal(ibv_req_notify_cq(b.rcq, 1), 0);
    assert_int_equal(ibv_req_notify_cq(b.rcq, 0), 0); /* the wider arming wins ... */
    message(0);
    event_of(&b, b.rcq);
    take();
    assert_int_equal(ibv_req_notify_cq(b.rcq, 0), 0);
    assert_int_equal(ibv_req_notify_cq(b.rcq, 1), 0); /* ... in either order */
    message(0);
    event_of(&b, b.rcq);
    take();
}

WITH(open_default, an_error_counts_as_solicited) {
    receives(1);
    assert_int_equal(ibv_req_notify_cq(b.rcq, 1), 0);
    assert_int_equal(ct_to(&b, IBV_QPS_ERR), 0);
    if (facts.flush_is_solicited)
        event_of(&b, b.rcq);
    else
        no_event(&b);
    ct_wc(b.rcq, 0, IBV_WC_WR_FLUSH_ERR);
}

/* ---- the descriptor ---------------------------------------------------------------------------------------- */

WITH(open_default, readable_exactly_while_an_event_waits) {
    struct ibv_cq *cq;
    void *context;
    assert_int_equal(fcntl(b.channel->fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    assert_int_equal(fcntl(b.channel->fd, F_SETFL, O_NONBLOCK), 0);
    assert_fails(ibv_get_cq_event(b.channel, &cq, &context), EAGAIN);
    receives(1);
    assert_int_equal(ct_recv(&a, 0, 0, 64), 0);
    assert_int_equal(ibv_req_notify_cq(b.rcq, 0), 0);
    assert_int_equal(ibv_req_notify_cq(b.scq, 0), 0);
    assert_false(readable(&b, 0));
    message(0);
    take();
    assert_true(readable(&b, facts.wait_ms));
    assert_true(readable(&b, 0)); /* level, not edge */
    assert_int_equal(ct_send(&b, 5, 0, 8, IBV_SEND_SIGNALED), 0);
    assert_int_equal(ct_poll(a.rcq).status, IBV_WC_SUCCESS);
    ct_wc(b.scq, 5, IBV_WC_SUCCESS);
    event_of(&b, b.rcq);
    event_of(&b, b.scq); /* two queues of one channel, in the order they fired */
    assert_false(readable(&b, 0));
    assert_fails(ibv_get_cq_event(b.channel, &cq, &context), EAGAIN);
}

static int wait_for_event(void *arg) {
    struct ct_end *e = arg;
    struct ibv_cq *cq;
    void *context;
    if (ibv_get_cq_event(e->channel, &cq, &context) || cq != e->rcq)
        return 1;
    ibv_ack_cq_events(cq, 1);
    return 0;
}

WITH(open_default, a_blocked_thread_is_woken) {
    struct ct_thread thread;
    receives(1);
    assert_int_equal(ibv_req_notify_cq(b.rcq, 0), 0);
    ct_thread_start(&thread, wait_for_event, &b);
    assert_true(ct_thread_stays(&thread));
    message(0);
    assert_int_equal(ct_thread_join(&thread), 0);
    take();
}

/* ---- destruction --------------------------------------------------------------------------------------------- */

static int destroy_cq(void *cq) {
    return ibv_destroy_cq(cq);
}

WITH(open_default, destroying_a_queue_waits_for_its_events) {
    struct ibv_cq *cq = NULL;
    void *context;
    receives(2);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(ibv_req_notify_cq(b.rcq, 0), 0);
        message(0);
        take();
        assert_true(readable(&b, facts.wait_ms));
        assert_int_equal(ibv_get_cq_event(b.channel, &cq, &context), 0);
    }
    assert_int_equal(ibv_destroy_qp(b.qp), 0);
    b.qp = NULL;
    struct ct_thread thread;
    ct_thread_start(&thread, destroy_cq, b.rcq);
    assert_true(ct_thread_stays(&thread));
    ibv_ack_cq_events(cq, 1);
    assert_true(ct_thread_stays(&thread));
    ibv_ack_cq_events(cq, 1);
    assert_int_equal(ct_thread_join(&thread), 0);
    b.rcq = ibv_create_cq(b.ctx, 1, &b, b.channel, 0); /* for the teardown */
    assert_non_null(b.rcq);
}

WITH(open_default, an_event_nobody_fetched_goes_with_its_queue) {
    skip_emulated("HAS NO PREADV2");
    receives(1);
    assert_int_equal(ibv_req_notify_cq(b.rcq, 0), 0);
    message(0);
    take();
    assert_true(readable(&b, facts.wait_ms));
    assert_int_equal(ibv_destroy_qp(b.qp), 0);
    b.qp = NULL;
    assert_int_equal(ibv_destroy_cq(b.rcq), 0);
    assert_false(readable(&b, 0));
    b.rcq = ibv_create_cq(b.ctx, 1, &b, b.channel, 0);
    assert_non_null(b.rcq);
}

WITH(open_default, a_queue_or_channel_in_use_is_ebusy) {
    assert_int_equal(ibv_destroy_cq(b.rcq), EBUSY);
    assert_int_equal(ibv_destroy_comp_channel(b.channel), EBUSY);
    receives(1);
    message(IBV_SEND_SIGNALED); /* and nothing was hurt */
    take();
    ct_wc(a.scq, 1, IBV_WC_SUCCESS);
}

WITH(open_default, a_destroyed_queue_pair_takes_its_completions_along) {
    receives(2);
    message(IBV_SEND_SIGNALED);
    ct_wc(a.scq, 1, IBV_WC_SUCCESS); /* so its completion lies in b's queue, and one is waiting */
    assert_int_equal(ibv_destroy_qp(b.qp), 0);
    b.qp = NULL;
    if (facts.destroy_keeps_completions)
        ct_wc(b.rcq, 0, IBV_WC_SUCCESS);
    ct_empty(b.rcq);
}

/* ---- overrun ---------------------------------------------------------------------------------------------------- */

WITH(open_short_cq, a_queue_holds_at_least_what_was_asked_for) {
    assert_true(b.rcq->cqe >= 4);
    unsigned n = (unsigned)b.rcq->cqe;
    assert_true(n <= 60);
    receives(n);
    for (unsigned i = 0; i < n; i++)
        assert_int_equal(ct_send(&a, i, 0, 8, IBV_SEND_SIGNALED), 0);
    for (unsigned i = 0; i < n; i++)
        ct_wc(a.scq, i, IBV_WC_SUCCESS);
    for (unsigned i = 0; i < n; i++)
        ct_wc(b.rcq, i, IBV_WC_SUCCESS);
    ct_no_async(b.ctx);
}

WITH(open_short_cq, overrun_is_a_cq_error) {
    unsigned n = (unsigned)b.rcq->cqe + 8;
    assert_true(n <= 60);
    receives(n);
    for (unsigned i = 0; i < n; i++)
        assert_int_equal(ct_send(&a, i, 0, 8, IBV_SEND_SIGNALED), 0);
    struct pollfd fd = {.fd = b.ctx->async_fd, .events = POLLIN};
    struct ibv_wc wc;
    uint64_t end = ct_now_ms() + (uint64_t)facts.wait_ms;
    while (poll(&fd, 1, 0) == 0 && ct_now_ms() < end) /* a looks, b does not */
        assert_true(ibv_poll_cq(a.scq, 1, &wc) >= 0);
    ct_async(b.ctx, IBV_EVENT_CQ_ERR, b.rcq);
}

int main(void) {
    return ct_run();
}
