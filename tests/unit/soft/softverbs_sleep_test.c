/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs_sleep_test.c - a thread that sleeps on what its CQ's queue pairs are told by, itself (soft_sleep_begin): it is
 * woken by what comes over their sockets, or by their own bells, with no help of the engine; which goes on when it does
 * not sleep.
 *
 * The engine is kept from work by the control lock: its callbacks need it.
 */
#include "support/softverbs_hostile.h"
#include "support/softverbs_tcp.h"

#include <sys/epoll.h>
#include <sys/resource.h>

#include "soft/ipc/shm_layout.h"
#include "soft/ipc/shm_page.h"
#include "soft/iwarp/qp_heat.h"
#include "soft/rc/qp_bell.h"

enum way { SOCKETS, BELLS };

static const struct tcp_options options = {
    .o = {.channel = true, .one_cq = true}, .crc = true, .extended = true};
static struct tcp_pair p;

/* The thread that polls this end may sleep; *fd, what it sleeps on besides. */
static bool end_may_sleep(struct sv_end *e, enum way way, int *fd) {
    int fds[2];
    bool may = soft_sleep_begin(e->rcq, false, fds);
    must(!may || (fds[way] >= 0 && fds[!way] == -1));
    *fd = fds[way];
    return may;
}

static bool may_sleep(enum way way, int *fd) {
    return end_may_sleep(&p.b, way, fd);
}

/* This end, and the other knows. */
static bool has_bell(struct sv_end *e, const struct sv_end *other) {
    int fd;
    if (end_may_sleep(e, BELLS, &fd))
        (void)soft_sleep_end(e->rcq);
    soft_lock();
    bool given = soft_qp_of(e->qp)->bell_in > 0 && soft_qp_of(other->qp)->bell_out > 0;
    soft_unlock();
    return given;
}

static int open_pair(void **state) {
    must_end_process = true;
    if (*(enum way *)*state == SOCKETS) {
        tcp_open(&p, &options);
        return 0;
    }
    sv_pair(&p.a, options.o, &p.b, options.o);
    sv_wait_linked(&p.a);
    sv_until(has_bell(&p.b, &p.a));
    return 0;
}

static int shut(void **state) {
    if (*(enum way *)*state == SOCKETS)
        tcp_close(&p);
    else
        sv_unpair(&p.a, &p.b);
    return 0;
}

struct sleeper {
    enum way way;
    struct sv_end *e;
    pthread_t thread;
    int epoll_fd, set; /* what it sleeps on, and what is in that of the device's; -1: nothing yet */
    struct ibv_wc wc;
    _Atomic unsigned naps; /* it is asleep, or about to be, for so many times */
    bool told;             /* the channel had an event */
    _Atomic bool over;
};

static void nap(struct sleeper *s) {
    struct epoll_event events[2];
    atomic_fetch_add(&s->naps, 1);
    int n = epoll_wait(s->epoll_fd, events, 2, 20000);
    must(n > 0);
    for (int i = 0; i < n; i++)
        if (events[i].data.ptr == s->e->channel) {
            s->told = true;
            sv_cq_event(s->e->channel);
        }
}

/* Until something completed. */
static void sleep_and_poll(struct sleeper *s) {
    struct epoll_event edge = {.events = EPOLLIN | EPOLLET, .data.ptr = &s->set};
    for (bool done = false; !done;) {
        int fd;
        must(end_may_sleep(s->e, s->way, &fd) && (s->set == -1 || s->set == fd));
        if (s->set < 0)
            must(epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, fd, &edge) == 0);
        s->set = fd;
        must(ibv_req_notify_cq(s->e->rcq, 0) == 0);
        done = ibv_poll_cq(s->e->rcq, 1, &s->wc) == 1;
        if (!done)
            nap(s);
        (void)soft_sleep_end(s->e->rcq);
        done = done || ibv_poll_cq(s->e->rcq, 1, &s->wc) == 1;
    }
}

