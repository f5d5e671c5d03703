/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * object_test.c - the verbs objects: what the device says of itself, limits, what refuses to die while
 * it is used, asynchronous events and their acknowledgement.
 */
#include "contract/ends.h"

static struct ct_end e;

static int open_one(void **state) {
    (void)state;
    ct_open(&e, CT_OPTIONS());
    return 0;
}

static int close_one(void **state) {
    (void)state;
    ct_close(&e);
    return 0;
}

/* ---- the device -------------------------------------------------------------------------------------------- */

#define DEVICE_TEST(name) TEST_WITH(open_one, close_one, name)

DEVICE_TEST(the_device_is_in_the_list) {
    int count = 0, found = 0;
    struct ibv_device **list = ibv_get_device_list(&count);
    assert_non_null(list);
    assert_null(list[count]);
    for (int i = 0; i < count; i++)
        found += !strcmp(ibv_get_device_name(list[i]), ibv_get_device_name(e.ctx->device));
    assert_int_equal(found, 1);
    ibv_free_device_list(list);
}

DEVICE_TEST(the_cm_shows_the_same_device) {
    int count = 0, found = 0;
    struct ibv_context **list = rdma_get_devices(&count);
    assert_non_null(list);
    assert_null(list[count]);
    for (int i = 0; i < count; i++)
        found += list[i]->device == e.ctx->device;
    assert_int_equal(found, 1);
    rdma_free_devices(list);
}

DEVICE_TEST(attributes_are_usable) {
    struct ibv_device_attr attr;
    memset(&attr, 0x5a, sizeof attr);
    assert_int_equal(ibv_query_device(e.ctx, &attr), 0);
    assert_int_equal(attr.phys_port_cnt, 1);
    assert_true(attr.max_qp > 0 && attr.max_cq > 0 && attr.max_mr > 0 && attr.max_pd > 0);
    assert_true(attr.max_qp_wr >= 64 && attr.max_cqe >= 256 && attr.max_sge >= 4);
    assert_true(attr.max_qp_rd_atom > 0 && attr.max_qp_init_rd_atom > 0);
    assert_true(attr.max_srq > 0 && attr.max_srq_wr > 0 && attr.max_srq_sge > 0);
    assert_int_not_equal(attr.node_guid, 0);
    assert_int_equal(attr.atomic_cap, facts.atomics ? IBV_ATOMIC_HCA : IBV_ATOMIC_NONE);
    assert_int_equal(attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B,
                     facts.windows ? IBV_DEVICE_MEM_WINDOW_TYPE_2B : 0);
}

DEVICE_TEST(the_port_is_ethernet_and_active) {
    struct ibv_port_attr attr;
    memset(&attr, 0x5a, sizeof attr);
    assert_int_equal(ibv_query_port(e.ctx, 1, &attr), 0);
    assert_int_equal(attr.state, IBV_PORT_ACTIVE);
    assert_int_equal(attr.link_layer, IBV_LINK_LAYER_ETHERNET);
    assert_int_equal(attr.lid, 0);
    assert_uint_in_range(attr.active_mtu, IBV_MTU_1024, IBV_MTU_4096);
    assert_true(attr.max_mtu >= attr.active_mtu);
    assert_true(attr.gid_tbl_len > 0 && (attr.pkey_tbl_len > 0) == facts.partitions);
    assert_true(attr.max_msg_sz >= 1u << 23);
    assert_int_not_equal(ibv_query_port(e.ctx, 2, &attr), 0);
}

DEVICE_TEST(gid_0_is_valid) {
    union ibv_gid gid, zero = {.raw = {0}};
    assert_int_equal(ibv_query_gid(e.ctx, 1, 0, &gid), 0);
    assert_memory_not_equal(&gid, &zero, sizeof gid);
    assert_int_equal(ibv_query_gid(e.ctx, 1, 100000, &gid), -1);
}

/* ---- limits -------------------------------------------------------------------------------------------------- */

DEVICE_TEST(a_queue_pair_above_the_limits_is_refused) {
    struct ibv_device_attr dev;
    assert_int_equal(ibv_query_device(e.ctx, &dev), 0);
    for (unsigned row = 0; row < 5; row++) {
        struct ibv_qp_init_attr init = {
            .send_cq = e.scq,
            .recv_cq = e.rcq,
            .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
            .qp_type = IBV_QPT_RC};
        if (row == 0)
            init.cap.max_send_wr = (uint32_t)dev.max_qp_wr + 1;
        if (row == 1)
            init.cap.max_recv_wr = (uint32_t)dev.max_qp_wr + 1;
        if (row == 2)
            init.cap.max_send_sge = (uint32_t)dev.max_sge + 1;
        if (row == 3)
            init.cap.max_recv_sge = (uint32_t)dev.max_sge + 1;
        if (row == 4)
            init.cap.max_inline_data = 1u << 20;
        errno = 0;
        assert_null(ibv_create_qp(e.pd, &init));
        assert_int_equal(errno, EINVAL);
    }
}

