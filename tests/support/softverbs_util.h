/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs_util.h - what the tests of the software device's verbs share: an end (context, PD, CQs,
 * QP, memory) with its whole life, posting and polling with a deadline, patterns.
 *
 * Everything here also works in a forked child, where cmocka must not be called: must() then prints
 * and exits, and the parent sees the status.
 */
#ifndef SOFTVERBS_UTIL_H
#define SOFTVERBS_UTIL_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/faults.h"
#include "soft/ipc/control_lock.h"
#include "soft/ipc/engine.h"
#include "soft/ipc/peer_internal.h"
#include "soft/ipc/spinlock.h"
#include "soft/ipc/untrusted_fd.h"
#include "soft/soft.h"
#include "soft/verbs/mr.h"
#include "soft/verbs/qp.h"
#include "support/pattern.h"
#include "support/tasks.h"
#include "support/verdict.h"

#define SV_UNUSED __attribute__((unused))
#define SV_DEADLINE_NS 30000000000ull /* far above what a loaded machine with a sanitizer needs */

bool sv_in_child __attribute__((weak)); /* one for all files of a program */

#define must(expr)                                                                                 \
    do {                                                                                           \
        if (!(expr))                                                                               \
            sv_fail(__FILE__, __LINE__, #expr);                                                    \
    } while (0)

static void sv_fail(const char *file, int line, const char *what) {
    if (sv_in_child) {
        fprintf(stderr, "%s:%d: in pid %d: %s (errno %d)\n", file, line, (int)getpid(), what,
                errno);
        _exit(1);
    }
    print_error("%s (errno %d)\n", what, errno);
    _fail(file, line);
}

/* ---- one end ----------------------------------------------------------------------------------- */

struct sv_options {              /* 0 = the default in the comment */
    uint32_t sends, recvs;       /* 64, 64 */
    uint32_t send_sge, recv_sge; /* 4, 4 */
    uint32_t inline_bytes;       /* what the device gives anyway */
    int cqe;                     /* 256 */
    bool sig_all, one_cq, channel;
    uint8_t rnr_timer;          /* 1: 10 us */
    uint8_t timeout, retry_cnt; /* 14 (67 ms), 1 */
    bool finite_rnr;            /* rnr_retry as below instead of 7 (wait for ever) */
    uint8_t rnr_retry;
    size_t bytes;          /* 64 KiB of registered memory */
    bool mapped;           /* that peers map */
    enum ibv_qp_type type; /* RC */
};

struct sv_end {
    struct sv_options o;
    struct ibv_context *ctx;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *scq, *rcq;
    struct ibv_qp *qp;
    struct ibv_qp_cap cap;
    uint8_t *buf;
    struct ibv_mr *mr;
};

#define SV_OPTIONS(...) ((struct sv_options){__VA_ARGS__})

SV_UNUSED static struct ibv_context *sv_context(void) {
    struct ibv_device **list = soft_get_device_list(NULL);
    must(list && list[0]);
    struct ibv_context *ctx = soft_open_device(list[0]);
    soft_free_device_list(list);
    must(ctx);
    return ctx;
}

SV_UNUSED static struct ibv_qp *sv_qp(struct sv_end *e) {
    struct ibv_qp_init_attr init = {
        .qp_context = e,
        .send_cq = e->scq,
        .recv_cq = e->rcq,
        .cap = {.max_send_wr = e->o.sends,
                .max_recv_wr = e->o.recvs,
                .max_send_sge = e->o.send_sge,
                .max_recv_sge = e->o.recv_sge,
                .max_inline_data = e->o.inline_bytes},
        .qp_type = e->o.type ? e->o.type : IBV_QPT_RC,
        .sq_sig_all = e->o.sig_all,
    };
    struct ibv_qp *qp = soft_create_qp(e->pd, &init);
    must(qp);
    e->cap = init.cap;
    return qp;
}

static size_t sv_pages(size_t bytes) {
    return (bytes + 4095) & ~(size_t)4095;
}

SV_UNUSED static void sv_open(struct sv_end *e, struct sv_options o) {
    memset(e, 0, sizeof *e);
    o.sends = o.sends ? o.sends : 64;
    o.recvs = o.recvs ? o.recvs : 64;
    o.send_sge = o.send_sge ? o.send_sge : 4;
    o.recv_sge = o.recv_sge ? o.recv_sge : 4;
    o.cqe = o.cqe ? o.cqe : 256;
    o.rnr_timer = o.rnr_timer ? o.rnr_timer : 1;
    o.timeout = o.timeout ? o.timeout : 14;
    o.retry_cnt = o.retry_cnt ? o.retry_cnt : 1;
    o.bytes = o.bytes ? o.bytes : 65536;
    e->o = o;
    e->ctx = sv_context();
    e->pd = soft_alloc_pd(e->ctx);
    must(e->pd);
    if (o.channel) {
        e->channel = soft_create_comp_channel(e->ctx);
        must(e->channel);
    }
    e->rcq = soft_create_cq(e->ctx, o.cqe, e, e->channel, 0);
    e->scq = o.one_cq ? e->rcq : soft_create_cq(e->ctx, o.cqe, e, e->channel, 0);
    must(e->rcq && e->scq);
    e->buf = o.mapped ? soft_mem_alloc(sv_pages(o.bytes)) : calloc(1, o.bytes);
    must(e->buf);
    e->mr = soft_reg_mr(e->pd, e->buf, o.bytes, IBV_ACCESS_LOCAL_WRITE);
    must(e->mr);
    e->qp = sv_qp(e);
}

SV_UNUSED static void sv_close(struct sv_end *e) {
    if (e->qp)
        must(soft_destroy_qp(e->qp) == 0);
    must(soft_dereg_mr(e->mr) == 0);
    if (e->o.mapped)
        soft_mem_free(e->buf, sv_pages(e->o.bytes));
    else
        free(e->buf);
    must(soft_destroy_cq(e->rcq) == 0);
    if (e->scq != e->rcq)
        must(soft_destroy_cq(e->scq) == 0);
    if (e->channel)
        must(soft_destroy_comp_channel(e->channel) == 0);
    must(soft_dealloc_pd(e->pd) == 0);
    must(soft_close_device(e->ctx) == 0);
}

/* ---- states ------------------------------------------------------------------------------------ */

#define SV_INIT_MASK (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define SV_RTR_MASK                                                                                \
    (IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |                \
     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define SV_RTS_MASK                                                                                \
    (IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |         \
     IBV_QP_MAX_QP_RD_ATOMIC)

static struct ibv_qp_attr sv_attr(const struct sv_end *e, enum ibv_qp_state state, uint32_t dest) {
    return (struct ibv_qp_attr){
        .qp_state = state,
        .path_mtu = IBV_MTU_4096,
        .dest_qp_num = dest,
        .port_num = 1,
        .ah_attr = {.is_global = 1, .port_num = 1},
        .max_rd_atomic = 1,
        .max_dest_rd_atomic = 1,
        .min_rnr_timer = e->o.rnr_timer,
        .timeout = e->o.timeout,
        .retry_cnt = e->o.retry_cnt,
        .rnr_retry = e->o.finite_rnr ? e->o.rnr_retry : 7,
    };
}

SV_UNUSED static int sv_to_init(struct sv_end *e) {
    struct ibv_qp_attr attr = sv_attr(e, IBV_QPS_INIT, 0);
    return soft_modify_qp(e->qp, &attr, SV_INIT_MASK);
}

SV_UNUSED static int sv_to_rtr(struct sv_end *e, uint32_t dest) {
    struct ibv_qp_attr attr = sv_attr(e, IBV_QPS_RTR, dest);
    return soft_modify_qp(e->qp, &attr, SV_RTR_MASK);
}

SV_UNUSED static int sv_to_rts(struct sv_end *e) {
    struct ibv_qp_attr attr = sv_attr(e, IBV_QPS_RTS, 0);
    return soft_modify_qp(e->qp, &attr, SV_RTS_MASK);
}

SV_UNUSED static int sv_to(struct sv_end *e, enum ibv_qp_state state) {
    struct ibv_qp_attr attr = {.qp_state = state};
    return soft_modify_qp(e->qp, &attr, IBV_QP_STATE);
}

SV_UNUSED static void sv_connect(struct sv_end *e, uint32_t dest) {
    must(sv_to_init(e) == 0);
    must(sv_to_rtr(e, dest) == 0);
    must(sv_to_rts(e) == 0);
}

/* Two connected ends in this process. */
SV_UNUSED static void sv_pair(struct sv_end *a, struct sv_options oa, struct sv_end *b,
                              struct sv_options ob) {
    sv_open(a, oa);
    sv_open(b, ob);
    sv_connect(a, b->qp->qp_num);
    sv_connect(b, a->qp->qp_num);
}

SV_UNUSED static void sv_unpair(struct sv_end *a, struct sv_end *b) {
    sv_close(a);
    sv_close(b);
}

/* ---- waiting ----------------------------------------------------------------------------------- */

static void sv_pause(unsigned *turns, uint64_t since, const char *what, int line) {
    if (++*turns % 256 == 0) {
        sched_yield();
        if (soft_now_ns() - since > SV_DEADLINE_NS)
            sv_fail(__FILE__, line, what);
    }
}

#define sv_until(expr)                                                                             \
    do {                                                                                           \
        unsigned turns_ = 0;                                                                       \
        uint64_t since_ = soft_now_ns();                                                           \
        while (!(expr))                                                                            \
            sv_pause(&turns_, since_, "deadline: " #expr, __LINE__);                               \
    } while (0)

SV_UNUSED static struct ibv_wc sv_poll_at(struct ibv_cq *cq, int line) {
    struct ibv_wc wc;
    memset(&wc, 0x5a, sizeof wc); /* what the device leaves out shows */
    unsigned turns = 0;
    uint64_t since = soft_now_ns();
    for (int n = 0; n == 0; sv_pause(&turns, since, "no completion", line)) {
        n = ibv_poll_cq(cq, 1, &wc);
        must(n >= 0);
        if (n == 1)
            break;
    }
    return wc;
}
#define sv_poll(cq) sv_poll_at(cq, __LINE__)

/*
 * Nothing comes out of this CQ, however often it and the other one is looked at. How long is a
 * matter of taste: long enough for the engine to have had its turn many times.
 */
SV_UNUSED static void sv_stays_empty(struct ibv_cq *cq, struct ibv_cq *other) {
    struct ibv_wc wc;
    uint64_t until = soft_now_ns() + 5000000;
    while (soft_now_ns() < until) {
        must(ibv_poll_cq(cq, 1, &wc) == 0);
        if (other)
            must(ibv_poll_cq(other, 1, &wc) == 0);
    }
}

/* The ring of the other side arrived, so that a post goes out at once. */
SV_UNUSED static void sv_wait_linked(struct sv_end *e) {
    sv_until(atomic_load(&soft_qp_of(e->qp)->tx) != NULL);
}

/* The other side mapped this end's memory: what follows goes as descriptors. */
SV_UNUSED static void sv_wait_mapped(struct sv_end *e) {
    struct soft_qp *qp = soft_qp_of(e->qp);
    int region = soft_mr_of(e->mr)->region;
    must(region >= 0);
    sv_until(atomic_load(&qp->peer->region_sent[region]) == REGION_READY);
}

SV_UNUSED static uint32_t sv_slots_written(struct sv_end *e) {
    struct soft_qp *qp = soft_qp_of(e->qp);
    spin_lock(&qp->lock);
    uint32_t pos = qp->tx_pos;
    spin_unlock(&qp->lock);
    return pos;
}

/* ---- posting ----------------------------------------------------------------------------------- */

static struct ibv_sge sv_sge(const struct sv_end *e, size_t offset, size_t bytes) {
    return (struct ibv_sge){(uintptr_t)e->buf + offset, (uint32_t)bytes, e->mr->lkey};
}

SV_UNUSED static int sv_recv(struct sv_end *e, uint64_t wr_id, size_t offset, size_t bytes) {
    struct ibv_sge sge = sv_sge(e, offset, bytes);
    struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1}, *bad = NULL;
    int rc = ibv_post_recv(e->qp, &wr, &bad);
    must(rc == 0 || bad == &wr);
    return rc;
}

SV_UNUSED static int sv_send(struct sv_end *e, uint64_t wr_id, size_t offset, size_t bytes,
                             unsigned flags) {
    struct ibv_sge sge = sv_sge(e, offset, bytes);
    struct ibv_send_wr wr = {.wr_id = wr_id,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_SEND,
                             .send_flags = flags},
                       *bad = NULL;
    int rc = ibv_post_send(e->qp, &wr, &bad);
    must(rc == 0 || bad == &wr);
    return rc;
}

/* ---- patterns ---------------------------------------------------------------------------------- */

static inline uint8_t sv_byte(size_t i, uint32_t seed) {
    return pattern_byte(i, seed);
}

SV_UNUSED static void sv_fill(uint8_t *p, size_t bytes, uint32_t seed) {
    pattern_fill(p, 0, bytes, seed);
}

SV_UNUSED static void sv_check(const uint8_t *p, size_t bytes, uint32_t seed) {
    uint8_t part[256];
    size_t i = 0;
    for (size_t n; i < bytes; i += n) {
        n = bytes - i < sizeof part ? bytes - i : sizeof part;
        pattern_fill(part, i, n, seed);
        if (memcmp(p + i, part, n) != 0)
            break;
    }
    while (i < bytes && p[i] == sv_byte(i, seed))
        i++;
    if (i != bytes)
        verdict_wrong_data("byte %zu of %zu differs (seed %u)", i, bytes, (unsigned)seed);
    must(i == bytes);
}

/* ---- counts ------------------------------------------------------------------------------------ */

SV_UNUSED static unsigned sv_entries(const char *path) {
    DIR *dir = opendir(path);
    must(dir);
    unsigned n = 0;
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

/* What the last peer left behind is closed by a thread of its own, in its own time. */
SV_UNUSED static unsigned sv_fds(void) {
    sv_until(soft_untrusted_fd_pending() == 0);
    return sv_entries("/proc/self/fd");
}

/* The threads that close what peers left behind (untrusted_fd.h), which end when it is closed. */
#define SV_CLOSER "sluice-close"

SV_UNUSED static unsigned sv_closers(void) {
    return tasks_named(SV_CLOSER);
}

/* All others. The engine starts the former with the lock held: none is without its name. */
SV_UNUSED static unsigned sv_threads(void) {
    soft_lock();
    unsigned n = tasks_not_named(SV_CLOSER);
    soft_unlock();
    return n;
}

/* ---- other processes --------------------------------------------------------------------------- */

struct sv_child {
    pid_t pid;
    int fd; /* socket to it */
};

/*
 * Runs fn in a forked process with one end of a socket pair. Its exit status 0 means that all went
 * well. The parent may or may not have used the device before.
 */
SV_UNUSED static struct sv_child sv_fork(void (*fn)(int fd)) {
    int pair[2];
    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    fflush(NULL);
    pid_t pid = fork();
    must(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a killed test leaves nobody behind */
        faults_end_this_process();
        sv_in_child = true;
        close(pair[0]);
        fn(pair[1]);
        _exit(0);
    }
    close(pair[1]);
    return (struct sv_child){.pid = pid, .fd = pair[0]};
}

SV_UNUSED static int sv_join(struct sv_child *child) {
    int status;
    must(waitpid(child->pid, &status, 0) == child->pid);
    close(child->fd);
    return status;
}

SV_UNUSED static void sv_tell(int fd, uint32_t value) {
    must(send(fd, &value, sizeof value, MSG_NOSIGNAL) == sizeof value);
}

SV_UNUSED static uint32_t sv_hear(int fd) {
    uint32_t value = 0;
    must(recv(fd, &value, sizeof value, MSG_WAITALL) == sizeof value);
    return value;
}

/* Both sides came so far. */
SV_UNUSED static void sv_barrier(int fd) {
    sv_tell(fd, 0xb0b0);
    must(sv_hear(fd) == 0xb0b0);
}

/*
 * Exchanges queue pair numbers over the socket and connects. Both sides call it, and both answer when it
 * returns: what is sent to a number that nobody answers for yet exhausts its retries.
 */
SV_UNUSED static void sv_meet(struct sv_end *e, int fd) {
    sv_tell(fd, e->qp->qp_num);
    sv_connect(e, sv_hear(fd));
    sv_barrier(fd);
}

/* What two children tell each other once. */
SV_UNUSED static void sv_relay(const struct sv_child *left, const struct sv_child *right) {
    uint32_t from_left = sv_hear(left->fd), from_right = sv_hear(right->fd);
    sv_tell(left->fd, from_right);
    sv_tell(right->fd, from_left);
}

/* And what they do in sv_meet(). */
SV_UNUSED static void sv_introduce(const struct sv_child *left, const struct sv_child *right) {
    sv_relay(left, right);
    sv_relay(left, right);
}

#endif