static void open_sleeper(struct sleeper *s, struct sv_end *e, enum way way) {
    *s = (struct sleeper){.way = way, .e = e, .epoll_fd = epoll_create1(EPOLL_CLOEXEC), .set = -1};
    struct epoll_event in = {.events = EPOLLIN, .data.ptr = e->channel};
    must(epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, e->channel->fd, &in) == 0);
}

static void *sleeps_once(void *arg) {
    struct sleeper *s = arg;
    sleep_and_poll(s);
    close(s->epoll_fd);
    atomic_store(&s->over, true);
    return NULL;
}

static void fall_asleep(struct sleeper *s, void **state) {
    open_sleeper(s, &p.b, *(enum way *)*state);
    must(pthread_create(&s->thread, NULL, sleeps_once, s) == 0);
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
    uint32_t events = qp->tcp ? qp->tcp->watched : 0;
    spin_unlock(&qp->lock);
    return events;
}

static uint32_t armed_word(void) {
    return atomic_load(&soft_shm_page->cq[soft_cq_of(p.b.rcq)->shm_index].armed);
}

static void a_message_wakes_it(void **state) {
    for (unsigned round = 0; round < 50; round++) {
        struct sleeper s;
        sv_fill(p.a.buf, 512, round);
        tcp_recv(&p, round, 0, 4096, 1);
        fall_asleep(&s, state);
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
        assert_int_equal(armed_word(), 0);
    }
}

/* It waits for its own send to complete, which the peer has not taken when it falls asleep. */
static void an_acknowledgement_wakes_it(void **state) {
    for (unsigned round = 0; round < 20; round++) {
        struct sleeper s;
        struct ibv_wc wc;
        must(sv_recv(&p.a, 1, 0, 4096) == 0);
        must(sv_send(&p.b, 9, 0, 512, IBV_SEND_SIGNALED) == 0);
        fall_asleep(&s, state);
        soft_lock();
        sv_until(ibv_poll_cq(p.a.rcq, 1, &wc) == 1);
        wait_over(&s);
        soft_unlock();
        assert_int_equal(s.wc.status, IBV_WC_SUCCESS);
        assert_int_equal(s.wc.wr_id, 9);
    }
}

/* As a target it serves its peer, too, and sleeps again. */
static void it_serves_operations_on_its_memory(void **state) {
    struct ibv_send_wr read = {.wr_id = 7,
                               .opcode = IBV_WR_RDMA_READ,
                               .send_flags = IBV_SEND_SIGNALED,
                               .wr.rdma = {(uintptr_t)p.b.buf + 32768, p.open->rkey}};
    struct sleeper s;
    sv_fill(p.b.buf + 32768, 4096, 3);
    tcp_recv(&p, 1, 0, 4096, 1);
    fall_asleep(&s, state);
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
    tcp_recv(&p, 1, 0, 4096, 1);
    fall_asleep(&s, state);
    must(sv_to(&p.a, IBV_QPS_ERR) == 0);
    wait_over(&s);
    assert_int_equal(s.wc.wr_id, 1);
    assert_int_equal(s.wc.status, IBV_WC_WR_FLUSH_ERR);
}

#define ROUNDS 3000u

/* Answers each message, or begins. */
static void *sleeps_for_each(void *arg) {
    struct sleeper *s = arg;
    for (unsigned i = 0; i < ROUNDS; i++) {
        if (s->e == &p.a)
            must(sv_send(s->e, 0, 0, 64, IBV_SEND_SIGNALED) == 0);
        do
            sleep_and_poll(s);
        while (s->wc.opcode != IBV_WC_RECV);
        must(s->wc.status == IBV_WC_SUCCESS && sv_recv(s->e, 1, 0, 4096) == 0);
        if (s->e == &p.b)
            must(sv_send(s->e, 0, 0, 64, IBV_SEND_SIGNALED) == 0);
    }
    close(s->epoll_fd);
    return NULL;
}

