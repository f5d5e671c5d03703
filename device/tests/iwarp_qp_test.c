/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * iwarp_qp_test.c - a queue pair over TCP: SEND, WRITE, READ of every size, order, fence, depths, invalidation. Both
 * ends in this process, and polled.
 */
#include "support/softverbs_tcp.h"

#include "soft/iwarp/qp_tcp.h"
#include "soft/object/mw.h"
#include "soft/verbs/mw.h"
#include "support/rows.h"

#define AREA 131072u /* of memory, twice */

static struct tcp_pair p;

struct how {
    bool crc;
    size_t bytes;
    unsigned pieces;
};

static void open_how(const struct how *how) {
    tcp_open(&p, &(struct tcp_options){.o = {.bytes = 2 * AREA}, .crc = how->crc});
}

static int shut(void **state) {
    (void)state;
    tcp_close(&p);
    return 0;
}

static int open_plain(void **state) {
    (void)state;
    open_how(&(struct how){.crc = true});
    return 0;
}

static struct ibv_send_wr request(uint64_t wr_id, enum ibv_wr_opcode opcode, unsigned flags) {
    return (struct ibv_send_wr){
        .wr_id = wr_id,
        .opcode = opcode,
        .send_flags = flags,
        .wr.rdma = {.remote_addr = (uintptr_t)p.b.buf + AREA, .rkey = p.open->rkey}};
}

static void expect_wc(struct ibv_cq *cq, uint64_t wr_id, enum ibv_wc_opcode opcode, size_t bytes) {
    struct ibv_wc wc = sv_poll(cq);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    must_data_equal(wc.wr_id, wr_id);
    assert_int_equal(wc.opcode, opcode);
    if (opcode == IBV_WC_RECV)
        must_data_equal(wc.byte_len, bytes);
}

/* ---- every size ------------------------------------------------------------------------------------------ */

static void a_message_arrives(void **state) {
    const struct how *how = *state;
    open_how(how);
    sv_fill(p.a.buf, how->bytes, 1);
    tcp_recv(&p, 7, AREA, how->bytes + 3, how->pieces);
    assert_int_equal(
        tcp_post(&p, request(8, IBV_WR_SEND, IBV_SEND_SIGNALED), 0, how->bytes, how->pieces), 0);
    expect_wc(p.b.rcq, 7, IBV_WC_RECV, how->bytes);
    expect_wc(p.a.scq, 8, IBV_WC_SEND, 0);
    sv_check(p.b.buf + AREA, how->bytes, 1);
    must_data_equal(p.b.buf[AREA + how->bytes], 0);
}

static void a_write_is_there_before_the_send_behind_it(void **state) {
    const struct how *how = *state;
    open_how(how);
    sv_fill(p.a.buf, how->bytes, 2);
    tcp_recv(&p, 7, 0, 64, 1);
    assert_int_equal(
        tcp_post(&p, request(8, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED), 0, how->bytes, how->pieces),
        0);
    assert_int_equal(tcp_post(&p, request(9, IBV_WR_SEND, IBV_SEND_SIGNALED), 0, 1, 1), 0);
    expect_wc(p.b.rcq, 7, IBV_WC_RECV, 1);
    sv_check(p.b.buf + AREA, how->bytes, 2);
    must_data_equal(p.b.buf[AREA + how->bytes], 0);
    expect_wc(p.a.scq, 8, IBV_WC_RDMA_WRITE, 0);
    expect_wc(p.a.scq, 9, IBV_WC_SEND, 0);
}

static void a_read_brings_it(void **state) {
    const struct how *how = *state;
    open_how(how);
    sv_fill(p.b.buf + AREA, how->bytes, 3);
    assert_int_equal(
        tcp_post(&p, request(8, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED), 0, how->bytes, how->pieces),
        0);
    /* The target does not poll. */
    expect_wc(p.a.scq, 8, IBV_WC_RDMA_READ, how->bytes);
    sv_check(p.a.buf, how->bytes, 3);
    must_data_equal(p.a.buf[how->bytes], 0);
}

/* ---- order and limits ------------------------------------------------------------------------------------ */

#define PLAIN(name) TEST_WITH(open_plain, shut, name)

PLAIN(inline_payload_is_taken_before_post_returns) {
    sv_fill(p.a.buf, 200, 1);
    tcp_recv(&p, 1, AREA, 200, 1);
    assert_int_equal(
        tcp_post(&p, request(2, IBV_WR_SEND, IBV_SEND_SIGNALED | IBV_SEND_INLINE), 0, 100, 3), 0);
    memset(p.a.buf, 0xee, 200);
    expect_wc(p.b.rcq, 1, IBV_WC_RECV, 100);
    sv_check(p.b.buf + AREA, 100, 1);
}

