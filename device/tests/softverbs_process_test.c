/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs_process_test.c - two processes: traffic, sleeping, death by SIGKILL at any moment, and
 * what a forked child may do. The test's own process never opens the device, except where a fork
 * from a process that has it open is the subject.
 */
#include "support/softverbs.h"
#include "soft/ipc/control_lock.h"
#include "soft/object/attention.h"
#include "soft/rc/order.h"
#include "soft/rc/qp_timer.h"

#include <poll.h>
#include <signal.h>

#include "common/sanitize.h"
#include "support/stall.h"
#include "support/rows.h"

/* Runs two processes that meet so many times and wait for each other after that. */
static void two(void (*left)(int fd), void (*right)(int fd), unsigned meetings) {
    struct sv_child l = sv_fork(left), r = sv_fork(right);
    for (unsigned i = 0; i < meetings; i++) {
        sv_introduce(&l, &r);
        sv_relay(&l, &r);
    }
    assert_int_equal(sv_join(&l), 0);
    assert_int_equal(sv_join(&r), 0);
}

/* ---- traffic ----------------------------------------------------------------------------------- */

static void ping_pong(struct sv_end *e, bool first, unsigned rounds, bool sleeping) {
    struct ibv_wc wc;
    for (unsigned i = 0; i < rounds; i++) {
        size_t bytes = i * 97 % 5000;
        must(sv_recv(e, i, 0, 8192) == 0);
        for (int turn = 0; turn < 2; turn++) {
            if ((turn == 0) == first) {
                sv_fill(e->buf + 8192, bytes, i);
                must(sv_send(e, i, 8192, bytes, IBV_SEND_SIGNALED) == 0);
                continue;
            }
            while (sleeping && ibv_poll_cq(e->rcq, 1, &wc) == 0) {
                must(ibv_req_notify_cq(e->rcq, 0) == 0);
                if (ibv_poll_cq(e->rcq, 1, &wc) == 1)
                    break;
                struct pollfd p = {.fd = e->channel->fd, .events = POLLIN};
                must(poll(&p, 1, 30000) == 1);
                sv_cq_event(e->channel);
            }
            if (!sleeping)
                wc = sv_poll(e->rcq);
            sv_right(wc, wc.byte_len == bytes && wc.wr_id == i);
            sv_check(e->buf, bytes, i);
        }
        must(sv_poll(e->scq).status == IBV_WC_SUCCESS);
    }
}

static void side(int fd, bool first, struct sv_options o, unsigned rounds, bool sleeping) {
    struct sv_end e;
    sv_open(&e, o);
    sv_meet(&e, fd);
    ping_pong(&e, first, rounds, sleeping);
    sv_barrier(fd); /* the other side has its last completion */
    sv_close(&e);
}

static void poll_left(int fd) {
    side(fd, true, SV_OPTIONS(.mapped = true), 2000, false);
}

static void poll_right(int fd) {
    side(fd, false, SV_OPTIONS(.mapped = true), 2000, false);
}

static void sleep_left(int fd) {
    side(fd, true, SV_OPTIONS(.channel = true), 500, true);
}

static void sleep_right(int fd) {
    side(fd, false, SV_OPTIONS(.channel = true), 500, true);
}

static void poll_as_a_sleeper(int fd) {
    side(fd, false, SV_OPTIONS(), 500, false);
}

/* ---- death ------------------------------------------------------------------------------------- */

static bool leave_child_behind;

/* Connects, says so, posts receives or not, and is killed. */
static void victim(int fd) {
    struct sv_end e;
    sv_open(&e, SV_OPTIONS(.mapped = true));
    sv_meet(&e, fd);
    must(sv_recv(&e, 1, 0, 64) == 0);
    must(sv_poll(e.rcq).status == IBV_WC_SUCCESS); /* linked both ways */
    if (leave_child_behind) {
        pid_t pid = fork();
        must(pid >= 0);
        if (pid == 0)
            for (;;)
                pause();
        sv_tell(fd, (uint32_t)pid);
    } else {
        sv_tell(fd, 0);
    }
    for (;;)
        pause();
}

