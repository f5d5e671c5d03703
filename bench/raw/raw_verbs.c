/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * raw_verbs.c - the software device through plain verbs, between two processes on two CPUs.
 *
 * What the library can at best reach on this device: a ping-pong and a rate over SEND, a ping-pong
 * over RDMA WRITE that polls memory, and large WRITEs and READs. Prints one line per figure with the
 * cache-line floor and memcpy of the same run beside it, as text or JSON. One process forks the
 * other; both spin. The floor is taken before and after each latency figure.
 *
 *   raw-verbs [--json] [--cpus A,B] [--rounds N] [--floor]
 *
 * --floor prints the floor alone: other programs' figures need it beside them too.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fabric/fabric.h"
#include "floor.h"

#define F (&fabric_soft)
#define BYTES (32u << 20)
#define DEPTH 128

struct side {
    int sock, number; /* 0 measures, 1 answers */
    struct ibv_context *ctx;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    uint8_t *mem;
    int receives; /* posted and not used */
    /* made once, as a program that cares would */
    struct ibv_sge send_sge, recv_sge;
    struct ibv_send_wr send_wr;
    struct ibv_recv_wr recv_wr[16];
    struct {
        uint32_t qpn, rkey;
        uint64_t addr;
    } own, peer;
};

static int cpus[2] = {0, 1};
static bool json;

static void die(const char *what) {
    perror(what);
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void pin(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0)
        die("raw-verbs: that CPU cannot be used");
}

static void meet(struct side *s) {
    char c = 0;
    if (write(s->sock, &c, 1) != 1 || read(s->sock, &c, 1) != 1)
        exit(1); /* the other side said why */
}

/* ---- opening ------------------------------------------------------------------------------------ */

static void connect_qp(struct side *s) {
    const int remote = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = (unsigned)remote};
    int rc = F->modify_qp(s->qp, &attr,
                          IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    if (write(s->sock, &s->own, sizeof s->own) != sizeof s->own ||
        read(s->sock, &s->peer, sizeof s->peer) != sizeof s->peer)
        exit(1);
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
                                .path_mtu = IBV_MTU_4096,
                                .dest_qp_num = s->peer.qpn,
                                .max_dest_rd_atomic = 16,
                                .min_rnr_timer = 12};
    rc |= F->modify_qp(s->qp, &attr,
                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                           IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
                                .timeout = 14,
                                .retry_cnt = 7,
                                .rnr_retry = 7,
                                .max_rd_atomic = 16};
    rc |= F->modify_qp(s->qp, &attr,
                       IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                           IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
    if (rc != 0)
        die("raw-verbs: modify_qp");
}

static void prepare(struct side *s) {
    s->recv_sge = (struct ibv_sge){(uintptr_t)s->mem, 4096, s->mr->lkey};
    for (int i = 0; i < 16; i++)
        s->recv_wr[i] = (struct ibv_recv_wr){.sg_list = &s->recv_sge, .num_sge = 1};
    s->send_sge = (struct ibv_sge){(uintptr_t)s->mem + 8192, 0, s->mr->lkey};
    s->send_wr = (struct ibv_send_wr){
        .sg_list = &s->send_sge, .num_sge = 1, .wr.rdma = {s->peer.addr + 8192, s->peer.rkey}};
}