static void no_wake_is_lost_where_both_sleep(void **state) {
    enum way way = *(enum way *)*state;
    struct sleeper s[2];
    struct sv_end *ends[2] = {&p.b, &p.a};
    if (way == BELLS)
        sv_until(has_bell(&p.a, &p.b));
    soft_lock();
    for (unsigned i = 0; i < 2; i++) {
        must(sv_recv(ends[i], 1, 0, 4096) == 0 && sv_recv(ends[i], 1, 0, 4096) == 0);
        open_sleeper(&s[i], ends[i], way);
        must(pthread_create(&s[i].thread, NULL, sleeps_for_each, &s[i]) == 0);
    }
    for (unsigned i = 0; i < 2; i++)
        pthread_join(s[i].thread, NULL);
    soft_unlock();
    assert_true(atomic_load(&s[0].naps) > 0 && atomic_load(&s[1].naps) > 0);
}

static void what_another_thread_ends_wakes_it(void **state) {
    struct sleeper s;
    tcp_recv(&p, 1, 0, 4096, 1);
    fall_asleep(&s, state);
    must(sv_to(&p.b, IBV_QPS_ERR) == 0);
    wait_over(&s);
    assert_int_equal(s.wc.wr_id, 1);
    assert_int_equal(s.wc.status, IBV_WC_WR_FLUSH_ERR);
    assert_true(s.told);
}

/* It slept, and does something else now: the engine serves the peer. */
static void awake_and_not_polling_it_keeps_nobody_waiting(void **state) {
    struct ibv_send_wr write = {.wr_id = 7,
                                .opcode = IBV_WR_RDMA_WRITE,
                                .send_flags = IBV_SEND_SIGNALED,
                                .wr.rdma = {(uintptr_t)p.b.buf + 32768, p.open->rkey}};
    int fd;
    (void)state;
    for (unsigned round = 0; round < 3; round++) {
        must(may_sleep(SOCKETS, &fd));
        must(ibv_req_notify_cq(p.b.rcq, 0) == 0);
        must(soft_sleep_end(p.b.rcq));
        must(tcp_post(&p, write, 0, 4096, 1) == 0);
        tcp_expect(p.a.scq, 7, IBV_WC_SUCCESS);
    }
}

/* And one that arms the CQ without a word of its sleep is told by the channel, as on any device. */
static void behind_a_sleep_the_channel_tells_as_ever(void **state) {
    int fd;
    must(may_sleep(*(enum way *)*state, &fd));
    must(ibv_req_notify_cq(p.b.rcq, 0) == 0);
    must(soft_sleep_end(p.b.rcq));
    tcp_recv(&p, 1, 0, 4096, 1);
    must(ibv_req_notify_cq(p.b.rcq, 0) == 0);
    must(sv_send(&p.a, 0, 0, 512, 0) == 0);
    assert_ptr_equal(sv_cq_event(p.b.channel), p.b.rcq);
    tcp_expect(p.b.rcq, 1, IBV_WC_SUCCESS);
}

struct more {
    struct ibv_qp *a[64], *b[64];
};

/* So many more queue pairs, connected over sockets. */
static void add_sockets(struct more *more, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        struct sv_end a = p.a, b = p.b;
        int fd[2];
        tcp_sockets(fd, 0);
        a.qp = more->a[i] = sv_qp(&a);
        tcp_connect(&a, fd[0], &options);
        b.qp = more->b[i] = sv_qp(&b);
        tcp_connect(&b, fd[1], &options);
    }
}

static void take_away(struct more *more, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(soft_destroy_qp(more->a[i]), 0);
        assert_int_equal(soft_destroy_qp(more->b[i]), 0);
    }
}

