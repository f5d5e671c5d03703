/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs_withdrawn_test.c - large sends are read out of the sender's memory. Once that queue pair is down the memory
 * is its owner's again, so what was not read by then never arrives, and no byte that was written later does.
 */
#include "support/softverbs.h"

enum { BYTES = 8192, SENDS = 8, ROUNDS = 300 };

static void open_pair(struct sv_end *a, struct sv_end *b) {
    const struct sv_options o = SV_OPTIONS(.mapped = true, .sig_all = true, .bytes = BYTES * SENDS);
    sv_pair(a, o, b, o);
    sv_wait_mapped(a);
}

/* The sender's queue pair is down, and its memory is written to. */
static void end_sender(struct sv_end *a, enum sv_down how) {
    sv_take_down(a, how);
    memset(a->buf, 0xee, BYTES * SENDS);
}

/* In ERR every receive comes back, and those that are flushed are all that is left of it. */
static void receives_come_back(struct sv_end *b, unsigned left) {
    must(sv_to(b, IBV_QPS_ERR) == 0);
    for (; left > 0; left--)
        assert_int_equal(sv_poll(b->rcq).status, IBV_WC_WR_FLUSH_ERR);
    sv_stays_empty(b->rcq, NULL);
}

TEST(what_a_queue_pair_that_is_down_had_posted_does_not_arrive) {
    for (enum sv_down how = SV_TO_ERR; how < SV_DOWNS; how++) {
        struct sv_end a, b;
        open_pair(&a, &b);
        for (unsigned i = 0; i < SENDS; i++) {
            sv_fill(a.buf + i * BYTES, BYTES, i);
            must(sv_recv(&b, i, i * BYTES, BYTES) == 0 && sv_send(&a, i, i * BYTES, BYTES, 0) == 0);
        }
        /* Those that were taken are acknowledged, and right; the others are in the ring. */
        for (unsigned i = 0; i < SENDS / 2; i++) {
            assert_int_equal(sv_poll(b.rcq).status, IBV_WC_SUCCESS);
            sv_check(b.buf + i * BYTES, BYTES, i);
        }
        unsigned arrived = SENDS / 2;
        end_sender(&a, how);
        struct ibv_wc wc;
        for (uint64_t until = soft_now_ns() + 5000000; soft_now_ns() < until;) {
            int n = ibv_poll_cq(b.rcq, 1, &wc);
            must(n >= 0);
            if (n == 1 && wc.status == IBV_WC_SUCCESS) {
                sv_check(b.buf + wc.wr_id * BYTES, BYTES, (uint32_t)wc.wr_id);
                arrived++; /* the engine took it in time */
            } else if (n == 1) {
                fail_msg("%s", ibv_wc_status_str(wc.status));
            }
        }
        receives_come_back(&b, SENDS - arrived);
        sv_unpair(&a, &b);
    }
}

/* ---- at the same time ------------------------------------------------------------------------------- */

struct taker {
    struct sv_end *b;
    _Atomic bool stop;
    unsigned arrived;
    int wrong; /* the first message with other bytes, else -1 */
};

static bool is_right(const uint8_t *p, uint32_t seed) {
    for (size_t i = 0; i < BYTES; i++)
        if (p[i] != sv_byte(i, seed))
            return false;
    return true;
}

static void *take(void *arg) {
    struct taker *t = arg;
    struct ibv_wc wc;
    for (bool last = false; !last;) {
        last = atomic_load(&t->stop); /* and then once more */
        while (ibv_poll_cq(t->b->rcq, 1, &wc) == 1) {
            if (wc.status != IBV_WC_SUCCESS)
                continue;
            t->arrived++;
            if (t->wrong < 0 && !is_right(t->b->buf + wc.wr_id * BYTES, (uint32_t)wc.wr_id))
                t->wrong = (int)wc.wr_id;
        }
    }
    return NULL;
}

/* The receiver is anywhere in its copies when the sender goes down and its memory is written to. */
TEST(no_byte_written_after_the_end_arrives) {
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct sv_end a, b;
        struct taker t = {.b = &b, .wrong = -1};
        pthread_t thread;
        open_pair(&a, &b);
        for (unsigned i = 0; i < SENDS; i++) {
            sv_fill(a.buf + i * BYTES, BYTES, i);
            must(sv_recv(&b, i, i * BYTES, BYTES) == 0);
        }
        assert_int_equal(pthread_create(&thread, NULL, take, &t), 0);
        for (unsigned i = 0; i < SENDS; i++)
            must(sv_send(&a, i, i * BYTES, BYTES, 0) == 0);
        for (unsigned spin = 0; spin < round * 16; spin++)
            atomic_signal_fence(memory_order_seq_cst);
        end_sender(&a, SV_TO_ERR);
        atomic_store(&t.stop, true);
        pthread_join(thread, NULL);
        if (t.wrong >= 0)
            verdict_wrong_data("round %u: message %d of %u has bytes of later", round, t.wrong,
                               t.arrived);
        must(t.wrong < 0);
        sv_unpair(&a, &b);
    }
}
