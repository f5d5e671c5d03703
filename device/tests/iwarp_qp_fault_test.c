/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * iwarp_qp_fault_test.c - faults of a plan, and a port that is down, on queue pairs over TCP: the connection breaks, bytes
 * change on the way, things are late or do not move at all.
 */
#include "support/fault.h"
#include "support/rows.h"
#include "support/softverbs_tcp_peer.h"

#include "soft/iwarp/qp_tcp.h"
#include "support/iwarp.h"

#define AREA 131072u /* of memory, twice */
#define MS 1000000ull

static struct tcp_pair p;
static struct tcp_peer peer;

static void open_with(struct sv_options o, bool crc) {
    o.bytes = 2 * AREA;
    tcp_open(&p, &(struct tcp_options){.o = o, .crc = crc});
}

static int open_plain(void **state) {
    (void)state;
    open_with(SV_OPTIONS(0), true);
    return 0;
}

static int shut(void **state) {
    (void)state;
    fault_clear();
    tcp_close(&p);
    return 0;
}

static struct ibv_send_wr request(uint64_t wr_id, enum ibv_wr_opcode opcode) {
    return (struct ibv_send_wr){
        .wr_id = wr_id,
        .opcode = opcode,
        .send_flags = IBV_SEND_SIGNALED,
        .wr.rdma = {.remote_addr = (uintptr_t)p.b.buf + AREA, .rkey = p.open->rkey}};
}

static void post(uint64_t wr_id, enum ibv_wr_opcode opcode, size_t bytes) {
    assert_int_equal(tcp_post(&p, request(wr_id, opcode), 0, bytes, 1), 0);
}

static void receives(unsigned count) {
    for (unsigned i = 1; i <= count; i++)
        tcp_recv(&p, i, AREA, AREA, 1);
}

static void both_down(void) {
    tcp_wait_down(&p.a);
    tcp_wait_down(&p.b);
}

/* ---- sends ----------------------------------------------------------------------------------------------- */

#define PLAIN(name) TEST_WITH(open_plain, shut, name)

/* Posted together: what is before it is sent nevertheless. */
PLAIN(a_cut_breaks_the_connection_in_front_of_its_send) {
    struct ibv_sge sge[4];
    struct ibv_send_wr *bad, wr[4];
    fault_plan("qp=1 send=3 cut");
    receives(4);
    for (unsigned i = 0; i < 4; i++) {
        sge[i] = sv_sge(&p.a, 0, 1000 * i);
        wr[i] = request(i + 1, IBV_WR_SEND);
        wr[i].sg_list = &sge[i];
        wr[i].num_sge = 1;
        wr[i].next = i < 3 ? &wr[i + 1] : NULL;
    }
    assert_int_equal(ibv_post_send(p.a.qp, wr, &bad), 0);
    for (unsigned i = 1; i <= 4; i++) {
        enum ibv_wc_status broken = i == 3 ? IBV_WC_RETRY_EXC_ERR : IBV_WC_WR_FLUSH_ERR;
        tcp_expect(p.a.scq, i, i < 3 ? IBV_WC_SUCCESS : broken);
        tcp_expect(p.b.rcq, i, i < 3 ? IBV_WC_SUCCESS : IBV_WC_WR_FLUSH_ERR);
    }
    both_down();
    fault_log_is("qp#1 send 3: cut (line 1)\n");
}

struct changed {
    enum ibv_wr_opcode opcode;
    size_t bytes;
    bool placed; /* it may be, in part, when the check value comes; it is delivered never */
};

static void a_changed_byte_is_delivered_never(void **state) {
    const struct changed *c = *state;
    open_with(SV_OPTIONS(0), true);
    fault_plan("qp=1 send=2 corrupt");
    receives(3);
    memset(p.b.buf, 0xee, 2 * AREA);
    sv_fill(p.a.buf, c->bytes, 1);
    post(1, IBV_WR_SEND, 8);
    tcp_expect(p.b.rcq, 1, IBV_WC_SUCCESS);
    memset(p.b.buf, 0xee, 2 * AREA);
    post(2, c->opcode, c->bytes);
    post(3, IBV_WR_RDMA_READ, 8); /* which only an answer completes */
    tcp_expect(p.a.scq, 1, IBV_WC_SUCCESS);
    tcp_expect(p.a.scq, 2, IBV_WC_SUCCESS); /* TCP has taken it */
    tcp_expect(p.a.scq, 3, IBV_WC_GENERAL_ERR);
    struct ibv_wc wc = sv_poll(p.b.rcq);
    must_data_equal(wc.wr_id, 2);
    assert_true(wc.status == IBV_WC_GENERAL_ERR || wc.status == IBV_WC_WR_FLUSH_ERR);
    tcp_expect(p.b.rcq, 3, IBV_WC_WR_FLUSH_ERR);
    both_down();
    for (unsigned i = 0; !c->placed && i < 2 * AREA; i++)
        must_data_equal(p.b.buf[i], 0xee);
    fault_log_is("qp#1 send 2: corrupt (line 1)\n");
}

