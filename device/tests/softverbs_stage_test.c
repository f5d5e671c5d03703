/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs_stage_test.c - large sends from private memory: through blocks that the peer has mapped (rc/stage.h).
 */
#include "support/fault.h"
#include "support/softverbs.h"

#include "common/sanitize.h"
#include "soft/rc/stage.h"

#define AT_ONCE (SOFT_STAGE_QP * SOFT_STAGE_BYTES) /* of one queue pair */
#define LARGE (4 * AT_ONCE)
#define STUCK                                                                                      \
    (SOFT_STAGE_PEER /                                                                             \
     SOFT_STAGE_QP) /* queue pairs that take all blocks that lead to one process */
#define MANY (SOFT_STAGE_BLOCKS / SOFT_STAGE_QP)

static struct sv_end a, b;

static const struct sv_options large = {.bytes = LARGE, .channel = true, .send_sge = 4};

static int open_pair(void **state) {
    (void)state;
    sv_pair(&a, large, &b, large);
    sv_wait_linked(&a);
    sv_wait_linked(&b);
    sv_wait_staged(&a);
    return 0;
}

static int close_pair(void **state) {
    (void)state;
    sv_unpair(&a, &b);
    return 0;
}

/* Sent whole, and taken by one poll: its sender is not looked at in between. */
static void goes_at_once(struct sv_end *from, struct sv_end *to, size_t bytes, uint32_t seed) {
    struct ibv_wc wc = {0};
    sv_fill(from->buf, bytes, seed);
    memset(to->buf, 0, bytes);
    must(sv_recv(to, seed, 0, LARGE) == 0);
    must(sv_send(from, seed, 0, bytes, IBV_SEND_SIGNALED) == 0);
    must(ibv_poll_cq(to->rcq, 1, &wc) == 1);
    sv_right(wc, wc.wr_id == seed && wc.byte_len == bytes);
    must(sv_poll(from->scq).status == IBV_WC_SUCCESS);
    sv_check(to->buf, bytes, seed);
}

TEST_WITH(open_pair, close_pair, a_large_private_send_is_handed_over_at_once) {
    static const size_t sizes[] = {SOFT_STAGE_MIN,       SOFT_STAGE_BYTES - 1, SOFT_STAGE_BYTES,
                                   SOFT_STAGE_BYTES + 1, SOFT_STAGE_BYTES * 3, AT_ONCE};
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++)
        goes_at_once(&a, &b, sizes[i], i);
}

static void passes(struct sv_end *from, struct sv_end *to, size_t bytes, uint32_t seed) {
    struct ibv_wc wc = {0};
    bool sent = false, received = false;
    sv_fill(from->buf, bytes, seed);
    memset(to->buf, 0, bytes);
    must(sv_recv(to, 1, 0, LARGE) == 0);
    must(sv_send(from, 2, 0, bytes, IBV_SEND_SIGNALED) == 0);
    uint64_t since = soft_now_ns();
    for (unsigned turns = 0; !sent || !received;
         sv_pause(&turns, since, "a message", __FILE__, __LINE__)) {
        received |= ibv_poll_cq(to->rcq, 1, &wc) == 1;
        sent |= ibv_poll_cq(from->scq, 1, &wc) == 1;
        must(wc.status == IBV_WC_SUCCESS);
    }
    sv_check(to->buf, bytes, seed);
}

TEST_WITH(open_pair, close_pair, one_that_is_larger_than_all_blocks_arrives) {
    for (uint32_t i = 0; i < 20; i++)
        passes(&a, &b, LARGE - i * 1001, i);
}

