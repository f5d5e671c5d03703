/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * raw_cost.c - instructions of the software device per operation: both ends of a connection in one
 * thread, so that nothing waits and every run executes the same instructions.
 *
 *   bench/raw/cost            counts with valgrind, one line per figure (the script beside this file)
 *   raw-cost FIGURE COUNT     does FIGURE that many times, inside raw_cost_measure()
 *
 * Times on a shared machine differ from run to run, these counts do not: what a change costs or saves
 * on the fast paths is read here.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabric/fabric.h"
#include "soft/soft.h"

#define F (&fabric_soft)
#define BYTES (1u << 20)
#define LIST 16
#define DEPTH 256

struct end {
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_srq *srq;
};

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static uint8_t *mem;
static struct end a, b;

static void die(const char *what) {
    perror(what);
    exit(1);
}

/* ---- opening ------------------------------------------------------------------------------------ */

static void create_end(struct end *e, bool shared) {
    struct ibv_srq_init_attr srq = {.attr = {.max_wr = DEPTH, .max_sge = 1}};
    struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC,
                                    .cap = {.max_send_wr = DEPTH,
                                            .max_recv_wr = DEPTH,
                                            .max_send_sge = 1,
                                            .max_recv_sge = 1,
                                            .max_inline_data = 64}};
    e->cq = F->create_cq(ctx, 1024, NULL, NULL, 0);
    if (shared)
        init.srq = e->srq = F->create_srq(pd, &srq);
    init.send_cq = init.recv_cq = e->cq;
    e->qp = e->cq ? F->create_qp(pd, &init) : NULL;
    if (!e->qp)
        die("raw-cost: no QP");
}

static void connect_end(struct end *e, const struct end *to) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
                               .port_num = 1,
                               .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
    int rc = F->modify_qp(e->qp, &attr,
                          IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
                                .path_mtu = IBV_MTU_4096,
                                .dest_qp_num = to->qp->qp_num,
                                .max_dest_rd_atomic = 16,
                                .min_rnr_timer = 12};
    rc |= F->modify_qp(e->qp, &attr,
                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                           IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
                                .timeout = 14,
                                .retry_cnt = 7,
                                .rnr_retry = 7,
                                .max_rd_atomic = 16};
    rc |= F->modify_qp(e->qp, &attr,
                       IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                           IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
    if (rc != 0)
        die("raw-cost: modify_qp");
}

static void open_both(bool shared) {
    struct ibv_device **list = F->get_device_list(NULL);
    ctx = list ? F->open_device(list[0]) : NULL;
    if (!ctx || !(pd = F->alloc_pd(ctx)) || !(mem = F->mem_alloc(BYTES)))
        die("raw-cost: the device cannot be opened");
    F->free_device_list(list);
    mr = F->reg_mr(pd, mem, BYTES,
                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                       IBV_ACCESS_MW_BIND);
    if (!mr)
        die("raw-cost: reg_mr");
    create_end(&a, shared);
    create_end(&b, shared);
    connect_end(&a, &b);
    connect_end(&b, &a);
}

static void close_end(struct end *e) {
    F->destroy_qp(e->qp);
    if (e->srq)
        F->destroy_srq(e->srq);
    F->destroy_cq(e->cq);
}

static void close_both(void) {
    close_end(&a);
    close_end(&b);
    F->dereg_mr(mr);
    F->mem_free(mem, BYTES);
    F->dealloc_pd(pd);
    F->close_device(ctx);
}

/* ---- one step each ------------------------------------------------------------------------------ */

static struct ibv_sge recv_sge, send_sge;
static struct ibv_recv_wr recv_wr[LIST];
static struct ibv_send_wr send_wr[LIST];

static void receives(struct end *e, int n) {
    struct ibv_recv_wr *bad;
    recv_sge = (struct ibv_sge){(uintptr_t)mem, 4096, mr->lkey};
    for (int i = 0; i < n; i++)
        recv_wr[i] = (struct ibv_recv_wr){
            .sg_list = &recv_sge, .num_sge = 1, .next = i + 1 < n ? &recv_wr[i + 1] : NULL};
    if (e->srq ? ibv_post_srq_recv(e->srq, recv_wr, &bad) : ibv_post_recv(e->qp, recv_wr, &bad))
        die("raw-cost: post_recv");
}

