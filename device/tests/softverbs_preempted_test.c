/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs_preempted_test.c - a thread that lost its CPU with a lock held keeps no poller waiting, unless the poller
 * may sleep if it is told that there is nothing. The test itself holds the lock, for as long as it likes.
 */
#include "support/softverbs.h"

#include <time.h>

#include "soft/object/cq.h"
#include "soft/object/srq.h"

enum { BYTES = 24, WR_ID = 77 };

struct two {
    struct sv_end from, to; /* to polls one CQ */
    struct ibv_srq *srq;
    struct ibv_qp *shared; /* of to, with that SRQ; the sender is connected to it */
};

static void open_two(struct two *t) {
    sv_open(&t->from, SV_OPTIONS(.one_cq = true));
    sv_open(&t->to, SV_OPTIONS(.one_cq = true, .channel = true));
    struct ibv_srq_init_attr init = {.attr = {.max_wr = 8, .max_sge = 1}};
    t->srq = soft_create_srq(t->to.pd, &init);
    must(t->srq);
    struct ibv_qp_init_attr attr = {.send_cq = t->to.scq,
                                    .recv_cq = t->to.rcq,
                                    .srq = t->srq,
                                    .cap = {.max_send_wr = 8, .max_send_sge = 1},
                                    .qp_type = IBV_QPT_RC};
    t->shared = soft_create_qp(t->to.pd, &attr);
    must(t->shared);
    sv_connect_qp(&t->to, t->shared, t->from.qp->qp_num);
    sv_connect(&t->from, t->shared->qp_num);
    sv_wait_linked(&t->from);
}

static void close_two(struct two *t) {
    must(soft_destroy_qp(t->shared) == 0);
    must(soft_destroy_srq(t->srq) == 0);
    sv_unpair(&t->from, &t->to);
}

static void message_arrives(struct two *t) {
    struct ibv_sge sge = sv_sge(&t->to, 0, BYTES);
    struct ibv_recv_wr wr = {.wr_id = WR_ID, .sg_list = &sge, .num_sge = 1}, *bad = NULL;
    must(ibv_post_srq_recv(t->srq, &wr, &bad) == 0);
    must(sv_send(&t->from, 1, 0, BYTES, 0) == 0);
}

/* As the engine does, or a poller of another CQ. */
static void completion_is_in_the_ring(struct two *t) {
    const struct ibv_wc wc = {.wr_id = WR_ID, .status = IBV_WC_SUCCESS, .byte_len = BYTES};
    must(soft_cq_push(soft_cq_of(t->to.rcq), &wc, false));
}

static soft_spin *lock_of_polls(struct two *t) {
    return &soft_cq_of(t->to.rcq)->poll_lock;
}

static soft_spin *lock_of_ring(struct two *t) {
    return &soft_cq_of(t->to.rcq)->ring_lock;
}

static soft_spin *lock_of_shared_receives(struct two *t) {
    return &soft_srq_of(t->srq)->lock;
}

/* What the poll is to take, and the lock it needs for that. */
static const struct {
    void (*there_is)(struct two *t);
    soft_spin *(*lock)(struct two *t);
} needed[] = {
    {message_arrives, lock_of_polls},
    {completion_is_in_the_ring, lock_of_ring},
    {message_arrives, lock_of_shared_receives},
};

static void takes_it(const struct ibv_wc *wc) {
    must(wc->status == IBV_WC_SUCCESS && wc->wr_id == WR_ID && wc->byte_len == BYTES);
}

TEST(a_poll_comes_back_without_the_lock_and_the_next_one_takes_all) {
    struct two t;
    struct ibv_wc wc;
    open_two(&t);
    soft_lock(); /* keeps the engine away, which has the lock of a queue pair now and then */
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++) {
        uint64_t rnr = atomic_load(&soft_rnr);
        needed[i].there_is(&t);
        spin_lock(needed[i].lock(&t));
        for (int polls = 0; polls < 3; polls++)
            must(ibv_poll_cq(t.to.rcq, 1, &wc) == 0);
        spin_unlock(needed[i].lock(&t));
        must(ibv_poll_cq(t.to.rcq, 1, &wc) == 1);
        takes_it(&wc);
        must(ibv_poll_cq(t.to.rcq, 1, &wc) == 0);
        must(atomic_load(&soft_rnr) == rnr); /* a receive was there all the time */
    }
    soft_unlock();
    close_two(&t);
}

struct poller {
    struct ibv_cq *cq;
    struct ibv_wc wc;
    _Atomic int got; /* of its one poll; -1: it is not back */
};

static void *poll_once(void *arg) {
    struct poller *p = arg;
    atomic_store(&p->got, ibv_poll_cq(p->cq, 1, &p->wc));
    return NULL;
}

static uint64_t cpu_ns(clockid_t clock) {
    struct timespec ts;
    must(clock_gettime(clock, &ts) == 0);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Armed for solicited messages, which these are not: it stays armed. */
TEST(an_armed_queue_is_waited_for) {
    enum {
        LOCKS = 2,
        WAITED_NS = 2000000 /* of its CPU: a thousand times what a poll waits otherwise */
    };
    struct two t;
    open_two(&t);
    must(ibv_req_notify_cq(t.to.rcq, 1) == 0);
    for (size_t i = 0; i < LOCKS; i++) {
        struct poller p = {.cq = t.to.rcq, .got = -1};
        pthread_t thread;
        clockid_t clock;
        needed[i].there_is(&t);
        spin_lock(needed[i].lock(&t));
        must(pthread_create(&thread, NULL, poll_once, &p) == 0);
        must(pthread_getcpuclockid(thread, &clock) == 0);
        sv_until(atomic_load(&p.got) != -1 || cpu_ns(clock) > WAITED_NS);
        must(atomic_load(&p.got) == -1);
        spin_unlock(needed[i].lock(&t));
        must(pthread_join(thread, NULL) == 0);
        must(p.got == 1);
        takes_it(&p.wc);
    }
    close_two(&t);
}
