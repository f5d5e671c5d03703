/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * ends.c - opening, connecting and using RC queue pairs by hand. Every wait is bounded.
 */
#include "support/pattern.h"
#include "support/verdict.h"
#include "contract/ends.h"

#include <sched.h>

/* ---- life ---------------------------------------------------------------------------------------------- */

struct ibv_context *ct_context(void) {
    struct rdma_event_channel *channel = ct_channel();
    struct rdma_cm_id *id = ct_id(channel);
    ct_bind(id, 0); /* which device owns the address is the CM's to know */
    struct ibv_context *ctx = ibv_open_device(id->verbs->device);
    assert_non_null(ctx);
    ct_destroy(id);
    rdma_destroy_event_channel(channel);
    return ctx;
}

/* The GID that is the address, written as IPv6. */
static void find_gid(struct ct_end *e) {
    union ibv_gid want = {.raw = {[10] = 0xff, 0xff}};
    struct ibv_port_attr port;
    struct sockaddr_in addr = ct_address(0);
    memcpy(want.raw + 12, &addr.sin_addr, 4);
    assert_int_equal(ibv_query_port(e->ctx, 1, &port), 0);
    e->gid = want;
    for (int i = 0; i < port.gid_tbl_len; i++) {
        union ibv_gid gid;
        if (ibv_query_gid(e->ctx, 1, i, &gid) == 0 && !memcmp(&gid, &want, sizeof gid)) {
            e->gid_index = (uint8_t)i;
            return;
        }
    }
    /* The software device shows a few addresses of many, and needs none. */
}

struct ibv_qp *ct_new_qp(struct ct_end *e) {
    struct ibv_qp_init_attr init = {
        .qp_context = e,
        .send_cq = e->scq,
        .recv_cq = e->rcq,
        .srq = e->srq,
        .cap = {.max_send_wr = e->o.sends,
                .max_recv_wr = e->srq ? 0 : e->o.recvs,
                .max_send_sge = e->o.send_sge,
                .max_recv_sge = e->srq ? 0 : e->o.recv_sge,
                .max_inline_data = e->o.inline_bytes},
        .qp_type = IBV_QPT_RC,
        .sq_sig_all = e->o.sig_all,
    };
    struct ibv_qp *qp = ibv_create_qp(e->pd, &init);
    assert_non_null(qp);
    e->cap = init.cap;
    return qp;
}

void ct_open(struct ct_end *e, struct ct_options o) {
    memset(e, 0, sizeof *e);
    o.sends = o.sends ? o.sends : 64;
    o.recvs = o.recvs ? o.recvs : 64;
    o.send_sge = o.send_sge ? o.send_sge : 4;
    o.recv_sge = o.recv_sge ? o.recv_sge : 4;
    o.cqe = o.cqe ? o.cqe : 256;
    o.access = o.no_access ? o.access : CT_REMOTE;
    o.rnr_timer = o.rnr_timer ? o.rnr_timer : 1;
    o.timeout = o.timeout ? o.timeout : 14;
    o.retry_cnt = o.retry_cnt ? o.retry_cnt : 7;
    e->o = o;
    e->ctx = ct_context();
    find_gid(e);
    e->pd = ibv_alloc_pd(e->ctx);
    assert_non_null(e->pd);
    if (o.channel) {
        e->channel = ibv_create_comp_channel(e->ctx);
        assert_non_null(e->channel);
    }
    e->rcq = ibv_create_cq(e->ctx, o.cqe, e, e->channel, 0);
    assert_non_null(e->rcq);
    e->scq = o.one_cq ? e->rcq : ibv_create_cq(e->ctx, o.cqe, e, e->channel, 0);
    assert_non_null(e->scq);
    if (o.shared) {
        struct ibv_srq_init_attr init = {.attr = {.max_wr = 16, .max_sge = 2}};
        e->srq = ibv_create_srq(e->pd, &init);
        assert_non_null(e->srq);
    }
    e->buf = aligned_alloc(4096, CT_BYTES);
    assert_non_null(e->buf);
    memset(e->buf, 0, CT_BYTES);
    e->mr = ibv_reg_mr(e->pd, e->buf, CT_BYTES,
                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND | CT_REMOTE);
    assert_non_null(e->mr);
    e->qp = ct_new_qp(e);
}

