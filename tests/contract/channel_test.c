/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * channel_test.c - event channels: the descriptor, fetching, acknowledging, what a destroy waits
 * for and takes along, migration of ids between channels.
 */
#include "contract/contract.h"

#include <signal.h>
#include <sys/epoll.h>

/* Queues one event (ADDR_RESOLVED) and waits until it is there. */
static struct rdma_cm_id *queued(struct rdma_event_channel *channel) {
    struct rdma_cm_id *id = ct_id(channel);
    struct sockaddr_in dst = ct_address(4711);
    assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&dst, 2000), 0);
    assert_true(ct_readable(channel, facts.wait_ms));
    return id;
}

/* ---- the descriptor -------------------------------------------------------------------------------------- */

TEST(the_descriptor_is_close_on_exec_and_blocking) {
    struct rdma_event_channel *channel = ct_channel();
    assert_true(fcntl(channel->fd, F_GETFD) & FD_CLOEXEC);
    assert_false(fcntl(channel->fd, F_GETFL) & O_NONBLOCK);
    rdma_destroy_event_channel(channel);
}

TEST(readable_exactly_while_events_are_queued) {
    struct rdma_event_channel *channel = ct_channel();
    assert_false(ct_readable(channel, 0));
    struct rdma_cm_id *a = queued(channel), *b = queued(channel);
    ct_take(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    assert_true(ct_readable(channel, facts.wait_ms));
    ct_take(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    assert_false(ct_readable(channel, 0));
    ct_destroy(a);
    ct_destroy(b);
    rdma_destroy_event_channel(channel);
}

/* Fetched but not acknowledged is not queued any more. */
TEST(an_unacknowledged_event_is_not_readable) {
    struct rdma_event_channel *channel = ct_channel();
    struct rdma_cm_id *id = queued(channel);
    struct rdma_cm_event *event = ct_expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    assert_false(ct_readable(channel, 0));
    assert_int_equal(rdma_ack_cm_event(event), 0);
    ct_destroy(id);
    rdma_destroy_event_channel(channel);
}

TEST(nonblocking_and_empty_is_eagain) {
    struct rdma_event_channel *channel = ct_channel();
    struct rdma_cm_event *event;
    assert_int_equal(fcntl(channel->fd, F_SETFL, O_NONBLOCK), 0);
    assert_fails(rdma_get_cm_event(channel, &event), EAGAIN);
    struct rdma_cm_id *id = queued(channel);
    assert_int_equal(rdma_get_cm_event(channel, &event), 0);
    assert_int_equal(rdma_ack_cm_event(event), 0);
    assert_fails(rdma_get_cm_event(channel, &event), EAGAIN);
    ct_destroy(id);
    rdma_destroy_event_channel(channel);
}

TEST(an_edge_for_every_queued_event) {
    struct rdma_event_channel *channel = ct_channel();
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event want = {.events = EPOLLIN | EPOLLET}, got;
    assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_ADD, channel->fd, &want), 0);
    struct rdma_cm_id *a = queued(channel);
    assert_int_equal(epoll_wait(epoll, &got, 1, facts.wait_ms), 1);
    assert_int_equal(got.events & EPOLLIN, EPOLLIN);
    assert_int_equal(epoll_wait(epoll, &got, 1, 0), 0);
    struct rdma_cm_id *b =
        ct_id(channel); /* a second one behind the first, which still lies there */
    struct sockaddr_in dst = ct_address(4711);
    assert_int_equal(rdma_resolve_addr(b, NULL, (struct sockaddr *)&dst, 2000), 0);
    assert_int_equal(epoll_wait(epoll, &got, 1, facts.wait_ms), 1);
    ct_take(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    ct_take(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    close(epoll);
    ct_destroy(a);
    ct_destroy(b);
    rdma_destroy_event_channel(channel);
}

TEST(errors_of_fetch_and_ack) {
    struct rdma_event_channel *channel = ct_channel();
    assert_fails(rdma_get_cm_event(channel, NULL), EINVAL);
    assert_fails(rdma_ack_cm_event(NULL), EINVAL);
    rdma_destroy_event_channel(channel);
}

/* ---- threads --------------------------------------------------------------------------------------------- */

static int fetch_one(void *arg) {
    struct rdma_cm_event *event;
    if (rdma_get_cm_event(arg, &event))
        return -1;
    int type = (int)event->event;
    return rdma_ack_cm_event(event) ? -1 : type;
}

TEST(a_blocked_fetch_wakes_up) {
    struct rdma_event_channel *channel = ct_channel();
    struct ct_thread thread;
    ct_thread_start(&thread, fetch_one, channel);
    assert_true(ct_thread_stays(&thread));
    struct rdma_cm_id *id = ct_id(channel);
    struct sockaddr_in dst = ct_address(4711);
    assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&dst, 2000), 0);
    assert_int_equal(ct_thread_join(&thread), RDMA_CM_EVENT_ADDR_RESOLVED);
    ct_destroy(id);
    rdma_destroy_event_channel(channel);
}

