/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * limits_test.c - how much a device has and what it makes of what it is asked for: the limits that it says,
 * the sizes of queues, inline data and lists of pieces, and the number of READs under way.
 */
#include "contract/ends.h"

static struct ct_end e;

static int open_one(void **state) {
    (void)state;
    ct_open(&e, CT_OPTIONS());
    return 0;
}

static int close_one(void **state) {
    (void)state;
    ct_close(&e);
    return 0;
}

static uint32_t rounded(enum ct_rounding rounding, uint32_t wanted) {
    uint32_t less = rounding == CT_POWER_LESS_1, power = 1;
    while (power < wanted + less)
        power *= 2;
    return rounding == CT_EXACT ? wanted : power - less;
}

#define DEVICE_TEST(name) TEST_WITH(open_one, close_one, name)

DEVICE_TEST(a_device_says_its_limits) {
    struct ibv_device_attr attr;
    assert_int_equal(ibv_query_device(e.ctx, &attr), 0);
    assert_int_equal(attr.max_qp_wr, facts.wr_most);
    assert_int_equal(attr.max_srq_wr, facts.srq_wr_most);
    assert_int_equal(attr.max_cqe, facts.cqe_most);
    assert_int_equal(attr.max_mcast_qp_attach, facts.members_most);
    assert_int_equal(attr.max_sge, facts.sge_most);
    assert_int_equal(attr.max_srq_sge, facts.srq_sge_most);
    assert_int_equal(attr.max_qp_rd_atom, facts.depth_most);
    assert_int_equal(attr.max_qp_init_rd_atom, facts.depth_most);
}

/* NULL, and EINVAL, where the device has not so much. */
static struct ibv_qp *make(struct ibv_qp_cap *cap) {
    struct ibv_qp_init_attr init = {
        .send_cq = e.scq, .recv_cq = e.rcq, .cap = *cap, .qp_type = IBV_QPT_RC};
    errno = 0;
    struct ibv_qp *qp = ibv_create_qp(e.pd, &init);
    if (qp)
        *cap = init.cap;
    else
        assert_int_equal(errno, EINVAL);
    return qp;
}

static struct ibv_qp_cap asked(struct ibv_qp *qp) {
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    assert_int_equal(ibv_query_qp(qp, &attr, IBV_QP_CAP, &init), 0);
    assert_memory_equal(&attr.cap, &init.cap, sizeof attr.cap);
    return init.cap;
}

DEVICE_TEST(queues_are_as_large_as_they_say) {
    const uint32_t sizes[] = {1, 2, 3, 14, 63, 64, 100};
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct ibv_qp_cap cap = {
            .max_send_wr = sizes[i], .max_recv_wr = sizes[i], .max_send_sge = 1, .max_recv_sge = 1};
        uint32_t size = rounded(facts.rounding, sizes[i]), taken = 0;
        struct ibv_qp *own = e.qp;
        e.qp = make(&cap);
        assert_non_null(e.qp);
        assert_int_equal(cap.max_send_wr, facts.rounds_silently ? sizes[i] : size);
        assert_int_equal(cap.max_recv_wr, facts.rounds_silently ? sizes[i] : size);
        assert_int_equal(asked(e.qp).max_send_wr, size);
        assert_int_equal(asked(e.qp).max_recv_wr, size);
        struct ibv_qp_attr attr = ct_attr(&e, IBV_QPS_INIT, 0);
        if (facts.by_hand) /* else it is in INIT already */
            assert_int_equal(ibv_modify_qp(e.qp, &attr, CT_INIT_MASK), 0);
        while (taken <= size && ct_recv(&e, taken, 0, 8) == 0)
            taken++;
        assert_int_equal(taken, size);
        assert_int_equal(ibv_destroy_qp(e.qp), 0);
        e.qp = own;
    }
}