/* More than a few, of which polls read only those that the set reports. */
static void each_of_many_wakes_it(void **state) {
    enum { MORE = 3 * SOFT_TCP_DIRECT };
    struct more more;
    add_sockets(&more, MORE);
    for (unsigned round = 0; round < 2 * MORE; round++) {
        struct sv_end a = p.a, b = p.b;
        struct sleeper s;
        a.qp = more.a[round % MORE];
        b.qp = more.b[round % MORE];
        sv_fill(a.buf, 512, round);
        must(sv_recv(&b, round, 0, 4096) == 0);
        fall_asleep(&s, state);
        soft_lock();
        must(sv_send(&a, 0, 0, 512, 0) == 0);
        wait_over(&s);
        soft_unlock();
        assert_int_equal(s.wc.wr_id, round);
        sv_check(b.buf, 512, round);
        assert_false(s.told);
    }
    take_away(&more, MORE);
}

static void no_wake_is_lost_among_many(void **state) {
    struct more more;
    add_sockets(&more, 2 * SOFT_TCP_DIRECT);
    no_wake_is_lost_where_both_sleep(state);
    take_away(&more, 2 * SOFT_TCP_DIRECT);
}

static void without_sockets_or_with_too_many_there_is_nothing_to_sleep_on(void **state) {
    enum { MORE = 64 };
    struct sv_end none;
    struct more more;
    int fds[2];
    (void)state;
    sv_open(&none, options.o);
    assert_false(soft_sleep_begin(none.rcq, false, fds));
    sv_close(&none);
    add_sockets(&more, MORE - 1);
    assert_true(may_sleep(SOCKETS, fds));
    (void)soft_sleep_end(p.b.rcq);
    take_away(&more, MORE - 1);
    add_sockets(&more, MORE);
    assert_false(soft_sleep_begin(p.b.rcq, false, fds));
    take_away(&more, MORE);
}

/* Its thread may be busy elsewhere when something wakes it: sockets would not be read then. */
static void elsewhere_it_sleeps_on_bells_only(void **state) {
    int fds[2];
    bool may = soft_sleep_begin(p.b.rcq, true, fds);
    assert_int_equal(may, *(enum way *)*state == BELLS);
    assert_int_equal(may, fds[BELLS] >= 0);
    assert_int_equal(fds[SOCKETS], -1);
    if (may)
        (void)soft_sleep_end(p.b.rcq);
}

/* ---- bells ------------------------------------------------------------------------------------- */

static int bells_of(const struct ibv_qp *ibqp) {
    const struct soft_qp *qp = soft_qp_of(ibqp);
    soft_lock();
    int count = (qp->bell_in > 0) + (qp->bell_out > 0);
    soft_unlock();
    return count;
}

/* Another CQ of this word is armed: its thread is woken by the engine, which needs to hear. */
static void a_word_of_two_queues_rings_both(void **state) {
    struct soft_cq *cq = soft_cq_of(p.b.rcq);
    int fd;
    (void)state;
    must(may_sleep(BELLS, &fd));
    must(ibv_req_notify_cq(p.b.rcq, 0) == 0);
    atomic_fetch_add(&soft_shm_page->cq[cq->shm_index].armed, 1);
    tcp_recv(&p, 1, 0, 4096, 1);
    must(sv_send(&p.a, 0, 0, 512, 0) == 0);
    assert_ptr_equal(sv_cq_event(p.b.channel), p.b.rcq); /* by the engine */
    atomic_fetch_sub(&soft_shm_page->cq[cq->shm_index].armed, 1);
    (void)soft_sleep_end(p.b.rcq);
    tcp_expect(p.b.rcq, 1, IBV_WC_SUCCESS);
    assert_int_equal(armed_word(), 0);
}