/* Its sender does not poll, nor its receiver: both sleep until it is done. */
TEST_WITH(open_pair, close_pair, one_that_is_larger_than_all_blocks_moves_between_sleepers) {
    assert_int_equal(ibv_req_notify_cq(b.rcq, 0), 0);
    sv_fill(a.buf, LARGE, 9);
    assert_int_equal(sv_recv(&b, 1, 0, LARGE), 0);
    assert_int_equal(sv_send(&a, 2, 0, LARGE, 0), 0);
    assert_ptr_equal(sv_cq_event(b.channel), b.rcq);
    assert_int_equal(sv_poll(b.rcq).status, IBV_WC_SUCCESS);
    ibv_ack_cq_events(b.rcq, 1);
    sv_check(b.buf, LARGE, 9);
}

TEST_WITH(open_pair, close_pair, its_pieces_are_gathered) {
    struct ibv_sge pieces[] = {sv_sge(&a, 0, 100), sv_sge(&a, 100, SOFT_STAGE_BYTES),
                               sv_sge(&a, 100 + SOFT_STAGE_BYTES, 1),
                               sv_sge(&a, 101 + SOFT_STAGE_BYTES, 70000)};
    struct ibv_send_wr *bad, wr = {.sg_list = pieces,
                                   .num_sge = 4,
                                   .opcode = IBV_WR_SEND_WITH_IMM,
                                   .imm_data = 77,
                                   .send_flags = IBV_SEND_SIGNALED};
    uint32_t bytes = 101 + SOFT_STAGE_BYTES + 70000;
    sv_fill(a.buf, bytes, 3);
    assert_int_equal(sv_recv(&b, 1, 0, LARGE), 0);
    assert_int_equal(ibv_post_send(a.qp, &wr, &bad), 0);
    struct ibv_wc wc = sv_poll(b.rcq);
    sv_right(wc, wc.byte_len == bytes && wc.imm_data == 77 && (wc.wc_flags & IBV_WC_WITH_IMM));
    assert_int_equal(sv_poll(a.scq).status, IBV_WC_SUCCESS);
    sv_check(b.buf, bytes, 3);
}

TEST_WITH(open_pair, close_pair, a_receive_too_short_is_refused) {
    assert_int_equal(sv_recv(&b, 1, 0, SOFT_STAGE_BYTES + 10), 0);
    assert_int_equal(sv_send(&a, 2, 0, 2 * SOFT_STAGE_BYTES, IBV_SEND_SIGNALED), 0);
    assert_int_equal(sv_poll(b.rcq).status, IBV_WC_LOC_LEN_ERR);
    assert_int_equal(sv_poll(a.scq).status, IBV_WC_REM_INV_REQ_ERR);
}

/* ---- blocks come back ---------------------------------------------------------------------------- */

TEST(blocks_of_queue_pairs_that_are_gone_serve_others) {
    for (unsigned i = 0; i < 3 * SOFT_STAGE_BLOCKS / SOFT_STAGE_QP; i++) {
        open_pair(NULL);
        sv_take_down(&a, (enum sv_down)(i % SV_DOWNS));
        close_pair(NULL);
        open_pair(NULL);
        assert_int_equal(sv_send(&a, 1, 0, AT_ONCE, 0), 0); /* nothing receives it */
        sv_take_down(&a, (enum sv_down)(i % SV_DOWNS));
        close_pair(NULL);
    }
}

static struct sv_end keeper, from[MANY], to[MANY];
static unsigned stuck;

static void open_stuck(unsigned count) {
    sv_open(&keeper, SV_OPTIONS()); /* the device, and so its blocks, outlive the others */
    for (stuck = 0; stuck < count; stuck++) {
        unsigned i = stuck;
        sv_pair(&from[i], SV_OPTIONS(.bytes = AT_ONCE), &to[i], SV_OPTIONS());
        sv_wait_linked(&from[i]);
        if (i == 0)
            sv_wait_staged(&from[i]);
        must(sv_send(&from[i], 1, 0, AT_ONCE, 0) == 0); /* nothing receives it */
    }
}

static void close_stuck(void) {
    for (unsigned i = 0; i < stuck; i++)
        sv_unpair(&from[i], &to[i]);
    sv_close(&keeper);
}