/* Tells when its sends failed, in microseconds after it was told of the kill. */
static void survivor(int fd) {
    struct sv_end e;
    sv_open(&e, SV_OPTIONS(.mapped = true, .channel = true));
    sv_meet(&e, fd);
    must(sv_send(&e, 0, 0, 8, IBV_SEND_SIGNALED) == 0);
    must(sv_poll(e.scq).status == IBV_WC_SUCCESS);
    for (unsigned i = 1; i <= 3; i++) /* the victim has no receive for them */
        must(sv_send(&e, i, 0, 8, i == 2 ? IBV_SEND_SIGNALED : 0) == 0);
    must(sv_recv(&e, 10, 0, 64) == 0);
    must(sv_recv(&e, 11, 0, 64) == 0);
    must(ibv_req_notify_cq(e.scq, 0) == 0);
    sv_tell(fd, 1);
    must(sv_hear(fd) == 2); /* it is dead */
    uint64_t start = soft_now_ns();
    struct pollfd p = {.fd = e.channel->fd, .events = POLLIN};
    must(poll(&p, 1, 30000) == 1);
    sv_tell(fd, (uint32_t)((soft_now_ns() - start) / 1000));
    sv_cq_event(e.channel);
    for (unsigned i = 1; i <= 3; i++) {
        struct ibv_wc wc = sv_poll(e.scq);
        must_data(wc.wr_id == i);
        must(wc.status == (i == 1 ? IBV_WC_RETRY_EXC_ERR : IBV_WC_WR_FLUSH_ERR));
    }
    for (unsigned i = 10; i <= 11; i++) {
        struct ibv_wc wc = sv_poll(e.rcq);
        must(wc.wr_id == i && wc.status == IBV_WC_WR_FLUSH_ERR);
    }
    must(sv_send(&e, 4, 0, 8, 0) == 0);
    must(sv_poll(e.scq).status == IBV_WC_WR_FLUSH_ERR);
    sv_close(&e);
}

struct killed {
    bool leaves_a_child;
};

static void a_peer_is_killed(void **state) {
    leave_child_behind = ((const struct killed *)*state)->leaves_a_child;
    struct sv_child s = sv_fork(survivor), v = sv_fork(victim);
    sv_introduce(&s, &v);
    uint32_t orphan = sv_hear(v.fd);
    assert_int_equal(sv_hear(s.fd), 1);
    stall_begin();
    kill(v.pid, SIGKILL);
    int status = sv_join(&v);
    sv_tell(s.fd, 2);
    uint32_t took = sv_hear(s.fd);
    uint32_t stalled = (uint32_t)(stall_end() / 1000); /* the machine, not the device */
    assert_true(WIFSIGNALED(status));
    assert_uint_in_range(took, 0, 100000 + stalled);
    assert_int_equal(sv_join(&s), 0);
    if (orphan) {
        kill((pid_t)orphan, SIGKILL);
        waitpid((pid_t)orphan, &status, 0); /* not ours: init reaps it */
    }
}

/* Both directions in full flow until one of them dies somewhere in the middle. */
static void flood(int fd, bool survives) {
    struct sv_end e;
    sv_open(&e, SV_OPTIONS(.mapped = true, .sends = 32, .recvs = 32));
    sv_meet(&e, fd);
    for (unsigned i = 0; i < 32; i++)
        must(sv_recv(&e, i, i * 1024, 1024) == 0);
    uint64_t sent = 0, completed = 0, received = 0;
    bool told = false, down = false;
    uint64_t since = soft_now_ns();
    while (!down || completed < sent) {
        struct ibv_wc wc[16];
        while (!down && sent - completed < 32) {
            size_t bytes = sent * 61 % 1024;
            sv_fill(e.buf + 32768 + sent % 32 * 1024, bytes, (uint32_t)sent);
            must(sv_send(&e, sent, 32768 + sent % 32 * 1024, bytes, IBV_SEND_SIGNALED) == 0);
            sent++;
        }
        int n = ibv_poll_cq(e.scq, 16, wc);
        for (int i = 0; i < n; i++) {
            must_data(wc[i].wr_id == completed++); /* every one exactly once and in order */
            must(!down || wc[i].status == IBV_WC_WR_FLUSH_ERR);
            down |= wc[i].status != IBV_WC_SUCCESS;
            if (wc[i].status != IBV_WC_SUCCESS)
                must(wc[i].status == IBV_WC_RETRY_EXC_ERR || wc[i].status == IBV_WC_WR_FLUSH_ERR);
        }
        n = ibv_poll_cq(e.rcq, 16, wc);
        for (int i = 0; i < n; i++) {
            if (wc[i].status != IBV_WC_SUCCESS)
                continue;
            must_data(wc[i].wr_id == received % 32 && wc[i].byte_len == received * 61 % 1024);
            sv_check(e.buf + received % 32 * 1024, wc[i].byte_len, (uint32_t)received);
            must(down || sv_recv(&e, received % 32, received % 32 * 1024, 1024) == 0);
            received++;
        }
        if (!told && received > 200) {
            sv_tell(fd, 1);
            told = true;
        }
        must(soft_now_ns() - since < SV_DEADLINE_NS);
    }
    must(survives);
    sv_close(&e);
}

