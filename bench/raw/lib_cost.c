/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * lib_cost.c - messages between two ends in one thread, so that their instructions can be counted: through
 * the library, or through plain verbs, over the software device in both cases.
 *
 * Both ends are turned by the same thread, in the same order every time, so a run under callgrind gives
 * the same figure again. What is to be counted is inside of measured(); bench/cost takes the difference
 * between COUNT messages and twice as many.
 *
 *   lib-cost lib|raw one|window COUNT
 *   lib-cost lib one-copy|window-copy|requests|many COUNT
 *   lib-cost lib many COUNT ACTIVE
 *   lib-cost --time lib|raw ...
 *   lib-cost --compiler
 *
 * one: a message to and a message fro, each waited for. window: 32 in one direction, then the next 32. -copy: by
 * sluice_send_copy(), from bytes that stay the sender's, where the others fill a buffer of sluice_alloc().
 * requests: 32 in one direction, and their replies in the other. many: as one, on 1,000 sessions of one loop in turn, 32
 * of them at once; with ACTIVE on so many of the 1,000, and at most each of these at once. --time: COUNT messages a hundred
 * times, and the nanoseconds of one in the best round, the tenth and the median.
 */
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <sluice/sluice.h>

#include "fabric/fabric.h"

#define BYTES 64
#define WINDOW 32
#define LIST 16    /* work requests in one call, and sends for one completion */
#define WARM 16384 /* until all credits are granted, one frame a window */
#define TRIES 1000000u
#define MANY 1000u /* sessions */
#define ROUNDS 100 /* of --time */

static void die(const char *what) {
    fprintf(stderr, "lib-cost: %s\n", what);
    exit(1);
}

/* Sends `count` messages of 64 bytes from end to end and takes them there. */
typedef void exchange(unsigned count);

void measured(exchange *run, unsigned count); /* a symbol, for callgrind's --toggle-collect */

__attribute__((noinline)) void measured(exchange *run, unsigned count) {
    run(count);
}

/* ---- the library ------------------------------------------------------------------------------- */

static struct end {
    sluice_node *node;
    sluice_loop *loop;
    sluice_session session;
    unsigned up; /* sessions */
    unsigned received;
    bool answers; /* each message is sent back */
} ends[2];
static sluice_session sessions[MANY]; /* dialed by ends[1] */
static unsigned active = MANY;        /* of these, as far from each other as can be */
static bool resumes;                  /* sessions outlive their connection */

static const sluice_send_options more = {.size = sizeof more, .flags = SLUICE_MORE};

static void answer(const sluice_event *events, int i, int n) {
    bool last = i + 1 == n || events[i + 1].type != SLUICE_REQUEST;
    int status =
        sluice_reply_with(events[i].session, events[i].token, events[i].msg, last ? NULL : &more);
    if (status != 0)
        die(sluice_strerror(status));
}

static void poll_end(struct end *end) {
    sluice_event events[WINDOW];
    int n = sluice_poll(end->loop, events, WINDOW, 0);
    if (n < 0)
        die(sluice_strerror(n));
    for (int i = 0; i < n; i++) {
        end->received += events[i].type == SLUICE_MESSAGE || events[i].type == SLUICE_REPLY;
        if (events[i].type == SLUICE_REQUEST)
            answer(events, i, n);
        if (events[i].type == SLUICE_MESSAGE && end->answers &&
            sluice_send(events[i].session, events[i].msg, NULL) != 0)
            die("an answer");
        if (events[i].type == SLUICE_CLOSED)
            die(sluice_reason_text(events[i].reason));
        if (events[i].type == SLUICE_UP) {
            end->session = events[i].session;
            end->up++;
        }
    }
}

static void await_up(unsigned count) {
    for (unsigned i = 0; ends[0].up < count || ends[1].up < count; i++) {
        if (i == TRIES)
            die("the session does not come up");
        poll_end(&ends[0]);
        poll_end(&ends[1]);
        sched_yield(); /* to the threads that set it up: callgrind runs one at a time */
    }
}

