/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* softcm_iwarp.c - see softcm_iwarp.h. */
#include "support/softcm_iwarp.h"

static void iwarp_allow(struct sv_end *e) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
                               .port_num = 1,
                               .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
    assert_int_equal(soft_modify_qp(e->qp, &attr, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PORT),
                     0);
}

struct rdma_conn_param iwarp_param(const struct sv_end *e, const void *data, uint8_t len) {
    struct rdma_conn_param param = ct_param(data, len);
    param.qp_num = e->qp->qp_num;
    return param;
}

void iwarp_listen(struct iwarp_ends *s) {
    ct_pair_listen(&s->cm);
    sv_open(&s->dialer, SV_OPTIONS(.recvs = 8, .sends = 8));
    sv_open(&s->listener, SV_OPTIONS(.recvs = 8, .sends = 8));
    for (uint64_t i = 0; i < RECEIVES; i++) {
        assert_int_equal(sv_recv(&s->dialer, i, i * 64, 64), 0);
        assert_int_equal(sv_recv(&s->listener, i, i * 64, 64), 0);
    }
    iwarp_allow(&s->dialer);
    iwarp_allow(&s->listener);
    s->cm.active = ct_id(s->cm.active_channel);
    ct_resolve(s->cm.active, s->cm.port);
}

void iwarp_request(struct iwarp_ends *s) {
    iwarp_listen(s);
    struct rdma_conn_param param = iwarp_param(&s->dialer, "ask", 3);
    assert_int_equal(soft_connect(s->cm.active, &param), 0);
    s->cm.passive = ct_request(s->cm.passive_channel);
}

void iwarp_up(struct iwarp_ends *s) {
    iwarp_request(s);
    struct rdma_conn_param param = iwarp_param(&s->listener, NULL, 0);
    assert_int_equal(soft_accept(s->cm.passive, &param), 0);
    assert_int_equal(ct_take(s->cm.passive_channel, RDMA_CM_EVENT_ESTABLISHED), 0);
    assert_int_equal(ct_take(s->cm.active_channel, RDMA_CM_EVENT_ESTABLISHED), 0);
}

void iwarp_close(struct iwarp_ends *s) {
    ct_pair_free(&s->cm);
    sv_close(&s->dialer);
    sv_close(&s->listener);
}

void iwarp_expect_flushed(struct sv_end *e) {
    struct ibv_wc wc;
    for (uint64_t i = 0; i < RECEIVES; i++) {
        assert_int_equal(ibv_poll_cq(e->rcq, 1, &wc), 1);
        assert_int_equal(wc.wr_id, i);
        assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
    }
    assert_int_equal(ibv_poll_cq(e->rcq, 1, &wc), 0);
}

void iwarp_message(struct sv_end *from, struct sv_end *to) {
    sv_fill(from->buf + 4096, 40, 7);
    assert_int_equal(sv_send(from, 9, 4096, 40, IBV_SEND_SIGNALED), 0);
    struct ibv_wc wc = sv_poll(to->rcq);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    assert_int_equal(wc.byte_len, 40);
    sv_check(to->buf, 40, 7);
    wc = sv_poll(from->scq);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    assert_int_equal(wc.wr_id, 9);
}

void iwarp_start(void) {
    softcm_start();
    setenv("SLUICE_SOFT_PROFILE", "iwarp", 1);
    setenv("SLUICE_SOFT_MPA_MS", "2000", 1); /* two tests wait for it, all others answer sooner */
    setenv("SLUICE_SOFT_CM_TIMEOUT_MS", "20000", 1);
}

/* ---- as the set-up of a test ---- */

static struct iwarp_ends ends_of_test;

int iwarp_listening(void **state) {
    *state = &ends_of_test;
    iwarp_listen(*state);
    return 0;
}

int iwarp_requested(void **state) {
    *state = &ends_of_test;
    iwarp_request(*state);
    return 0;
}

int iwarp_connected(void **state) {
    *state = &ends_of_test;
    iwarp_up(*state);
    return 0;
}

int iwarp_closed(void **state) {
    iwarp_close(*state);
    return 0;
}
