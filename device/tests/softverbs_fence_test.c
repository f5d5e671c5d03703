/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs_fence_test.c - a seccomp filter forbids membarrier() to a process that has told its peers that they
 * need no fences: they put them in, and nothing that counts on the order goes on before. Each in a process of
 * its own, as a filter is for good.
 */
#include "support/softverbs_onesided.h"
#include "support/softverbs_tcp.h"
#include "support/rows.h"
#include "support/no_membarrier.h"

#include "soft/ipc/peer.h"

#include <linux/membarrier.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>

#include "soft/ipc/peer_internal.h"
#include "soft/ipc/process_fence.h"
#include "soft/verbs/internal.h"

enum { CANNOT = 77, ROUNDS = 300 };
#define CALL_WAIT_NS 80000000u /* longer than that nobody waits for a peer (rkey_fence.c) */

/* For all threads of the process, the engine too. */
static void forbid(void) {
    if (!no_membarrier())
        _exit(CANNOT);
    must(syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) == -1);
}

static bool omits(struct ibv_qp *ibqp) {
    struct soft_qp *qp = soft_qp_of(ibqp);
    spin_lock(&qp->lock);
    bool omitted = qp->fence_free;
    spin_unlock(&qp->lock);
    return omitted;
}

struct child {
    void (*fn)(int fd);
};

static void in_a_child(void **state) {
    struct sv_child child = sv_fork(((const struct child *)*state)->fn);
    int status = sv_join(&child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == CANNOT)
        skip(); /* no membarrier, or no filters */
    assert_int_equal(status, 0);
}

/* ---- a key is taken back -------------------------------------------------------------------------------- */

static void take_a_key_back(int fd) {
    (void)fd;
    struct onesided p;
    onesided_open(&p, MAPPED, ALL_REMOTE, ALL_REMOTE, 4);
    if (!omits(p.a.qp))
        _exit(CANNOT);
    forbid();
    uint64_t since = soft_now_ns();
    must(soft_dereg_mr(p.open) == 0); /* the first to notice */
    must(!omits(p.a.qp) || soft_now_ns() - since >= CALL_WAIT_NS);
    sv_until(!omits(p.a.qp));
    sv_until(!soft_fence_any_unsure());
    struct sv_end c, d; /* who comes later is told at once */
    sv_pair(&c, SV_OPTIONS(), &d, SV_OPTIONS());
    sv_wait_linked(&c);
    must(!omits(c.qp));
}

struct writer {
    struct onesided *p;
    uint32_t rkey;
    _Atomic unsigned done;
};

static void *writes(void *arg) {
    struct writer *w = arg;
    struct ibv_wc wc = {.status = IBV_WC_SUCCESS};
    for (unsigned seed = 1; wc.status == IBV_WC_SUCCESS; seed++) {
        memset(w->p->a.buf, (int)seed, 3000);
        must(onesided_post(w->p, IBV_WR_RDMA_WRITE, 0, seed % 2 ? 3000 : 8, 0, w->rkey, 0) == 0);
        wc = sv_poll(w->p->a.rcq);
        atomic_store(&w->done, seed);
    }
    must(wc.status == IBV_WC_REM_ACCESS_ERR);
    return NULL;
}

static void take_keys_back_in_traffic(int fd) {
    (void)fd;
    static uint8_t seen[3000];
    for (int turn = 0; turn < 16; turn++) {
        struct onesided p;
        onesided_open(&p, MAPPED, ALL_REMOTE, ALL_REMOTE, 4);
        if (turn == 0 && !omits(p.a.qp))
            _exit(CANNOT);
        struct writer w = {.p = &p, .rkey = p.open->rkey, .done = 0};
        pthread_t thread;
        must(pthread_create(&thread, NULL, writes, &w) == 0);
        sv_until(atomic_load(&w.done) > 20);
        if (turn == 0)
            forbid();
        uint64_t since = soft_now_ns();
        must(soft_dereg_mr(p.open) == 0);
        bool waited = soft_now_ns() - since < CALL_WAIT_NS;
        memcpy(seen, p.b.buf, sizeof seen);
        must(pthread_join(thread, NULL) == 0);
        must_data(memcmp(seen, p.b.buf, sizeof seen) == 0 || !waited);
        p.open = soft_reg_mr(p.b.pd, p.b.buf, ONESIDED_BYTES, IBV_ACCESS_LOCAL_WRITE);
        must(p.open);
        onesided_close(&p);
    }
}