TEST(each_event_goes_to_one_of_the_threads) {
    enum { COUNT = 8 };
    struct rdma_event_channel *channel = ct_channel();
    struct ct_thread thread[COUNT];
    struct rdma_cm_id *id[COUNT];
    for (int i = 0; i < COUNT; i++)
        ct_thread_start(&thread[i], fetch_one, channel);
    struct sockaddr_in dst = ct_address(4711);
    for (int i = 0; i < COUNT; i++) {
        id[i] = ct_id(channel);
        assert_int_equal(rdma_resolve_addr(id[i], NULL, (struct sockaddr *)&dst, 2000), 0);
    }
    for (int i = 0; i < COUNT; i++) /* one left out would hang here */
        assert_int_equal(ct_thread_join(&thread[i]), RDMA_CM_EVENT_ADDR_RESOLVED);
    assert_false(ct_readable(channel, 0));
    for (int i = 0; i < COUNT; i++)
        ct_destroy(id[i]);
    rdma_destroy_event_channel(channel);
}

static void on_signal(int number) {
    (void)number;
}

/* Without SA_RESTART a signal ends the wait. */
TEST(a_signal_interrupts_the_fetch) {
    struct rdma_event_channel *channel = ct_channel();
    struct sigaction action = {.sa_handler = on_signal}, old;
    assert_int_equal(sigaction(SIGUSR1, &action, &old), 0);
    struct ct_thread thread;
    ct_thread_start(&thread, fetch_one, channel);
    while (!atomic_load(&thread.done)) { /* until it hits the wait */
        pthread_kill(thread.thread, SIGUSR1);
        poll(NULL, 0, 5);
    }
    assert_int_equal(ct_thread_join(&thread), -1);
    assert_int_equal(errno, EINTR);
    sigaction(SIGUSR1, &old, NULL);
    rdma_destroy_event_channel(channel);
}

/* ---- what a destroy waits for ------------------------------------------------------------------------------ */

static int destroy_call(void *id) {
    return rdma_destroy_id(id);
}

TEST(destroy_waits_for_the_fetched_event) {
    struct rdma_event_channel *channel = ct_channel();
    struct rdma_cm_id *id = queued(channel);
    struct rdma_cm_event *event = ct_expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    struct ct_thread thread;
    ct_thread_start(&thread, destroy_call, id);
    assert_true(ct_thread_stays(&thread));
    assert_int_equal(rdma_ack_cm_event(event), 0);
    assert_int_equal(ct_thread_join(&thread), 0);
    rdma_destroy_event_channel(channel);
}

TEST(destroy_discards_what_was_not_fetched) {
    struct rdma_event_channel *channel = ct_channel();
    struct rdma_cm_id *gone = queued(channel), *stays = ct_id(channel);
    struct sockaddr_in dst = ct_address(4712);
    assert_int_equal(rdma_resolve_addr(stays, NULL, (struct sockaddr *)&dst, 2000), 0);
    ct_destroy(gone);
    struct rdma_cm_event *event = ct_expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    assert_ptr_equal(event->id, stays);
    assert_int_equal(rdma_ack_cm_event(event), 0);
    ct_silent(channel);
    ct_destroy(stays);
    rdma_destroy_event_channel(channel);
}

