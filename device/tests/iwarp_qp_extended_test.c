/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * iwarp_qp_extended_test.c - a queue pair over TCP whose two ends agreed on immediate data and atomics: what they are, in
 * which order, how many at a time, and what is refused. Both ends in this process, and polled.
 */
#include "support/softverbs_tcp.h"

#include <arpa/inet.h>

#include "soft/iwarp/qp_tcp.h"
#include "support/rows.h"

#define AREA 131072u /* of memory, twice */
#define IMM 0x0a0b0c0du

static struct tcp_pair p;

struct how {
    bool crc, solicited;
    size_t bytes;
    unsigned pieces;
};

static void open_with(const struct tcp_options *o) {
    struct tcp_options with = *o;
    with.o.bytes = 2 * AREA;
    with.extended = true;
    tcp_open(&p, &with);
}

static int open_plain(void **state) {
    (void)state;
    open_with(&(struct tcp_options){.crc = true});
    return 0;
}

static int shut(void **state) {
    (void)state;
    tcp_close(&p);
    return 0;
}

static uint64_t *word(struct sv_end *e, size_t offset) {
    return (uint64_t *)(void *)(e->buf + offset);
}

static struct ibv_send_wr request(uint64_t wr_id, enum ibv_wr_opcode opcode, unsigned flags) {
    return (struct ibv_send_wr){
        .wr_id = wr_id,
        .opcode = opcode,
        .send_flags = IBV_SEND_SIGNALED | flags,
        .imm_data = htonl(IMM),
        .wr.rdma = {.remote_addr = (uintptr_t)p.b.buf + AREA, .rkey = p.open->rkey}};
}

static struct ibv_send_wr atomic(uint64_t wr_id, enum ibv_wr_opcode opcode, uint64_t compare_add,
                                 uint64_t swap) {
    struct ibv_send_wr wr = request(wr_id, opcode, 0);
    wr.wr.atomic.remote_addr = (uintptr_t)p.b.buf + AREA;
    wr.wr.atomic.compare_add = compare_add;
    wr.wr.atomic.swap = swap;
    wr.wr.atomic.rkey = p.open->rkey;
    return wr;
}

static void expect_done(uint64_t wr_id, enum ibv_wc_opcode opcode) {
    struct ibv_wc wc = sv_poll(p.a.scq);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    must_data_equal(wc.wr_id, wr_id);
    assert_int_equal(wc.opcode, opcode);
}

static void expect_immediate(uint64_t wr_id, enum ibv_wc_opcode opcode, size_t bytes) {
    struct ibv_wc wc = sv_poll(p.b.rcq);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    must_data_equal(wc.wr_id, wr_id);
    assert_int_equal(wc.opcode, opcode);
    must_data_equal(wc.byte_len, bytes);
    assert_int_equal(wc.wc_flags, IBV_WC_WITH_IMM);
    must_data_equal(wc.imm_data, htonl(IMM));
}

/* ---- immediate data -------------------------------------------------------------------------------------- */

static void a_send_brings_immediate_data(void **state) {
    const struct how *how = *state;
    open_with(&(struct tcp_options){.crc = how->crc});
    sv_fill(p.a.buf, how->bytes, 1);
    tcp_recv(&p, 7, AREA, how->bytes + 3, how->pieces);
    unsigned flags = how->solicited ? IBV_SEND_SOLICITED : 0;
    assert_int_equal(
        tcp_post(&p, request(8, IBV_WR_SEND_WITH_IMM, flags), 0, how->bytes, how->pieces), 0);
    expect_immediate(7, IBV_WC_RECV, how->bytes);
    expect_done(8, IBV_WC_SEND);
    sv_check(p.b.buf + AREA, how->bytes, 1);
}

