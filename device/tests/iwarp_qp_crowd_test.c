/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * iwarp_qp_crowd_test.c - many queue pairs over TCP on the same CQs: a poll reads those that have something and no others,
 * none is left out, and who does not poll has them served by the engine.
 *
 * The system calls of this thread are counted, and so are the engine's.
 */
#include "support/softverbs_tcp.h"

#include <time.h>

#include "common/sanitize.h"
#include "soft/iwarp/cq_set.h"
#include "soft/iwarp/qp_tcp.h"
#include "soft/object/cq.h"
#include "soft/object/cq_pollset.h"
#include "support/fault.h"
#include "support/rows.h"
#include "support/socket_calls.h"

#define MOST 40u
#define ROUNDS 400u
#define ROOM 4096u /* of a queue pair, in either end's memory */

static struct sv_end a, b;
static struct ibv_qp *qp_a[MOST], *qp_b[MOST];
static struct ibv_mr *opened;
static unsigned count;
static _Thread_local unsigned reads, vain;
static _Thread_local bool here;
static _Atomic unsigned engine_calls;

static void note(long number, ssize_t n) {
    reads += number == SYS_recvfrom || number == SYS_recvmsg;
    vain += (number == SYS_recvfrom || number == SYS_recvmsg) && n < 0;
    if (!here)
        atomic_fetch_add(&engine_calls, 1);
}

struct crowd {
    unsigned count;
    int buffer;
};

static int open_crowd(void **state) {
    const struct crowd *c = *state;
    here = true;
    struct tcp_options o = {
        .o = {.bytes = MOST * ROOM, .cqe = 4096}, .crc = true, .extended = true};
    count = c->count;
    sv_open(&a, o.o);
    sv_open(&b, o.o);
    opened = soft_reg_mr(b.pd, b.buf, b.o.bytes, IBV_ACCESS_LOCAL_WRITE | TCP_REMOTE);
    assert_non_null(opened);
    for (unsigned i = 0; i < count; i++) {
        int fd[2];
        tcp_sockets(fd, c->buffer);
        qp_a[i] = a.qp = i == 0 ? a.qp : sv_qp(&a);
        qp_b[i] = b.qp = i == 0 ? b.qp : sv_qp(&b);
        tcp_connect(&a, fd[0], &o);
        tcp_connect(&b, fd[1], &o);
    }
    return 0;
}

static int shut(void **state) {
    (void)state;
    for (unsigned i = 1; i < count; i++)
        assert_int_equal(soft_destroy_qp(qp_a[i]) + soft_destroy_qp(qp_b[i]), 0);
    assert_int_equal(soft_dereg_mr(opened), 0);
    a.qp = qp_a[0];
    b.qp = qp_b[0];
    sv_unpair(&a, &b);
    return 0;
}

static void recv_on(unsigned i, uint32_t bytes) {
    struct ibv_sge sge = sv_sge(&b, i * ROOM, bytes);
    struct ibv_recv_wr *bad, wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1};
    assert_int_equal(ibv_post_recv(qp_b[i], &wr, &bad), 0);
}

static void post_on(unsigned i, enum ibv_wr_opcode opcode, uint32_t bytes) {
    struct ibv_sge sge = sv_sge(&a, i * ROOM, bytes);
    struct ibv_send_wr *bad,
        wr = {.wr_id = i,
              .opcode = opcode,
              .sg_list = &sge,
              .num_sge = 1,
              .send_flags = IBV_SEND_SIGNALED,
              .wr.rdma = {.remote_addr = (uintptr_t)b.buf + i * ROOM, .rkey = opened->rkey}};
    assert_int_equal(ibv_post_send(qp_a[i], &wr, &bad), 0);
}

static void poll_both(unsigned *received, unsigned *sent) {
    struct ibv_wc wc;
    *received += (unsigned)ibv_poll_cq(b.rcq, 1, &wc);
    *sent += (unsigned)ibv_poll_cq(a.scq, 1, &wc);
}

/* On these, at the same time. */
static void messages_on(unsigned from, unsigned to) {
    unsigned received = 0, sent = 0;
    for (unsigned i = from; i < to; i++) {
        recv_on(i, 64);
        post_on(i, IBV_WR_SEND, 64);
    }
    sv_until((poll_both(&received, &sent), received == to - from && sent == to - from));
}

struct state {
    bool hot, watched, aside, end_only, dry, dark;
};

