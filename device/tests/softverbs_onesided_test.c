/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs_onesided_test.c - RDMA WRITE, READ, atomics and memory windows over each of the three ways:
 * mapped regions, process_vm, and requests executed at the target. Each test names the promise.
 */
#include "support/softverbs_onesided.h"
#include "soft/object/mw.h"
#include "soft/object/ring.h"

/* ---- the tests, each over all ways --------------------------------------------------------------- */

static void write_and_read_any_size(struct onesided *p, enum way way) {
    static const size_t sizes[] = {0,   1,   7,   8,   64,   111,   112,   113,
                                   431, 432, 433, 448, 4096, 65537, 900001};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        size_t n = sizes[i];
        if (way == RING && n > 70000)
            continue; /* the same code, and slow without a polling target */
        sv_fill(p->a.buf, n, (uint32_t)i);
        must(onesided_post(p, IBV_WR_RDMA_WRITE, 0, n, 5, p->open->rkey, 0) == 0);
        onesided_expect(p, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
        sv_check(p->b.buf + 5, n, (uint32_t)i);
        memset(p->a.buf, 0, n);
        must(onesided_post(p, IBV_WR_RDMA_READ, 0, n, 5, p->open->rkey, 0) == 0);
        onesided_expect(p, IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
        sv_check(p->a.buf, n, (uint32_t)i);
    }
}

static void atomics_return_the_old_value(struct onesided *p, enum way way) {
    (void)way;
    uint64_t *word = (uint64_t *)(void *)(p->b.buf + 64), *old = (uint64_t *)(void *)p->a.buf;
    *word = 40;
    must(onesided_post_atomic(p, false, 0, 64, 2, 0) == 0);
    onesided_expect(p, IBV_WC_SUCCESS, IBV_WC_FETCH_ADD);
    must(*old == 40 && *word == 42);
    must(onesided_post_atomic(p, true, 0, 64, 41, 7) == 0);
    onesided_expect(p, IBV_WC_SUCCESS, IBV_WC_COMP_SWAP);
    must(*old == 42 && *word == 42);
    must(onesided_post_atomic(p, true, 0, 64, 42, 7) == 0);
    onesided_expect(p, IBV_WC_SUCCESS, IBV_WC_COMP_SWAP);
    must(*old == 42 && *word == 7);
}

static void write_with_imm_consumes_a_receive(struct onesided *p, enum way way) {
    (void)way;
    sv_fill(p->a.buf, 300, 3);
    must(sv_recv(&p->b, 55, 0, 0) == 0);
    must(onesided_post(p, IBV_WR_RDMA_WRITE_WITH_IMM, 0, 300, 128, p->open->rkey, 0) == 0);
    struct ibv_wc wc = sv_poll(p->b.rcq);
    must(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM);
    must_data(wc.wr_id == 55 && wc.byte_len == 300 && wc.imm_data == 0x11223344);
    must(wc.wc_flags & IBV_WC_WITH_IMM);
    sv_check(p->b.buf + 128, 300, 3);
    onesided_expect(p, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
}

static void write_is_visible_before_a_later_send_completes(struct onesided *p, enum way way) {
    (void)way;
    for (uint32_t i = 0; i < 200; i++) {
        must(sv_recv(&p->b, i, 4096, 64) == 0);
        sv_fill(p->a.buf, 700, i);
        must(onesided_post(p, IBV_WR_RDMA_WRITE, 0, 700, 8192, p->open->rkey, 0) == 0);
        must(sv_send(&p->a, i, 0, 8, IBV_SEND_SIGNALED) == 0);
        struct ibv_wc wc = sv_poll(p->b.rcq);
        must(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV);
        sv_check(p->b.buf + 8192, 700, i);
        onesided_expect(p, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
        onesided_expect(p, IBV_WC_SUCCESS, IBV_WC_SEND);
    }
}

static void inline_write(struct onesided *p, enum way way) {
    (void)way;
    sv_fill(p->a.buf, 100, 9);
    must(onesided_post(p, IBV_WR_RDMA_WRITE, 0, 100, 0, p->open->rkey, IBV_SEND_INLINE) == 0);
    onesided_expect(p, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
    sv_check(p->b.buf, 100, 9);
}

/* The requester fails with status, the target goes to ERR with the async event. */
static void unknown_rkey(struct onesided *p, enum way way) {
    (void)way;
    must(onesided_post(p, IBV_WR_RDMA_WRITE, 0, 8, 0, p->open->rkey ^ 0x1, 0) == 0);
    onesided_refused(p, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
}

static void one_byte_past_the_end(struct onesided *p, enum way way) {
    (void)way;
    memset(p->b.buf + ONESIDED_BYTES - 8, 0xee, 8);
    must(onesided_post(p, IBV_WR_RDMA_WRITE, 0, 8, ONESIDED_BYTES - 7, p->open->rkey, 0) == 0);
    onesided_refused(p, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
    must_data(p->b.buf[ONESIDED_BYTES - 7] == 0xee);
}

static void local_key_opens_nothing_remote(struct onesided *p, enum way way) {
    (void)way;
    must(onesided_post(p, IBV_WR_RDMA_READ, 0, 8, 0, p->b.mr->rkey, 0) == 0);
    onesided_refused(p, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
}

static void revoked_key_is_useless_at_once(struct onesided *p, enum way way) {
    (void)way;
    uint32_t rkey = p->open->rkey;
    must(onesided_post(p, IBV_WR_RDMA_WRITE, 0, 8, 0, rkey, 0) == 0);
    onesided_expect(p, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
    must(soft_dereg_mr(p->open) == 0);
    memset(p->b.buf, 0xab, 8);
    must(onesided_post(p, IBV_WR_RDMA_WRITE, 0, 8, 0, rkey, 0) == 0);
    onesided_refused(p, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
    must_data(p->b.buf[0] == 0xab);
    p->open = soft_reg_mr(p->b.pd, p->b.buf, 4096, 0); /* for close_pair */
}

static void misaligned_atomic(struct onesided *p, enum way way) {
    (void)way;
    must(onesided_post_atomic(p, false, 0, 12, 1, 0) == 0);
    onesided_refused(p, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
}

static void bad_local_buffer_of_a_read(struct onesided *p, enum way way) {
    (void)way;
    struct ibv_sge sge = {(uintptr_t)p->a.buf, 64, p->a.mr->lkey ^ 1};
    struct ibv_send_wr wr = {.sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_RDMA_READ,
                             .send_flags = IBV_SEND_SIGNALED,
                             .wr.rdma = {(uintptr_t)p->b.buf, p->open->rkey}},
                       *bad;
    must(ibv_post_send(p->a.qp, &wr, &bad) == 0);
    onesided_expect(p, IBV_WC_LOC_PROT_ERR, 0);
}

static void each_way(void (*fn)(struct onesided *, enum way)) {
    for (enum way way = MAPPED; way < WAYS; way++) {
        struct onesided p;
        onesided_open(&p, way, ALL_REMOTE, ALL_REMOTE, 4);
        print_message("    %s\n", onesided_way_name[way]);
        fn(&p, way);
        onesided_close(&p);
    }
}

#define OVER_ALL_WAYS(name)                                                                        \
    TEST(name##_test) {                                                                            \
        each_way(name);                                                                            \
    }
OVER_ALL_WAYS(write_and_read_any_size)
OVER_ALL_WAYS(atomics_return_the_old_value)
OVER_ALL_WAYS(write_with_imm_consumes_a_receive)
OVER_ALL_WAYS(write_is_visible_before_a_later_send_completes)
OVER_ALL_WAYS(inline_write)
OVER_ALL_WAYS(unknown_rkey)
OVER_ALL_WAYS(one_byte_past_the_end)
OVER_ALL_WAYS(local_key_opens_nothing_remote)
OVER_ALL_WAYS(revoked_key_is_useless_at_once)
OVER_ALL_WAYS(misaligned_atomic)
OVER_ALL_WAYS(bad_local_buffer_of_a_read)

/* ---- rights and depths ---------------------------------------------------------------------------- */

struct observer {
    struct onesided *p;
    bool sent_first;
};

/* At the moment a later WRITE begins to show: does the SEND before it lie in the ring? */
static void *observe(void *arg) {
    struct observer *o = arg;
    struct soft_qp *qp = soft_qp_of(o->p->b.qp);
    volatile uint8_t *first = o->p->b.buf;
    while (*first != 0x5a)
        sched_yield();
    struct soft_ring *ring = ld(qp->rx);
    o->sent_first = atomic_load(&ring->slot[ld(qp->rx_index)].seq) == ld(qp->rx_pos) + 1;
    return NULL;
}

TEST(a_send_can_be_polled_before_the_write_behind_it_shows) {
    for (int large = 0; large < 2; large++) {
        struct onesided p;
        pthread_t thread;
        onesided_open(&p, MAPPED, ALL_REMOTE, ALL_REMOTE, 4);
        sv_wait_linked(&p.a);
        struct observer o = {.p = &p};
        uint32_t bytes = large ? ONESIDED_BYTES : 64;
        memset(p.a.buf, 0x5a, bytes);
        memset(p.b.buf, 0, bytes);
        must(sv_recv(&p.b, 7, 0, 0) == 0);
        must(pthread_create(&thread, NULL, observe, &o) == 0);
        struct ibv_sge sge[2] = {sv_sge(&p.a, 0, 0), sv_sge(&p.a, 0, bytes)};
        struct ibv_send_wr *bad,
            wr[2] = {
                {.wr_id = 1, .sg_list = sge, .num_sge = 1, .opcode = IBV_WR_SEND, .next = &wr[1]},
                {.wr_id = 2,
                 .sg_list = &sge[1],
                 .num_sge = 1,
                 .opcode = IBV_WR_RDMA_WRITE,
                 .send_flags = IBV_SEND_SIGNALED,
                 .wr.rdma = {(uintptr_t)p.b.buf, p.open->rkey}}};
        must(ibv_post_send(p.a.qp, wr, &bad) == 0);
        pthread_join(thread, NULL);
        assert_true(o.sent_first);
        must_data_equal(sv_poll(p.b.rcq).wr_id, 7);
        must_data_equal(sv_poll(p.a.scq).wr_id, 2);
        onesided_close(&p);
    }
}

static void right_missing(int qp_access, int mr_access, enum ibv_wr_opcode opcode) {
    for (enum way way = MAPPED; way < WAYS; way++) {
        struct onesided p;
        onesided_open(&p, way, qp_access, mr_access, 4);
        must(onesided_post(&p, opcode, 0, 8, 0, p.open->rkey, 0) == 0);
        onesided_refused(&p, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
        onesided_close(&p);
    }
}

TEST(mr_without_the_right_refuses) {
    right_missing(ALL_REMOTE, IBV_ACCESS_REMOTE_READ, IBV_WR_RDMA_WRITE);
    right_missing(ALL_REMOTE, IBV_ACCESS_REMOTE_WRITE, IBV_WR_RDMA_READ);
}

TEST(qp_without_the_right_refuses) {
    right_missing(IBV_ACCESS_REMOTE_READ, ALL_REMOTE, IBV_WR_RDMA_WRITE);
    right_missing(IBV_ACCESS_REMOTE_WRITE, ALL_REMOTE, IBV_WR_RDMA_READ);
}

TEST(read_with_depth_zero_is_an_invalid_request) {
    for (enum way way = MAPPED; way < WAYS; way++) {
        struct onesided p;
        onesided_open(&p, way, ALL_REMOTE, ALL_REMOTE, 0);
        must(onesided_post(&p, IBV_WR_RDMA_READ, 0, 8, 0, p.open->rkey, 0) == 0);
        onesided_refused(&p, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
        onesided_close(&p);
    }
}

/* ---- many adders ----------------------------------------------------------------------------------- */

#define ADDS 2000

static void *adder(void *arg) {
    struct onesided *p = arg;
    for (int i = 0; i < ADDS; i++) {
        must(onesided_post_atomic(p, false, 0, 64, 1, 0) == 0);
        onesided_expect(p, IBV_WC_SUCCESS, IBV_WC_FETCH_ADD);
    }
    return NULL;
}

/* Two QPs of the same target, one over the mapping and one executed at the target. */
TEST(atomics_are_atomic_between_all_qps) {
    struct onesided p, q;
    onesided_open(&p, MAPPED, ALL_REMOTE, ALL_REMOTE, 4);
    sv_open(&q.a, SV_OPTIONS(.bytes = ONESIDED_BYTES, .mapped = true, .one_cq = true));
    q.b = p.b;
    q.open = p.open;
    q.b.qp = sv_qp(&q.b);
    onesided_to_rts(&q.a, q.b.qp->qp_num, ALL_REMOTE, 4);
    onesided_to_rts(&q.b, q.a.qp->qp_num, ALL_REMOTE, 4);
    sv_wait_linked(&q.a);
    uint64_t *word = (uint64_t *)(void *)(p.b.buf + 64);
    *word = 0;
    pthread_t other;
    must(pthread_create(&other, NULL, adder, &q) == 0);
    adder(&p);
    pthread_join(other, NULL);
    must(__atomic_load_n(word, __ATOMIC_SEQ_CST) == 2 * ADDS);
    must(soft_destroy_qp(q.b.qp) == 0);
    sv_close(&q.a);
    onesided_close(&p);
}

/* ---- memory windows --------------------------------------------------------------------------------- */

struct windowed {
    struct onesided pair;
    struct ibv_mw *mw;
    uint32_t rkey;
};

/* The peer may write 64 bytes of b's memory, from 4096 on. */
static int open_window(void **state) {
    static struct windowed w;
    struct onesided *p = &w.pair;
    *state = &w;
    onesided_open(p, MAPPED, ALL_REMOTE, ALL_REMOTE | IBV_ACCESS_MW_BIND, 4);
    w.mw = ibv_alloc_mw(p->b.pd, IBV_MW_TYPE_2);
    must(w.mw);
    w.rkey = ibv_inc_rkey(w.mw->rkey);
    struct ibv_mw_bind_info info = {p->open, (uintptr_t)p->b.buf + 4096, 64,
                                    IBV_ACCESS_REMOTE_WRITE};
    must(sv_bind(p->b.qp, w.mw, w.rkey, info) == 0);
    struct ibv_wc wc = sv_poll(p->b.rcq);
    must(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_BIND_MW);
    return 0;
}

static int close_window(void **state) {
    struct windowed *w = *state;
    must(ibv_dealloc_mw(w->mw) == 0);
    onesided_close(&w->pair);
    return 0;
}

#define WINDOW(name) TEST_WITH(open_window, close_window, name)

WINDOW(window_gives_and_takes_a_part) {
    struct windowed *w = *state;
    struct onesided *p = &w->pair;
    must(soft_dereg_mr(p->open) == EBUSY);
    sv_fill(p->a.buf, 64, 5);
    must(onesided_post(p, IBV_WR_RDMA_WRITE, 0, 64, 4096, w->rkey, 0) == 0);
    onesided_expect(p, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
    sv_check(p->b.buf + 4096, 64, 5);
    must(sv_invalidate(p->b.qp, w->rkey) == 0);
    struct ibv_wc wc = sv_poll(p->b.rcq);
    must(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_LOCAL_INV);
    must(onesided_post(p, IBV_WR_RDMA_WRITE, 0, 64, 4096, w->rkey, 0) == 0);
    onesided_refused(p, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
}

WINDOW(window_ends_where_it_was_bound) {
    struct windowed *w = *state;
    must(onesided_post(&w->pair, IBV_WR_RDMA_WRITE, 0, 64, 4097, w->rkey, 0) == 0);
    onesided_refused(&w->pair, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
}

WINDOW(send_with_invalidate_takes_the_window_back) {
    struct windowed *w = *state;
    struct onesided *p = &w->pair;
    must(sv_recv(&p->b, 3, 8192, 64) == 0);
    struct ibv_sge sge = sv_sge(&p->a, 0, 16);
    struct ibv_send_wr wr = {.sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_SEND_WITH_INV,
                             .send_flags = IBV_SEND_SIGNALED,
                             .invalidate_rkey = w->rkey},
                       *bad;
    must(ibv_post_send(p->a.qp, &wr, &bad) == 0);
    struct ibv_wc wc = sv_poll(p->b.rcq);
    must(wc.status == IBV_WC_SUCCESS && (wc.wc_flags & IBV_WC_WITH_INV) &&
         wc.invalidated_rkey == w->rkey);
    onesided_expect(p, IBV_WC_SUCCESS, IBV_WC_SEND);
    must(soft_mw_of(w->mw)->mr == NULL);
}
