/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * patience_test.c - what ends by the CM's timers, more than a minute on a kernel: all of it is begun
 * before the first test and runs at the same time; the tests gather what came.
 */
#include "contract/contract.h"

static struct ct_pair unanswered_reply, full_backlog, hesitating, datagram;
static struct rdma_event_channel *turned_away_channel;
static struct rdma_cm_id *small_listener, *turned_away;

static void wait_for(struct rdma_event_channel *channel) {
    assert_true(ct_readable(channel, facts.patience_ms));
}

static int begin(void **state) {
    (void)state;
    /* 1: accepted, and the active side never answers the reply. */
    ct_pair_request(&unanswered_reply);
    ct_pair_accept(&unanswered_reply);
    /* 2: a backlog of one, taken by the first request, which is not fetched. */
    ct_pair_listen(&full_backlog);
    small_listener = ct_id(full_backlog.passive_channel);
    uint16_t port = ct_listen(small_listener, 1);
    full_backlog.active = ct_connect(full_backlog.active_channel, port);
    assert_true(ct_readable(full_backlog.passive_channel, facts.wait_ms));
    turned_away_channel = ct_channel();
    turned_away = ct_connect(turned_away_channel, port);
    /* 3: a request that nobody accepts or refuses. */
    ct_pair_request(&hesitating);
    /* 4: the same of a datagram id. */
    memset(&datagram, 0, sizeof datagram);
    datagram.passive_channel = ct_channel();
    datagram.active_channel = ct_channel();
    datagram.listener = ct_ud_id(datagram.passive_channel);
    datagram.active = ct_ud_id(datagram.active_channel);
    ct_resolve(datagram.active, ct_listen(datagram.listener, 4));
    struct rdma_conn_param param = {.private_data = NULL};
    assert_int_equal(rdma_connect(datagram.active, &param), 0);
    datagram.passive = ct_request(datagram.passive_channel);
    return 0;
}

TEST(unreachable_reaches_the_passive_side) {
    if (!facts.hesitation_ends) {
        ct_pair_free(&unanswered_reply);
        ct_skip("the wait is granted again with each repetition: no end within the test's time");
    }
    wait_for(unanswered_reply.passive_channel);
    assert_int_equal(ct_take(unanswered_reply.passive_channel, RDMA_CM_EVENT_UNREACHABLE),
                     -ETIMEDOUT);
    ct_pair_free(&unanswered_reply);
}

TEST(backlog_overflow_is_silent_until_unreachable) {
    wait_for(turned_away_channel);
    assert_int_equal(ct_take(turned_away_channel, RDMA_CM_EVENT_UNREACHABLE), -ETIMEDOUT);
    /* Fetching frees the place: the next one gets through. */
    full_backlog.passive = ct_request(full_backlog.passive_channel);
    assert_false(ct_readable(full_backlog.passive_channel, 0));
    struct rdma_cm_id *third =
        ct_connect(turned_away_channel, ntohs(rdma_get_src_port(small_listener)));
    ct_destroy(ct_request(full_backlog.passive_channel));
    assert_int_equal(ct_take(turned_away_channel, RDMA_CM_EVENT_REJECTED), 28);
    ct_destroy(third);
    ct_destroy(turned_away);
    ct_destroy(small_listener);
    rdma_destroy_event_channel(turned_away_channel);
    ct_pair_free(&full_backlog);
}

TEST(a_request_nobody_answers_is_unreachable) {
    if (!facts.hesitation_ends) {
        ct_pair_free(&hesitating);
        ct_skip("the wait is granted again with each repetition: no end within the test's time");
    }
    wait_for(hesitating.active_channel);
    assert_int_equal(ct_take(hesitating.active_channel, RDMA_CM_EVENT_UNREACHABLE), -ETIMEDOUT);
    assert_false(ct_readable(hesitating.passive_channel, 0)); /* the repetitions were recognised */
    ct_pair_free(&hesitating);
}

TEST(a_datagram_request_nobody_answers_is_unreachable) {
    wait_for(datagram.active_channel);
    assert_int_equal(ct_take(datagram.active_channel, RDMA_CM_EVENT_UNREACHABLE), -ETIMEDOUT);
    assert_false(ct_readable(datagram.passive_channel, 0));
    ct_pair_free(&datagram);
}

int main(void) {
    ct_start();
    return tests_run(begin, NULL);
}