static struct state state_of(struct ibv_qp *ibqp, struct ibv_cq *polled) {
    struct soft_qp *qp = soft_qp_of(ibqp);
    struct soft_cq *cq = soft_cq_of(polled);
    spin_lock(&cq->poll_lock);
    spin_lock(&qp->lock);
    struct state s = {qp->tcp->hot,
                      qp->tcp->watched != 0,
                      soft_cq_pollset_is_aside(cq, qp->cq_at[ibqp->recv_cq == polled ? 0 : 1]),
                      qp->tcp->end_only,
                      qp->tcp->dry,
                      qp->tcp->dark};
    spin_unlock(&qp->lock);
    spin_unlock(&cq->poll_lock);
    return s;
}

static bool is_crowd(void) {
    return ld(soft_cq_of(a.scq)->tcp_crowd) && ld(soft_cq_of(b.rcq)->tcp_crowd);
}

/* Polls have made all turns since it was so, and the engine none: it may feed what was read before, without a call. */
static bool is_whole(void) {
    bool all = true;
    for (unsigned i = 0; i < count; i++)
        all = all && state_of(qp_a[i], a.scq).hot && state_of(qp_b[i], b.rcq).hot;
    return all;
}

/* Each has had something since it is connected. */
static void make_crowd(void) {
    assert_int_equal(is_crowd(), count > SOFT_TCP_DIRECT);
    sv_until((messages_on(0, count), is_whole()));
}

/* A message is read, and so is its acknowledgement; some reads are in vain. */
static void a_message_costs_the_reads_of_its_own_queue_pair(void **state) {
    (void)state;
    unsigned rounds = 0, useful = 0, useless = 0;
    make_crowd();
    for (unsigned next = 0; rounds < ROUNDS; next++) {
        unsigned none = 0;
        reads = vain = 0;
        messages_on(next % count, next % count + 1);
        for (unsigned i = 0; i < 20; i++) /* all are hot, and quiet */
            poll_both(&none, &none);
        assert_int_equal(none, 0);
        if (atomic_exchange(&engine_calls, 0) > 0) /* this thread had no CPU for long */
            continue;
        rounds++;
        useful += reads - vain;
        useless += vain;
    }
    assert_in_range(useful, ROUNDS, 3 * ROUNDS);
    assert_in_range(useless, 0, ROUNDS);
}

#define EACH 30u

/* So many messages, in one call: all are posted before a queue pair counts as quiet. */
static void post_many_on(unsigned i) {
    struct ibv_sge to = sv_sge(&b, i * ROOM, 64), from = sv_sge(&a, i * ROOM, 64);
    struct ibv_recv_wr recv[EACH], *bad_recv;
    struct ibv_send_wr send[EACH], *bad;
    for (unsigned k = 0; k < EACH; k++) {
        recv[k] = (struct ibv_recv_wr){
            .wr_id = i, .next = k + 1 < EACH ? &recv[k + 1] : NULL, .sg_list = &to, .num_sge = 1};
        send[k] = (struct ibv_send_wr){.wr_id = i,
                                       .next = k + 1 < EACH ? &send[k + 1] : NULL,
                                       .opcode = IBV_WR_SEND,
                                       .sg_list = &from,
                                       .num_sge = 1,
                                       .send_flags = IBV_SEND_SIGNALED};
    }
    assert_int_equal(ibv_post_recv(qp_b[i], recv, &bad_recv), 0);
    assert_int_equal(ibv_post_send(qp_a[i], send, &bad), 0);
}

/*
 * Messages for each, all posted before one is polled; then half of them one by one, then the rest. False: this thread had no
 * CPU for long meanwhile, and the engine took messages, all of a queue pair at once.
 */
static bool take_half(unsigned *got) {
    struct ibv_wc wc;
    make_crowd();
    memset(got, 0, MOST * sizeof *got);
    for (unsigned i = 0; i < count; i++)
        post_many_on(i);
    bool whole = is_whole();
    for (unsigned left = EACH / 2 * count; left > 0; left--) {
        sv_until(ibv_poll_cq(b.rcq, 1, &wc) == 1);
        assert_int_equal(wc.status, IBV_WC_SUCCESS);
        got[wc.wr_id]++;
    }
    whole = whole && is_whole();
    for (unsigned left = EACH / 2 * count; left > 0; left--)
        assert_int_equal(sv_poll(b.rcq).status, IBV_WC_SUCCESS);
    for (unsigned left = EACH * count; left > 0; left--)
        assert_int_equal(sv_poll(a.scq).status, IBV_WC_SUCCESS);
    return whole;
}

