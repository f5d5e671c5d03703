/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * iwarp_qp_changing_test.c - memory that a program goes on writing while it is sent: a migration of a live guest does so. Over
 * TCP, too, its bytes are read once, so that their check value is that of the bytes that are sent, and no connection ends.
 */
#include "support/softverbs_tcp.h"

#include <stdatomic.h>

#include "support/rows.h"

#define AREA (1u << 20)
#define TIMES 30u

static struct tcp_pair p;
static atomic_bool over;
static _Atomic uint64_t rounds;

struct changing {
    enum ibv_wr_opcode opcode;
    unsigned bytes, pieces;
    bool mapped; /* memory of the device, else of the program */
};

static int shut(void **state) {
    (void)state;
    tcp_close(&p);
    return 0;
}

/* That it is read meanwhile is meant. */
__attribute__((no_sanitize("thread"))) static void *change(void *memory) {
    volatile uint64_t *words = memory;
    for (uint64_t round = 1; !atomic_load(&over); round++) {
        for (size_t i = 0; i < AREA / sizeof *words; i += 8)
            words[i] = round;
        atomic_store(&rounds, round);
    }
    return NULL;
}

static void await_change(void) {
    uint64_t now = atomic_load(&rounds);
    sv_until((sched_yield(), atomic_load(&rounds) != now));
}

static void memory_that_changes_is_sent(void **state) {
    const struct changing *c = *state;
    pthread_t thread;
    tcp_open(&p, &(struct tcp_options){
                     .o = {.bytes = 2 * AREA, .mapped = c->mapped}, .crc = true, .extended = true});
    atomic_store(&over, false);
    assert_int_equal(pthread_create(&thread, NULL, change, p.a.buf), 0);
    struct ibv_send_wr wr = {
        .wr_id = 1,
        .opcode = c->opcode,
        .send_flags = IBV_SEND_SIGNALED,
        .wr.rdma = {.remote_addr = (uintptr_t)p.b.buf + AREA, .rkey = p.open->rkey}};
    for (unsigned i = 0; i < TIMES; i++) {
        await_change();
        if (c->opcode == IBV_WR_SEND)
            tcp_recv(&p, i, AREA, c->bytes, 1);
        assert_int_equal(tcp_post(&p, wr, 0, c->bytes, c->pieces), 0);
        tcp_expect(p.a.scq, 1, IBV_WC_SUCCESS);
        if (c->opcode == IBV_WR_SEND)
            tcp_expect(p.b.rcq, i, IBV_WC_SUCCESS);
    }
    atomic_store(&over, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

#define CHANGING(name, ...)                                                                        \
    ROW_WITH(NULL, shut, memory_that_changes_is_sent__##name, memory_that_changes_is_sent,         \
             changing, __VA_ARGS__)

TEST_CASES(CHANGING(a_send, IBV_WR_SEND, 8192, 1, true),
           CHANGING(a_large_send, IBV_WR_SEND, AREA, 1, true),
           CHANGING(a_send_in_pieces, IBV_WR_SEND, 100000, 3, true),
           CHANGING(a_send_of_the_programs, IBV_WR_SEND, AREA, 1, false),
           CHANGING(a_write, IBV_WR_RDMA_WRITE, 8192, 1, true),
           CHANGING(a_large_write, IBV_WR_RDMA_WRITE, AREA, 1, true),
           CHANGING(a_write_of_the_programs, IBV_WR_RDMA_WRITE, AREA, 3, false));
