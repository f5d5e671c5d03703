/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softcm_iwarp_data_test.c - SLUICE_SOFT_PROFILE=iwarp: what may be posted, what a completion says, and what
 * ends a connection.
 */
#include "support/softcm_iwarp.h"

static int post(struct sv_end *e, enum ibv_wr_opcode opcode, struct ibv_sge sge,
                const struct sv_end *to) {
    struct ibv_send_wr wr = {.wr_id = 77,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = opcode,
                             .send_flags = IBV_SEND_SIGNALED};
    struct ibv_send_wr *bad;
    wr.wr.rdma.remote_addr = (uintptr_t)to->buf;
    wr.wr.rdma.rkey = to->mr->rkey;
    return ibv_post_send(e->qp, &wr, &bad);
}

IWARP_WITH(iwarp_connected, immediate_data_and_atomics_are_not_taken) {
    struct iwarp_ends *s = *state;
    static const enum ibv_wr_opcode missing[] = {IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND_WITH_IMM,
                                                 IBV_WR_ATOMIC_CMP_AND_SWP,
                                                 IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_BIND_MW};
    for (size_t i = 0; i < sizeof missing / sizeof missing[0]; i++)
        assert_int_equal(post(&s->dialer, missing[i], sv_sge(&s->dialer, 0, 8), &s->listener),
                         EINVAL);
    iwarp_message(&s->dialer, &s->listener); /* nothing is stuck */
}