/* A bell that nothing hears any more: the process's is rung. */
static void a_bell_that_is_gone_is_not_relied_on(void **state) {
    struct soft_qp *b = soft_qp_of(p.b.qp);
    int fd;
    (void)state;
    must(may_sleep(BELLS, &fd));
    must(ibv_req_notify_cq(p.b.rcq, 0) == 0);
    must(shutdown(b->bell_in - 1, SHUT_RDWR) == 0);
    tcp_recv(&p, 1, 0, 4096, 1);
    must(sv_send(&p.a, 0, 0, 512, 0) == 0);
    assert_ptr_equal(sv_cq_event(p.b.channel), p.b.rcq);
    (void)soft_sleep_end(p.b.rcq);
    tcp_expect(p.b.rcq, 1, IBV_WC_SUCCESS);
}

/* In whatever way the queue pair goes down, and a peer that is given none has none. */
static void a_bell_ends_with_its_queue_pair(void **state) {
    unsigned before = sv_fds();
    struct tcp_pair first = p;
    int fd;
    (void)state;
    for (enum sv_down how = SV_TO_RESET; how < SV_DOWNS; how++) {
        sv_pair(&p.a, options.o, &p.b, options.o);
        assert_int_equal(bells_of(p.b.qp), 0);
        sv_wait_linked(&p.a);
        sv_until(has_bell(&p.b, &p.a));
        must(may_sleep(BELLS, &fd));
        (void)soft_sleep_end(p.b.rcq);
        sv_take_down(&p.b, how);
        if (how == SV_TO_RESET)
            assert_int_equal(bells_of(p.b.qp), 0);
        uint32_t index = soft_cq_of(p.b.rcq)->shm_index;
        sv_unpair(&p.a, &p.b);
        assert_int_equal(atomic_load(&soft_shm_page->cq[index].armed), 0);
        sv_until(sv_fds() == before);
    }
    p = first;
}

/* A message from the other end of that queue pair of b's wakes it, by the channel. */
static void the_channel_tells_of(struct ibv_qp *from, struct ibv_qp *to) {
    struct sv_end a = p.a, b = p.b;
    int fd;
    a.qp = from;
    b.qp = to;
    must(sv_recv(&b, 1, 0, 4096) == 0 && may_sleep(BELLS, &fd));
    must(ibv_req_notify_cq(b.rcq, 0) == 0);
    must(sv_send(&a, 0, 0, 512, 0) == 0);
    assert_ptr_equal(sv_cq_event(b.channel), b.rcq);
    (void)soft_sleep_end(b.rcq);
    tcp_expect(b.rcq, 1, IBV_WC_SUCCESS);
}

