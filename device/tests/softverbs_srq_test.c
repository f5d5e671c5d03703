/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs_srq_test.c - shared receive queues: FIFO for many QPs, limit event, last WQE event,
 * what is refused. Each test names the promise.
 */
#include "soft/rc/process_copy.h"
#include "support/softverbs.h"

#define PEERS 3
#define WRS 32

struct loop_srq {      /* PEERS senders, one receiving side whose QPs share a queue */
    struct sv_end hub; /* its own qp is the first on the SRQ */
    struct sv_end from[PEERS];
    struct ibv_srq *srq;
    struct ibv_qp *qp[PEERS];
};

static void open_shared(struct loop_srq *s) {
    sv_open(&s->hub, SV_OPTIONS(.mapped = true, .one_cq = true));
    struct ibv_srq_init_attr init = {.attr = {.max_wr = WRS, .max_sge = 2}};
    s->srq = soft_create_srq(s->hub.pd, &init);
    must(s->srq);
    for (int i = 0; i < PEERS; i++) {
        struct ibv_qp_init_attr attr = {.send_cq = s->hub.scq,
                                        .recv_cq = s->hub.rcq,
                                        .srq = s->srq,
                                        .cap = {.max_send_wr = 8, .max_send_sge = 1},
                                        .qp_type = IBV_QPT_RC};
        s->qp[i] = soft_create_qp(s->hub.pd, &attr);
        must(s->qp[i] && s->qp[i]->srq == s->srq);
        sv_open(&s->from[i], SV_OPTIONS(.mapped = true, .one_cq = true));
        sv_connect_qp(&s->hub, s->qp[i], s->from[i].qp->qp_num);
        sv_connect(&s->from[i], s->qp[i]->qp_num);
        sv_wait_linked(&s->from[i]);
    }
}

static void close_shared(struct loop_srq *s) {
    for (int i = 0; i < PEERS; i++) {
        if (s->qp[i])
            must(soft_destroy_qp(s->qp[i]) == 0);
        sv_close(&s->from[i]);
    }
    must(soft_destroy_srq(s->srq) == 0);
    sv_close(&s->hub);
}

static int post(struct loop_srq *s, uint64_t wr_id, size_t offset, size_t bytes) {
    struct ibv_sge sge = sv_sge(&s->hub, offset, bytes);
    struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1}, *bad = NULL;
    int rc = ibv_post_srq_recv(s->srq, &wr, &bad);
    must(rc == 0 || bad == &wr);
    return rc;
}

static int closed(void **state) {
    close_shared(*state);
    return 0;
}

#define WITH(set_up, name) TEST_WITH(set_up, closed, name)

static int opened(void **state) {
    static struct loop_srq of_test;
    *state = &of_test;
    open_shared(*state);
    return 0;
}

WITH(opened, receives_are_taken_in_order_by_all_qps) {
    struct loop_srq *s = *state;
    for (uint32_t round = 0; round < 100; round++)
        for (int i = 0; i < PEERS; i++) {
            uint32_t n = round * PEERS + (uint32_t)i;
            size_t bytes = n * 37 % 2000;
            must(post(s, n, 0, 4096) == 0);
            sv_fill(s->from[i].buf, bytes, n);
            must(sv_send(&s->from[i], n, 0, bytes, IBV_SEND_SIGNALED) == 0);
            struct ibv_wc wc = sv_poll(s->hub.rcq);
            must(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV);
            must_data(wc.wr_id == n && wc.byte_len == bytes && wc.qp_num == s->qp[i]->qp_num);
            sv_check(s->hub.buf, bytes, n);
            must(sv_poll(s->from[i].rcq).status == IBV_WC_SUCCESS);
        }
}

/* One of a slot and one that takes the long way; what waits longest is used when nothing else is left. */
WITH(opened, the_newest_is_taken_first_where_that_was_asked_for) {
    struct loop_srq *s = *state;
    soft_srq_newest_first(s->srq);
    for (uint32_t round = 0; round < 100; round++) {
        size_t bytes = round & 1 ? 64 : 1500;
        for (uint32_t n = 0; n < 3; n++)
            must(post(s, n, (size_t)n * 2048, 2048) == 0);
        for (uint32_t n = 3; n-- > 0;) {
            struct sv_end *from = &s->from[(round + n) % PEERS];
            sv_fill(from->buf, bytes, round + n);
            must(sv_send(from, n, 0, bytes, IBV_SEND_SIGNALED) == 0);
            struct ibv_wc wc = sv_poll(s->hub.rcq);
            sv_right(wc, wc.wr_id == n && wc.byte_len == bytes);
            sv_check(s->hub.buf + (size_t)n * 2048, bytes, round + n);
            must(sv_poll(from->rcq).status == IBV_WC_SUCCESS);
        }
    }
}

