/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softcm_qp_test.c - QPs and ids: the QP on the id that the CM moves, and the attributes for a QP
 * that the application moves itself.
 */
#include "support/softcm.h"

static void create_qp(struct rdma_cm_id *id) {
    struct ibv_qp_init_attr attr = {
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
    assert_int_equal(soft_cm_create_qp(id, NULL, &attr), 0);
}

/* Both ends with a QP on the id, up to the answered request. */
static void qp_pair_accept(struct ct_pair *pair) {
    ct_pair_resolve(pair);
    create_qp(pair->active);
    assert_int_equal(soft_connect(pair->active, NULL), 0);
    pair->passive = ct_request(pair->passive_channel);
    create_qp(pair->passive);
    assert_int_equal(soft_accept(pair->passive, NULL), 0);
}

static void qp_pair_up(struct ct_pair *pair) {
    qp_pair_accept(pair);
    assert_int_equal(ct_take(pair->active_channel, RDMA_CM_EVENT_ESTABLISHED), 0);
    assert_int_equal(ct_take(pair->passive_channel, RDMA_CM_EVENT_ESTABLISHED), 0);
}

static void qp_pair_free(struct ct_pair *pair) {
    soft_cm_destroy_qp(pair->active);
    soft_cm_destroy_qp(pair->passive);
    ct_pair_free(pair);
}

/* ---- the QP on the id ------------------------------------------------------------------------------ */

TEST(connected_qps_point_at_each_other) {
    struct ct_pair pair;
    qp_pair_up(&pair);
    struct ibv_qp_attr active, passive;
    struct ibv_qp_init_attr init;
    soft_query_qp(pair.active->qp, &active, 0, &init);
    soft_query_qp(pair.passive->qp, &passive, 0, &init);
    assert_int_equal(active.dest_qp_num, pair.passive->qp->qp_num);
    assert_int_equal(passive.dest_qp_num, pair.active->qp->qp_num);
    assert_int_equal(active.rq_psn, passive.sq_psn);
    assert_int_equal(passive.rq_psn, active.sq_psn);
    struct ibv_device_attr device;
    soft_query_device(pair.active->verbs, &device);
    assert_int_equal(active.max_rd_atomic, device.max_qp_init_rd_atom);
    assert_int_equal(active.max_dest_rd_atomic, device.max_qp_rd_atom);
    assert_int_equal(active.max_rd_atomic, passive.max_dest_rd_atomic);
    qp_pair_free(&pair);
}

/* The QP cannot be moved when the reply is fetched; what follows on the id is swallowed. */
TEST(connect_error_is_minus_one_and_the_last_word) {
    struct ct_pair pair;
    qp_pair_accept(&pair);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    assert_int_equal(soft_modify_qp(pair.active->qp, &attr, IBV_QP_STATE), 0);
    assert_int_equal(ct_take(pair.active_channel, RDMA_CM_EVENT_CONNECT_ERROR), -1);
    soft_cm_destroy_qp(pair.passive);
    soft_destroy_id(pair.passive); /* sends a REJ: its event is not shown */
    pair.passive = NULL;
    softcm_until(softcm_conn_state(pair.active) == SOFT_CM_CONN_TIMEWAIT ||
                 softcm_conn_state(pair.active) == SOFT_CM_CONN_OVER);
    assert_int_equal(fcntl(pair.active_channel->fd, F_SETFL, O_NONBLOCK), 0);
    struct rdma_cm_event *event;
    assert_fails(soft_get_cm_event(pair.active_channel, &event), EAGAIN);
    soft_cm_destroy_qp(pair.active);
    ct_pair_free(&pair);
}

CT_WITH(ct_requested, accept_with_an_unusable_qp_leaves_the_request_unanswered) {
    struct ct_pair *pair = *state;
    create_qp(pair->passive);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    assert_int_equal(soft_modify_qp(pair->passive->qp, &attr, IBV_QP_STATE), 0);
    struct rdma_conn_param param = ct_param(NULL, 0);
    assert_fails(soft_accept(pair->passive, &param), EINVAL);
    assert_false(ct_readable(pair->active_channel, 20));
    soft_cm_destroy_qp(pair->passive);
    assert_int_equal(soft_accept(pair->passive, &param), 0); /* it may still be answered */
    assert_int_equal(ct_take(pair->active_channel, RDMA_CM_EVENT_CONNECT_RESPONSE), 0);
}

/* ---- attributes for others ------------------------------------------------------------------------- */

CT_WITH(ct_requested, the_path_takes_the_largest_mtu) {
    struct ct_pair *pair = *state;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR};
    int mask = 0;
    assert_int_equal(soft_init_qp_attr(pair->passive, &attr, &mask), 0);
    assert_true(mask & IBV_QP_PATH_MTU);
    assert_int_equal(attr.path_mtu, IBV_MTU_4096);
}

int main(void) {
    softcm_start();
    return tests_run(NULL, NULL);
}