/* It takes a receive, into which nothing is written. */
static void a_write_brings_immediate_data_when_it_is_in_place(void **state) {
    const struct how *how = *state;
    open_with(&(struct tcp_options){.crc = how->crc});
    sv_fill(p.a.buf, how->bytes, 2);
    memset(p.b.buf, 0xee, 64);
    tcp_recv(&p, 7, 0, 64, 1);
    unsigned flags = how->solicited ? IBV_SEND_SOLICITED : 0;
    assert_int_equal(
        tcp_post(&p, request(8, IBV_WR_RDMA_WRITE_WITH_IMM, flags), 0, how->bytes, how->pieces), 0);
    expect_immediate(7, IBV_WC_RECV_RDMA_WITH_IMM, how->bytes);
    expect_done(8, IBV_WC_RDMA_WRITE);
    sv_check(p.b.buf + AREA, how->bytes, 2);
    for (unsigned i = 0; i < 64; i++)
        must_data_equal(p.b.buf[i], 0xee);
}

TEST_WITH(NULL, shut, only_a_solicited_one_wakes_who_waits_for_those) {
    open_with(&(struct tcp_options){.o = {.channel = true}, .crc = true});
    static const enum ibv_wr_opcode op[] = {IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM};
    for (unsigned i = 0; i < 2; i++) {
        tcp_recv(&p, 1, 0, 64, 1);
        tcp_recv(&p, 2, 0, 64, 1);
        assert_int_equal(ibv_req_notify_cq(p.b.rcq, 1), 0);
        assert_int_equal(tcp_post(&p, request(3, op[i], 0), 0, 8, 1), 0);
        assert_int_equal(tcp_post(&p, request(4, op[i], IBV_SEND_SOLICITED), 0, 8, 1), 0);
        sv_cq_event(p.b.channel);
        for (unsigned k = 1; k <= 2; k++) { /* both are there: the first woke nobody */
            struct ibv_wc wc;
            assert_int_equal(ibv_poll_cq(p.b.rcq, 1, &wc), 1);
            must_data_equal(wc.wr_id, k);
        }
        expect_done(3, i ? IBV_WC_RDMA_WRITE : IBV_WC_SEND);
        expect_done(4, i ? IBV_WC_RDMA_WRITE : IBV_WC_SEND);
    }
}

#define PLAIN(name) TEST_WITH(open_plain, shut, name)

PLAIN(immediate_data_waits_for_a_receive) {
    static const enum ibv_wr_opcode op[] = {IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM};
    static const enum ibv_wc_opcode done[] = {IBV_WC_RECV, IBV_WC_RECV_RDMA_WITH_IMM};
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(tcp_post(&p, request(8, op[i], 0), 0, 100, 1), 0);
        sv_until(atomic_load(&soft_qp_of(p.b.qp)->rx_stalled));
        tcp_recv(&p, i, 0, 100, 1);
        expect_immediate(i, done[i], 100);
        (void)sv_poll(p.a.scq);
    }
}

/* Its data goes with the WRITE that is next in front of it, whatever comes in between. */
PLAIN(immediate_data_is_of_its_own_write) {
    for (unsigned i = 0; i < 3; i++)
        tcp_recv(&p, i, 0, 64, 1);
    assert_int_equal(tcp_post(&p, request(1, IBV_WR_RDMA_WRITE, 0), 0, 30, 1), 0);
    assert_int_equal(tcp_post(&p, request(2, IBV_WR_RDMA_READ, 0), 64, 50, 1), 0);
    assert_int_equal(tcp_post(&p, request(3, IBV_WR_RDMA_WRITE_WITH_IMM, 0), 0, 40, 1), 0);
    assert_int_equal(tcp_post(&p, request(4, IBV_WR_SEND, 0), 0, 20, 1), 0);
    assert_int_equal(tcp_post(&p, request(5, IBV_WR_RDMA_WRITE_WITH_IMM, 0), 0, 0, 1), 0);
    expect_immediate(0, IBV_WC_RECV_RDMA_WITH_IMM, 40);
    struct ibv_wc wc = sv_poll(p.b.rcq);
    must_data_equal(wc.byte_len, 20);
    assert_int_equal(wc.wc_flags, 0);
    expect_immediate(2, IBV_WC_RECV_RDMA_WITH_IMM, 0);
}

