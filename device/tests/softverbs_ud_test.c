/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs_ud_test.c - datagrams within one process: what arrives, what is dropped and counted, what is
 * refused when it is posted; address handles.
 */
#include "support/softverbs_datagram.h"
#include "soft/object/srq.h"
#include "soft/verbs/srq.h"

enum { GRH = 40, MTU = 4096 };

static void check_grh(const struct ibv_grh *grh, const union ibv_gid *sgid,
                      const union ibv_gid *dgid, unsigned bytes) {
    assert_int_equal(be32toh(grh->version_tclass_flow) >> 28, 6);
    assert_int_equal(be16toh(grh->paylen), bytes + 24);
    assert_memory_equal(&grh->sgid, sgid, 16);
    assert_memory_equal(&grh->dgid, dgid, 16);
}

static struct sv_end a, b;
static struct ibv_ah *ah; /* a to b */

static int both_open(void **state) {
    (void)state;
    ud_open(&a, UD_OPTIONS(0));
    ud_open(&b, UD_OPTIONS(0));
    ah = ud_ah(&a);
    return 0;
}

static int both_closed(void **state) {
    (void)state;
    must(soft_destroy_ah(ah) == 0);
    sv_unpair(&a, &b);
    return 0;
}

TEST(a_datagram_arrives_behind_its_grh) {
    struct sv_end a, b;
    ud_open(&a, UD_OPTIONS(0));
    ud_open(&b, UD_OPTIONS(0));
    struct ibv_ah_attr attr = ud_ah_attr(&a);
    attr.sl = 3;
    attr.grh.traffic_class = 0x5c;
    attr.grh.flow_label = 0x12345;
    struct ibv_ah *ah = soft_create_ah(a.pd, &attr);
    must(ah && sv_recv(&b, 7, 0, 256) == 0);
    sv_fill(a.buf, 100, 1);
    struct ibv_sge sge = sv_sge(&a, 0, 100);
    struct ibv_send_wr wr = ud_wr(ah, b.qp->qp_num, &sge, IBV_SEND_SOLICITED);
    wr.wr_id = 5;
    wr.opcode = IBV_WR_SEND_WITH_IMM;
    wr.imm_data = 0xaabbccdd;
    must(ud_post(&a, &wr) == 0);
    struct ibv_wc wc = sv_poll(a.scq);
    must_data_equal(wc.wr_id, 5);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    wc = sv_poll(b.rcq);
    must_data_equal(wc.wr_id, 7);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    assert_int_equal(wc.opcode, IBV_WC_RECV);
    must_data_equal(wc.byte_len, GRH + 100);
    assert_int_equal(wc.wc_flags, IBV_WC_GRH | IBV_WC_WITH_IMM);
    must_data_equal(wc.imm_data, 0xaabbccdd);
    assert_int_equal(wc.src_qp, a.qp->qp_num);
    assert_int_equal(wc.qp_num, b.qp->qp_num);
    assert_int_equal(wc.sl, 3);
    assert_int_equal(wc.pkey_index, 0);
    const struct ibv_grh *grh = (const void *)b.buf;
    check_grh(grh, &attr.grh.dgid, &attr.grh.dgid, 100);
    assert_int_equal(be32toh(grh->version_tclass_flow) & 0xfffffff, 0x5c << 20 | 0x12345);
    assert_int_equal(grh->hop_limit, 64);
    sv_check(b.buf + GRH, 100, 1);
    must(soft_destroy_ah(ah) == 0);
    sv_unpair(&a, &b);
}

#define PAIRED(name) TEST_WITH(both_open, both_closed, name)

PAIRED(every_size_arrives) {
    for (unsigned bytes = 0; bytes <= MTU; bytes += bytes < 200 ? 1 : 97) {
        if (bytes > MTU - 97 && bytes != MTU)
            bytes = MTU;
        sv_fill(a.buf, bytes, bytes);
        must(sv_recv(&b, bytes, 0, GRH + MTU) == 0);
        ud_send(&a, ah, b.qp->qp_num, 0, bytes);
        struct ibv_wc wc = sv_poll(b.rcq);
        sv_right(wc, wc.wr_id == bytes && wc.byte_len == GRH + bytes);
        sv_check(b.buf + GRH, bytes, bytes);
    }
}

