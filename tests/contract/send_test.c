/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * send_test.c - messages: every field of their completions, sizes, lists of buffers, immediate data,
 * inline payload, signalling, full queues, lists of requests.
 */
#include "contract/ends.h"
#include "support/verdict.h"

static struct ct_end a, b;

static int open_with(struct ct_options o) {
    ct_open_pair(&a, &b, o, o);
    return 0;
}

static int open_default(void **state) {
    (void)state;
    return open_with(CT_OPTIONS());
}

static int open_sig_all(void **state) {
    (void)state;
    return open_with(CT_OPTIONS(.sig_all = true));
}

static int open_inline(void **state) {
    (void)state;
    return open_with(CT_OPTIONS(.inline_bytes = facts.inline_most));
}

static int close_pair(void **state) {
    (void)state;
    ct_close(&a);
    ct_close(&b);
    return 0;
}

static void sent(uint64_t wr_id) {
    struct ibv_wc wc = ct_poll(a.scq);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    assert_int_equal(wc.opcode, IBV_WC_SEND);
    assert_int_equal(wc.wr_id, wr_id);
    assert_int_equal(wc.qp_num, a.qp->qp_num);
}

static void received(uint64_t wr_id, uint32_t bytes) {
    struct ibv_wc wc = ct_poll(b.rcq);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    assert_int_equal(wc.opcode, IBV_WC_RECV);
    assert_int_equal(wc.wr_id, wr_id);
    assert_int_equal(wc.byte_len, bytes);
    assert_int_equal(wc.qp_num, b.qp->qp_num);
    assert_false(wc.wc_flags & IBV_WC_WITH_IMM);
}

/* ---- one message ----------------------------------------------------------------------------------------- */

#define WITH(open, name) TEST_WITH(open, close_pair, name)

WITH(open_default, any_size_arrives_and_nothing_beside_it) {
    const uint32_t sizes[] = {0, 1, 7, 8, 64, 112, 449, 1023, 1024, 1025, 4096, 4097, 30000};
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        ct_fill(a.buf, sizes[i], i);
        memset(b.buf, 0x77, CT_BYTES);
        assert_int_equal(ct_recv(&b, 100 + i, 16, 40000), 0);
        assert_int_equal(ct_send(&a, i, 0, sizes[i], IBV_SEND_SIGNALED), 0);
        received(100 + i, sizes[i]);
        sent(i);
        ct_check(b.buf + 16, sizes[i], i);
        assert_int_equal(b.buf[15], 0x77);
        assert_int_equal(b.buf[16 + sizes[i]], 0x77);
    }
}

WITH(open_default, a_message_without_any_buffer_is_legal) {
    struct ibv_recv_wr recv = {.wr_id = 0, .num_sge = 0}, *bad_recv;
    struct ibv_send_wr wr = {.wr_id = UINT64_MAX, /* any number will do, 0 too */
                             .opcode = IBV_WR_SEND,
                             .send_flags = IBV_SEND_SIGNALED},
                       *bad;
    assert_int_equal(ibv_post_recv(b.qp, &recv, &bad_recv), 0);
    assert_int_equal(ibv_post_send(a.qp, &wr, &bad), 0);
    received(0, 0);
    sent(UINT64_MAX);
}

WITH(open_default, immediate_data_arrives_untouched) {
    struct ibv_sge sge = ct_sge(&a, 0, 24);
    struct ibv_send_wr wr = {.wr_id = 5,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_SEND_WITH_IMM,
                             .send_flags = IBV_SEND_SIGNALED,
                             .imm_data = htonl(0x01020304)},
                       *bad;
    ct_fill(a.buf, 24, 1);
    assert_int_equal(ct_recv(&b, 6, 0, 64), 0);
    assert_int_equal(ibv_post_send(a.qp, &wr, &bad), 0);
    struct ibv_wc wc = ct_poll(b.rcq);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    assert_int_equal(wc.opcode, IBV_WC_RECV);
    assert_int_equal(wc.wc_flags & IBV_WC_WITH_IMM, IBV_WC_WITH_IMM);
    assert_int_equal(ntohl(wc.imm_data), 0x01020304);
    assert_int_equal(wc.byte_len, 24);
    ct_check(b.buf, 24, 1);
    sent(5);
}

