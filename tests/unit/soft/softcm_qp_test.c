/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softcm_qp_test.c - QPs and ids: the QP on the id that the CM moves, and the attributes for a QP
 * that the application moves itself.
 */
#include "support/softcm.h"

#define INIT_MASK (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define RTR_MASK                                                                                   \
    (IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |                \
     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define RTS_MASK                                                                                   \
    (IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |         \
     IBV_QP_MAX_QP_RD_ATOMIC)

static void create_qp(struct rdma_cm_id *id) {
    struct ibv_qp_init_attr attr = {
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
    assert_int_equal(soft_cm_create_qp(id, NULL, &attr), 0);
}

static enum ibv_qp_state state_of(struct ibv_qp *qp) {
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    assert_int_equal(soft_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
    return attr.qp_state;
}

/* Both ends with a QP on the id, up to the answered request. */
static void qp_pair_accept(struct softcm_pair *pair) {
    softcm_pair_listen(pair);
    pair->active = softcm_id(pair->active_channel);
    softcm_resolve(pair->active, pair->port);
    create_qp(pair->active);
    assert_int_equal(soft_connect(pair->active, NULL), 0);
    pair->passive = softcm_request(pair->passive_channel);
    create_qp(pair->passive);
    assert_int_equal(soft_accept(pair->passive, NULL), 0);
}

static void qp_pair_up(struct softcm_pair *pair) {
    qp_pair_accept(pair);
    assert_int_equal(softcm_take(pair->active_channel, RDMA_CM_EVENT_ESTABLISHED), 0);
    assert_int_equal(softcm_take(pair->passive_channel, RDMA_CM_EVENT_ESTABLISHED), 0);
}

static void qp_pair_free(struct softcm_pair *pair) {
    soft_cm_destroy_qp(pair->active);
    soft_cm_destroy_qp(pair->passive);
    softcm_pair_free(pair);
}

/* ---- the QP on the id ------------------------------------------------------------------------------ */

static void create_qp_leaves_init_and_makes_cqs(void **state) {
    (void)state;
    struct softcm_pair pair;
    softcm_pair_listen(&pair);
    pair.active = softcm_id(pair.active_channel);
    struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC};
    assert_fails(soft_cm_create_qp(pair.active, NULL, &attr), EINVAL); /* no device yet */
    softcm_resolve(pair.active, pair.port);
    create_qp(pair.active);
    assert_int_equal(state_of(pair.active->qp), IBV_QPS_INIT);
    assert_non_null(pair.active->send_cq);
    assert_non_null(pair.active->recv_cq_channel);
    assert_ptr_equal(pair.active->send_cq->cq_context, pair.active);
    assert_fails(soft_cm_create_qp(pair.active, NULL, &attr), EINVAL); /* has one */
    soft_cm_destroy_qp(pair.active);
    assert_null(pair.active->qp);
    assert_null(pair.active->send_cq);
    softcm_pair_free(&pair);
}

static void pd_of_another_context_is_einval(void **state) {
    (void)state;
    struct softcm_pair pair;
    softcm_pair_listen(&pair);
    pair.active = softcm_id(pair.active_channel);
    softcm_resolve(pair.active, pair.port);
    struct ibv_context *context = soft_open_device(pair.active->verbs->device);
    struct ibv_pd *pd = soft_alloc_pd(context);
    struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC,
                                    .cap = {.max_send_wr = 1, .max_recv_wr = 1}};
    assert_fails(soft_cm_create_qp(pair.active, pd, &attr), EINVAL);
    soft_dealloc_pd(pd);
    soft_close_device(context);
    softcm_pair_free(&pair);
}

static void connection_moves_both_qps(void **state) {
    (void)state;
    struct softcm_pair pair;
    qp_pair_accept(&pair);
    assert_int_equal(state_of(pair.passive->qp), IBV_QPS_RTS); /* before the reply was sent */
    assert_true(softcm_readable(pair.active_channel, SOFTCM_WAIT_MS));
    assert_int_equal(state_of(pair.active->qp), IBV_QPS_INIT); /* until the event is fetched */
    struct rdma_cm_event *event = softcm_expect(pair.active_channel, RDMA_CM_EVENT_ESTABLISHED);
    assert_int_equal(event->param.conn.private_data_len, 196);
    assert_int_equal(event->param.conn.qp_num, pair.passive->qp->qp_num);
    soft_ack_cm_event(event);
    assert_int_equal(state_of(pair.active->qp), IBV_QPS_RTS);
    assert_int_equal(softcm_take(pair.passive_channel, RDMA_CM_EVENT_ESTABLISHED), 0);
    assert_fails(soft_establish(pair.active), EINVAL); /* it has a QP */
    qp_pair_free(&pair);
}

static void connected_qps_point_at_each_other(void **state) {
    (void)state;
    struct softcm_pair pair;
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
static void connect_error_is_minus_one_and_the_last_word(void **state) {
    (void)state;
    struct softcm_pair pair;
    qp_pair_accept(&pair);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    assert_int_equal(soft_modify_qp(pair.active->qp, &attr, IBV_QP_STATE), 0);
    assert_int_equal(softcm_take(pair.active_channel, RDMA_CM_EVENT_CONNECT_ERROR), -1);
    soft_cm_destroy_qp(pair.passive);
    soft_destroy_id(pair.passive); /* sends a REJ: its event is not shown */
    pair.passive = NULL;
    softcm_until(softcm_conn_state(pair.active) == SOFT_CM_CONN_TIMEWAIT ||
                 softcm_conn_state(pair.active) == SOFT_CM_CONN_OVER);
    assert_int_equal(fcntl(pair.active_channel->fd, F_SETFL, O_NONBLOCK), 0);
    struct rdma_cm_event *event;
    assert_fails(soft_get_cm_event(pair.active_channel, &event), EAGAIN);
    soft_cm_destroy_qp(pair.active);
    softcm_pair_free(&pair);
}

static void accept_with_an_unusable_qp_leaves_the_request_unanswered(void **state) {
    (void)state;
    struct softcm_pair pair;
    softcm_pair_request(&pair);
    create_qp(pair.passive);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    assert_int_equal(soft_modify_qp(pair.passive->qp, &attr, IBV_QP_STATE), 0);
    struct rdma_conn_param param = softcm_param(NULL, 0);
    assert_fails(soft_accept(pair.passive, &param), EINVAL);
    assert_false(softcm_readable(pair.active_channel, 20));
    soft_cm_destroy_qp(pair.passive);
    assert_int_equal(soft_accept(pair.passive, &param), 0); /* it may still be answered */
    assert_int_equal(softcm_take(pair.active_channel, RDMA_CM_EVENT_CONNECT_RESPONSE), 0);
    softcm_pair_free(&pair);
}

/* ---- attributes for others ------------------------------------------------------------------------- */

static int init_attr(struct rdma_cm_id *id, enum ibv_qp_state state, struct ibv_qp_attr *attr) {
    int mask = 0;
    memset(attr, 0x5a, sizeof *attr);
    attr->qp_state = state;
    return soft_init_qp_attr(id, attr, &mask) ? -1 : mask;
}

static void attributes_before_a_connection(void **state) {
    (void)state;
    struct rdma_event_channel *channel = soft_create_event_channel();
    struct rdma_cm_id *id = softcm_id(channel), *ud = softcm_ud_id(channel);
    struct ibv_qp_attr attr;
    assert_fails(init_attr(id, IBV_QPS_INIT, &attr), EINVAL); /* no device */
    softcm_resolve(id, 4711);
    softcm_resolve(ud, 4711);
    assert_int_equal(init_attr(id, IBV_QPS_INIT, &attr), INIT_MASK);
    assert_int_equal(attr.qp_access_flags, 0);
    assert_int_equal(attr.port_num, 1);
    assert_int_equal(attr.pkey_index, 0);
    assert_int_equal(init_attr(ud, IBV_QPS_INIT, &attr),
                     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
    assert_int_equal(attr.qkey, RDMA_UDP_QKEY);
    soft_destroy_id(id);
    soft_destroy_id(ud);
    soft_destroy_event_channel(channel);
}

static void attributes_of_the_passive_side(void **state) {
    (void)state;
    struct softcm_pair pair;
    struct ibv_qp_attr attr;
    softcm_pair_request(&pair);
    assert_int_equal(init_attr(pair.passive, IBV_QPS_INIT, &attr), INIT_MASK);
    assert_int_equal(attr.qp_access_flags,
                     IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
    assert_int_equal(init_attr(pair.passive, IBV_QPS_RTR, &attr), RTR_MASK);
    assert_int_equal(attr.dest_qp_num, SOFTCM_QPN);
    assert_int_equal(attr.path_mtu, IBV_MTU_4096);
    assert_int_equal(attr.min_rnr_timer, 0);
    assert_int_equal(attr.max_dest_rd_atomic, 1);
    assert_int_equal(attr.ah_attr.is_global, 1);
    assert_int_equal(attr.ah_attr.port_num, 1);
    assert_memory_equal(attr.ah_attr.grh.dgid.raw, pair.passive->route.addr.addr.ibaddr.dgid.raw,
                        16);
    assert_int_equal(init_attr(pair.passive, IBV_QPS_RTS, &attr), RTS_MASK);
    assert_int_equal(attr.retry_cnt, 7);
    assert_int_equal(attr.rnr_retry, 7);
    assert_int_equal(attr.max_rd_atomic, 1);
    assert_true(attr.timeout > 0);
    /* The active side knows nobody yet. */
    assert_int_equal(init_attr(pair.active, IBV_QPS_INIT, &attr), INIT_MASK);
    assert_fails(init_attr(pair.active, IBV_QPS_RTR, &attr), EINVAL);
    assert_fails(init_attr(pair.active, IBV_QPS_RTS, &attr), EINVAL);
    softcm_pair_free(&pair);
}

static void attributes_follow_the_negotiation(void **state) {
    (void)state;
    struct softcm_pair pair;
    struct ibv_qp_attr attr, peer;
    softcm_pair_listen(&pair);
    pair.active = softcm_id(pair.active_channel);
    uint8_t ack_timeout = 21;
    soft_set_option(pair.active, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &ack_timeout, 1);
    softcm_resolve(pair.active, pair.port);
    struct rdma_conn_param param = softcm_param(NULL, 0);
    param.responder_resources = 4;
    param.initiator_depth = 6;
    param.retry_count = 5;
    param.rnr_retry_count = 3;
    assert_int_equal(soft_connect(pair.active, &param), 0);
    pair.passive = softcm_request(pair.passive_channel);
    param.responder_resources = 0;
    param.initiator_depth = 2;
    param.rnr_retry_count = 1;
    param.qp_num = 0x4321;
    init_attr(pair.passive, IBV_QPS_RTS, &attr);
    assert_int_equal(attr.retry_cnt, 5);
    assert_int_equal(attr.rnr_retry, 3); /* what the active side wants of us */
    assert_int_equal(soft_accept(pair.passive, &param), 0);
    softcm_take(pair.active_channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
    assert_int_equal(init_attr(pair.active, IBV_QPS_RTR, &attr), RTR_MASK);
    assert_int_equal(attr.dest_qp_num, 0x4321);
    assert_int_equal(attr.max_dest_rd_atomic, 2);
    init_attr(pair.passive, IBV_QPS_RTS, &peer);
    assert_int_equal(attr.rq_psn, peer.sq_psn);
    assert_int_equal(init_attr(pair.active, IBV_QPS_RTS, &attr), RTS_MASK);
    assert_int_equal(attr.max_rd_atomic, 0);
    assert_int_equal(attr.retry_cnt, 5);
    assert_int_equal(attr.rnr_retry, 1);
    assert_int_equal(attr.timeout, 21);
    /* No responder resources: no reading, no atomics. */
    init_attr(pair.passive, IBV_QPS_INIT, &attr);
    assert_int_equal(attr.qp_access_flags, IBV_ACCESS_REMOTE_WRITE);
    softcm_pair_free(&pair);
}

/* ---- endpoints with QPs ----------------------------------------------------------------------------- */

static struct rdma_cm_id *listener;

static int serve_endpoint(void *out) {
    if (soft_get_request(listener, out))
        return errno;
    return soft_accept(*(struct rdma_cm_id **)out, NULL) ? errno : 0;
}

static void endpoints_create_their_qps(void **state) {
    (void)state;
    struct ibv_qp_init_attr attr = {
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
    struct rdma_addrinfo *res,
        hints = {.ai_flags = RAI_PASSIVE | RAI_NUMERICHOST, .ai_port_space = RDMA_PS_TCP};
    assert_int_equal(soft_getaddrinfo("127.0.0.1", "0", &hints, &res), 0);
    assert_int_equal(soft_create_ep(&listener, res, NULL, &attr), 0);
    soft_freeaddrinfo(res);
    assert_null(listener->qp);
    assert_int_equal(soft_listen(listener, 1), 0);
    char port[8];
    snprintf(port, sizeof port, "%u", ntohs(soft_get_src_port(listener)));
    hints.ai_flags = RAI_NUMERICHOST;
    assert_int_equal(soft_getaddrinfo("127.0.0.1", port, &hints, &res), 0);
    struct rdma_cm_id *id, *request = NULL;
    assert_int_equal(soft_create_ep(&id, res, NULL, &attr), 0);
    soft_freeaddrinfo(res);
    assert_non_null(id->qp);
    struct softcm_blocked server;
    softcm_block(&server, serve_endpoint, &request);
    assert_int_equal(soft_connect(id, NULL), 0);
    assert_int_equal(softcm_join(&server), 0);
    assert_int_equal(state_of(id->qp), IBV_QPS_RTS);
    assert_int_equal(state_of(request->qp), IBV_QPS_RTS);
    soft_destroy_ep(id);
    soft_destroy_ep(request);
    soft_destroy_ep(listener);
}

int main(void) {
    softcm_start();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(create_qp_leaves_init_and_makes_cqs),
        cmocka_unit_test(pd_of_another_context_is_einval),
        cmocka_unit_test(connection_moves_both_qps),
        cmocka_unit_test(connected_qps_point_at_each_other),
        cmocka_unit_test(connect_error_is_minus_one_and_the_last_word),
        cmocka_unit_test(accept_with_an_unusable_qp_leaves_the_request_unanswered),
        cmocka_unit_test(attributes_before_a_connection),
        cmocka_unit_test(attributes_of_the_passive_side),
        cmocka_unit_test(attributes_follow_the_negotiation),
        cmocka_unit_test(endpoints_create_their_qps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