PAIRED(payload_is_gathered_and_scattered_and_inline_is_taken_at_once) {
    sv_fill(a.buf, 300, 9);
    struct ibv_sge from[3] = {sv_sge(&a, 0, 10), sv_sge(&a, 10, 200), sv_sge(&a, 210, 90)};
    struct ibv_sge to[3] = {sv_sge(&b, 0, 30), sv_sge(&b, 1000, 100), sv_sge(&b, 2000, 500)};
    for (int inlined = 0; inlined < 2; inlined++) {
        struct ibv_recv_wr recv = {.sg_list = to, .num_sge = 3}, *bad_recv;
        must(ibv_post_recv(b.qp, &recv, &bad_recv) == 0);
        struct ibv_send_wr wr = ud_wr(ah, b.qp->qp_num, from, inlined ? IBV_SEND_INLINE : 0);
        wr.num_sge = inlined ? 2 : 3;
        if (inlined)
            from[1].length = 90;
        must(ud_post(&a, &wr) == 0);
        unsigned bytes = inlined ? 100 : 300;
        if (inlined)
            memset(a.buf, 0, 300);
        must(sv_poll(a.scq).status == IBV_WC_SUCCESS);
        struct ibv_wc wc = sv_poll(b.rcq);
        sv_right(wc, wc.byte_len == GRH + bytes);
        uint8_t got[700];
        memcpy(got, b.buf, 30);
        memcpy(got + 30, b.buf + 1000, 100);
        memcpy(got + 130, b.buf + 2000, 500);
        sv_check(got + GRH, bytes, 9);
    }
}

PAIRED(lists_keep_their_order) {
    enum { COUNT = 2000, AT_ONCE = 16 };
    for (uint32_t i = 0; i < 64; i++)
        must(sv_recv(&b, i, 0, GRH + 8) == 0);
    uint32_t next = 0, seen = 0;
    unsigned turns = 0;
    uint64_t since = soft_now_ns();
    while (seen < COUNT) {
        struct ibv_send_wr wr[AT_ONCE];
        struct ibv_sge sge[AT_ONCE];
        unsigned n = 0;
        for (; n < AT_ONCE && next < COUNT && next - seen < 64; n++, next++) {
            sge[n] = sv_sge(&a, 0, 8);
            wr[n] = ud_wr(ah, b.qp->qp_num, &sge[n], 0);
            wr[n].opcode = IBV_WR_SEND_WITH_IMM;
            wr[n].imm_data = next;
            if (n)
                wr[n - 1].next = &wr[n];
        }
        if (n)
            must(ud_post(&a, wr) == 0);
        for (unsigned i = 0; i < n; i++)
            must(sv_poll(a.scq).status == IBV_WC_SUCCESS);
        struct ibv_wc wc;
        while (ibv_poll_cq(b.rcq, 1, &wc) == 1) {
            sv_right(wc, wc.imm_data == seen);
            seen++;
            must(sv_recv(&b, seen, 0, GRH + 8) == 0);
        }
        sv_pause(&turns, since, "datagrams got lost", __FILE__, __LINE__);
    }
}

/* ---- what is dropped ------------------------------------------------------------------------------ */

/* A NIC sends what is posted at once; programs count on that when they end. */
PAIRED(what_was_posted_before_its_qp_was_destroyed_arrives) {
    enum { COUNT = 10 };
    for (uint32_t i = 0; i < COUNT; i++)
        must(sv_recv(&b, i, 0, GRH + 8) == 0);
    struct ibv_sge sge = sv_sge(&a, 0, 8);
    struct ibv_send_wr wr = ud_wr(ah, b.qp->qp_num, &sge, 0);
    wr.send_flags = 0;
    for (uint32_t i = 0; i < COUNT; i++)
        must(ud_post(&a, &wr) == 0);
    must(soft_destroy_qp(a.qp) == 0); /* nobody has polled */
    a.qp = NULL;
    for (uint32_t i = 0; i < COUNT; i++)
        must(sv_poll(b.rcq).status == IBV_WC_SUCCESS);
}