PLAIN(completions_come_in_the_order_of_their_requests) {
    static const enum ibv_wr_opcode op[] = {IBV_WR_RDMA_READ, IBV_WR_SEND, IBV_WR_RDMA_WRITE,
                                            IBV_WR_RDMA_READ, IBV_WR_SEND};
    static const enum ibv_wc_opcode done[] = {IBV_WC_RDMA_READ, IBV_WC_SEND, IBV_WC_RDMA_WRITE,
                                              IBV_WC_RDMA_READ, IBV_WC_SEND};
    tcp_recv(&p, 100, 0, 64, 1);
    tcp_recv(&p, 101, 64, 64, 1);
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(tcp_post(&p, request(i, op[i], IBV_SEND_SIGNALED), 0, 40, 2), 0);
    for (unsigned i = 0; i < 5; i++)
        expect_wc(p.a.scq, i, done[i], 0);
    expect_wc(p.b.rcq, 100, IBV_WC_RECV, 40);
    expect_wc(p.b.rcq, 101, IBV_WC_RECV, 40);
}

PLAIN(an_unsignalled_send_frees_its_place_with_a_later_one) {
    for (unsigned round = 0; round < 40; round++) {
        for (unsigned i = 0; i < 8; i++) {
            tcp_recv(&p, i, 0, 64, 1);
            unsigned flags = i == 7 ? IBV_SEND_SIGNALED : 0;
            assert_int_equal(tcp_post(&p, request(i, IBV_WR_SEND, flags), 0, 64, 1), 0);
        }
        for (unsigned i = 0; i < 8; i++)
            expect_wc(p.b.rcq, i, IBV_WC_RECV, 64);
        expect_wc(p.a.scq, 7, IBV_WC_SEND, 0);
    }
    sv_stays_empty(p.a.scq, p.b.rcq);
}

PLAIN(a_fenced_send_waits_for_the_reads_before_it) {
    const size_t bytes = 100000;
    sv_fill(p.b.buf + AREA, bytes, 5);
    tcp_recv(&p, 1, 0, bytes, 1);
    assert_int_equal(tcp_post(&p, request(2, IBV_WR_RDMA_READ, 0), 0, bytes, 1), 0);
    assert_int_equal(
        tcp_post(&p, request(3, IBV_WR_SEND, IBV_SEND_FENCE | IBV_SEND_SIGNALED), 0, bytes, 1), 0);
    expect_wc(p.a.scq, 3, IBV_WC_SEND, 0);
    expect_wc(p.b.rcq, 1, IBV_WC_RECV, bytes);
    sv_check(p.b.buf, bytes, 5); /* what the READ had brought */
}

TEST_WITH(NULL, shut, reads_beyond_the_depth_wait) {
    tcp_open(&p, &(struct tcp_options){.o = {.bytes = 2 * AREA}, .crc = true, .depth = 2});
    sv_fill(p.b.buf + AREA, 1000, 6);
    for (unsigned i = 0; i < 9; i++)
        assert_int_equal(
            tcp_post(&p, request(i, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED), 1000 * i, 1000, 3), 0);
    spin_lock(&soft_qp_of(p.a.qp)->lock);
    uint32_t waiting = soft_qp_of(p.a.qp)->waiting;
    spin_unlock(&soft_qp_of(p.a.qp)->lock);
    assert_true(waiting <= 2);
    for (unsigned i = 0; i < 9; i++) {
        expect_wc(p.a.scq, i, IBV_WC_RDMA_READ, 0);
        sv_check(p.a.buf + 1000 * i, 1000, 6);
    }
}

PLAIN(a_message_that_invalidates_takes_the_window_back) {
    struct ibv_mw *mw = soft_alloc_mw(p.b.pd, IBV_MW_TYPE_2);
    assert_non_null(mw);
    struct ibv_mw_bind_info info = {p.open, (uintptr_t)p.b.buf + AREA, 64, IBV_ACCESS_REMOTE_WRITE};
    uint32_t rkey = mw->rkey ^ 1;
    assert_int_equal(sv_bind(p.b.qp, mw, rkey, info), 0);
    expect_wc(p.b.scq, 5, IBV_WC_BIND_MW, 0);
    tcp_recv(&p, 1, 0, 64, 1);
    sv_fill(p.a.buf, 64, 8);
    struct ibv_send_wr write = request(2, IBV_WR_RDMA_WRITE, 0);
    write.wr.rdma.rkey = rkey;
    assert_int_equal(tcp_post(&p, write, 0, 64, 1), 0);
    struct ibv_send_wr send = request(3, IBV_WR_SEND_WITH_INV, IBV_SEND_SIGNALED);
    send.invalidate_rkey = rkey;
    assert_int_equal(tcp_post(&p, send, 0, 10, 1), 0);
    struct ibv_wc wc = sv_poll(p.b.rcq);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    assert_int_equal(wc.wc_flags, IBV_WC_WITH_INV);
    assert_int_equal(wc.invalidated_rkey, rkey);
    sv_check(p.b.buf + AREA, 64, 8);
    expect_wc(p.a.scq, 3, IBV_WC_SEND, 0);
    assert_int_equal(tcp_post(&p, write, 0, 64, 1), 0);
    tcp_wait_down(&p.b);
    tcp_wait_down(&p.a);
    assert_int_equal(soft_dealloc_mw(mw), 0);
}

