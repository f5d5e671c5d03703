/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softcm_datagram_test.c - UD: service resolution and multicast groups, the events only.
 */
#include "support/softcm.h"

struct ends {
    struct rdma_event_channel *passive_channel, *active_channel;
    struct rdma_cm_id *listener, *passive, *active;
    uint16_t port;
};

static void ends_open(struct ends *ends) {
    memset(ends, 0, sizeof *ends);
    ends->passive_channel = soft_create_event_channel();
    ends->active_channel = soft_create_event_channel();
    ends->listener = ct_ud_id(ends->passive_channel);
    ends->port = ct_listen(ends->listener, 4);
    ends->active = ct_ud_id(ends->active_channel);
    ct_resolve(ends->active, ends->port);
}

static void ends_close(struct ends *ends) {
    soft_destroy_id(ends->active);
    if (ends->passive)
        soft_destroy_id(ends->passive);
    if (ends->listener)
        soft_destroy_id(ends->listener);
    soft_destroy_event_channel(ends->active_channel);
    soft_destroy_event_channel(ends->passive_channel);
}

TEST(request_nobody_answers_is_unreachable) {
    struct ends ends;
    ends_open(&ends);
    assert_int_equal(soft_connect(ends.active, NULL), 0);
    ends.passive = ct_request(ends.passive_channel);
    assert_int_equal(ct_take(ends.active_channel, RDMA_CM_EVENT_UNREACHABLE), -ETIMEDOUT);
    assert_false(ct_readable(ends.passive_channel, 0)); /* the repetitions were recognised */
    ends_close(&ends);
}

/* ---- multicast --------------------------------------------------------------------------------------- */

TEST(join_reports_the_group) {
    struct ends ends;
    ends_open(&ends);
    struct sockaddr_in group = softcm_in("239.1.2.3", 0);
    int context;
    assert_fails(soft_join_multicast(ends.active, NULL, &context), EINVAL);
    assert_fails(soft_join_multicast(ends.active, (struct sockaddr *)&group, &context), EINVAL);
    soft_destroy_id(ends.active); /* its route is resolved: too late for a join */
    ends.active = ct_ud_id(ends.active_channel);
    struct sockaddr_in own = softcm_in("127.0.0.1", 0);
    assert_int_equal(soft_bind_addr(ends.active, (struct sockaddr *)&own), 0);
    assert_int_equal(soft_join_multicast(ends.active, (struct sockaddr *)&group, &context), 0);
    struct rdma_cm_event *event = ct_expect(ends.active_channel, RDMA_CM_EVENT_MULTICAST_JOIN);
    assert_int_equal(event->status, 0);
    assert_ptr_equal(event->param.ud.private_data, &context);
    assert_int_equal(event->param.ud.qp_num, 0xFFFFFF);
    assert_int_equal(event->param.ud.qkey, RDMA_UDP_QKEY);
    static const uint8_t mgid[16] = {[10] = 0xff, 0xff, 239, 1, 2, 3};
    assert_memory_equal(event->param.ud.ah_attr.grh.dgid.raw, mgid, 16);
    soft_ack_cm_event(event);
    assert_int_equal(soft_leave_multicast(ends.active, (struct sockaddr *)&group), 0);
    assert_fails(soft_leave_multicast(ends.active, (struct sockaddr *)&group), EADDRNOTAVAIL);
    struct rdma_cm_join_mc_attr_ex attr = {.comp_mask = RDMA_CM_JOIN_MC_ATTR_RESERVED};
    assert_fails(soft_join_multicast_ex(ends.active, &attr, NULL), ENOTSUP);
    attr.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS;
    assert_fails(soft_join_multicast_ex(ends.active, &attr, NULL), EINVAL);
    attr.comp_mask |= RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
    attr.join_flags = RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER;
    attr.addr = (struct sockaddr *)&group;
    assert_int_equal(soft_join_multicast_ex(ends.active, &attr, NULL), 0);
    ct_take(ends.active_channel, RDMA_CM_EVENT_MULTICAST_JOIN);
    ends_close(&ends); /* leaves by itself */
}

struct leave {
    struct rdma_cm_id *id;
    struct sockaddr_in group;
};

static int leave_call(void *arg) {
    struct leave *leave = arg;
    return soft_leave_multicast(leave->id, (struct sockaddr *)&leave->group);
}

static bool has_left(struct rdma_cm_id *id, const struct cds_list_head *last) {
    soft_lock();
    bool left = soft_cm_id_of(id)->groups.next == last;
    soft_unlock();
    return left;
}

TEST(leave_waits_for_the_events_of_its_group_only) {
    struct rdma_event_channel *channel = soft_create_event_channel();
    struct leave leave = {ct_ud_id(channel), softcm_in("239.1.2.3", 0)};
    struct sockaddr_in own = softcm_in("127.0.0.1", 0), other = softcm_in("239.9.9.9", 0);
    soft_bind_addr(leave.id, (struct sockaddr *)&own);
    soft_join_multicast(leave.id, (struct sockaddr *)&other, NULL);
    const struct cds_list_head *stays = soft_cm_id_of(leave.id)->groups.next;
    soft_join_multicast(leave.id, (struct sockaddr *)&leave.group, NULL);
    struct rdma_cm_event *of_other = ct_expect(channel, RDMA_CM_EVENT_MULTICAST_JOIN);
    struct rdma_cm_event *event = ct_expect(channel, RDMA_CM_EVENT_MULTICAST_JOIN);
    struct ct_thread leaver;
    ct_thread_start(&leaver, leave_call, &leave);
    softcm_until(has_left(leave.id, stays));
    assert_false(atomic_load(&leaver.done));
    soft_ack_cm_event(event);
    assert_int_equal(ct_thread_join(&leaver), 0); /* the other group's event is still out */
    soft_ack_cm_event(of_other);
    soft_destroy_id(leave.id);
    soft_destroy_event_channel(channel);
}

int main(void) {
    softcm_start();
    return tests_run(NULL, NULL);
}