/* ---- somebody goes to sleep ------------------------------------------------------------------------------- */

static void wait_for_event(struct sv_end *e) {
    struct pollfd ready = {.fd = e->channel->fd, .events = POLLIN};
    must(poll(&ready, 1, SV_DEADLINE_NS / 1000000) == 1);
    sv_cq_event(e->channel);
}

struct sleeper {
    struct sv_end *e;
    unsigned rounds;
};

/* Sleeps for every message, and answers it. */
static void *sleeps(void *arg) {
    struct sleeper *s = arg;
    for (unsigned got = 0; got < s->rounds;) {
        struct ibv_wc wc[4];
        must(soft_req_notify_cq(s->e->rcq, 0) == 0);
        int n = ibv_poll_cq(s->e->rcq, 4, wc);
        for (int i = 0; i < n; i++) {
            must(wc[i].status == IBV_WC_SUCCESS);
            if (wc[i].opcode != IBV_WC_RECV)
                continue;
            got++;
            must(sv_recv(s->e, 1, 0, 64) == 0 && sv_send(s->e, 2, 0, 8, IBV_SEND_SIGNALED) == 0);
        }
        if (n == 0 && got < s->rounds)
            wait_for_event(s->e);
    }
    return NULL;
}

static void sleep_and_answer(int fd) {
    (void)fd;
    struct sv_end a, b;
    sv_open(&a, SV_OPTIONS(.one_cq = true, .channel = true));
    sv_open(&b, SV_OPTIONS(.one_cq = true, .channel = true));
    sv_connect(&a, b.qp->qp_num);
    sv_connect(&b, a.qp->qp_num);
    sv_wait_linked(&a);
    sv_wait_linked(&b);
    for (int i = 0; i < 8; i++)
        must(sv_recv(&a, 1, 0, 64) == 0 && sv_recv(&b, 1, 0, 64) == 0);
    if (!omits(a.qp))
        _exit(CANNOT);
    struct sleeper sleepers[2] = {{&a, ROUNDS}, {&b, ROUNDS}};
    pthread_t threads[2];
    must(pthread_create(&threads[0], NULL, sleeps, &sleepers[0]) == 0);
    must(pthread_create(&threads[1], NULL, sleeps, &sleepers[1]) == 0);
    must(sv_send(&a, 2, 0, 8, IBV_SEND_SIGNALED) == 0); /* it goes to and fro by itself now */
    forbid();
    must(pthread_join(threads[0], NULL) == 0);
    must(pthread_join(threads[1], NULL) == 0);
    sv_until(!omits(a.qp) && !omits(b.qp) && !soft_fence_any_unsure());
}

/* As if they had been asked, and do not answer. */
static void peers_do_not_answer(void) {
    soft_lock();
    struct soft_peer *peer;
    cds_list_for_each_entry(peer, &soft_peers, link)
        atomic_store(&peer->fences, SOFT_FENCES_ASKED);
    soft_unlock();
}

/* What a peer gives that has not heard of it, and believes that nobody sleeps, is found all the same. */
static void miss_a_bell(int fd) {
    (void)fd;
    static _Atomic uint32_t nobody;
    struct sv_end a, b;
    sv_pair(&a, SV_OPTIONS(), &b, SV_OPTIONS(.channel = true));
    sv_wait_linked(&a);
    must(sv_recv(&b, 1, 0, 64) == 0);
    struct soft_qp *qp = soft_qp_of(a.qp);
    if (!omits(a.qp))
        _exit(CANNOT);
    peers_do_not_answer();
    forbid();
    must(soft_req_notify_cq(b.rcq, 0) == 0);
    for (int i = 0; i < 4; i++)
        sv_stays_empty(a.scq, NULL); /* the engine has looked, and looks again */
    spin_lock(&qp->lock);
    qp->peer_recv_armed = &nobody;
    spin_unlock(&qp->lock);
    must(sv_send(&a, 2, 0, 8, 0) == 0);
    wait_for_event(&b);
    must(omits(a.qp) && soft_fence_any_unsure());
}

