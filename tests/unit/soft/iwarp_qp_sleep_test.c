/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * iwarp_qp_sleep_test.c - a thread that sleeps on the sockets of its CQ itself (soft_sleep_begin): it is woken by what comes
 * over them, with no help of the engine, which goes on when it does not sleep.
 *
 * The engine is kept from work by the control lock: its callbacks need it.
 */
#include "support/softverbs_tcp.h"

#include <sys/epoll.h>

#include "soft/iwarp/qp_heat.h"

static const struct tcp_options options = {
    .o = {.channel = true, .one_cq = true}, .crc = true, .extended = true};
static struct tcp_pair p;

static int open_pair(void **state) {
    (void)state;
    must_end_process = true;
    tcp_open(&p, &options);
    return 0;
}

static int shut(void **state) {
    (void)state;
    tcp_close(&p);
    return 0;
}

struct sleeper {
    pthread_t thread;
    struct ibv_wc wc;
    _Atomic unsigned naps; /* it is asleep, or about to be, for so many times */
    bool told;             /* the channel had an event */
    _Atomic bool over;
};

/* What it has to look at besides. */
static void nap(struct sleeper *s, int epoll_fd) {
    struct epoll_event events[2];
    atomic_fetch_add(&s->naps, 1);
    int n = epoll_wait(epoll_fd, events, 2, 20000);
    must(n > 0);
    for (int i = 0; i < n; i++)
        if (events[i].data.ptr == p.b.channel) {
            s->told = true;
            sv_cq_event(p.b.channel);
        }
}

/* Until something completed at b. */
static void *sleep_and_poll(void *arg) {
    struct sleeper *s = arg;
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC), set = -1;
    struct epoll_event in = {.events = EPOLLIN, .data.ptr = p.b.channel},
                       edge = {.events = EPOLLIN | EPOLLET, .data.ptr = &set};
    must(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, p.b.channel->fd, &in) == 0);
    for (bool done = false; !done;) {
        int fd = soft_sleep_begin(p.b.rcq);
        must(fd >= 0 && (set == -1 || set == fd));
        if (set < 0)
            must(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &edge) == 0);
        set = fd;
        must(ibv_req_notify_cq(p.b.rcq, 0) == 0);
        done = ibv_poll_cq(p.b.rcq, 1, &s->wc) == 1;
        if (!done)
            nap(s, epoll_fd);
        (void)soft_sleep_end(p.b.rcq);
        done = done || ibv_poll_cq(p.b.rcq, 1, &s->wc) == 1;
    }
    close(epoll_fd);
    atomic_store(&s->over, true);
    return NULL;
}

static void fall_asleep(struct sleeper *s) {
    *s = (struct sleeper){0};
    must(pthread_create(&s->thread, NULL, sleep_and_poll, s) == 0);
    sv_until(atomic_load(&s->naps) > 0);
}

/* The peer's end is polled meanwhile: its engine has no more work than the sleeper's. */
static bool is_over(struct sleeper *s) {
    struct ibv_wc wc;
    (void)ibv_poll_cq(p.a.scq, 1, &wc);
    return atomic_load(&s->over);
}

static void wait_over(struct sleeper *s) {
    sv_until(is_over(s));
    pthread_join(s->thread, NULL);
}

static uint32_t watched_by_the_engine(void) {
    struct soft_qp *qp = soft_qp_of(p.b.qp);
    spin_lock(&qp->lock);
    uint32_t events = qp->tcp->watched;
    spin_unlock(&qp->lock);
    return events;
}

static void its_socket_wakes_it(void **state) {
    (void)state;
    for (unsigned round = 0; round < 50; round++) {
        struct sleeper s;
        sv_fill(p.a.buf, 512, round);
        tcp_recv(&p, round, 0, 4096, 1);
        fall_asleep(&s);
        assert_int_equal(watched_by_the_engine() & EPOLLIN, 0);
        soft_lock();
        must(sv_send(&p.a, 0, 0, 512, 0) == 0);
        wait_over(&s);
        soft_unlock();
        assert_int_equal(s.wc.status, IBV_WC_SUCCESS);
        assert_int_equal(s.wc.wr_id, round);
        sv_check(p.b.buf, 512, round);
        assert_false(s.told);
        assert_int_equal(ld(soft_cq_of(p.b.rcq)->armed), 0);
    }
}