static void open_side(struct side *s) {
    struct ibv_device **list = F->get_device_list(NULL);
    s->ctx = list ? F->open_device(list[0]) : NULL;
    if (!s->ctx || !(s->pd = F->alloc_pd(s->ctx)) ||
        !(s->cq = F->create_cq(s->ctx, 1024, NULL, NULL, 0)) || !(s->mem = F->mem_alloc(BYTES)))
        die("raw-verbs: the device cannot be opened");
    F->free_device_list(list);
    memset(s->mem, 0, BYTES);
    s->mr = F->reg_mr(s->pd, s->mem, BYTES,
                      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    struct ibv_qp_init_attr init = {.send_cq = s->cq,
                                    .recv_cq = s->cq,
                                    .qp_type = IBV_QPT_RC,
                                    .cap = {.max_send_wr = 2 * DEPTH,
                                            .max_recv_wr = 2 * DEPTH,
                                            .max_send_sge = 1,
                                            .max_recv_sge = 1,
                                            .max_inline_data = 64}};
    s->qp = s->mr ? F->create_qp(s->pd, &init) : NULL;
    if (!s->qp)
        die("raw-verbs: no QP");
    s->own.qpn = s->qp->qp_num;
    s->own.rkey = s->mr->rkey;
    s->own.addr = (uintptr_t)s->mem;
    connect_qp(s);
    prepare(s);
}

static void close_side(struct side *s) {
    F->destroy_qp(s->qp);
    F->dereg_mr(s->mr);
    F->mem_free(s->mem, BYTES);
    F->destroy_cq(s->cq);
    F->dealloc_pd(s->pd);
    F->close_device(s->ctx);
}

/* ---- posting ------------------------------------------------------------------------------------ */

/* Tops the receive queue up to n. */
static void post_receives(struct side *s, int n) {
    struct ibv_recv_wr *bad;
    while (s->receives < n) {
        int list = n - s->receives < 16 ? n - s->receives : 16;
        for (int i = 0; i < list; i++)
            s->recv_wr[i].next = i + 1 < list ? &s->recv_wr[i + 1] : NULL;
        if ((errno = ibv_post_recv(s->qp, s->recv_wr, &bad)) != 0)
            die("raw-verbs: post_recv");
        s->receives += list;
    }
}

static void post(struct side *s, enum ibv_wr_opcode opcode, size_t bytes, bool signaled) {
    struct ibv_send_wr *bad;
    s->send_sge.length = (uint32_t)bytes;
    s->send_wr.opcode = opcode;
    s->send_wr.send_flags = (signaled ? IBV_SEND_SIGNALED : 0u) |
                            (bytes <= 64 && opcode != IBV_WR_RDMA_READ ? IBV_SEND_INLINE : 0u);
    if ((errno = ibv_post_send(s->qp, &s->send_wr, &bad)) != 0)
        die("raw-verbs: post_send");
}

/* Polls once; returns how many of the completions were receives. */
static int poll_some(struct side *s, int *sent) {
    struct ibv_wc wc[16];
    int n = ibv_poll_cq(s->cq, 16, wc), received = 0;
    for (int i = 0; i < n; i++) {
        if (wc[i].status != IBV_WC_SUCCESS) {
            fprintf(stderr, "raw-verbs: completion status %d\n", wc[i].status);
            exit(1);
        }
        if (wc[i].opcode == IBV_WC_RECV)
            received++, s->receives--;
        else
            ++*sent;
    }
    return received;
}

/* ---- figures ------------------------------------------------------------------------------------ */

#define BATCHES 60
#define BATCH 2000

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, int n) {
    qsort(v, (size_t)n, sizeof *v, by_value);
    return v[n / 2];
}

static double send_latency(struct side *s, size_t bytes) {
    double one_way[BATCHES];
    int sent = 0, count = 0;
    post_receives(s, 16);
    meet(s);
    for (int b = 0; b < BATCHES; b++) {
        uint64_t start = now_ns();
        for (int i = 0; i < BATCH; i++, count++) {
            if (s->number == 0)
                post(s, IBV_WR_SEND, bytes, count % 64 == 63);
            while (poll_some(s, &sent) == 0)
                ;
            post_receives(s, 16);
            if (s->number == 1)
                post(s, IBV_WR_SEND, bytes, count % 64 == 63);
        }
        one_way[b] = (double)(now_ns() - start) / BATCH / 2;
    }
    meet(s);
    poll_some(s, &sent);
    return median(one_way, BATCHES);
}

static double write_latency(struct side *s, size_t bytes) {
    double one_way[BATCHES];
    int sent = 0;
    uint32_t count = 0;
    /* a WRITE comes from 8192 and lands there: the side's own value goes to the source first */
    volatile uint8_t *in = s->mem + 8192 + bytes - 1;
    uint8_t *out = malloc(bytes);
    struct ibv_sge sge = {(uintptr_t)out, (uint32_t)bytes, 0};
    struct ibv_send_wr wr = {.sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_RDMA_WRITE,
                             .wr.rdma = {s->peer.addr + 8192, s->peer.rkey}},
                       *bad;
    if (!out)
        die("raw-verbs");
    memset(out, 0, bytes);
    *in = 0;
    meet(s);
    for (int b = 0; b < BATCHES; b++) {
        uint64_t start = now_ns();
        for (int i = 0; i < BATCH; i++) {
            uint8_t value = (uint8_t)(++count % 255 + 1);
            out[bytes - 1] = value;
            wr.send_flags = IBV_SEND_INLINE | (count % 64 == 0 ? IBV_SEND_SIGNALED : 0u);
            if (s->number == 1)
                while (*in != value)
                    ;
            if (ibv_post_send(s->qp, &wr, &bad) != 0)
                die("raw-verbs: post_send");
            if (s->number == 0)
                while (*in != value)
                    ;
            if (count % 64 == 0)
                poll_some(s, &sent);
        }
        one_way[b] = (double)(now_ns() - start) / BATCH / 2;
    }
    meet(s);
    while (sent < (int)count / 64)
        poll_some(s, &sent);
    free(out);
    return median(one_way, BATCHES);
}

