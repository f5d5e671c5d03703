/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * handshake_access_test.c - a dialer that knows a region's token and has not been welcomed yet: what it posts on
 * its queue pair by hand reaches nothing. From WELCOME on the same token works.
 */
#include <sluice/memory.h>

#include "core/wire/token.h"
#include "support/memory.h"

#define BYTES ((size_t)4096)
#define MARK 77 /* a send's: bit 0 */
#define WITH_KEY                                                                                   \
    .key_count = 1, .keys = &(sluice_key) {                                                        \
        .id = 7, .bytes = 32, .secret = "0123456789abcdef0123456789abcdef"                         \
    }

static const enum ibv_wr_opcode ways[] = {IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE,
                                          IBV_WR_ATOMIC_FETCH_AND_ADD};

/* Everything stands still but the device, and a's loop. */
static enum ibv_wc_status outcome_of(struct memory *m, enum ibv_wr_opcode opcode) {
    struct pair *p = &m->pair;
    struct session *s = pair_session(&p->b);
    struct sluice_loop *l = p->b.loop;
    struct token token;
    assert_true(token_get(&token, &m->token));
    struct ibv_sge sge = {(uintptr_t)sluice_region_data(m->here), 8, 0};
    struct ibv_mr *mr = p->b.node->fabric->reg_mr(p->b.node->pd, sluice_region_data(m->here), 8,
                                                  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    assert_non_null(mr);
    sge.lkey = mr->lkey;
    struct ibv_send_wr *bad, wr = {.wr_id = MARK,
                                   .sg_list = &sge,
                                   .num_sge = 1,
                                   .opcode = opcode,
                                   .send_flags = IBV_SEND_SIGNALED};
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr.wr.atomic.remote_addr = token.addr;
        wr.wr.atomic.rkey = token.rkey;
        wr.wr.atomic.compare_add = 1;
    } else {
        wr.wr.rdma.remote_addr = token.addr;
        wr.wr.rdma.rkey = token.rkey;
    }
    assert_int_equal(ibv_post_send(s->connection->qp, &wr, &bad), 0);
    struct ibv_wc wc = {0};
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    while (ibv_poll_cq(l->cq, 1, &wc) != 1 || wc.wr_id != MARK) {
        assert_true(env_now(&env_default) < limit);
        assert_true(sluice_poll(p->a.loop, NULL, 0, 0) >= 0);
    }
    assert_int_equal(p->b.node->fabric->dereg_mr(mr), 0);
    return wc.status;
}

static void open_listener(struct memory *m, uint32_t flags) {
    memset(m, 0, sizeof *m);
    pair_open(&m->pair, PAIR_NODE(.log = log_nothing), PAIR_LINK(WITH_KEY, .flags = flags));
    memory_regions(m, BYTES, ALL_RIGHTS);
}

static void turn_until(struct memory *m, enum session_handshake greeting) {
    struct session *s = pair_session(&m->pair.b);
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    while (s->connection->handshake != greeting) {
        pair_turn(&m->pair);
        assert_true(env_now(&env_default) < limit);
    }
}

static void expect_nothing_reached(struct memory *m, enum ibv_wr_opcode way) {
    uint8_t *mine = sluice_region_data(m->here);
    enum ibv_wc_status status = outcome_of(m, way);
    /* Some devices say that there is no such operation, others that it is not allowed. */
    assert_true(status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_REM_INV_REQ_ERR ||
                status == IBV_WC_REM_OP_ERR);
    assert_true(memory_untouched(memory_there(m), BYTES));
    assert_true(memory_untouched(mine, BYTES));
}

TEST(before_the_proof_no_region_can_be_reached) {
    for (unsigned i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        struct memory m;
        open_listener(&m, 0);
        memset(sluice_region_data(m.here), UNTOUCHED, BYTES);
        pair_dial(&m.pair, PAIR_LINK(WITH_KEY));
        turn_until(&m, HANDSHAKE_HELLO); /* its queue pair is ready, and nothing was said */
        expect_nothing_reached(&m, ways[i]);
        memory_close(&m);
    }
}

/* With a proof that is good, while the application has not decided. */
TEST(before_the_decision_no_region_can_be_reached) {
    for (unsigned i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        struct memory m;
        open_listener(&m, SLUICE_ASK);
        memset(sluice_region_data(m.here), UNTOUCHED, BYTES);
        pair_dial(&m.pair, PAIR_LINK(WITH_KEY));
        pair_expect(&m.pair, &m.pair.a, SLUICE_CONNECT);
        expect_nothing_reached(&m, ways[i]);
        memory_close(&m);
    }
}

TEST(from_welcome_on_a_token_works) {
    for (uint32_t flags = 0; flags <= SLUICE_ASK; flags += SLUICE_ASK) {
        struct memory m;
        open_listener(&m, flags);
        pair_dial(&m.pair, PAIR_LINK(WITH_KEY));
        if (flags)
            assert_int_equal(
                sluice_accept(pair_expect(&m.pair, &m.pair.a, SLUICE_CONNECT).session, NULL), 0);
        pair_expect(&m.pair, &m.pair.b, SLUICE_UP);
        sluice_session s = m.pair.b.session; /* the very first thing it does */
        memset(sluice_region_data(m.here), 3, BYTES);
        assert_int_equal(sluice_put(s, m.here, 0, 8, &m.token, 0, SLUICE_SEND(.tag = 1)), 0);
        assert_int_equal(sluice_get(s, m.here, 8, 8, &m.token, 8, SLUICE_SEND(.tag = 2)), 0);
        assert_int_equal(sluice_fetch_add(s, &m.token, 16, 1, SLUICE_SEND(.tag = 3)), 0);
        for (uint64_t tag = 1; tag <= 3; tag++) {
            sluice_event event = pair_expect(&m.pair, &m.pair.b, SLUICE_DONE);
            assert_true(event.tag == tag && event.status == SLUICE_OK);
        }
        pair_expect(&m.pair, &m.pair.a, SLUICE_UP);
        assert_int_equal(memory_there(&m)[0], 3);
        assert_int_equal(((uint8_t *)sluice_region_data(m.here))[8], UNTOUCHED);
        assert_int_equal(memory_there(&m)[16], UNTOUCHED + 1);
        memory_close(&m);
    }
}
