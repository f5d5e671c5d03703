/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs_rereg_test.c - ibv_rereg_mr: an MR gets other memory, other rights, another PD, and keeps its
 * keys; what was under way through the former one is over. Each test names the promise, and where a peer
 * is concerned it is tried on every way in which the device reaches memory.
 */
#include "support/softverbs_onesided.h"

#include <pthread.h>
#include <string.h>

#include "soft/soft.h"

#define HALF (ONESIDED_BYTES / 2)
#define CALL_WAIT_NS 80000000u /* for a peer that is inside (rkey_fence.c) */
#define RIGHTS (IBV_ACCESS_LOCAL_WRITE | ALL_REMOTE)

static int rereg(struct onesided *p, int flags, struct ibv_pd *pd, size_t at, size_t bytes,
                 int access) {
    uint32_t lkey = p->open->lkey, rkey = p->open->rkey;
    int rc = soft_rereg_mr(p->open, flags, pd, p->b.buf + at, bytes, access);
    assert_int_equal(p->open->lkey, lkey);
    assert_int_equal(p->open->rkey, rkey);
    return rc;
}

static int moved(struct onesided *p, size_t at, size_t bytes) {
    return rereg(p, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, at, bytes, 0);
}

static void written(struct onesided *p, size_t at, size_t bytes, uint32_t seed) {
    sv_fill(p->a.buf, bytes, seed);
    must(onesided_post(p, IBV_WR_RDMA_WRITE, 0, bytes, at, p->open->rkey, 0) == 0);
    onesided_expect(p, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
    sv_check(p->b.buf + at, bytes, seed);
}

static void denied(struct onesided *p, size_t at, size_t bytes) {
    must(onesided_post(p, IBV_WR_RDMA_WRITE, 0, bytes, at, p->open->rkey, 0) == 0);
    onesided_refused(p, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
}

TEST(rights_are_given_and_taken) {
    for (int way = 0; way < WAYS; way++) {
        struct onesided p;
        onesided_open(&p, (enum way)way, ALL_REMOTE, 0, 4);
        assert_int_equal(rereg(&p, IBV_REREG_MR_CHANGE_ACCESS, NULL, 0, 0, RIGHTS), 0);
        written(&p, 0, 100, 1);
        written(&p, ONESIDED_BYTES - 9000, 9000, 2);
        must(onesided_post(&p, IBV_WR_RDMA_READ, 0, 100, 0, p.open->rkey, 0) == 0);
        onesided_expect(&p, IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
        sv_check(p.a.buf, 100, 1);
        must(onesided_post_atomic(&p, false, 0, 512, 5, 0) == 0);
        onesided_expect(&p, IBV_WC_SUCCESS, IBV_WC_FETCH_ADD);
        assert_int_equal(rereg(&p, IBV_REREG_MR_CHANGE_ACCESS, NULL, 0, 0,
                               IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ),
                         0);
        must(onesided_post(&p, IBV_WR_RDMA_READ, 0, 100, 0, p.open->rkey, 0) == 0);
        onesided_expect(&p, IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
        sv_check(p.a.buf, 100, 1);
        denied(&p, 0, 100);
        onesided_close(&p);
    }
}

TEST(other_memory_takes_the_place_of_the_former) {
    for (int way = 0; way < WAYS; way++) {
        struct onesided p;
        onesided_open(&p, (enum way)way, ALL_REMOTE, ALL_REMOTE, 4);
        written(&p, 0, 5000, 1);
        written(&p, 0, 8, 1); /* the requester remembers where it led */
        written(&p, 0, 8, 1);
        assert_int_equal(moved(&p, HALF, 8192), 0);
        assert_ptr_equal(p.open->addr, p.b.buf + HALF);
        assert_int_equal(p.open->length, 8192);
        written(&p, HALF, 5000, 2);
        written(&p, HALF + 8192 - 8, 8, 3);
        assert_int_equal(moved(&p, HALF + 4096, 64), 0); /* and once more */
        written(&p, HALF + 4096, 64, 4);
        sv_check(p.b.buf, 5000, 1); /* nobody was there */
        denied(&p, HALF, 8);
        onesided_close(&p);
    }
}

TEST(another_pd_has_it) {
    for (int way = 0; way < WAYS; way++) {
        struct onesided p;
        onesided_open(&p, (enum way)way, ALL_REMOTE, ALL_REMOTE, 4);
        struct ibv_pd *pd = soft_alloc_pd(p.b.ctx), *before = p.b.pd;
        int users = atomic_load(&soft_pd_of(before)->users);
        assert_int_equal(rereg(&p, IBV_REREG_MR_CHANGE_PD, pd, 0, 0, 0), 0);
        assert_ptr_equal(p.open->pd, pd);
        assert_int_equal(soft_dealloc_pd(pd), EBUSY);
        assert_int_equal(atomic_load(&soft_pd_of(before)->users), users - 1);
        /* There and back, with all else that can change. */
        assert_int_equal(rereg(&p, IBV_REREG_MR_FLAGS_SUPPORTED, before, HALF, 100, RIGHTS), 0);
        written(&p, HALF, 100, 3);
        assert_int_equal(rereg(&p, IBV_REREG_MR_CHANGE_PD, pd, 0, 0, 0), 0);
        denied(&p, HALF, 100);
        assert_int_equal(rereg(&p, IBV_REREG_MR_CHANGE_PD, before, 0, 0, 0), 0);
        assert_int_equal(soft_dealloc_pd(pd), 0);
        onesided_close(&p);
    }
}

TEST(its_own_side_uses_what_it_stands_for_now) {
    struct onesided p;
    onesided_open(&p, PROCESS, ALL_REMOTE, 0, 4);
    struct ibv_sge sge = {(uintptr_t)p.b.buf + HALF, 64, p.open->lkey};
    struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;
    assert_int_equal(moved(&p, HALF, 64), 0);
    sv_fill(p.a.buf, 64, 5);
    for (int turn = 0; turn < 2; turn++) {
        assert_int_equal(ibv_post_recv(p.b.qp, &wr, &bad), 0);
        assert_int_equal(sv_send(&p.a, 2, 0, 64, IBV_SEND_SIGNALED), 0);
        struct ibv_wc wc = sv_poll(p.b.rcq);
        assert_int_equal(wc.status, turn ? IBV_WC_LOC_PROT_ERR : IBV_WC_SUCCESS);
        if (turn == 0) {
            sv_check(p.b.buf + HALF, 64, 5);
            assert_int_equal(sv_poll(p.a.rcq).status, IBV_WC_SUCCESS);
            assert_int_equal(moved(&p, 0, 64), 0); /* the receive names the former memory */
        }
    }
    onesided_close(&p);
}

static void fails(struct onesided *p, int rc, int error, int flags, struct ibv_pd *pd, void *addr,
                  size_t bytes, int access) {
    const struct ibv_mr before = *p->open;
    errno = 0;
    assert_int_equal(soft_rereg_mr(p->open, flags, pd, addr, bytes, access), rc);
    assert_int_equal(errno, error);
    assert_memory_equal(&before, p->open, sizeof before);
}

TEST(what_is_refused_changes_nothing) {
    const int to = IBV_REREG_MR_CHANGE_TRANSLATION, input = IBV_REREG_MR_ERR_INPUT,
              cmd = IBV_REREG_MR_ERR_CMD;
    struct onesided p;
    onesided_open(&p, PROCESS, ALL_REMOTE, ALL_REMOTE | IBV_ACCESS_MW_BIND, 4);
    uint8_t *buf = p.b.buf;
    struct ibv_context *other = sv_context();
    struct ibv_pd *foreign = soft_alloc_pd(other);
    must(foreign);
    fails(&p, input, EINVAL, IBV_REREG_MR_FLAGS_SUPPORTED + 1, NULL, NULL, 0, 0);
    fails(&p, input, EINVAL, to, NULL, NULL, 64, 0);
    fails(&p, input, EINVAL, to, NULL, buf, 0, 0);
    fails(&p, input, EINVAL, to, NULL, buf, 64, RIGHTS); /* rights, and no word of them */
    fails(&p, input, EINVAL, IBV_REREG_MR_CHANGE_PD, NULL, NULL, 0, 0);
    fails(&p, input, EINVAL, IBV_REREG_MR_CHANGE_PD, foreign, NULL, 0, 0);
    fails(&p, cmd, EINVAL, 0, NULL, NULL, 0, 0);
    fails(&p, cmd, EINVAL, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_WRITE);
    fails(&p, cmd, EFAULT, to, NULL, (void *)64, 64, 0);
    fails(&p, cmd, EINVAL, to, NULL, buf, SIZE_MAX, 0);
    fails(&p, cmd, EOPNOTSUPP, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_ON_DEMAND);
    struct ibv_mw *mw = ibv_alloc_mw(p.b.pd, IBV_MW_TYPE_2);
    struct ibv_mw_bind_info info = {p.open, (uintptr_t)buf, 64, IBV_ACCESS_REMOTE_READ};
    must(sv_bind(p.b.qp, mw, ibv_inc_rkey(mw->rkey), info) == 0);
    assert_int_equal(sv_poll(p.b.rcq).status, IBV_WC_SUCCESS);
    fails(&p, cmd, EBUSY, to, NULL, buf, 64, 0); /* the window would show something else */
    assert_int_equal(ibv_dealloc_mw(mw), 0);
    written(&p, 0, 100, 1); /* after all that */
    assert_int_equal(moved(&p, 0, 64), 0);
    assert_int_equal(soft_dealloc_pd(foreign), 0);
    assert_int_equal(soft_close_device(other), 0);
    onesided_close(&p);
}

/* ---- while a peer writes ---------------------------------------------------------------------------------- */

struct writer {
    struct onesided *p;
    _Atomic unsigned done;
};

/* Until it is refused. */
static void *writes(void *arg) {
    struct writer *w = arg;
    struct ibv_wc wc = {.status = IBV_WC_SUCCESS};
    for (unsigned seed = 1; wc.status == IBV_WC_SUCCESS; seed++) {
        memset(w->p->a.buf, (int)seed, 3000);
        must(onesided_post(w->p, IBV_WR_RDMA_WRITE, 0, seed % 2 ? 3000 : 8, 0, w->p->open->rkey,
                           0) == 0);
        wc = sv_poll(w->p->a.rcq);
        atomic_store(&w->done, seed);
    }
    must(wc.status == IBV_WC_REM_ACCESS_ERR);
    return NULL;
}

TEST(nobody_writes_through_the_former_registration_any_more) {
    static uint8_t seen[3000];
    unsigned in_time = 0; /* who lost its CPU inside for long is not waited for */
    for (int turn = 0; turn < 8 * WAYS; turn++) {
        struct onesided p;
        onesided_open(&p, (enum way)(turn % WAYS), ALL_REMOTE, ALL_REMOTE, 4);
        struct writer w = {.p = &p, .done = 0};
        pthread_t thread;
        must(pthread_create(&thread, NULL, writes, &w) == 0);
        sv_until(atomic_load(&w.done) > 20);
        uint64_t since = soft_now_ns();
        assert_int_equal(moved(&p, HALF, 8192), 0);
        bool left = soft_now_ns() - since < CALL_WAIT_NS;
        memcpy(seen, p.b.buf, sizeof seen);
        must(pthread_join(thread, NULL) == 0);
        must_data(memcmp(seen, p.b.buf, sizeof seen) == 0 || !left);
        in_time += left;
        onesided_close(&p);
    }
    assert_uint_in_range(in_time, 1, 8 * WAYS);
}