static void open_library(unsigned count) {
    sluice_error e;
    sluice_listener listener;
    char address[64];
    for (int i = 0; i < 2; i++) {
        if (sluice_open(&ends[i].node,
                        SLUICE_NODE(.device = "soft", .workers = SLUICE_NO_WORKERS,
                                    .idle = SLUICE_IDLE_SPIN),
                        &e) != 0 ||
            sluice_loop_open(ends[i].node, &ends[i].loop, &e) != 0)
            die(e.text);
        const sluice_link_options *link =
            SLUICE_LINK(.loop = ends[i].loop, .credits = count > 1 ? 0 : 4 * WINDOW,
                        .resume_ns = resumes ? 60000000000 : 0);
        if (i == 0) {
            if (sluice_listen(ends[0].node, "127.0.0.1:0", link, &listener, &e) != 0)
                die(e.text);
            snprintf(address, sizeof address, "127.0.0.1:%d", sluice_listener_port(listener));
            continue;
        }
        for (unsigned k = 0; k < count; k++) {
            if (sluice_dial(ends[1].node, address, link, &sessions[k], &e) != 0)
                die(e.text);
            if (k % WINDOW == WINDOW - 1 || k + 1 == count)
                await_up(k + 1);
        }
    }
}

static void send_alloc(struct end *end, const sluice_send_options *o) {
    sluice_msg *msg;
    int status = sluice_alloc(end->node, BYTES, &msg);
    if (status != 0 || (status = sluice_send(end->session, msg, o)) != 0)
        die(sluice_strerror(status));
}

static void send_copy(struct end *end, const sluice_send_options *o) {
    static const uint8_t bytes[BYTES];
    int status = sluice_send_copy(end->session, bytes, BYTES, o);
    if (status != 0)
        die(sluice_strerror(status));
}

typedef void send_message(struct end *end, const sluice_send_options *o);

/* The sender is looked after only if what it has left waits for credits or completions. */
static void await(struct end *end, unsigned received) {
    struct end *other = end == &ends[0] ? &ends[1] : &ends[0];
    for (unsigned i = 0; end->received != received; i++) {
        if (i == TRIES)
            die("a message does not come");
        if (i > 0)
            poll_end(other);
        poll_end(end);
    }
}

/* The end that is polled last is the next to send: its buffers come from that loop. */
static inline void one_by_one(send_message *send, unsigned count) {
    poll_end(&ends[0]);
    for (unsigned i = 0; i < count; i++) {
        struct end *from = &ends[i & 1], *to = &ends[~i & 1];
        send(from, NULL);
        await(to, to->received + 1);
    }
}

static inline void in_windows(send_message *send, unsigned count) {
    for (unsigned i = 0; i < count; i += WINDOW) {
        poll_end(&ends[0]);
        for (int k = 1; k <= WINDOW; k++)
            send(&ends[0], k < WINDOW ? &more : NULL);
        await(&ends[1], ends[1].received + WINDOW);
        poll_end(&ends[1]); /* empty, as a loop's are now and then: it says what was taken */
    }
}

static void library_one(unsigned count) {
    one_by_one(send_alloc, count);
}

static void library_one_copy(unsigned count) {
    one_by_one(send_copy, count);
}

static void library_window(unsigned count) {
    in_windows(send_alloc, count);
}

static void library_window_copy(unsigned count) {
    in_windows(send_copy, count);
}

static void library_requests(unsigned count) {
    sluice_msg *msg;
    for (unsigned i = 0; i < count; i += WINDOW) {
        for (int k = 1; k <= WINDOW; k++)
            if (sluice_alloc(ends[0].node, BYTES, &msg) != 0 ||
                sluice_request(ends[0].session, msg, k < WINDOW ? &more : NULL) != 0)
                die("a request");
        poll_end(&ends[1]);
        await(&ends[0], ends[0].received + WINDOW);
    }
}

/* Each session has 4 credits and gets them back by the answers. */
static void library_many(unsigned count) {
    static unsigned next;
    unsigned window = active < WINDOW ? active : WINDOW;
    sluice_msg *msg;
    ends[0].answers = true;
    for (unsigned i = 0; i < count; i += 2 * window) {
        for (unsigned k = 0; k < window; k++, next = (next + 1) % active)
            if (sluice_alloc(ends[1].node, BYTES, &msg) != 0 ||
                sluice_send(sessions[next * (MANY / active)], msg, NULL) != 0)
                die("a message");
        await(&ends[1], ends[1].received + window); /* which turns the other end too */
    }
}

