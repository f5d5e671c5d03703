/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs_send_test.c - SEND and RECV: completions and their fields, immediate data, inline,
 * scatter/gather lists, signalling, queue limits, what post refuses. Both ends in this process.
 */
#include "support/softverbs.h"
#include "soft/object/ring.h"

#include <arpa/inet.h>

static struct sv_end a, b;

static void open_pair(struct sv_options o) {
    sv_pair(&a, o, &b, o);
}

static int close_pair(void **state) {
    (void)state;
    sv_unpair(&a, &b);
    return 0;
}

static int open_default(void **state) {
    (void)state;
    open_pair(SV_OPTIONS());
    return 0;
}

static int open_wide(void **state) {
    (void)state;
    open_pair(SV_OPTIONS(.send_sge = 16, .recv_sge = 16));
    return 0;
}

static int open_short(void **state) {
    (void)state;
    open_pair(SV_OPTIONS(.sends = 4, .recvs = 8));
    return 0;
}

static int open_sig_all(void **state) {
    (void)state;
    open_pair(SV_OPTIONS(.sig_all = true, .one_cq = true));
    return 0;
}

static void expect_recv(uint64_t wr_id, uint32_t bytes) {
    struct ibv_wc wc = sv_poll(b.rcq);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    must_data_equal(wc.wr_id, wr_id);
    must_data_equal(wc.byte_len, bytes);
}

static void expect_sent(uint64_t wr_id) {
    struct ibv_wc wc = sv_poll(a.scq);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    must_data_equal(wc.wr_id, wr_id);
}

/* ---- completions ------------------------------------------------------------------------------- */

#define WITH(open, name) TEST_WITH(open, close_pair, name)

WITH(open_default, a_message_arrives_with_every_field_of_its_completions) {
    sv_fill(a.buf, 100, 1);
    assert_int_equal(sv_recv(&b, 0x1122334455667788, 200, 300), 0);
    assert_int_equal(sv_send(&a, 0x8877665544332211, 0, 100, IBV_SEND_SIGNALED), 0);
    struct ibv_wc wc = sv_poll(b.rcq);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    assert_int_equal(wc.opcode, IBV_WC_RECV);
    must_data(wc.wr_id == 0x1122334455667788);
    must_data_equal(wc.byte_len, 100);
    assert_int_equal(wc.qp_num, b.qp->qp_num);
    assert_int_equal(wc.wc_flags, 0);
    sv_check(b.buf + 200, 100, 1);
    for (size_t i = 300; i < 500; i++) /* nothing behind the message was touched */
        must_data_equal(b.buf[i], 0);
    wc = sv_poll(a.scq);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    assert_int_equal(wc.opcode, IBV_WC_SEND);
    must_data(wc.wr_id == 0x8877665544332211);
    assert_int_equal(wc.qp_num, a.qp->qp_num);
    assert_int_equal(wc.wc_flags, 0);
    sv_stays_empty(a.scq, b.rcq);
}

WITH(open_default, immediate_data_arrives_untouched) {
    const uint32_t imm[] = {0, 1, 0xffffffff, htonl(0x01020304)};
    const uint32_t bytes[] = {0, 5, 448, 5000};
    for (unsigned i = 0; i < 4; i++) {
        sv_fill(a.buf, bytes[i], i);
        struct ibv_sge sge = sv_sge(&a, 0, bytes[i]);
        struct ibv_send_wr wr = {.wr_id = i,
                                 .sg_list = &sge,
                                 .num_sge = bytes[i] ? 1 : 0,
                                 .opcode = IBV_WR_SEND_WITH_IMM,
                                 .send_flags = IBV_SEND_SIGNALED,
                                 .imm_data = imm[i]},
                           *bad;
        assert_int_equal(sv_recv(&b, i, 0, 8192), 0);
        assert_int_equal(ibv_post_send(a.qp, &wr, &bad), 0);
        struct ibv_wc wc = sv_poll(b.rcq);
        assert_int_equal(wc.status, IBV_WC_SUCCESS);
        assert_int_equal(wc.opcode, IBV_WC_RECV);
        assert_int_equal(wc.wc_flags, IBV_WC_WITH_IMM);
        must_data_equal(wc.imm_data, imm[i]);
        must_data_equal(wc.byte_len, bytes[i]);
        sv_check(b.buf, bytes[i], i);
        wc = sv_poll(a.scq);
        assert_int_equal(wc.status, IBV_WC_SUCCESS);
        assert_int_equal(wc.opcode, IBV_WC_SEND);
    }
}

