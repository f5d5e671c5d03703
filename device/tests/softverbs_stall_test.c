/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs_stall_test.c - memory of another process that does not answer: its page faults are served when its owner
 * likes. Only the queue pair that asked for it waits, and what is asked meanwhile goes another way. Here the system
 * calls that would wait are this program's own.
 */
#include "support/softverbs.h"
#include "support/softverbs_onesided.h"
#include "support/rows.h"
#include "soft/rc/completer.h"
#include "soft/rc/process_copy.h"
#include "soft/rc/ring_exchange.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#define QPS 6 /* more than one process may have threads for */
_Static_assert(QPS > PROCESS_COPY_OF_ONE, "");
#define CALL_NS 80000000u /* what a call waits */

static _Atomic uintptr_t stall_at;
static _Atomic size_t stall_bytes;
static _Atomic unsigned stalled, calls;
static _Atomic pid_t caller;

/* All memory here is this process's, whatever other process it is said to be of. */
static void wait_for_it(pid_t pid, const struct iovec *remote) {
    must(pid > 0);
    atomic_fetch_add(&calls, 1);
    atomic_store(&caller, gettid());
    if ((uintptr_t)remote->iov_base - stall_at >= stall_bytes)
        return;
    atomic_fetch_add(&stalled, 1);
    while ((uintptr_t)remote->iov_base - stall_at < stall_bytes)
        sched_yield();
    atomic_fetch_sub(&stalled, 1);
}

ssize_t process_vm_readv(pid_t pid, const struct iovec *local, unsigned long n,
                         const struct iovec *remote, unsigned long m, unsigned long flags) {
    wait_for_it(pid, remote);
    return syscall(SYS_process_vm_readv, getpid(), local, n, remote, m, flags);
}

ssize_t process_vm_writev(pid_t pid, const struct iovec *local, unsigned long n,
                          const struct iovec *remote, unsigned long m, unsigned long flags) {
    wait_for_it(pid, remote);
    return syscall(SYS_process_vm_writev, getpid(), local, n, remote, m, flags);
}

static void stall(const void *at, size_t bytes) {
    atomic_store(&stall_at, (uintptr_t)at);
    atomic_store(&stall_bytes, bytes);
}

static void answer(void) {
    atomic_store(&stall_bytes, 0);
    sv_until(atomic_load(&stalled) == 0);
}

static void begin(struct onesided *p) {
    onesided_open(p, PROCESS, ALL_REMOTE, ALL_REMOTE, 4);
    sv_fill(p->b.buf, ONESIDED_BYTES, 3);
    stall(p->b.buf, ONESIDED_BYTES);
}

static void end(struct onesided *p) {
    answer();
    onesided_close(p);
}

/* Messages come and go on a new pair, which needs the engine, this thread, and a lock of neither queue pair. */
static void others_go_on(void) {
    struct sv_end c, d;
    sv_pair(&c, SV_OPTIONS(.one_cq = true), &d, SV_OPTIONS(.one_cq = true));
    must(sv_recv(&d, 1, 0, 64) == 0 && sv_send(&c, 2, 0, 64, IBV_SEND_SIGNALED) == 0);
    must(sv_poll(d.rcq).status == IBV_WC_SUCCESS && sv_poll(c.scq).status == IBV_WC_SUCCESS);
    sv_unpair(&c, &d);
}

struct peers {
    bool second, dropin;
};
static void who_copies(void **state);

/* First of all: the thread sanitizer wants no thread to be there, or about to end, when a child is made that has some. */
TEST(a_thread_copies_for_a_program_with_two_peers) {
    struct peers both = {true, true};
    void *with = &both;
    who_copies(&with);
}

/* ---- who asks waits alone ------------------------------------------------------------------------- */

struct access {
    enum ibv_wr_opcode opcode;
    size_t bytes;
};

static void only_the_request_waits(void **state) {
    const struct access *with = *state;
    bool write = with->opcode == IBV_WR_RDMA_WRITE;
    struct onesided p;
    begin(&p);
    sv_fill(p.a.buf, ONESIDED_BYTES, 4);
    must(onesided_post(&p, with->opcode, 0, with->bytes, 0, p.open->rkey, 0) == 0);
    sv_until(atomic_load(&stalled) == 1);
    must(atomic_load(&caller) != gettid());
    others_go_on();
    sv_stays_empty(p.a.scq, p.b.scq);
    must(atomic_load(&stalled) == 1);
    answer();
    onesided_expect(&p, IBV_WC_SUCCESS, write ? IBV_WC_RDMA_WRITE : IBV_WC_RDMA_READ);
    sv_check(write ? p.b.buf : p.a.buf, with->bytes, write ? 4 : 3);
    end(&p);
}

