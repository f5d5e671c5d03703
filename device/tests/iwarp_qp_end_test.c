/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * iwarp_qp_end_test.c - how a queue pair over TCP ends: what is refused and what both ends hear of it, connections that
 * break in the middle, peers that say nothing right, memory that goes away, and that nothing is left behind.
 */
#include "support/softverbs_tcp.h"

#include "support/rows.h"

#define BYTES 65536u
#define HALF 32768u /* where b's memory for the peer begins */

static struct tcp_pair p;

static int open_plain(void **state) {
    (void)state;
    tcp_open(&p, &(struct tcp_options){.crc = true});
    return 0;
}

static int open_impatient(void **state) {
    (void)state;
    tcp_open(&p, &(struct tcp_options){.o = {.finite_rnr = true}, .crc = true});
    return 0;
}

static int shut(void **state) {
    (void)state;
    tcp_close(&p);
    return 0;
}

static struct ibv_send_wr request(uint64_t wr_id, enum ibv_wr_opcode opcode) {
    return (struct ibv_send_wr){
        .wr_id = wr_id,
        .opcode = opcode,
        .send_flags = IBV_SEND_SIGNALED,
        .wr.rdma = {.remote_addr = (uintptr_t)p.b.buf + HALF, .rkey = p.open->rkey}};
}

static void expect_event(struct sv_end *e, enum ibv_event_type type) {
    sv_async(e->ctx, type, e->qp);
}

static void both_are_down(void) {
    tcp_wait_down(&p.a);
    tcp_wait_down(&p.b);
}

/* ---- what is refused ------------------------------------------------------------------------------------- */

struct access {
    enum ibv_wr_opcode opcode;
    uint32_t key; /* added to the right one */
    uint64_t at;
    bool own_key; /* of memory that is not open */
};

static void what_the_peer_may_not_ends_both(void **state) {
    const struct access *access = *state;
    bool read = access->opcode == IBV_WR_RDMA_READ;
    struct ibv_send_wr wr = request(3, access->opcode);
    wr.wr.rdma.rkey = access->own_key ? p.b.mr->rkey : p.open->rkey + access->key;
    wr.wr.rdma.remote_addr += access->at;
    tcp_recv(&p, 1, 0, 64, 1);
    assert_int_equal(sv_recv(&p.a, 2, 0, 64), 0);
    assert_int_equal(tcp_post(&p, wr, 0, 64, 1), 0);
    tcp_expect(p.a.scq, 3, read ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS);
    tcp_expect(p.b.rcq, 1, IBV_WC_WR_FLUSH_ERR);
    tcp_expect(p.a.rcq, 2, IBV_WC_WR_FLUSH_ERR);
    expect_event(&p.b, IBV_EVENT_QP_ACCESS_ERR);
    both_are_down();
    for (unsigned i = 0; i < BYTES; i++)
        must_data_equal(p.b.buf[i], 0);
}

#define WITH(open, name) TEST_WITH(open, shut, name)

WITH(open_plain, too_many_reads_are_an_invalid_request) {
    soft_qp_of(p.b.qp)->attr.max_dest_rd_atomic = 0;
    assert_int_equal(tcp_post(&p, request(3, IBV_WR_RDMA_READ), 0, 64, 1), 0);
    tcp_expect(p.a.scq, 3, IBV_WC_REM_OP_ERR);
    expect_event(&p.b, IBV_EVENT_QP_REQ_ERR);
    both_are_down();
}

WITH(open_plain, a_message_longer_than_its_receive_ends_both) {
    tcp_recv(&p, 1, 0, 63, 1);
    tcp_recv(&p, 2, 0, 63, 1);
    assert_int_equal(sv_send(&p.a, 3, 0, 64, IBV_SEND_SIGNALED), 0);
    assert_int_equal(tcp_post(&p, request(4, IBV_WR_RDMA_READ), 0, 64, 1), 0);
    tcp_expect(p.a.scq, 3, IBV_WC_SUCCESS); /* it was handed over */
    tcp_expect(p.a.scq, 4, IBV_WC_REM_INV_REQ_ERR);
    tcp_expect(p.b.rcq, 1, IBV_WC_LOC_LEN_ERR);
    tcp_expect(p.b.rcq, 2, IBV_WC_WR_FLUSH_ERR);
    both_are_down();
}

WITH(open_plain, memory_of_ones_own_that_is_not_good_is_a_protection_error) {
    struct ibv_sge sge = {(uintptr_t)p.b.buf, 64, p.b.mr->lkey + 1};
    struct ibv_recv_wr *bad, wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1};
    assert_int_equal(ibv_post_recv(p.b.qp, &wr, &bad), 0);
    assert_int_equal(sv_send(&p.a, 3, 0, 64, IBV_SEND_SIGNALED), 0);
    tcp_expect(p.b.rcq, 1, IBV_WC_LOC_PROT_ERR);
    both_are_down();
}

