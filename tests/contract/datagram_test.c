/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * datagram_test.c - UD ids: service resolution and multicast groups, the events only.
 */
#include "contract/contract.h"

#include "support/emulated.h"

enum { REQ_DATA = 180, REP_DATA = 136 };
enum { UNSUPPORTED = 1, REFUSED = 2 }; /* SIDR status, as the status of UNREACHABLE */

static void open_ends(struct ct_pair *pair) {
    memset(pair, 0, sizeof *pair);
    pair->passive_channel = ct_channel();
    pair->active_channel = ct_channel();
    pair->listener = ct_ud_id(pair->passive_channel);
    pair->port = ct_listen(pair->listener, 4);
    pair->active = ct_ud_id(pair->active_channel);
    ct_resolve(pair->active, pair->port);
}

static struct rdma_conn_param ud_param(const char *data, uint8_t len) {
    return (struct rdma_conn_param){.private_data = data, .private_data_len = len};
}

static int opened(void **state) {
    static struct ct_pair of_test;
    *state = &of_test;
    open_ends(*state);
    return 0;
}

CT_WITH(opened, service_resolution) {
    struct ct_pair *pair = *state;
    struct rdma_conn_param param = ud_param("who", 3);
    assert_int_equal(rdma_connect(pair->active, &param), 0);
    struct rdma_cm_event *event = ct_expect(pair->passive_channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    assert_int_equal(event->param.ud.private_data_len, REQ_DATA);
    assert_memory_equal(event->param.ud.private_data, "who", 4);
    assert_int_equal(event->param.ud.qp_num, 0);
    assert_ptr_equal(event->listen_id, pair->listener);
    assert_int_equal(event->id->qp_type, IBV_QPT_UD);
    pair->passive = event->id;
    assert_int_equal(rdma_ack_cm_event(event), 0);
    param = ud_param("me", 2);
    param.qp_num = 0x77;
    assert_int_equal(rdma_accept(pair->passive, &param), 0);
    event = ct_expect(pair->active_channel, RDMA_CM_EVENT_ESTABLISHED);
    assert_int_equal(event->status, 0);
    assert_int_equal(event->param.ud.qp_num, 0x77);
    assert_int_equal(event->param.ud.qkey, RDMA_UDP_QKEY);
    assert_int_equal(event->param.ud.ah_attr.is_global, 1);
    assert_int_equal(event->param.ud.ah_attr.port_num, 1);
    assert_memory_equal(event->param.ud.ah_attr.grh.dgid.raw,
                        pair->active->route.addr.addr.ibaddr.dgid.raw, 16);
    assert_int_equal(event->param.ud.private_data_len, REP_DATA);
    assert_memory_equal(event->param.ud.private_data, "me", 3);
    assert_int_equal(rdma_ack_cm_event(event), 0);
    ct_silent(pair->passive_channel); /* nothing after accept */
    assert_fails(rdma_accept(pair->passive, &param), EINVAL);
}

CT_WITH(opened, a_service_nobody_offers_is_unreachable_1) {
    struct ct_pair *pair = *state;
    ct_destroy(pair->listener);
    pair->listener = NULL;
    struct rdma_conn_param param = ud_param(NULL, 0);
    assert_int_equal(rdma_connect(pair->active, &param), 0);
    struct rdma_cm_event *event = ct_expect(pair->active_channel, RDMA_CM_EVENT_UNREACHABLE);
    assert_int_equal(event->status, UNSUPPORTED);
    assert_int_equal(event->param.ud.private_data_len, REP_DATA);
    assert_int_equal(rdma_ack_cm_event(event), 0);
}

CT_WITH(opened, a_reject_is_unreachable_2_with_data) {
    struct ct_pair *pair = *state;
    struct rdma_conn_param param = ud_param(NULL, 0);
    assert_int_equal(rdma_connect(pair->active, &param), 0);
    pair->passive = ct_request(pair->passive_channel);
    assert_int_equal(rdma_reject(pair->passive, "no", 2), 0);
    struct rdma_cm_event *event = ct_expect(pair->active_channel, RDMA_CM_EVENT_UNREACHABLE);
    assert_int_equal(event->status, REFUSED);
    assert_int_equal(event->param.ud.private_data_len, REP_DATA);
    assert_memory_equal(event->param.ud.private_data, "no", 3);
    assert_int_equal(rdma_ack_cm_event(event), 0);
}

CT_WITH(opened, destroying_an_unanswered_request_is_unreachable_2) {
    struct ct_pair *pair = *state;
    struct rdma_conn_param param = ud_param(NULL, 0);
    assert_int_equal(rdma_connect(pair->active, &param), 0);
    pair->passive = ct_request(pair->passive_channel);
    ct_destroy(pair->passive);
    pair->passive = NULL;
    assert_int_equal(ct_take(pair->active_channel, RDMA_CM_EVENT_UNREACHABLE), REFUSED);
}

TEST(private_data_limits) {
    struct ct_pair pair;
    char data[200];
    memset(data, 'x', sizeof data);
    open_ends(&pair);
    struct rdma_conn_param param = ud_param(data, REQ_DATA + 1);
    assert_fails(rdma_connect(pair.active, &param), EINVAL);
    param.private_data_len = REQ_DATA;
    assert_int_equal(rdma_connect(pair.active, &param), 0);
    pair.passive = ct_request(pair.passive_channel);
    assert_fails(rdma_reject(pair.passive, data, REP_DATA + 1), EINVAL);
    assert_int_equal(rdma_reject(pair.passive, data, REP_DATA), 0);
    struct rdma_cm_event *event = ct_expect(pair.active_channel, RDMA_CM_EVENT_UNREACHABLE);
    assert_memory_equal(event->param.ud.private_data, data, REP_DATA);
    assert_int_equal(rdma_ack_cm_event(event), 0);
    ct_pair_free(&pair);
}

/* An accept that fails refuses the peer. */
CT_WITH(opened, reply_data_too_long_refuses_the_peer) {
    struct ct_pair *pair = *state;
    static const char data[REP_DATA + 1];
    struct rdma_conn_param param = ud_param(NULL, 0);
    assert_int_equal(rdma_connect(pair->active, &param), 0);
    pair->passive = ct_request(pair->passive_channel);
    param = ud_param(data, REP_DATA + 1);
    assert_fails(rdma_accept(pair->passive, &param), EINVAL);
    assert_int_equal(ct_take(pair->active_channel, RDMA_CM_EVENT_UNREACHABLE), REFUSED);
}

CT_WITH(opened, disconnecting_a_datagram_id_is_einval) {
    struct ct_pair *pair = *state;
    assert_fails(rdma_disconnect(pair->active), EINVAL);
}

/* ---- multicast --------------------------------------------------------------------------------------- */

static struct sockaddr_in group_address(const char *text) {
    struct sockaddr_in addr = {.sin_family = AF_INET};
    assert_int_equal(inet_pton(AF_INET, text, &addr.sin_addr), 1);
    return addr;
}

static struct rdma_cm_id *bound_ud(struct rdma_event_channel *channel) {
    struct rdma_cm_id *id = ct_ud_id(channel);
    ct_bind(id, 0);
    return id;
}

TEST(a_join_reports_the_group) {
    struct rdma_event_channel *channel = ct_channel();
    struct rdma_cm_id *id = bound_ud(channel);
    struct sockaddr_in group = group_address("239.1.2.3");
    int context;
    assert_int_equal(rdma_join_multicast(id, (struct sockaddr *)&group, &context), 0);
    struct rdma_cm_event *event = ct_expect(channel, RDMA_CM_EVENT_MULTICAST_JOIN);
    assert_int_equal(event->status, 0);
    assert_ptr_equal(event->param.ud.private_data, &context); /* not data at all */
    assert_int_equal(event->param.ud.qp_num, 0xFFFFFF);
    assert_int_equal(event->param.ud.qkey, RDMA_UDP_QKEY);
    static const uint8_t mgid[16] = {[10] = 0xff, 0xff, 239, 1, 2, 3};
    assert_memory_equal(event->param.ud.ah_attr.grh.dgid.raw, mgid, 16);
    assert_int_equal(rdma_ack_cm_event(event), 0);
    assert_int_equal(rdma_leave_multicast(id, (struct sockaddr *)&group), 0);
    assert_fails(rdma_leave_multicast(id, (struct sockaddr *)&group), EADDRNOTAVAIL);
    ct_destroy(id);
    rdma_destroy_event_channel(channel);
}

TEST(a_join_needs_a_datagram_id) {
    struct rdma_event_channel *channel = ct_channel();
    struct rdma_cm_id *id = ct_id(channel);
    struct sockaddr_in group = group_address("239.1.2.3");
    ct_bind(id, 0);
    assert_fails(rdma_join_multicast(id, (struct sockaddr *)&group, NULL), EINVAL);
    ct_destroy(id);
    rdma_destroy_event_channel(channel);
}

static struct sockaddr_in left_group;

static int leave_call(void *id) {
    return rdma_leave_multicast(id, (struct sockaddr *)&left_group);
}

TEST(leave_waits_for_its_fetched_event) {
    struct rdma_event_channel *channel = ct_channel();
    struct rdma_cm_id *id = bound_ud(channel);
    struct ct_thread thread;
    left_group = group_address("239.1.2.4");
    assert_int_equal(rdma_join_multicast(id, (struct sockaddr *)&left_group, NULL), 0);
    struct rdma_cm_event *event = ct_expect(channel, RDMA_CM_EVENT_MULTICAST_JOIN);
    ct_thread_start(&thread, leave_call, id);
    assert_true(ct_thread_stays(&thread));
    assert_int_equal(rdma_ack_cm_event(event), 0);
    assert_int_equal(ct_thread_join(&thread), 0);
    ct_destroy(id);
    rdma_destroy_event_channel(channel);
}

TEST(leave_discards_its_unfetched_event) {
    skip_emulated("HAS NO PREADV2");
    struct rdma_event_channel *channel = ct_channel();
    struct rdma_cm_id *id = bound_ud(channel);
    struct sockaddr_in group = group_address("239.1.2.5");
    assert_int_equal(rdma_join_multicast(id, (struct sockaddr *)&group, NULL), 0);
    assert_true(ct_readable(channel, facts.wait_ms));
    assert_int_equal(rdma_leave_multicast(id, (struct sockaddr *)&group), 0);
    assert_false(ct_readable(channel, 0));
    ct_destroy(id); /* leaves what is left */
    rdma_destroy_event_channel(channel);
}

int main(void) {
    return ct_run();
}
