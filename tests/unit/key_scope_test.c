/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * key_scope_test.c - a key that goes out with a large message opens that message, on that queue pair, for
 * as long as the transfer takes: whoever uses it for anything else fails with a remote access error.
 *
 * Where the device's windows cannot be relied upon (Soft-RoCE), the key is that of a registration: as narrow
 * and as short-lived, but good for every queue pair of the node.
 *
 * The session that gets the announcement plays the thief: its receiving half is kept from answering (its
 * node is never polled between), and work requests of the test's own go out on its queue pair.
 */
#include <sluice/memory.h>

#include "datapath/rendezvous.h"
#include "pair.h"

#define BYTES ((size_t)100000)
#define ABOVE 16384 /* larger ones go this way, on devices too where it is not the default */

static struct ibv_wc outcome_of(struct session *s, enum ibv_wr_opcode opcode, uint64_t remote,
                                uint32_t rkey, struct sluice_msg *local, struct side *owner) {
    struct ibv_sge sge = {(uintptr_t)sluice_data(local), (uint32_t)sluice_size(local), local->lkey};
    struct ibv_send_wr wr = {.wr_id = 77, /* a send's: bit 0 */
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = opcode,
                             .send_flags = IBV_SEND_SIGNALED,
                             .wr.rdma = {.remote_addr = remote, .rkey = rkey}};
    struct ibv_send_wr *bad;
    struct ibv_wc wc = {0};
    assert_int_equal(ibv_post_send(s->qp, &wr, &bad), 0);
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    struct sluice_loop *l = atomic_load(&s->loop);
    for (;;) {
        int n = ibv_poll_cq(l->cq, 1, &wc);
        assert_true(n >= 0);
        if (n == 1 && wc.wr_id == 77)
            return wc;
        assert_true(env_now(&env_default) < limit);
        if (owner)
            sluice_poll(owner->loop, NULL, 0, 0); /* whose memory it is may have to look */
    }
}

/* b announces a message by READ; a has not looked yet. What b told, from b's own books. */
static struct departing *announced(struct pair *p) {
    pair_open(p, PAIR_NODE(.rendezvous = SLUICE_RENDEZVOUS_READ, .rendezvous_bytes = ABOVE),
              PAIR_LINK(.credits = 0));
    pair_connect(p, PAIR_LINK(.credits = 0));
    assert_int_equal(pair_send(&p->b, BYTES, 1, SLUICE_SEND(.tag = 1)), 0);
    struct departing *d = &pair_session(&p->b)->rendezvous->out[0];
    assert_int_equal(d->state, DEPARTING_ANNOUNCED);
    return d;
}

static void read_with(int64_t from, size_t bytes, enum ibv_wc_status expected) {
    struct pair p;
    sluice_msg *local;
    struct departing *d = announced(&p);
    assert_int_equal(sluice_alloc(p.a.node, bytes, &local), 0);
    struct ibv_wc wc =
        outcome_of(pair_session(&p.a), IBV_WR_RDMA_READ, (uintptr_t)d->msg->data + (uint64_t)from,
                   d->window.rkey, local, &p.b);
    assert_int_equal(wc.status, expected);
    if (expected == IBV_WC_SUCCESS)
        assert_memory_equal(sluice_data(local), d->msg->data + from, bytes);
    sluice_free(local);
    pair_close(&p);
}

static void the_key_opens_the_message(void **state) {
    (void)state;
    read_with(0, BYTES, IBV_WC_SUCCESS);
    read_with(BYTES - 1, 1, IBV_WC_SUCCESS);
}

static void one_byte_before_it_is_refused(void **state) {
    (void)state;
    read_with(-1, 1, IBV_WC_REM_ACCESS_ERR);
    read_with(-1, 100, IBV_WC_REM_ACCESS_ERR);
}

static void one_byte_behind_it_is_refused(void **state) {
    (void)state;
    read_with(BYTES, 1, IBV_WC_REM_ACCESS_ERR);
    read_with(1, BYTES, IBV_WC_REM_ACCESS_ERR);
}

