/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * key_scope_test.c - a key that goes out with a large message opens that message, on that queue pair, for
 * as long as the transfer takes: whoever uses it for anything else fails with a remote access error, or on
 * iWARP with the connection, and has moved nothing.
 *
 * Where the device's windows cannot be relied upon (Soft-RoCE), the key is that of a registration: as narrow
 * and as short-lived, but good for every queue pair of the node.
 *
 * The session that gets the announcement plays the thief: its receiving half is kept from answering (its
 * node is never polled between), and work requests of the test's own go out on its queue pair.
 */
#include <sluice/memory.h>

#include "support/pair.h"
#include "datapath/rndv/internal.h"
#include "fabric/fast.h"

#define BYTES ((size_t)100000)
#define ABOVE 16384 /* larger ones go this way, on devices too where it is not the default */

/* Memory of the test's own. It is open to the peer, as iWARP wants it of what a READ goes to. */
struct spare {
    struct side *side;
    size_t bytes;
    uint8_t *at;
    struct ibv_mr *mr;
};

#define SPARE_BYTE 0xa5

static struct spare spare_open(struct side *side, size_t bytes) {
    struct spare spare = {side, bytes, malloc(bytes), NULL};
    assert_non_null(spare.at);
    memset(spare.at, SPARE_BYTE, bytes);
    spare.mr = side->node->fabric->reg_mr(side->node->pd, spare.at, bytes,
                                          IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    assert_non_null(spare.mr);
    return spare;
}

static bool spare_untouched(const struct spare *spare) {
    for (size_t i = 0; i < spare->bytes; i++)
        if (spare->at[i] != SPARE_BYTE)
            return false;
    return true;
}

static void spare_close(struct spare *spare) {
    assert_int_equal(spare->side->node->fabric->dereg_mr(spare->mr), 0);
    free(spare->at);
}

/* What else completes meanwhile is the session's: its loop finds it polled already. */
static struct ibv_wc outcome_of(const struct spare *spare, enum ibv_wr_opcode opcode,
                                uint64_t remote, uint32_t rkey, struct side *owner) {
    struct session *s = pair_session(spare->side);
    struct ibv_sge sge = {(uintptr_t)spare->at, (uint32_t)spare->bytes, spare->mr->lkey};
    struct ibv_send_wr wr = {.wr_id = 77, /* a send's: bit 0 */
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = opcode,
                             .send_flags = IBV_SEND_SIGNALED,
                             .wr.rdma = {.remote_addr = remote, .rkey = rkey}};
    struct ibv_send_wr *bad;
    struct ibv_wc wc = {0};
    assert_int_equal(ibv_post_send(s->connection->qp, &wr, &bad), 0);
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    struct sluice_loop *l = atomic_load(&s->loop);
    assert_int_equal(l->wc_next, l->wc_count);
    l->wc_next = l->wc_count = 0;
    for (;;) {
        int n = ibv_poll_cq(l->cq, 1, &wc);
        assert_true(n >= 0);
        if (n == 1 && wc.wr_id == 77)
            return wc;
        if (n == 1) {
            assert_true(l->wc_count < LOOP_WC_BATCH);
            l->wc[l->wc_count++] = wc;
            l->totals.completions++;
        }
        assert_true(env_now(&env_default) < limit);
        if (fabric_is_software(owner->node->fabric))
            sluice_poll(owner->loop, NULL, 0, 0); /* whose memory it is may have to look */
    }
}

/*
 * The thief is told. On iWARP the owner ends the connection instead: a READ that waits is flushed, and a WRITE
 * has completed when it left, so that its connection's end says that it was looked at.
 */
static void expect_refused(const struct spare *spare, struct ibv_wc wc, enum ibv_wr_opcode opcode) {
    struct sluice_node *node = spare->side->node;
    if (!node->traits.sent_is_local) {
        assert_int_equal(wc.status, IBV_WC_REM_ACCESS_ERR);
        return;
    }
    assert_int_equal(wc.status, opcode == IBV_WR_RDMA_READ ? IBV_WC_WR_FLUSH_ERR : IBV_WC_SUCCESS);
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};
    struct ibv_qp_init_attr init;
    struct ibv_qp *qp = pair_session(spare->side)->connection->qp;
    while (attr.qp_state == IBV_QPS_RTS) {
        assert_int_equal(node->fabric->query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
        assert_true(env_now(&env_default) < limit);
        sched_yield();
    }
}

/* a reads with a key of b's: what was at that place, or nothing at all. */
static void expect_read(struct pair *p, const uint8_t *at, uint32_t key, size_t bytes, bool opens) {
    struct spare spare = spare_open(&p->a, bytes);
    struct ibv_wc wc = outcome_of(&spare, IBV_WR_RDMA_READ, (uintptr_t)at, key, &p->b);
    if (opens) {
        assert_int_equal(wc.status, IBV_WC_SUCCESS);
        must_data_bytes(spare.at, at, bytes);
    } else {
        expect_refused(&spare, wc, IBV_WR_RDMA_READ);
        assert_true(spare_untouched(&spare));
    }
    spare_close(&spare);
}

/* What lies beside a buffer is nobody's, and the address sanitizer knows. */
__attribute__((no_sanitize("address"))) static void look(uint8_t *to, const volatile uint8_t *from,
                                                         size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        to[i] = from[i];
}

/* What a write does, by one of them with a key of the other's. */
static void expect_write(struct side *thief, struct side *owner, uint8_t *at, uint32_t key,
                         size_t bytes, bool opens) {
    struct spare spare = spare_open(thief, bytes);
    uint8_t *before = malloc(bytes), *after = malloc(bytes);
    assert_true(before && after);
    look(before, at, bytes);
    struct ibv_wc wc = outcome_of(&spare, IBV_WR_RDMA_WRITE, (uintptr_t)at, key, owner);
    if (opens) {
        assert_int_equal(wc.status, IBV_WC_SUCCESS);
    } else {
        expect_refused(&spare, wc, IBV_WR_RDMA_WRITE);
        look(after, at, bytes);
        must_data_bytes(after, before, bytes);
    }
    free(before);
    free(after);
    spare_close(&spare);
}

/* b announces a message by READ; a has not looked yet. What b told, from b's own books. */
static struct rndv_tx *announced(struct pair *p) {
    pair_open(p, PAIR_NODE(.rendezvous = SLUICE_RENDEZVOUS_READ, .rendezvous_bytes = ABOVE),
              PAIR_LINK(.credits = 0));
    pair_connect(p, PAIR_LINK(.credits = 0));
    assert_int_equal(pair_send(&p->b, BYTES, 1, SLUICE_SEND(.tag = 1)), 0);
    struct rndv_tx *d = &pair_session(&p->b)->rndv->out[0];
    assert_int_equal(d->state, RNDV_TX_RTS);
    return d;
}

static void read_with(int64_t from, size_t bytes, bool opens) {
    struct pair p;
    struct rndv_tx *d = announced(&p);
    expect_read(&p, d->msg->data + from, d->mw.rkey, bytes, opens);
    pair_close(&p);
}

TEST(the_key_opens_the_message) {
    read_with(0, BYTES, true);
    read_with(BYTES - 1, 1, true);
}

TEST(one_byte_before_it_is_refused) {
    read_with(-1, 1, false);
    read_with(-1, 100, false);
}

TEST(one_byte_behind_it_is_refused) {
    read_with(BYTES, 1, false);
    read_with(1, BYTES, false);
}

TEST(writing_with_it_is_refused) {
    struct pair p;
    struct rndv_tx *d = announced(&p);
    expect_write(&p.a, &p.b, d->msg->data, d->mw.rkey, 8, false);
    pair_close(&p);
}

/* A piece in the middle of a region goes without a copy, and the rest of the region stays closed. */
static void piece_with(int64_t from, size_t bytes, bool opens) {
    struct pair p;
    sluice_region *region;
    pair_open(&p, PAIR_NODE(.rendezvous = SLUICE_RENDEZVOUS_READ, .rendezvous_bytes = ABOVE),
              PAIR_LINK(.credits = 0));
    pair_connect(&p, PAIR_LINK(.credits = 0));
    assert_int_equal(sluice_region_open(p.b.node, NULL, BYTES + 2000, 0, &region, NULL), 0);
    uint8_t *at = (uint8_t *)sluice_region_data(region) + 1000;
    for (size_t i = 0; i < BYTES; i++)
        at[i] = (uint8_t)(i * 7);
    sluice_piece piece = {at, BYTES, region};
    assert_int_equal(sluice_send_pieces(p.b.session, &piece, 1, SLUICE_SEND(.tag = 1)), 0);
    struct rndv_tx *d = &pair_session(&p.b)->rndv->out[0];
    assert_int_equal(d->state, RNDV_TX_RTS);
    assert_int_equal(d->way, RNDV_BY_READ);
    expect_read(&p, at + from, d->mw.rkey, bytes, opens);
    pair_close(&p); /* the region ends with its node */
}

TEST(the_key_of_a_piece_opens_no_more_of_its_region) {
    piece_with(0, BYTES, true);
    piece_with(-1, 1, false);
    piece_with(BYTES, 1, false);
}

TEST(after_the_outcome_it_opens_nothing) {
    struct pair p;
    struct rndv_tx *d = announced(&p);
    const uint8_t *at = d->msg->data;
    uint32_t key = d->mw.rkey;
    pair_expect(&p, &p.b, SLUICE_SENT);
    pair_expect(&p, &p.a, SLUICE_MESSAGE);
    expect_read(&p, at, key, 8, false);
    pair_close(&p);
}

TEST(on_another_queue_pair_it_opens_nothing) {
    struct pair p;
    struct rndv_tx *d = announced(&p);
    if (!p.b.node->traits.exact_windows) {
        pair_close(&p);
        skip();
    }
    /* A second session between the same nodes. */
    struct side first_a = p.a, first_b = p.b;
    for (int i = 0; i < 3; i++) /* a does not poll: nothing takes the message meanwhile */
        sluice_poll(p.b.loop, NULL, 0, 0);
    pair_session(&first_a)->link_config.flags |= SLUICE_RECEIVE_INTO; /* and then asks first */
    pair_dial(&p, PAIR_LINK(.credits = 0));
    sluice_event event;
    unsigned up = 0;
    while (up < 2) {
        struct side *side = up == 0 ? &p.b : &p.a;
        assert_true(pair_next(&p, side, &event));
        up += event.type == SLUICE_UP;
    }
    assert_true(p.a.session.id != first_a.session.id && p.b.session.id != first_b.session.id);
    assert_int_equal(d->state, RNDV_TX_RTS);
    expect_read(&p, d->msg->data, d->mw.rkey, 8, false);
    pair_close(&p);
}

/* ---- the WRITE way --------------------------------------------------------------------------- */

/* Without immediate data a receiver does not hear of what was written: such a device refuses this way. */
static void skip_without_immediate(void) {
    struct side side;
    pair_open_side(&side, PAIR_NODE(0));
    bool none = side.node->traits.no_immediate;
    sluice_close(side.node, 0);
    if (none)
        skip();
}

/* a has said RTR, and b has not looked yet. */
static struct rndv_rx *readied(struct pair *p) {
    pair_open(p, PAIR_NODE(.rendezvous = SLUICE_RENDEZVOUS_WRITE, .rendezvous_bytes = ABOVE),
              PAIR_LINK(.credits = 0));
    pair_connect(p, PAIR_LINK(.credits = 0));
    assert_int_equal(pair_send(&p->b, BYTES, 1, SLUICE_SEND(.tag = 1)), 0);
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    struct session *s = pair_session(&p->a);
    while (!s->rndv || !s->rndv->ready) {
        assert_true(env_now(&env_default) < limit);
        sluice_poll(p->a.loop, NULL, 0, 0);
    }
    return s->rndv->first;
}

static void write_with(int64_t to, size_t bytes, bool opens) {
    struct pair p;
    struct rndv_rx *a = readied(&p);
    expect_write(&p.b, &p.a, a->landing->data + to, a->mw->rkey, bytes, opens);
    pair_close(&p);
}

TEST(writing_beside_the_landing_is_refused) {
    skip_without_immediate();
    write_with(0, BYTES, true);
    write_with(-1, 1, false);
    write_with(BYTES, 1, false);
}

TEST(writing_after_the_message_is_there_is_refused) {
    struct pair p;
    skip_without_immediate();
    struct rndv_rx *a = readied(&p);
    uint8_t *at = a->landing->data;
    uint32_t key = a->mw->rkey;
    pair_expect(&p, &p.a, SLUICE_MESSAGE);
    pair_expect(&p, &p.b, SLUICE_SENT);
    expect_write(&p.b, &p.a, at, key, 8, false);
    pair_close(&p);
}