DEVICE_TEST(inline_data_and_pieces_are_granted) {
    const struct {
        uint32_t sges, bytes;
    } rows[] = {{1, 0}, {4, 0}, {4, 64}, {2, 40}, {1, 100}, {6, 16}, {16, 256}, {1, 400}, {1, 512}};
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct ibv_qp_cap cap = {.max_send_wr = 1,
                                 .max_recv_wr = 1,
                                 .max_send_sge = rows[i].sges,
                                 .max_recv_sge = 1,
                                 .max_inline_data = rows[i].bytes};
        struct ibv_qp *qp = make(&cap);
        bool fits = rows[i].bytes <= facts.inline_most && rows[i].sges <= facts.sge_most;
        assert_int_equal(qp != NULL, fits);
        if (!qp)
            continue;
        uint32_t free = facts.inline_is_pieces ? 16 * rows[i].sges : facts.inline_free;
        uint32_t bytes = rows[i].bytes > free ? rows[i].bytes : free;
        assert_int_equal(cap.max_inline_data, bytes);
        if (facts.inline_silently)
            cap.max_inline_data = facts.inline_most;
        assert_int_equal(cap.max_send_sge, facts.inline_is_pieces ? bytes / 16 : rows[i].sges);
        struct ibv_qp_cap now = asked(qp);
        assert_int_equal(now.max_inline_data, cap.max_inline_data);
        assert_int_equal(now.max_send_sge, cap.max_send_sge);
        assert_int_equal(ibv_destroy_qp(qp), 0);
    }
}

DEVICE_TEST(one_more_than_the_most_is_einval) {
    for (unsigned over = 0; over < 2; over++) {
        struct ibv_qp_cap cap = {.max_send_wr = 1,
                                 .max_recv_wr = 1,
                                 .max_send_sge = facts.sge_most,
                                 .max_recv_sge = facts.sge_most,
                                 .max_inline_data = facts.inline_most + over};
        struct ibv_qp *qp = make(&cap);
        assert_int_equal(qp == NULL, over);
        if (qp)
            assert_int_equal(ibv_destroy_qp(qp), 0);
    }
}

/* A message of as many pieces as there can be, large and small, into as many. */
DEVICE_TEST(a_message_of_all_the_pieces_arrives) {
    enum { MOST = 64 };
    struct ct_end a, b;
    struct ibv_sge from[MOST], to[MOST];
    const uint32_t sizes[] = {3, 500}; /* of a piece */
    unsigned n = facts.sge_most;
    if (!facts.by_hand)
        ct_skip("queue pairs are connected by the connection manager alone");
    assert_true(n <= MOST);
    struct ct_options o = CT_OPTIONS(.send_sge = n, .recv_sge = n);
    ct_open_pair(&a, &b, o, o);
    for (unsigned i = 0; i < 2; i++) {
        uint32_t size = sizes[i], at = 0;
        uint8_t whole[MOST * 500];
        ct_fill(whole, n * size, i);
        for (unsigned k = 0; k < n; k++, at += size) {
            memcpy(a.buf + 2 * at, whole + at, size); /* with as much between them */
            from[k] = ct_sge(&a, 2 * at, size);
            to[k] = ct_sge(&b, at, size);
        }
        struct ibv_recv_wr recv = {.wr_id = 5, .sg_list = to, .num_sge = (int)n}, *bad_recv;
        struct ibv_send_wr wr = {.wr_id = 6,
                                 .sg_list = from,
                                 .num_sge = (int)n,
                                 .opcode = IBV_WR_SEND,
                                 .send_flags = IBV_SEND_SIGNALED},
                           *bad;
        assert_int_equal(ibv_post_recv(b.qp, &recv, &bad_recv), 0);
        assert_int_equal(ibv_post_send(a.qp, &wr, &bad), 0);
        ct_wc(b.rcq, 5, IBV_WC_SUCCESS);
        ct_wc(a.scq, 6, IBV_WC_SUCCESS);
        ct_check(b.buf, n * size, i);
    }
    ct_close(&a);
    ct_close(&b);
}

DEVICE_TEST(completion_queues_are_rounded) {
    const int sizes[] = {1, 2, 3, 4, 20, 255, 256};
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct ibv_cq *cq = ibv_create_cq(e.ctx, sizes[i], NULL, NULL, 0);
        assert_non_null(cq);
        assert_int_equal(cq->cqe, rounded(facts.cq_rounding, (uint32_t)sizes[i]));
        assert_int_equal(ibv_destroy_cq(cq), 0);
    }
    errno = 0;
    assert_null(ibv_create_cq(e.ctx, (int)facts.cqe_most + 1, NULL, NULL, 0));
    assert_int_equal(errno, EINVAL);
}