static void flood_victim(int fd) {
    flood(fd, false);
}

static void flood_survivor(int fd) {
    flood(fd, true);
}

TEST(a_kill_in_the_middle_of_traffic_tears_no_message) {
    for (unsigned round = 0; round < 25; round++) {
        struct sv_child s = sv_fork(flood_survivor), v = sv_fork(flood_victim);
        sv_introduce(&s, &v);
        sv_hear(v.fd); /* in full flow */
        kill(v.pid, SIGKILL);
        assert_true(WIFSIGNALED(sv_join(&v)));
        uint32_t note;
        while (recv(s.fd, &note, sizeof note, 0) > 0) /* until it closes */
            ;
        assert_int_equal(sv_join(&s), 0);
    }
}

/* A kill while the connection is still being made. */
static void dying(int fd) {
    struct sv_end e;
    sv_open(&e, SV_OPTIONS());
    sv_tell(fd, e.qp->qp_num);
    uint32_t dest = sv_hear(fd);
    must(sv_to_init(&e) == 0);
    kill(getpid(), SIGKILL);
    must(sv_to_rtr(&e, dest) == 0);
}

static void widow(int fd) {
    struct sv_end e;
    sv_open(&e, SV_OPTIONS(.timeout = 13, .retry_cnt = 1));
    sv_tell(fd, e.qp->qp_num);
    sv_connect(&e, sv_hear(fd)); /* to one that never says that it did, too */
    must(sv_send(&e, 1, 0, 8, 0) == 0);
    must(sv_poll(e.scq).status == IBV_WC_RETRY_EXC_ERR);
    sv_close(&e);
}

TEST(a_peer_that_dies_while_connecting_is_noticed) {
    struct sv_child s = sv_fork(widow), v = sv_fork(dying);
    sv_relay(&s, &v);
    assert_true(WIFSIGNALED(sv_join(&v)));
    assert_int_equal(sv_join(&s), 0);
}

enum { COMES = 40 };

/*
 * A process may close the device and open it again while its peer stays: it comes back under the
 * same pid with other numbers.
 */
static void comes_again(int fd) {
    for (unsigned round = 0; round < COMES; round++) {
        struct sv_end e;
        sv_open(&e, SV_OPTIONS(.mapped = true));
        sv_meet(&e, fd);
        ping_pong(&e, true, 3, false);
        sv_barrier(fd);
        sv_close(&e);
    }
}

static void stays(int fd) {
    struct ibv_context *ctx = sv_context();
    for (unsigned round = 0; round < COMES; round++) {
        struct sv_end e;
        sv_open(&e, SV_OPTIONS(.mapped = true));
        sv_meet(&e, fd);
        ping_pong(&e, false, 3, false);
        sv_barrier(fd);
        sv_close(&e);
    }
    must(soft_close_device(ctx) == 0);
}

TEST(a_process_that_reopened_the_device_is_found_again) {
    two(comes_again, stays, COMES);
    two(comes_again, comes_again, COMES);
}

/* ---- fork -------------------------------------------------------------------------------------- */

/* The thread sanitizer forbids threads in a child forked from a process that has some. */
#ifdef SANITIZE_THREAD
#define MAY_START_THREADS 0
#else
#define MAY_START_THREADS 1
#endif

static struct sv_end inherited, partner;

