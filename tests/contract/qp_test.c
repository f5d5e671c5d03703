/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * qp_test.c - QPs and ids: the states through which the CM moves a QP that sits on an id, and the
 * attributes that it hands out for one that the application moves itself.
 */
#include "contract/contract.h"

#define INIT_MASK (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define RTR_MASK                                                                                   \
    (IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |                \
     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define RTS_MASK                                                                                   \
    (IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |         \
     IBV_QP_MAX_QP_RD_ATOMIC)

/* Both ends with a QP on the id, up to the answered request. */
static void accept_with_qps(struct ct_pair *pair) {
    ct_pair_resolve(pair);
    ct_qp(pair->active);
    assert_int_equal(rdma_connect(pair->active, NULL), 0);
    pair->passive = ct_request(pair->passive_channel);
    ct_qp(pair->passive);
    assert_int_equal(rdma_accept(pair->passive, NULL), 0);
}

/* ---- the QP on the id ------------------------------------------------------------------------------ */

TEST(create_qp_leaves_init_and_makes_cqs) {
    struct rdma_event_channel *channel = ct_channel();
    struct rdma_cm_id *id = ct_id(channel);
    ct_resolve(id, 4711);
    ct_qp(id);
    assert_int_equal(ct_state(id->qp), IBV_QPS_INIT);
    assert_non_null(id->send_cq);
    assert_non_null(id->recv_cq);
    assert_non_null(id->send_cq_channel);
    assert_non_null(id->recv_cq_channel);
    assert_ptr_equal(id->send_cq->cq_context, id);
    struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC};
    assert_fails(rdma_create_qp(id, NULL, &attr), EINVAL); /* has one */
    rdma_destroy_qp(id);
    assert_null(id->qp);
    assert_null(id->send_cq);
    assert_null(id->recv_cq_channel);
    ct_destroy(id);
    rdma_destroy_event_channel(channel);
}

TEST(a_pd_of_another_context_is_einval) {
    struct rdma_event_channel *channel = ct_channel();
    struct rdma_cm_id *id = ct_id(channel);
    ct_resolve(id, 4711);
    struct ibv_context *context = ibv_open_device(id->verbs->device);
    assert_non_null(context);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    assert_non_null(pd);
    struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC,
                                    .cap = {.max_send_wr = 1, .max_recv_wr = 1}};
    assert_fails(rdma_create_qp(id, pd, &attr), EINVAL);
    assert_int_equal(ibv_dealloc_pd(pd), 0);
    assert_int_equal(ibv_close_device(context), 0);
    ct_destroy(id);
    rdma_destroy_event_channel(channel);
}

TEST(a_connection_moves_both_qps) {
    struct ct_pair pair;
    accept_with_qps(&pair);
    assert_int_equal(ct_state(pair.passive->qp), IBV_QPS_RTS); /* before the reply was sent */
    assert_true(ct_readable(pair.active_channel, facts.wait_ms));
    assert_int_equal(ct_state(pair.active->qp), IBV_QPS_INIT); /* until the event is fetched */
    ct_silent(pair.passive_channel);
    assert_int_equal(ct_take(pair.active_channel, RDMA_CM_EVENT_ESTABLISHED), 0);
    assert_int_equal(ct_state(pair.active->qp), IBV_QPS_RTS);
    assert_int_equal(ct_take(pair.passive_channel, RDMA_CM_EVENT_ESTABLISHED), 0);
    assert_fails(rdma_establish(pair.active), EINVAL); /* it has a QP */
    ct_pair_free(&pair);
}

