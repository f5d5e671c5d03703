/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs_sleep_test.c - a thread that sleeps on what its CQ's queue pairs are told by, itself (soft_sleep_begin): it is
 * woken by what comes over their sockets, or by their own bells, with no help of the engine; which goes on when it does
 * not sleep.
 *
 * The engine is kept from work by the control lock: its callbacks need it.
 */
#include "support/softverbs_sleep.h"

#include <limits.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>

#include "soft/iwarp/cq_set.h"
#include "soft/iwarp/qp_heat.h"
#include "soft/object/cq_pollset.h"

static uint32_t watched_by_the_engine(void) {
    struct soft_qp *qp = soft_qp_of(sleep_pair.b.qp);
    spin_lock(&qp->lock);
    uint32_t events = qp->tcp ? qp->tcp->watched : 0;
    spin_unlock(&qp->lock);
    return events;
}

static void a_message_wakes_it(void **state) {
    for (unsigned round = 0; round < 50; round++) {
        struct sleeper s;
        sv_fill(sleep_pair.a.buf, 512, round);
        tcp_recv(&sleep_pair, round, 0, 4096, 1);
        sleeper_start(&s, state);
        assert_int_equal(watched_by_the_engine() & EPOLLIN, 0);
        soft_lock();
        must(sv_send(&sleep_pair.a, 0, 0, 512, 0) == 0);
        sleeper_join(&s);
        soft_unlock();
        assert_int_equal(s.wc.status, IBV_WC_SUCCESS);
        must_data_equal(s.wc.wr_id, round);
        sv_check(sleep_pair.b.buf, 512, round);
        assert_false(s.told);
        assert_int_equal(ld(soft_cq_of(sleep_pair.b.rcq)->armed), 0);
        assert_int_equal(sleep_armed_word(), 0);
    }
}

/* It waits for its own send to complete, which the peer has not taken when it falls asleep. */
static void an_acknowledgement_wakes_it(void **state) {
    for (unsigned round = 0; round < 20; round++) {
        struct sleeper s;
        struct ibv_wc wc;
        must(sv_recv(&sleep_pair.a, 1, 0, 4096) == 0);
        must(sv_send(&sleep_pair.b, 9, 0, 512, IBV_SEND_SIGNALED) == 0);
        sleeper_start(&s, state);
        soft_lock();
        sv_until(ibv_poll_cq(sleep_pair.a.rcq, 1, &wc) == 1);
        sleeper_join(&s);
        soft_unlock();
        assert_int_equal(s.wc.status, IBV_WC_SUCCESS);
        must_data_equal(s.wc.wr_id, 9);
    }
}

/* As a target it serves its peer, too, and sleeps again. */
static void it_serves_operations_on_its_memory(void **state) {
    struct ibv_send_wr read = {
        .wr_id = 7,
        .opcode = IBV_WR_RDMA_READ,
        .send_flags = IBV_SEND_SIGNALED,
        .wr.rdma = {(uintptr_t)sleep_pair.b.buf + 32768, sleep_pair.open->rkey}};
    struct sleeper s;
    sv_fill(sleep_pair.b.buf + 32768, 4096, 3);
    tcp_recv(&sleep_pair, 1, 0, 4096, 1);
    sleeper_start(&s, state);
    soft_lock();
    must(tcp_post(&sleep_pair, read, 8192, 4096, 1) == 0);
    struct ibv_wc wc = sv_poll(sleep_pair.a.scq);
    sv_until(atomic_load(&s.naps) > 1);
    must(sv_send(&sleep_pair.a, 0, 0, 512, 0) == 0);
    sleeper_join(&s);
    soft_unlock();
    assert_true(wc.wr_id == 7 && wc.status == IBV_WC_SUCCESS);
    sv_check(sleep_pair.a.buf + 8192, 4096, 3);
    assert_int_equal(s.wc.status, IBV_WC_SUCCESS);
}

static void the_end_of_the_connection_wakes_it(void **state) {
    struct sleeper s;
    tcp_recv(&sleep_pair, 1, 0, 4096, 1);
    sleeper_start(&s, state);
    must(sv_to(&sleep_pair.a, IBV_QPS_ERR) == 0);
    sleeper_join(&s);
    must_data_equal(s.wc.wr_id, 1);
    assert_int_equal(s.wc.status, IBV_WC_WR_FLUSH_ERR);
}