WITH(open_plain, a_send_from_memory_that_is_not_good_ends_it) {
    tcp_recv(&p, 1, 0, 64, 1);
    tcp_recv(&p, 2, 0, 64, 1);
    struct ibv_sge sge = {(uintptr_t)p.a.buf + BYTES - 10, 11, p.a.mr->lkey};
    struct ibv_send_wr *bad,
        wr = {.wr_id = 4, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
    assert_int_equal(sv_send(&p.a, 3, 0, 64, IBV_SEND_SIGNALED), 0);
    assert_int_equal(ibv_post_send(p.a.qp, &wr, &bad), 0);
    assert_int_equal(sv_send(&p.a, 5, 0, 64, IBV_SEND_SIGNALED), 0);
    tcp_expect(p.a.scq, 3, IBV_WC_SUCCESS);
    tcp_expect(p.a.scq, 4, IBV_WC_LOC_PROT_ERR);
    tcp_expect(p.a.scq, 5, IBV_WC_WR_FLUSH_ERR);
    tcp_expect(p.b.rcq, 1, IBV_WC_SUCCESS);
    tcp_expect(p.b.rcq, 2, IBV_WC_WR_FLUSH_ERR);
    both_are_down();
}

WITH(open_impatient, without_a_receive_it_ends_when_patience_does) {
    assert_int_equal(sv_send(&p.a, 3, 0, 64, IBV_SEND_SIGNALED), 0);
    tcp_expect(p.a.scq, 3, IBV_WC_SUCCESS);
    assert_int_equal(tcp_post(&p, request(4, IBV_WR_RDMA_READ), 0, 64, 1), 0);
    tcp_expect(p.a.scq, 4, IBV_WC_RNR_RETRY_EXC_ERR);
    both_are_down();
}

/* ---- by one side's will ---------------------------------------------------------------------------------- */

WITH(open_plain, what_one_side_ends_the_other_hears_of) {
    for (unsigned i = 0; i < 3; i++) {
        tcp_recv(&p, i, 0, 64, 1);
        assert_int_equal(sv_recv(&p.a, i, 0, 64), 0);
    }
    assert_int_equal(sv_send(&p.a, 9, 0, 64, IBV_SEND_SIGNALED), 0);
    assert_int_equal(sv_to(&p.a, IBV_QPS_ERR), 0);
    tcp_expect(p.a.scq, 9, IBV_WC_SUCCESS);
    for (unsigned i = 0; i < 3; i++)
        tcp_expect(p.a.rcq, i, IBV_WC_WR_FLUSH_ERR);
    tcp_expect(p.b.rcq, 0, IBV_WC_SUCCESS); /* what was sent before arrives */
    tcp_expect(p.b.rcq, 1, IBV_WC_WR_FLUSH_ERR);
    tcp_expect(p.b.rcq, 2, IBV_WC_WR_FLUSH_ERR);
    both_are_down();
    assert_int_equal(sv_send(&p.b, 4, 0, 64, IBV_SEND_SIGNALED), 0);
    tcp_expect(p.b.scq, 4, IBV_WC_WR_FLUSH_ERR);
}

WITH(open_plain, a_destroyed_one_leaves_no_descriptor) {
    unsigned before = sv_fds();
    tcp_recv(&p, 1, 0, 64, 1);
    assert_int_equal(soft_destroy_qp(p.a.qp), 0);
    p.a.qp = NULL;
    tcp_expect(p.b.rcq, 1, IBV_WC_WR_FLUSH_ERR);
    tcp_wait_down(&p.b);
    sv_until(sv_fds() == before - 2);
}

WITH(open_plain, after_a_reset_another_socket_does) {
    int fd[2];
    struct tcp_options o = {.crc = false};
    assert_int_equal(sv_to(&p.a, IBV_QPS_RESET), 0);
    tcp_wait_down(&p.b);
    assert_int_equal(sv_to(&p.b, IBV_QPS_RESET), 0);
    tcp_sockets(fd, 0);
    tcp_connect(&p.a, fd[0], &o);
    tcp_connect(&p.b, fd[1], &o);
    tcp_recv(&p, 1, 0, 64, 1);
    assert_int_equal(sv_send(&p.a, 2, 0, 64, IBV_SEND_SIGNALED), 0);
    tcp_expect(p.b.rcq, 1, IBV_WC_SUCCESS);
    tcp_expect(p.a.scq, 2, IBV_WC_SUCCESS);
    assert_int_equal(tcp_post(&p, request(3, IBV_WR_RDMA_READ), 0, 64, 1), 0);
    tcp_expect(p.a.scq, 3, IBV_WC_SUCCESS);
}

#define ACCESS(name, ...)                                                                          \
    ROW_WITH(open_plain, shut, name, what_the_peer_may_not_ends_both, access, __VA_ARGS__)

TEST_CASES(ACCESS(a_write_by_no_key, IBV_WR_RDMA_WRITE, .key = 1),
           ACCESS(a_write_past_the_end, IBV_WR_RDMA_WRITE, .at = BYTES - HALF - 63),
           ACCESS(a_write_without_the_right, IBV_WR_RDMA_WRITE, .own_key = true),
           ACCESS(a_read_by_no_key, IBV_WR_RDMA_READ, .key = 1),
           ACCESS(a_read_past_the_end, IBV_WR_RDMA_READ, .at = BYTES - HALF - 63),
           ACCESS(a_read_without_the_right, IBV_WR_RDMA_READ, .own_key = true));
