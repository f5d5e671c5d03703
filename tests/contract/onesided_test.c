/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * onesided_test.c - RDMA WRITE, READ, atomics and memory windows: what they do to the target's memory,
 * and every way to be refused. The target posts nothing unless a test says so.
 */
#include "contract/ends.h"
#include "support/verdict.h"

static struct ct_end a, b; /* a asks, b is the target */

static int open_with(struct ct_options ob) {
    ct_open_pair(&a, &b, CT_OPTIONS(.inline_bytes = 64), ob);
    return 0;
}

static int open_default(void **state) {
    (void)state;
    return open_with(CT_OPTIONS());
}

static int open_read_only(void **state) { /* the target's QP */
    (void)state;
    return open_with(CT_OPTIONS(.no_access = true, .access = IBV_ACCESS_REMOTE_READ));
}

static int open_write_only(void **state) {
    (void)state;
    return open_with(CT_OPTIONS(.no_access = true, .access = IBV_ACCESS_REMOTE_WRITE));
}

static int open_no_depth(void **state) {
    (void)state;
    return open_with(CT_OPTIONS(.no_depth = true));
}

static int close_pair(void **state) {
    (void)state;
    ct_close(&a);
    ct_close(&b);
    return 0;
}

static struct ibv_send_wr request(struct ibv_sge *sge, enum ibv_wr_opcode opcode, size_t remote,
                                  uint32_t rkey) {
    return (struct ibv_send_wr){.wr_id = 77,
                                .sg_list = sge,
                                .num_sge = sge->length ? 1 : 0,
                                .opcode = opcode,
                                .send_flags = IBV_SEND_SIGNALED,
                                .imm_data = htonl(0xaabbccdd),
                                .wr.rdma = {(uintptr_t)b.buf + remote, rkey}};
}

static void post(enum ibv_wr_opcode opcode, size_t local, size_t bytes, size_t remote,
                 uint32_t rkey) {
    struct ibv_sge sge = ct_sge(&a, local, bytes);
    struct ibv_send_wr wr = request(&sge, opcode, remote, rkey), *bad;
    assert_int_equal(ibv_post_send(a.qp, &wr, &bad), 0);
}

static void done(enum ibv_wc_opcode opcode) {
    struct ibv_wc wc = ct_poll(a.scq);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    assert_int_equal(wc.opcode, opcode);
    assert_int_equal(wc.wr_id, 77);
    assert_int_equal(wc.qp_num, a.qp->qp_num);
}

static int try_atomic(enum ibv_wr_opcode opcode, size_t local, size_t remote, uint64_t compare_add,
                      uint64_t swap) {
    struct ibv_sge sge = ct_sge(&a, local, 8);
    struct ibv_send_wr wr = {.wr_id = 77,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = opcode,
                             .send_flags = IBV_SEND_SIGNALED,
                             .wr.atomic = {.remote_addr = (uintptr_t)b.buf + remote,
                                           .rkey = b.mr->rkey,
                                           .compare_add = compare_add,
                                           .swap = swap}},
                       *bad;
    return ibv_post_send(a.qp, &wr, &bad);
}

static void post_atomic(enum ibv_wr_opcode opcode, size_t local, size_t remote,
                        uint64_t compare_add, uint64_t swap) {
    assert_int_equal(try_atomic(opcode, local, remote, compare_add, swap), 0);
}

/* ---- what they do --------------------------------------------------------------------------------------- */

#define WITH(open, name) TEST_WITH(open, close_pair, name)

WITH(open_default, write_and_read_of_any_size) {
    const size_t sizes[] = {0, 1, 7, 8, 64, 432, 1024, 1025, 4096, 50001};
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        size_t n = sizes[i];
        ct_fill(a.buf, n, i);
        memset(b.buf, 0x77, CT_BYTES);
        post(IBV_WR_RDMA_WRITE, 0, n, 5, b.mr->rkey);
        done(IBV_WC_RDMA_WRITE);
        ct_check(b.buf + 5, n, i);
        assert_int_equal(b.buf[4], 0x77);
        assert_int_equal(b.buf[5 + n], 0x77);
        memset(a.buf, 0, n);
        post(IBV_WR_RDMA_READ, 0, n, 5, b.mr->rkey);
        done(IBV_WC_RDMA_READ);
        ct_check(a.buf, n, i);
    }
    ct_empty(b.rcq);
}