#define ROUNDS 3000u

/* Answers each message, or begins. */
static void *sleeps_for_each(void *arg) {
    struct sleeper *s = arg;
    for (unsigned i = 0; i < ROUNDS; i++) {
        if (s->e == &sleep_pair.a)
            must(sv_send(s->e, 0, 0, 64, IBV_SEND_SIGNALED) == 0);
        do
            sleep_until_completion(s);
        while (s->wc.opcode != IBV_WC_RECV);
        must(s->wc.status == IBV_WC_SUCCESS && sv_recv(s->e, 1, 0, 4096) == 0);
        if (s->e == &sleep_pair.b)
            must(sv_send(s->e, 0, 0, 64, IBV_SEND_SIGNALED) == 0);
    }
    close(s->epoll_fd);
    return NULL;
}

static void no_wake_is_lost_where_both_sleep(void **state) {
    enum sleep_way way = *(enum sleep_way *)*state;
    struct sleeper s[2];
    struct sv_end *ends[2] = {&sleep_pair.b, &sleep_pair.a};
    if (way == SLEEP_ON_BELLS)
        sv_until(sleep_has_bell(&sleep_pair.a, &sleep_pair.b));
    soft_lock();
    for (unsigned i = 0; i < 2; i++) {
        must(sv_recv(ends[i], 1, 0, 4096) == 0 && sv_recv(ends[i], 1, 0, 4096) == 0);
        sleeper_open(&s[i], ends[i], way);
        must(pthread_create(&s[i].thread, NULL, sleeps_for_each, &s[i]) == 0);
    }
    for (unsigned i = 0; i < 2; i++)
        pthread_join(s[i].thread, NULL);
    soft_unlock();
    assert_true(atomic_load(&s[0].naps) > 0 && atomic_load(&s[1].naps) > 0);
}

static void what_another_thread_ends_wakes_it(void **state) {
    struct sleeper s;
    tcp_recv(&sleep_pair, 1, 0, 4096, 1);
    sleeper_start(&s, state);
    must(sv_to(&sleep_pair.b, IBV_QPS_ERR) == 0);
    sleeper_join(&s);
    must_data_equal(s.wc.wr_id, 1);
    assert_int_equal(s.wc.status, IBV_WC_WR_FLUSH_ERR);
    assert_true(s.told);
}

/* It slept, and does something else now: the engine serves the peer. */
static void awake_and_not_polling_it_keeps_nobody_waiting(void **state) {
    struct ibv_send_wr write = {
        .wr_id = 7,
        .opcode = IBV_WR_RDMA_WRITE,
        .send_flags = IBV_SEND_SIGNALED,
        .wr.rdma = {(uintptr_t)sleep_pair.b.buf + 32768, sleep_pair.open->rkey}};
    int fd;
    (void)state;
    for (unsigned round = 0; round < 3; round++) {
        must(sleep_may(SLEEP_ON_SOCKETS, &fd));
        must(ibv_req_notify_cq(sleep_pair.b.rcq, 0) == 0);
        must(soft_sleep_end(sleep_pair.b.rcq));
        must(tcp_post(&sleep_pair, write, 0, 4096, 1) == 0);
        tcp_expect(sleep_pair.a.scq, 7, IBV_WC_SUCCESS);
    }
}

/* And one that arms the CQ without a word of its sleep is told by the channel, as on any device. */
static void behind_a_sleep_the_channel_tells_as_ever(void **state) {
    int fd;
    must(sleep_may(*(enum sleep_way *)*state, &fd));
    must(ibv_req_notify_cq(sleep_pair.b.rcq, 0) == 0);
    must(soft_sleep_end(sleep_pair.b.rcq));
    tcp_recv(&sleep_pair, 1, 0, 4096, 1);
    must(ibv_req_notify_cq(sleep_pair.b.rcq, 0) == 0);
    must(sv_send(&sleep_pair.a, 0, 0, 512, 0) == 0);
    assert_ptr_equal(sv_cq_event(sleep_pair.b.channel), sleep_pair.b.rcq);
    tcp_expect(sleep_pair.b.rcq, 1, IBV_WC_SUCCESS);
}

enum { FEW_MORE = 3 * SOFT_TCP_DIRECT, MANY_MORE = SOFT_TCP_LOOK + 16 };

struct more {
    struct ibv_qp *a[MANY_MORE], *b[MANY_MORE];
};

