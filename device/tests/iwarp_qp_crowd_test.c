/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * iwarp_qp_crowd_test.c - many queue pairs over TCP on the same CQs, all of them hot: a poll reads those that have something
 * and no others, nobody is left out, and who does not poll has them served by the engine.
 *
 * The system calls of this thread are counted; the engine's are its own.
 */
#include "support/softverbs_tcp.h"

#include "common/sanitize.h"
#include "soft/iwarp/qp_tcp.h"
#include "soft/object/cq.h"
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

static void note(long number, ssize_t n) {
    reads += number == SYS_recvfrom || number == SYS_recvmsg;
    vain += (number == SYS_recvfrom || number == SYS_recvmsg) && n < 0;
}

struct crowd {
    unsigned count;
    int buffer;
};

static int open_crowd(void **state) {
    const struct crowd *c = *state;
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

static bool is_whole(void) {
    return ld(soft_cq_of(a.scq)->tcp_hot) == count && ld(soft_cq_of(b.rcq)->tcp_hot) == count;
}

/* All are hot: so many were never quiet for long. */
static void make_crowd(void) {
    sv_until(is_whole() || (messages_on(0, count), is_whole()));
}

static bool is_hot(struct ibv_qp *ibqp) {
    struct soft_qp *qp = soft_qp_of(ibqp);
    spin_lock(&qp->lock);
    bool hot = qp->tcp->hot;
    spin_unlock(&qp->lock);
    return hot;
}

/*
 * A message is read, and so is its acknowledgement; some reads are in vain. Of rounds in which a queue pair cooled, as this
 * thread had no CPU, nothing is said.
 */
static void a_message_costs_the_reads_of_its_own_queue_pair(void **state) {
    (void)state;
    unsigned rounds = 0, useful = 0, useless = 0;
    for (unsigned next = 0; rounds < ROUNDS; next++) {
        unsigned none = 0;
        make_crowd();
        reads = vain = 0;
        messages_on(next % count, next % count + 1);
        for (unsigned i = 0; i < 20; i++) /* all are hot, and quiet */
            poll_both(&none, &none);
        assert_int_equal(none, 0);
        if (!is_whole())
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
 * Messages for each, all posted before one is polled; then half of them one by one, then the rest. False: one of the crowd
 * was quiet for too long meanwhile, as this thread had no CPU, and the engine took its messages all at once.
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
        sv_until(!is_hot(qp_b[i]));
}

/* Of a crowd that shrinks, those that are left are found again. */
static void those_whom_a_crowd_leaves_are_served(void **state) {
    (void)state;
    make_crowd();
    for (; count > 1; count--) {
        assert_int_equal(soft_destroy_qp(qp_a[count - 1]) + soft_destroy_qp(qp_b[count - 1]), 0);
        messages_on(0, count - 1);
    }
    assert_in_range(ld(soft_cq_of(b.rcq)->tcp_hot), 0, 1);
}

#define CROWD(fn, n, buffer) ROW_WITH(open_crowd, shut, fn##__##n, fn, crowd, n, buffer)

TEST_CASES(CROWD(a_message_costs_the_reads_of_its_own_queue_pair, 5, 0),
           CROWD(a_message_costs_the_reads_of_its_own_queue_pair, 16, 0),
           CROWD(a_message_costs_the_reads_of_its_own_queue_pair, 40, 0),
           CROWD(each_of_a_crowd_has_its_turn, 4, 0), CROWD(each_of_a_crowd_has_its_turn, 16, 0),
           CROWD(each_of_a_crowd_has_its_turn, 40, 0),
           CROWD(a_crowd_with_full_sockets_goes_on, 16, 4096),
           CROWD(a_crowd_that_nobody_polls_is_served_by_the_engine, 16, 0),
           CROWD(those_whom_a_crowd_leaves_are_served, 16, 0));

int main(void) {
    socket_call_made = note;
    return tests_run(NULL, NULL);
}