/* Where all comes over sockets no other process looks at the armed word: the call, which interrupts other CPUs, is not made. */
static void sleep_on_sockets_alone(int fd) {
    (void)fd;
    struct tcp_pair p;
    struct sv_end a, b;
    tcp_open(&p, &(struct tcp_options){
                     .o = {.one_cq = true, .channel = true}, .crc = true, .extended = true});
    sv_pair(&a, SV_OPTIONS(), &b, SV_OPTIONS(.channel = true));
    if (!soft_fence_able())
        _exit(CANNOT);
    forbid();
    for (unsigned i = 0; i < 20; i++) {
        tcp_recv(&p, i, 0, 64, 1);
        must(soft_req_notify_cq(p.b.rcq, 0) == 0);
        must(sv_send(&p.a, 0, 0, 64, 0) == 0);
        wait_for_event(&p.b);
        tcp_expect(p.b.rcq, i, IBV_WC_SUCCESS);
    }
    must(soft_fence_able()); /* the device has not noticed */
    must(soft_req_notify_cq(b.rcq, 0) == 0);
    must(!soft_fence_able());
}

static void wait_for_no_answer(int fd) {
    (void)fd;
    struct onesided p;
    onesided_open(&p, MAPPED, ALL_REMOTE, ALL_REMOTE, 4);
    if (!omits(p.a.qp))
        _exit(CANNOT);
    peers_do_not_answer();
    forbid();
    uint64_t since = soft_now_ns();
    must(soft_dereg_mr(p.open) == 0);
    must(soft_now_ns() - since >= CALL_WAIT_NS / 2); /* it may be inside: no longer, but no less */
    must(omits(p.a.qp) && soft_fence_any_unsure());
    p.open = soft_reg_mr(p.b.pd, p.b.buf, ONESIDED_BYTES, IBV_ACCESS_LOCAL_WRITE);
    onesided_close(&p);
}

/* ---- another process -------------------------------------------------------------------------------------- */

static void tell(int fd, const void *what, size_t bytes) {
    must(write(fd, what, bytes) == (ssize_t)bytes);
}
static void hear(int fd, void *what, size_t bytes) {
    must(read(fd, what, bytes) == (ssize_t)bytes);
}

/* The child is who loses it. */
static void lose_it_far_from_the_peer(int fd) {
    struct sv_end e;
    uint32_t number;
    char byte = 1;
    sv_open(&e, SV_OPTIONS(0));
    struct ibv_mr *open =
        soft_reg_mr(e.pd, e.buf, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    must(open);
    tell(fd, &e.qp->qp_num, sizeof number);
    hear(fd, &number, sizeof number);
    onesided_to_rts(&e, number, ALL_REMOTE, 4);
    sv_wait_linked(&e);
    hear(fd, &byte, 1); /* it is connected too */
    forbid();
    uint64_t since = soft_now_ns();
    must(soft_dereg_mr(open) == 0);
    byte = soft_now_ns() - since < CALL_WAIT_NS; /* it did not give up */
    tell(fd, &byte, 1);
    hear(fd, &byte, 1);
    sv_close(&e);
}

TEST(a_peer_in_another_process_puts_its_fences_in) {
    struct sv_child child = sv_fork(lose_it_far_from_the_peer);
    struct sv_end e;
    uint32_t number;
    char byte = 1;
    sv_open(&e, SV_OPTIONS(0));
    hear(child.fd, &number, sizeof number);
    tell(child.fd, &e.qp->qp_num, sizeof number);
    onesided_to_rts(&e, number, ALL_REMOTE, 4);
    sv_wait_linked(&e);
    bool could = omits(e.qp);
    tell(child.fd, &byte, 1);
    bool heard = recv(child.fd, &byte, 1, 0) == 1; /* not where there are no filters */
    if (heard && could && byte)
        assert_false(omits(e.qp));
    if (heard) {
        sv_until(!omits(e.qp));
        tell(child.fd, &byte, 1);
    }
    int status = sv_join(&child);
    sv_close(&e);
    if (!heard && WIFEXITED(status) && WEXITSTATUS(status) == CANNOT)
        skip();
    assert_int_equal(status, 0);
}

TEST_CASES(ROW(a_key_is_taken_back_when_nobody_goes_without_a_fence, in_a_child, child,
               take_a_key_back),
           ROW(nobody_writes_through_a_key_that_was_taken_back, in_a_child, child,
               take_keys_back_in_traffic),
           ROW(who_sleeps_is_woken, in_a_child, child, sleep_and_answer),
           ROW(who_sleeps_on_sockets_alone_interrupts_no_cpu, in_a_child, child,
               sleep_on_sockets_alone),
           ROW(what_came_without_a_bell_is_found, in_a_child, child, miss_a_bell),
           ROW(a_peer_that_does_not_answer_is_waited_for_as_one_that_is_inside, in_a_child, child,
               wait_for_no_answer));