/* So many more queue pairs, connected over sockets. */
static void add_sockets(struct more *more, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        struct sv_end a = sleep_pair.a, b = sleep_pair.b;
        int fd[2];
        tcp_sockets(fd, 0);
        a.qp = more->a[i] = sv_qp(&a);
        tcp_connect(&a, fd[0], &sleep_options);
        b.qp = more->b[i] = sv_qp(&b);
        tcp_connect(&b, fd[1], &sleep_options);
    }
}

static void ends_of(const struct more *more, unsigned i, struct sv_end *a, struct sv_end *b) {
    *a = sleep_pair.a;
    *b = sleep_pair.b;
    a->qp = more->a[i];
    b->qp = more->b[i];
}

static void take_away(struct more *more, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(soft_destroy_qp(more->a[i]), 0);
        assert_int_equal(soft_destroy_qp(more->b[i]), 0);
    }
}

/* More than a few, of which polls read only those that the set reports. */
static void each_wakes_it(void **state, unsigned count) {
    struct more more;
    add_sockets(&more, count);
    for (unsigned round = 0; round < 2 * count; round++) {
        struct sv_end a, b;
        struct sleeper s;
        ends_of(&more, round % count, &a, &b);
        sv_fill(a.buf, 512, round);
        must(sv_recv(&b, round, 0, 4096) == 0);
        sleeper_start(&s, state);
        soft_lock();
        must(sv_send(&a, 0, 0, 512, 0) == 0);
        sleeper_join(&s);
        soft_unlock();
        must_data_equal(s.wc.wr_id, round);
        sv_check(b.buf, 512, round);
        assert_false(s.told);
    }
    take_away(&more, count);
}

static void each_of_some_wakes_it(void **state) {
    each_wakes_it(state, FEW_MORE);
}

static void each_of_many_wakes_it(void **state) {
    each_wakes_it(state, MANY_MORE);
}

static void no_wake_is_lost_among_many(void **state) {
    struct more more;
    add_sockets(&more, MANY_MORE);
    no_wake_is_lost_where_both_sleep(state);
    take_away(&more, MANY_MORE);
}

/* And one that arms the CQ alone is told by the channel, whichever of them it is. */
static void behind_a_sleep_the_channel_tells_of_many(void **state) {
    struct more more;
    int fd;
    (void)state;
    add_sockets(&more, MANY_MORE);
    for (unsigned i = 0; i < MANY_MORE; i++) {
        struct sv_end a, b;
        ends_of(&more, i, &a, &b);
        must(sleep_may(SLEEP_ON_SOCKETS, &fd));
        must(ibv_req_notify_cq(b.rcq, 0) == 0);
        must(soft_sleep_end(b.rcq));
        must(sv_recv(&b, 1, 0, 4096) == 0);
        must(ibv_req_notify_cq(b.rcq, 0) == 0);
        assert_true(soft_tcp_set_is_watched(soft_qp_of(b.qp)));
        must(sv_send(&a, 0, 0, 512, 0) == 0);
        assert_ptr_equal(sv_cq_event(b.channel), b.rcq);
        tcp_expect(b.rcq, 1, IBV_WC_SUCCESS);
    }
    take_away(&more, MANY_MORE);
}

/* Of a CQ that is polled. */
static bool is_put_aside(struct sv_end *e) {
    struct soft_cq *cq = soft_cq_of(e->rcq);
    struct ibv_wc wc;
    must(ibv_poll_cq(e->rcq, 1, &wc) == 0);
    spin_lock(&cq->poll_lock);
    bool aside = soft_cq_pollset_is_aside(cq, soft_qp_of(e->qp)->cq_at[0]);
    spin_unlock(&cq->poll_lock);
    return aside;
}