/* The address of the process's own name, which the greeting says, is as much its memory. */
TEST(no_thread_waits_for_the_memory_that_a_greeting_names) {
    struct onesided p;
    stall(soft_own_uuid, sizeof soft_own_uuid);
    onesided_open(&p, MAPPED, ALL_REMOTE, ALL_REMOTE, 4);
    must(atomic_load(&stalled) == 0);
    struct ibv_mr *private = soft_reg_mr(p.b.pd, malloc(4096), 4096, ALL_REMOTE | 1);
    must(private);
    struct ibv_sge sge = sv_sge(&p.a, 0, 64);
    struct ibv_send_wr *bad, wr = {.sg_list = &sge,
                                   .num_sge = 1,
                                   .opcode = IBV_WR_RDMA_READ,
                                   .send_flags = IBV_SEND_SIGNALED,
                                   .wr.rdma = {(uintptr_t) private->addr, private->rkey}};
    memset(private->addr, 7, 4096);
    while (atomic_load(&stalled) ==
           0) { /* through the ring, until there is a thread that may wait */
        must(ibv_post_send(p.a.qp, &wr, &bad) == 0);
        sv_until(atomic_load(&stalled) == 1 || ibv_poll_cq(p.a.scq, 1, &(struct ibv_wc){0}) == 1);
    }
    others_go_on();
    answer();
    must(sv_poll(p.a.scq).status == IBV_WC_SUCCESS && p.a.buf[63] == 7);
    void *memory = private->addr;
    must(soft_dereg_mr(private) == 0);
    free(memory);
    onesided_close(&p);
}

/* ---- and not for long ------------------------------------------------------------------------------ */

static void all_stall(void) {
    stall(NULL, SIZE_MAX);
}

static int ask(struct onesided *p) {
    return onesided_post(p, IBV_WR_RDMA_READ, 0, 64, 0, p->open->rkey, 0);
}

static bool answered(struct onesided *p) {
    struct ibv_wc wc;
    int n = ibv_poll_cq(p->a.scq, 1, &wc);
    if (n == 0)
        return false;
    must(n == 1 && wc.status == IBV_WC_SUCCESS);
    sv_check(p->a.buf, 64, 3);
    return true;
}

static void pass_for(struct soft_peer *self, pid_t pid) {
    soft_lock();
    self->pid = pid;
    soft_unlock();
}

/* There are so many threads, and none has anything to do: each pair passes for one of another process meanwhile. */
static void threads(struct onesided *p, unsigned n) {
    struct soft_peer *self = soft_qp_of(p->a.qp)->link_peer;
    while (tasks_named("sluice-copy") < n) {
        all_stall();
        for (unsigned i = 0; i < n; i++) {
            pass_for(self, 100 + (pid_t)i);
            must(ask(&p[i]) == 0);
        }
        answer();
        for (unsigned i = 0; i < n; i++)
            sv_until(answered(&p[i]));
    }
    pass_for(self, getpid());
}

TEST(one_process_keeps_few_threads_waiting_and_the_rest_goes_through_its_ring) {
    static struct onesided p[QPS];
    unsigned through_the_ring = 0;
    bool done[QPS];
    for (unsigned i = 0; i < QPS; i++) {
        begin(&p[i]);
        answer();
    }
    threads(p, QPS);
    all_stall();
    for (unsigned i = 0; i < QPS; i++) {
        unsigned before = atomic_load(&stalled);
        must(ask(&p[i]) == 0);
        sv_until((done[i] = answered(&p[i])) || atomic_load(&stalled) > before);
        through_the_ring += done[i];
    }
    assert_uint_in_range(atomic_load(&stalled), 1, PROCESS_COPY_OF_ONE);
    assert_int_equal(through_the_ring, QPS - atomic_load(&stalled));
    answer();
    for (unsigned i = 0; i < QPS; i++) {
        sv_until(done[i] || answered(&p[i]));
        onesided_close(&p[i]);
    }
}

TEST(a_process_that_keeps_one_thread_waiting_for_long_gets_no_other) {
    struct onesided p[2];
    for (unsigned i = 0; i < 2; i++) {
        begin(&p[i]);
        answer();
    }
    threads(p, 2);
    all_stall();
    must(ask(&p[0]) == 0);
    sv_until(atomic_load(&stalled) == 1);
    uint64_t since = soft_now_ns();
    unsigned before = atomic_load(&calls);
    sv_until(soft_now_ns() - since > 20000000u);
    must(ask(&p[1]) == 0);
    sv_until(answered(&p[1]));
    must(atomic_load(&calls) == before);
    answer();
    sv_until(answered(&p[0]));
    onesided_close(&p[1]);
    onesided_close(&p[0]);
}

struct down {
    enum sv_down how;
};

/* What was posted comes back when no thread copies for it, and in any case in a second. */
static void a_queue_pair_ends_though_a_thread_waits(void **state) {
    const struct down *with = *state;
    struct onesided p;
    begin(&p);
    must(ask(&p) == 0);
    sv_until(atomic_load(&stalled) == 1);
    uint64_t since = soft_now_ns();
    sv_take_down(&p.a, with->how);
    struct ibv_wc wc = {.status = IBV_WC_WR_FLUSH_ERR};
    if (with->how == SV_TO_ERR) {
        must(ibv_poll_cq(p.a.scq, 1, &wc) == 0 || soft_now_ns() - since > 1000000000u);
        sv_until(ibv_poll_cq(p.a.scq, 1, &wc) == 1);
    } else {
        must(soft_now_ns() - since >= CALL_NS);
    }
    must(wc.status == IBV_WC_WR_FLUSH_ERR && atomic_load(&stalled) == 1);
    others_go_on();
    if (p.a.qp)
        must(soft_destroy_qp(p.a.qp) == 0);
    must(soft_destroy_qp(p.b.qp) == 0);
    p.a.qp = p.b.qp = NULL;
    answer();
    must(soft_dereg_mr(p.open) == 0);
    sv_close(&p.a);
    sv_close(&p.b);
}

