/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs_fair_test.c - a queue pair that fills every poll of its CQ keeps no other one waiting,
 * whichever place they have in it, whether they were busy lately or not.
 */
#include "support/softverbs.h"
#include "soft/object/cq.h"

enum { QPS = 24, ARRAY = 4, BUSY = 16 /* messages that always wait on a busy one */ };

struct fair {
    struct sv_end a, b; /* a sends, b polls one CQ */
    struct ibv_qp *from[QPS], *to[QPS];
    unsigned sent[QPS], got[QPS];
};

static struct ibv_qp *use(struct sv_end *e, struct ibv_qp *qp) {
    struct ibv_qp *own = e->qp;
    e->qp = qp;
    return own;
}

static void link_one(struct fair *f, unsigned i) {
    f->from[i] = sv_qp(&f->a);
    f->to[i] = sv_qp(&f->b);
    struct ibv_qp *a = use(&f->a, f->from[i]), *b = use(&f->b, f->to[i]);
    sv_connect(&f->a, f->to[i]->qp_num);
    sv_connect(&f->b, f->from[i]->qp_num);
    sv_wait_linked(&f->a);
    use(&f->a, a);
    use(&f->b, b);
}

static void send_one(struct fair *f, unsigned i) {
    struct ibv_qp *a = use(&f->a, f->from[i]), *b = use(&f->b, f->to[i]);
    must(sv_recv(&f->b, i, 0, 64) == 0);
    must(sv_send(&f->a, i, 0, 8, IBV_SEND_SIGNALED) == 0);
    f->sent[i]++;
    use(&f->a, a);
    use(&f->b, b);
}

static void feed(struct fair *f, unsigned i) {
    while (f->sent[i] - f->got[i] < BUSY)
        send_one(f, i);
}

/* One poll, of which every place is used. */
static void poll_full(struct fair *f) {
    struct ibv_wc wc[ARRAY];
    must(ibv_poll_cq(f->b.rcq, ARRAY, wc) == ARRAY);
    for (unsigned n = 0; n < ARRAY; n++) {
        sv_right(wc[n], wc[n].wr_id < QPS);
        f->got[wc[n].wr_id]++;
    }
    while (ibv_poll_cq(f->a.scq, ARRAY, wc) > 0)
        ;
}

static void open_fair(struct fair *f, unsigned qps) {
    memset(f, 0, sizeof *f);
    sv_open(&f->a, SV_OPTIONS(.cqe = 4096));
    sv_open(&f->b, SV_OPTIONS(.cqe = 4096));
    for (unsigned i = 0; i < qps; i++)
        link_one(f, i);
}

static void close_fair(struct fair *f, unsigned qps) {
    for (unsigned i = 0; i < qps; i++) {
        must(soft_destroy_qp(f->from[i]) == 0);
        must(soft_destroy_qp(f->to[i]) == 0);
    }
    sv_unpair(&f->a, &f->b);
}

/* Every one of a few in turn is busy, the others have one message each. */
TEST(a_busy_queue_pair_keeps_no_other_waiting) {
    enum { FEW = 5 };
    for (unsigned busy = 0; busy < FEW; busy++) {
        struct fair f;
        open_fair(&f, FEW);
        for (unsigned round = 0; round < 20; round++) {
            for (unsigned i = 0; i < FEW; i++)
                if (i != busy)
                    send_one(&f, i);
            unsigned polls = 0, waiting;
            do {
                feed(&f, busy);
                poll_full(&f);
                polls++;
                waiting = 0;
                for (unsigned i = 0; i < FEW; i++)
                    waiting += i != busy && f.got[i] < f.sent[i];
            } while (waiting > 0 && polls < 100);
            must(waiting == 0);
            must(polls <= 1 + FEW); /* each of them fills one poll at most before it */
        }
        close_fair(&f, FEW);
    }
}

/* All are busy: none has more than its share, give or take a poll. */
TEST(busy_queue_pairs_have_equal_shares) {
    enum { FEW = 5, ROUNDS = 40 };
    struct fair f;
    open_fair(&f, FEW);
    for (unsigned n = 0; n < FEW * ROUNDS; n++) {
        for (unsigned i = 0; i < FEW; i++)
            feed(&f, i);
        poll_full(&f);
    }
    for (unsigned i = 0; i < FEW; i++)
        must(f.got[i] >= (ROUNDS - 1) * ARRAY && f.got[i] <= (ROUNDS + 1) * ARRAY);
    close_fair(&f, FEW);
}

/* Those that had nothing for long are looked at a few at a time, but are looked at. */
TEST(nor_those_that_were_idle_for_long) {
    struct fair f;
    struct ibv_wc wc;
    open_fair(&f, QPS);
    struct soft_cq *cq = soft_cq_of(f.b.rcq);
    for (unsigned i = 0; i < 20000 && cq->hot_count == cq->qp_count; i++)
        must(ibv_poll_cq(f.b.rcq, 1, &wc) == 0);
    must(cq->hot_count < cq->qp_count);
    unsigned busy = QPS - 1, polls = 0, waiting; /* it becomes hot */
    for (unsigned i = 0; i < QPS; i++)
        send_one(&f, i);
    do {
        feed(&f, busy);
        struct ibv_wc some[ARRAY];
        int n = ibv_poll_cq(f.b.rcq, ARRAY, some);
        must(n >= 0);
        for (int k = 0; k < n; k++)
            f.got[some[k].wr_id]++;
        while (ibv_poll_cq(f.a.scq, 1, &wc) > 0)
            ;
        waiting = 0;
        for (unsigned i = 0; i < QPS; i++)
            waiting += i != busy && f.got[i] < f.sent[i];
    } while (waiting > 0 && ++polls < 400);
    must(waiting == 0);
    must(polls <= 4 * QPS);
    close_fair(&f, QPS);
}
