/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softcm_ud_test.c - UD ids with QPs: what an event says is enough to send at once; groups joined through
 * the connection manager carry data; what is lost with the port.
 */
#include "support/softcm.h"
#include "support/verdict.h"

#include "soft/control/device_state.h"

enum { GRH = 40, BYTES = 256 };

struct side {
    struct rdma_cm_id *id;
    struct ibv_mr *mr;
    uint8_t buf[BYTES];
};

/* A QP with CQs of its own, and one receive. */
static void arm(struct side *s) {
    struct ibv_qp_init_attr attr = {
        .cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_UD};
    assert_int_equal(soft_cm_create_qp(s->id, NULL, &attr), 0);
    s->mr = soft_reg_mr(s->id->pd, s->buf, BYTES, IBV_ACCESS_LOCAL_WRITE);
    assert_non_null(s->mr);
}

static void receive(struct side *s) {
    struct ibv_sge sge = {(uintptr_t)s->buf, BYTES, s->mr->lkey};
    struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
    assert_int_equal(ibv_post_recv(s->id->qp, &wr, &bad), 0);
}

static struct ibv_wc completion(struct ibv_cq *cq) {
    struct ibv_wc wc;
    uint64_t until = soft_now_ns() + 20000000000ull;
    while (ibv_poll_cq(cq, 1, &wc) == 0) {
        assert_true(soft_now_ns() < until);
        sched_yield();
    }
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    return wc;
}

/* By what an event says, and nothing else. */
static void send_to(struct side *s, struct rdma_ud_param *to, const char *text) {
    struct ibv_ah *ah = soft_create_ah(s->id->pd, &to->ah_attr);
    assert_non_null(ah);
    struct ibv_sge sge = {(uintptr_t)text, (uint32_t)strlen(text) + 1, 0};
    struct ibv_send_wr wr = {.sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_SEND,
                             .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE,
                             .wr.ud = {ah, to->qp_num, to->qkey}},
                       *bad;
    assert_int_equal(ibv_post_send(s->id->qp, &wr, &bad), 0);
    completion(s->id->send_cq);
    assert_int_equal(soft_destroy_ah(ah), 0);
}

static void disarm(struct side *s) {
    assert_int_equal(soft_dereg_mr(s->mr), 0);
    soft_cm_destroy_qp(s->id);
    assert_null(s->id->qp);
    assert_int_equal(soft_destroy_id(s->id), 0);
}

TEST(a_resolved_service_can_be_sent_to_at_once_and_answers) {
    struct rdma_event_channel *passive = soft_create_event_channel(),
                              *active = soft_create_event_channel();
    struct rdma_cm_id *listener = ct_ud_id(passive);
    struct side a = {.id = ct_ud_id(active)}, b = {0};
    ct_resolve(a.id, ct_listen(listener, 4));
    arm(&a);
    struct rdma_conn_param param = {.private_data = "who", .private_data_len = 3};
    assert_int_equal(soft_connect(a.id, &param), 0);
    struct rdma_cm_event *event = ct_expect(passive, RDMA_CM_EVENT_CONNECT_REQUEST);
    b.id = event->id;
    soft_ack_cm_event(event);
    arm(&b);
    receive(&b);
    receive(&a);
    param = (struct rdma_conn_param){.qp_num = b.id->qp->qp_num};
    assert_int_equal(soft_accept(b.id, &param), 0);
    event = ct_expect(active, RDMA_CM_EVENT_ESTABLISHED);
    assert_int_equal(event->param.ud.qp_num, b.id->qp->qp_num);
    send_to(&a, &event->param.ud, "hello");
    soft_ack_cm_event(event);
    struct ibv_wc wc = completion(b.id->recv_cq);
    must_data_equal(wc.byte_len, GRH + 6);
    must_data_bytes(b.buf + GRH, "hello", sizeof "hello");
    struct rdma_ud_param back = {.qp_num = wc.src_qp, .qkey = RDMA_UDP_QKEY};
    assert_int_equal(soft_init_ah_from_wc(b.id->verbs, 1, &wc, (void *)b.buf, &back.ah_attr), 0);
    send_to(&b, &back, "you too");
    completion(a.id->recv_cq);
    must_data_bytes(a.buf + GRH, "you too", sizeof "you too");
    disarm(&a);
    disarm(&b);
    soft_destroy_id(listener);
    soft_destroy_event_channel(active);
    soft_destroy_event_channel(passive);
}

/* Groups belong to the whole host: every run has its own. */
static struct sockaddr_in group_of(unsigned n) {
    struct sockaddr_in addr = softcm_in("239.0.0.0", 0);
    addr.sin_addr.s_addr |= htonl(((unsigned)getpid() * 4 + n) & 0xffffff);
    return addr;
}

static void open_member(struct side *s, struct rdma_event_channel *channel) {
    struct sockaddr_in any = softcm_in("127.0.0.1", 0);
    memset(s, 0, sizeof *s);
    s->id = ct_ud_id(channel);
    assert_int_equal(soft_bind_addr(s->id, (struct sockaddr *)&any), 0);
    arm(s);
}

static struct rdma_ud_param joined(struct side *s, void *context) {
    struct rdma_cm_event *event = ct_expect(s->id->channel, RDMA_CM_EVENT_MULTICAST_JOIN);
    assert_int_equal(event->status, 0);
    assert_ptr_equal(event->param.ud.private_data, context);
    struct rdma_ud_param param = event->param.ud;
    soft_ack_cm_event(event);
    return param;
}