IWARP_WITH(iwarp_connected, a_read_needs_a_sink_that_may_be_written) {
    struct iwarp_ends *s = *state;
    const int sink = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    struct ibv_mr *open = soft_reg_mr(s->dialer.pd, s->dialer.buf, 4096, sink);
    struct ibv_mr *closed = soft_reg_mr(s->dialer.pd, s->dialer.buf, 4096, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_mr *source =
        soft_reg_mr(s->listener.pd, s->listener.buf, 4096, IBV_ACCESS_REMOTE_READ);
    assert_true(open && closed && source);
    struct sv_end from = s->listener;
    from.mr = source;
    sv_fill(s->listener.buf, 64, 3);
    struct ibv_sge sge = {(uintptr_t)s->dialer.buf + 512, 64, open->lkey};
    assert_int_equal(post(&s->dialer, IBV_WR_RDMA_READ, sge, &from), 0);
    assert_int_equal(sv_poll(s->dialer.scq).status, IBV_WC_SUCCESS);
    sv_check(s->dialer.buf + 512, 64, 3);
    memset(s->dialer.buf + 512, 0, 64);
    sge.lkey = closed->lkey;
    assert_int_equal(post(&s->dialer, IBV_WR_RDMA_READ, sge, &from), 0);
    assert_int_equal(sv_poll(s->dialer.scq).status, IBV_WC_LOC_PROT_ERR);
    must_data_equal(s->dialer.buf[512], 0);
    assert_int_equal(ct_take(s->cm.passive_channel, RDMA_CM_EVENT_DISCONNECTED), 0);
    assert_int_equal(soft_dereg_mr(open) | soft_dereg_mr(closed) | soft_dereg_mr(source), 0);
}

IWARP_WITH(iwarp_connected, nothing_that_is_posted_in_err_completes) {
    struct iwarp_ends *s = *state;
    assert_int_equal(sv_to(&s->dialer, IBV_QPS_ERR), 0);
    iwarp_expect_flushed(&s->dialer); /* before the call returned */
    assert_int_equal(sv_send(&s->dialer, 1, 0, 8, IBV_SEND_SIGNALED), 0);
    assert_int_equal(sv_recv(&s->dialer, 2, 0, 64), 0);
    sv_stays_empty(s->dialer.scq, s->dialer.rcq);
}

/* There is no RNR: nobody waits for a receive. */
IWARP_WITH(iwarp_connected, a_send_without_a_receive_ends_the_connection) {
    struct iwarp_ends *s = *state;
    for (unsigned i = 0; i <= RECEIVES; i++)
        assert_int_equal(sv_send(&s->dialer, i, 4096, 40, 0), 0);
    for (unsigned i = 0; i < RECEIVES; i++)
        assert_int_equal(sv_poll(s->listener.rcq).status, IBV_WC_SUCCESS);
    struct ibv_wc wc;
    while (sv_state(&s->listener) != IBV_QPS_ERR)
        assert_int_equal(ibv_poll_cq(s->listener.rcq, 1, &wc), 0); /* it looks at what came */
    assert_int_equal(ct_take(s->cm.active_channel, RDMA_CM_EVENT_DISCONNECTED), 0);
}

/* A refused WRITE was sent all the same; nothing was written, and the connection ends. */
IWARP_WITH(iwarp_connected, a_refused_write_is_not_told_to_who_wrote) {
    struct iwarp_ends *s = *state;
    struct ibv_mr *closed =
        soft_reg_mr(s->listener.pd, s->listener.buf, 4096, IBV_ACCESS_LOCAL_WRITE);
    assert_non_null(closed);
    struct sv_end to = s->listener;
    to.mr = closed;
    memset(s->listener.buf, 0, 64);
    memset(s->dialer.buf, 1, 64);
    assert_int_equal(post(&s->dialer, IBV_WR_RDMA_WRITE, sv_sge(&s->dialer, 0, 64), &to), 0);
    struct ibv_wc wc = sv_poll(s->dialer.scq);
    assert_true(wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_WR_FLUSH_ERR);
    while (sv_state(&s->listener) != IBV_QPS_ERR)
        (void)ibv_poll_cq(s->listener.rcq, 1, &wc);
    assert_int_equal(ct_take(s->cm.active_channel, RDMA_CM_EVENT_DISCONNECTED), 0);
    must_data_equal(s->listener.buf[0], 0);
    assert_int_equal(soft_dereg_mr(closed), 0);
}

IWARP_WITH(iwarp_listening, one_send_before_the_connection_blocks_the_queue_for_good) {
    struct iwarp_ends *s = *state;
    assert_int_equal(sv_send(&s->dialer, 1, 4096, 40, IBV_SEND_SIGNALED), ENOTCONN);
    struct rdma_conn_param param = iwarp_param(&s->dialer, NULL, 0);
    assert_int_equal(soft_connect(s->cm.active, &param), 0);
    s->cm.passive = ct_request(s->cm.passive_channel);
    param = iwarp_param(&s->listener, NULL, 0);
    assert_int_equal(soft_accept(s->cm.passive, &param), 0);
    assert_int_equal(ct_take(s->cm.passive_channel, RDMA_CM_EVENT_ESTABLISHED), 0);
    assert_int_equal(ct_take(s->cm.active_channel, RDMA_CM_EVENT_ESTABLISHED), 0);
    assert_int_equal(sv_send(&s->dialer, 2, 4096, 40, IBV_SEND_SIGNALED), 0);
    sv_stays_empty(s->dialer.scq, s->listener.rcq);
}

IWARP_WITH(iwarp_connected, a_listener_that_speaks_first_loses_its_connection) {
    struct iwarp_ends *s = *state;
    (void)sv_send(&s->listener, 1, 4096, 40, IBV_SEND_SIGNALED);
    assert_int_equal(ct_take(s->cm.active_channel, RDMA_CM_EVENT_DISCONNECTED), 0);
    iwarp_expect_flushed(&s->dialer);
}

IWARP_WITH(iwarp_connected, a_listener_that_has_heard_may_speak) {
    struct iwarp_ends *s = *state;
    iwarp_message(&s->dialer, &s->listener);
    iwarp_message(&s->listener, &s->dialer);
}

int main(void) {
    iwarp_start();
    return tests_run(NULL, NULL);
}