/* CONNECT_REQUEST counts on the listener, not on the new id. */
CT_WITH(ct_listening, a_request_holds_its_listener_not_its_id) {
    struct ct_pair *pair = *state;
    pair->active = ct_connect(pair->active_channel, pair->port);
    struct rdma_cm_event *event = ct_expect(pair->passive_channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    assert_int_equal(rdma_destroy_id(event->id), 0); /* at once, although not acknowledged */
    struct ct_thread thread;
    ct_thread_start(&thread, destroy_call, pair->listener);
    assert_true(ct_thread_stays(&thread));
    assert_int_equal(rdma_ack_cm_event(event), 0);
    assert_int_equal(ct_thread_join(&thread), 0);
    pair->listener = NULL;
}

CT_WITH(ct_connected, acknowledging_in_any_order_and_thread) {
    struct ct_pair *pair = *state;
    struct rdma_cm_id *other = queued(pair->passive_channel);
    struct rdma_cm_event *first = ct_expect(pair->passive_channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    assert_int_equal(rdma_disconnect(pair->active), 0);
    struct rdma_cm_event *second = ct_expect(pair->passive_channel, RDMA_CM_EVENT_DISCONNECTED);
    assert_int_equal(rdma_ack_cm_event(second), 0);
    assert_int_equal(rdma_ack_cm_event(first), 0);
    ct_destroy(other);
}

/* ---- migration --------------------------------------------------------------------------------------------- */

struct move {
    struct rdma_cm_id *id;
    struct rdma_event_channel *to;
};

static int migrate_call(void *arg) {
    struct move *move = arg;
    return rdma_migrate_id(move->id, move->to);
}

TEST(migration_takes_unfetched_events_along) {
    struct rdma_event_channel *from = ct_channel(), *to = ct_channel();
    struct rdma_cm_id *id = queued(from);
    assert_int_equal(rdma_migrate_id(id, to), 0);
    assert_ptr_equal(id->channel, to);
    assert_false(ct_readable(from, 0));
    struct rdma_cm_event *event = ct_expect(to, RDMA_CM_EVENT_ADDR_RESOLVED);
    assert_ptr_equal(event->id, id);
    assert_int_equal(rdma_ack_cm_event(event), 0);
    rdma_destroy_event_channel(from);
    assert_int_equal(rdma_resolve_route(id, 2000), 0); /* what follows comes here too */
    assert_int_equal(ct_take(to, RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
    ct_destroy(id);
    rdma_destroy_event_channel(to);
}

TEST(migration_waits_for_the_fetched_event) {
    struct rdma_event_channel *from = ct_channel(), *to = ct_channel();
    struct rdma_cm_id *id = queued(from);
    struct rdma_cm_event *event = ct_expect(from, RDMA_CM_EVENT_ADDR_RESOLVED);
    struct ct_thread thread;
    struct move move = {id, to};
    ct_thread_start(&thread, migrate_call, &move);
    assert_true(ct_thread_stays(&thread));
    assert_int_equal(rdma_ack_cm_event(event), 0);
    assert_int_equal(ct_thread_join(&thread), 0);
    ct_destroy(id);
    rdma_destroy_event_channel(from);
    rdma_destroy_event_channel(to);
}

TEST(a_listeners_migration_moves_its_future_requests) {
    struct ct_pair pair;
    ct_pair_listen(&pair);
    struct rdma_event_channel *to = ct_channel();
    assert_int_equal(rdma_migrate_id(pair.listener, to), 0);
    pair.active = ct_connect(pair.active_channel, pair.port);
    pair.passive = ct_request(to);
    assert_ptr_equal(pair.passive->channel, to);
    assert_false(ct_readable(pair.passive_channel, 0));
    ct_pair_accept(&pair);
    ct_confirm(pair.active, to);
    ct_pair_free(&pair);
    rdma_destroy_event_channel(to);
}

TEST(a_listeners_migration_moves_its_unfetched_requests) {
    struct ct_pair pair;
    struct rdma_cm_event *event;
    ct_pair_listen(&pair);
    struct rdma_event_channel *to = ct_channel();
    pair.active = ct_connect(pair.active_channel, pair.port);
    assert_true(ct_readable(pair.passive_channel, facts.wait_ms));
    assert_int_equal(rdma_migrate_id(pair.listener, to), 0);
    assert_false(ct_readable(pair.passive_channel, 0));
    assert_true(ct_readable(to, facts.wait_ms));
    if (facts.migration_loses_requests) { /* the fetch finds that out, and waits on */
        assert_int_equal(fcntl(to->fd, F_SETFL, O_NONBLOCK), 0);
        assert_fails(rdma_get_cm_event(to, &event), EAGAIN);
    } else {
        pair.passive = ct_request(to);
        assert_ptr_equal(pair.passive->channel, to);
    }
    ct_pair_free(&pair);
    rdma_destroy_event_channel(to);
}

/* In the handler of a request its new id may move before the event is acknowledged. */
TEST(a_new_id_may_move_before_the_acknowledgement) {
    struct ct_pair pair;
    ct_pair_listen(&pair);
    struct rdma_event_channel *to = ct_channel();
    pair.active = ct_connect(pair.active_channel, pair.port);
    struct rdma_cm_event *event = ct_expect(pair.passive_channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    pair.passive = event->id;
    assert_int_equal(rdma_migrate_id(pair.passive, to), 0);
    assert_int_equal(rdma_ack_cm_event(event), 0);
    ct_pair_accept(&pair);
    ct_confirm(pair.active, to);
    ct_destroy(pair.passive);
    pair.passive = NULL;
    ct_pair_free(&pair);
    rdma_destroy_event_channel(to);
}

int main(void) {
    return ct_run();
}
