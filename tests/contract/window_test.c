/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * window_test.c - memory windows of type 2: a key of its own for a part of a region, bound and taken
 * back by work requests, good for one queue pair.
 */
#include "contract/ends.h"

static struct ct_end a, b; /* a asks, b owns the window */
static struct ibv_mw *mw;

static int open_pair(void **state) {
    (void)state;
    ct_open_pair(&a, &b, CT_OPTIONS(), CT_OPTIONS());
    mw = ibv_alloc_mw(b.pd, IBV_MW_TYPE_2);
    return mw ? 0 : -1;
}

static int close_pair(void **state) {
    (void)state;
    if (mw)
        assert_int_equal(ibv_dealloc_mw(mw), 0);
    ct_close(&a);
    ct_close(&b);
    return 0;
}

static int post_bind(struct ibv_mr *mr, size_t offset, size_t bytes, unsigned access,
                     uint32_t rkey) {
    struct ibv_send_wr wr = {.wr_id = 3,
                             .opcode = IBV_WR_BIND_MW,
                             .send_flags = IBV_SEND_SIGNALED,
                             .bind_mw = {.mw = mw,
                                         .rkey = rkey,
                                         .bind_info = {.mr = mr,
                                                       .addr = (uintptr_t)b.buf + offset,
                                                       .length = bytes,
                                                       .mw_access_flags = access}}},
                       *bad;
    return ibv_post_send(b.qp, &wr, &bad);
}

/* Binds [4096, 4096 + 64) and returns the key. */
static uint32_t bound(unsigned access) {
    uint32_t rkey = ibv_inc_rkey(mw->rkey);
    assert_int_equal(post_bind(b.mr, 4096, 64, access, rkey), 0);
    struct ibv_wc wc = ct_poll(b.scq);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    assert_int_equal(wc.opcode, IBV_WC_BIND_MW);
    assert_int_equal(wc.wr_id, 3);
    mw->rkey = rkey; /* the caller's to remember: the next bind and invalidation start from it */
    return rkey;
}

static void post(enum ibv_wr_opcode opcode, size_t bytes, size_t remote, uint32_t rkey) {
    struct ibv_sge sge = ct_sge(&a, 0, bytes);
    struct ibv_send_wr wr = {.wr_id = 77,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = opcode,
                             .send_flags = IBV_SEND_SIGNALED,
                             .wr.rdma = {(uintptr_t)b.buf + remote, rkey}},
                       *bad;
    assert_int_equal(ibv_post_send(a.qp, &wr, &bad), 0);
}

static void invalidate(uint32_t rkey) {
    struct ibv_send_wr wr = {.wr_id = 4,
                             .opcode = IBV_WR_LOCAL_INV,
                             .send_flags = IBV_SEND_SIGNALED,
                             .invalidate_rkey = rkey},
                       *bad;
    assert_int_equal(ibv_post_send(b.qp, &wr, &bad), 0);
}

#define PAIR_TEST(name) TEST_WITH(open_pair, close_pair, name)

