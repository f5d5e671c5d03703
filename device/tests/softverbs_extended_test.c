/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs_extended_test.c - the part of verbs that other people's programs use: extended contexts,
 * CQs with reader calls, QPs with ibv_wr_* calls, registration under another address, CQ sizes. Through
 * the headers' own inline calls where there are such.
 */
#include "support/softverbs.h"

#include "soft/object/cq.h"
#include "soft/rc/completer.h"
#include "soft/soft.h"
#include "soft/verbs/internal.h"

static struct sv_end a, b;

static int open_pair(void **state) {
    (void)state;
    sv_pair(&a, SV_OPTIONS(.inline_bytes = 112), &b, SV_OPTIONS());
    return 0;
}

static int close_pair(void **state) {
    (void)state;
    sv_unpair(&a, &b);
    return 0;
}

/* a's QP with ibv_wr_* calls, before it is connected. */
static int open_extended(void **state) {
    (void)state;
    sv_open(&a, SV_OPTIONS(.sends = 4));
    sv_open(&b, SV_OPTIONS());
    assert_int_equal(soft_qp_extend(a.qp, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM), 0);
    sv_connect(&a, b.qp->qp_num);
    sv_connect(&b, a.qp->qp_num);
    return 0;
}

/* ---- context ----------------------------------------------------------------------------------------- */

TEST_WITH(open_pair, close_pair, the_context_is_extended) {
    assert_non_null(verbs_get_ctx(a.ctx));
    struct ibv_device_attr_ex attr;
    memset(&attr, 0x5a, sizeof attr);
    assert_int_equal(ibv_query_device_ex(a.ctx, NULL, &attr), 0);
    assert_string_equal(attr.orig_attr.fw_ver, "soft");
    assert_int_equal(attr.odp_caps.general_caps, 0);
    assert_int_equal(attr.max_dm_size, 0);
    assert_int_equal(attr.hca_core_clock, 1000000);
    assert_true(attr.completion_timestamp_mask == UINT64_MAX);
}

TEST_WITH(open_pair, close_pair, query_port_fills_what_the_caller_has) {
    struct {
        struct ibv_port_attr attr;
        uint8_t more[16];
    } out;
    struct verbs_context *slots = verbs_get_ctx(a.ctx);
    memset(&out, 0x5a, sizeof out);
    assert_int_equal(slots->query_port(a.ctx, 1, &out.attr, 4), 0);
    assert_int_equal(out.attr.state, IBV_PORT_ACTIVE);
    assert_int_equal(out.attr.max_mtu, 0x5a5a5a5a);
    assert_int_equal(slots->query_port(a.ctx, 1, &out.attr, sizeof out), 0);
    assert_int_equal(out.attr.link_layer, IBV_LINK_LAYER_ETHERNET);
    for (size_t i = 0; i < sizeof out.more; i++)
        assert_int_equal(out.more[i], 0);
}

TEST_WITH(open_pair, close_pair, paging_on_demand_is_refused) {
    assert_null(soft_reg_mr(a.pd, a.buf, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND));
    assert_int_equal(errno, EOPNOTSUPP);
}