PAIRED(without_a_receive_a_datagram_is_dropped) {
    a.buf[0] = 1;
    a.buf[1] = 2;
    ud_send(&a, ah, b.qp->qp_num, 0, 1);
    sv_until(ud_dropped(&b, SOFT_DROP_NO_RECEIVE, 1));
    ud_send(&a, ah, b.qp->qp_num, 0, 1); /* nobody polls: and yet not for the receive to come */
    must(sv_recv(&b, 1, 0, 64) == 0);
    ud_send(&a, ah, b.qp->qp_num, 1, 1);
    struct ibv_wc wc = sv_poll(b.rcq);
    sv_right(wc, wc.byte_len == GRH + 1);
    must_data_equal(b.buf[GRH], 2);
    assert_int_equal(ud_drops(&b, SOFT_DROP_NO_RECEIVE), 2);
}

PAIRED(a_wrong_qkey_is_dropped_and_the_top_bit_means_the_own) {
    must(sv_recv(&b, 1, 0, 64) == 0);
    struct ibv_sge sge = sv_sge(&a, 0, 4);
    struct ibv_send_wr wr = ud_wr(ah, b.qp->qp_num, &sge, 0);
    wr.wr.ud.remote_qkey = UD_QKEY + 1;
    must(ud_post(&a, &wr) == 0 && sv_poll(a.scq).status == IBV_WC_SUCCESS);
    sv_until(ud_dropped(&b, SOFT_DROP_QKEY, 1));
    wr.wr.ud.remote_qkey = 0x80000000u;
    must(ud_post(&a, &wr) == 0 && sv_poll(a.scq).status == IBV_WC_SUCCESS);
    must(sv_poll(b.rcq).status == IBV_WC_SUCCESS);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS, .qkey = 5};
    must(soft_modify_qp(b.qp, &attr, IBV_QP_STATE | IBV_QP_QKEY) == 0); /* from now on another */
    must(sv_recv(&b, 1, 0, 64) == 0);
    must(ud_post(&a, &wr) == 0 && sv_poll(a.scq).status == IBV_WC_SUCCESS);
    sv_until(ud_dropped(&b, SOFT_DROP_QKEY, 2));
    struct ibv_qp_init_attr init;
    must(soft_query_qp(b.qp, &attr, IBV_QP_QKEY, &init) == 0);
    assert_int_equal(attr.qkey, 5);
    assert_int_equal(init.qp_type, IBV_QPT_UD);
}

PAIRED(too_long_for_the_receive_or_the_mtu_goes_nowhere) {
    must(sv_recv(&b, 1, 0, GRH + 8) == 0);
    memset(b.buf, 0x77, 128);
    ud_send(&a, ah, b.qp->qp_num, 0, 9);
    sv_until(ud_dropped(&b, SOFT_DROP_TOO_LONG, 1));
    for (int i = 0; i < 128; i++)
        must_data_equal(b.buf[i], 0x77);
    ud_send(&a, ah, b.qp->qp_num, 0, MTU + 1); /* as the specification has it: no error either */
    assert_int_equal(ud_drops(&a, SOFT_DROP_TOO_LONG), 1);
    ud_send(&a, ah, b.qp->qp_num, 0, 8); /* the receive is still there */
    must_data(sv_poll(b.rcq).byte_len == GRH + 8);
}

TEST(where_nobody_listens_a_send_succeeds) {
    struct sv_end a, b;
    ud_open(&a, UD_OPTIONS(0));
    sv_open(&b, SV_OPTIONS(0)); /* not a datagram QP */
    struct ibv_ah *ah = ud_ah(&a);
    ud_send(&a, ah, 0xfffffe, 0, 8); /* the block 16383 is never given out */
    assert_int_equal(ud_drops(&a, SOFT_DROP_NOBODY), 1);
    ud_send(&a, ah, b.qp->qp_num, 0, 8);
    sv_until(ud_drops(&a, SOFT_DROP_NOBODY) >= 2);
    must(soft_destroy_ah(ah) == 0);
    sv_unpair(&a, &b);
}

/* 192.0.2.0 and 2001:db8::, which no host has. */
static const union ibv_gid elsewhere[] = {
    {.raw = {[10] = 0xff, [11] = 0xff, [12] = 192, [14] = 2}},
    {.raw = {0x20, 0x01, 0x0d, 0xb8}},
};