TEST(a_flush_comes_behind_the_last_byte_that_a_thread_copies) {
    struct onesided p;
    begin(&p);
    must(ask(&p) == 0);
    sv_until(atomic_load(&stalled) == 1);
    must(sv_to(&p.a, IBV_QPS_ERR) == 0);
    answer();
    must(sv_poll(p.a.scq).status == IBV_WC_WR_FLUSH_ERR);
    sv_check(p.a.buf, 64, 3); /* it was there before its request came back */
    onesided_close(&p);
}

TEST(memory_that_a_thread_copies_to_is_given_back_after_a_while) {
    struct onesided p;
    begin(&p);
    must(ask(&p) == 0);
    sv_until(atomic_load(&stalled) == 1);
    uint64_t since = soft_now_ns();
    must(soft_dereg_mr(p.a.mr) == 0);
    must(atomic_load(&stalled) == 1 && soft_now_ns() - since >= CALL_NS);
    answer();
    must(sv_poll(p.a.scq).status == IBV_WC_SUCCESS);
    p.a.mr = soft_reg_mr(p.a.pd, p.a.buf, ONESIDED_BYTES, IBV_ACCESS_LOCAL_WRITE);
    onesided_close(&p);
}

/* ---- a program of the drop-in ----------------------------------------------------------------------- */

static _Atomic pid_t poster;

static void *post(void *arg) {
    atomic_store(&poster, gettid());
    must(ask(arg) == 0);
    return NULL;
}

static void a_second_process(int fd) {
    struct sv_end e;
    sv_open(&e, SV_OPTIONS(.one_cq = true));
    sv_tell(fd, e.qp->qp_num);
    sv_connect(&e, sv_hear(fd));
    sv_wait_linked(&e);
    sv_tell(fd, 1);
    (void)sv_hear(fd);
    sv_close(&e);
}

/* It copies itself where it has one process for a peer, and holds no lock meanwhile. */
static void who_copies(void **state) {
    const struct peers *with = *state;
    struct sv_child child = {.fd = -1};
    struct sv_end e;
    if (with->second) {
        child = sv_fork(a_second_process);
        sv_open(&e, SV_OPTIONS(.one_cq = true));
        sv_tell(child.fd, e.qp->qp_num);
        sv_connect(&e, sv_hear(child.fd));
        sv_wait_linked(&e);
        must(sv_hear(child.fd) == 1);
    }
    struct onesided p;
    pthread_t thread;
    begin(&p);
    assert_int_equal(soft_linked_processes(), with->second ? 2 : 1);
    soft_dropin = with->dropin;
    must(pthread_create(&thread, NULL, post, &p) == 0);
    sv_until(atomic_load(&stalled) == 1);
    assert_int_equal(atomic_load(&caller) == atomic_load(&poster), with->dropin && !with->second);
    must(ask(&p) == 0); /* another thread posts behind it, and copies nothing */
    must(atomic_load(&stalled) == 1);
    soft_dropin = false;
    others_go_on();
    must(spin_try(&soft_qp_of(p.a.qp)->lock));
    spin_unlock(&soft_qp_of(p.a.qp)->lock);
    answer();
    must(pthread_join(thread, NULL) == 0);
    sv_until(answered(&p));
    sv_until(answered(&p));
    onesided_close(&p);
    if (!with->second)
        return;
    sv_tell(child.fd, 2);
    must(sv_join(&child) == 0);
    sv_close(&e);
}

TEST_CASES(ROW(a_read_waits_alone, only_the_request_waits, access, IBV_WR_RDMA_READ, 64),
           ROW(a_long_read_waits_alone, only_the_request_waits, access, IBV_WR_RDMA_READ,
               ONESIDED_BYTES),
           ROW(a_write_waits_alone, only_the_request_waits, access, IBV_WR_RDMA_WRITE, 64),
           ROW(a_long_write_waits_alone, only_the_request_waits, access, IBV_WR_RDMA_WRITE,
               ONESIDED_BYTES),
           ROW(one_goes_to_err_though_a_thread_waits, a_queue_pair_ends_though_a_thread_waits, down,
               SV_TO_ERR),
           ROW(one_goes_to_reset_though_a_thread_waits, a_queue_pair_ends_though_a_thread_waits,
               down, SV_TO_RESET),
           ROW(one_is_destroyed_though_a_thread_waits, a_queue_pair_ends_though_a_thread_waits,
               down, SV_DESTROYED),
           ROW(a_thread_copies_for_the_library, who_copies, peers, false, false),
           ROW(a_program_with_one_peer_copies_itself, who_copies, peers, false, true));