/* As a target it serves its peer, too, and sleeps again. */
static void it_serves_operations_on_its_memory(void **state) {
    struct ibv_send_wr read = {.wr_id = 7,
                               .opcode = IBV_WR_RDMA_READ,
                               .send_flags = IBV_SEND_SIGNALED,
                               .wr.rdma = {(uintptr_t)p.b.buf + 32768, p.open->rkey}};
    struct sleeper s;
    (void)state;
    sv_fill(p.b.buf + 32768, 4096, 3);
    tcp_recv(&p, 1, 0, 4096, 1);
    fall_asleep(&s);
    soft_lock();
    must(tcp_post(&p, read, 8192, 4096, 1) == 0);
    struct ibv_wc wc = sv_poll(p.a.scq);
    sv_until(atomic_load(&s.naps) > 1);
    must(sv_send(&p.a, 0, 0, 512, 0) == 0);
    wait_over(&s);
    soft_unlock();
    assert_true(wc.wr_id == 7 && wc.status == IBV_WC_SUCCESS);
    sv_check(p.a.buf + 8192, 4096, 3);
    assert_int_equal(s.wc.status, IBV_WC_SUCCESS);
}

static void the_end_of_the_connection_wakes_it(void **state) {
    struct sleeper s;
    (void)state;
    tcp_recv(&p, 1, 0, 4096, 1);
    fall_asleep(&s);
    must(sv_to(&p.a, IBV_QPS_ERR) == 0);
    wait_over(&s);
    assert_int_equal(s.wc.wr_id, 1);
    assert_int_equal(s.wc.status, IBV_WC_WR_FLUSH_ERR);
}

/* It slept, and does something else now: the engine serves the peer. */
static void awake_and_not_polling_it_keeps_nobody_waiting(void **state) {
    struct ibv_send_wr write = {.wr_id = 7,
                                .opcode = IBV_WR_RDMA_WRITE,
                                .send_flags = IBV_SEND_SIGNALED,
                                .wr.rdma = {(uintptr_t)p.b.buf + 32768, p.open->rkey}};
    (void)state;
    for (unsigned round = 0; round < 3; round++) {
        must(soft_sleep_begin(p.b.rcq) >= 0);
        must(ibv_req_notify_cq(p.b.rcq, 0) == 0);
        must(soft_sleep_end(p.b.rcq));
        must(tcp_post(&p, write, 0, 4096, 1) == 0);
        tcp_expect(p.a.scq, 7, IBV_WC_SUCCESS);
    }
}

/* And one that arms the CQ without a word of its sleep is told by the channel, as on any device. */
static void behind_a_sleep_the_channel_tells_as_ever(void **state) {
    (void)state;
    must(soft_sleep_begin(p.b.rcq) >= 0);
    must(ibv_req_notify_cq(p.b.rcq, 0) == 0);
    must(soft_sleep_end(p.b.rcq));
    tcp_recv(&p, 1, 0, 4096, 1);
    must(ibv_req_notify_cq(p.b.rcq, 0) == 0);
    must(sv_send(&p.a, 0, 0, 512, 0) == 0);
    assert_ptr_equal(sv_cq_event(p.b.channel), p.b.rcq);
    tcp_expect(p.b.rcq, 1, IBV_WC_SUCCESS);
}

static void without_sockets_or_with_many_there_is_nothing_to_sleep_on(void **state) {
    enum { MORE = SOFT_TCP_DIRECT };
    struct sv_end a[MORE], b = p.b, none;
    struct ibv_qp *more[MORE];
    (void)state;
    sv_open(&none, options.o);
    assert_int_equal(soft_sleep_begin(none.rcq), -1);
    sv_close(&none);
    for (unsigned i = 0; i < MORE; i++) {
        int fd[2];
        int set = soft_sleep_begin(p.b.rcq);
        assert_true(set >= 0);
        (void)soft_sleep_end(p.b.rcq);
        tcp_sockets(fd, 0);
        sv_open(&a[i], options.o);
        tcp_connect(&a[i], fd[0], &options);
        b.qp = more[i] = sv_qp(&p.b);
        tcp_connect(&b, fd[1], &options);
    }
    assert_int_equal(soft_sleep_begin(p.b.rcq), -1);
    for (unsigned i = 0; i < MORE; i++) {
        assert_int_equal(soft_destroy_qp(more[i]), 0);
        sv_close(&a[i]);
    }
}

#define SLEEP_TEST(fn) cmocka_unit_test_setup_teardown(fn, open_pair, shut)

int main(void) {
    const struct CMUnitTest tests[] = {
        SLEEP_TEST(its_socket_wakes_it),
        SLEEP_TEST(it_serves_operations_on_its_memory),
        SLEEP_TEST(the_end_of_the_connection_wakes_it),
        SLEEP_TEST(awake_and_not_polling_it_keeps_nobody_waiting),
        SLEEP_TEST(behind_a_sleep_the_channel_tells_as_ever),
        SLEEP_TEST(without_sockets_or_with_many_there_is_nothing_to_sleep_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
