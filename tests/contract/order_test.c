/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * order_test.c - what a message acknowledges is complete before the message: its receive does not overtake the
 * completion of the send that it answers, however the program looks for either.
 *
 * One end asks, the other answers what it has received. The answering end is in this process, where the asking end polls
 * only when the answer was sent, or in another (far), where both poll at once.
 */
#include "contract/contract.h"

#include "support/rows.h"

#include <signal.h>
#include <sys/wait.h>

enum { ROUNDS = 200, BYTES = 4096, QPS = 2, SEND = 1, RECV = 2 };

enum look { POLLED, ARRAYS, EXTENDED, ASLEEP };

struct row {
    bool two_cqs, channels; /* for sends and receives; a channel for each of them */
    bool two_qps;           /* the answer comes by the other queue pair */
    bool apart;             /* which has completion queues of its own */
    bool shared;            /* receives */
    bool far;               /* the answering end is another process */
    unsigned unsignalled;   /* sends before the one that is waited for */
    enum look look;
    uint32_t bytes; /* of a message; 0: 8 */
};

struct side {
    struct row row;
    struct rdma_event_channel *events;
    struct rdma_cm_id *id[QPS];
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel[2];
    struct ibv_cq *scq[QPS], *rcq[QPS];
    struct ibv_cq_ex *extended;
    struct ibv_srq *srq;
    struct ibv_mr *mr;
    uint8_t *buf;
    unsigned qps;
};

/* ---- an end ---------------------------------------------------------------------------------------------- */

static struct ibv_cq *new_cq(struct side *s, unsigned channel) {
    if (s->row.look == EXTENDED) {
        struct ibv_cq_init_attr_ex attr = {.cqe = 64, .wc_flags = IBV_WC_EX_WITH_BYTE_LEN};
#ifdef CONTRACT_SOFT
        s->extended = soft_create_cq_ex(s->id[0]->verbs, &attr);
#else
        s->extended = ibv_create_cq_ex(s->id[0]->verbs, &attr);
#endif
        return s->extended ? ibv_cq_ex_to_cq(s->extended) : NULL;
    }
    return ibv_create_cq(s->id[0]->verbs, 64, s, s->channel[channel], 0);
}

static void make_queues(struct side *s) {
    struct ibv_context *verbs = s->id[0]->verbs;
    assert_non_null(s->pd = ibv_alloc_pd(verbs));
    for (unsigned i = 0; s->row.look == ASLEEP && i < 1u + s->row.channels; i++)
        assert_non_null(s->channel[i] = ibv_create_comp_channel(verbs));
    for (unsigned i = 0; i < s->qps; i++) {
        bool own = i == 0 || s->row.apart;
        s->rcq[i] = own ? new_cq(s, s->row.channels) : s->rcq[0];
        assert_non_null(s->rcq[i]);
        s->scq[i] = !own ? s->scq[0] : s->row.two_cqs ? new_cq(s, 0) : s->rcq[i];
        assert_non_null(s->scq[i]);
    }
    struct ibv_srq_init_attr srq = {.attr = {.max_wr = 32, .max_sge = 1}};
    if (s->row.shared)
        assert_non_null(s->srq = ibv_create_srq(s->pd, &srq));
    assert_non_null(s->buf = calloc(1, BYTES));
    assert_non_null(s->mr = ibv_reg_mr(s->pd, s->buf, BYTES, IBV_ACCESS_LOCAL_WRITE));
}

