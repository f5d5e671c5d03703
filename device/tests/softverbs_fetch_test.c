/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs_fetch_test.c - the receiver of a message copies it out of the sender's memory by itself: soft_share() and
 * soft_fetch(). It reaches what its peer shares with it, and that only while the peer's queue pair is up.
 */
#include "support/softverbs.h"
#include "support/softverbs_tcp.h"

enum { BYTES = 65536, ROUNDS = 300 };

struct shared {
    uint32_t region;
    uint64_t at;
};

static void open_pair(struct sv_end *a, struct sv_end *b) {
    const struct sv_options o = SV_OPTIONS(.mapped = true, .bytes = BYTES);
    sv_pair(a, o, b, o);
    sv_wait_mapped(a);
    sv_wait_linked(a);
    sv_wait_linked(b);
    sv_fill(a->buf, BYTES, 1);
    memset(b->buf, 0, BYTES);
}

static struct shared shared_by(struct sv_end *a) {
    struct shared shared;
    assert_true(soft_share(a->qp, a->mr, a->buf, BYTES, &shared.region, &shared.at));
    return shared;
}

static int fetch(struct sv_end *b, struct shared from, uint64_t offset, uint32_t bytes) {
    struct ibv_sge to = sv_sge(b, 0, bytes);
    return soft_fetch(b->qp, from.region, from.at + offset, &to);
}

TEST(the_receiver_copies_what_its_peer_shares) {
    static const struct {
        uint32_t offset, bytes;
    } parts[] = {{0, 1}, {0, BYTES}, {BYTES - 1, 1}, {77, 8169}, {4096, 0}};
    struct sv_end a, b;
    open_pair(&a, &b);
    struct shared from = shared_by(&a);
    for (unsigned i = 0; i < sizeof parts / sizeof *parts; i++) {
        memset(b.buf, 0xee, BYTES);
        assert_int_equal(fetch(&b, from, parts[i].offset, parts[i].bytes), 0);
        must_data_bytes(b.buf, a.buf + parts[i].offset, parts[i].bytes);
        for (uint32_t k = parts[i].bytes; k < BYTES; k++)
            must_data_equal(b.buf[k], 0xee);
    }
    sv_unpair(&a, &b);
}

TEST(memory_that_the_peer_has_not_mapped_is_not_shared) {
    struct sv_end a, b;
    struct shared shared;
    open_pair(&a, &b);
    uint8_t *mine = malloc(BYTES);
    struct ibv_mr *private = soft_reg_mr(a.pd, mine, BYTES, 0);
    assert_non_null(private);
    assert_false(soft_share(a.qp, private, mine, BYTES, &shared.region, &shared.at));
    assert_false(soft_share(a.qp, a.mr, a.buf - 1, 1, &shared.region, &shared.at));
    assert_false(soft_share(a.qp, a.mr, a.buf + 1, BYTES, &shared.region, &shared.at));
    assert_int_equal(soft_dereg_mr(private), 0);
    free(mine);
    sv_unpair(&a, &b);
}

TEST(what_is_not_shared_cannot_be_copied) {
    struct sv_end a, b;
    open_pair(&a, &b);
    struct shared good = shared_by(&a);
    const struct shared wrong[] = {
        {SOFT_MAX_REGIONS, 0},          {UINT32_MAX, 0},           {SOFT_MAX_REGIONS - 1, 0},
        {good.region, BYTES},           {good.region, BYTES - 63}, {good.region, UINT64_MAX},
        {good.region, UINT64_MAX - 63},
    };
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(fetch(&b, wrong[i], 0, 64), EINVAL);
    must_data_equal(b.buf[0], 0);
    assert_int_equal(sv_state(&b), IBV_QPS_RTS);
    sv_unpair(&a, &b);
}

TEST(it_goes_to_memory_that_may_be_written) {
    struct sv_end a, b;
    open_pair(&a, &b);
    struct shared from = shared_by(&a);
    struct ibv_pd *other = soft_alloc_pd(b.ctx);
    struct ibv_mr *of_other = soft_reg_mr(other, b.buf, BYTES, IBV_ACCESS_LOCAL_WRITE),
                  *readable = soft_reg_mr(b.pd, b.buf, BYTES, 0);
    assert_true(of_other && readable);
    const struct ibv_sge wrong[] = {
        {(uintptr_t)b.buf, 64, b.mr->lkey ^ 1},
        {(uintptr_t)b.buf, 64, of_other->lkey},
        {(uintptr_t)b.buf, 64, readable->lkey},
        {(uintptr_t)b.buf + BYTES - 63, 64, b.mr->lkey},
    };
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(soft_fetch(b.qp, from.region, from.at, &wrong[i]), EFAULT);
    assert_true(soft_dereg_mr(of_other) == 0 && soft_dereg_mr(readable) == 0);
    assert_int_equal(soft_dealloc_pd(other), 0);
    sv_unpair(&a, &b);
}

TEST(over_tcp_nothing_is_shared) {
    static const struct tcp_options o = {.o = {.mapped = true, .bytes = BYTES}, .extended = true};
    struct tcp_pair p;
    struct shared shared;
    tcp_open(&p, &o);
    assert_false(soft_share(p.a.qp, p.a.mr, p.a.buf, BYTES, &shared.region, &shared.at));
    assert_int_equal(fetch(&p.b, (struct shared){0, 0}, 0, 64), EINVAL);
    tcp_close(&p);
}

/* ---- the end ------------------------------------------------------------------------------------ */

TEST(when_a_side_is_down_nothing_is_copied) {
    for (enum sv_down how = SV_TO_ERR; how <= SV_DOWNS; how++) {
        struct sv_end a, b;
        open_pair(&a, &b);
        struct shared from = shared_by(&a);
        if (how < SV_DOWNS)
            sv_take_down(&a, how);
        else
            must(sv_to(&b, IBV_QPS_ERR) == 0);
        assert_int_equal(fetch(&b, from, 0, BYTES), ECONNRESET);
        must_data_equal(b.buf[0], 0);
        sv_unpair(&a, &b);
    }
}

struct taker {
    struct sv_end *b;
    struct shared from;
    _Atomic unsigned copies;
    bool wrong; /* bytes that were written later, and were said to be right */
};

static void *take(void *arg) {
    struct taker *t = arg;
    while (fetch(t->b, t->from, 0, BYTES) == 0) {
        for (size_t i = 0; i < BYTES; i++)
            t->wrong |= t->b->buf[i] != sv_byte(i, 1);
        atomic_fetch_add(&t->copies, 1);
    }
    return NULL;
}

/* The receiver is anywhere in its copy when the sender goes down and its memory is written to. */
TEST(no_byte_written_after_the_end_is_copied) {
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct sv_end a, b;
        pthread_t thread;
        open_pair(&a, &b);
        struct taker t = {.b = &b, .from = shared_by(&a)};
        assert_int_equal(pthread_create(&thread, NULL, take, &t), 0);
        sv_until(atomic_load(&t.copies) > 0);
        for (unsigned spin = 0; spin < round * 16; spin++)
            atomic_signal_fence(memory_order_seq_cst);
        sv_take_down(&a, SV_TO_ERR);
        memset(a.buf, 0xee, BYTES);
        pthread_join(thread, NULL);
        if (t.wrong)
            verdict_wrong_data("round %u: bytes of later", round);
        must(!t.wrong);
        sv_unpair(&a, &b);
    }
}