/* ---- atomics --------------------------------------------------------------------------------------------- */

/* The target does not poll. */
static void an_atomic_changes_the_word_and_brings_what_it_was(void **state) {
    const struct how *how = *state;
    open_with(&(struct tcp_options){.crc = how->crc});
    *word(&p.b, AREA) = 0xfffffffffffffff0;
    assert_int_equal(
        tcp_post(&p, atomic(1, IBV_WR_ATOMIC_FETCH_AND_ADD, 0x13, 99), 0, 8, how->pieces), 0);
    expect_done(1, IBV_WC_FETCH_ADD);
    assert_int_equal(*word(&p.a, 0), 0xfffffffffffffff0);
    assert_int_equal(*word(&p.b, AREA), 3);
    assert_int_equal(tcp_post(&p, atomic(2, IBV_WR_ATOMIC_CMP_AND_SWP, 4, 77), 0, 8, how->pieces),
                     0);
    expect_done(2, IBV_WC_COMP_SWAP);
    assert_int_equal(*word(&p.a, 0), 3);
    assert_int_equal(*word(&p.b, AREA), 3); /* it was not 4 */
    *word(&p.a, 0) = 0;
    assert_int_equal(tcp_post(&p, atomic(3, IBV_WR_ATOMIC_CMP_AND_SWP, 3, 77), 0, 8, how->pieces),
                     0);
    expect_done(3, IBV_WC_COMP_SWAP);
    assert_int_equal(*word(&p.a, 0), 3);
    assert_int_equal(*word(&p.b, AREA), 77);
}

/* With READs, of which they are some, and beyond the depth they wait. A READ sees what was before it, and may see more. */
TEST_WITH(NULL, shut, atomics_and_reads_have_their_order_and_their_depth) {
    const unsigned count = 40;
    open_with(&(struct tcp_options){.crc = true, .depth = 2});
    for (unsigned i = 0; i < count; i++) {
        struct ibv_send_wr wr =
            i % 3 ? request(i, IBV_WR_RDMA_READ, 0) : atomic(i, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0);
        assert_int_equal(tcp_post(&p, wr, 8 * i, 8, 1), 0);
        spin_lock(&soft_qp_of(p.a.qp)->lock);
        uint32_t waiting = soft_qp_of(p.a.qp)->waiting;
        spin_unlock(&soft_qp_of(p.a.qp)->lock);
        assert_true(waiting <= 2);
    }
    for (unsigned i = 0; i < count; i++) {
        expect_done(i, i % 3 ? IBV_WC_RDMA_READ : IBV_WC_FETCH_ADD);
        if (i % 3)
            assert_in_range(*word(&p.a, 8 * i), i / 3 + 1, count / 3 + 1);
        else
            assert_int_equal(*word(&p.a, 8 * i), i / 3);
    }
}

PLAIN(a_fenced_send_waits_for_the_atomic_before_it) {
    *word(&p.b, AREA) = 0x1122334455667788;
    tcp_recv(&p, 1, 0, 8, 1);
    assert_int_equal(tcp_post(&p, atomic(2, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0), 0, 8, 1), 0);
    assert_int_equal(tcp_post(&p, request(3, IBV_WR_SEND, IBV_SEND_FENCE), 0, 8, 1), 0);
    expect_done(2, IBV_WC_FETCH_ADD);
    expect_done(3, IBV_WC_SEND);
    must_data_equal(sv_poll(p.b.rcq).wr_id, 1);
    assert_int_equal(*word(&p.b, 0), 0x1122334455667788); /* what the atomic had brought */
}

/* ---- what is refused ------------------------------------------------------------------------------------- */

enum flaw { NO_RIGHT_OF_KEY, NO_RIGHT_OF_QP, BEHIND_THE_END, MISALIGNED, OF_ANOTHER_PD };