WITH(open_default, lists_are_gathered_and_scattered) {
    struct ibv_sge from[4] = {ct_sge(&a, 1000, 100), ct_sge(&a, 0, 0), ct_sge(&a, 5000, 3000),
                              ct_sge(&a, 3, 1)};
    struct ibv_sge to[4] = {ct_sge(&b, 10, 50), ct_sge(&b, 30000, 2000), ct_sge(&b, 0, 0),
                            ct_sge(&b, 40000, 5000)};
    struct ibv_send_wr wr = {.wr_id = 1,
                             .sg_list = from,
                             .num_sge = 4,
                             .opcode = IBV_WR_SEND,
                             .send_flags = IBV_SEND_SIGNALED},
                       *bad;
    struct ibv_recv_wr recv = {.wr_id = 2, .sg_list = to, .num_sge = 4}, *bad_recv;
    uint8_t whole[3101];
    ct_fill(whole, sizeof whole, 4);
    memcpy(a.buf + 1000, whole, 100);
    memcpy(a.buf + 5000, whole + 100, 3000);
    a.buf[3] = whole[3100];
    assert_int_equal(ibv_post_recv(b.qp, &recv, &bad_recv), 0);
    assert_int_equal(ibv_post_send(a.qp, &wr, &bad), 0);
    received(2, sizeof whole);
    sent(1);
    must_data_bytes(b.buf + 10, whole, 50);
    must_data_bytes(b.buf + 30000, whole + 50, 2000);
    must_data_bytes(b.buf + 40000, whole + 2050, sizeof whole - 2050);
}

/* ---- many messages ----------------------------------------------------------------------------------------- */

WITH(open_default, messages_and_receives_meet_in_order) {
    enum { COUNT = 48 };
    for (unsigned i = 0; i < COUNT; i++)
        assert_int_equal(ct_recv(&b, i, i * 1024, 1024), 0);
    for (unsigned i = 0; i < COUNT; i++) {
        ct_fill(a.buf + i * 1024, i * 17, i);
        assert_int_equal(ct_send(&a, i, i * 1024, i * 17, IBV_SEND_SIGNALED), 0);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        received(i, i * 17);
        ct_check(b.buf + i * 1024, i * 17, i);
    }
    for (unsigned i = 0; i < COUNT; i++)
        sent(i);
    ct_empty(a.scq);
    ct_empty(b.rcq);
}

WITH(open_default, a_list_of_requests_arrives_in_its_order) {
    enum { COUNT = 60 };
    struct ibv_send_wr wr[COUNT], *bad;
    struct ibv_recv_wr recv[COUNT], *bad_recv;
    struct ibv_sge from[COUNT], to[COUNT];
    for (unsigned i = 0; i < COUNT; i++) {
        size_t bytes = 1 + i * 13 % 700;
        ct_fill(a.buf + i * 1024, bytes, i);
        from[i] = ct_sge(&a, i * 1024, bytes);
        to[i] = ct_sge(&b, i * 1024, 1024);
        wr[i] = (struct ibv_send_wr){.wr_id = i,
                                     .next = i < COUNT - 1 ? &wr[i + 1] : NULL,
                                     .sg_list = &from[i],
                                     .num_sge = 1,
                                     .opcode = IBV_WR_SEND,
                                     .send_flags =
                                         i % 7 == 6 || i == COUNT - 1 ? IBV_SEND_SIGNALED : 0};
        recv[i] = (struct ibv_recv_wr){.wr_id = i,
                                       .next = i < COUNT - 1 ? &recv[i + 1] : NULL,
                                       .sg_list = &to[i],
                                       .num_sge = 1};
    }
    assert_int_equal(ibv_post_recv(b.qp, recv, &bad_recv), 0);
    assert_int_equal(ibv_post_send(a.qp, wr, &bad), 0);
    for (unsigned i = 0; i < COUNT; i++) {
        received(i, 1 + i * 13 % 700);
        ct_check(b.buf + i * 1024, 1 + i * 13 % 700, i);
    }
    for (unsigned i = 6; i < COUNT; i += 7) /* of the others nothing is heard */
        sent(i);
    sent(COUNT - 1);
    ct_empty(a.scq);
}