/* Arrays of one, filled by each: the first ones are not served again before the others were. */
static void each_of_a_crowd_has_its_turn(void **state) {
    (void)state;
    unsigned got[MOST], most = 0, least = UINT32_MAX;
#ifdef SANITIZE_THREAD /* with which a crowd of 40 takes longer than a queue pair is given to be quiet */
    if (count > 16)
        skip();
#endif
    sv_until(take_half(got));
    for (unsigned i = 0; i < count; i++) {
        most = got[i] > most ? got[i] : most;
        least = got[i] < least ? got[i] : least;
    }
    assert_in_range(least, EACH / 6, EACH / 2);
    assert_in_range(most, EACH / 2, EACH - 1);
}

/* What the sockets do not take at once is sent on by polls, though nothing comes that the set could tell. */
static void a_crowd_with_full_sockets_goes_on(void **state) {
    (void)state;
    make_crowd();
    for (unsigned k = 0; k < 40; k++)
        for (unsigned i = 0; i < count; i++) {
            recv_on(i, ROOM);
            post_on(i, IBV_WR_SEND, ROOM);
        }
    for (unsigned left = 40 * count; left > 0; left--) {
        assert_int_equal(sv_poll(b.rcq).status, IBV_WC_SUCCESS);
        assert_int_equal(sv_poll(a.scq).status, IBV_WC_SUCCESS);
    }
}

/* They were polled, and their owner does something else. */
static void a_crowd_that_nobody_polls_is_served_by_the_engine(void **state) {
    (void)state;
    make_crowd();
    for (unsigned i = 0; i < count; i++)
        post_on(i, IBV_WR_RDMA_READ, 64);
    for (unsigned left = count; left > 0; left--)
        assert_int_equal(sv_poll(a.scq).status, IBV_WC_SUCCESS);
    for (unsigned i = 0; i < count; i++)
        sv_until(!state_of(qp_b[i], b.rcq).hot);
}

#define QUIET_NS 200000000u

/* Nothing came for long, and nothing is to be done: they cost the pollers no look, and the engine neither. */
static void quiet_ones_of_a_crowd_are_put_aside(void **state) {
    (void)state;
    unsigned none = 0;
    make_crowd();
    for (uint64_t until = soft_now_ns() + QUIET_NS; soft_now_ns() < until;)
        poll_both(&none, &none);
    assert_int_equal(none, 0);
    for (unsigned i = 0; i < count; i++) {
        struct state at_a = state_of(qp_a[i], a.scq), at_b = state_of(qp_b[i], b.rcq);
        assert_true(at_a.aside && at_b.aside);
        assert_false(at_a.watched || at_b.watched);
    }
    messages_on(0, count);
}

static uint64_t cpu_ns(void) {
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
}

/* Its messages lie in the socket, and the set reports that to the engine all the time. */
static void one_without_a_receive_keeps_the_engine_from_no_sleep(void **state) {
    (void)state;
    struct ibv_wc wc;
    make_crowd();
    post_on(0, IBV_WR_SEND, 64);
    sv_until(ld(soft_qp_of(qp_b[0])->rx_stalled));
    post_on(0, IBV_WR_SEND, 64); /* which stays in the socket */
    sv_until(state_of(qp_b[0], b.rcq).end_only);
    uint64_t before = cpu_ns();
    nanosleep(&(struct timespec){.tv_nsec = QUIET_NS}, NULL);
    assert_in_range(cpu_ns() - before, 0, QUIET_NS / 4);
    recv_on(0, 64);
    recv_on(0, 64);
    for (unsigned i = 0; i < 2; i++) {
        sv_until(ibv_poll_cq(b.rcq, 1, &wc) == 1);
        assert_int_equal(wc.status, IBV_WC_SUCCESS);
        assert_int_equal(sv_poll(a.scq).status, IBV_WC_SUCCESS);
    }
    assert_false(state_of(qp_b[0], b.rcq).end_only);
}

/* A request of that end is lost with the connection: before the peer would be told that nothing takes its messages. */
static void a_reset_ends_one_without_a_receive(void **state) {
    (void)state;
    struct ibv_wc wc;
    struct ibv_sge sge = sv_sge(&b, 0, 64);
    struct ibv_send_wr *bad, wr = {.wr_id = 7,
                                   .opcode = IBV_WR_SEND,
                                   .sg_list = &sge,
                                   .num_sge = 1,
                                   .send_flags = IBV_SEND_SIGNALED};
    const struct linger reset = {.l_onoff = 1};
    unsigned last = count - 1;
    int fd = soft_qp_of(qp_a[last])->tcp->fd;
    make_crowd();
    post_on(last, IBV_WR_SEND, 64);
    sv_until((ibv_poll_cq(b.rcq, 1, &wc), ld(soft_qp_of(qp_b[last])->rx_stalled)));
    must(ibv_post_send(qp_b[last], &wr, &bad) == 0);
    must(setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset) == 0);
    assert_int_equal(soft_destroy_qp(qp_a[last]), 0);
    sv_until((ibv_poll_cq(b.rcq, 1, &wc), ibv_poll_cq(b.scq, 1, &wc) == 1));
    assert_int_equal(wc.wr_id, 7);
    assert_int_equal(wc.status, IBV_WC_RETRY_EXC_ERR);
    assert_int_equal(soft_destroy_qp(qp_b[last]), 0);
    count--;
}

