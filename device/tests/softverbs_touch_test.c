/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs_touch_test.c - a requester that is inside of memory here. A queue pair that ends waits with its flush
 * until the peer has left; who takes memory back waits a little, and nobody else waits at all. A peer that died
 * there is not inside, and one that cannot be there is not either.
 */
#include "support/softverbs.h"
#include "support/skip.h"
#include "soft/object/ring.h"
#include "soft/verbs/internal.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#define OTHER_UID 65534
#define SKIPPED 77
#define PROMPT_NS 1000000000u /* half of what a queue waits for a live peer */
#define CALL_NS 80000000u     /* what a call waits at most */

#define ALL_REMOTE (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

static void to_rts(struct sv_end *e, uint32_t dest) {
    struct ibv_qp_attr attr = sv_attr(e, IBV_QPS_INIT, 0);
    attr.qp_access_flags = ALL_REMOTE;
    must(soft_modify_qp(e->qp, &attr, SV_INIT_MASK) == 0);
    must(sv_to_rtr(e, dest) == 0);
    must(sv_to_rts(e) == 0);
}

static void connected(int fd) {
    struct sv_end e;
    sv_open(&e, SV_OPTIONS(.one_cq = true));
    sv_tell(fd, e.qp->qp_num);
    to_rts(&e, sv_hear(fd));
    sv_wait_linked(&e);
    sv_tell(fd, 1);
    (void)sv_hear(fd); /* until it is killed */
}

static void another_user(int fd) {
    if (setresgid(OTHER_UID, OTHER_UID, OTHER_UID) != 0 ||
        setresuid(OTHER_UID, OTHER_UID, OTHER_UID) != 0)
        _exit(SKIPPED);
    connected(fd);
}

/* A queue pair whose peer says that it is inside of the memory here. */
static void begin(struct sv_end *e, struct sv_child *child, void (*run)(int)) {
    *child = sv_fork(run);
    sv_open(e, SV_OPTIONS(.one_cq = true));
    sv_tell(child->fd, e->qp->qp_num);
    uint32_t qpn;
    if (recv(child->fd, &qpn, sizeof qpn, MSG_WAITALL) != sizeof qpn) {
        must(WEXITSTATUS(sv_join(child)) == SKIPPED);
        sv_close(e);
        skip_with("this process may not become another user");
    }
    to_rts(e, qpn);
    sv_wait_linked(e);
    must(sv_hear(child->fd) == 1);
    must(atomic_load(&soft_qp_of(e->qp)->rx));
    atomic_fetch_or(&atomic_load(&soft_qp_of(e->qp)->rx)->tx.touching, 1);
}

static void leaves(struct sv_end *e) {
    atomic_fetch_add(&atomic_load(&soft_qp_of(e->qp)->rx)->tx.touching, 1);
}

static void finish(struct sv_child *child) {
    must(kill(child->pid, SIGKILL) == 0);
    must(waitpid(child->pid, NULL, 0) == child->pid);
    close(child->fd);
}

static void end_promptly(struct sv_end *e) {
    uint64_t start = soft_now_ns();
    must(soft_destroy_qp(e->qp) == 0);
    e->qp = NULL;
    assert_uint_in_range(soft_now_ns() - start, 0, PROMPT_NS);
}

/* Its link is, by the engine, which was told. */
static bool is_forgotten(struct sv_end *e) {
    soft_lock();
    bool gone = soft_qp_of(e->qp)->peer_gone;
    soft_unlock();
    return gone;
}

TEST(a_peer_that_died_inside_keeps_nobody_waiting) {
    for (unsigned known = 0; known < 2; known++) {
        struct sv_child child;
        struct sv_end e;
        begin(&e, &child, connected);
        must(kill(child.pid, SIGKILL) == 0);
        must(waitpid(child.pid, NULL, 0) == child.pid);
        while (known && !is_forgotten(&e))
            ;
        end_promptly(&e);
        sv_close(&e);
        close(child.fd);
    }
}

TEST(another_users_word_keeps_nobody_waiting) {
    struct sv_child child;
    struct sv_end e;
    if (geteuid() != 0)
        skip_with("needs root to run a process of another user");
    begin(&e, &child, another_user);
    end_promptly(&e);
    must(kill(child.pid, SIGKILL) == 0);
    must(waitpid(child.pid, NULL, 0) == child.pid);
    sv_close(&e);
    close(child.fd);
}

