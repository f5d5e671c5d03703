/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * iwarp_qp_memory_test.c - a queue pair over TCP: memory that goes away while the peer writes it, or while it is sent. The
 * peer is played by hand, so that it stops in the middle.
 */
#include "support/softverbs_tcp_peer.h"

#include "soft/iwarp/terminate.h"
#include "soft/object/mw.h"
#include "soft/verbs/mw.h"
#include "support/iwarp.h"

static struct tcp_peer p;

static int open_plain(void **state) {
    (void)state;
    tcp_peer_open(&p, &(struct tcp_options){0});
    return 0;
}

static int open_narrow(void **state) {
    (void)state;
    tcp_peer_open(&p, &(struct tcp_options){.buffer = 4096});
    return 0;
}

static int shut(void **state) {
    (void)state;
    tcp_peer_close(&p);
    return 0;
}

#define WITH(open, name) TEST_WITH(open, shut, name)

/* So many READs of the peer have come, and the socket is full. */
static void wait_asked(uint32_t count) {
    struct soft_qp *qp = soft_qp_of(p.e.qp);
    uint32_t asked;
    do {
        spin_lock(&qp->lock);
        asked = qp->answer_tail;
        spin_unlock(&qp->lock);
    } while (asked < count);
}

WITH(open_plain, a_write_ends_with_the_key_that_it_used) {
    size_t said = tcp_peer_say_most(&p, IWARP_WRITE, p.e.buf + TCP_PEER_TARGET);
    assert_int_equal(soft_dereg_mr(p.open), 0);
    p.open = NULL;
    memset(p.e.buf + TCP_PEER_TARGET, 0xee, TCP_PEER_LARGE);
    (void)send(p.fd, p.frame + said, 10000, MSG_NOSIGNAL);
    tcp_peer_expect_end(&p, IWARP_TAGGED_STAG);
    tcp_peer_flushed_from(&p, 0);
    for (unsigned i = 0; i < TCP_PEER_LARGE; i++)
        must_data_equal(p.e.buf[TCP_PEER_TARGET + i], 0xee);
    sv_async(p.e.ctx, IBV_EVENT_QP_ACCESS_ERR, NULL);
}

WITH(open_plain, a_window_that_is_taken_back_is_written_no_more) {
    struct ibv_mw *mw = soft_alloc_mw(p.e.pd, IBV_MW_TYPE_2);
    assert_non_null(mw);
    uint32_t rkey = mw->rkey ^ 1;
    struct ibv_mw_bind_info info = {p.open, (uintptr_t)p.e.buf + TCP_PEER_TARGET, 65536,
                                    IBV_ACCESS_REMOTE_WRITE};
    assert_int_equal(sv_bind(p.e.qp, mw, rkey, info), 0);
    tcp_expect(p.e.scq, 5, IBV_WC_SUCCESS);
    struct iwarp_ddp ddp = tcp_peer_message(&p, IWARP_WRITE);
    ddp.stag = rkey;
    size_t bytes = iwarp_frame(p.frame, &ddp, p.payload, TCP_PEER_LARGE);
    tcp_peer_say(&p, p.frame, bytes - 10000);
    tcp_peer_wait_taken(&p, p.e.buf + TCP_PEER_TARGET + TCP_PEER_LARGE - 11000,
                        sv_byte(TCP_PEER_LARGE - 11000, 1));
    assert_int_equal(sv_invalidate(p.e.qp, rkey), 0);
    tcp_expect(p.e.scq, 6, IBV_WC_SUCCESS);
    memset(p.e.buf + TCP_PEER_TARGET, 0xee, TCP_PEER_LARGE);
    tcp_peer_say(&p, p.frame + bytes - 10000, 10000);
    tcp_peer_expect_end(&p, IWARP_TAGGED_STAG);
    tcp_peer_flushed_from(&p, 0);
    for (unsigned i = 0; i < TCP_PEER_LARGE; i++)
        must_data_equal(p.e.buf[TCP_PEER_TARGET + i], 0xee);
    assert_int_equal(soft_dealloc_mw(mw), 0);
}

WITH(open_plain, a_receive_that_goes_away_is_filled_no_more) {
    struct ibv_mr *mr = p.e.mr;
    size_t said = tcp_peer_say_most(&p, IWARP_SEND, p.e.buf);
    assert_int_equal(soft_dereg_mr(mr), 0);
    memset(p.e.buf, 0xee, TCP_PEER_LARGE);
    tcp_peer_say(&p, p.frame + said, 10000);
    tcp_peer_expect_end(&p, IWARP_LOCAL_CATASTROPHIC);
    tcp_expect(p.e.rcq, 0, IBV_WC_LOC_PROT_ERR);
    tcp_peer_flushed_from(&p, 1);
    for (unsigned i = 0; i < TCP_PEER_LARGE; i++)
        must_data_equal(p.e.buf[i], 0xee);
    p.e.mr = soft_reg_mr(p.e.pd, p.e.buf, 65536, IBV_ACCESS_LOCAL_WRITE);
}