TEST(a_joined_group_carries_data_until_it_is_left) {
    struct rdma_event_channel *channel = soft_create_event_channel();
    struct sockaddr_in group = group_of(0);
    struct side a, b, sender;
    open_member(&a, channel);
    open_member(&b, channel);
    open_member(&sender, channel);
    assert_int_equal(soft_join_multicast(a.id, (struct sockaddr *)&group, &a), 0);
    joined(&a, &a);
    assert_int_equal(soft_join_multicast(b.id, (struct sockaddr *)&group, &b), 0);
    joined(&b, &b);
    struct rdma_cm_join_mc_attr_ex ex = {.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS |
                                                      RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
                                         .join_flags = RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER,
                                         .addr = (struct sockaddr *)&group};
    assert_int_equal(soft_join_multicast_ex(sender.id, &ex, NULL), 0);
    struct rdma_ud_param to = joined(&sender, NULL);
    assert_int_equal(to.qp_num, 0xFFFFFF);
    receive(&a);
    receive(&b);
    receive(&sender);
    send_to(&sender, &to, "all");
    completion(a.id->recv_cq);
    completion(b.id->recv_cq);
    must_data_bytes(a.buf + GRH, "all", sizeof "all");
    struct ibv_wc wc;
    assert_int_equal(ibv_poll_cq(sender.id->recv_cq, 1, &wc), 0); /* it only sends */
    assert_int_equal(soft_leave_multicast(b.id, (struct sockaddr *)&group), 0);
    receive(&a);
    receive(&b);
    send_to(&sender, &to, "one");
    completion(a.id->recv_cq);
    assert_int_equal(ibv_poll_cq(b.id->recv_cq, 1, &wc), 0);
    disarm(&a); /* without leaving */
    disarm(&b);
    disarm(&sender);
    soft_destroy_event_channel(channel);
}

TEST(a_synchronous_id_joins_within_the_call) {
    struct sockaddr_in group = group_of(1);
    struct side a;
    open_member(&a, NULL);
    assert_int_equal(soft_join_multicast(a.id, (struct sockaddr *)&group, &a), 0);
    assert_non_null(a.id->event);
    struct rdma_ud_param to = a.id->event->param.ud;
    receive(&a);
    send_to(&a, &to, "me");
    completion(a.id->recv_cq);
    assert_int_equal(soft_leave_multicast(a.id, (struct sockaddr *)&group), 0);
    disarm(&a);
}

TEST(the_address_of_a_group_resolves_for_datagrams) {
    struct rdma_event_channel *channel = soft_create_event_channel();
    struct sockaddr_in group = group_of(7);
    struct sockaddr_in6 group6 = softcm_in6("ff02::77", 0);
    struct rdma_cm_id *id = ct_ud_id(channel), *id6 = ct_ud_id(channel);
    assert_int_equal(soft_resolve_addr(id, NULL, (struct sockaddr *)&group, 1000), 0);
    assert_int_equal(ct_take(channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
    assert_non_null(id->verbs);
    assert_int_equal(((struct sockaddr_in *)&id->route.addr.src_storage)->sin_addr.s_addr,
                     htonl(INADDR_LOOPBACK));
    assert_int_equal(soft_resolve_addr(id6, NULL, (struct sockaddr *)&group6, 1000), 0);
    assert_int_equal(ct_take(channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
    assert_int_equal(soft_join_multicast(id, (struct sockaddr *)&group, NULL), 0);
    assert_int_equal(ct_take(channel, RDMA_CM_EVENT_MULTICAST_JOIN), 0);
    /* Nobody can be connected to there. */
    struct rdma_cm_id *connected = ct_id(channel);
    assert_int_equal(soft_resolve_addr(connected, NULL, (struct sockaddr *)&group, 1000), 0);
    assert_int_equal(ct_take(channel, RDMA_CM_EVENT_ADDR_ERROR), -EREMOTE);
    assert_int_equal(soft_destroy_id(connected), 0);
    assert_int_equal(soft_destroy_id(id6), 0);
    assert_int_equal(soft_destroy_id(id), 0);
    soft_destroy_event_channel(channel);
}

TEST(a_group_is_lost_with_the_port) {
    struct rdma_event_channel *channel = soft_create_event_channel();
    struct sockaddr_in group = group_of(2);
    struct side a;
    open_member(&a, channel);
    assert_int_equal(soft_join_multicast(a.id, (struct sockaddr *)&group, &a), 0);
    struct rdma_ud_param to = joined(&a, &a);
    struct soft_device_action down = {.what = DEVICE_PORT_DOWN}, up = {.what = DEVICE_PORT_UP};
    soft_lock();
    assert_int_equal(soft_device_act(&down), 0);
    soft_unlock();
    struct rdma_cm_event *event = ct_expect(channel, RDMA_CM_EVENT_MULTICAST_ERROR);
    assert_int_equal(event->status, -ENETRESET);
    assert_ptr_equal(event->param.ud.private_data, &a);
    soft_ack_cm_event(event);
    receive(&a);
    send_to(&a, &to, "lost"); /* it succeeds, as any datagram */
    soft_lock();
    assert_int_equal(soft_device_act(&up), 0);
    soft_unlock();
    assert_int_equal(soft_leave_multicast(a.id, (struct sockaddr *)&group), 0);
    assert_int_equal(soft_join_multicast(a.id, (struct sockaddr *)&group, &a), 0);
    joined(&a, &a);
    send_to(&a, &to, "again");
    completion(a.id->recv_cq);
    must_data_bytes(a.buf + GRH, "again", sizeof "again");
    disarm(&a);
    soft_destroy_event_channel(channel);
}

int main(void) {
    softcm_start();
    return tests_run(NULL, NULL);
}
