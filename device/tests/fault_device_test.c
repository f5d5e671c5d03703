/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * fault_device_test.c - removal of the device and its port, as programs see them that use verbs only.
 */
#include "support/fault.h"
#include "soft/object/device.h"

TEST(removal_flushes_queue_pairs_and_fails_calls_with_eio) {
    struct sv_end a, b;
    sv_pair(&a, SV_OPTIONS(0), &b, SV_OPTIONS(0));
    must(sv_recv(&b, 7, 0, 64) == 0);
    must(sv_recv(&b, 8, 0, 64) == 0);
    assert_int_equal(fault_device(DEVICE_REMOVE, ORDER_FATAL_FIRST), 0);
    assert_int_equal(fault_async(a.ctx), IBV_EVENT_DEVICE_FATAL);
    assert_int_equal(fault_async(b.ctx), IBV_EVENT_DEVICE_FATAL);
    for (uint64_t i = 7; i <= 8; i++) {
        struct ibv_wc wc = sv_poll(b.rcq);
        assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
        assert_int_equal(wc.wr_id, i);
    }
    must(sv_send(&a, 9, 0, 32, IBV_SEND_SIGNALED) == 0); /* a QP in error takes and flushes */
    assert_int_equal(sv_poll(a.scq).status, IBV_WC_WR_FLUSH_ERR);

    struct ibv_device_attr device;
    struct ibv_port_attr port;
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init = {.send_cq = a.scq, .recv_cq = a.rcq, .qp_type = IBV_QPT_RC};
    union ibv_gid gid;
    assert_int_equal(soft_query_device(a.ctx, &device), EIO);
    assert_int_equal(soft_query_port(a.ctx, 1, &port), EIO);
    assert_int_equal(soft_query_qp(a.qp, &attr, IBV_QP_STATE, &init), EIO);
    assert_int_equal(sv_to(&a, IBV_QPS_RESET), EIO);
    init = (struct ibv_qp_init_attr){.send_cq = a.scq, .recv_cq = a.rcq, .qp_type = IBV_QPT_RC};
#define EIO_FROM(call)                                                                             \
    do {                                                                                           \
        errno = 0;                                                                                 \
        assert_true(call);                                                                         \
        assert_int_equal(errno, EIO);                                                              \
    } while (0)
    EIO_FROM(soft_query_gid(a.ctx, 1, 0, &gid) == -1);
    EIO_FROM(!soft_alloc_pd(a.ctx));
    EIO_FROM(!soft_reg_mr(a.pd, a.buf, 64, 0));
    EIO_FROM(!soft_create_cq(a.ctx, 4, NULL, NULL, 0));
    EIO_FROM(!soft_create_comp_channel(a.ctx));
    EIO_FROM(!soft_create_qp(a.pd, &init));

    int count = -1;
    struct ibv_device **list = soft_get_device_list(&count);
    assert_int_equal(count, 0);
    assert_null(list[0]);
    soft_free_device_list(list);
    errno = 0;
    assert_null(soft_open_device(a.ctx->device));
    assert_int_equal(errno, ENODEV);
    sv_unpair(&a, &b); /* every destroy works */
    assert_false(
        atomic_load(&soft_device_gone)); /* nothing is open: the next one finds it as new */
}

TEST(a_restored_device_serves_new_contexts_only) {
    struct sv_end old, a, b;
    sv_open(&old, SV_OPTIONS(0));
    assert_int_equal(fault_device(DEVICE_REMOVE, ORDER_FATAL_FIRST), 0);
    assert_int_equal(fault_async(old.ctx), IBV_EVENT_DEVICE_FATAL);
    assert_int_equal(fault_device(DEVICE_RESTORE, 0), 0);
    assert_int_equal(fault_device(DEVICE_RESTORE, 0), -EALREADY);
    sv_pair(&a, SV_OPTIONS(0), &b, SV_OPTIONS(0));
    must(sv_recv(&b, 1, 0, 64) == 0);
    must(sv_send(&a, 1, 0, 32, IBV_SEND_SIGNALED) == 0);
    assert_int_equal(sv_poll(b.rcq).status, IBV_WC_SUCCESS);
    errno = 0;
    assert_null(soft_alloc_pd(old.ctx));
    assert_int_equal(errno, EIO);
    /* A second removal tells only those that did not know. */
    assert_int_equal(fault_device(DEVICE_REMOVE, ORDER_FATAL_FIRST), 0);
    assert_int_equal(fault_async(a.ctx), IBV_EVENT_DEVICE_FATAL);
    assert_true(fault_async_silent(old.ctx));
    sv_unpair(&a, &b);
    sv_close(&old);
}

static void peer_with_its_own_device(int fd) {
    struct sv_end e;
    sv_open(&e, SV_OPTIONS(0));
    sv_meet(&e, fd);
    must(sv_hear(fd) == 1);
    must(sv_send(&e, 1, 0, 32, IBV_SEND_SIGNALED) == 0);
    must(sv_poll(e.scq).status == IBV_WC_RETRY_EXC_ERR);
    must(fault_async_silent(e.ctx));
    sv_close(&e);
}