void ct_close(struct ct_end *e) {
    if (e->qp)
        assert_int_equal(ibv_destroy_qp(e->qp), 0);
    if (e->srq)
        assert_int_equal(ibv_destroy_srq(e->srq), 0);
    assert_int_equal(ibv_dereg_mr(e->mr), 0);
    free(e->buf);
    assert_int_equal(ibv_destroy_cq(e->rcq), 0);
    if (e->scq != e->rcq)
        assert_int_equal(ibv_destroy_cq(e->scq), 0);
    if (e->channel)
        assert_int_equal(ibv_destroy_comp_channel(e->channel), 0);
    assert_int_equal(ibv_dealloc_pd(e->pd), 0);
    assert_int_equal(ibv_close_device(e->ctx), 0);
}

void ct_open_pair(struct ct_end *a, struct ct_end *b, struct ct_options oa, struct ct_options ob) {
    ct_open(a, oa);
    ct_open(b, ob);
    ct_connect_qp(b, a->qp->qp_num);
    ct_connect_qp(a, b->qp->qp_num);
}

/* ---- states -------------------------------------------------------------------------------------------- */

struct ibv_qp_attr ct_attr(const struct ct_end *e, enum ibv_qp_state state, uint32_t dest) {
    uint8_t depth = e->o.no_depth ? 0 : 4;
    return (struct ibv_qp_attr){
        .qp_state = state,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = dest,
        .port_num = 1,
        .qp_access_flags = e->o.access,
        .ah_attr = {.is_global = 1,
                    .port_num = 1,
                    .grh = {.dgid = e->gid, .sgid_index = e->gid_index, .hop_limit = 64}},
        .max_rd_atomic = 4, /* what the peer serves is its own business */
        .max_dest_rd_atomic = depth,
        .min_rnr_timer = e->o.rnr_timer,
        .timeout = e->o.timeout,
        .retry_cnt = e->o.retry_cnt,
        .rnr_retry = e->o.finite_rnr ? e->o.rnr_retry : 7,
    };
}

int ct_to(struct ct_end *e, enum ibv_qp_state state) {
    struct ibv_qp_attr attr = {.qp_state = state};
    return ibv_modify_qp(e->qp, &attr, IBV_QP_STATE);
}

void ct_wait_for_err(struct ibv_qp *qp) {
    for (uint64_t end = ct_now_ms() + (uint64_t)facts.wait_ms;
         ct_state(qp) != IBV_QPS_ERR && ct_now_ms() < end;)
        ct_pause();
}

void ct_in_err(struct ibv_qp *qp) {
    if (facts.completes_before_err)
        ct_wait_for_err(qp);
    assert_int_equal(ct_state(qp), IBV_QPS_ERR);
}

void ct_connect_qp(struct ct_end *e, uint32_t dest) {
    struct ibv_qp_attr attr = ct_attr(e, IBV_QPS_INIT, 0);
    assert_int_equal(ibv_modify_qp(e->qp, &attr, CT_INIT_MASK), 0);
    attr = ct_attr(e, IBV_QPS_RTR, dest);
    assert_int_equal(ibv_modify_qp(e->qp, &attr, CT_RTR_MASK), 0);
    attr = ct_attr(e, IBV_QPS_RTS, 0);
    assert_int_equal(ibv_modify_qp(e->qp, &attr, CT_RTS_MASK), 0);
}

/* ---- work ---------------------------------------------------------------------------------------------- */

struct ibv_sge ct_sge(const struct ct_end *e, size_t offset, size_t bytes) {
    return (struct ibv_sge){(uintptr_t)e->buf + offset, (uint32_t)bytes, e->mr->lkey};
}

int ct_recv(struct ct_end *e, uint64_t wr_id, size_t offset, size_t bytes) {
    struct ibv_sge sge = ct_sge(e, offset, bytes);
    struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1}, *bad = NULL;
    int rc = e->srq ? ibv_post_srq_recv(e->srq, &wr, &bad) : ibv_post_recv(e->qp, &wr, &bad);
    assert_true(rc == 0 || bad == &wr || !facts.bad_wr_of_state);
    return rc;
}

