/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs_bind_test.c - windows are bound and taken back by several threads while queue pairs and windows
 * come and go: each belongs to one queue pair or to none, and what it was bound to is free in the end. The
 * thread sanitizer sees more in it than the assertions do.
 */
#include "support/softverbs_onesided.h"

#include <pthread.h>

enum { ROUNDS = 12 };

struct bound {
    struct onesided pair;
    struct ibv_mw *mw;
    uint32_t rkey;
};

static int post_bind(struct ibv_qp *qp, struct bound *b, uint32_t rkey) {
    struct ibv_mw_bind_info info = {b->pair.open, (uintptr_t)b->pair.b.buf, 4096,
                                    IBV_ACCESS_REMOTE_WRITE};
    return sv_bind(qp, b->mw, rkey, info);
}

static void bind_it(struct bound *b) {
    b->rkey = ibv_inc_rkey(b->mw->rkey);
    must(post_bind(b->pair.b.qp, b, b->rkey) == 0);
    must(sv_poll(b->pair.b.rcq).status == IBV_WC_SUCCESS);
}

static void open_bound(struct bound *b) {
    onesided_open(&b->pair, MAPPED, ALL_REMOTE, IBV_ACCESS_MW_BIND, 4);
    b->mw = ibv_alloc_mw(b->pair.b.pd, IBV_MW_TYPE_2);
    must(b->mw);
}

static void close_bound(struct bound *b) {
    if (b->mw)
        must(ibv_dealloc_mw(b->mw) == 0);
    must(atomic_load(&soft_mr_of(b->pair.open)->windows) == 0);
    onesided_close(&b->pair);
}

struct turns {
    struct bound bound;
    _Atomic bool over;
};

static void *binds_and_takes_back(void *arg) {
    struct turns *t = arg;
    while (!atomic_load(&t->over)) {
        bind_it(&t->bound);
        must(sv_invalidate(t->bound.pair.b.qp, t->bound.rkey) == 0);
        must(sv_poll(t->bound.pair.b.rcq).status == IBV_WC_SUCCESS);
    }
    return NULL;
}

TEST(windows_of_others_are_left_alone_when_a_queue_pair_ends) {
    struct turns t = {.over = false};
    pthread_t thread;
    open_bound(&t.bound);
    must(pthread_create(&thread, NULL, binds_and_takes_back, &t) == 0);
    for (int i = 0; i < ROUNDS; i++) {
        struct bound b;
        open_bound(&b);
        bind_it(&b);
        if (i % 3 == 0) {
            must(ibv_dealloc_mw(b.mw) == 0);
            b.mw = NULL;
            must(atomic_load(&soft_qp_of(b.pair.b.qp)->windows) == 0);
        } else if (i % 3 == 1) {
            must(sv_to(&b.pair.b, IBV_QPS_RESET) == 0);
            must(atomic_load(&soft_mr_of(b.pair.open)->windows) == 0);
        } else {
            must(soft_destroy_qp(b.pair.b.qp) == 0);
            must(atomic_load(&soft_mr_of(b.pair.open)->windows) == 0);
            b.pair.b.qp = sv_qp(&b.pair.b);
        }
        close_bound(&b);
    }
    atomic_store(&t.over, true);
    must(pthread_join(thread, NULL) == 0);
    close_bound(&t.bound);
}

static void *takes_back(void *arg) {
    struct bound *b = arg;
    for (int i = 0; i < 50; i++)
        if (sv_invalidate(b->pair.b.qp, b->rkey) != 0)
            break;
    return NULL;
}

/* Both want to take it back: it is given back once. */
TEST(a_window_is_taken_back_once) {
    for (int i = 0; i < 6 * ROUNDS; i++) {
        struct bound b;
        pthread_t thread;
        open_bound(&b);
        bind_it(&b);
        must(pthread_create(&thread, NULL, takes_back, &b) == 0);
        if (i % 2) {
            must(ibv_dealloc_mw(b.mw) == 0);
            b.mw = NULL;
        } else {
            must(sv_to(&b.pair.b, IBV_QPS_RESET) == 0);
        }
        must(pthread_join(thread, NULL) == 0);
        assert_int_equal(atomic_load(&soft_qp_of(b.pair.b.qp)->windows), 0);
        assert_int_equal(atomic_load(&soft_mr_of(b.pair.open)->windows), 0);
        close_bound(&b);
    }
}

/* ---- two queue pairs for one window ----------------------------------------------------------------------- */

struct rival {
    struct bound *b;
    struct ibv_qp *qp;
    struct ibv_cq *cq;
    _Atomic int *go;
    enum ibv_wc_status status;
};

static void *binds(void *arg) {
    struct rival *r = arg;
    atomic_fetch_add(r->go, 1);
    sv_until(atomic_load(r->go) == 2);
    must(post_bind(r->qp, r->b, r->b->rkey) == 0);
    r->status = sv_poll(r->cq).status;
    return NULL;
}

TEST(one_of_two_queue_pairs_gets_a_window) {
    for (int i = 0; i < 4 * ROUNDS; i++) {
        struct bound b;
        struct sv_end far, near;
        _Atomic int go = 0;
        open_bound(&b);
        b.rkey = ibv_inc_rkey(b.mw->rkey);
        sv_open(&far, SV_OPTIONS(.one_cq = true));
        sv_open(&near, SV_OPTIONS(.one_cq = true));
        must(soft_destroy_qp(near.qp) == 0);
        struct sv_end in_its_pd = near;
        in_its_pd.pd = b.pair.b.pd;
        near.qp = sv_qp(&in_its_pd);
        sv_connect(&near, far.qp->qp_num);
        sv_connect(&far, near.qp->qp_num);
        sv_wait_linked(&near);
        struct rival rivals[2] = {{.b = &b, .qp = b.pair.b.qp, .cq = b.pair.b.rcq, .go = &go},
                                  {.b = &b, .qp = near.qp, .cq = near.rcq, .go = &go}};
        pthread_t threads[2];
        for (int k = 0; k < 2; k++)
            must(pthread_create(&threads[k], NULL, binds, &rivals[k]) == 0);
        for (int k = 0; k < 2; k++)
            must(pthread_join(threads[k], NULL) == 0);
        for (int k = 0; k < 2; k++) {
            bool won = rivals[k].status == IBV_WC_SUCCESS;
            must(won || rivals[k].status == IBV_WC_MW_BIND_ERR);
            assert_int_equal(atomic_load(&soft_qp_of(rivals[k].qp)->windows), won ? 1 : 0);
            assert_true(won != (rivals[1 - k].status == IBV_WC_SUCCESS));
        }
        assert_int_equal(atomic_load(&soft_mr_of(b.pair.open)->windows), 1);
        sv_close(&near);
        sv_close(&far);
        close_bound(&b);
    }
}
