/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * raw_datagram.c - datagrams of the software device between two processes: half of a round trip, and how
 * many a second one process gets across, with what was lost.
 *
 *   raw-datagram [BYTES [COUNT]]
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "soft/soft.h"

enum { GRH = 40, DEPTH = 256, BATCH = 16, STRIDE = 4160, QKEY = 0x1111 };

static unsigned bytes = 64, count = 1000000;
static struct ibv_cq *scq, *rcq;
static struct ibv_qp *qp;
static struct ibv_mr *mr;
static struct ibv_ah *ah;
static uint8_t *buf;
static uint32_t peer;

static void must(int ok, const char *what) {
    if (ok)
        return;
    perror(what);
    exit(1);
}

static double now(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void receive(uint64_t i) {
    struct ibv_sge sge = {(uintptr_t)buf + i * STRIDE, GRH + bytes, mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1}, *bad;
    must(ibv_post_recv(qp, &wr, &bad) == 0, "post_recv");
}

static void send_one(int signaled) {
    struct ibv_sge sge = {(uintptr_t)buf + DEPTH * STRIDE, bytes, mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_SEND,
                             .send_flags = signaled ? IBV_SEND_SIGNALED : 0,
                             .wr.ud = {ah, peer, QKEY}},
                       *bad;
    must(ibv_post_send(qp, &wr, &bad) == 0, "post_send");
}

static void open_side(int fd) {
    struct ibv_device **list = soft_get_device_list(NULL);
    struct ibv_context *ctx = soft_open_device(list[0]);
    soft_free_device_list(list);
    must(ctx != NULL, "open_device");
    struct ibv_pd *pd = soft_alloc_pd(ctx);
    scq = soft_create_cq(ctx, 1024, NULL, NULL, 0);
    rcq = soft_create_cq(ctx, 1024, NULL, NULL, 0);
    buf = calloc(DEPTH + 1, STRIDE);
    mr = soft_reg_mr(pd, buf, (DEPTH + 1) * STRIDE, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_qp_init_attr init = {
        .send_cq = scq,
        .recv_cq = rcq,
        .cap = {.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_UD};
    qp = soft_create_qp(pd, &init);
    must(qp && mr, "create_qp");
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY};
    must(soft_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) ==
             0,
         "INIT");
    attr.qp_state = IBV_QPS_RTR;
    must(soft_modify_qp(qp, &attr, IBV_QP_STATE) == 0, "RTR");
    attr.qp_state = IBV_QPS_RTS;
    must(soft_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0, "RTS");
    for (uint64_t i = 0; i < DEPTH; i++)
        receive(i);
    must(write(fd, &qp->qp_num, 4) == 4 && read(fd, &peer, 4) == 4, "exchange");
    struct ibv_ah_attr to = {.is_global = 1, .port_num = 1};
    soft_query_gid(ctx, 1, 0, &to.grh.dgid);
    ah = soft_create_ah(pd, &to);
    must(ah != NULL, "create_ah");
}

static int take(void) {
    struct ibv_wc wc[BATCH];
    int n = ibv_poll_cq(rcq, BATCH, wc);
    for (int i = 0; i < n; i++)
        receive(wc[i].wr_id);
    if (n == 0)
        sched_yield();
    return n;
}

static void drain_sends(unsigned *out) {
    struct ibv_wc wc[BATCH];
    int n = ibv_poll_cq(scq, BATCH, wc);
    *out -= (unsigned)n * BATCH;
}

/* The other process: echoes, then swallows until the one that says the end. */
static void other(int fd) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    open_side(fd);
    for (unsigned i = 0; i < count / 10; i++) {
        while (take() == 0)
            ;
        send_one(i % BATCH == BATCH - 1);
        unsigned none = 0;
        drain_sends(&none);
    }
    uint64_t got = 0;
    char end;
    while (recv(fd, &end, 1, MSG_DONTWAIT) != 1)
        for (int i = 0; i < 1000; i++)
            got += (uint64_t)take();
    for (int i = 0; i < 1000; i++)
        got += (uint64_t)take();
    must(write(fd, &got, sizeof got) == sizeof got, "report");
    _exit(0);
}

int main(int argc, char **argv) {
    int pair[2];
    if (argc > 1)
        bytes = (unsigned)atoi(argv[1]);
    if (argc > 2)
        count = (unsigned)atoi(argv[2]);
    count -= count % BATCH;
    if (bytes > 4096 || count < 100 || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) {
        fprintf(stderr, "usage: raw-datagram [BYTES up to 4096 [COUNT from 100]]\n");
        return 1;
    }
    if (fork() == 0)
        other(pair[1]);
    open_side(pair[0]);
    double start = now();
    for (unsigned i = 0; i < count / 10; i++) {
        send_one(i % BATCH == BATCH - 1);
        while (take() == 0)
            ;
        unsigned none = 0;
        drain_sends(&none);
    }
    double half = (now() - start) / (count / 10) / 2 * 1e6;
    unsigned out = 0;
    start = now();
    for (unsigned i = 0; i < count; i++) {
        send_one(i % BATCH == BATCH - 1);
        for (out++; out >= DEPTH;)
            drain_sends(&out);
    }
    while (out >= BATCH) /* the last of a batch is signaled; what follows it is not waited for */
        drain_sends(&out);
    double rate = count / (now() - start);
    uint64_t got = 0;
    must(write(pair[0], "", 1) == 1 && read(pair[0], &got, sizeof got) == sizeof got, "report");
    printf("%u bytes: half a round trip %.2f us, %.2f million a second, %.3f %% lost\n", bytes,
           half, rate / 1e6, 100.0 * (1.0 - (double)got / count));
    wait(NULL);
    return 0;
}