DEVICE_TEST(shared_queues_are_rounded) {
    const uint32_t sizes[] = {1, 2, 3, 4, 13, 40};
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct ibv_srq_init_attr init = {.attr = {.max_wr = sizes[i], .max_sge = 2}};
        struct ibv_srq_attr attr;
        struct ibv_srq *srq = ibv_create_srq(e.pd, &init);
        assert_non_null(srq);
        uint32_t size = rounded(facts.rounding, sizes[i]);
        assert_int_equal(init.attr.max_wr, facts.rounds_silently ? sizes[i] : size);
        assert_int_equal(ibv_query_srq(srq, &attr), facts.srq_query ? 0 : EOPNOTSUPP);
        if (facts.srq_query) {
            assert_int_equal(attr.max_wr, size);
            assert_int_equal(attr.max_sge, 2);
        }
        assert_int_equal(ibv_destroy_srq(srq), 0);
    }
    for (unsigned over = 0; over < 2; over++) {
        struct ibv_srq_init_attr init = {
            .attr = {.max_wr = 1, .max_sge = facts.srq_sge_most + over}};
        errno = 0;
        struct ibv_srq *srq = ibv_create_srq(e.pd, &init);
        assert_int_equal(srq == NULL, over);
        if (srq)
            assert_int_equal(ibv_destroy_srq(srq), 0);
        else
            assert_int_equal(errno, EINVAL);
    }
}

DEVICE_TEST(reads_under_way_are_rounded) {
    const uint8_t depths[] = {0, 1, 3, 4, 9, 16};
    if (!facts.by_hand)
        ct_skip("queue pairs are connected by the connection manager alone");
    for (unsigned i = 0; i < sizeof depths; i++) {
        struct ct_end end;
        struct ibv_qp_init_attr init;
        ct_open(&end, CT_OPTIONS());
        struct ibv_qp_attr attr = ct_attr(&end, IBV_QPS_INIT, 0);
        assert_int_equal(ibv_modify_qp(end.qp, &attr, CT_INIT_MASK), 0);
        attr = ct_attr(&end, IBV_QPS_RTR, e.qp->qp_num);
        attr.max_dest_rd_atomic = depths[i];
        assert_int_equal(ibv_modify_qp(end.qp, &attr, CT_RTR_MASK), 0);
        attr = ct_attr(&end, IBV_QPS_RTS, 0);
        attr.max_rd_atomic = (uint8_t)(facts.depth_most + 1);
        assert_int_equal(ibv_modify_qp(end.qp, &attr, CT_RTS_MASK), EINVAL);
        attr.max_rd_atomic = depths[i];
        assert_int_equal(ibv_modify_qp(end.qp, &attr, CT_RTS_MASK), 0);
        const int both = IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC;
        assert_int_equal(ibv_query_qp(end.qp, &attr, both, &init), 0);
        uint32_t depth = depths[i] ? rounded(facts.depth_rounding, depths[i]) : 0;
        assert_int_equal(attr.max_rd_atomic, depth);
        assert_int_equal(attr.max_dest_rd_atomic, depth);
        ct_close(&end);
    }
}

static struct ibv_qp *datagrams(void) {
    struct ibv_qp_init_attr init = {
        .send_cq = e.scq,
        .recv_cq = e.rcq,
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_UD};
    struct ibv_qp *qp = ibv_create_qp(e.pd, &init);
    assert_non_null(qp);
    return qp;
}

DEVICE_TEST(a_group_has_no_more_members_than_it_may) {
    enum { MOST = 256 };
    struct ibv_qp *qps[MOST];
    union ibv_gid gid = {.raw = {[10] = 0xff, 0xff, 239}};
    for (unsigned i = 0; i < 3; i++) /* a group of this process alone */
        gid.raw[15 - i] = (uint8_t)(getpid() >> (8 * i));
    unsigned n = facts.members_most;
    if (n == 0)
        ct_skip("there are no groups");
    assert_true(n < MOST);
    for (unsigned i = 0; i <= n; i++) {
        qps[i] = datagrams();
        assert_int_equal(ibv_attach_mcast(qps[i], &gid, 0), i < n ? 0 : ENOMEM);
    }
    assert_int_equal(ibv_detach_mcast(qps[0], &gid, 0), 0); /* a place is free again */
    assert_int_equal(ibv_attach_mcast(qps[n], &gid, 0), 0);
    for (unsigned i = 0; i <= n; i++) {
        if (i > 0)
            assert_int_equal(ibv_detach_mcast(qps[i], &gid, 0), 0);
        assert_int_equal(ibv_destroy_qp(qps[i]), 0);
    }
}

int main(void) {
    return ct_run();
}