WITH(open_plain, where_a_read_goes_is_filled_no_more) {
    struct ibv_sge sge = sv_sge(&p.e, 0, TCP_PEER_LARGE);
    struct ibv_send_wr *bad, wr = {.wr_id = 7,
                                   .sg_list = &sge,
                                   .num_sge = 1,
                                   .opcode = IBV_WR_RDMA_READ,
                                   .send_flags = IBV_SEND_SIGNALED};
    assert_int_equal(ibv_post_send(p.e.qp, &wr, &bad), 0);
    struct iwarp_ddp ddp = {.opcode = IWARP_READ_RESPONSE, .last = true}; /* to the first request */
    size_t bytes = iwarp_frame(p.frame, &ddp, p.payload, TCP_PEER_LARGE);
    tcp_peer_say(&p, p.frame, bytes - 10000);
    tcp_peer_wait_taken(&p, p.e.buf + TCP_PEER_LARGE - 11000, sv_byte(TCP_PEER_LARGE - 11000, 1));
    assert_int_equal(soft_dereg_mr(p.e.mr), 0);
    memset(p.e.buf, 0xee, TCP_PEER_LARGE);
    tcp_peer_say(&p, p.frame + bytes - 10000, 10000);
    tcp_expect(p.e.scq, 7, IBV_WC_LOC_PROT_ERR);
    tcp_peer_flushed_from(&p, 0);
    for (unsigned i = 0; i < TCP_PEER_LARGE; i++)
        must_data_equal(p.e.buf[i], 0xee);
    p.e.mr = soft_reg_mr(p.e.pd, p.e.buf, 65536, IBV_ACCESS_LOCAL_WRITE);
}

/* What is written there afterwards is not the peer's to see, though it asked before and the socket had no room. */
WITH(open_narrow, a_window_that_is_taken_back_is_sent_no_more) {
    struct ibv_mw *mw = soft_alloc_mw(p.e.pd, IBV_MW_TYPE_2);
    assert_non_null(mw);
    uint32_t rkey = mw->rkey ^ 1;
    struct ibv_mw_bind_info info = {p.open, (uintptr_t)p.e.buf + TCP_PEER_TARGET, 65536,
                                    IBV_ACCESS_REMOTE_READ | SOFT_ACCESS_STILL};
    assert_int_equal(sv_bind(p.e.qp, mw, rkey, info), 0);
    tcp_expect(p.e.scq, 5, IBV_WC_SUCCESS);
    memset(p.e.buf + TCP_PEER_TARGET, 0x11, 65536);
    for (unsigned i = 1; i <= 2; i++)
        tcp_peer_say_read_of(&p, i, rkey, 20000); /* one batch */
    wait_asked(2);
    assert_int_equal(sv_invalidate(p.e.qp, rkey), 0);
    tcp_expect(p.e.scq, 6, IBV_WC_SUCCESS);
    memset(p.e.buf + TCP_PEER_TARGET, 0xee, 65536);
    unsigned secret = 0;
    ssize_t got;
    while ((got = recv(p.fd, p.frame, sizeof p.frame, 0)) > 0)
        for (ssize_t i = 0; i < got; i++)
            secret += p.frame[i] == 0xee;
    assert_in_range(secret, 0, 64); /* headers and check values may have such bytes */
    tcp_peer_flushed_from(&p, 0);
    assert_int_equal(soft_dealloc_mw(mw), 0);
}

/* Nothing of it is read after the call: the peer takes what it likes, later. */
WITH(open_narrow, memory_that_is_being_sent_ends_it) {
    struct ibv_mr *mr = p.e.mr;
    for (unsigned i = 0; i < 60; i++)
        assert_int_equal(sv_send(&p.e, i, 65536, 65536, 0), 0);
    assert_int_equal(soft_dereg_mr(mr), 0);
    tcp_wait_down(&p.e);
    p.e.mr = soft_reg_mr(p.e.pd, p.e.buf, 65536, IBV_ACCESS_LOCAL_WRITE);
}

WITH(open_narrow, an_answer_ends_with_the_key_that_it_used) {
    for (unsigned i = 1; i <= 4; i++)
        tcp_peer_say_read(&p, i, 65536);
    wait_asked(4);
    assert_int_equal(soft_dereg_mr(p.open), 0);
    p.open = NULL;
    tcp_peer_flushed_from(&p, 0);
}