struct refused {
    enum flaw flaw;
    enum ibv_wc_status status;
};

static struct ibv_mr *flawed(enum flaw flaw, struct ibv_pd *other) {
    int rights = IBV_ACCESS_LOCAL_WRITE | TCP_REMOTE;
    if (flaw != NO_RIGHT_OF_KEY)
        rights |= IBV_ACCESS_REMOTE_ATOMIC;
    struct ibv_pd *pd = flaw == OF_ANOTHER_PD ? other : p.b.pd;
    uint8_t *at = p.b.buf + AREA + (flaw == MISALIGNED ? 4 : 0);
    return soft_reg_mr_iova(pd, at, flaw == BEHIND_THE_END ? 4 : 64, 4096, rights);
}

static void an_atomic_is_refused(void **state) {
    const struct refused *r = *state;
    open_with(&(struct tcp_options){.crc = true});
    struct ibv_pd *other = soft_alloc_pd(p.b.ctx);
    struct ibv_mr *mr = flawed(r->flaw, other);
    assert_non_null(mr);
    spin_lock(&soft_qp_of(p.b.qp)->lock);
    if (r->flaw == NO_RIGHT_OF_QP)
        soft_qp_of(p.b.qp)->attr.qp_access_flags &= ~(unsigned)IBV_ACCESS_REMOTE_ATOMIC;
    spin_unlock(&soft_qp_of(p.b.qp)->lock);
    memset(p.b.buf + AREA, 0xee, 64);
    struct ibv_send_wr wr = atomic(1, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0);
    wr.wr.atomic.remote_addr = 4096;
    wr.wr.atomic.rkey = mr->rkey;
    assert_int_equal(tcp_post(&p, wr, 0, 8, 1), 0);
    tcp_expect(p.a.scq, 1, r->status);
    tcp_wait_down(&p.a);
    tcp_wait_down(&p.b);
    sv_async(p.b.ctx, IBV_EVENT_QP_ACCESS_ERR, NULL);
    for (unsigned i = 0; i < 64; i++)
        must_data_equal(p.b.buf[AREA + i], 0xee);
    assert_int_equal(soft_dereg_mr(mr), 0);
    assert_int_equal(soft_dealloc_pd(other), 0);
}

PLAIN(where_it_may_not_be_written_it_is_not_asked_for) {
    struct ibv_mr *mr = soft_reg_mr(p.a.pd, p.a.buf, 64, 0);
    assert_non_null(mr);
    struct ibv_sge sge = {(uintptr_t)p.a.buf, 8, mr->lkey};
    struct ibv_send_wr *bad, wr = atomic(1, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0);
    *word(&p.b, AREA) = 5;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    assert_int_equal(ibv_post_send(p.a.qp, &wr, &bad), 0);
    tcp_expect(p.a.scq, 1, IBV_WC_LOC_PROT_ERR);
    tcp_wait_down(&p.b);
    assert_int_equal(*word(&p.b, AREA), 5);
    assert_int_equal(soft_dereg_mr(mr), 0);
}

PLAIN(an_atomic_is_of_eight_bytes_at_a_multiple_of_eight) {
    struct ibv_send_wr wr = atomic(1, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0);
    assert_int_equal(tcp_post(&p, wr, 0, 4, 1), EINVAL);
    wr.wr.atomic.remote_addr++;
    assert_int_equal(tcp_post(&p, wr, 0, 8, 1), 0);
    tcp_expect(p.a.scq, 1, IBV_WC_REM_INV_REQ_ERR);
    tcp_wait_down(&p.b);
    assert_int_equal(*word(&p.b, AREA), 0);
}

/* ---- all at a time --------------------------------------------------------------------------------------- */

#define ROUNDS 2000u