WITH(open_default, nothing_needs_no_key) {
    post(IBV_WR_RDMA_WRITE, 0, 0, 0, 0);
    done(IBV_WC_RDMA_WRITE);
    post(IBV_WR_RDMA_READ, 0, 0, 0, 0);
    done(IBV_WC_RDMA_READ);
}

/* Among others, too: where nothing lies, nothing is looked at. */
WITH(open_default, an_empty_piece_needs_no_key) {
    static const struct {
        enum ibv_wr_opcode opcode;
        enum ibv_wc_opcode told;
    } rows[] = {{IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE}, {IBV_WR_RDMA_READ, IBV_WC_RDMA_READ}};
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct ibv_sge sge[3] = {{0}, ct_sge(&a, 100, 90), {0}};
        struct ibv_send_wr wr = request(&sge[1], rows[i].opcode, 5, b.mr->rkey), *bad;
        wr.sg_list = sge;
        wr.num_sge = 3;
        ct_fill(i ? b.buf + 5 : a.buf + 100, 90, i);
        memset(i ? a.buf + 100 : b.buf + 5, 0, 90);
        assert_int_equal(ibv_post_send(a.qp, &wr, &bad), 0);
        done(rows[i].told);
        ct_check(i ? a.buf + 100 : b.buf + 5, 90, i);
    }
}

WITH(open_default, write_with_imm_takes_a_receive_and_none_of_its_buffer) {
    memset(b.buf, 0x77, CT_BYTES);
    ct_fill(a.buf, 300, 3);
    assert_int_equal(ct_recv(&b, 55, 0, 64), 0);
    post(IBV_WR_RDMA_WRITE_WITH_IMM, 0, 300, 128, b.mr->rkey);
    struct ibv_wc wc = ct_poll(b.rcq);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    assert_int_equal(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    assert_int_equal(wc.wc_flags & IBV_WC_WITH_IMM, IBV_WC_WITH_IMM);
    assert_int_equal(ntohl(wc.imm_data), 0xaabbccdd);
    assert_int_equal(wc.wr_id, 55);
    assert_int_equal(wc.byte_len, 300);
    ct_check(b.buf + 128, 300, 3);
    for (unsigned i = 0; i < 64; i++)
        assert_int_equal(b.buf[i], 0x77);
    done(IBV_WC_RDMA_WRITE);
}

WITH(open_default, write_is_there_before_a_later_send_completes) {
    for (unsigned i = 0; i < 50; i++) {
        assert_int_equal(ct_recv(&b, i, 60000, 64), 0);
        ct_fill(a.buf, 3000, i);
        post(IBV_WR_RDMA_WRITE, 0, 3000, 8192, b.mr->rkey);
        assert_int_equal(ct_send(&a, 77, 0, 8, IBV_SEND_SIGNALED), 0);
        ct_wc(b.rcq, i, IBV_WC_SUCCESS);
        ct_check(b.buf + 8192, 3000, i);
        done(IBV_WC_RDMA_WRITE);
        done(IBV_WC_SEND);
    }
}

WITH(open_default, inline_write_ignores_the_local_key) {
    uint8_t data[60];
    ct_fill(data, sizeof data, 9);
    struct ibv_sge sge = {(uintptr_t)data, sizeof data, 0};
    struct ibv_send_wr wr = request(&sge, IBV_WR_RDMA_WRITE, 0, b.mr->rkey), *bad;
    wr.send_flags |= IBV_SEND_INLINE;
    assert_int_equal(ibv_post_send(a.qp, &wr, &bad), 0);
    memset(data, 0, sizeof data);
    done(IBV_WC_RDMA_WRITE);
    ct_check(b.buf, sizeof data, 9);
}

WITH(open_default, read_scatters_over_a_list) {
    ct_fill(b.buf, 5000, 6);
    struct ibv_sge sge[3] = {ct_sge(&a, 100, 10), ct_sge(&a, 9000, 4000), ct_sge(&a, 0, 90)};
    struct ibv_send_wr wr = request(sge, IBV_WR_RDMA_READ, 0, b.mr->rkey), *bad;
    wr.num_sge = 3;
    assert_int_equal(ibv_post_send(a.qp, &wr, &bad), 0);
    done(IBV_WC_RDMA_READ);
    must_data_bytes(a.buf + 100, b.buf, 10);
    must_data_bytes(a.buf + 9000, b.buf + 10, 4000);
    must_data_bytes(a.buf, b.buf + 4010, 90);
}

WITH(open_default, many_reads_stay_within_the_depth) {
    ct_fill(b.buf, 32 * 256, 1);
    for (size_t i = 0; i < 32; i++)
        post(IBV_WR_RDMA_READ, i * 256, 256, i * 256, b.mr->rkey);
    for (int i = 0; i < 32; i++)
        done(IBV_WC_RDMA_READ);
    ct_check(a.buf, 32 * 256, 1);
}

WITH(open_default, atomics_return_the_old_value) {
    uint64_t *word = (uint64_t *)(void *)(b.buf + 64), *old = (uint64_t *)(void *)a.buf;
    *word = 40;
    post_atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 64, 2, 0);
    done(IBV_WC_FETCH_ADD);
    assert_int_equal(*old, 40);
    assert_int_equal(*word, 42);
    post_atomic(IBV_WR_ATOMIC_CMP_AND_SWP, 0, 64, 41, 7);
    done(IBV_WC_COMP_SWAP);
    assert_int_equal(*old, 42);
    assert_int_equal(*word, 42);
    post_atomic(IBV_WR_ATOMIC_CMP_AND_SWP, 0, 64, 42, 7);
    done(IBV_WC_COMP_SWAP);
    assert_int_equal(*old, 42);
    assert_int_equal(*word, 7);
}