/* The thread rests between its polls, so that the engine begins to serve: polls find what it leaves. */
static void a_crowd_that_is_polled_now_and_then_loses_nothing(void **state) {
    (void)state;
    make_crowd();
    for (unsigned round = 0; round < 20; round++) {
        for (unsigned i = 0; i < count; i++)
            recv_on(i, 64);
        for (unsigned i = 0; i < count; i++)
            post_on(i, IBV_WR_SEND, 64);
        nanosleep(&(struct timespec){.tv_nsec = (long)(round % 4) * 10000000}, NULL);
        for (unsigned left = count; left > 0; left--) {
            assert_int_equal(sv_poll(b.rcq).status, IBV_WC_SUCCESS);
            assert_int_equal(sv_poll(a.scq).status, IBV_WC_SUCCESS);
        }
    }
}

/* What came is told while it may not be read, and then no more. */
static void one_that_a_plan_stalled_reads_what_came_meanwhile(void **state) {
    (void)state;
    struct ibv_sge to = sv_sge(&a, 0, 64), from = sv_sge(&b, 0, 64);
    struct ibv_recv_wr *bad_recv, recv = {.wr_id = 3, .sg_list = &to, .num_sge = 1};
    struct ibv_send_wr *bad,
        send = {.wr_id = 4, .opcode = IBV_WR_SEND, .sg_list = &from, .num_sge = 1};
    struct ibv_wc wc;
    unsigned received = 0, sent = 0, came = 0;
    fault_plan("qp=1 send=1 stall=100ms");
    sv_until((poll_both(&received, &sent), state_of(qp_a[0], a.scq).dry));
    recv_on(0, 64);
    must(ibv_post_recv(qp_a[0], &recv, &bad_recv) == 0);
    post_on(0, IBV_WR_SEND, 64);
    sv_until((poll_both(&received, &sent), state_of(qp_a[0], a.scq).dark));
    must(ibv_post_send(qp_b[0], &send, &bad) == 0);
    sv_until((poll_both(&received, &sent), came += (unsigned)ibv_poll_cq(a.rcq, 1, &wc),
              received == 1 && sent == 1 && came == 1));
    fault_clear();
}

/* Of a crowd that shrinks, those that are left are found again. */
static void those_whom_a_crowd_leaves_are_served(void **state) {
    (void)state;
    make_crowd();
    for (; count > 1; count--) {
        assert_int_equal(soft_destroy_qp(qp_a[count - 1]) + soft_destroy_qp(qp_b[count - 1]), 0);
        messages_on(0, count - 1);
    }
}

#define CROWD(fn, n, buffer) ROW_WITH(open_crowd, shut, fn##__##n, fn, crowd, n, buffer)

TEST_CASES(CROWD(a_message_costs_the_reads_of_its_own_queue_pair, 5, 0),
           CROWD(a_message_costs_the_reads_of_its_own_queue_pair, 16, 0),
           CROWD(a_message_costs_the_reads_of_its_own_queue_pair, 40, 0),
           CROWD(each_of_a_crowd_has_its_turn, 4, 0), CROWD(each_of_a_crowd_has_its_turn, 16, 0),
           CROWD(each_of_a_crowd_has_its_turn, 40, 0),
           CROWD(a_crowd_with_full_sockets_goes_on, 16, 4096),
           CROWD(a_crowd_that_nobody_polls_is_served_by_the_engine, 16, 0),
           CROWD(quiet_ones_of_a_crowd_are_put_aside, 16, 0),
           CROWD(one_without_a_receive_keeps_the_engine_from_no_sleep, 16, 0),
           CROWD(a_reset_ends_one_without_a_receive, 16, 0),
           CROWD(a_crowd_that_is_polled_now_and_then_loses_nothing, 40, 0),
           CROWD(one_that_a_plan_stalled_reads_what_came_meanwhile, 16, 0),
           CROWD(those_whom_a_crowd_leaves_are_served, 16, 0));

int main(void) {
    socket_call_made = note;
    return tests_run(NULL, NULL);
}