static void sends(struct end *e, int n, bool signaled) {
    struct ibv_send_wr *bad;
    send_sge = (struct ibv_sge){(uintptr_t)mem + 8192, 64, mr->lkey};
    for (int i = 0; i < n; i++)
        send_wr[i] = (struct ibv_send_wr){
            .sg_list = &send_sge,
            .num_sge = 1,
            .opcode = IBV_WR_SEND,
            .send_flags = IBV_SEND_INLINE | (signaled && i + 1 == n ? IBV_SEND_SIGNALED : 0u),
            .next = i + 1 < n ? &send_wr[i + 1] : NULL};
    if (ibv_post_send(e->qp, send_wr, &bad) != 0)
        die("raw-cost: post_send");
}

/* Polls until n completions came, `array` at a time. */
static void completions(struct end *e, int n, int array) {
    struct ibv_wc wc[32];
    while (n > 0) {
        int got = ibv_poll_cq(e->cq, array, wc);
        for (int i = 0; i < got; i++)
            if (wc[i].status != IBV_WC_SUCCESS) {
                fprintf(stderr, "raw-cost: completion status %d\n", wc[i].status);
                exit(1);
            }
        n -= got;
    }
}

/* ---- figures ------------------------------------------------------------------------------------ */

/* One message there and one back, each answered as soon as it is seen. */
static void ping(int count) {
    receives(&a, LIST);
    receives(&b, LIST);
    sends(&a, 1, false);
    for (int i = 0; i < count; i++) {
        completions(&b, 1, 16);
        receives(&b, 1);
        sends(&b, 1, i % 64 == 63);
        completions(&a, 1, 16);
        receives(&a, 1);
        sends(&a, 1, i % 64 == 63);
        if (i % 64 == 63) { /* the completions of the signalled ones */
            completions(&b, 2, 16);
            receives(&b, 1);
            sends(&b, 1, false);
            completions(&a, 2, 16);
            receives(&a, 1);
            sends(&a, 1, false);
        }
    }
}

/* Sixteen messages in one list, polled and their receives posted together. */
static void lists(int count) {
    receives(&b, LIST);
    for (int i = 0; i < count; i++) {
        sends(&a, LIST, true);
        completions(&b, LIST, 32);
        receives(&b, LIST);
        ibv_poll_cq(b.cq, 1, &(struct ibv_wc){0}); /* an empty poll tells what was taken */
        completions(&a, 1, 32);
    }
}

/* Sixteen posted one by one. */
static void singles(int count) {
    receives(&b, LIST);
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < LIST; k++)
            sends(&a, 1, k + 1 == LIST);
        completions(&b, LIST, 32);
        receives(&b, LIST);
        ibv_poll_cq(b.cq, 1, &(struct ibv_wc){0});
        completions(&a, 1, 32);
    }
}

static void empty(int count) {
    struct ibv_wc wc;
    for (int i = 0; i < count; i++)
        ibv_poll_cq(a.cq, 1, &wc);
}

static void one_sided(enum ibv_wr_opcode opcode, uint32_t rkey) {
    struct ibv_send_wr *bad;
    struct ibv_sge sge = {(uintptr_t)mem + 8192, 64, mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge,
                             .num_sge = 1,
                             .opcode = opcode,
                             .send_flags = IBV_SEND_SIGNALED,
                             .wr.rdma = {(uintptr_t)mem + 65536, rkey}};
    if (ibv_post_send(a.qp, &wr, &bad) != 0)
        die("raw-cost: post_send");
}

static void writes(int count) {
    for (int i = 0; i < count; i++) {
        one_sided(IBV_WR_RDMA_WRITE, mr->rkey);
        completions(&a, 1, 16);
    }
}