TEST_WITH(open_pair, close_pair, a_registration_under_another_address_is_used_by_it) {
    const uint64_t iova = 0x4000;
    struct ibv_mr *mr =
        soft_reg_mr_iova(b.pd, b.buf, 4096, iova, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    assert_non_null(mr);
    struct ibv_sge sge = {iova + 100, 64, mr->lkey};
    struct ibv_recv_wr recv = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;
    assert_int_equal(ibv_post_recv(b.qp, &recv, &bad), 0);
    memset(a.buf, 'x', 64);
    assert_int_equal(sv_send(&a, 2, 0, 64, IBV_SEND_SIGNALED), 0);
    assert_int_equal(sv_poll(b.rcq).status, IBV_WC_SUCCESS);
    must_data_bytes(b.buf + 100, a.buf, 64);
    assert_int_equal(sv_poll(a.scq).status, IBV_WC_SUCCESS);
    assert_int_equal(soft_dereg_mr(mr), 0);
    assert_null(soft_reg_mr_iova(b.pd, b.buf, 4096, UINT64_MAX - 100, IBV_ACCESS_LOCAL_WRITE));
    assert_int_equal(errno, EINVAL);
}

/* ---- CQs ------------------------------------------------------------------------------------------------ */

static struct ibv_cq_ex *extended_cq(uint64_t flags) {
    struct ibv_cq_init_attr_ex attr = {.cqe = 16, .wc_flags = flags};
    return ibv_create_cq_ex(b.ctx, &attr);
}

TEST(a_reader_shows_completions_one_by_one) {
    sv_open(&a, SV_OPTIONS());
    sv_open(&b, SV_OPTIONS());
    struct ibv_cq_ex *cq = extended_cq(IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP);
    assert_non_null(cq);
    struct ibv_cq *plain = b.rcq;
    assert_int_equal(soft_destroy_qp(b.qp), 0);
    b.rcq = ibv_cq_ex_to_cq(cq);
    b.qp = sv_qp(&b);
    sv_connect(&a, b.qp->qp_num);
    sv_connect(&b, a.qp->qp_num);
    struct ibv_poll_cq_attr attr = {0};
    assert_int_equal(ibv_start_poll(cq, &attr), ENOENT);
    assert_int_equal(ibv_start_poll(cq, &attr), ENOENT); /* the first one let go */
    attr.comp_mask = 1;
    assert_int_equal(ibv_start_poll(cq, &attr), EINVAL);
    attr.comp_mask = 0;
    for (int i = 0; i < 2; i++)
        assert_int_equal(sv_recv(&b, 10 + (uint64_t)i, 0, 64), 0);
    assert_int_equal(sv_send(&a, 1, 0, 8, IBV_SEND_SIGNALED), 0);
    assert_int_equal(sv_send(&a, 2, 0, 9, IBV_SEND_SIGNALED), 0);
    sv_until(ibv_start_poll(cq, &attr) == 0);
    uint64_t first = ibv_wc_read_completion_ts(cq);
    must_data_equal(cq->wr_id, 10);
    assert_int_equal(cq->status, IBV_WC_SUCCESS);
    assert_int_equal(ibv_wc_read_opcode(cq), IBV_WC_RECV);
    must_data_equal(ibv_wc_read_byte_len(cq), 8);
    assert_int_equal(ibv_wc_read_qp_num(cq), b.qp->qp_num);
    assert_int_equal(ibv_wc_read_src_qp(cq), a.qp->qp_num);
    assert_int_equal(ibv_wc_read_wc_flags(cq), 0);
    sv_until(ibv_next_poll(cq) == 0);
    must_data_equal(cq->wr_id, 11);
    must_data_equal(ibv_wc_read_byte_len(cq), 9);
    assert_true(ibv_wc_read_completion_ts(cq) >= first && first > 0);
    assert_int_equal(ibv_next_poll(cq), ENOENT);
    ibv_end_poll(cq);
    assert_int_equal(soft_destroy_qp(b.qp), 0);
    assert_int_equal(soft_destroy_cq(b.rcq), 0);
    b.qp = NULL;
    b.rcq = plain;
    sv_unpair(&a, &b);
}

TEST_WITH(open_pair, close_pair, a_cq_refuses_fields_it_cannot_read) {
    assert_null(extended_cq(IBV_WC_EX_WITH_FLOW_TAG));
    assert_int_equal(errno, EOPNOTSUPP);
    struct ibv_cq_init_attr_ex attr = {.cqe = 16,
                                       .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
                                       .flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN};
    assert_null(ibv_create_cq_ex(b.ctx, &attr));
    assert_int_equal(errno, EOPNOTSUPP);
}

TEST_WITH(open_pair, close_pair, a_cq_grows_and_keeps_what_is_in_it) {
    struct ibv_cq *cq = soft_create_cq(a.ctx, 2, NULL, NULL, 0);
    assert_non_null(cq);
    struct ibv_wc wc = {.wr_id = 1};
    assert_true(soft_cq_push(soft_cq_of(cq), &wc, false));
    wc.wr_id = 2;
    assert_true(soft_cq_push(soft_cq_of(cq), &wc, false));
    assert_false(soft_cq_push(soft_cq_of(cq), &wc, false));
    assert_int_equal(soft_resize_cq(cq, 1), EINVAL); /* they would not fit */
    assert_int_equal(soft_resize_cq(cq, 0), EINVAL);
    assert_int_equal(soft_resize_cq(cq, 4), 0);
    assert_int_equal(cq->cqe, 4);
    wc.wr_id = 3;
    assert_true(soft_cq_push(soft_cq_of(cq), &wc, false));
    for (uint64_t i = 1; i <= 3; i++) {
        assert_int_equal(soft_poll_cq(cq, 1, &wc), 1);
        must_data_equal(wc.wr_id, i);
    }
    struct ibv_modify_cq_attr none = {.attr_mask = IBV_CQ_ATTR_MODERATE,
                                      .moderate = {.cq_count = 1}};
    assert_int_equal(ibv_modify_cq(cq, &none), 0);
    none.moderate.cq_count = 8;
    assert_int_equal(ibv_modify_cq(cq, &none), EOPNOTSUPP);
    assert_int_equal(soft_destroy_cq(cq), 0);
}

/* ---- QPs -------------------------------------------------------------------------------------------------- */

static void build_send(struct ibv_qp_ex *ex, uint64_t wr_id, uint32_t bytes) {
    ex->wr_id = wr_id;
    ex->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_send(ex);
    ibv_wr_set_sge(ex, a.mr->lkey, (uintptr_t)a.buf, bytes);
}

TEST_WITH(open_extended, close_pair, a_batch_is_posted_by_complete) {
    struct ibv_qp_ex *ex = soft_qp_to_qp_ex(a.qp);
    assert_non_null(ex);
    assert_null(soft_qp_to_qp_ex(b.qp));
    char word[] = "inline";
    for (int i = 0; i < 2; i++)
        assert_int_equal(sv_recv(&b, 10 + (uint64_t)i, (size_t)i * 64, 64), 0);
    ibv_wr_start(ex);
    build_send(ex, 1, 8);
    ex->wr_id = 2;
    ibv_wr_send_imm(ex, htobe32(77));
    ibv_wr_set_inline_data(ex, word, sizeof word);
    memset(word, 0, sizeof word); /* was copied */
    assert_int_equal(ibv_wr_complete(ex), 0);
    must_data_equal(sv_poll(b.rcq).byte_len, 8);
    struct ibv_wc wc = sv_poll(b.rcq);
    must_data_equal(wc.imm_data, htobe32(77));
    must_data_bytes(b.buf + 64, "inline", sizeof "inline");
    must_data_equal(sv_poll(a.scq).wr_id, 1);
    must_data_equal(sv_poll(a.scq).wr_id, 2);
}

TEST_WITH(open_extended, close_pair, an_aborted_batch_leaves_nothing) {
    struct ibv_qp_ex *ex = soft_qp_to_qp_ex(a.qp);
    ibv_wr_start(ex);
    build_send(ex, 1, 8);
    ibv_wr_abort(ex);
    ibv_wr_start(ex);
    assert_int_equal(ibv_wr_complete(ex), 0);
    assert_int_equal(sv_slots_written(&a), 0);
}

TEST_WITH(open_extended, close_pair, a_batch_with_a_mistake_is_not_posted_at_all) {
    struct ibv_qp_ex *ex = soft_qp_to_qp_ex(a.qp);
    struct ibv_sge many[8] = {0};
    ibv_wr_start(ex);
    build_send(ex, 1, 8);
    ibv_wr_send(ex);
    ibv_wr_set_sge_list(ex, 8, many); /* 4 is the limit */
    build_send(ex, 2, 8);
    assert_int_equal(ibv_wr_complete(ex), EINVAL);
    ibv_wr_start(ex);
    for (uint64_t i = 0; i < 5; i++) /* a queue of 4 */
        build_send(ex, i, 8);
    assert_int_equal(ibv_wr_complete(ex), ENOMEM);
    ibv_wr_start(ex);
    ibv_wr_set_sge(ex, 0, 0, 0); /* of what? */
    assert_int_equal(ibv_wr_complete(ex), EINVAL);
    assert_int_equal(sv_slots_written(&a), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(sv_recv(&b, 1, 0, 64), 0);
    ibv_wr_start(ex);
    for (uint64_t i = 0; i < 4; i++)
        build_send(ex, i, 8);
    assert_int_equal(ibv_wr_complete(ex), 0);
    for (uint64_t i = 0; i < 4; i++)
        assert_int_equal(sv_poll(b.rcq).status, IBV_WC_SUCCESS);
}

TEST_WITH(open_pair, close_pair, qps_refuse_operations_they_do_not_have) {
    struct ibv_qp_init_attr_ex attr = {
        .send_cq = a.scq,
        .recv_cq = a.rcq,
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .pd = a.pd,
        .send_ops_flags = IBV_QP_EX_WITH_TSO};
    assert_null(ibv_create_qp_ex(a.ctx, &attr));
    assert_int_equal(errno, EOPNOTSUPP);
    attr.send_ops_flags = IBV_QP_EX_WITH_RDMA_READ;
    struct ibv_qp *qp = ibv_create_qp_ex(a.ctx, &attr);
    assert_non_null(qp);
    assert_non_null(soft_qp_to_qp_ex(qp));
    assert_true(attr.cap.max_inline_data > 0);
    assert_int_equal(soft_destroy_qp(qp), 0);
}

/* ---- programs written for NICs ---------------------------------------------------------------------------- */

TEST(a_patient_device_reports_a_gone_peer_after_the_retries) {
    soft_dropin = true;
    sv_pair(&a, SV_OPTIONS(.timeout = 13, .retry_cnt = 1), &b, SV_OPTIONS()); /* 67 ms */
    sv_wait_linked(&a);
    uint64_t start = soft_now_ns();
    assert_int_equal(sv_to(&b, IBV_QPS_ERR), 0);
    assert_int_equal(sv_send(&a, 1, 0, 8, IBV_SEND_SIGNALED), 0);
    struct ibv_wc wc = sv_poll(a.scq);
    soft_dropin = false;
    assert_int_equal(wc.status, IBV_WC_RETRY_EXC_ERR);
    assert_true(soft_now_ns() - start >= 67000000);
    sv_unpair(&a, &b);
}