/* What was posted comes back when nobody can write to it any more; modify_qp() does not wait for that. */
TEST(a_flush_waits_until_the_peer_has_left) {
    struct sv_child child;
    struct sv_end e;
    begin(&e, &child, connected);
    must(sv_recv(&e, 5, 0, 64) == 0);
    must(sv_to(&e, IBV_QPS_ERR) == 0);
    sv_stays_empty(e.rcq, NULL);
    leaves(&e);
    struct ibv_wc wc = sv_poll(e.rcq);
    must(wc.wr_id == 5 && wc.status == IBV_WC_WR_FLUSH_ERR);
    sv_close(&e);
    finish(&child);
}

/* The engine comes to look, where the application sleeps until it is told. */
TEST(a_sleeper_hears_of_the_flush) {
    struct sv_child child = sv_fork(connected);
    struct sv_end e;
    sv_open(&e, SV_OPTIONS(.one_cq = true, .channel = true));
    sv_tell(child.fd, e.qp->qp_num);
    to_rts(&e, sv_hear(child.fd));
    sv_wait_linked(&e);
    must(sv_hear(child.fd) == 1);
    atomic_fetch_or(&atomic_load(&soft_qp_of(e.qp)->rx)->tx.touching, 1);
    must(sv_recv(&e, 5, 0, 64) == 0);
    must(soft_req_notify_cq(e.rcq, 0) == 0);
    must(sv_to(&e, IBV_QPS_ERR) == 0);
    leaves(&e);
    must(sv_cq_event(e.channel) == e.rcq);
    must(sv_poll(e.rcq).status == IBV_WC_WR_FLUSH_ERR);
    sv_close(&e);
    finish(&child);
}