/* What comes back is what there is, and at least what was asked for. */
DEVICE_TEST(capabilities_are_at_least_those_asked_for) {
    struct ibv_qp_init_attr init = {.send_cq = e.scq,
                                    .recv_cq = e.rcq,
                                    .cap = {.max_send_wr = 3,
                                            .max_recv_wr = 5,
                                            .max_send_sge = 2,
                                            .max_recv_sge = 1,
                                            .max_inline_data = 33},
                                    .qp_type = IBV_QPT_RC};
    struct ibv_qp *qp = ibv_create_qp(e.pd, &init);
    assert_non_null(qp);
    assert_true(init.cap.max_send_wr >= 3 && init.cap.max_recv_wr >= 5);
    assert_true(init.cap.max_send_sge >= 2 && init.cap.max_recv_sge >= 1);
    assert_true(init.cap.max_inline_data >= 33);
    assert_int_equal(qp->state, IBV_QPS_RESET);
    assert_ptr_equal(qp->pd, e.pd);
    assert_ptr_equal(qp->send_cq, e.scq);
    assert_int_not_equal(qp->qp_num, e.qp->qp_num);
    assert_int_equal(qp->qp_num >> 24, 0);
    assert_int_equal(ibv_destroy_qp(qp), 0);
}

DEVICE_TEST(a_completion_queue_has_limits) {
    struct ibv_device_attr dev;
    assert_int_equal(ibv_query_device(e.ctx, &dev), 0);
    const int bad[] = {0, -1, dev.max_cqe + 1};
    for (unsigned i = 0; i < 3; i++) {
        errno = 0;
        assert_null(ibv_create_cq(e.ctx, bad[i], NULL, NULL, 0));
        assert_int_equal(errno, EINVAL);
    }
    assert_true(e.ctx->num_comp_vectors >= 1);
    errno = 0;
    assert_null(ibv_create_cq(e.ctx, 1, NULL, NULL, e.ctx->num_comp_vectors));
    assert_int_equal(errno, EINVAL);
}

DEVICE_TEST(a_shared_queue_above_the_limits_is_refused) {
    struct ibv_device_attr dev;
    assert_int_equal(ibv_query_device(e.ctx, &dev), 0);
    struct ibv_srq_init_attr none = {.attr = {.max_wr = 0, .max_sge = 1}};
    struct ibv_srq_init_attr much = {
        .attr = {.max_wr = (uint32_t)dev.max_srq_wr + 1, .max_sge = 1}};
    struct ibv_srq_init_attr wide = {
        .attr = {.max_wr = 1, .max_sge = (uint32_t)dev.max_srq_sge + 1}};
    struct ibv_srq_init_attr *rows[] = {&none, &much, &wide};
    for (unsigned i = 0; i < 3; i++) {
        errno = 0;
        struct ibv_srq *srq = ibv_create_srq(e.pd, rows[i]);
        if (i == 0 && facts.empty_srq) {
            assert_non_null(srq);
            assert_int_equal(ibv_destroy_srq(srq), 0);
            continue;
        }
        assert_null(srq);
        assert_int_equal(errno, EINVAL);
    }
}

/* ---- memory -------------------------------------------------------------------------------------------------- */

DEVICE_TEST(registration_checks_its_arguments) {
    errno = 0;
    assert_null(ibv_reg_mr(e.pd, e.buf, 64, IBV_ACCESS_REMOTE_WRITE));
    assert_int_equal(errno, EINVAL); /* remote without local write */
    errno = 0;
    assert_null(ibv_reg_mr(e.pd, e.buf, 64, IBV_ACCESS_REMOTE_ATOMIC));
    assert_int_equal(errno, EINVAL);
    struct ibv_mr *mr = ibv_reg_mr(e.pd, e.buf + 3, 61, IBV_ACCESS_REMOTE_READ);
    assert_non_null(mr); /* any address, any length */
    assert_ptr_equal(mr->addr, e.buf + 3);
    assert_int_equal(mr->length, 61);
    assert_ptr_equal(mr->pd, e.pd);
    assert_ptr_equal(mr->context, e.ctx);
    assert_int_equal(ibv_dereg_mr(mr), 0);
}