static unsigned taken(struct sv_end *e) {
    return atomic_load(&soft_qp_of(e->qp)->peer->staged);
}

TEST(a_queue_pair_that_goes_down_gives_its_blocks_back) {
    for (enum sv_down how = 0; how < SV_DOWNS; how++) {
        open_stuck(STUCK);
        struct sv_end *last = &from[STUCK - 1];
        assert_int_equal(taken(last), SOFT_STAGE_PEER);
        for (unsigned i = 0; i + 1 < STUCK; i++) {
            sv_take_down(&from[i], how);
            assert_int_equal(taken(last), SOFT_STAGE_PEER - (i + 1) * SOFT_STAGE_QP);
        }
        close_stuck();
    }
}

/* As the library's are, whose polls have a shorter way. */
static void open_in_any_order(struct sv_end *e) {
    struct sv_options o = large;
    o.one_cq = true;
    sv_open(e, o);
    must(soft_destroy_qp(e->qp) == 0);
    soft_cq_any_order(e->scq);
    e->qp = sv_qp(e);
}

/* What was acknowledged is free without another send. */
TEST(an_idle_queue_pair_keeps_no_blocks) {
    open_in_any_order(&a);
    open_in_any_order(&b);
    sv_connect(&a, b.qp->qp_num);
    sv_connect(&b, a.qp->qp_num);
    sv_wait_linked(&a);
    sv_wait_staged(&a);
    sv_wait_linked(&b);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(sv_recv(&a, 1, 0, 64), 0);
        assert_int_equal(sv_recv(&b, 2, 0, LARGE), 0);
        assert_int_equal(sv_send(&a, 3, 0, AT_ONCE, IBV_SEND_SIGNALED), 0);
        assert_int_equal(sv_poll(b.rcq).wr_id, 2);
        assert_int_equal(sv_send(&b, 4, 0, 64, IBV_SEND_SIGNALED), 0);
        uint64_t seen = sv_poll(a.scq).wr_id;
        seen |= sv_poll(a.scq).wr_id << 8;
        assert_true(seen == (3 | 1 << 8) || seen == (1 | 3 << 8));
        assert_int_equal(sv_poll(b.scq).wr_id, 4);
        sv_until(taken(&a) == 0);
    }
    close_pair(NULL);
}

/* ---- they are shared fairly ---------------------------------------------------------------------- */

TEST(without_a_block_it_goes_through_the_ring_and_on_by_blocks) {
    struct ibv_wc wc;
    open_stuck(STUCK);
    sv_pair(&a, large, &b, large);
    sv_wait_linked(&a);
    uint32_t before = sv_slots_written(&a);
    passes(&a, &b, AT_ONCE, 4);
    assert_true(sv_slots_written(&a) - before >= AT_ONCE / SOFT_SLOT_PAYLOAD);
    sv_fill(a.buf, LARGE, 5);
    before = sv_slots_written(&a);
    assert_int_equal(sv_send(&a, 1, 0, LARGE, IBV_SEND_SIGNALED), 0);
    sv_take_down(&from[0], SV_TO_ERR);
    assert_int_equal(sv_recv(&b, 1, 0, LARGE), 0);
    bool sent = false, received = false;
    uint64_t since = soft_now_ns();
    for (unsigned turns = 0; !sent || !received;
         sv_pause(&turns, since, "a message", __FILE__, __LINE__)) {
        received |= ibv_poll_cq(b.rcq, 1, &wc) == 1;
        sent |= ibv_poll_cq(a.scq, 1, &wc) == 1;
    }
    sv_check(b.buf, LARGE, 5);
    assert_true(sv_slots_written(&a) - before < LARGE / SOFT_SLOT_PAYLOAD / 2);
    close_pair(NULL);
    close_stuck();
}

static bool is_asked(void) {
    char log[64] = "";
    fault_log(log, sizeof log);
    return log[0];
}

