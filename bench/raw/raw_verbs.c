/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * raw_verbs.c - the software device through plain verbs, between two processes on two CPUs.
 *
 * What the library can at best reach on this device: a ping-pong and a rate over SEND, a ping-pong
 * over RDMA WRITE that polls memory, and large WRITEs and READs. Prints one line per figure with the
 * cache-line floor and memcpy of the same run beside it, as text or JSON. One process forks the
 * other; both spin. The floor is taken before and after each latency figure.
 *
 *   raw-verbs [--json] [--cpus A,B] [--rounds N] [--only send|write|tail|rate|large] [--floor] [--quick]
 *
 * --floor prints the floor alone: other programs' figures need it beside them too.
 * --quick runs a few messages of everything: figures that say nothing, for a test of the program.
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
static struct floor_lines *lines; /* of both processes */
static bool json, quick;
static const char *only; /* a figure's name, NULL: all of them */

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
    s->recv_sge = (struct ibv_sge){(uintptr_t)s->mem + (8 << 20), 65536, s->mr->lkey};
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
    struct ibv_wc wc[32];
    int n = ibv_poll_cq(s->cq, 32, wc), received = 0;
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

#define GROUPS 25
#define FAR_NS 120 /* a floor above it: the two CPUs lie far from each other */
#define BATCHES 9
#define BATCH 500

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, int n) {
    qsort(v, (size_t)n, sizeof *v, by_value);
    return v[n / 2];
}

static bool wanted(const char *figure) {
    return !only || strcmp(only, figure) == 0;
}

static int batches(void) {
    return quick ? 2 : BATCHES;
}