/* Bells are as many as a CQ may have, or as leave room for other descriptors; others ring the process's. */
static void bells_are_limited(rlim_t descriptors, unsigned most) {
    enum { MORE = SOFT_BELLS };
    struct ibv_qp *a[MORE], *b[MORE];
    struct rlimit before, limit;
    must(getrlimit(RLIMIT_NOFILE, &before) == 0);
    limit = before;
    limit.rlim_cur = descriptors < before.rlim_max ? descriptors : before.rlim_max;
    must(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    for (unsigned i = 0; i < MORE; i++) {
        a[i] = sv_qp(&p.a);
        b[i] = sv_qp(&p.b);
        struct sv_end of_a = p.a;
        of_a.qp = a[i];
        sv_connect_qp(&p.a, a[i], b[i]->qp_num);
        sv_connect_qp(&p.b, b[i], a[i]->qp_num);
        sv_wait_linked(&of_a);
    }
    soft_lock();
    unsigned bells = ld(soft_cq_of(p.b.rcq)->bells);
    soft_unlock();
    assert_in_range(bells, 1, most);
    the_channel_tells_of(a[MORE - 1], b[MORE - 1]);
    for (unsigned i = 0; i < MORE; i++) {
        must(soft_destroy_qp(a[i]) == 0);
        must(soft_destroy_qp(b[i]) == 0);
    }
    assert_int_equal(ld(soft_cq_of(p.b.rcq)->bells), 1);
    must(setrlimit(RLIMIT_NOFILE, &before) == 0);
}

static void queue_pairs_beyond_the_limit_have_none(void **state) {
    (void)state;
    bells_are_limited(65536, SOFT_BELLS);
}

static void descriptors_are_left_for_others(void **state) {
    (void)state;
    bells_are_limited(128, 128 / 8);
}

/* Counted from the arming to the moment it fires, and no longer: CQs of the same word rely on that. */
static void only_an_armed_queue_is_counted(void **state) {
    int fd;
    (void)state;
    must(may_sleep(BELLS, &fd));
    assert_int_equal(armed_word(), 0);
    must(ibv_req_notify_cq(p.b.rcq, 1) == 0);
    assert_int_equal(armed_word(), 1 + SOFT_ARMED_BELLS);
    must(ibv_req_notify_cq(p.b.rcq, 0) == 0);
    assert_int_equal(armed_word(), 1 + SOFT_ARMED_BELLS);
    soft_cq_signal(soft_cq_of(p.b.rcq), false);
    assert_int_equal(armed_word(), 0);
    assert_ptr_equal(sv_cq_event(p.b.channel), p.b.rcq);
    must(ibv_req_notify_cq(p.b.rcq, 0) == 0);
    must(soft_sleep_end(p.b.rcq));
    must(ibv_req_notify_cq(p.b.rcq, 0) == 0);
    assert_int_equal(armed_word(), 1);
    must(soft_cq_disarm(soft_cq_of(p.b.rcq)));
    assert_int_equal(armed_word(), 0);
}

/* Those that expect it, have one, are another's, or are none; and what is no bell, or no such message. */
static void a_bell_that_is_none_is_not_taken(void **state) {
    struct soft_qp *a = soft_qp_of(p.a.qp);
    const uint32_t from = p.b.qp->qp_num, to = p.a.qp->qp_num;
    int had = a->bell_out, pair[2], pipes[2];
    (void)state;
    must(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0 && pipe(pipes) == 0);
    const struct {
        uint32_t from, to;
        size_t bytes;
        int file, out;
        bool closed; /* it is a bell, at least */
    } lies[] = {{from, to, 8, pair[0], had, true},
                {from, to, 8, pipes[0], 0, false},
                {from, to, 8, -1, 0, false},
                {from, to, 12, pair[0], 0, false},
                {from, to, 4, pair[0], 0, false},
                {from + 1, to, 8, pair[0], 0, true},
                {from, to ^ 0x800, 8, pair[0], 0, true}};
    soft_lock();
    for (unsigned i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        const uint32_t msg[3] = {lies[i].from, lies[i].to};
        int given = lies[i].file < 0 ? -1 : dup(lies[i].file), file = given;
        a->bell_out = lies[i].out;
        soft_qp_bell_on_message(a->link_peer, msg, lies[i].bytes, file < 0 ? NULL : &file);
        assert_int_equal(file, lies[i].closed ? -1 : given);
        assert_int_equal(a->bell_out, lies[i].out);
        assert_int_equal(given >= 0 && fcntl(given, F_GETFD) == -1, lies[i].closed);
        if (file >= 0)
            close(file);
    }
    a->bell_out = had;
    soft_unlock();
    for (unsigned i = 0; i < 2; i++) {
        close(pair[i]);
        close(pipes[i]);
    }
}

static bool is_hung_up(void) {
    struct soft_qp *b = soft_qp_of(p.b.qp);
    int fd;
    if (may_sleep(BELLS, &fd))
        (void)soft_sleep_end(p.b.rcq);
    spin_lock(&b->lock);
    bool gone = b->peer_gone;
    spin_unlock(&b->lock);
    return gone;
}

/* Which may be anything, and wait when it is closed. */
static void a_peer_that_rings_with_a_descriptor_is_hung_up_on(void **state) {
    unsigned before = sv_fds();
    int file = memfd_create("odd", MFD_CLOEXEC);
    (void)state;
    hostile_say(soft_qp_of(p.a.qp)->bell_out - 1, "", 1, &file, 1);
    close(file);
    sv_until(is_hung_up());
    sv_until(sv_fds() < before); /* what it rang with, and the connection */
}

static void an_earlier_version_is_given_none(void **state) {
    struct tcp_pair first = p;
    (void)state;
    soft_lock();
    soft_qp_of(p.b.qp)->peer->takes_bells = false;
    soft_unlock();
    sv_pair(&p.a, options.o, &p.b, options.o);
    sv_wait_linked(&p.b);
    soft_lock();
    soft_cq_of(p.b.rcq)->wants_bells = true;
    soft_qp_bell_give(soft_qp_of(p.b.qp));
    soft_unlock();
    assert_int_equal(bells_of(p.b.qp), 0);
    sv_unpair(&p.a, &p.b);
    p = first;
}

static int ends[3]; /* its bell, the peer's, and the set */

static void has_no_copies(int fd) {
    (void)fd;
    for (unsigned i = 0; i < 3; i++)
        must(fcntl(ends[i], F_GETFD) == -1);
}

static void a_forked_child_keeps_no_bells(void **state) {
    (void)state;
    sv_until(has_bell(&p.a, &p.b));
    ends[0] = soft_qp_of(p.b.qp)->bell_in - 1;
    ends[1] = soft_qp_of(p.b.qp)->bell_out - 1;
    ends[2] = soft_bells_set(soft_cq_of(p.b.rcq));
    struct sv_child child = sv_fork(has_no_copies);
    assert_int_equal(sv_join(&child), 0);
    a_message_wakes_it(state);
}

static enum way sockets = SOCKETS, bells = BELLS;
#define WAY_TEST(fn, way)                                                                          \
    { #fn " (" #way ")", fn, open_pair, shut, &(way) }

int main(void) {
    const struct CMUnitTest tests[] = {
        WAY_TEST(a_message_wakes_it, sockets),
        WAY_TEST(a_message_wakes_it, bells),
        WAY_TEST(no_wake_is_lost_where_both_sleep, sockets),
        WAY_TEST(no_wake_is_lost_where_both_sleep, bells),
        WAY_TEST(an_acknowledgement_wakes_it, bells),
        WAY_TEST(the_end_of_the_connection_wakes_it, sockets),
        WAY_TEST(what_another_thread_ends_wakes_it, sockets),
        WAY_TEST(what_another_thread_ends_wakes_it, bells),
        WAY_TEST(behind_a_sleep_the_channel_tells_as_ever, sockets),
        WAY_TEST(behind_a_sleep_the_channel_tells_as_ever, bells),
        WAY_TEST(elsewhere_it_sleeps_on_bells_only, sockets),
        WAY_TEST(elsewhere_it_sleeps_on_bells_only, bells),
        WAY_TEST(it_serves_operations_on_its_memory, sockets),
        WAY_TEST(awake_and_not_polling_it_keeps_nobody_waiting, sockets),
        WAY_TEST(each_of_many_wakes_it, sockets),
        WAY_TEST(no_wake_is_lost_among_many, sockets),
        WAY_TEST(without_sockets_or_with_too_many_there_is_nothing_to_sleep_on, sockets),
        WAY_TEST(a_word_of_two_queues_rings_both, bells),
        WAY_TEST(a_bell_that_is_gone_is_not_relied_on, bells),
        WAY_TEST(a_bell_ends_with_its_queue_pair, bells),
        WAY_TEST(queue_pairs_beyond_the_limit_have_none, bells),
        WAY_TEST(descriptors_are_left_for_others, bells),
        WAY_TEST(only_an_armed_queue_is_counted, bells),
        WAY_TEST(a_bell_that_is_none_is_not_taken, bells),
        WAY_TEST(a_peer_that_rings_with_a_descriptor_is_hung_up_on, bells),
        WAY_TEST(an_earlier_version_is_given_none, bells),
        WAY_TEST(a_forked_child_keeps_no_bells, bells),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