/* The acknowledgement waits for a message that the program may send next. It does not, and does not poll either. */
static void what_waits_for_the_next_poll_goes_when_many_are_armed(void **state) {
    struct more more;
    (void)state;
    add_sockets(&more, FEW_MORE);
    for (unsigned i = 0; i < FEW_MORE; i++) {
        struct sv_end a, b;
        ends_of(&more, i, &a, &b);
        must(sv_recv(&b, 1, 0, 4096) == 0 && sv_recv(&b, 2, 0, 4096) == 0);
        must(sv_send(&a, 3, 0, 512, 0) == 0);
        tcp_expect(b.rcq, 1, IBV_WC_SUCCESS);
        sv_until(is_put_aside(&b));
        must(sv_send(&a, 4, 0, 512, IBV_SEND_SIGNALED) == 0);
        tcp_expect(b.rcq, 2, IBV_WC_SUCCESS);
        must(ibv_req_notify_cq(b.rcq, 0) == 0);
        tcp_expect(a.scq, 4, IBV_WC_SUCCESS);
        must(sv_recv(&b, 5, 0, 4096) == 0 && sv_send(&a, 5, 0, 512, 0) == 0);
        assert_ptr_equal(sv_cq_event(b.channel), b.rcq); /* not armed any more */
        tcp_expect(b.rcq, 5, IBV_WC_SUCCESS);
    }
    take_away(&more, FEW_MORE);
}

static void without_sockets_there_is_nothing_to_sleep_on(void **state) {
    struct sv_end none;
    int fds[2];
    (void)state;
    sv_open(&none, sleep_options.o);
    assert_false(soft_sleep_begin(none.rcq, false, fds));
    sv_close(&none);
}

/* A thread that sleeps on one of two CQs would keep the other's from being told. */
static void nor_where_sends_complete_elsewhere(void **state) {
    struct tcp_options o = sleep_options;
    struct tcp_pair pair;
    int fds[2];
    (void)state;
    o.o.one_cq = false;
    tcp_open(&pair, &o);
    assert_false(soft_sleep_begin(pair.b.rcq, false, fds) && fds[SLEEP_ON_SOCKETS] >= 0);
    tcp_close(&pair);
}

/* Its thread may be busy elsewhere when something wakes it: sockets would not be read then. */
static void elsewhere_it_sleeps_on_bells_only(void **state) {
    int fds[2];
    bool may = soft_sleep_begin(sleep_pair.b.rcq, true, fds);
    assert_int_equal(may, *(enum sleep_way *)*state == SLEEP_ON_BELLS);
    assert_int_equal(may, fds[SLEEP_ON_BELLS] >= 0);
    assert_int_equal(fds[SLEEP_ON_SOCKETS], -1);
    if (may)
        (void)soft_sleep_end(sleep_pair.b.rcq);
}

/* As one that lost its CPU in the middle of a turn: the engine has others to serve, who wait for the control lock. */
static void a_tick_does_not_wait_for_who_makes_a_turn(void **state) {
    struct soft_qp *qp = soft_qp_of(sleep_pair.b.qp);
    uint64_t limit = soft_now_ns() + SV_DEADLINE_NS;
    unsigned missed;
    (void)state;
    spin_lock(&qp->lock);
    soft_tcp_want_tick(qp);
    while ((missed = ld(qp->tcp->tick_missed)) < 3 && soft_now_ns() < limit)
        sched_yield();
    spin_unlock(&qp->lock);
    assert_in_range(missed, 3, UINT_MAX);
    sv_until(ld(qp->tcp->tick_missed) == 0);
}

/* ---- long messages ------------------------------------------------------------------------------------- */

enum { LONG = 3 * SOFT_TCP_TURN, FILLS = 20 };

static int long_open(void **state) {
    struct tcp_options o = sleep_options;
    o.o.bytes = LONG;
    o.buffer = 4 * LONG;
    (void)state;
    must_end_process = true;
    tcp_open(&sleep_pair, &o);
    return 0;
}

static int long_shut(void **state) {
    (void)state;
    tcp_close(&sleep_pair);
    return 0;
}

/* How much b has not read. */
static size_t unread(void) {
    int bytes = 0;
    must(ioctl(soft_qp_of(sleep_pair.b.qp)->tcp->fd, FIONREAD, &bytes) == 0);
    return (size_t)bytes;
}

/* A message goes into the socket, while nobody reads. True: all of it is there. */
static bool fills_the_socket(void) {
    const struct iwarp_tx *tx = &soft_qp_of(sleep_pair.a.qp)->tcp->tx;
    struct ibv_wc wc;
    uint64_t from = tx->sent, before;
    must(sv_send(&sleep_pair.a, 0, 0, LONG, IBV_SEND_SIGNALED) == 0);
    do {
        before = unread();
        for (unsigned polls = 0; polls < 64; polls++)
            must(ibv_poll_cq(sleep_pair.a.rcq, 1, &wc) == 0);
    } while (before != unread());
    return before > LONG && !tx->open && before == tx->framed - from;
}

