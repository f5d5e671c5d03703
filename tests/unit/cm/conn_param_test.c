/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * conn_param_test.c - what a connection's parameters say is so, and what the peer's say is done.
 *
 * rdma_connect(3): retry_count is how often both sides repeat what is not acknowledged, rnr_retry_count how
 * often the other side repeats what found no receive, srq whether the queue pair shares receives. Each is
 * looked at where the other side hears it, and in the queue pair it is for.
 */
#include "support/pair.h"

/* ---- what is said and heard -------------------------------------------------------------------- */

static struct {
    int connect_retry, connect_rnr, accept_rnr; /* said instead, -1: as it is */
    int heard_retry, heard_rnr;                 /* heard instead, -1: as it is */
    int request_srq, response_srq;              /* heard */
} param;

static struct fabric_ops listening, dialing;

static int dialing_connect(struct rdma_cm_id *id, struct rdma_conn_param *given) {
    struct rdma_conn_param said = *given;
    if (param.connect_retry >= 0)
        said.retry_count = (uint8_t)param.connect_retry;
    if (param.connect_rnr >= 0)
        said.rnr_retry_count = (uint8_t)param.connect_rnr;
    return soft_connect(id, &said);
}

static int listening_accept(struct rdma_cm_id *id, struct rdma_conn_param *given) {
    struct rdma_conn_param said = *given;
    if (param.accept_rnr >= 0)
        said.rnr_retry_count = (uint8_t)param.accept_rnr;
    return soft_accept(id, &said);
}

static int hearing(struct rdma_event_channel *channel, struct rdma_cm_event **out) {
    int rc = soft_get_cm_event(channel, out);
    if (rc != 0)
        return rc;
    struct rdma_cm_event *event = *out;
    bool request = event->event == RDMA_CM_EVENT_CONNECT_REQUEST;
    if (!request && event->event != RDMA_CM_EVENT_CONNECT_RESPONSE)
        return 0;
    *(request ? &param.request_srq : &param.response_srq) = event->param.conn.srq;
    if (param.heard_retry >= 0)
        event->param.conn.retry_count = (uint8_t)param.heard_retry;
    if (param.heard_rnr >= 0)
        event->param.conn.rnr_retry_count = (uint8_t)param.heard_rnr;
    return 0;
}

static void open_nodes(struct pair *p, const sluice_link_options *listener) {
    param.connect_retry = param.connect_rnr = param.accept_rnr = -1;
    param.heard_retry = param.heard_rnr = -1;
    param.request_srq = param.response_srq = -1;
    listening = dialing = fabric_soft;
    dialing.connect = dialing_connect;
    listening.accept = listening_accept;
    pair_open(p, PAIR_NODE(), listener);
    p->a.node->fabric = &listening;
    p->b.node->fabric = &dialing;
}

static void close_nodes(struct pair *p) {
    p->a.node->fabric = p->b.node->fabric = &fabric_soft;
    pair_close(p);
}

/* ---- srq --------------------------------------------------------------------------------------- */

static bool shares(struct side *side) {
    sluice_session_info info = pair_info(side->session);
    return info.shared;
}

TEST(srq_says_whether_receives_are_shared) {
    for (unsigned isolated = 0; isolated < 4; isolated++) {
        struct pair p;
        uint32_t a = isolated & 1 ? SLUICE_ISOLATED : 0, b = isolated & 2 ? SLUICE_ISOLATED : 0;
        open_nodes(&p, PAIR_LINK(.flags = a));
        listening.get_cm_event = dialing.get_cm_event = hearing;
        pair_connect(&p, PAIR_LINK(.flags = b));
        bool can = p.a.node->traits.drains_shared;
        assert_int_equal(shares(&p.a), can && !a);
        assert_int_equal(shares(&p.b), can && !b);
        assert_int_equal(param.request_srq, shares(&p.b));
        assert_int_equal(param.response_srq, shares(&p.a));
        close_nodes(&p);
    }
}

/* ---- retries ----------------------------------------------------------------------------------- */

static void expect_retries(struct side *side, unsigned retry, unsigned rnr) {
    struct ibv_qp_attr attr = {0};
    struct ibv_qp_init_attr init;
    assert_int_equal(fabric_soft.query_qp(pair_session(side)->connection->qp, &attr,
                                          IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY, &init),
                     0);
    assert_int_equal(attr.retry_cnt, retry);
    assert_int_equal(attr.rnr_retry, rnr);
}

TEST(the_peers_retry_counts_are_honoured) {
    static const struct {
        int connect_retry, connect_rnr, accept_rnr;
    } said[] = {{-1, -1, -1}, {3, 2, 5}, {0, 0, 0}, {7, 1, 6}};
    for (size_t i = 0; i < sizeof said / sizeof said[0]; i++) {
        struct pair p;
        open_nodes(&p, PAIR_LINK());
        param.connect_retry = said[i].connect_retry;
        param.connect_rnr = said[i].connect_rnr;
        param.accept_rnr = said[i].accept_rnr;
        pair_connect(&p, PAIR_LINK());
        unsigned retry = i == 0 ? 7 : (unsigned)said[i].connect_retry;
        expect_retries(&p.a, retry, i == 0 ? 7 : (unsigned)said[i].connect_rnr);
        /* The dialer's own word is what its stack was told, behind the library: it still says 7. */
        expect_retries(&p.b, 7, i == 0 ? 7 : (unsigned)said[i].accept_rnr);
        close_nodes(&p);
    }
}

TEST(a_listener_refuses_retry_counts_that_cannot_be) {
    for (unsigned which = 0; which < 2; which++) {
        struct pair p;
        open_nodes(&p, PAIR_LINK());
        listening.get_cm_event = hearing;
        *(which ? &param.heard_rnr : &param.heard_retry) = which ? 255 : 8;
        pair_dial(&p, PAIR_LINK());
        sluice_event event = pair_expect(&p, &p.b, SLUICE_CLOSED);
        assert_int_equal(event.reason, SLUICE_REASON_VALUE);
        pair_expect_nothing(&p, &p.a);
        close_nodes(&p);
    }
}

TEST(a_dialer_refuses_an_rnr_retry_count_that_cannot_be) {
    struct pair p;
    open_nodes(&p, PAIR_LINK());
    dialing.get_cm_event = hearing;
    param.heard_rnr = 8;
    pair_dial(&p, PAIR_LINK());
    sluice_event event = pair_expect(&p, &p.b, SLUICE_CLOSED);
    assert_int_equal(event.reason, SLUICE_REASON_VALUE);
    sluice_session_info info = pair_info(event.session);
    assert_non_null(strstr(info.close_text, "rnr_retry_count of 8"));
    close_nodes(&p);
}
