/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs_long_test.c - one-sided operations of many megabytes: moved in pieces, so that a key that is taken back
 * ends them where they are, and whoever takes it back need not wait for the rest.
 */
#define BYTES (64u << 20)
#include "support/softverbs_onesided.h"

#include <pthread.h>

#define TRIES 100 /* the machine may leave the other thread alone for as long as the whole takes */

static void whole(enum way way) {
    struct onesided p;
    onesided_open_bytes(&p, BYTES, way, ALL_REMOTE, ALL_REMOTE, 1);
    size_t odd = BYTES - 4096 - 3;
    sv_fill(p.a.buf, BYTES, 5);
    must(onesided_post(&p, IBV_WR_RDMA_WRITE, 1, odd, 4097, p.open->rkey, 0) == 0);
    onesided_expect(&p, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
    must_data(memcmp(p.b.buf + 4097, p.a.buf + 1, odd) == 0 && p.b.buf[4096] == 0);
    memset(p.a.buf, 0, BYTES);
    struct ibv_sge parts[3];
    size_t sizes[3] = {(1u << 20) - 1, 1, odd - (1u << 20)}, at = 0;
    for (unsigned i = 0; i < 3; at += sizes[i++])
        parts[i] = sv_sge(&p.a, at, sizes[i]);
    struct ibv_send_wr wr = {.sg_list = parts,
                             .num_sge = 3,
                             .opcode = IBV_WR_RDMA_READ,
                             .send_flags = IBV_SEND_SIGNALED,
                             .wr.rdma = {(uintptr_t)p.b.buf + 4097, p.open->rkey}},
                       *bad;
    must(ibv_post_send(p.a.qp, &wr, &bad) == 0);
    must(sv_poll(p.a.rcq).status == IBV_WC_SUCCESS);
    must_data_bytes(p.b.buf + 4097, p.a.buf, odd);
    onesided_close(&p);
}

TEST(a_long_operation_moves_every_byte) {
    whole(MAPPED);
    whole(PROCESS);
}

static struct ibv_wc result;

static void *write_whole(void *arg) {
    struct onesided *p = arg;
    must(onesided_post(p, IBV_WR_RDMA_WRITE, 0, BYTES, 0, p->open->rkey, 0) == 0);
    result = sv_poll(p->a.rcq);
    return NULL;
}

/* True: the key was taken back in the middle. */
static bool taken_back(enum way way) {
    struct onesided p;
    pthread_t thread;
    onesided_open_bytes(&p, BYTES, way, ALL_REMOTE, ALL_REMOTE, 1);
    memset(p.a.buf, 1, BYTES);
    _Atomic uint8_t *first = (_Atomic uint8_t *)p.b.buf, *last = first + BYTES - 1;
    must(pthread_create(&thread, NULL, write_whole, &p) == 0);
    sv_until(atomic_load(first) == 1);
    must(soft_dereg_mr(p.open) == 0);
    bool rest = atomic_load(last) == 0;
    must(pthread_join(thread, NULL) == 0);
    must(atomic_load(last) == (rest ? 0 : 1)); /* nothing was written after it */
    must(result.status == (rest ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS));
    must(soft_destroy_qp(p.a.qp) == 0 && soft_destroy_qp(p.b.qp) == 0);
    p.a.qp = p.b.qp = NULL;
    sv_close(&p.a);
    sv_close(&p.b);
    return rest;
}

TEST(a_key_that_is_taken_back_ends_a_long_write) {
    for (enum way way = MAPPED; way <= PROCESS; way++) {
        unsigned tries = 0;
        while (!taken_back(way) && tries < TRIES)
            tries++;
        assert_true(tries < TRIES);
    }
}