WITH(open_default, poll_returns_no_more_than_asked) {
    enum { COUNT = 8 };
    struct ibv_wc wc[COUNT];
    for (unsigned i = 0; i < COUNT; i++) {
        assert_int_equal(ct_recv(&b, i, 0, 64), 0);
        assert_int_equal(ct_send(&a, i, 0, 8, IBV_SEND_SIGNALED), 0);
    }
    struct ibv_cq *const queues[] = {b.rcq, a.scq};
    for (unsigned q = 0; q < 2; q++) {
        assert_int_equal(ibv_poll_cq(queues[q], 0, wc), 0);
        unsigned seen = 0;
        uint64_t end = ct_now_ms() + (uint64_t)facts.wait_ms;
        for (int most = 1; seen < COUNT && ct_now_ms() < end; most = most % 3 + 1) {
            int n = ibv_poll_cq(queues[q], most, wc);
            assert_uint_in_range(n, 0, most);
            for (int i = 0; i < n; i++)
                assert_int_equal(wc[i].wr_id, seen++);
        }
        assert_int_equal(seen, COUNT);
    }
}

WITH(open_sig_all, sq_sig_all_completes_every_send) {
    for (unsigned i = 0; i < 10; i++) {
        assert_int_equal(ct_recv(&b, i, 0, 64), 0);
        assert_int_equal(ct_send(&a, i, 0, 8, 0), 0);
        received(i, 8);
        sent(i);
    }
}

/* ---- inline ------------------------------------------------------------------------------------------------ */

static int post_inline(enum ibv_wr_opcode opcode, struct ibv_sge *sge, int count) {
    struct ibv_send_wr wr = {.wr_id = 9,
                             .sg_list = sge,
                             .num_sge = count,
                             .opcode = opcode,
                             .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE,
                             .wr.rdma = {(uintptr_t)b.buf, b.mr->rkey}},
                       *bad = NULL;
    int rc = ibv_post_send(a.qp, &wr, &bad);
    assert_true(rc == 0 || bad == &wr);
    return rc;
}

/* Copied before the post returns; the key is not looked at. */
WITH(open_inline, inline_payload_is_taken_at_once) {
    const uint32_t sizes[] = {1, 64, 80, 100, 101, 112, 113, 128, 224, 256, 447, 448, 449, 512};
    static uint8_t data[1024];
    assert_true(a.cap.max_inline_data >= facts.inline_most);
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        uint32_t size = sizes[i], some = size / 3;
        struct ibv_sge sge[2] = {{(uintptr_t)data, some, 0},
                                 {(uintptr_t)data + some, size - some, 12345}};
        if (size > facts.inline_most)
            break;
        ct_fill(data, size, i);
        assert_int_equal(post_inline(IBV_WR_SEND, sge, 2), 0); /* nobody can receive it yet */
        memset(data, 0, size);
        memset(b.buf, 0x77, size + 1);
        assert_int_equal(ct_recv(&b, 8, 0, size), 0);
        received(8, size);
        sent(9);
        ct_check(b.buf, size, i);
        assert_int_equal(b.buf[size], 0x77);
    }
}

WITH(open_inline, an_inline_write_may_be_as_long) {
    static uint8_t data[1024];
    struct ibv_sge sge = {(uintptr_t)data, facts.inline_most, 12345};
    ct_fill(data, sizeof data, 7);
    memset(b.buf, 0x77, sizeof data);
    assert_int_equal(post_inline(IBV_WR_RDMA_WRITE, &sge, 1), 0);
    memset(data, 0, sizeof data);
    ct_wc(a.scq, 9, IBV_WC_SUCCESS);
    ct_check(b.buf, facts.inline_most, 7);
    assert_int_equal(b.buf[facts.inline_most], 0x77);
}