/* Sockets that take little at a time: every message is cut somewhere, and every answer waits behind others. */
static void all_kinds_at_a_time_keep_their_order(void **state) {
    const struct how *how = *state;
    open_with(&(struct tcp_options){.crc = how->crc, .buffer = 4096});
    static const enum ibv_wr_opcode op[] = {IBV_WR_SEND_WITH_IMM, IBV_WR_ATOMIC_FETCH_AND_ADD,
                                            IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ};
    unsigned posted = 0, done = 0, got = 0, receives = 0;
    unsigned turns = 0;
    uint64_t since = soft_now_ns();
    *word(&p.b, AREA) = 0;
    while (done < ROUNDS || got < ROUNDS / 2) {
        struct ibv_wc wc;
        for (; receives < ROUNDS / 2 && receives - got < 8; receives++)
            tcp_recv(&p, receives, 0, 6000, 2);
        for (; posted < ROUNDS && posted - done < 8; posted++) {
            bool word_only = op[posted % 4] == IBV_WR_ATOMIC_FETCH_AND_ADD;
            struct ibv_send_wr wr = request(posted, op[posted % 4], 0);
            if (word_only)
                wr = atomic(posted, op[posted % 4], 1, 0);
            else
                wr.wr.rdma.remote_addr += 4096;
            wr.imm_data = htonl(posted);
            assert_int_equal(
                tcp_post(&p, wr, 8192 * (posted % 8), word_only ? 8 : posted * 37u % 6000u, 1), 0);
        }
        for (; ibv_poll_cq(p.a.scq, 1, &wc) == 1; done++) {
            assert_int_equal(wc.status, IBV_WC_SUCCESS);
            must_data_equal(wc.wr_id, done);
            if (op[done % 4] == IBV_WR_ATOMIC_FETCH_AND_ADD)
                assert_int_equal(*word(&p.a, 8192 * (done % 8)), done / 4);
        }
        for (; ibv_poll_cq(p.b.rcq, 1, &wc) == 1; got++) {
            assert_int_equal(wc.status, IBV_WC_SUCCESS);
            must_data_equal(wc.imm_data, htonl(2 * got));
            must_data_equal(wc.byte_len, 2 * got * 37u % 6000u);
            assert_int_equal(wc.opcode, got % 2 ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV);
        }
        sv_pause(&turns, since, "all kinds of requests", __FILE__, __LINE__);
    }
}

#define HOW(name, fn, ...) ROW_WITH(NULL, shut, fn##_##name, fn, how, __VA_ARGS__)
#define SIZES(fn)                                                                                  \
    HOW(empty, fn, true, false, 0, 1), HOW(small, fn, true, true, 64, 4),                          \
        HOW(small_unchecked, fn, false, false, 64, 1), HOW(large, fn, true, false, 100000, 3)
#define REFUSED(name, ...) ROW_WITH(NULL, shut, name, an_atomic_is_refused, refused, __VA_ARGS__)

TEST_CASES(SIZES(a_send_brings_immediate_data),
           SIZES(a_write_brings_immediate_data_when_it_is_in_place),
           HOW(whole, an_atomic_changes_the_word_and_brings_what_it_was, true, false, 8, 1),
           HOW(in_pieces, an_atomic_changes_the_word_and_brings_what_it_was, false, false, 8, 3),
           REFUSED(a_key_without_the_right, NO_RIGHT_OF_KEY, IBV_WC_REM_ACCESS_ERR),
           REFUSED(a_queue_pair_without_the_right, NO_RIGHT_OF_QP, IBV_WC_REM_ACCESS_ERR),
           REFUSED(a_word_behind_the_end, BEHIND_THE_END, IBV_WC_REM_ACCESS_ERR),
           REFUSED(a_word_that_lies_askew, MISALIGNED, IBV_WC_REM_ACCESS_ERR),
           REFUSED(a_key_of_another_pd, OF_ANOTHER_PD, IBV_WC_REM_ACCESS_ERR),
           HOW(checked, all_kinds_at_a_time_keep_their_order, true, false, 0, 1),
           HOW(unchecked, all_kinds_at_a_time_keep_their_order, false, false, 0, 1));