/* ---- inline ------------------------------------------------------------------------------------ */

static int post_inline(const void *data, size_t bytes, uint32_t lkey) {
    struct ibv_sge sge = {(uintptr_t)data, (uint32_t)bytes, lkey};
    struct ibv_send_wr wr = {.sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_SEND,
                             .send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED},
                       *bad;
    return ibv_post_send(a.qp, &wr, &bad);
}

WITH(open_default, inline_payload_is_taken_before_post_returns) {
    uint8_t data[SOFT_MAX_INLINE + 1]; /* the stack: no registration, lkey ignored */
    assert_true(a.cap.max_inline_data >= 1 && a.cap.max_inline_data <= SOFT_MAX_INLINE);
    const uint32_t sizes[] = {0, 1, a.cap.max_inline_data - 1, a.cap.max_inline_data};
    for (unsigned i = 0; i < 4; i++) {
        sv_fill(data, sizes[i], i);
        assert_int_equal(post_inline(data, sizes[i], 0xdeadbeef), 0);
        memset(data, 0xee, sizeof data);
        assert_int_equal(sv_recv(&b, i, 0, 1024), 0);
        expect_recv(i, sizes[i]);
        sv_check(b.buf, sizes[i], i);
        assert_int_equal(sv_poll(a.scq).status, IBV_WC_SUCCESS);
    }
    assert_int_equal(post_inline(data, a.cap.max_inline_data + 1, a.mr->lkey), EINVAL);
}

/* Also when there is no room in the ring and the work request has to wait. */
WITH(open_default, inline_payload_of_a_waiting_send_is_kept) {
    uint8_t data[64];
    const unsigned count = 64; /* more than the ring has slots, and no receive yet */
    assert_true(count > SOFT_RING_SLOTS);
    for (unsigned i = 0; i < count; i++) {
        sv_fill(data, sizeof data, i);
        assert_int_equal(post_inline(data, sizeof data, 0), 0);
    }
    memset(data, 0xee, sizeof data);
    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(sv_recv(&b, i, 0, 64), 0);
        expect_recv(i, 64);
        sv_check(b.buf, 64, i);
    }
    for (unsigned i = 0; i < count; i++)
        assert_int_equal(sv_poll(a.scq).status, IBV_WC_SUCCESS);
}

/* ---- lists of buffers -------------------------------------------------------------------------- */

/* Sends `bytes` in `pieces` uneven pieces that do not touch each other. */
static int post_pieces(size_t bytes, int pieces, unsigned flags, uint32_t seed) {
    struct ibv_sge sge[16];
    size_t at = 0, done = 0;
    for (int i = 0; i < pieces; i++) {
        size_t n = i == pieces - 1 ? bytes - done : (bytes * (size_t)(i + 1) / 37 + (size_t)i % 3);
        if (n > bytes - done)
            n = bytes - done;
        sge[i] = sv_sge(&a, at, n);
        for (size_t k = 0; k < n; k++)
            a.buf[at + k] = sv_byte(done + k, seed);
        at += n + 3;
        done += n;
    }
    struct ibv_send_wr wr = {.wr_id = bytes,
                             .sg_list = pieces ? sge : NULL,
                             .num_sge = pieces,
                             .opcode = IBV_WR_SEND,
                             .send_flags = flags | IBV_SEND_SIGNALED},
                       *bad;
    return ibv_post_send(a.qp, &wr, &bad);
}