TEST(an_address_handle_to_another_host_is_refused) {
    struct sv_end e;
    ud_open(&e, UD_OPTIONS(0));
    struct ibv_ah_attr attr = ud_ah_attr(&e);
    for (unsigned i = 0; i < 2; i++) {
        attr.grh.dgid = elsewhere[i];
        errno = 0;
        assert_null(soft_create_ah(e.pd, &attr));
        assert_int_equal(errno, EHOSTUNREACH);
    }
    sv_close(&e);
}

TEST(an_unreliable_connection_to_another_host_is_refused) {
    struct sv_end e;
    sv_open(&e, SV_OPTIONS(.type = IBV_QPT_UC));
    must(sv_to_init(&e) == 0);
    struct ibv_qp_attr attr = sv_attr(&e, IBV_QPS_RTR, e.qp->qp_num);
    const int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    attr.ah_attr.is_global = 1;
    for (unsigned i = 0; i < 2; i++) {
        attr.ah_attr.grh.dgid = elsewhere[i];
        assert_int_equal(soft_modify_qp(e.qp, &attr, mask), EHOSTUNREACH);
        assert_int_equal(sv_state(&e), IBV_QPS_INIT);
    }
    must(soft_query_gid(e.ctx, 1, 0, &attr.ah_attr.grh.dgid) == 0);
    assert_int_equal(soft_modify_qp(e.qp, &attr, mask), 0);
    sv_close(&e);
}

TEST(before_rtr_and_after_an_error_nothing_is_received) {
    struct sv_end a, b;
    ud_open(&a, UD_OPTIONS(0));
    sv_open(&b, UD_OPTIONS(0));
    struct ibv_ah *ah = ud_ah(&a);
    ud_to(&b, IBV_QPS_INIT, UD_INIT_MASK, UD_QKEY);
    must(sv_recv(&b, 1, 0, 64) == 0);
    ud_send(&a, ah, b.qp->qp_num, 0, 8);
    sv_until(ud_dropped(&b, SOFT_DROP_STATE, 1));
    ud_to(&b, IBV_QPS_RTR, 0, 0);
    ud_send(&a, ah, b.qp->qp_num, 0, 8);
    must(sv_poll(b.rcq).status == IBV_WC_SUCCESS); /* RTR is enough to receive */
    must(sv_recv(&b, 2, 0, 64) == 0);
    must(sv_to(&b, IBV_QPS_ERR) == 0);
    must(sv_poll(b.rcq).status == IBV_WC_WR_FLUSH_ERR);
    ud_send(&a, ah, b.qp->qp_num, 0, 8);
    sv_until(ud_dropped(&b, SOFT_DROP_STATE, 2));
    must(sv_to(&b, IBV_QPS_RESET) == 0);
    ud_start(&b, UD_QKEY); /* and from the beginning */
    must(sv_recv(&b, 3, 0, 64) == 0);
    ud_send(&a, ah, b.qp->qp_num, 0, 8);
    must_data(sv_poll(b.rcq).wr_id == 3);
    must(soft_destroy_ah(ah) == 0);
    sv_unpair(&a, &b);
}

PAIRED(a_receiver_that_was_destroyed_costs_nothing_but_the_datagrams) {
    must(sv_recv(&b, 1, 0, 64) == 0);
    ud_send(&a, ah, b.qp->qp_num, 0, 8);
    must(sv_poll(b.rcq).status == IBV_WC_SUCCESS);
    uint32_t qpn = b.qp->qp_num;
    must(soft_destroy_qp(b.qp) == 0);
    b.qp = NULL;
    for (int i = 0; i < 1000; i++)
        ud_send(&a, ah, qpn, 0, 8);
    sv_until(ud_drops(&a, SOFT_DROP_NOBODY) > 0);
}

/* ---- errors ---------------------------------------------------------------------------------------- */