WITH(open_default, a_hundred_adds_are_a_hundred) {
    uint64_t *word = (uint64_t *)(void *)(b.buf + 64), *old = (uint64_t *)(void *)a.buf;
    *word = UINT64_MAX - 49; /* and wraps */
    for (unsigned i = 0; i < 100; i++)
        post_atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 64, 1, 0), done(IBV_WC_FETCH_ADD);
    assert_int_equal(*word, 50);
    assert_int_equal(*old, 49);
}

/* ---- refusals --------------------------------------------------------------------------------------------- */

/* The requester fails, both QPs end; the device of the target may say why. */
static void refused(enum ibv_wc_status status, enum ibv_event_type event) {
    ct_wc(a.scq, 77, status);
    ct_in_err(a.qp);
    if (event == IBV_EVENT_QP_ACCESS_ERR ? facts.access_events : facts.request_events)
        ct_async(b.ctx, event, b.qp);
    else
        ct_no_async(b.ctx);
    /* The answer to the requester may be there first. */
    if (facts.refusal_ends_target)
        ct_wait_for_err(b.qp);
    assert_int_equal(ct_state(b.qp), facts.refusal_ends_target ? IBV_QPS_ERR : IBV_QPS_RTS);
    ct_no_async(a.ctx);
}

static void access_refused(void) {
    refused(IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
}

WITH(open_default, an_unknown_key) {
    post(IBV_WR_RDMA_WRITE, 0, 8, 0, b.mr->rkey ^ 0x1);
    access_refused();
}

WITH(open_default, one_byte_past_the_end) {
    memset(b.buf + CT_BYTES - 8, 0xee, 8);
    post(IBV_WR_RDMA_WRITE, 0, 8, CT_BYTES - 7, b.mr->rkey);
    access_refused();
    for (unsigned i = 7; i > 0; i--)
        assert_int_equal(b.buf[CT_BYTES - i], 0xee);
}

WITH(open_default, one_byte_before_the_beginning) {
    post(IBV_WR_RDMA_READ, 0, 8, (size_t)-1, b.mr->rkey);
    access_refused();
}

WITH(open_default, a_region_without_the_right) {
    struct ibv_mr *mr =
        ibv_reg_mr(b.pd, b.buf, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
    assert_non_null(mr);
    post(IBV_WR_RDMA_READ, 0, 8, 0, mr->rkey);
    done(IBV_WC_RDMA_READ);
    memset(b.buf, 0xab, 8);
    post(IBV_WR_RDMA_WRITE, 8, 8, 0, mr->rkey);
    access_refused();
    assert_int_equal(b.buf[0], 0xab);
    assert_int_equal(ibv_dereg_mr(mr), 0);
}

WITH(open_default, a_region_for_local_use_only) {
    struct ibv_mr *mr = ibv_reg_mr(b.pd, b.buf, 4096, IBV_ACCESS_LOCAL_WRITE);
    assert_non_null(mr);
    /* Its rkey may even be 0; what opens nothing opens nothing. */
    post(IBV_WR_RDMA_READ, 0, 8, 0, mr->rkey);
    access_refused();
    assert_int_equal(ibv_dereg_mr(mr), 0);
}

WITH(open_default, a_region_that_was_taken_back) {
    struct ibv_mr *mr = ibv_reg_mr(b.pd, b.buf, 4096, IBV_ACCESS_LOCAL_WRITE | CT_REMOTE);
    assert_non_null(mr);
    uint32_t rkey = mr->rkey;
    post(IBV_WR_RDMA_WRITE, 0, 8, 0, rkey);
    done(IBV_WC_RDMA_WRITE);
    assert_int_equal(ibv_dereg_mr(mr), 0);
    memset(b.buf, 0xab, 8);
    post(IBV_WR_RDMA_WRITE, 0, 8, 0, rkey);
    access_refused();
    assert_int_equal(b.buf[0], 0xab);
}

WITH(open_default, a_region_of_another_protection_domain) {
    struct ibv_pd *pd = ibv_alloc_pd(b.ctx);
    assert_non_null(pd);
    struct ibv_mr *mr = ibv_reg_mr(pd, b.buf, 4096, IBV_ACCESS_LOCAL_WRITE | CT_REMOTE);
    assert_non_null(mr);
    post(IBV_WR_RDMA_WRITE, 0, 8, 0, mr->rkey);
    access_refused();
    assert_int_equal(ibv_dereg_mr(mr), 0);
    assert_int_equal(ibv_dealloc_pd(pd), 0);
}

static void a_queue_pair_without_the_right(void **state) {
    (void)state;
    memset(b.buf, 0xab, 8);
    post(b.o.access & IBV_ACCESS_REMOTE_READ ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, 0, 8, 0,
         b.mr->rkey);
    refused(facts.qp_right_status, facts.qp_right_event);
    assert_int_equal(b.buf[0], 0xab);
}

WITH(open_no_depth, a_read_with_depth_0) {
    post(IBV_WR_RDMA_READ, 0, 8, 0, b.mr->rkey);
    refused(IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
}

WITH(open_default, a_misaligned_atomic) {
    int rc = try_atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 12, 1, 0);
    if (facts.misaligned_post_fails) {
        assert_int_equal(rc, EINVAL);
        ct_empty(a.scq);
    } else {
        assert_int_equal(rc, 0);
        refused(IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
    }
    assert_int_equal(b.buf[12], 0);
}

/* The answer has nowhere to go: the requester's own fault, and the target is not told. */
WITH(open_default, a_read_into_a_wrong_local_key) {
    struct ibv_sge sge = {(uintptr_t)a.buf, 64, a.mr->lkey ^ 1};
    struct ibv_send_wr wr = request(&sge, IBV_WR_RDMA_READ, 0, b.mr->rkey), *bad;
    assert_int_equal(ibv_post_send(a.qp, &wr, &bad), 0);
    ct_wc(a.scq, 77, facts.wrong_read_buffer);
    assert_int_equal(ct_state(b.qp), IBV_QPS_RTS);
    ct_no_async(b.ctx);
}

TEST_CASES({"a_queue_pair_without_the_right_to_write", a_queue_pair_without_the_right,
            open_read_only, close_pair, NULL},
           {"a_queue_pair_without_the_right_to_read", a_queue_pair_without_the_right,
            open_write_only, close_pair, NULL});

int main(void) {
    return ct_run();
}