#define OPENS(name) TEST_WITH(NULL, shut, name)

/* What they are for. */
OPENS(without_check_values_a_changed_byte_arrives) {
    static const size_t sizes[] = {64, 30000};
    open_with(SV_OPTIONS(0), false);
    fault_plan("qp=1 send=* corrupt");
    for (unsigned i = 0; i < 2; i++) {
        sv_fill(p.a.buf, sizes[i], 1);
        tcp_recv(&p, i, AREA, AREA, 1);
        post(i, IBV_WR_SEND, sizes[i]);
        tcp_expect(p.b.rcq, i, IBV_WC_SUCCESS);
        must_data_equal(p.b.buf[AREA], sv_byte(0, 1) ^ 1);
        p.b.buf[AREA] ^= 1;
        sv_check(p.b.buf + AREA, sizes[i], 1);
    }
}

PLAIN(a_chosen_send_ends_with_the_chosen_status) {
    fault_plan("qp=1 send=2 status=REM_OP_ERR");
    receives(2);
    for (unsigned i = 1; i <= 3; i++)
        post(i, IBV_WR_SEND, 64);
    tcp_expect(p.a.scq, 1, IBV_WC_SUCCESS);
    tcp_expect(p.a.scq, 2, IBV_WC_REM_OP_ERR);
    tcp_expect(p.a.scq, 3, IBV_WC_WR_FLUSH_ERR);
    tcp_expect(p.b.rcq, 1, IBV_WC_SUCCESS);
    tcp_expect(p.b.rcq, 2, IBV_WC_WR_FLUSH_ERR);
}

OPENS(a_lost_send_exhausts_its_retries) {
    open_with(SV_OPTIONS(.timeout = 11, .retry_cnt = 3), true); /* 8 ms, 4 times */
    fault_plan("qp=1 send=1 loss=2; qp=1 send=2 loss");
    receives(2);
    uint64_t start = soft_now_ns();
    post(1, IBV_WR_SEND, 64);
    tcp_expect(p.b.rcq, 1, IBV_WC_SUCCESS);
    assert_true(soft_now_ns() - start >= 2 * (4096ull << 11));
    start = soft_now_ns();
    post(2, IBV_WR_SEND, 64);
    tcp_expect(p.a.scq, 1, IBV_WC_SUCCESS);
    tcp_expect(p.a.scq, 2, IBV_WC_RETRY_EXC_ERR);
    assert_true(soft_now_ns() - start >= 4 * (4096ull << 11));
    both_down();
}

/* ---- late ------------------------------------------------------------------------------------------------ */

struct late {
    const char *plan;
    bool asleep; /* nobody polls: the engine has to see to it */
};

static void it_is_late_and_in_order(void **state) {
    const struct late *late = *state;
    open_with(SV_OPTIONS(.channel = true), true);
    fault_plan(late->plan);
    receives(3);
    if (late->asleep)
        assert_int_equal(ibv_req_notify_cq(p.b.rcq, 0), 0);
    uint64_t start = soft_now_ns();
    post(1, IBV_WR_SEND, 64);
    if (late->asleep) { /* the first one wakes */
        sv_cq_event(p.b.channel);
        assert_int_equal(ibv_req_notify_cq(p.b.rcq, 0), 0);
    }
    tcp_expect(p.b.rcq, 1, IBV_WC_SUCCESS);
    post(2, IBV_WR_SEND, 50000);
    post(3, IBV_WR_SEND, 64);
    if (late->asleep) {
        sv_cq_event(p.b.channel);
    }
    tcp_expect(p.b.rcq, 2, IBV_WC_SUCCESS);
    assert_true(soft_now_ns() - start >= 30 * MS);
    tcp_expect(p.b.rcq, 3, IBV_WC_SUCCESS);
    for (unsigned i = 1; i <= 3; i++)
        tcp_expect(p.a.scq, i, IBV_WC_SUCCESS);
}