/* ---- plain verbs ------------------------------------------------------------------------------- */

#define F (&fabric_soft)

static struct raw_end {
    struct ibv_context *ctx;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    uint8_t *mem;
    unsigned receives, posted, sent, received, unsignalled;
} raws[2];

static void post_receives(struct raw_end *end) {
    struct ibv_sge sge = {(uintptr_t)end->mem, 4096, end->mr->lkey};
    struct ibv_recv_wr wr[LIST], *bad;
    for (int i = 0; i < LIST; i++)
        wr[i] = (struct ibv_recv_wr){
            .sg_list = &sge, .num_sge = 1, .next = i + 1 < LIST ? &wr[i + 1] : NULL};
    if (ibv_post_recv(end->qp, wr, &bad) != 0)
        die("post_recv");
    end->receives += LIST;
}

static void connect_raw(struct raw_end *end, const struct raw_end *peer) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    int rc = F->modify_qp(end->qp, &attr,
                          IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
                                .path_mtu = IBV_MTU_4096,
                                .dest_qp_num = peer->qp->qp_num,
                                .max_dest_rd_atomic = 1,
                                .min_rnr_timer = 12};
    rc |= F->modify_qp(end->qp, &attr,
                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                           IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
    rc |= F->modify_qp(end->qp, &attr,
                       IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                           IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
    if (rc != 0)
        die("modify_qp");
    while (end->receives < 4 * WINDOW)
        post_receives(end);
}

static void open_raw(void) {
    for (int i = 0; i < 2; i++) {
        struct raw_end *end = &raws[i];
        struct ibv_device **list = F->get_device_list(NULL);
        end->ctx = list ? F->open_device(list[0]) : NULL;
        if (!end->ctx || !(end->pd = F->alloc_pd(end->ctx)) ||
            !(end->cq = F->create_cq(end->ctx, 1024, NULL, NULL, 0)) ||
            !(end->mem = F->mem_alloc(1 << 20)))
            die("the device cannot be opened");
        F->free_device_list(list);
        memset(end->mem, 0, 1 << 20);
        end->mr = F->reg_mr(end->pd, end->mem, 1 << 20, IBV_ACCESS_LOCAL_WRITE);
        struct ibv_qp_init_attr init = {.send_cq = end->cq,
                                        .recv_cq = end->cq,
                                        .qp_type = IBV_QPT_RC,
                                        .cap = {.max_send_wr = 8 * WINDOW,
                                                .max_recv_wr = 8 * WINDOW,
                                                .max_send_sge = 1,
                                                .max_recv_sge = 1,
                                                .max_inline_data = BYTES}};
        end->qp = end->mr ? F->create_qp(end->pd, &init) : NULL;
        if (!end->qp)
            die("no QP");
    }
    connect_raw(&raws[0], &raws[1]);
    connect_raw(&raws[1], &raws[0]);
}

/* A list of sends, one in LIST signalled. */
static void post_list(struct raw_end *end, unsigned count) {
    struct ibv_sge sge = {(uintptr_t)end->mem + 8192, BYTES, 0};
    struct ibv_send_wr wr[LIST], *bad;
    for (unsigned i = 0; i < count; i++) {
        bool signal = ++end->unsignalled == LIST;
        wr[i] =
            (struct ibv_send_wr){.wr_id = 1,
                                 .sg_list = &sge,
                                 .num_sge = 1,
                                 .opcode = IBV_WR_SEND,
                                 .send_flags = IBV_SEND_INLINE | (signal ? IBV_SEND_SIGNALED : 0u),
                                 .next = i + 1 < count ? &wr[i + 1] : NULL};
        if (signal)
            end->unsignalled = 0;
    }
    if (ibv_post_send(end->qp, wr, &bad) != 0)
        die("post_send");
    end->posted += count;
}

static void poll_raw(struct raw_end *end) {
    struct ibv_wc wc[WINDOW];
    int n = ibv_poll_cq(end->cq, WINDOW, wc);
    for (int i = 0; i < n; i++) {
        if (wc[i].status != IBV_WC_SUCCESS)
            die("a completion with an error");
        if (wc[i].opcode == IBV_WC_RECV)
            end->received++, end->receives--;
        else
            end->sent += LIST;
    }
    while (end->receives + LIST <= 4 * WINDOW)
        post_receives(end);
}

static void await_raw(struct raw_end *end, unsigned received) {
    for (unsigned i = 0; end->received != received; i++) {
        if (i == TRIES)
            die("a message does not come");
        poll_raw(end);
    }
}

static void raw_one(unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        struct raw_end *from = &raws[i & 1], *to = &raws[~i & 1];
        post_list(from, 1);
        await_raw(to, to->received + 1);
    }
}