static void fall_asleep(void) {
    int fd;
    must(sleep_may(SLEEP_ON_SOCKETS, &fd));
    must(ibv_req_notify_cq(sleep_pair.b.rcq, 0) == 0);
}

/* Its thread was woken, and goes on until that completed. How often it would have slept again. */
static unsigned sleeps_until(struct ibv_wc *wc) {
    unsigned sleeps = 0;
    (void)soft_sleep_end(sleep_pair.b.rcq);
    while (ibv_poll_cq(sleep_pair.b.rcq, 1, wc) == 0) {
        fall_asleep();
        bool done = ibv_poll_cq(sleep_pair.b.rcq, 1, wc) == 1;
        sleeps += !done && !soft_sleep_unfinished(sleep_pair.b.rcq);
        (void)soft_sleep_end(sleep_pair.b.rcq);
        if (done)
            break;
    }
    return sleeps;
}

/* The edge that wakes the thread tells of all that is there, once, and a turn takes only part of it. */
static void a_long_message_that_is_there_wakes_it_once(void **state) {
    unsigned whole = 0;
    (void)state;
    for (unsigned round = 0; round < FILLS && whole < 3; round++) {
        struct ibv_wc wc;
        sv_fill(sleep_pair.a.buf, LONG, round);
        tcp_recv(&sleep_pair, round, 0, LONG, 1);
        fall_asleep();
        soft_lock();
        bool is_whole = fills_the_socket();
        unsigned sleeps = is_whole ? sleeps_until(&wc) : 0;
        soft_unlock();
        if (!is_whole) { /* it waits for the window */
            (void)soft_sleep_end(sleep_pair.b.rcq);
            wc = sv_poll(sleep_pair.b.rcq);
        }
        tcp_expect(sleep_pair.a.scq, 0, IBV_WC_SUCCESS);
        whole += is_whole;
        assert_int_equal(sleeps, 0);
        assert_int_equal(wc.status, IBV_WC_SUCCESS);
        must_data_equal(wc.wr_id, round);
        sv_check(sleep_pair.b.buf, LONG, round);
    }
    if (whole == 0)
        skip(); /* sockets do not hold so much here */
}

static enum sleep_way sockets = SLEEP_ON_SOCKETS, bells = SLEEP_ON_BELLS;

TEST_CASES(SLEEP_TEST(a_message_wakes_it, sockets), SLEEP_TEST(a_message_wakes_it, bells),
           SLEEP_TEST(no_wake_is_lost_where_both_sleep, sockets),
           SLEEP_TEST(no_wake_is_lost_where_both_sleep, bells),
           {"a_long_message_that_is_there_wakes_it_once",
            a_long_message_that_is_there_wakes_it_once, long_open, long_shut, NULL},
           SLEEP_TEST(a_tick_does_not_wait_for_who_makes_a_turn, sockets),
           SLEEP_TEST(an_acknowledgement_wakes_it, bells),
           SLEEP_TEST(the_end_of_the_connection_wakes_it, sockets),
           SLEEP_TEST(what_another_thread_ends_wakes_it, sockets),
           SLEEP_TEST(what_another_thread_ends_wakes_it, bells),
           SLEEP_TEST(behind_a_sleep_the_channel_tells_as_ever, sockets),
           SLEEP_TEST(behind_a_sleep_the_channel_tells_as_ever, bells),
           SLEEP_TEST(elsewhere_it_sleeps_on_bells_only, sockets),
           SLEEP_TEST(elsewhere_it_sleeps_on_bells_only, bells),
           SLEEP_TEST(it_serves_operations_on_its_memory, sockets),
           SLEEP_TEST(awake_and_not_polling_it_keeps_nobody_waiting, sockets),
           SLEEP_TEST(each_of_some_wakes_it, sockets), SLEEP_TEST(each_of_many_wakes_it, sockets),
           SLEEP_TEST(no_wake_is_lost_among_many, sockets),
           SLEEP_TEST(behind_a_sleep_the_channel_tells_of_many, sockets),
           SLEEP_TEST(what_waits_for_the_next_poll_goes_when_many_are_armed, sockets),
           SLEEP_TEST(without_sockets_there_is_nothing_to_sleep_on, sockets),
           SLEEP_TEST(nor_where_sends_complete_elsewhere, sockets));