static void use_inherited(int fd) {
    struct ibv_wc wc;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    struct ibv_qp_init_attr init = {.send_cq = inherited.scq,
                                    .recv_cq = inherited.rcq,
                                    .cap = {.max_send_wr = 1, .max_recv_wr = 1},
                                    .qp_type = IBV_QPT_RC};
    struct sv_end *e = &inherited;
    must(sv_send(e, 1, 0, 8, 0) == EPERM);
    must(sv_recv(e, 1, 0, 8) == EPERM);
    must(ibv_poll_cq(e->scq, 1, &wc) < 0);
    must(ibv_req_notify_cq(e->scq, 0) == EPERM);
    must(soft_modify_qp(e->qp, &attr, IBV_QP_STATE) == EPERM);
    must(soft_query_qp(e->qp, &attr, 0, &init) == EPERM);
    init = (struct ibv_qp_init_attr){
        .send_cq = e->scq, .recv_cq = e->rcq, .cap = {1, 1, 1, 1, 0}, .qp_type = IBV_QPT_RC};
    must(soft_create_qp(e->pd, &init) == NULL && errno == EPERM);
    must(soft_create_cq(e->ctx, 1, NULL, NULL, 0) == NULL && errno == EPERM);
    must(soft_create_comp_channel(e->ctx) == NULL && errno == EPERM);
    must(soft_alloc_pd(e->ctx) == NULL && errno == EPERM);
    must(soft_reg_mr(e->pd, e->buf, 64, 0) == NULL && errno == EPERM);
    struct ibv_cq *cq;
    void *context;
    must(soft_get_cq_event(e->channel, &cq, &context) == -1 && errno == EPERM);
    struct ibv_async_event event;
    must(soft_get_async_event(e->ctx, &event) == -1 && errno == EPERM);
    must(soft_destroy_qp(e->qp) == EPERM);
    must(soft_dereg_mr(e->mr) == EPERM);
    must(soft_destroy_cq(e->scq) == EPERM);
    must(soft_destroy_cq(e->rcq) == EPERM);
    must(soft_destroy_comp_channel(e->channel) == EPERM);
    must(soft_dealloc_pd(e->pd) == EPERM);
    must(soft_close_device(e->ctx) == EPERM);
    if (sv_hear(fd) == 0)
        return;
    /* a device of its own works, and reaches the parent's process */
    struct sv_end own;
    sv_open(&own, SV_OPTIONS(.mapped = true));
    sv_meet(&own, fd);
    sv_wait_mapped(&own);
    sv_fill(own.buf, 60000, 12);
    must(sv_send(&own, 1, 0, 60000, IBV_SEND_SIGNALED) == 0);
    must(sv_poll(own.scq).status == IBV_WC_SUCCESS);
    sv_close(&own);
}

static void parent_still_works(uint32_t seed) {
    sv_fill(inherited.buf, 50000, seed);
    assert_int_equal(sv_recv(&partner, 5, 0, 65536), 0);
    assert_int_equal(sv_send(&inherited, 6, 0, 50000, IBV_SEND_SIGNALED), 0);
    assert_int_equal(sv_poll(partner.rcq).status, IBV_WC_SUCCESS);
    assert_int_equal(sv_poll(inherited.scq).status, IBV_WC_SUCCESS);
    sv_check(partner.buf, 50000, seed);
}

TEST(a_child_is_refused_and_the_parent_is_unharmed) {
    struct sv_options o = SV_OPTIONS(.channel = true, .mapped = true);
    sv_pair(&inherited, o, &partner, o);
    sv_wait_mapped(&inherited);
    for (unsigned round = 0; round < 3; round++) {
        struct sv_child child = sv_fork(use_inherited);
        sv_tell(child.fd, MAY_START_THREADS);
        if (!MAY_START_THREADS) {
            assert_int_equal(sv_join(&child), 0);
            parent_still_works(round);
            continue;
        }
        struct sv_end meets;
        sv_open(&meets, SV_OPTIONS());
        sv_meet(&meets, child.fd);
        assert_int_equal(sv_recv(&meets, 1, 0, 65536), 0);
        struct ibv_wc wc = sv_poll(meets.rcq);
        assert_int_equal(wc.status, IBV_WC_SUCCESS);
        sv_check(meets.buf, 60000, 12);
        struct ibv_wc none; /* its acknowledgement is told by polling on */
        int status;
        uint64_t since = soft_now_ns();
        unsigned turns = 0;
        while (waitpid(child.pid, &status, WNOHANG) == 0) {
            assert_int_equal(ibv_poll_cq(meets.rcq, 1, &none), 0);
            sv_pause(&turns, since, "the child does not end", __FILE__, __LINE__);
        }
        close(child.fd);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        sv_close(&meets);
        parent_still_works(round);
    }
    sv_unpair(&inherited, &partner);
}

/* Nobody receives: the device's own timer finds that out. */
static void a_send_fails_in_time(int fd) {
    struct sv_end a, b;
    (void)fd;
    struct sv_options o = SV_OPTIONS(.finite_rnr = true, .rnr_retry = 1);
    sv_pair(&a, o, &b, o);
    must(sv_send(&a, 1, 0, 8, IBV_SEND_SIGNALED) == 0);
    must(sv_poll(a.scq).status == IBV_WC_RNR_RETRY_EXC_ERR);
    sv_unpair(&a, &b);
}