TEST(a_live_peer_inside_keeps_no_call_waiting) {
    struct sv_child child;
    struct sv_end e;
    begin(&e, &child, connected);
    uint64_t start = soft_now_ns();
    struct ibv_mr *mr =
        soft_reg_mr(e.pd, e.buf, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    must(mr && soft_dereg_mr(mr) == 0);
    assert_uint_in_range(soft_now_ns() - start, 0, PROMPT_NS);
    end_promptly(&e);
    sv_close(&e);
    finish(&child);
}

/* However often memory is taken back: who has been waited for once, and has not moved since, is a liar. */
TEST(a_peer_that_stays_inside_is_waited_for_once) {
    struct sv_child child;
    struct sv_end e;
    begin(&e, &child, connected);
    uint64_t start = soft_now_ns();
    for (unsigned i = 0; i < 10; i++) {
        struct ibv_mr *mr =
            soft_reg_mr(e.pd, e.buf, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
        must(mr && soft_dereg_mr(mr) == 0);
    }
    end_promptly(&e);
    assert_uint_in_range(soft_now_ns() - start, 0, 2 * CALL_NS);
    sv_close(&e);
    finish(&child);
}

static _Atomic bool running;

static void *take_memory_back(void *arg) {
    struct sv_end *e = arg;
    struct ibv_mr *mr =
        soft_reg_mr(e->pd, e->buf, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    must(mr);
    atomic_store(&running, true);
    must(soft_dereg_mr(mr) == 0);
    atomic_store(&running, false);
    return NULL;
}

static void *end_queue_pair(void *arg) {
    struct sv_end *e = arg;
    atomic_store(&running, true);
    must(soft_destroy_qp(e->qp) == 0);
    atomic_store(&running, false);
    return NULL;
}

/* While one thread waits, whole calls of another one begin and end: the engine could work as well. */
static void nobody_else_waits(void *(*wait)(void *), bool ends) {
    unsigned most = 0;
    for (unsigned try = 0; try < 20 && most < 3; try++) {
        struct sv_child child;
        struct sv_end e;
        pthread_t thread;
        unsigned calls = 0;
        begin(&e, &child, connected);
        must(pthread_create(&thread, NULL, wait, &e) == 0);
        sv_until(atomic_load(&running));
        while (atomic_load(&running) && calls < 3) {
            soft_lock();
            soft_unlock();
            sched_yield();
            struct ibv_pd *pd = soft_alloc_pd(e.ctx);
            struct ibv_mr *mr = soft_reg_mr(pd, e.buf, 64, 0);
            must(pd && mr && soft_dereg_mr(mr) == 0 && soft_dealloc_pd(pd) == 0);
            calls += atomic_load(&running);
        }
        most = calls > most ? calls : most;
        must(pthread_join(thread, NULL) == 0);
        if (ends)
            e.qp = NULL;
        else
            leaves(&e);
        sv_close(&e);
        finish(&child);
    }
    assert_uint_in_range(most, 3, 3);
}

TEST(nobody_else_waits_for_memory_that_is_taken_back) {
    nobody_else_waits(take_memory_back, false);
}

TEST(nobody_else_waits_for_a_queue_pair_that_ends) {
    nobody_else_waits(end_queue_pair, true);
}

/* ---- who must wait ---------------------------------------------------------------------------------- */

static _Atomic bool left;

/* It leaves when it is told to. */
static void stays(int fd) {
    struct sv_end e;
    sv_open(&e, SV_OPTIONS(.one_cq = true));
    sv_tell(fd, e.qp->qp_num);
    to_rts(&e, sv_hear(fd));
    sv_wait_linked(&e);
    struct soft_ring *ring = atomic_load(&soft_qp_of(e.qp)->tx);
    sv_tell(fd, 1);
    (void)sv_hear(fd);
    atomic_fetch_add(&ring->tx.touching, 1);
    sv_tell(fd, 2);
    (void)sv_hear(fd);
}

static void resets(struct sv_end *e) {
    must(sv_to(e, IBV_QPS_RESET) == 0);
}

static void destroys(struct sv_end *e) {
    must(soft_destroy_qp(e->qp) == 0);
}

static void takes_back(struct sv_end *e) {
    struct ibv_mr *mr =
        soft_reg_mr(e->pd, e->buf, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    must(mr && soft_dereg_mr(mr) == 0);
}

struct call {
    void (*run)(struct sv_end *e);
    struct sv_end *e;
    _Atomic bool returned;
    uint64_t start; /* before the first of them: one waits for all, when it was in vain */
    bool early;     /* the peer was inside, and nobody had waited for as long as one may */
    pthread_t thread;
};

static void *run_call(void *arg) {
    struct call *call = arg;
    call->run(call->e);
    call->early = !atomic_load(&left) && soft_now_ns() - call->start < CALL_NS;
    atomic_store(&call->returned, true);
    return NULL;
}

static void wait_all(void (*first)(struct sv_end *), void (*second)(struct sv_end *), bool err) {
    struct sv_child child;
    struct sv_end e;
    begin(&e, &child, stays);
    struct call calls[] = {{.run = first, .e = &e}, {.run = second, .e = &e}};
    unsigned count = second ? 2 : 1;
    atomic_store(&left, false);
    must(!err || sv_to(&e, IBV_QPS_ERR) == 0);
    calls[0].start = calls[1].start = soft_now_ns();
    for (unsigned i = 0; i < count; i++)
        must(pthread_create(&calls[i].thread, NULL, run_call, &calls[i]) == 0);
    uint64_t start = soft_now_ns(); /* enough for who does not wait at all */
    while (soft_now_ns() - start < CALL_NS / 2 && !atomic_load(&calls[count - 1].returned))
        sched_yield();
    atomic_store(&left, true);
    sv_tell(child.fd, 1);
    must(sv_hear(child.fd) == 2);
    for (unsigned i = 0; i < count; i++)
        must(pthread_join(calls[i].thread, NULL) == 0);
    for (unsigned i = 0; i < count; i++)
        assert_false(calls[i].early);
    if (first == destroys)
        e.qp = NULL;
    sv_close(&e);
    finish(&child);
}

/* Whichever way a queue pair ends: after the call nothing is written through it. */
TEST(a_queue_pair_that_is_reset_is_left_before) {
    wait_all(resets, NULL, false);
    wait_all(resets, NULL, true);
}

TEST(memory_is_left_before_it_is_taken_back_whoever_else_ends_the_queue_pair) {
    for (unsigned i = 0; i < 3; i++)
        wait_all(destroys, takes_back, true);
}

/* A right that is taken away does not make the peer leave. */
TEST(a_peer_whose_right_was_taken_away_is_waited_for) {
    struct sv_child child;
    struct sv_end e;
    begin(&e, &child, connected);
    struct ibv_qp_attr attr = {.qp_access_flags = IBV_ACCESS_LOCAL_WRITE};
    must(sv_recv(&e, 5, 0, 64) == 0);
    must(soft_modify_qp(e.qp, &attr, IBV_QP_ACCESS_FLAGS) == 0);
    must(sv_to(&e, IBV_QPS_ERR) == 0);
    sv_stays_empty(e.rcq, NULL);
    leaves(&e);
    must(sv_poll(e.rcq).status == IBV_WC_WR_FLUSH_ERR);
    sv_close(&e);
    finish(&child);
}