DEVICE_TEST(memory_may_be_registered_many_times) {
    enum { COUNT = 50 };
    struct ibv_mr *mr[COUNT];
    for (int i = 0; i < COUNT; i++) {
        mr[i] = ibv_reg_mr(e.pd, e.buf, 4096, IBV_ACCESS_LOCAL_WRITE);
        assert_non_null(mr[i]);
        for (int j = 0; j < i; j++)
            assert_int_not_equal(mr[i]->lkey, mr[j]->lkey);
    }
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(ibv_dereg_mr(mr[i]), 0);
}

/* ---- references ------------------------------------------------------------------------------------------------ */

DEVICE_TEST(used_objects_refuse_to_die) {
    assert_int_equal(ibv_dealloc_pd(e.pd), EBUSY);
    assert_int_equal(ibv_destroy_cq(e.rcq), EBUSY);
    assert_int_equal(ibv_destroy_cq(e.scq), EBUSY);
    assert_int_equal(ibv_destroy_qp(e.qp), 0);
    e.qp = NULL;
    assert_int_equal(ibv_dealloc_pd(e.pd), EBUSY); /* its MR */
}

/* ---- asynchronous events ------------------------------------------------------------------------------------------ */

DEVICE_TEST(nonblocking_and_no_event_is_eagain) {
    struct ibv_async_event event;
    assert_int_equal(fcntl(e.ctx->async_fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    assert_int_equal(fcntl(e.ctx->async_fd, F_SETFL, O_NONBLOCK), 0);
    assert_fails(ibv_get_async_event(e.ctx, &event), EAGAIN);
}

/* An SRQ gives an event on demand: a limit above what it holds. */
static struct ibv_srq *limited(void) {
    struct ibv_srq_init_attr init = {.attr = {.max_wr = 16, .max_sge = 1}};
    struct ibv_srq *srq = ibv_create_srq(e.pd, &init);
    assert_non_null(srq);
    return srq;
}

static int destroy_srq(void *srq) {
    return ibv_destroy_srq(srq);
}

/* A QP on the SRQ, with one message from a second end: the receive that is taken raises the event. */
static void raise_limit_event(struct ct_end *from, struct ibv_srq *srq, struct ibv_qp **qp) {
    struct ibv_sge sge = ct_sge(&e, 0, 64);
    struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
    struct ibv_qp *own = e.qp;
    ct_open(from, CT_OPTIONS());
    e.srq = srq;
    *qp = e.qp = ct_new_qp(&e);
    ct_connect_qp(&e, from->qp->qp_num);
    ct_connect_qp(from, e.qp->qp_num);
    e.qp = own;
    e.srq = NULL;
    assert_int_equal(ibv_post_srq_recv(srq, &wr, &bad), 0);
    struct ibv_srq_attr attr = {.srq_limit = 1};
    assert_int_equal(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), 0);
    assert_int_equal(ct_send(from, 1, 0, 8, 0), 0);
    assert_int_equal(ct_poll(e.rcq).status, IBV_WC_SUCCESS);
}

DEVICE_TEST(destroying_an_object_waits_for_its_events) {
    if (!facts.by_hand)
        ct_skip("queue pairs are connected by the connection manager alone");
    struct ct_end from;
    struct ct_thread thread;
    struct ibv_qp *qp;
    struct ibv_async_event event;
    struct ibv_srq *srq = limited();
    raise_limit_event(&from, srq, &qp);
    struct pollfd fd = {.fd = e.ctx->async_fd, .events = POLLIN};
    assert_int_equal(poll(&fd, 1, facts.wait_ms), 1);
    assert_int_equal(ibv_get_async_event(e.ctx, &event), 0);
    assert_int_equal(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
    assert_ptr_equal(event.element.srq, srq);
    assert_int_equal(ibv_destroy_qp(qp), 0);
    ct_thread_start(&thread, destroy_srq, srq);
    assert_true(ct_thread_stays(&thread));
    ibv_ack_async_event(&event);
    assert_int_equal(ct_thread_join(&thread), 0);
    ct_close(&from);
}

DEVICE_TEST(an_event_nobody_fetched_goes_with_its_object) {
    if (!facts.by_hand)
        ct_skip("queue pairs are connected by the connection manager alone");
    struct ct_end from;
    struct ibv_qp *qp;
    struct ibv_srq *srq = limited();
    raise_limit_event(&from, srq, &qp);
    struct pollfd fd = {.fd = e.ctx->async_fd, .events = POLLIN};
    assert_int_equal(poll(&fd, 1, facts.wait_ms), 1);
    assert_int_equal(ibv_destroy_qp(qp), 0);
    assert_int_equal(ibv_destroy_srq(srq), 0);
    ct_no_async(e.ctx);
    ct_close(&from);
}

int main(void) {
    return ct_run();
}