static void reads(int count) {
    for (int i = 0; i < count; i++) {
        one_sided(IBV_WR_RDMA_READ, mr->rkey);
        completions(&a, 1, 16);
    }
}

/* A window bound at one end, read through from the other, invalidated. */
static void windows(int count, bool read) {
    struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
    struct ibv_send_wr *bad;
    if (!mw)
        die("raw-cost: alloc_mw");
    for (int i = 0; i < count; i++) {
        struct ibv_send_wr bind = {.opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED};
        struct ibv_send_wr drop = {.opcode = IBV_WR_LOCAL_INV, .send_flags = IBV_SEND_SIGNALED};
        bind.bind_mw.mw = mw;
        bind.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
        bind.bind_mw.bind_info = (struct ibv_mw_bind_info){
            .mr = mr,
            .addr = (uintptr_t)mem + 65536,
            .length = 4096,
            .mw_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE};
        drop.invalidate_rkey = bind.bind_mw.rkey;
        if (ibv_post_send(b.qp, &bind, &bad) != 0)
            die("raw-cost: bind");
        completions(&b, 1, 16);
        if (read) {
            one_sided(IBV_WR_RDMA_READ, bind.bind_mw.rkey);
            completions(&a, 1, 16);
        }
        if (ibv_post_send(b.qp, &drop, &bad) != 0)
            die("raw-cost: invalidate");
        completions(&b, 1, 16);
    }
    ibv_dealloc_mw(mw);
}

static void binds(int count) {
    windows(count, false);
}

static void window_reads(int count) {
    windows(count, true);
}

static const struct figure {
    const char *name;
    void (*run)(int count);
    bool shared;
} figures[] = {{"ping", ping, false},       {"lists", lists, false},
               {"singles", singles, false}, {"empty", empty, false},
               {"write", writes, false},    {"read", reads, false},
               {"bind", binds, false},      {"window-read", window_reads, false},
               {"srq-ping", ping, true},    {"srq-lists", lists, true}};

/* Polls both ends until one of a's requests completed; how often that was. */
static int polls_until_done(void) {
    struct ibv_wc wc;
    int polls = 1;
    for (; ibv_poll_cq(a.cq, 1, &wc) == 0; polls++) {
        ibv_poll_cq(b.cq, 1, &wc);
        sched_yield();
    }
    return polls;
}

/*
 * The rings are there when a message has gone each way, the memory is mapped when a WRITE completes at
 * once. Until then others have to run.
 */
static void settle(void) {
    struct ibv_wc wc;
    receives(&a, 1);
    receives(&b, 1);
    sends(&a, 1, false);
    sends(&b, 1, false);
    while (ibv_poll_cq(b.cq, 1, &wc) == 0)
        sched_yield();
    while (ibv_poll_cq(a.cq, 1, &wc) == 0)
        sched_yield();
    for (int quick = 0; quick < 4;) {
        one_sided(IBV_WR_RDMA_WRITE, mr->rkey);
        quick = polls_until_done() == 1 ? quick + 1 : 0;
    }
    for (int i = 0; i < 16; i++) { /* and what they tell each other when there is nothing to do */
        ibv_poll_cq(a.cq, 1, &wc);
        ibv_poll_cq(b.cq, 1, &wc);
    }
}

/* What the instructions are counted of: valgrind looks for this name. */
__attribute__((noinline)) void raw_cost_measure(const struct figure *figure, int count);
void raw_cost_measure(const struct figure *figure, int count) {
    figure->run(count);
}

int main(int argc, char **argv) {
    const struct figure *figure = NULL;
    for (size_t i = 0; argc == 3 && i < sizeof figures / sizeof figures[0]; i++)
        if (strcmp(argv[1], figures[i].name) == 0)
            figure = &figures[i];
    if (!figure)
        return fprintf(stderr, "usage: raw-cost FIGURE COUNT\n"), 2;
    open_both(figure->shared);
    settle();
    raw_cost_measure(figure, atoi(argv[2]));
    close_both();
    return 0;
}