TEST(a_childs_sends_fail_in_time_while_its_parents_wait) {
    if (!MAY_START_THREADS)
        skip();
    setenv("SLUICE_SOFT_ORDER", "all", 1); /* it looks at other queue pairs */
    sv_pair(&inherited, SV_OPTIONS(.recvs = 1), &partner, SV_OPTIONS(.recvs = 1));
    assert_int_equal(sv_send(&inherited, 1, 0, 8, IBV_SEND_SIGNALED), 0);
    soft_lock(); /* the timer runs at the fork */
    soft_qp_timer_want();
    soft_qp_timer_if_wanted();
    soft_unlock();
    struct sv_child child = sv_fork(a_send_fails_in_time);
    assert_int_equal(sv_join(&child), 0);
    assert_int_equal(sv_recv(&partner, 1, 0, 64), 0);
    assert_int_equal(sv_poll(inherited.scq).status, IBV_WC_SUCCESS);
    sv_unpair(&inherited, &partner);
}

/* Nor does a message there wait for the completion of what the parent has sent: the child has not those rings. */
static void a_message_passes(int fd) {
    (void)fd;
    struct sv_end a, b;
    must(ld(soft_order_count) == 0);
    sv_pair(&a, SV_OPTIONS(.recvs = 1), &b, SV_OPTIONS(.recvs = 1));
    must(sv_recv(&b, 1, 0, 64) == 0 && sv_send(&a, 1, 0, 8, IBV_SEND_SIGNALED) == 0);
    must(sv_poll(b.rcq).status == IBV_WC_SUCCESS && sv_poll(a.scq).status == IBV_WC_SUCCESS);
    sv_unpair(&a, &b);
}

TEST(a_forked_child_completes_no_sends_of_its_parent) {
    if (!MAY_START_THREADS)
        skip();
    sv_pair(&inherited, SV_OPTIONS(.recvs = 1), &partner, SV_OPTIONS(.recvs = 1));
    assert_int_equal(sv_send(&inherited, 1, 0, 8, IBV_SEND_SIGNALED), 0);
    struct sv_child child = sv_fork(a_message_passes);
    assert_int_equal(sv_join(&child), 0);
    assert_int_equal(sv_recv(&partner, 1, 0, 64), 0);
    assert_int_equal(sv_poll(inherited.scq).status, IBV_WC_SUCCESS);
    sv_unpair(&inherited, &partner);
    unsetenv("SLUICE_SOFT_ORDER");
}

/* fork() takes no lock of another thread with it into the child. */
static void open_and_close(int fd) {
    (void)fd;
    struct sv_end e;
    sv_open(&e, SV_OPTIONS(.mapped = true));
    sv_close(&e);
}

static _Atomic bool stop;

static void *busy(void *arg) {
    (void)arg;
    while (!atomic_load(&stop)) {
        struct sv_end e;
        sv_open(&e, SV_OPTIONS(.mapped = true));
        sv_close(&e);
    }
    return NULL;
}

TEST(fork_in_the_middle_of_another_threads_calls) {
#if defined(SANITIZE_ADDRESS) || defined(SANITIZE_THREAD)
    skip(); /* the sanitizers' own allocator does not survive it in the child */
#endif
    pthread_t thread;
    atomic_store(&stop, false);
    assert_int_equal(pthread_create(&thread, NULL, busy, NULL), 0);
    for (unsigned i = 0; i < 30; i++) {
        struct sv_child child = sv_fork(open_and_close);
        assert_int_equal(sv_join(&child), 0);
    }
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
}

struct sides {
    void (*left)(int fd), (*right)(int fd);
};

static void two_exchange_messages(void **state) {
    const struct sides *row = *state;
    two(row->left, row->right, 1);
}

TEST_CASES(ROW(two_processes_exchange_messages, two_exchange_messages, sides, poll_left,
               poll_right),
           ROW(two_sleeping_processes_exchange_messages, two_exchange_messages, sides, sleep_left,
               sleep_right),
           ROW(a_sleeping_and_a_polling_process_exchange_messages, two_exchange_messages, sides,
               sleep_left, poll_as_a_sleeper),
           ROW(a_killed_peer_ends_sends_within_100_ms, a_peer_is_killed, killed,
               .leaves_a_child = false),
           ROW(a_forked_child_does_not_hide_its_parents_death, a_peer_is_killed, killed,
               .leaves_a_child = true));