PLAIN(what_iwarp_has_not_is_not_supported) {
    static const enum ibv_wr_opcode op[] = {IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM,
                                            IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD};
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(tcp_post(&p, request(1, op[i], 0), 0, 8, 1), EOPNOTSUPP);
}

PLAIN(a_socket_is_for_a_reliable_connection_in_init) {
    int fd[2];
    tcp_sockets(fd, 0);
    soft_lock();
    assert_int_equal(soft_tcp_attach(soft_qp_of(p.a.qp), fd[0], NULL), EINVAL);
    soft_unlock();
    close(fd[0]);
    close(fd[1]);
}

/* ---- both ways at a time --------------------------------------------------------------------------------- */

#define ROUNDS 3000u

/* Sockets that take little at a time: every message is cut somewhere. */
static void both_ways_at_a_time_nothing_is_lost_or_mixed(void **state) {
    const struct how *how = *state;
    tcp_open(&p, &(struct tcp_options){
                     .o = {.bytes = 2 * AREA, .one_cq = true}, .crc = how->crc, .buffer = 4096});
    struct sv_end *e[2] = {&p.a, &p.b};
    unsigned sent[2] = {0}, received[2] = {0}, done[2] = {0}, posted[2] = {0};
    struct ibv_wc wc[3];
    unsigned turns = 0;
    uint64_t since = soft_now_ns();
    while (received[0] + received[1] < 2 * ROUNDS || done[0] + done[1] < 2 * ROUNDS) {
        for (unsigned i = 0; i < 2; i++) {
            for (; posted[i] < ROUNDS && posted[i] - received[i] < 8; posted[i]++)
                assert_int_equal(sv_recv(e[i], posted[i], AREA + 8192 * (posted[i] % 8), 8192), 0);
            for (; sent[i] < ROUNDS && sent[i] - done[i] < 8; sent[i]++) {
                size_t bytes = sent[i] * 37u % 8000u;
                sv_fill(e[i]->buf + 8192 * (sent[i] % 8), bytes, sent[i]);
                assert_int_equal(sv_send(e[i], 1u << 20 | sent[i], 8192 * (sent[i] % 8), bytes,
                                         IBV_SEND_SIGNALED),
                                 0);
            }
            int n = ibv_poll_cq(e[i]->rcq, 1 + (int)(turns % 3), wc);
            for (int k = 0; k < n; k++) {
                assert_int_equal(wc[k].status, IBV_WC_SUCCESS);
                if (wc[k].wr_id >> 20) {
                    assert_int_equal(wc[k].wr_id & 0xfffff, done[i]);
                    done[i]++;
                    continue;
                }
                must_data_equal(wc[k].wr_id, received[i]);
                must_data_equal(wc[k].byte_len, received[i] * 37u % 8000u);
                sv_check(e[i]->buf + AREA + 8192 * (received[i] % 8), wc[k].byte_len, received[i]);
                received[i]++;
            }
        }
        sv_pause(&turns, since, "messages both ways", __FILE__, __LINE__);
    }
}

#define SIZES(fn, crc_name, crc)                                                                   \
    ROW_WITH(NULL, shut, fn##_0_##crc_name, fn, how, crc, 0, 1),                                   \
        ROW_WITH(NULL, shut, fn##_1_##crc_name, fn, how, crc, 1, 1),                               \
        ROW_WITH(NULL, shut, fn##_64_##crc_name, fn, how, crc, 64, 1),                             \
        ROW_WITH(NULL, shut, fn##_64_gathered_##crc_name, fn, how, crc, 64, 4),                    \
        ROW_WITH(NULL, shut, fn##_4096_##crc_name, fn, how, crc, 4096, 1),                         \
        ROW_WITH(NULL, shut, fn##_4096_gathered_##crc_name, fn, how, crc, 4096, 3),                \
        ROW_WITH(NULL, shut, fn##_100000_##crc_name, fn, how, crc, 100000, 1),                     \
        ROW_WITH(NULL, shut, fn##_100000_gathered_##crc_name, fn, how, crc, 100000, 4)

TEST_CASES(SIZES(a_message_arrives, checked, true), SIZES(a_message_arrives, unchecked, false),
           SIZES(a_write_is_there_before_the_send_behind_it, checked, true),
           SIZES(a_write_is_there_before_the_send_behind_it, unchecked, false),
           SIZES(a_read_brings_it, checked, true), SIZES(a_read_brings_it, unchecked, false),
           ROW_WITH(NULL, shut, both_ways_checked, both_ways_at_a_time_nothing_is_lost_or_mixed,
                    how, .crc = true),
           ROW_WITH(NULL, shut, both_ways_unchecked, both_ways_at_a_time_nothing_is_lost_or_mixed,
                    how, .crc = false));