TEST(what_a_datagram_qp_cannot_do_is_refused_when_posted) {
    struct sv_end a;
    ud_open(&a, UD_OPTIONS(0));
    struct ibv_ah *ah = ud_ah(&a);
    static const enum ibv_wr_opcode others[] = {
        IBV_WR_RDMA_WRITE,         IBV_WR_RDMA_WRITE_WITH_IMM,
        IBV_WR_RDMA_READ,          IBV_WR_SEND_WITH_INV,
        IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD,
        IBV_WR_LOCAL_INV,          IBV_WR_BIND_MW};
    for (unsigned i = 0; i < sizeof others / sizeof *others; i++) {
        struct ibv_sge sge = sv_sge(&a, 0, 8);
        struct ibv_send_wr wr = ud_wr(ah, a.qp->qp_num, &sge, 0);
        wr.opcode = others[i];
        assert_int_equal(ud_post(&a, &wr), EINVAL);
    }
    struct ibv_sge sge = sv_sge(&a, 0, 8);
    struct ibv_send_wr wr = ud_wr(NULL, a.qp->qp_num, &sge, 0);
    assert_int_equal(ud_post(&a, &wr), EINVAL);
    wr = ud_wr(ah, 0x1000000, &sge, 0);
    assert_int_equal(ud_post(&a, &wr), EINVAL);
    must(soft_destroy_ah(ah) == 0);
    sv_close(&a);
}

TEST(bad_local_memory_ends_its_own_side_only) {
    struct sv_end a, b;
    ud_open(&a, UD_OPTIONS(0));
    ud_open(&b, UD_OPTIONS(0));
    struct ibv_ah *ah = ud_ah(&a), *back = ud_ah(&b);
    struct ibv_sge sge = sv_sge(&b, 0, 128);
    sge.lkey ^= 0x10000;
    struct ibv_recv_wr recv = {.wr_id = 8, .sg_list = &sge, .num_sge = 1}, *bad;
    must(ibv_post_recv(b.qp, &recv, &bad) == 0 && sv_recv(&b, 9, 0, 128) == 0);
    ud_send(&a, ah, b.qp->qp_num, 0, 8);
    struct ibv_wc wc = sv_poll(b.rcq);
    must(wc.status == IBV_WC_LOC_PROT_ERR && wc.wr_id == 8);
    must(sv_poll(b.rcq).status == IBV_WC_WR_FLUSH_ERR);
    ud_send(&a, ah, b.qp->qp_num, 0, 8); /* it does not even notice */
    struct ibv_sge from = sv_sge(&a, 0, 8);
    from.lkey ^= 0x10000;
    struct ibv_send_wr second = ud_wr(ah, b.qp->qp_num, &from, 0);
    struct ibv_send_wr wr = second;
    second.wr_id = 2;
    wr.next = &second;
    wr.wr_id = 1;
    must(ud_post(&a, &wr) == 0);
    wc = sv_poll(a.scq);
    must(wc.status == IBV_WC_LOC_PROT_ERR && wc.wr_id == 1);
    wc = sv_poll(a.scq);
    must(wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id == 2);
    must(soft_destroy_ah(ah) == 0 && soft_destroy_ah(back) == 0);
    sv_unpair(&a, &b);
}

TEST(transitions_are_those_of_its_type) {
    struct sv_end e;
    sv_open(&e, UD_OPTIONS(0));
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    assert_int_equal(soft_modify_qp(e.qp, &attr, SV_INIT_MASK), EINVAL); /* no qkey, but rights */
    ud_to(&e, IBV_QPS_INIT, UD_INIT_MASK, 1);
    attr = sv_attr(&e, IBV_QPS_RTR, e.qp->qp_num);
    assert_int_equal(soft_modify_qp(e.qp, &attr, SV_RTR_MASK), EINVAL);
    ud_to(&e, IBV_QPS_RTR, 0, 0);
    attr.qp_state = IBV_QPS_RTS;
    assert_int_equal(soft_modify_qp(e.qp, &attr, IBV_QP_STATE), EINVAL); /* the PSN is missing */
    struct ibv_ah *ah = ud_ah(&e);
    struct ibv_sge sge = sv_sge(&e, 0, 8);
    struct ibv_send_wr wr = ud_wr(ah, e.qp->qp_num, &sge, 0);
    assert_int_equal(ud_post(&e, &wr), EINVAL); /* no send in RTR */
    ud_to(&e, IBV_QPS_RTS, IBV_QP_SQ_PSN, 0);
    ud_to(&e, IBV_QPS_SQD, 0, 0);
    must(sv_recv(&e, 1, 0, 64) == 0 && ud_post(&e, &wr) == 0);
    sv_stays_empty(e.scq, e.rcq); /* a drained queue waits */
    ud_to(&e, IBV_QPS_RTS, IBV_QP_QKEY, UD_QKEY);
    must(sv_poll(e.scq).status == IBV_WC_SUCCESS && sv_poll(e.rcq).status == IBV_WC_SUCCESS);
    must(soft_destroy_ah(ah) == 0);
    sv_close(&e);
}