static void raw_window(unsigned count) {
    for (unsigned i = 0; i < count; i += WINDOW) {
        for (int k = 0; k < WINDOW; k += LIST)
            post_list(&raws[0], LIST);
        await_raw(&raws[1], raws[1].received + WINDOW);
        poll_raw(&raws[0]);
    }
}

/* ---- the program ------------------------------------------------------------------------------- */

static void print_compiler(void) {
#if !defined(__OPTIMIZE__) || !defined(NDEBUG)
    printf("unoptimised ");
#endif
#ifdef __clang__
    printf("clang %d %s\n", __clang_major__, __clang_version__);
#else
    printf("gcc %d %s\n", __GNUC__, __VERSION__);
#endif
}

static double now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void take_time(exchange *run, unsigned count) {
    double round[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        double begin = now_ns();
        measured(run, count);
        round[i] = (now_ns() - begin) / count;
    }
    qsort(round, ROUNDS, sizeof *round, by_size);
    printf("ns a message: %.1f best, %.1f tenth, %.1f median\n", round[0], round[ROUNDS / 10],
           round[ROUNDS / 2]);
}

static int usage(void) {
    fprintf(stderr, "usage: lib-cost [--time] [--resume] lib|raw one|window COUNT, "
                    "lib one-copy|window-copy|requests|many COUNT, lib many COUNT ACTIVE\n");
    return 2;
}

/* What is to be run of these arguments, side, kind, count and how many sessions; NULL: nothing. */
static exchange *chosen(int argc, char **argv) {
    if (argc < 3 || argc > 4 || atoi(argv[2]) < WINDOW)
        return NULL;
    bool lib = strcmp(argv[0], "lib") == 0;
    if (lib && strcmp(argv[1], "many") == 0) {
        active = argc == 4 ? (unsigned)atoi(argv[3]) : MANY;
        return active >= 1 && active <= MANY ? library_many : NULL;
    }
    static const struct {
        const char *kind;
        exchange *lib, *raw;
    } kinds[] = {{"one", library_one, raw_one},
                 {"window", library_window, raw_window},
                 {"one-copy", library_one_copy, NULL},
                 {"window-copy", library_window_copy, NULL},
                 {"requests", library_requests, NULL}};
    if (argc != 3 || (!lib && strcmp(argv[0], "raw") != 0))
        return NULL;
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(argv[1], kinds[i].kind) == 0)
            return lib ? kinds[i].lib : kinds[i].raw;
    return NULL;
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--compiler") == 0) {
        print_compiler();
        return 0;
    }
    bool timed = argc > 1 && strcmp(argv[1], "--time") == 0;
    argc -= 1 + timed;
    argv += 1 + timed;
    resumes = argc > 0 && strcmp(argv[0], "--resume") == 0;
    argc -= resumes;
    argv += resumes;
    exchange *run = chosen(argc, argv);
    if (!run)
        return usage();
    unsigned count = (unsigned)atoi(argv[2]) / WINDOW * WINDOW;
    if (strcmp(argv[0], "lib") == 0)
        open_library(run == library_many ? MANY : 1);
    else
        open_raw();
    run(WARM);
    if (timed)
        take_time(run, count);
    else
        measured(run, count);
    return 0; /* what was opened goes with the process */
}