/* Nor is it asked for again. */
TEST(without_memory_for_blocks_all_goes_through_the_ring) {
    sv_pair(&a, large, &b, large);
    sv_wait_linked(&a);
    fault_plan("call=mem_alloc errno=ENOMEM");
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t before = sv_slots_written(&a);
        passes(&a, &b, AT_ONCE, i);
        assert_true(sv_slots_written(&a) - before >= AT_ONCE / SOFT_SLOT_PAYLOAD);
        sv_until(is_asked());
    }
    fault_log_is("call mem_alloc 1: errno ENOMEM (line 1)\n");
    fault_clear();
    close_pair(NULL);
}

static void takes_one_at_once(int fd) {
    struct sv_end e;
    sv_open(&e, large);
    sv_meet(&e, fd);
    sv_wait_linked(&e);
    must(sv_recv(&e, 1, 0, LARGE) == 0);
    sv_tell(fd, 0);
    (void)sv_hear(fd); /* it was sent */
    struct ibv_wc wc;
    must(ibv_poll_cq(e.rcq, 1, &wc) == 1);
    sv_right(wc, wc.byte_len == AT_ONCE);
    sv_check(e.buf, AT_ONCE, 6);
    sv_tell(fd, 0);
    (void)sv_hear(fd);
    sv_close(&e);
}

/* Queue pairs that lead to one process, which takes nothing, leave half of the blocks to the others. */
TEST(a_process_that_takes_nothing_leaves_blocks_to_others) {
    struct sv_child child = sv_fork(takes_one_at_once);
    open_stuck(MANY);
    sv_open(&a, large);
    sv_meet(&a, child.fd);
    sv_wait_linked(&a);
    sv_wait_staged(&a);
    sv_fill(a.buf, AT_ONCE, 6);
    (void)sv_hear(child.fd);
    assert_int_equal(sv_send(&a, 1, 0, AT_ONCE, IBV_SEND_SIGNALED), 0);
    sv_tell(child.fd, 0);
    (void)sv_hear(child.fd);
    assert_int_equal(sv_poll(a.scq).status, IBV_WC_SUCCESS);
    sv_tell(child.fd, 0);
    assert_int_equal(sv_join(&child), 0);
    sv_close(&a);
    close_stuck();
}

/* ---- it ends in the middle ----------------------------------------------------------------------- */

TEST(one_whose_sender_is_down_is_not_received) {
    struct ibv_wc wc;
    for (enum sv_down how = 0; how < SV_DOWNS; how++) {
        open_pair(NULL);
        assert_int_equal(sv_recv(&b, 1, 0, LARGE), 0);
        assert_int_equal(sv_send(&a, 2, 0, LARGE, IBV_SEND_SIGNALED), 0);
        soft_lock(); /* the engine has no turn now */
        assert_int_equal(ibv_poll_cq(b.rcq, 1, &wc), 0);
        assert_true(soft_qp_of(b.qp)->rx_partial);
        soft_unlock();
        sv_take_down(&a, how);
        assert_int_equal(sv_to(&b, IBV_QPS_ERR), 0);
        assert_int_equal(sv_poll(b.rcq).status, IBV_WC_WR_FLUSH_ERR);
        close_pair(NULL);
    }
}

/* A process has no blocks when it is opened again, and a forked child not those of its parent. */
static void sends_large(int fd) {
    (void)fd;
    open_pair(NULL);
    goes_at_once(&a, &b, AT_ONCE, 1);
    close_pair(NULL);
}

TEST(a_forked_child_has_blocks_of_its_own) {
#ifdef SANITIZE_THREAD
    skip(); /* it forbids threads in a child forked from a process that has some */
#endif
    struct sv_end c, d;
    sv_pair(&c, large, &d, large);
    sv_wait_linked(&c);
    sv_wait_linked(&d);
    sv_wait_staged(&c);
    struct sv_child child = sv_fork(sends_large);
    assert_int_equal(sv_join(&child), 0);
    goes_at_once(&c, &d, AT_ONCE, 2);
    sv_unpair(&c, &d);
}