WITH(open_wide, lists_of_0_1_and_16_buffers_cross_slots) {
    const size_t sizes[] = {1,   2,   16,  111, 112, 113, 223, 224, 225, 336,
                            337, 447, 448, 449, 560, 895, 896, 897, 4000};
    const int pieces[] = {1, 2, 7, 16};
    for (unsigned s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (unsigned p = 0; p < 4; p++) {
            assert_int_equal(sv_recv(&b, 9, 0, 8192), 0);
            assert_int_equal(post_pieces(sizes[s], pieces[p], 0, s), 0);
            expect_recv(9, (uint32_t)sizes[s]);
            sv_check(b.buf, sizes[s], s);
            expect_sent(sizes[s]);
        }
    assert_int_equal(sv_recv(&b, 9, 0, 8192), 0);
    assert_int_equal(post_pieces(0, 0, 0, 0), 0);
    expect_recv(9, 0);
    expect_sent(0);
    assert_int_equal(sv_recv(&b, 9, 0, 8192), 0);
    assert_int_equal(post_pieces(0, 1, 0, 0), 0); /* one empty buffer */
    expect_recv(9, 0);
    expect_sent(0);
}

WITH(open_wide, inline_lists_are_gathered) {
    for (int pieces = 1; pieces <= 16; pieces += 5) {
        assert_int_equal(sv_recv(&b, 9, 0, 8192), 0);
        assert_int_equal(post_pieces(a.cap.max_inline_data, pieces, IBV_SEND_INLINE, 5), 0);
        expect_recv(9, a.cap.max_inline_data);
        sv_check(b.buf, a.cap.max_inline_data, 5);
        expect_sent(a.cap.max_inline_data);
    }
}

/* Receives of 16 buffers, some empty; a message ends in the middle of one. */
WITH(open_wide, receives_are_scattered) {
    const size_t lengths[16] = {1, 0, 3, 112, 0, 113, 7, 500, 0, 1, 1, 1, 64, 2000, 0, 3000};
    const size_t sizes[] = {0, 1, 2, 115, 116, 117, 229, 230, 448, 449, 2805, 5803};
    for (unsigned s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        struct ibv_sge sge[16];
        size_t at = 0;
        memset(b.buf, 0, 8192);
        for (int i = 0; i < 16; i++) {
            sge[i] = sv_sge(&b, at, lengths[i]);
            at += lengths[i] + 5;
        }
        struct ibv_recv_wr wr = {.wr_id = s, .sg_list = sge, .num_sge = 16}, *bad;
        assert_int_equal(ibv_post_recv(b.qp, &wr, &bad), 0);
        sv_fill(a.buf, sizes[s], s);
        assert_int_equal(sv_send(&a, s, 0, sizes[s], IBV_SEND_SIGNALED), 0);
        expect_recv(s, (uint32_t)sizes[s]);
        expect_sent(s);
        size_t done = 0;
        at = 0;
        for (int i = 0; i < 16; i++) {
            for (size_t k = 0; k < lengths[i] + 5; k++) {
                bool part = k < lengths[i] && done < sizes[s];
                must_data_equal(b.buf[at + k], part ? sv_byte(done, s) : 0);
                done += part;
            }
            at += lengths[i] + 5;
        }
        assert_int_equal(done, sizes[s]);
    }
}

/* ---- signalling and limits --------------------------------------------------------------------- */

WITH(open_short, an_unsignaled_send_frees_its_place_only_with_a_later_completion) {
    assert_int_equal(a.cap.max_send_wr, 4);
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(sv_recv(&b, i, 0, 64), 0);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(sv_send(&a, i, 0, 8, 0), 0);
    for (unsigned i = 0; i < 3; i++)
        expect_recv(i, 8);
    sv_stays_empty(a.scq, b.rcq); /* arrived, acknowledged, and silent */
    assert_int_equal(sv_send(&a, 3, 0, 8, IBV_SEND_SIGNALED), 0);
    assert_int_equal(sv_send(&a, 4, 0, 8, 0), ENOMEM);
    expect_recv(3, 8);
    expect_sent(3);
    for (unsigned i = 4; i < 8; i++) /* all four places are free again */
        assert_int_equal(sv_send(&a, i, 0, 8, IBV_SEND_SIGNALED), 0);
    assert_int_equal(sv_send(&a, 8, 0, 8, 0), ENOMEM);
    for (unsigned i = 4; i < 8; i++) {
        expect_recv(i, 8);
        expect_sent(i);
    }
}

WITH(open_default, a_list_stops_at_the_first_bad_request) {
    struct ibv_sge sge[2] = {sv_sge(&a, 0, 8), sv_sge(&a, 0, 8)};
    struct ibv_send_wr wr[3], *bad = NULL;
    for (unsigned row = 0; row < 5; row++) {
        for (unsigned i = 0; i < 3; i++)
            wr[i] = (struct ibv_send_wr){.wr_id = i,
                                         .next = i < 2 ? &wr[i + 1] : NULL,
                                         .sg_list = sge,
                                         .num_sge = 1,
                                         .opcode = IBV_WR_SEND,
                                         .send_flags = IBV_SEND_SIGNALED};
        struct ibv_sge huge[3] = {sv_sge(&a, 0, 0xffffffff), sv_sge(&a, 0, 0xffffffff),
                                  sv_sge(&a, 0, 8)};
        switch (row) {
        case 0:
            wr[1].opcode = (enum ibv_wr_opcode)99;
            break;
        case 1:
            wr[1].num_sge = -1;
            break;
        case 2:
            wr[1].num_sge = (int)a.cap.max_send_sge + 1;
            break;
        case 3: /* more bytes than a message can have */
            wr[1].sg_list = huge;
            wr[1].num_sge = 3;
            break;
        case 4:
            wr[1].send_flags |= IBV_SEND_INLINE;
            wr[1].sg_list = huge;
            break;
        }
        assert_int_equal(ibv_post_send(a.qp, wr, &bad), EINVAL);
        assert_ptr_equal(bad, &wr[1]);
        assert_int_equal(sv_recv(&b, 7, 0, 64), 0);
        expect_recv(7, 8);
        expect_sent(0);
        sv_stays_empty(a.scq, b.rcq); /* neither the bad one nor what followed it */
    }
    struct ibv_recv_wr recv[2] = {{.wr_id = 1, .next = &recv[1], .sg_list = sge, .num_sge = 1},
                                  {.wr_id = 2, .sg_list = sge, .num_sge = 5}},
                       *bad_recv = NULL;
    sge[0] = sv_sge(&b, 0, 64);
    for (int n = -1; n <= 5; n += 6) {
        recv[1].num_sge = n;
        assert_int_equal(ibv_post_recv(b.qp, recv, &bad_recv), EINVAL);
        assert_ptr_equal(bad_recv, &recv[1]);
        assert_int_equal(sv_send(&a, 0, 0, 8, IBV_SEND_SIGNALED), 0);
        expect_recv(1, 8);
        expect_sent(0);
    }
}

/* A program that polls one completion at a time and is sent more than it can take. */
WITH(open_sig_all, a_poll_of_one_gets_send_completions_between_receives) {
    struct ibv_wc wc;
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(sv_recv(&a, i, 0, 64), 0);
    assert_int_equal(sv_recv(&b, 0, 0, 64), 0);
    assert_int_equal(sv_send(&a, 100, 0, 8, 0), 0);
    must_data_equal(sv_poll(b.rcq).wr_id, 0);
    for (unsigned i = 0; i < 8; i++) /* each of them acknowledges */
        assert_int_equal(sv_send(&b, 200 + i, 0, 8, 0), 0);
    unsigned at = 0, sent_at = 0;
    for (unsigned got = 0; got < 9; got++) {
        int n;
        sv_until((n = ibv_poll_cq(a.rcq, 1, &wc)) != 0);
        assert_int_equal(n, 1);
        assert_int_equal(wc.status, IBV_WC_SUCCESS);
        at++;
        if (wc.opcode == IBV_WC_SEND)
            sent_at = at;
    }
    assert_uint_in_range(sent_at, 1, 2);
}