/* ---- address handles -------------------------------------------------------------------------------- */

TEST(an_address_handle_out_of_a_completion_leads_back) {
    struct sv_end a, b;
    ud_open(&a, UD_OPTIONS(0));
    ud_open(&b, UD_OPTIONS(0));
    struct ibv_ah *ah = ud_ah(&a);
    must(sv_recv(&b, 1, 0, 64) == 0 && sv_recv(&a, 2, 0, 64) == 0);
    ud_send(&a, ah, b.qp->qp_num, 0, 8);
    struct ibv_wc wc = sv_poll(b.rcq);
    struct ibv_ah_attr attr;
    assert_int_equal(soft_init_ah_from_wc(b.ctx, 1, &wc, (struct ibv_grh *)(void *)b.buf, &attr),
                     0);
    assert_int_equal(attr.is_global, 1);
    assert_int_equal(attr.port_num, 1);
    assert_int_equal(attr.grh.sgid_index, 0);
    struct ibv_ah *back = soft_create_ah_from_wc(b.pd, &wc, (struct ibv_grh *)(void *)b.buf, 1);
    must(back);
    ud_send(&b, back, wc.src_qp, 0, 8);
    must(sv_poll(a.rcq).src_qp == b.qp->qp_num);
    wc.wc_flags = 0;
    assert_int_equal(soft_init_ah_from_wc(b.ctx, 1, &wc, (struct ibv_grh *)(void *)b.buf, &attr),
                     -1);
    must(soft_destroy_ah(back) == 0 && soft_destroy_ah(ah) == 0);
    sv_unpair(&a, &b);
}

TEST(an_address_handle_is_checked_and_holds_its_pd) {
    struct ibv_context *ctx = sv_context();
    struct ibv_pd *pd = soft_alloc_pd(ctx);
    struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1, .grh = {.sgid_index = 0}}, bad;
    must(pd && soft_query_gid(ctx, 1, 0, &attr.grh.dgid) == 0);
    bad = attr;
    bad.port_num = 2;
    assert_null(soft_create_ah(pd, &bad));
    assert_int_equal(errno, EINVAL);
    bad = attr;
    bad.is_global = 0;
    assert_null(soft_create_ah(pd, &bad));
    bad = attr;
    bad.grh.sgid_index = 200;
    assert_null(soft_create_ah(pd, &bad));
    struct ibv_ah *ah = soft_create_ah(pd, &attr);
    must(ah && ah->pd == pd && ah->context == ctx);
    assert_int_equal(soft_dealloc_pd(pd), EBUSY);
    must(soft_destroy_ah(ah) == 0 && soft_dealloc_pd(pd) == 0 && soft_close_device(ctx) == 0);
}

/* ---- sleeping, many --------------------------------------------------------------------------------- */

TEST(an_armed_queue_wakes_its_sleeper) {
    struct sv_end a, b;
    ud_open(&a, UD_OPTIONS(0));
    ud_open(&b, UD_OPTIONS(.channel = true));
    struct ibv_ah *ah = ud_ah(&a);
    for (uint64_t i = 0; i < 50; i++) {
        struct ibv_wc wc;
        must(sv_recv(&b, i, 0, 64) == 0);
        must(ibv_req_notify_cq(b.rcq, 0) == 0 && ibv_poll_cq(b.rcq, 1, &wc) == 0);
        ud_send(&a, ah, b.qp->qp_num, 0, 8);
        must(sv_cq_event(b.channel) == b.rcq);
        must_data(sv_poll(b.rcq).wr_id == i);
    }
    must(soft_destroy_ah(ah) == 0);
    sv_unpair(&a, &b);
}