static void make_qp(struct side *s, unsigned i) {
    struct ibv_qp_init_attr attr = {
        .send_cq = s->scq[i],
        .recv_cq = s->rcq[i],
        .srq = s->srq,
        .cap = {.max_send_wr = 32, .max_recv_wr = 32, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC};
    assert_int_equal(rdma_create_qp(s->id[i], s->pd, &attr), 0);
}

static void post_receive(struct side *s, unsigned i) {
    struct ibv_sge sge = {(uintptr_t)s->buf, BYTES, s->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = RECV, .sg_list = &sge, .num_sge = 1}, *bad;
    assert_int_equal(
        s->srq ? ibv_post_srq_recv(s->srq, &wr, &bad) : ibv_post_recv(s->id[i]->qp, &wr, &bad), 0);
}

static void post_send(struct side *s, unsigned i, bool signalled) {
    struct ibv_sge sge = {(uintptr_t)s->buf, s->row.bytes ? s->row.bytes : 8, s->mr->lkey};
    struct ibv_send_wr wr = {.wr_id = SEND,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_SEND,
                             .send_flags = signalled ? IBV_SEND_SIGNALED : 0},
                       *bad;
    assert_int_equal(ibv_post_send(s->id[i]->qp, &wr, &bad), 0);
}

static void end_side(struct side *s) {
    for (unsigned i = 0; i < s->qps; i++)
        ct_destroy(s->id[i]);
    if (s->srq)
        assert_int_equal(ibv_destroy_srq(s->srq), 0);
    assert_int_equal(ibv_dereg_mr(s->mr), 0);
    for (unsigned i = 0; i < s->qps && (i == 0 || s->row.apart); i++) {
        if (s->scq[i] != s->rcq[i])
            assert_int_equal(ibv_destroy_cq(s->scq[i]), 0);
        assert_int_equal(ibv_destroy_cq(s->rcq[i]), 0);
    }
    for (unsigned i = 0; i < 2; i++)
        if (s->channel[i])
            assert_int_equal(ibv_destroy_comp_channel(s->channel[i]), 0);
    assert_int_equal(ibv_dealloc_pd(s->pd), 0);
    free(s->buf);
    rdma_destroy_event_channel(s->events);
}

/* ---- the end that answers -------------------------------------------------------------------------------------- */

static struct side answering(const struct row *row, unsigned qps) {
    struct side s = {
        .row = {.shared = row->shared, .bytes = row->bytes}, .events = ct_channel(), .qps = qps};
    return s;
}

/* The next request of a dialer is accepted; the first makes what all use. */
static void accept_one(struct side *s, unsigned i) {
    struct rdma_conn_param param = ct_param(NULL, 0);
    s->id[i] = ct_request(s->events);
    if (i == 0)
        make_queues(s);
    make_qp(s, i);
    for (unsigned n = 0; n < 8; n++)
        post_receive(s, i);
    assert_int_equal(rdma_accept(s->id[i], &param), 0);
}

static unsigned index_of(const struct side *s, uint32_t qp_num) {
    unsigned i = 0;
    while (i + 1 < s->qps && s->id[i]->qp->qp_num != qp_num)
        i++;
    return i;
}

/* Both ends look at once, mostly; but a CPU that they share must change hands. */
static void rest(unsigned polls) {
    if (polls % 256 == 255)
        ct_pause();
}

/* Receives the messages of one round, and answers the last by the last queue pair. False: the peer has gone. */
static bool answer(struct side *s, unsigned messages) {
    for (unsigned n = 0, polls = 0; n < messages; polls++) {
        struct ibv_wc wc;
        int got = ibv_poll_cq(s->rcq[0], 1, &wc);
        assert_true(got >= 0);
        if (got == 0) {
            rest(polls);
            continue;
        }
        if (wc.status != IBV_WC_SUCCESS)
            return false;
        if (wc.wr_id == SEND)
            continue;
        n++;
        post_receive(s, index_of(s, wc.qp_num));
    }
    post_send(s, s->qps - 1, true);
    return true;
}

static _Noreturn void as_answerer(struct row *row, unsigned qps, unsigned messages) {
    struct side s = answering(row, qps);
    struct rdma_cm_id *listener = ct_id(s.events);
    char line[16];
    int n = snprintf(line, sizeof line, "%u\n", ct_listen(listener, 4));
    assert_int_equal(write(STDOUT_FILENO, line, (size_t)n), n);
    for (unsigned i = 0; i < qps; i++) {
        accept_one(&s, i);
        ct_take(s.events, RDMA_CM_EVENT_ESTABLISHED);
    }
    while (answer(&s, messages)) {
    }
    _exit(0);
}

struct peer {
    pid_t pid;
    struct side side; /* if it is in this process */
    struct rdma_cm_id *listener;
    uint16_t port;
};

/* In this process, or in one of its own, which says at which port. */
static void start(struct peer *peer, const struct row *row, unsigned qps) {
    *peer = (struct peer){.side = answering(row, qps)};
    if (!row->far) {
        peer->listener = ct_id(peer->side.events);
        peer->port = ct_listen(peer->listener, 4);
        return;
    }
    rdma_destroy_event_channel(peer->side.events);
    int fds[2];
    char words[4][16], line[16] = "";
    const unsigned values[4] = {row->shared, row->bytes, qps, 1 + row->unsignalled};
    for (unsigned i = 0; i < 4; i++)
        snprintf(words[i], sizeof words[i], "%u", values[i]);
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    fflush(NULL);
    peer->pid = fork();
    assert_true(peer->pid >= 0);
    if (!peer->pid) {
        dup2(fds[1], STDOUT_FILENO);
        execl("/proc/self/exe", "peer", words[0], words[1], words[2], words[3], NULL);
        _exit(127);
    }
    close(fds[1]);
    for (size_t at = 0; at < sizeof line - 1 && !strchr(line, '\n'); at++)
        assert_int_equal(read(fds[0], line + at, 1), 1);
    close(fds[0]);
    peer->port = (uint16_t)strtoul(line, NULL, 10);
}

static void stop_peer(struct peer *peer) {
    int status;
    if (peer->pid == 0) {
        ct_destroy(peer->listener);
        end_side(&peer->side);
        return;
    }
    kill(peer->pid, SIGKILL);
    assert_int_equal(waitpid(peer->pid, &status, 0), peer->pid);
}

/* ---- the end that asks ---------------------------------------------------------------------------------------- */

static void connect_all(struct side *s, struct peer *peer) {
    for (unsigned i = 0; i < s->qps; i++) {
        s->id[i] = ct_id(s->events);
        ct_resolve(s->id[i], peer->port);
        if (i == 0)
            make_queues(s);
        make_qp(s, i);
        struct rdma_conn_param param = ct_param(NULL, 0);
        assert_int_equal(rdma_connect(s->id[i], &param), 0);
        if (!peer->pid)
            accept_one(&peer->side, i);
        assert_int_equal(ct_take(s->events, RDMA_CM_EVENT_ESTABLISHED), 0);
        if (!peer->pid)
            assert_int_equal(ct_take(peer->side.events, RDMA_CM_EVENT_ESTABLISHED), 0);
    }
}

/* Up to `most` completions of a queue; how many, and which they are. */
static int look(struct side *s, struct ibv_cq *cq, int most, int *out) {
    struct ibv_wc wc[4];
    if (s->row.look == EXTENDED) {
        struct ibv_poll_cq_attr attr = {0};
        int rc = ibv_start_poll(s->extended, &attr);
        if (rc == ENOENT)
            return 0;
        assert_int_equal(rc, 0);
        assert_int_equal(s->extended->status, IBV_WC_SUCCESS);
        out[0] = (int)s->extended->wr_id;
        ibv_end_poll(s->extended);
        return 1;
    }
    int n = ibv_poll_cq(cq, most, wc);
    assert_uint_in_range(n, 0, most);
    for (int i = 0; i < n; i++) {
        assert_int_equal(wc[i].status, IBV_WC_SUCCESS);
        out[i] = (int)wc[i].wr_id;
    }
    return n;
}

/* look(), until there are any. */
static int await(struct side *s, struct ibv_cq *cq, int *out) {
    uint64_t end = ct_now_ms() + (uint64_t)facts.wait_ms;
    for (unsigned polls = 0;; polls++) {
        int n = look(s, cq, s->row.look == ARRAYS ? 4 : 1, out);
        if (n > 0)
            return n;
        rest(polls);
        if (polls % 1024 == 1023 && ct_now_ms() > end)
            fail_msg("no completion");
    }
}

static struct ibv_cq *event_of(struct ibv_comp_channel *channel, int ms) {
    struct pollfd fd = {.fd = channel->fd, .events = POLLIN};
    struct ibv_cq *cq = NULL;
    void *context;
    if (poll(&fd, 1, ms) != 1)
        return NULL;
    assert_int_equal(ibv_get_cq_event(channel, &cq, &context), 0);
    ibv_ack_cq_events(cq, 1);
    return cq;
}

static void arm(struct ibv_cq *scq, struct ibv_cq *rcq) {
    assert_int_equal(ibv_req_notify_cq(scq, 0), 0);
    if (rcq != scq)
        assert_int_equal(ibv_req_notify_cq(rcq, 0), 0);
}

/* Sleeps until the answer's event is there: the send's was there before it. */
static void sleep_for(struct side *s, struct ibv_cq *scq, struct ibv_cq *rcq) {
    if (s->row.channels) {
        assert_ptr_equal(event_of(s->channel[1], facts.wait_ms), rcq);
        assert_ptr_equal(event_of(s->channel[0], 0), scq);
        return;
    }
    assert_ptr_equal(event_of(s->channel[0], facts.wait_ms), scq);
    if (rcq != scq)
        assert_ptr_equal(event_of(s->channel[0], facts.wait_ms), rcq);
}

/* One round's completions, in the order that is promised. */
static void take_in_order(struct side *s, struct ibv_cq *scq, struct ibv_cq *rcq) {
    int seen[4] = {0};
    if (scq == rcq) {
        int n = await(s, rcq, seen);
        assert_int_equal(seen[0], SEND);
        if (n == 1)
            n += await(s, rcq, seen + 1);
        assert_int_equal(n, 2);
        assert_int_equal(seen[1], RECV);
        return;
    }
    assert_int_equal(await(s, rcq, seen), 1);
    assert_int_equal(seen[0], RECV);
    assert_int_equal(look(s, scq, 1, seen), 1); /* it is there: one look finds it */
    assert_int_equal(seen[0], SEND);
}

/* Of the software device, where it is not steady yet where threads sleep: device/docs/soft-device.md. */
static bool is_asked_for(void) {
#ifdef CONTRACT_SOFT
    const char *text = getenv("SLUICE_SOFT_ORDER");
    return text && strcmp(text, "all") == 0;
#else
    return true;
#endif
}

static void no_answer_overtakes(void **state) {
    struct side s = {.row = *(const struct row *)*state, .events = ct_channel()};
    const struct row *row = &s.row;
    s.qps = row->two_qps ? QPS : 1;
    if (row->two_qps && !(facts.orders_queue_pairs && is_asked_for())) {
        rdma_destroy_event_channel(s.events);
        ct_skip("what came by one queue pair says nothing of another");
    }
    struct peer peer;
    start(&peer, row, s.qps);
    connect_all(&s, &peer);
    struct ibv_cq *scq = s.scq[0], *rcq = s.rcq[s.qps - 1];
    for (unsigned round = 0; round < ROUNDS; round++) {
        post_receive(&s, s.qps - 1);
        if (row->look == ASLEEP)
            arm(scq, rcq);
        for (unsigned i = 0; i < row->unsignalled; i++)
            post_send(&s, 0, false);
        post_send(&s, 0, true);
        if (!peer.pid)
            assert_true(answer(&peer.side, 1 + row->unsignalled));
        if (row->look == ASLEEP)
            sleep_for(&s, scq, rcq);
        take_in_order(&s, scq, rcq);
    }
    end_side(&s);
    stop_peer(&peer);
}

#define ORDER(name, ...) ROW(name, no_answer_overtakes, row, __VA_ARGS__)

TEST_CASES(
    ORDER(one_queue, .look = POLLED), ORDER(one_queue_far, .far = true),
    ORDER(one_queue_in_arrays, .far = true, .look = ARRAYS),
    ORDER(one_extended_queue, .far = true, .look = EXTENDED),
    ORDER(one_queue_of_long_messages, .far = true, .bytes = 4000),
    ORDER(one_queue_with_sends_before, .far = true, .unsignalled = 3),
    ORDER(one_queue_asleep, .look = ASLEEP), ORDER(one_queue_with_shared_receives, .shared = true),
    ORDER(one_queue_with_shared_receives_far, .far = true, .shared = true),
    ORDER(two_queues, .two_cqs = true), ORDER(two_queues_far, .far = true, .two_cqs = true),
    ORDER(two_queues_of_long_messages, .far = true, .two_cqs = true, .bytes = 4000),
    ORDER(two_queues_with_shared_receives, .two_cqs = true, .shared = true),
    ORDER(two_queues_asleep_on_one_channel, .two_cqs = true, .look = ASLEEP),
    ORDER(two_queues_far_asleep_on_one_channel, .far = true, .two_cqs = true, .look = ASLEEP),
    ORDER(two_queues_asleep_on_two_channels, .two_cqs = true, .channels = true, .look = ASLEEP),
    ORDER(two_queues_far_asleep_on_two_channels, .far = true, .two_cqs = true, .channels = true,
          .look = ASLEEP),
    ORDER(two_queue_pairs_of_one_queue, .two_qps = true),
    ORDER(two_queue_pairs_of_one_queue_far, .far = true, .two_qps = true),
    ORDER(two_queue_pairs_in_arrays, .far = true, .two_qps = true, .look = ARRAYS),
    ORDER(two_queue_pairs_of_an_extended_queue, .far = true, .two_qps = true, .look = EXTENDED),
    ORDER(two_queue_pairs_with_shared_receives, .far = true, .two_qps = true, .shared = true),
    ORDER(two_queue_pairs_of_long_messages, .far = true, .two_qps = true, .bytes = 4000),
    ORDER(two_queue_pairs_of_two_queues, .far = true, .two_qps = true, .two_cqs = true),
    ORDER(two_queue_pairs_of_their_own_queues, .two_qps = true, .apart = true, .two_cqs = true),
    ORDER(two_queue_pairs_of_their_own_queues_far, .far = true, .two_qps = true, .apart = true,
          .two_cqs = true),
    ORDER(two_queue_pairs_asleep_on_one_queue, .far = true, .two_qps = true, .look = ASLEEP),
    ORDER(two_queue_pairs_asleep_on_their_own_queues, .far = true, .two_qps = true, .apart = true,
          .two_cqs = true, .look = ASLEEP),
    ORDER(two_queue_pairs_asleep_on_two_channels, .far = true, .two_qps = true, .apart = true,
          .two_cqs = true, .channels = true, .look = ASLEEP));

int main(int argc, char **argv) {
    if (argc != 5)
        return ct_run();
    ct_start();
    struct row row = {.shared = argv[1][0] == '1', .bytes = (uint32_t)strtoul(argv[2], NULL, 10)};
    as_answerer(&row, (unsigned)strtoul(argv[3], NULL, 10), (unsigned)strtoul(argv[4], NULL, 10));
}