TEST(the_peer_of_a_removed_device_exhausts_its_retries) {
    FAULT_NO_FORK();
    struct sv_child child = sv_fork(peer_with_its_own_device);
    struct sv_end e;
    sv_open(&e, SV_OPTIONS(0));
    sv_meet(&e, child.fd);
    assert_int_equal(fault_device(DEVICE_REMOVE, ORDER_FATAL_FIRST), 0);
    sv_tell(child.fd, 1);
    assert_int_equal(sv_join(&child), 0);
    sv_close(&e);
}

TEST(a_port_that_is_down_says_so_and_loses_what_is_sent) {
    struct sv_end a, b;
    struct ibv_port_attr port;
    sv_pair(&a, SV_OPTIONS(.timeout = 10, .retry_cnt = 1), &b, SV_OPTIONS(0));
    sv_wait_linked(&a);
    assert_int_equal(fault_device(DEVICE_PORT_DOWN, 0), 0);
    assert_int_equal(fault_async(a.ctx), IBV_EVENT_PORT_ERR);
    assert_int_equal(soft_query_port(a.ctx, 1, &port), 0);
    assert_int_equal(port.state, IBV_PORT_DOWN);
    must(sv_recv(&b, 1, 0, 64) == 0);
    must(sv_send(&a, 1, 0, 32, IBV_SEND_SIGNALED) == 0);
    assert_int_equal(sv_poll(a.scq).status, IBV_WC_RETRY_EXC_ERR);
    sv_stays_empty(b.rcq, NULL);
    assert_int_equal(fault_device(DEVICE_PORT_UP, 0), 0);
    assert_int_equal(fault_async(a.ctx), IBV_EVENT_PORT_ACTIVE);
    assert_int_equal(soft_query_port(a.ctx, 1, &port), 0);
    assert_int_equal(port.state, IBV_PORT_ACTIVE);
    sv_unpair(&a, &b);
}

TEST(of_port_events_nobody_fetches_the_last_of_each_kind_wait) {
    struct sv_end a;
    sv_open(&a, SV_OPTIONS(0));
    for (unsigned i = 0; i < 100; i++) {
        assert_int_equal(fault_device(DEVICE_PORT_DOWN, 0), 0);
        assert_int_equal(fault_device(DEVICE_PORT_UP, 0), 0);
    }
    assert_int_equal(fault_async(a.ctx), IBV_EVENT_PORT_ERR);
    assert_int_equal(fault_async(a.ctx), IBV_EVENT_PORT_ACTIVE);
    assert_true(fault_async_silent(a.ctx));
    sv_close(&a);
}

TEST(a_port_that_comes_back_in_time_only_costs_time) {
    struct sv_end a, b;
    sv_pair(&a, SV_OPTIONS(.timeout = 20, .retry_cnt = 7), &b, SV_OPTIONS(0));
    sv_wait_linked(&a);
    assert_int_equal(fault_device(DEVICE_PORT_DOWN, 0), 0);
    must(sv_recv(&b, 1, 0, 64) == 0);
    must(sv_send(&a, 1, 0, 32, IBV_SEND_SIGNALED) == 0);
    sv_stays_empty(a.scq, b.rcq);
    assert_int_equal(fault_device(DEVICE_PORT_UP, 0), 0);
    assert_int_equal(sv_poll(b.rcq).status, IBV_WC_SUCCESS);
    assert_int_equal(sv_poll(a.scq).status, IBV_WC_SUCCESS);
    sv_unpair(&a, &b);
}

/* The other process's port is the one that is down. */
TEST(the_peer_of_a_port_that_is_down_exhausts_its_retries) {
    FAULT_NO_FORK();
    struct sv_child child = sv_fork(peer_with_its_own_device);
    struct sv_end e;
    sv_open(&e, SV_OPTIONS(0));
    sv_meet(&e, child.fd);
    must(sv_recv(&e, 1, 0, 64) == 0);
    assert_int_equal(fault_device(DEVICE_PORT_DOWN, 0), 0);
    sv_tell(child.fd, 1);
    assert_int_equal(sv_join(&child), 0);
    assert_int_equal(fault_device(DEVICE_PORT_UP, 0), 0);
    sv_close(&e);
}

TEST(a_send_can_remove_the_device) {
    struct sv_end a, b;
    sv_pair(&a, SV_OPTIONS(0), &b, SV_OPTIONS(0));
    fault_plan("qp=1 send=2 device=remove");
    must(sv_recv(&b, 1, 0, 64) == 0);
    must(sv_send(&a, 1, 0, 32, IBV_SEND_SIGNALED) == 0);
    assert_int_equal(sv_poll(b.rcq).status, IBV_WC_SUCCESS);
    assert_true(fault_async_silent(a.ctx));
    must(sv_send(&a, 2, 0, 32, IBV_SEND_SIGNALED) == 0);
    assert_int_equal(fault_async(a.ctx), IBV_EVENT_DEVICE_FATAL);
    sv_unpair(&a, &b);
}

TEST(a_device_can_be_gone_from_the_start) {
    struct ibv_device **list = soft_get_device_list(NULL);
    setenv("SLUICE_SOFT_FAULTS", "device=remove", 1);
    errno = 0;
    assert_null(soft_open_device(list[0]));
    assert_int_equal(errno, ENODEV);
    unsetenv("SLUICE_SOFT_FAULTS");
    struct ibv_context *ctx = soft_open_device(list[0]);
    assert_non_null(ctx);
    assert_int_equal(soft_close_device(ctx), 0);
    soft_free_device_list(list);
}