/* Where only a send is late, all else goes on. */
PLAIN(behind_a_delayed_send_the_other_way_is_open) {
    fault_plan("qp=1 send=1 delay=10s");
    receives(1);
    assert_int_equal(sv_recv(&p.a, 9, 0, 64), 0);
    post(1, IBV_WR_SEND, 64);
    assert_int_equal(sv_send(&p.b, 8, 0, 64, IBV_SEND_SIGNALED), 0);
    tcp_expect(p.a.rcq, 9, IBV_WC_SUCCESS);
    tcp_expect(p.b.scq, 8, IBV_WC_SUCCESS);
    sv_stays_empty(p.b.rcq, NULL);
    fault_clear(); /* lets it go */
    tcp_expect(p.b.rcq, 1, IBV_WC_SUCCESS);
}

PLAIN(in_a_stall_nothing_moves_either_way) {
    fault_plan("qp=1 send=1 stall=40ms");
    receives(1);
    assert_int_equal(sv_recv(&p.a, 9, 0, 64), 0);
    uint64_t start = soft_now_ns();
    post(1, IBV_WR_SEND, 64);
    assert_int_equal(sv_send(&p.b, 8, 0, 64, IBV_SEND_SIGNALED), 0);
    tcp_expect(p.a.rcq, 9, IBV_WC_SUCCESS);
    assert_true(soft_now_ns() - start >= 40 * MS);
    tcp_expect(p.b.rcq, 1, IBV_WC_SUCCESS);
    fault_log_is("qp#1 send 1: stall 40000us (line 1)\n");
}

/* ---- receives -------------------------------------------------------------------------------------------- */

struct chosen {
    const char *plan;
    enum ibv_wc_status receive, send;
};

static void a_chosen_receive_ends_with_the_chosen_status(void **state) {
    const struct chosen *c = *state;
    open_with(SV_OPTIONS(0), true);
    fault_plan(c->plan);
    receives(3);
    post(1, IBV_WR_SEND, 64);
    post(2, IBV_WR_SEND, 64);
    post(3, IBV_WR_RDMA_READ, 64);
    tcp_expect(p.b.rcq, 1, IBV_WC_SUCCESS);
    tcp_expect(p.b.rcq, 2, c->receive);
    tcp_expect(p.b.rcq, 3, IBV_WC_WR_FLUSH_ERR);
    tcp_expect(p.a.scq, 1, IBV_WC_SUCCESS);
    tcp_expect(p.a.scq, 2, IBV_WC_SUCCESS); /* TCP has taken it */
    tcp_expect(p.a.scq, 3, c->send);
    both_down();
}

/* With a receive there is. */
OPENS(who_is_not_ready_for_too_long_ends_it) {
    open_with(SV_OPTIONS(.rnr_timer = 14, .finite_rnr = true, .rnr_retry = 2), true); /* 1 ms */
    fault_plan("qp=2 recv=1 rnr=1000");
    receives(1);
    post(1, IBV_WR_SEND, 64);
    post(2, IBV_WR_RDMA_READ, 64);
    tcp_expect(p.a.scq, 1, IBV_WC_SUCCESS);
    tcp_expect(p.a.scq, 2, IBV_WC_RNR_RETRY_EXC_ERR);
    tcp_expect(p.b.rcq, 1, IBV_WC_WR_FLUSH_ERR);
}

/* ---- the port -------------------------------------------------------------------------------------------- */

static void port(enum soft_device_what what) {
    assert_int_equal(fault_device(what, ORDER_FATAL_FIRST), 0);
}

OPENS(over_a_port_that_is_down_nothing_moves_until_it_is_up) {
    open_with(SV_OPTIONS(.timeout = 20), true); /* 4 s */
    receives(1);
    port(DEVICE_PORT_DOWN);
    post(1, IBV_WR_SEND, 64);
    sv_stays_empty(p.b.rcq, p.a.scq);
    port(DEVICE_PORT_UP);
    tcp_expect(p.b.rcq, 1, IBV_WC_SUCCESS);
    tcp_expect(p.a.scq, 1, IBV_WC_SUCCESS);
}