TEST(many_senders_reach_one_receiver_and_one_sender_many) {
    enum { MANY = 300 };
    struct sv_end hub;
    ud_open(&hub, UD_OPTIONS(.recvs = 16));
    static struct sv_end ends[MANY];
    struct ibv_ah *ah = ud_ah(&hub);
    for (uint32_t i = 0; i < MANY; i++) {
        ends[i] = hub; /* all but the QP is shared */
        ends[i].qp = sv_qp(&ends[i]);
        ud_start(&ends[i], UD_QKEY);
        must(sv_recv(&ends[i], i, 4096, 64) == 0);
        must(sv_recv(&hub, MANY + i, 0, 64) == 0);
        ud_send(&ends[i], ah, hub.qp->qp_num, 0, 8); /* more of them than are remembered */
        struct ibv_wc wc = sv_poll(hub.rcq);
        must(wc.status == IBV_WC_SUCCESS && wc.src_qp == ends[i].qp->qp_num);
        ud_send(&hub, ah, ends[i].qp->qp_num, 0, 8);
        wc = sv_poll(hub.rcq);
        sv_right(wc, wc.wr_id == i && wc.qp_num == ends[i].qp->qp_num);
    }
    must(ud_ways(&hub) <= SOFT_UD_WAYS);
    must(ud_ins(&hub) <= SOFT_UD_INS_PEER);
    must(sv_recv(&hub, 1, 0, 64) == 0);
    ud_send(&ends[0], ah, hub.qp->qp_num, 0, 8); /* forgotten long since */
    must(sv_poll(hub.rcq).src_qp == ends[0].qp->qp_num);
    for (uint32_t i = 0; i < MANY; i++)
        must(soft_destroy_qp(ends[i].qp) == 0);
    must(soft_destroy_ah(ah) == 0);
    sv_close(&hub);
}

TEST(a_shared_receive_queue_serves_datagrams) {
    struct sv_end a, b;
    ud_open(&a, UD_OPTIONS(0));
    ud_open(&b, UD_OPTIONS(0));
    struct ibv_srq_init_attr attr = {.attr = {.max_wr = 4, .max_sge = 1}};
    struct ibv_srq *srq = soft_create_srq(b.pd, &attr);
    must(srq && soft_destroy_qp(b.qp) == 0);
    struct ibv_qp_init_attr init = {.send_cq = b.scq,
                                    .recv_cq = b.rcq,
                                    .srq = srq,
                                    .cap = {.max_send_wr = 1, .max_send_sge = 1},
                                    .qp_type = IBV_QPT_UD};
    b.qp = soft_create_qp(b.pd, &init);
    must(b.qp);
    ud_start(&b, UD_QKEY);
    struct ibv_ah *ah = ud_ah(&a);
    ud_send(&a, ah, b.qp->qp_num, 0, 8);
    sv_until(ud_dropped(&b, SOFT_DROP_NO_RECEIVE, 1));
    struct ibv_sge sge = sv_sge(&b, 0, 64);
    struct ibv_recv_wr recv = {.wr_id = 3, .sg_list = &sge, .num_sge = 1}, *bad;
    must(soft_post_srq_recv(srq, &recv, &bad) == 0);
    ud_send(&a, ah, b.qp->qp_num, 0, 8);
    must_data(sv_poll(b.rcq).wr_id == 3);
    must(soft_destroy_qp(b.qp) == 0 && soft_destroy_srq(srq) == 0 && soft_destroy_ah(ah) == 0);
    b.qp = NULL;
    sv_unpair(&a, &b);
}

/* Receives that were posted go with the QP, and so do their completions. */
PAIRED(a_destroyed_qp_leaves_no_completion_behind) {
    for (uint64_t i = 0; i < 4; i++)
        must(sv_recv(&b, i, 0, 64) == 0);
    ud_send(&a, ah, b.qp->qp_num, 0, 8);
    must_data(sv_poll(b.rcq).wr_id == 0);
    ud_send(&a, ah, b.qp->qp_num, 0, 8);
    must(soft_destroy_qp(b.qp) == 0);
    b.qp = NULL;
    sv_stays_empty(b.rcq, b.scq);
}
