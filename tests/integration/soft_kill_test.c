/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
// links: static
/*
 * soft_kill_test.c - a thousand peers killed at random points of traffic: no ring stays blocked, no
 * message is torn, nothing is left behind, and a connection between others goes on all the while.
 */
#include <signal.h>

#include "support/softverbs.h"

/* A sanitizer makes each of them many times slower, and finds in fewer what it can find. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define KILLS 100
#else
#define KILLS 1000
#endif
#define DEPTH 16
#define SLOT 2048

static uint32_t random_state = 1;

static uint32_t random_below(uint32_t n) { /* the same sequence in every run */
    random_state = random_state * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)random_state * n) >> 32);
}

static size_t size_of(uint64_t n) {
    return (size_t)(n * 211 % (SLOT - 16)) + 8;
}

/* One side of the flood: sends and receives until it is killed or the other side is gone. */
struct flood {
    struct sv_end *e;
    uint64_t sent, completed, received;
    bool down;
};

static void flood_turn(struct flood *f) {
    struct sv_end *e = f->e;
    struct ibv_wc wc[DEPTH];
    while (!f->down && f->sent - f->completed < DEPTH) {
        size_t at = (DEPTH + f->sent % DEPTH) * SLOT, bytes = size_of(f->sent);
        sv_fill(e->buf + at, bytes, (uint32_t)f->sent);
        must(sv_send(e, f->sent, at, bytes, IBV_SEND_SIGNALED) == 0);
        f->sent++;
    }
    int n = ibv_poll_cq(e->scq, DEPTH, wc);
    for (int i = 0; i < n; i++) {
        must_data(wc[i].wr_id == f->completed++);
        f->down |= wc[i].status != IBV_WC_SUCCESS;
    }
    n = ibv_poll_cq(e->rcq, DEPTH, wc);
    for (int i = 0; i < n; i++) {
        if (wc[i].status != IBV_WC_SUCCESS)
            continue;
        must_data(wc[i].byte_len == size_of(f->received));
        sv_check(e->buf + f->received % DEPTH * SLOT, wc[i].byte_len, (uint32_t)f->received);
        if (!f->down)
            must(sv_recv(e, 0, f->received % DEPTH * SLOT, SLOT) == 0);
        f->received++;
    }
}

static void post_all(struct sv_end *e) {
    for (size_t i = 0; i < DEPTH; i++)
        must(sv_recv(e, 0, i * SLOT, SLOT) == 0);
}

static void victim(int fd) {
    struct sv_end e;
    sv_open(&e,
            SV_OPTIONS(.mapped = true, .sends = DEPTH, .recvs = DEPTH, .bytes = 2 * DEPTH * SLOT));
    sv_meet(&e, fd);
    post_all(&e);
    struct flood f = {.e = &e};
    while (!f.down)
        flood_turn(&f);
}

/* Answers every message, until told to stop. */
static void witness(int fd) {
    struct sv_end e;
    sv_open(&e, SV_OPTIONS(.one_cq = true));
    sv_meet(&e, fd);
    must(sv_recv(&e, 0, 0, 64) == 0);
    for (;;) {
        struct ibv_wc wc = sv_poll(e.rcq);
        if (wc.status != IBV_WC_SUCCESS)
            _exit(1);
        if (wc.opcode != IBV_WC_RECV)
            continue;
        if (e.buf[0] == 'q')
            break;
        must(sv_recv(&e, 0, 0, 64) == 0);
        must(sv_send(&e, 0, 64, 8, IBV_SEND_SIGNALED) == 0);
    }
    sv_close(&e);
}

static void ask_witness(struct sv_end *e, char what) {
    must(sv_recv(e, 0, 64, 64) == 0);
    e->buf[0] = (uint8_t)what;
    must(sv_send(e, 0, 0, 1, IBV_SEND_SIGNALED) == 0);
    for (bool answered = what == 'q', sent = false; !answered || !sent;) {
        struct ibv_wc wc = sv_poll(e->rcq);
        must(wc.status == IBV_WC_SUCCESS);
        answered |= wc.opcode == IBV_WC_RECV;
        sent |= wc.opcode == IBV_WC_SEND;
    }
}

static void one_kill(void) {
    struct sv_end e;
    struct sv_child child = sv_fork(victim);
    sv_open(&e,
            SV_OPTIONS(.mapped = true, .sends = DEPTH, .recvs = DEPTH, .bytes = 2 * DEPTH * SLOT));
    sv_meet(&e, child.fd);
    post_all(&e);
    uint64_t until = random_below(200);
    struct flood f = {.e = &e};
    uint64_t since = soft_now_ns();
    while (f.received < until) {
        flood_turn(&f);
        must(!f.down && soft_now_ns() - since < SV_DEADLINE_NS);
    }
    must(kill(child.pid, SIGKILL) == 0);
    while (!f.down || f.completed < f.sent) {
        flood_turn(&f);
        must(soft_now_ns() - since < SV_DEADLINE_NS);
    }
    int status = sv_join(&child);
    must(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    sv_close(&e);
}

TEST(a_thousand_kills_leave_no_blocked_ring) {
    struct sv_end own;
    struct sv_child other = sv_fork(witness);
    sv_open(&own, SV_OPTIONS(.one_cq = true));
    sv_meet(&own, other.fd);
    one_kill(); /* what is made once, is made */
    unsigned fds = sv_fds(), threads = sv_threads();
    for (int i = 1; i < KILLS; i++) {
        one_kill();
        ask_witness(&own, 'a');
    }
    /* The dead peers' connections are closed as the engine gets to them. */
    sv_until(sv_fds() <= fds);
    must(sv_threads() == threads);
    ask_witness(&own, 'q');
    must(sv_join(&other) == 0);
    sv_close(&own);
}

int main(void) {
#if defined(__SANITIZE_THREAD__)
    fprintf(stderr,
            "SKIPPED: thread sanitizer allows no threads in a child of a threaded process\n");
    return 77;
#endif
    return tests_run(NULL, NULL);
}