CT_WITH(ct_connected_qps, connected_qps_point_at_each_other) {
    struct ct_pair *pair = *state;
    struct ibv_qp_attr active, passive;
    struct ibv_qp_init_attr init;
    const int all = IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC |
                    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_ACCESS_FLAGS;
    assert_int_equal(ibv_query_qp(pair->active->qp, &active, all, &init), 0);
    assert_int_equal(ibv_query_qp(pair->passive->qp, &passive, all, &init), 0);
    if (facts.tells_parameters) {
        assert_int_equal(active.dest_qp_num, pair->passive->qp->qp_num);
        assert_int_equal(passive.dest_qp_num, pair->active->qp->qp_num);
        assert_int_equal(active.rq_psn, passive.sq_psn);
        assert_int_equal(passive.rq_psn, active.sq_psn);
    }
    assert_int_equal(active.max_rd_atomic, 1);
    assert_int_equal(active.max_dest_rd_atomic, 1);
    const unsigned remote =
        IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    assert_int_equal(active.qp_access_flags & remote, remote);
}

CT_WITH(ct_connected_qps, disconnect_moves_the_callers_qp_only) {
    struct ct_pair *pair = *state;
    assert_int_equal(rdma_disconnect(pair->active), 0);
    assert_int_equal(ct_state(pair->active->qp), IBV_QPS_ERR);
    ct_take(pair->passive_channel, RDMA_CM_EVENT_DISCONNECTED);
    assert_int_equal(ct_state(pair->passive->qp),
                     facts.disconnects_one ? IBV_QPS_RTS : IBV_QPS_ERR);
    assert_int_equal(rdma_disconnect(pair->passive), 0);
    assert_int_equal(ct_state(pair->passive->qp), IBV_QPS_ERR);
    assert_int_equal(ct_take(pair->active_channel, RDMA_CM_EVENT_DISCONNECTED), 0);
}

static void post_receive(struct rdma_cm_id *id, struct ibv_mr *mr, uint8_t *buf) {
    struct ibv_sge sge = {(uintptr_t)buf, 64, mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = 5, .sg_list = &sge, .num_sge = 1}, *bad;
    assert_int_equal(ibv_post_recv(id->qp, &wr, &bad), 0);
}

static int poll_for(struct ibv_cq *cq, int ms, struct ibv_wc *wc) {
    uint64_t end = ct_now_ms() + (uint64_t)ms;
    int n;
    do
        n = ibv_poll_cq(cq, 1, wc);
    while (n == 0 && ct_now_ms() < end);
    return n;
}