/* All wait for a receive; each post lets exactly one message through. */
WITH(opened, a_post_wakes_a_waiting_qp) {
    struct loop_srq *s = *state;
    for (int i = 0; i < PEERS; i++) {
        sv_fill(s->from[i].buf, 64, (uint32_t)i);
        must(sv_send(&s->from[i], 1, 0, 64, IBV_SEND_SIGNALED) == 0);
    }
    sv_stays_empty(s->hub.rcq, NULL);
    unsigned seen = 0;
    for (unsigned n = 0; n < PEERS; n++) {
        must(post(s, n, 128 * n, 128) == 0);
        struct ibv_wc wc = sv_poll(s->hub.rcq);
        sv_right(wc, wc.wr_id == n);
        for (unsigned i = 0; i < PEERS; i++)
            if (wc.qp_num == s->qp[i]->qp_num)
                seen |= 1u << i;
        sv_stays_empty(s->hub.rcq, NULL);
    }
    must(seen == (1u << PEERS) - 1);
}

/* A message in many segments keeps the receive it began with, whatever the others do meanwhile. */
TEST(a_long_message_keeps_its_receive) {
    struct loop_srq s;
    open_shared(&s);
    sv_only_ring(&s.from[0]);
    must(soft_dereg_mr(s.from[0].mr) == 0); /* private memory: a stream of segments */
    uint8_t *plain = malloc(20000);
    s.from[0].mr = soft_reg_mr(s.from[0].pd, plain, 20000, IBV_ACCESS_LOCAL_WRITE);
    sv_fill(plain, 20000, 1);
    sv_fill(s.from[1].buf, 100, 2);
    must(post(&s, 10, 0, 20000) == 0);
    must(post(&s, 11, 32768, 200) == 0);
    struct ibv_sge sge = {(uintptr_t)plain, 20000, s.from[0].mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
    must(ibv_post_send(s.from[0].qp, &wr, &bad) == 0);
    struct ibv_wc wc;
    sv_until(ibv_poll_cq(s.hub.rcq, 1, &wc) == 0 && soft_qp_of(s.qp[0])->srq_taken);
    must(sv_send(&s.from[1], 1, 0, 100, 0) == 0);
    bool first = false, second = false;
    while (!first || !second) {
        must(ibv_poll_cq(s.from[0].rcq, 1, &wc) == 0); /* moves the stream on */
        if (ibv_poll_cq(s.hub.rcq, 1, &wc) != 1)
            continue;
        must(wc.status == IBV_WC_SUCCESS);
        first |= wc.wr_id == 10 && wc.byte_len == 20000 && wc.qp_num == s.qp[0]->qp_num;
        second |= wc.wr_id == 11 && wc.byte_len == 100 && wc.qp_num == s.qp[1]->qp_num;
    }
    sv_check(s.hub.buf, 20000, 1);
    sv_check(s.hub.buf + 32768, 100, 2);
    must(soft_destroy_qp(s.from[0].qp) == 0);
    s.from[0].qp = NULL;
    close_shared(&s);
    free(plain);
}

WITH(opened, error_state_leaves_the_receives_to_the_others) {
    struct loop_srq *s = *state;
    must(post(s, 5, 0, 64) == 0);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    must(soft_modify_qp(s->qp[0], &attr, IBV_QP_STATE) == 0);
    sv_async(s->hub.ctx, IBV_EVENT_QP_LAST_WQE_REACHED, s->qp[0]);
    sv_stays_empty(s->hub.rcq, NULL);
    must(sv_send(&s->from[1], 1, 0, 8, 0) == 0);
    struct ibv_wc wc = sv_poll(s->hub.rcq);
    sv_right(wc, wc.wr_id == 5 && wc.qp_num == s->qp[1]->qp_num);
}

WITH(opened, what_an_srq_refuses) {
    struct loop_srq *s = *state;
    struct ibv_recv_wr wr = {.wr_id = 1}, *bad = NULL;
    must(ibv_post_recv(s->qp[0], &wr, &bad) == EINVAL && bad == &wr);
    must(soft_destroy_srq(s->srq) == EBUSY);
    for (unsigned i = 0; i < WRS; i++)
        must(post(s, i, 0, 8) == 0);
    must(post(s, WRS, 0, 8) == ENOMEM);
    struct ibv_srq_attr attr = {.srq_limit = WRS + 1};
    must(soft_modify_srq(s->srq, &attr, IBV_SRQ_LIMIT) == EINVAL);
    struct ibv_srq_init_attr init = {.attr = {.max_wr = 0, .max_sge = 1}};
    must(soft_create_srq(s->hub.pd, &init) == NULL && errno == EINVAL);
}