static void writing_with_it_is_refused(void **state) {
    struct pair p;
    sluice_msg *local;
    (void)state;
    struct departing *d = announced(&p);
    assert_int_equal(sluice_alloc(p.a.node, 8, &local), 0);
    struct ibv_wc wc = outcome_of(pair_session(&p.a), IBV_WR_RDMA_WRITE, (uintptr_t)d->msg->data,
                                  d->window.rkey, local, &p.b);
    assert_int_equal(wc.status, IBV_WC_REM_ACCESS_ERR);
    sluice_free(local);
    pair_close(&p);
}

/* A piece in the middle of a region goes without a copy, and the rest of the region stays closed. */
static void piece_with(int64_t from, size_t bytes, enum ibv_wc_status expected) {
    struct pair p;
    sluice_region *region;
    sluice_msg *local;
    pair_open(&p, PAIR_NODE(.rendezvous = SLUICE_RENDEZVOUS_READ, .rendezvous_bytes = ABOVE),
              PAIR_LINK(.credits = 0));
    pair_connect(&p, PAIR_LINK(.credits = 0));
    assert_int_equal(sluice_region_open(p.b.node, NULL, BYTES + 2000, 0, &region, NULL), 0);
    uint8_t *at = (uint8_t *)sluice_region_data(region) + 1000;
    for (size_t i = 0; i < BYTES; i++)
        at[i] = (uint8_t)(i * 7);
    sluice_piece piece = {at, BYTES, region};
    assert_int_equal(sluice_send_pieces(p.b.session, &piece, 1, SLUICE_SEND(.tag = 1)), 0);
    struct departing *d = &pair_session(&p.b)->rendezvous->out[0];
    assert_int_equal(d->state, DEPARTING_ANNOUNCED);
    assert_int_equal(d->way, WAY_READ);
    assert_int_equal(sluice_alloc(p.a.node, bytes, &local), 0);
    struct ibv_wc wc = outcome_of(pair_session(&p.a), IBV_WR_RDMA_READ,
                                  (uintptr_t)at + (uint64_t)from, d->window.rkey, local, &p.b);
    assert_int_equal(wc.status, expected);
    if (expected == IBV_WC_SUCCESS)
        assert_memory_equal(sluice_data(local), at + from, bytes);
    sluice_free(local);
    pair_close(&p); /* the region ends with its node */
}

static void the_key_of_a_piece_opens_no_more_of_its_region(void **state) {
    (void)state;
    piece_with(0, BYTES, IBV_WC_SUCCESS);
    piece_with(-1, 1, IBV_WC_REM_ACCESS_ERR);
    piece_with(BYTES, 1, IBV_WC_REM_ACCESS_ERR);
}

static void after_the_outcome_it_opens_nothing(void **state) {
    struct pair p;
    sluice_msg *local;
    (void)state;
    struct departing *d = announced(&p);
    uint64_t at = (uintptr_t)d->msg->data;
    uint32_t key = d->window.rkey;
    pair_expect(&p, &p.b, SLUICE_SENT);
    pair_expect(&p, &p.a, SLUICE_MESSAGE);
    assert_int_equal(sluice_alloc(p.a.node, 8, &local), 0);
    struct ibv_wc wc = outcome_of(pair_session(&p.a), IBV_WR_RDMA_READ, at, key, local, &p.b);
    assert_int_equal(wc.status, IBV_WC_REM_ACCESS_ERR);
    sluice_free(local);
    pair_close(&p);
}