WITH(open_inline, more_inline_than_the_queue_pair_has_is_einval) {
    static uint8_t data[65536];
    const enum ibv_wr_opcode opcodes[] = {IBV_WR_SEND, IBV_WR_RDMA_WRITE};
    struct ibv_sge sge = {(uintptr_t)data, a.cap.max_inline_data + 1, 0};
    assert_true(sge.length <= sizeof data);
    memset(b.buf, 0x77, sge.length);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(post_inline(opcodes[i], &sge, 1), EINVAL);
        ct_empty(a.scq);
    }
    for (unsigned i = 0; i < sge.length; i++)
        assert_int_equal(b.buf[i], 0x77);
}

/* ---- limits of the queues ------------------------------------------------------------------------------------ */

WITH(open_default, a_full_send_queue_names_the_first_that_did_not_fit) {
    struct ibv_sge sge = ct_sge(&a, 0, 8);
    unsigned room = a.cap.max_send_wr + facts.queue_spare;
    struct ibv_send_wr *wr = calloc(room + 2, sizeof *wr), *bad = NULL;
    assert_non_null(wr);
    for (unsigned i = 0; i < room + 2; i++)
        wr[i] = (struct ibv_send_wr){.wr_id = i,
                                     .next = i < room + 1 ? &wr[i + 1] : NULL,
                                     .sg_list = &sge,
                                     .num_sge = 1,
                                     .opcode = IBV_WR_SEND,
                                     .send_flags = IBV_SEND_SIGNALED};
    assert_int_equal(ibv_post_send(a.qp, wr, &bad), ENOMEM);
    assert_ptr_equal(bad, &wr[room]);
    for (unsigned i = 0; i < room; i++) { /* those before it are on their way */
        assert_int_equal(ct_recv(&b, i, 0, 64), 0);
        received(i, 8);
        sent(i);
    }
    ct_empty(a.scq);
    free(wr);
}

WITH(open_default, a_full_receive_queue_names_the_first_that_did_not_fit) {
    struct ibv_sge sge = ct_sge(&b, 0, 64);
    unsigned room = b.cap.max_recv_wr + facts.queue_spare;
    struct ibv_recv_wr *wr = calloc(room + 2, sizeof *wr), *bad = NULL;
    assert_non_null(wr);
    for (unsigned i = 0; i < room + 2; i++)
        wr[i] = (struct ibv_recv_wr){
            .wr_id = i, .next = i < room + 1 ? &wr[i + 1] : NULL, .sg_list = &sge, .num_sge = 1};
    assert_int_equal(ibv_post_recv(b.qp, wr, &bad), ENOMEM);
    assert_ptr_equal(bad, &wr[room]);
    assert_int_equal(ct_send(&a, 0, 0, 8, IBV_SEND_SIGNALED), 0);
    received(0, 8);
    sent(0);
    wr[room].next = NULL;
    assert_int_equal(ibv_post_recv(b.qp, &wr[room], &bad), 0); /* one place is free again */
    assert_int_equal(ibv_post_recv(b.qp, &wr[room], &bad), ENOMEM);
    free(wr);
}

WITH(open_default, a_list_stops_at_the_first_bad_request) {
    struct ibv_sge sge[16];
    struct ibv_send_wr wr[3], *bad = NULL;
    for (unsigned i = 0; i < 16; i++)
        sge[i] = ct_sge(&a, 0, 8);
    assert_true(a.cap.max_send_sge < 16);
    for (unsigned i = 0; i < 3; i++)
        wr[i] = (struct ibv_send_wr){.wr_id = i,
                                     .next = i < 2 ? &wr[i + 1] : NULL,
                                     .sg_list = sge,
                                     .num_sge = 1,
                                     .opcode = IBV_WR_SEND,
                                     .send_flags = IBV_SEND_SIGNALED};
    wr[1].num_sge = (int)a.cap.max_send_sge + 1;
    assert_int_equal(ibv_post_send(a.qp, wr, &bad), EINVAL);
    assert_ptr_equal(bad, &wr[1]);
    assert_int_equal(ct_recv(&b, 7, 0, 64), 0);
    received(7, 8);
    sent(0);
    ct_empty(a.scq); /* neither the bad one nor what followed it */
}

TEST_CASES({"more_inline_than_was_granted_unasked_is_einval",
            more_inline_than_the_queue_pair_has_is_einval, open_default, close_pair, NULL});

int main(void) {
    return ct_run();
}