/* Million messages a second, lists of `list` sends; 0 on the answering side. */
static double send_rate(struct side *s, size_t bytes, int list) {
    const int total = 2000000 / list * list;
    struct ibv_sge sge = {(uintptr_t)s->mem + 8192, (uint32_t)bytes, s->mr->lkey};
    struct ibv_send_wr wr[64], *bad;
    int sent = 0, posted = 0, received = 0;
    for (int i = 0; i < list; i++)
        wr[i] = (struct ibv_send_wr){.sg_list = &sge,
                                     .num_sge = 1,
                                     .opcode = IBV_WR_SEND,
                                     .send_flags =
                                         IBV_SEND_INLINE | (i + 1 == list ? IBV_SEND_SIGNALED : 0u),
                                     .next = i + 1 < list ? &wr[i + 1] : NULL};
    if (s->number == 1)
        post_receives(s, 240);
    meet(s);
    uint64_t start = now_ns();
    if (s->number == 1) {
        while (received < total) {
            int n = poll_some(s, &sent);
            received += n;
            if (n && total - received > s->receives)
                post_receives(s, 240);
        }
    } else {
        while (sent * list < total) {
            while (posted < total && posted - sent * list + list <= DEPTH) {
                if (ibv_post_send(s->qp, wr, &bad) != 0)
                    die("raw-verbs: post_send");
                posted += list;
            }
            poll_some(s, &sent);
        }
    }
    double rate = (double)total * 1e3 / (double)(now_ns() - start);
    meet(s);
    poll_some(s, &sent);
    return rate;
}

static double large(struct side *s, enum ibv_wr_opcode opcode) {
    const int total = 4000;
    int sent = 0;
    meet(s);
    uint64_t start = now_ns();
    if (s->number == 0)
        for (int i = 0; i < total; i++) {
            post(s, opcode, 1 << 20, true);
            for (int before = sent; sent == before;)
                poll_some(s, &sent);
        }
    double rate = (double)total * (1 << 20) / (double)(now_ns() - start);
    meet(s); /* the other side does nothing, not even poll */
    return rate;
}

static double memcpy_rate(const struct side *s) {
    const int total = 4000;
    uint64_t start = now_ns();
    for (int i = 0; i < total; i++) {
        memcpy(s->mem + (4 << 20), s->mem + 8192, 1 << 20);
        __asm__ volatile("" ::: "memory");
    }
    return (double)total * (1 << 20) / (double)(now_ns() - start);
}

static double floor_ns(struct side *s) {
    struct floor_result result = {0};
    if (s->number == 0 && floor_measure(cpus[0], cpus[1], &result) != 0)
        result.p50_ns = 0;
    if (s->number == 0)
        pin(cpus[0]);
    meet(s);
    return result.p50_ns;
}

static void show(const struct side *s, const char *name, double value, const char *unit,
                 const char *against, double reference) {
    if (s->number != 0)
        return;
    if (json)
        printf("{\"figure\":\"%s\",\"value\":%.2f,\"unit\":\"%s\",\"%s\":%.2f,\"ratio\":%.3f}\n",
               name, value, unit, against, reference, reference > 0 ? value / reference : 0);
    else
        printf("%-28s %9.1f %-7s %s %.1f, ratio %.2f\n", name, value, unit, against, reference,
               reference > 0 ? value / reference : 0);
    fflush(stdout);
}

static void run(struct side *s, int rounds) {
    for (int i = 0; i < rounds; i++) {
        double before = floor_ns(s), lat = send_latency(s, 64), after = floor_ns(s);
        show(s, "send 64 B one way", lat, "ns", "floor", (before + after) / 2);
        double write = write_latency(s, 64), last = floor_ns(s);
        show(s, "write 64 B polled one way", write, "ns", "floor", (after + last) / 2);
        show(s, "send 64 B rate in lists of 16", send_rate(s, 64, 16), "M/s", "floor", last);
        double copy = s->number == 0 ? memcpy_rate(s) : 0;
        show(s, "write 1 MiB", large(s, IBV_WR_RDMA_WRITE), "GB/s", "memcpy", copy);
        show(s, "read 1 MiB", large(s, IBV_WR_RDMA_READ), "GB/s", "memcpy", copy);
    }
}

int main(int argc, char **argv) {
    int rounds = 1, pair[2];
    bool floor_only = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            json = true;
        else if (strcmp(argv[i], "--rounds") == 0 && i + 1 < argc)
            rounds = atoi(argv[++i]);
        else if (strcmp(argv[i], "--cpus") == 0 && i + 1 < argc &&
                 sscanf(argv[i + 1], "%d,%d", &cpus[0], &cpus[1]) == 2)
            i++;
        else if (strcmp(argv[i], "--floor") == 0)
            floor_only = true;
        else
            return fprintf(stderr,
                           "usage: raw-verbs [--json] [--cpus A,B] [--rounds N] [--floor]\n"),
                   2;
    }
    if (floor_only) {
        struct floor_result result;
        if (floor_measure(cpus[0], cpus[1], &result) != 0)
            die("raw-verbs: the floor");
        printf("%.1f\n", result.p50_ns);
        return 0;
    }
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        die("raw-verbs");
    pid_t child = fork();
    if (child < 0)
        die("raw-verbs");
    struct side s = {.number = child == 0, .sock = pair[child == 0]};
    close(pair[child != 0]);
    pin(cpus[s.number]);
    open_side(&s);
    meet(&s);
    run(&s, rounds > 0 ? rounds : 1);
    close_side(&s);
    if (child == 0)
        return 0;
    int status = 0;
    waitpid(child, &status, 0);
    return status != 0;
}