OPENS(a_send_over_a_port_that_stays_down_exhausts_its_retries) {
    open_with(SV_OPTIONS(.timeout = 12, .retry_cnt = 1), true); /* 17 ms, twice */
    receives(1);
    port(DEVICE_PORT_DOWN);
    uint64_t start = soft_now_ns();
    post(1, IBV_WR_RDMA_READ, 64);
    tcp_expect(p.a.scq, 1, IBV_WC_RETRY_EXC_ERR);
    assert_true(soft_now_ns() - start >= 2 * (4096ull << 12));
    tcp_wait_down(&p.a);
    port(DEVICE_PORT_UP);
    tcp_expect(p.b.rcq, 1, IBV_WC_WR_FLUSH_ERR);
}

OPENS(a_quiet_connection_outlives_a_port_that_is_down) {
    open_with(SV_OPTIONS(.timeout = 8, .retry_cnt = 1), true); /* 1 ms, twice */
    receives(1);
    port(DEVICE_PORT_DOWN);
    sv_stays_empty(p.b.rcq, p.a.rcq); /* for longer than that */
    port(DEVICE_PORT_UP);
    post(1, IBV_WR_SEND, 64);
    tcp_expect(p.b.rcq, 1, IBV_WC_SUCCESS);
}

static int open_peer(void **state) {
    (void)state;
    tcp_peer_open(&peer, &(struct tcp_options){.o = {.timeout = 12, .retry_cnt = 1}}); /* 17 ms */
    port(DEVICE_PORT_DOWN);
    return 0;
}

static int open_patient_peer(void **state) {
    (void)state;
    tcp_peer_open(&peer, &(struct tcp_options){.o = {.timeout = 20, .retry_cnt = 1}}); /* 4 s */
    port(DEVICE_PORT_DOWN);
    return 0;
}

static int shut_peer(void **state) {
    (void)state;
    port(DEVICE_PORT_UP);
    tcp_peer_close(&peer);
    return 0;
}

TEST_WITH(open_peer, shut_peer, what_a_peer_sends_to_a_port_that_stays_down_ends_its_connection) {
    struct iwarp_ddp ddp = tcp_peer_message(&peer, IWARP_SEND);
    tcp_peer_say(&peer, peer.frame, iwarp_frame(peer.frame, &ddp, peer.payload, 64));
    tcp_peer_expect_end(&peer, 0);
    tcp_peer_flushed_from(&peer, 0); /* nothing was delivered */
}

TEST_WITH(open_patient_peer, shut_peer, a_reset_is_heard_while_the_port_is_down) {
    uint64_t start = soft_now_ns();
    tcp_peer_reset(&peer);
    tcp_peer_flushed_from(&peer, 0);
    assert_true(soft_now_ns() - start < 4000 * MS); /* not by its patience */
}

#define CHANGED(name, ...)                                                                         \
    ROW_WITH(NULL, shut, name, a_changed_byte_is_delivered_never, changed, __VA_ARGS__)
#define LATE(name, ...) ROW_WITH(NULL, shut, name, it_is_late_and_in_order, late, __VA_ARGS__)
#define CHOSEN(name, ...)                                                                          \
    ROW_WITH(NULL, shut, name, a_chosen_receive_ends_with_the_chosen_status, chosen, __VA_ARGS__)

TEST_CASES(CHANGED(a_changed_message_of_nothing, IBV_WR_SEND, 0, false),
           CHANGED(a_changed_small_message, IBV_WR_SEND, 64, false),
           CHANGED(a_changed_large_message, IBV_WR_SEND, 100000, true),
           CHANGED(a_changed_small_write, IBV_WR_RDMA_WRITE, 64, false),
           CHANGED(a_changed_large_write, IBV_WR_RDMA_WRITE, 100000, true),
           LATE(a_delayed_send, "qp=1 send=2 delay=30ms", false),
           LATE(a_delayed_send_asleep, "qp=1 send=2 delay=30ms", true),
           LATE(a_delayed_receive, "qp=2 recv=2 delay=30ms", false),
           LATE(a_delayed_receive_asleep, "qp=2 recv=2 delay=30ms", true),
           LATE(a_stalled_send_asleep, "qp=1 send=2 stall=30ms", true),
           LATE(a_stalled_receive, "qp=2 recv=2 stall=30ms", false),
           CHOSEN(a_receive_that_fails, "qp=2 recv=2 status=LOC_PROT_ERR", IBV_WC_LOC_PROT_ERR,
                  IBV_WC_REM_OP_ERR),
           CHOSEN(a_receive_that_is_too_short, "qp=2 recv=2 status=LOC_LEN_ERR", IBV_WC_LOC_LEN_ERR,
                  IBV_WC_REM_INV_REQ_ERR));
