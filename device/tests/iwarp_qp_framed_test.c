/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * iwarp_qp_framed_test.c - the device's own call for a header and bytes (soft_post_framed) over a socket: as a SEND of them by
 * ibv_post_send(), or nothing happened.
 */
#include "support/softverbs_tcp.h"

#include "soft/soft.h"

#define HEADER 24u
#define ROOM 2048u /* of a receive */

static struct tcp_pair p;

static int open_pair(void **state) {
    (void)state;
    tcp_open(&p, &(struct tcp_options){
                     .o = {.inline_bytes = 256, .sends = 8}, .crc = true, .extended = true});
    return 0;
}

static int shut(void **state) {
    (void)state;
    tcp_close(&p);
    return 0;
}

static int post(uint32_t bytes, uint64_t wr_id) {
    return soft_post_framed(p.a.qp, 1 + wr_id, 2 + wr_id, p.a.buf, bytes, wr_id);
}

/* It is taken, at the latest when the engine let go of the queue pair: the call does not wait for its lock. */
static void put(uint32_t bytes, uint64_t wr_id) {
    int rc = EAGAIN;
    sv_until((rc = post(bytes, wr_id)) != EAGAIN);
    assert_int_equal(rc, 0);
}

static void check(uint64_t wr_id, uint32_t bytes) {
    const uint64_t header[] = {1 + wr_id, 2 + wr_id, 0};
    struct ibv_wc wc = sv_poll(p.b.rcq);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    must_data_equal(wc.byte_len, HEADER + bytes);
    must_data_bytes(p.b.buf, header, HEADER);
    must_data_bytes(p.b.buf + HEADER, p.a.buf, bytes);
}

TEST_WITH(open_pair, shut, a_header_and_bytes_arrive_as_one_message) {
    for (uint32_t bytes = 0; bytes <= p.a.cap.max_inline_data - HEADER; bytes++) {
        sv_fill(p.a.buf, bytes + 1, bytes);
        tcp_recv(&p, bytes, 0, ROOM, 1);
        put(bytes | SOFT_FRAMED_SIGNALED, bytes);
        check(bytes, bytes);
        tcp_expect(p.a.scq, bytes, IBV_WC_SUCCESS);
    }
}

/* As with ibv_post_send(), and in order with it. */
TEST_WITH(open_pair, shut, only_the_last_one_is_signalled) {
    const struct ibv_send_wr plain = {
        .wr_id = 3, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
    for (unsigned i = 0; i < 4; i++)
        tcp_recv(&p, i, i * ROOM, ROOM, 1);
    put(10, 0);
    put(20, 1);
    put(30, 2);
    assert_int_equal(tcp_post(&p, plain, 0, 40, 1), 0);
    for (unsigned i = 0; i < 4; i++)
        must_data_equal(sv_poll(p.b.rcq).byte_len, i < 3 ? HEADER + 10 * (i + 1) : 40);
    tcp_expect(p.a.scq, 3, IBV_WC_SUCCESS);
}

TEST_WITH(open_pair, shut, what_does_not_fit_is_not_begun) {
    const unsigned queue = p.a.cap.max_send_wr;
    assert_int_equal(post(p.a.cap.max_inline_data - HEADER + 1, 1), EAGAIN);
    tcp_recv(&p, 0, 0, ROOM, 1);
    for (unsigned i = 0; i < queue; i++)
        put(8 | SOFT_FRAMED_SIGNALED, i);
    assert_int_equal(post(8, queue), EAGAIN);
    check(0, 8);
    for (unsigned i = 1; i < queue; i++) {
        tcp_recv(&p, i, 0, ROOM, 1);
        check(i, 8);
    }
    for (unsigned i = 0; i < queue; i++)
        tcp_expect(p.a.scq, i, IBV_WC_SUCCESS);
    sv_stays_empty(p.a.scq, p.b.rcq);
}

TEST_WITH(open_pair, shut, a_queue_pair_that_ended_takes_none) {
    assert_int_equal(sv_to(&p.a, IBV_QPS_ERR), 0);
    assert_int_equal(post(8, 1), EAGAIN);
}