static double send_latency(struct side *s, size_t bytes) {
    double one_way[BATCHES];
    int sent = 0, count = 0;
    post_receives(s, 16);
    meet(s);
    for (int b = 0; b < batches(); b++) {
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
    return median(one_way, batches());
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
    for (int b = 0; b < batches(); b++) {
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
    return median(one_way, batches());
}

static uint32_t round_trip[BATCHES * BATCH];

static int by_count(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Messages to and fro, each round trip timed by itself: p50, p99 and p99.9 of one way. */
static void send_percentiles(struct side *s, size_t bytes, double out[3]) {
    const int total = batches() * BATCH;
    int sent = 0;
    post_receives(s, 16);
    meet(s);
    uint64_t then = now_ns();
    for (int i = 0; i < total; i++) {
        if (s->number == 0)
            post(s, IBV_WR_SEND, bytes, i % 64 == 63);
        while (poll_some(s, &sent) == 0)
            ;
        post_receives(s, 16);
        if (s->number == 1)
            post(s, IBV_WR_SEND, bytes, i % 64 == 63);
        uint64_t now = now_ns();
        round_trip[i] = now - then < UINT32_MAX ? (uint32_t)(now - then) : UINT32_MAX;
        then = now;
    }
    meet(s);
    poll_some(s, &sent);
    qsort(round_trip, (size_t)total, sizeof *round_trip, by_count);
    out[0] = round_trip[total / 2] / 2.0;
    out[1] = round_trip[total - total / 100 - 1] / 2.0;
    out[2] = round_trip[total - total / 1000 - 1] / 2.0;
}

#define SIGNAL_EVERY 16

/*
 * Million messages a second, lists of `list` sends (1 or 16), every 16th signalled; receives are posted
 * in lists of 16, 32 completions polled at a time. 0 on the answering side.
 */
static double send_rate(struct side *s, size_t bytes, int list) {
    const int total = quick ? 20000 : 2000000;
    struct ibv_sge sge = {(uintptr_t)s->mem + 8192, (uint32_t)bytes, s->mr->lkey};
    struct ibv_send_wr wr[SIGNAL_EVERY], *bad;
    int sent = 0, posted = 0, received = 0;
    for (int i = 0; i < SIGNAL_EVERY; i++)
        wr[i] = (struct ibv_send_wr){.sg_list = &sge,
                                     .num_sge = 1,
                                     .opcode = IBV_WR_SEND,
                                     .send_flags = IBV_SEND_INLINE |
                                                   (i + 1 == SIGNAL_EVERY ? IBV_SEND_SIGNALED : 0u),
                                     .next = (i + 1) % list ? &wr[i + 1] : NULL};
    if (s->number == 1)
        post_receives(s, 240);
    meet(s);
    uint64_t start = now_ns();
    if (s->number == 1) {
        while (received < total) {
            received += poll_some(s, &sent);
            if (s->receives <= 240 - 16 && total - received > s->receives)
                post_receives(s, s->receives + 16);
        }
    } else {
        while (sent * SIGNAL_EVERY < total) {
            while (posted < total && posted - sent * SIGNAL_EVERY + list <= DEPTH) {
                if (ibv_post_send(s->qp, &wr[posted % SIGNAL_EVERY], &bad) != 0)
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
    const int total = quick ? 40 : 4000;
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

/* SENDs of a size in GB/s, 32 on their way at most. */
static double send_stream(struct side *s, size_t bytes) {
    const int total = quick ? 200 : 60000;
    int sent = 0, posted = 0, received = 0;
    if (s->number == 1)
        post_receives(s, 128);
    meet(s);
    uint64_t start = now_ns();
    while (s->number == 1 ? received < total : sent < total) {
        while (s->number == 0 && posted < total && posted - sent < 32) {
            post(s, IBV_WR_SEND, bytes, true);
            posted++;
        }
        int n = poll_some(s, &sent);
        received += n;
        if (n && total - received > s->receives)
            post_receives(s, 128);
    }
    double rate = (double)total * (double)bytes / (double)(now_ns() - start);
    meet(s);
    return rate;
}

static double memcpy_rate(const struct side *s) {
    const int total = quick ? 40 : 4000;
    uint64_t start = now_ns();
    for (int i = 0; i < total; i++) {
        memcpy(s->mem + (4 << 20), s->mem + 8192, 1 << 20);
        __asm__ volatile("" ::: "memory");
    }
    return (double)total * (1 << 20) / (double)(now_ns() - start);
}

/* Of these two processes on these CPUs. */
static double floor_ns(struct side *s) {
    struct floor_result result = {0};
    if (s->number == 0)
        memset(lines, 0, sizeof *lines);
    meet(s);
    if (floor_side(lines, s->number, &result) != 0)
        result.p50_ns = 0;
    return result.p50_ns;
}

struct paired {
    double ns, floor;
};

static int by_ratio(const void *a, const void *b) {
    const struct paired *x = a, *y = b;
    double p = x->ns / x->floor, q = y->ns / y->floor;
    return (p > q) - (p < q);
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

/* The result in one state of the machine alone. */
static void show_state(const char *state, const struct paired *sorted, int n, double from,
                       double to) {
    struct paired of[GROUPS];
    int count = 0;
    for (int i = 0; i < n; i++)
        if (sorted[i].floor >= from && sorted[i].floor < to)
            of[count++] = sorted[i];
    if (count)
        printf("  %-4s %2d times: %12.1f ns      floor %.1f, ratio %.2f\n", state, count,
               of[count / 2].ns, of[count / 2].floor, of[count / 2].ns / of[count / 2].floor);
}

/*
 * A latency beside the floor. The machine changes its floor within milliseconds: it is taken before and
 * after each of many short measurements, and those where the two differ do not count.
 */
static void show_latency(struct side *s, const char *name,
                         double (*measure)(struct side *, size_t bytes)) {
    struct paired kept[GROUPS];
    int n = 0;
    double before = floor_ns(s);
    for (int g = 0; g < (quick ? 2 : GROUPS); g++) {
        double ns = measure(s, 64), after = floor_ns(s);
        if (before > 0 && after < before * 1.1 && before < after * 1.1)
            kept[n++] = (struct paired){ns, (before + after) / 2};
        before = after;
    }
    if (s->number != 0)
        return;
    if (n == 0) {
        fprintf(stderr, "raw-verbs: the machine is not quiet: no %s counts\n", name);
        return;
    }
    qsort(kept, (size_t)n, sizeof *kept, by_ratio);
    show(s, name, kept[n / 2].ns, "ns", "floor", kept[n / 2].floor);
    if (json)
        return;
    show_state("near", kept, n, 0, FAR_NS);
    show_state("far", kept, n, FAR_NS, 1e9);
}

static void show_percentiles(const struct side *s, const char *name, const double p[3]) {
    if (s->number != 0)
        return;
    if (json)
        printf("{\"figure\":\"%s\",\"p50_ns\":%.1f,\"p99_ns\":%.1f,\"p999_ns\":%.1f}\n", name, p[0],
               p[1], p[2]);
    else
        printf("%-28s p50 %.1f, p99 %.1f, p99.9 %.1f ns\n", name, p[0], p[1], p[2]);
    fflush(stdout);
}

static void round_of(struct side *s) {
    if (wanted("send"))
        show_latency(s, "send 64 B one way", send_latency);
    if (wanted("write"))
        show_latency(s, "write 64 B polled one way", write_latency);
    if (wanted("tail")) {
        double tail[3];
        send_percentiles(s, 64, tail);
        show_percentiles(s, "send 64 B percentiles", tail);
    }
    if (wanted("rate")) {
        double floor = floor_ns(s);
        show(s, "send 64 B rate in lists of 16", send_rate(s, 64, 16), "M/s", "floor", floor);
        show(s, "send 64 B rate one by one", send_rate(s, 64, 1), "M/s", "floor", floor);
    }
    if (wanted("large")) {
        double copy = s->number == 0 ? memcpy_rate(s) : 0;
        show(s, "send 64 KiB", send_stream(s, 65536), "GB/s", "memcpy", copy);
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
        else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc)
            only = argv[++i];
        else if (strcmp(argv[i], "--floor") == 0)
            floor_only = true;
        else if (strcmp(argv[i], "--quick") == 0)
            quick = true;
        else
            return fprintf(stderr, "usage: raw-verbs [--json] [--cpus A,B] [--rounds N] [--only "
                                   "FIGURE] [--floor] [--quick]\n"),
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
    lines = mmap(NULL, sizeof *lines, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (lines == MAP_FAILED)
        die("raw-verbs");
    pid_t child = fork();
    if (child < 0)
        die("raw-verbs");
    struct side s = {.number = child == 0, .sock = pair[child == 0]};
    close(pair[child != 0]);
    pin(cpus[s.number]);
    open_side(&s);
    meet(&s);
    for (int i = 0; i < rounds || i == 0; i++)
        round_of(&s);
    close_side(&s);
    if (child == 0)
        return 0;
    int status = 0;
    waitpid(child, &status, 0);
    return status != 0;
}