PAIR_TEST(a_window_opens_its_part) {
    uint32_t rkey = bound(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    ct_fill(a.buf, 64, 5);
    post(IBV_WR_RDMA_WRITE, 64, 4096, rkey);
    ct_wc(a.scq, 77, IBV_WC_SUCCESS);
    ct_check(b.buf + 4096, 64, 5);
    memset(a.buf, 0, 64);
    post(IBV_WR_RDMA_READ, 64, 4096, rkey);
    ct_wc(a.scq, 77, IBV_WC_SUCCESS);
    ct_check(a.buf, 64, 5);
}

PAIR_TEST(a_window_ends_where_it_was_bound) {
    uint32_t rkey = bound(IBV_ACCESS_REMOTE_WRITE);
    post(IBV_WR_RDMA_WRITE, 64, 4097, rkey);
    ct_wc(a.scq, 77, facts.window_bounds ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS);
}

PAIR_TEST(a_window_gives_the_rights_it_was_bound_with) {
    uint32_t rkey = bound(IBV_ACCESS_REMOTE_READ);
    post(IBV_WR_RDMA_READ, 64, 4096, rkey);
    ct_wc(a.scq, 77, IBV_WC_SUCCESS);
    memset(b.buf + 4096, 0xab, 64);
    post(IBV_WR_RDMA_WRITE, 64, 4096, rkey);
    ct_wc(a.scq, 77, IBV_WC_REM_ACCESS_ERR);
    assert_int_equal(b.buf[4096], 0xab);
}

PAIR_TEST(an_unbound_window_opens_nothing) {
    post(IBV_WR_RDMA_READ, 8, 4096, mw->rkey);
    ct_wc(a.scq, 77, IBV_WC_REM_ACCESS_ERR);
}

PAIR_TEST(local_invalidate_takes_it_back) {
    uint32_t rkey = bound(IBV_ACCESS_REMOTE_WRITE);
    invalidate(rkey);
    struct ibv_wc wc = ct_poll(b.scq);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    assert_int_equal(wc.opcode, IBV_WC_LOCAL_INV);
    post(IBV_WR_RDMA_WRITE, 64, 4096, rkey);
    ct_wc(a.scq, 77, IBV_WC_REM_ACCESS_ERR);
}

PAIR_TEST(a_window_may_be_bound_again) {
    uint32_t first = bound(IBV_ACCESS_REMOTE_WRITE);
    invalidate(first);
    ct_wc(b.scq, 4, IBV_WC_SUCCESS);
    uint32_t second = ibv_inc_rkey(first);
    assert_int_equal(post_bind(b.mr, 4096, 64, IBV_ACCESS_REMOTE_WRITE, second), 0);
    ct_wc(b.scq, 3, IBV_WC_SUCCESS);
    post(IBV_WR_RDMA_WRITE, 64, 4096, second);
    ct_wc(a.scq, 77, IBV_WC_SUCCESS);
    post(IBV_WR_RDMA_WRITE, 64, 4096, first); /* the old key is another key */
    ct_wc(a.scq, 77, IBV_WC_REM_ACCESS_ERR);
}

PAIR_TEST(send_with_invalidate_takes_it_back) {
    uint32_t rkey = bound(IBV_ACCESS_REMOTE_WRITE);
    struct ibv_sge sge = ct_sge(&a, 0, 8);
    struct ibv_send_wr wr = {.wr_id = 77,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_SEND_WITH_INV,
                             .send_flags = IBV_SEND_SIGNALED,
                             .invalidate_rkey = rkey},
                       *bad;
    assert_int_equal(ct_recv(&b, 9, 0, 64), 0);
    assert_int_equal(ibv_post_send(a.qp, &wr, &bad), 0);
    struct ibv_wc wc = ct_poll(b.rcq);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    assert_int_equal(wc.opcode, IBV_WC_RECV);
    assert_int_equal(wc.wc_flags & IBV_WC_WITH_INV, facts.invalidate_shown ? IBV_WC_WITH_INV : 0);
    if (facts.invalidate_shown)
        assert_int_equal(wc.invalidated_rkey, rkey);
    ct_wc(a.scq, 77, IBV_WC_SUCCESS);
    post(IBV_WR_RDMA_WRITE, 64, 4096, rkey);
    ct_wc(a.scq, 77, IBV_WC_REM_ACCESS_ERR);
}

/* Type 2B: the key is good for the queue pair on which it was bound. */
PAIR_TEST(a_window_is_for_one_queue_pair) {
    struct ct_end c;
    uint32_t rkey = bound(IBV_ACCESS_REMOTE_WRITE);
    struct ibv_qp *own = b.qp;
    ct_open(&c, CT_OPTIONS());
    b.qp = ct_new_qp(&b);
    ct_connect_qp(&b, c.qp->qp_num);
    ct_connect_qp(&c, b.qp->qp_num);
    struct ibv_sge sge = ct_sge(&c, 0, 64);
    struct ibv_send_wr wr = {.wr_id = 1,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_RDMA_WRITE,
                             .wr.rdma = {(uintptr_t)b.buf + 4096, rkey}},
                       *bad;
    assert_int_equal(ibv_post_send(c.qp, &wr, &bad), 0);
    ct_wc(c.scq, 1, IBV_WC_REM_ACCESS_ERR);
    assert_int_equal(ibv_destroy_qp(b.qp), 0);
    b.qp = own;
    ct_close(&c);
    post(IBV_WR_RDMA_WRITE, 64, 4096, rkey); /* the right one still may */
    ct_wc(a.scq, 77, IBV_WC_SUCCESS);
}

PAIR_TEST(a_region_under_a_window_is_ebusy) {
    struct ibv_mr *mr = ibv_reg_mr(b.pd, b.buf, 8192, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
    assert_non_null(mr);
    uint32_t rkey = ibv_inc_rkey(mw->rkey);
    assert_int_equal(post_bind(mr, 4096, 64, IBV_ACCESS_REMOTE_READ, rkey), 0);
    ct_wc(b.scq, 3, IBV_WC_SUCCESS);
    assert_int_equal(ibv_dereg_mr(mr), facts.dereg_under_window);
    assert_int_equal(ibv_dealloc_mw(mw), 0);
    mw = NULL;
    assert_int_equal(ibv_dereg_mr(mr), 0);
}

PAIR_TEST(binding_needs_a_region_that_allows_it) {
    struct ibv_mr *mr = ibv_reg_mr(b.pd, b.buf, 8192, IBV_ACCESS_LOCAL_WRITE);
    assert_non_null(mr);
    assert_int_equal(post_bind(mr, 4096, 64, IBV_ACCESS_REMOTE_READ, ibv_inc_rkey(mw->rkey)), 0);
    ct_wc(b.scq, 3, facts.bind_refused);
    assert_int_equal(ibv_dereg_mr(mr), 0);
}

int main(void) {
    return ct_run();
}