int ct_send(struct ct_end *e, uint64_t wr_id, size_t offset, size_t bytes, unsigned flags) {
    struct ibv_sge sge = ct_sge(e, offset, bytes);
    struct ibv_send_wr wr = {.wr_id = wr_id,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_SEND,
                             .send_flags = flags},
                       *bad = NULL;
    int rc = ibv_post_send(e->qp, &wr, &bad);
    assert_true(rc == 0 || bad == &wr || !facts.bad_wr_of_state);
    return rc;
}

struct ibv_wc ct_poll_at(struct ibv_cq *cq, struct ct_where at) {
    struct ibv_wc wc;
    uint64_t end = ct_now_ms() + (uint64_t)facts.wait_ms;
    memset(&wc, 0x5a, sizeof wc); /* what the device leaves out shows */
    for (;;) {
        int n = ibv_poll_cq(cq, 1, &wc);
        assert_uint_in_range(n, 0, 1);
        if (n == 1)
            return wc;
        if (ct_now_ms() > end)
            ct_fail(at, "no completion");
        ct_pause();
    }
}

void ct_wc_at(struct ibv_cq *cq, uint64_t wr_id, enum ibv_wc_status status, struct ct_where at) {
    struct ibv_wc wc = ct_poll_at(cq, at);
    if (wc.wr_id != wr_id && wc.status == IBV_WC_SUCCESS && status == IBV_WC_SUCCESS)
        verdict_wrong_data("a completion is lost, there twice or out of order");
    if (wc.wr_id != wr_id || wc.status != status)
        ct_fail(at, "wr_id %llu with \"%s\" instead of %llu with \"%s\"",
                (unsigned long long)wc.wr_id, ibv_wc_status_str(wc.status),
                (unsigned long long)wr_id, ibv_wc_status_str(status));
}

void ct_empty_at(struct ibv_cq *cq, struct ct_where at) {
    struct ibv_wc wc;
    uint64_t end = ct_now_ms() + (uint64_t)facts.silence_ms / 2;
    do {
        if (ibv_poll_cq(cq, 1, &wc))
            ct_fail(at, "wr_id %llu with \"%s\", nothing expected", (unsigned long long)wc.wr_id,
                    ibv_wc_status_str(wc.status));
        ct_pause();
    } while (ct_now_ms() < end);
}

static bool async_waits(struct ibv_context *ctx, int ms) {
    struct pollfd fd = {.fd = ctx->async_fd, .events = POLLIN};
    return poll(&fd, 1, ms) == 1;
}

void ct_async_at(struct ibv_context *ctx, enum ibv_event_type type, const void *element,
                 struct ct_where at) {
    struct ibv_async_event event;
    if (!async_waits(ctx, facts.wait_ms))
        ct_fail(at, "no asynchronous event, \"%s\" expected", ibv_event_type_str(type));
    assert_int_equal(ibv_get_async_event(ctx, &event), 0);
    ibv_ack_async_event(&event); /* first: or closing its object waits for ever after a failure */
    if (event.event_type != type)
        ct_fail(at, "\"%s\" instead of \"%s\"", ibv_event_type_str(event.event_type),
                ibv_event_type_str(type));
    if (element)
        assert_ptr_equal(event.element.qp, element); /* a pointer in a union */
}

void ct_no_async_at(struct ibv_context *ctx, struct ct_where at) {
    struct ibv_async_event event;
    if (!async_waits(ctx, facts.silence_ms))
        return;
    assert_int_equal(ibv_get_async_event(ctx, &event), 0);
    ibv_ack_async_event(&event); /* or closing its object waits for ever */
    ct_fail(at, "\"%s\", nothing expected", ibv_event_type_str(event.event_type));
}

void ct_fill(uint8_t *p, size_t bytes, unsigned seed) {
    pattern_fill(p, 0, bytes, seed);
}

void ct_check(const uint8_t *p, size_t bytes, unsigned seed) {
    for (size_t i = 0; i < bytes; i++)
        if (p[i] != pattern_byte(i, seed)) {
            verdict_wrong_data("byte %zu of %zu differs", i, bytes);
            fail();
        }
}