/* Who only hears of the disconnect has its receives still. */
CT_WITH(ct_connected_qps, disconnect_flushes_the_caller_only) {
    struct ct_pair *pair = *state;
    struct ibv_wc wc;
    uint8_t buf[64];
    struct ibv_mr *mine = ibv_reg_mr(pair->active->pd, buf, sizeof buf, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_mr *theirs = ibv_reg_mr(pair->passive->pd, buf, sizeof buf, IBV_ACCESS_LOCAL_WRITE);
    assert_true(mine && theirs);
    post_receive(pair->active, mine, buf);
    post_receive(pair->passive, theirs, buf);
    assert_int_equal(rdma_disconnect(pair->active), 0);
    assert_int_equal(poll_for(pair->active->recv_cq, facts.wait_ms, &wc), 1);
    assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
    ct_take(pair->passive_channel, RDMA_CM_EVENT_DISCONNECTED);
    if (facts.disconnects_one)
        assert_int_equal(poll_for(pair->passive->recv_cq, facts.silence_ms, &wc), 0);
    assert_int_equal(rdma_disconnect(pair->passive), 0);
    assert_int_equal(poll_for(pair->passive->recv_cq, facts.wait_ms, &wc), 1);
    assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
    assert_int_equal(wc.wr_id, 5);
    rdma_destroy_qp(pair->active);
    rdma_destroy_qp(pair->passive);
    assert_int_equal(ibv_dereg_mr(mine), 0);
    assert_int_equal(ibv_dereg_mr(theirs), 0);
}

CT_WITH(ct_resolved, rejected_moves_the_qp_to_err_when_fetched) {
    struct ct_pair *pair = *state;
    ct_qp(pair->active);
    assert_int_equal(rdma_connect(pair->active, NULL), 0);
    pair->passive = ct_request(pair->passive_channel);
    assert_int_equal(rdma_reject(pair->passive, NULL, 0), 0);
    assert_true(ct_readable(pair->active_channel, facts.wait_ms));
    assert_int_equal(ct_state(pair->active->qp), IBV_QPS_INIT);
    assert_int_equal(ct_take(pair->active_channel, RDMA_CM_EVENT_REJECTED), 28);
    assert_int_equal(ct_state(pair->active->qp), IBV_QPS_ERR);
}

/* The QP cannot be moved when the reply is fetched: an event of the library, status -1. */
TEST(a_qp_that_cannot_be_moved_is_connect_error) {
    struct ct_pair pair;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    accept_with_qps(&pair);
    assert_int_equal(ibv_modify_qp(pair.active->qp, &attr, IBV_QP_STATE), 0);
    assert_int_equal(ct_take(pair.active_channel, RDMA_CM_EVENT_CONNECT_ERROR), -1);
    ct_destroy(pair.passive); /* tells the active side, which shows nothing any more */
    pair.passive = NULL;
    struct rdma_cm_event *event;
    assert_int_equal(fcntl(pair.active_channel->fd, F_SETFL, O_NONBLOCK), 0);
    uint64_t end = ct_now_ms() + (uint64_t)facts.silence_ms;
    do
        assert_fails(rdma_get_cm_event(pair.active_channel, &event), EAGAIN);
    while (ct_now_ms() < end);
    ct_pair_free(&pair);
}

/* The library fails before the CM hears of it: the peer is told when the id goes. */
CT_WITH(ct_requested, accepting_with_an_unusable_qp_answers_nothing) {
    struct ct_pair *pair = *state;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    ct_qp(pair->passive);
    assert_int_equal(ibv_modify_qp(pair->passive->qp, &attr, IBV_QP_STATE), 0);
    assert_fails(rdma_accept(pair->passive, NULL), EINVAL);
    ct_silent(pair->active_channel);
    ct_destroy(pair->passive);
    pair->passive = NULL;
    assert_int_equal(ct_take(pair->active_channel, RDMA_CM_EVENT_REJECTED), 28);
}

/* ---- attributes ------------------------------------------------------------------------------------ */

static int ask(struct rdma_cm_id *id, enum ibv_qp_state wanted, struct ibv_qp_attr *attr) {
    int mask = 0;
    memset(attr, 0, sizeof *attr);
    attr->qp_state = wanted;
    return rdma_init_qp_attr(id, attr, &mask) ? -1 : mask;
}

TEST(attributes_before_a_connection) {
    struct rdma_event_channel *channel = ct_channel();
    struct rdma_cm_id *id = ct_id(channel), *ud = ct_ud_id(channel);
    struct ibv_qp_attr attr;
    ct_resolve(id, 4711);
    ct_resolve(ud, 4711);
    assert_int_equal(ask(id, IBV_QPS_INIT, &attr), INIT_MASK);
    assert_int_equal(attr.port_num, 1);
    assert_int_equal(attr.pkey_index, 0);
    assert_int_equal(attr.qp_access_flags, 0);
    assert_int_equal(ask(ud, IBV_QPS_INIT, &attr),
                     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
    assert_int_equal(attr.qkey, RDMA_UDP_QKEY);
    ct_destroy(id);
    ct_destroy(ud);
    rdma_destroy_event_channel(channel);
}

CT_WITH(ct_listening, attributes_of_the_passive_side) {
    struct ct_pair *pair = *state;
    struct ibv_qp_attr attr;
    pair->active = ct_id(pair->active_channel);
    ct_resolve(pair->active, pair->port);
    struct rdma_conn_param param = ct_param(NULL, 0);
    assert_int_equal(rdma_connect(pair->active, &param), 0);
    pair->passive = ct_request(pair->passive_channel);
    assert_int_equal(ask(pair->passive, IBV_QPS_INIT, &attr), INIT_MASK);
    assert_int_equal(attr.qp_access_flags, facts.passive_access);
    assert_int_equal(ask(pair->passive, IBV_QPS_RTR, &attr), RTR_MASK);
    if (facts.tells_parameters)
        assert_int_equal(attr.dest_qp_num, param.qp_num);
    assert_int_equal(attr.min_rnr_timer, 0); /* 655 ms! */
    assert_int_equal(attr.max_dest_rd_atomic, 1);
    assert_int_equal(attr.ah_attr.is_global, 1);
    assert_int_equal(attr.ah_attr.port_num, 1);
    assert_memory_equal(attr.ah_attr.grh.dgid.raw, pair->passive->route.addr.addr.ibaddr.dgid.raw,
                        16);
    assert_int_equal(ask(pair->passive, IBV_QPS_RTS, &attr), RTS_MASK);
    assert_int_equal(attr.retry_cnt, 7);
    assert_int_equal(attr.rnr_retry, 7);
    assert_int_equal(attr.max_rd_atomic, 1);
    assert_true(attr.timeout > 0);
    /* The active side knows nobody yet. */
    assert_int_equal(ask(pair->active, IBV_QPS_INIT, &attr), INIT_MASK);
    assert_fails(ask(pair->active, IBV_QPS_RTR, &attr), EINVAL);
    assert_fails(ask(pair->active, IBV_QPS_RTS, &attr), EINVAL);
}

CT_WITH(ct_listening, attributes_follow_the_negotiation) {
    struct ct_pair *pair = *state;
    struct ibv_qp_attr attr, peer;
    uint8_t ack_timeout = 21;
    pair->active = ct_id(pair->active_channel);
    assert_int_equal(
        rdma_set_option(pair->active, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &ack_timeout, 1),
        0);
    ct_resolve(pair->active, pair->port);
    struct rdma_conn_param param = ct_param(NULL, 0);
    param.responder_resources = 4;
    param.initiator_depth = 6;
    param.retry_count = 5;
    param.rnr_retry_count = 3;
    assert_int_equal(rdma_connect(pair->active, &param), 0);
    pair->passive = ct_request(pair->passive_channel);
    assert_int_equal(ask(pair->passive, IBV_QPS_RTS, &attr), RTS_MASK);
    if (facts.tells_parameters) {
        assert_int_equal(attr.retry_cnt, 5);
        assert_int_equal(attr.rnr_retry, 3); /* what the active side wants of us */
    }
    param = ct_param(NULL, 0);
    param.responder_resources = 0;
    param.initiator_depth = 2;
    param.rnr_retry_count = 1;
    assert_int_equal(rdma_accept(pair->passive, &param), 0);
    ct_take(pair->active_channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
    assert_int_equal(ask(pair->active, IBV_QPS_RTR, &attr), RTR_MASK);
    assert_int_equal(attr.max_dest_rd_atomic, 2);
    assert_int_equal(ask(pair->passive, IBV_QPS_RTS, &peer), RTS_MASK);
    if (facts.tells_parameters) {
        assert_int_equal(attr.dest_qp_num, param.qp_num);
        assert_int_equal(attr.rq_psn, peer.sq_psn);
    }
    assert_int_equal(ask(pair->active, IBV_QPS_RTS, &attr), RTS_MASK);
    assert_int_equal(attr.max_rd_atomic, 0);
    assert_int_equal(attr.retry_cnt, 5);
    assert_int_equal(attr.rnr_retry, facts.tells_parameters ? 1 : 7);
    assert_int_equal(attr.timeout, 21);
    /* No responder resources: no reading, no atomics. */
    assert_int_equal(ask(pair->passive, IBV_QPS_INIT, &attr), INIT_MASK);
    assert_int_equal(attr.qp_access_flags, IBV_ACCESS_REMOTE_WRITE);
}

int main(void) {
    return ct_run();
}