static void on_another_queue_pair_it_opens_nothing(void **state) {
    struct pair p;
    sluice_msg *local;
    (void)state;
    struct departing *d = announced(&p);
    if (!p.b.node->traits.exact_windows) {
        pair_close(&p);
        skip();
    }
    /* A second session between the same nodes. */
    struct side first_a = p.a, first_b = p.b;
    for (int i = 0; i < 3; i++) /* a does not poll: nothing takes the message meanwhile */
        sluice_poll(p.b.loop, NULL, 0, 0);
    pair_session(&first_a)->link_config.flags |= SLUICE_PLACE; /* and then asks first */
    pair_dial(&p, PAIR_LINK(.credits = 0));
    sluice_event event;
    unsigned up = 0;
    while (up < 2) {
        struct side *side = up == 0 ? &p.b : &p.a;
        assert_true(pair_next(&p, side, &event));
        up += event.type == SLUICE_UP;
    }
    assert_true(p.a.session.id != first_a.session.id && p.b.session.id != first_b.session.id);
    assert_int_equal(d->state, DEPARTING_ANNOUNCED);
    assert_int_equal(sluice_alloc(p.a.node, 8, &local), 0);
    struct ibv_wc wc = outcome_of(pair_session(&p.a), IBV_WR_RDMA_READ, (uintptr_t)d->msg->data,
                                  d->window.rkey, local, &p.b);
    assert_int_equal(wc.status, IBV_WC_REM_ACCESS_ERR);
    sluice_free(local);
    pair_close(&p);
}

/* ---- the WRITE way --------------------------------------------------------------------------- */

/* a has said READY, and b has not looked yet. */
static struct arrival *readied(struct pair *p) {
    pair_open(p, PAIR_NODE(.rendezvous = SLUICE_RENDEZVOUS_WRITE, .rendezvous_bytes = ABOVE),
              PAIR_LINK(.credits = 0));
    pair_connect(p, PAIR_LINK(.credits = 0));
    assert_int_equal(pair_send(&p->b, BYTES, 1, SLUICE_SEND(.tag = 1)), 0);
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    struct session *s = pair_session(&p->a);
    while (!s->rendezvous || !s->rendezvous->ready) {
        assert_true(env_now(&env_default) < limit);
        sluice_poll(p->a.loop, NULL, 0, 0);
    }
    return s->rendezvous->first;
}

static void write_with(int64_t to, size_t bytes, enum ibv_wc_status expected) {
    struct pair p;
    sluice_msg *local;
    struct arrival *a = readied(&p);
    assert_int_equal(sluice_alloc(p.b.node, bytes, &local), 0);
    struct ibv_wc wc =
        outcome_of(pair_session(&p.b), IBV_WR_RDMA_WRITE,
                   (uintptr_t)a->landing->data + (uint64_t)to, a->window->rkey, local, &p.a);
    assert_int_equal(wc.status, expected);
    sluice_free(local);
    pair_close(&p);
}

static void writing_beside_the_landing_is_refused(void **state) {
    (void)state;
    write_with(0, BYTES, IBV_WC_SUCCESS);
    write_with(-1, 1, IBV_WC_REM_ACCESS_ERR);
    write_with(BYTES, 1, IBV_WC_REM_ACCESS_ERR);
}

static void writing_after_the_message_is_there_is_refused(void **state) {
    struct pair p;
    sluice_msg *local;
    (void)state;
    struct arrival *a = readied(&p);
    uint64_t at = (uintptr_t)a->landing->data;
    uint32_t key = a->window->rkey;
    pair_expect(&p, &p.a, SLUICE_MESSAGE);
    pair_expect(&p, &p.b, SLUICE_SENT);
    assert_int_equal(sluice_alloc(p.b.node, 8, &local), 0);
    struct ibv_wc wc = outcome_of(pair_session(&p.b), IBV_WR_RDMA_WRITE, at, key, local, &p.a);
    assert_int_equal(wc.status, IBV_WC_REM_ACCESS_ERR);
    sluice_free(local);
    pair_close(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_key_opens_the_message),
        cmocka_unit_test(one_byte_before_it_is_refused),
        cmocka_unit_test(one_byte_behind_it_is_refused),
        cmocka_unit_test(writing_with_it_is_refused),
        cmocka_unit_test(the_key_of_a_piece_opens_no_more_of_its_region),
        cmocka_unit_test(after_the_outcome_it_opens_nothing),
        cmocka_unit_test(on_another_queue_pair_it_opens_nothing),
        cmocka_unit_test(writing_beside_the_landing_is_refused),
        cmocka_unit_test(writing_after_the_message_is_there_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
