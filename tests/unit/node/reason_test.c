/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * reason_test.c - why a session ended: each reason that can be provoked at a dial or in a live session
 * is, and both sides say it with its status, its code, its text, and what the stack itself said.
 */
#include "support/reason.h"
#include "datapath/session/close.h"
#include "datapath/session/queue_pair.h"
#include "cm/internal.h"

/* ---- not connected ----------------------------------------------------------------------------- */

static const struct {
    const char *plan;
    struct end end;
} failures[] = {
    {"id=* resolve_addr=1 event=ADDR_ERROR status=-19",
     {SLUICE_REASON_ADDRESS, SLUICE_EADDRESS, 19, RDMA_CM_EVENT_ADDR_ERROR, -19, NOTHING,
      "the address cannot be resolved: no RDMA device leads there"}},
    {"id=* resolve_addr=1 event=ADDR_ERROR status=-110",
     {SLUICE_REASON_UNREACHABLE, SLUICE_ETIMEDOUT, 110, RDMA_CM_EVENT_ADDR_ERROR, -110, NOTHING,
      "the address cannot be resolved: Connection timed out"}},
    {"id=* resolve_route=1 event=ROUTE_ERROR status=-113",
     {SLUICE_REASON_UNREACHABLE, SLUICE_ETIMEDOUT, 113, RDMA_CM_EVENT_ROUTE_ERROR, -113, NOTHING,
      "no route: status -113: No route to host"}},
    {"id=* connect=1 event=UNREACHABLE status=-110",
     {SLUICE_REASON_UNREACHABLE, SLUICE_ETIMEDOUT, 110, RDMA_CM_EVENT_UNREACHABLE, -110, NOTHING,
      "the peer did not answer (status -110: Connection timed out)"}},
    {"id=* connect=1 event=REJECTED status=10",
     {SLUICE_REASON_PEER_LOST, SLUICE_EUNKNOWN, 10, RDMA_CM_EVENT_REJECTED, 10, NOTHING,
      "the peer's stack still has an older connection, or none any more (status 10)"}},
    {"id=* connect=1 event=CONNECT_ERROR status=-5",
     {SLUICE_REASON_DEVICE_ERROR, SLUICE_EDEVICE, 5, RDMA_CM_EVENT_CONNECT_ERROR, -5, NOTHING,
      "the connection could not be made (status -5: Input/output error)"}},
};

TEST(a_dial_that_fails_says_where) {
    struct pair p;
    watched_open(&p, PAIR_LINK());
    for (unsigned i = 0; i < sizeof failures / sizeof *failures; i++) {
        fault_plan(failures[i].plan);
        reason_dial(&p);
        expect_end(&p, &p.b, &failures[i].end);
    }
    watched_close(&p);
}

TEST(nobody_decides_in_time) {
    struct pair p;
    watched_open(&p, PAIR_LINK(.flags = SLUICE_ASK, .timeout_ns = 3000000000ull));
    pair_dial(&p, PAIR_LINK(.flags = SLUICE_ONCE, .timeout_ns = 100000000000ull));
    pair_expect(&p, &p.a, SLUICE_CONNECT);
    pair_clock += 4000000000ull;
    EXPECT_END(&p, &p.a, SLUICE_REASON_TIMEOUT, SLUICE_ETIMEDOUT, 0, NOTHING, NOTHING, NOTHING,
               NULL);
    EXPECT_END(&p, &p.b, SLUICE_REASON_TIMEOUT, SLUICE_ETIMEDOUT, 28, RDMA_CM_EVENT_REJECTED, 28,
               NOTHING, NULL);
    watched_close(&p);
}

static const char *two_names(struct ibv_device *device) {
    static unsigned calls;
    (void)device;
    return calls++ % 2 ? "one" : "another";
}

TEST(the_address_is_of_another_device) {
    struct pair p;
    watched_open(&p, PAIR_LINK());
    struct fabric_ops two = watched_fabric;
    two.get_device_name = two_names;
    p.b.node->fabric = &two;
    reason_dial(&p);
    EXPECT_END(&p, &p.b, SLUICE_REASON_WRONG_DEVICE, SLUICE_EADDRESS, 0,
               RDMA_CM_EVENT_ADDR_RESOLVED, 0, NOTHING, NULL);
    p.b.node->fabric = &watched_fabric;
    watched_close(&p);
}

/* ---- live sessions ------------------------------------------------------------------------------ */

TEST(closed_by_either_side) {
    struct pair p;
    watched_open(&p, PAIR_LINK());
    pair_connect(&p, ONCE);
    sluice_hangup(p.b.session, 0);
    /* Whether the disconnection is heard before CLOSED is a matter of who is faster. */
    struct side *sides[] = {&p.a, &p.b};
    for (int i = 0; i < 2; i++) {
        sluice_event event = pair_expect(&p, sides[i], SLUICE_CLOSED);
        sluice_session_info info = pair_info(event.session);
        assert_int_equal(event.reason, i ? SLUICE_REASON_LOCAL_CLOSE : SLUICE_REASON_PEER_CLOSE);
        assert_string_equal(info.close_text,
                            i ? "this side's application hung up"
                              : "the peer's application hung up, or its node was closed");
        assert_int_equal(event.status, SLUICE_OK);
        assert_int_equal(event.vendor, 0);
        assert_true(info.cm_event == NOTHING || info.cm_event == RDMA_CM_EVENT_DISCONNECTED);
        assert_int_equal(info.wc_status, NOTHING);
    }
    watched_close(&p);
}

/* What a failed completion means, at the side that has it; the other is disconnected. */
TEST(a_failed_completion_is_kept) {
    static const struct {
        const char *name;
        enum ibv_wc_status wc;
        sluice_reason reason;
        sluice_status status;
    } rows[] = {
        {"RETRY_EXC_ERR", IBV_WC_RETRY_EXC_ERR, SLUICE_REASON_PEER_LOST, SLUICE_EUNKNOWN},
        {"RNR_RETRY_EXC_ERR", IBV_WC_RNR_RETRY_EXC_ERR, SLUICE_REASON_PEER_LOST, SLUICE_EUNKNOWN},
        {"LOC_PROT_ERR", IBV_WC_LOC_PROT_ERR, SLUICE_REASON_DEVICE_ERROR, SLUICE_EDEVICE},
        {"REM_ACCESS_ERR", IBV_WC_REM_ACCESS_ERR, SLUICE_REASON_PROTOCOL, SLUICE_EDEVICE},
        {"GENERAL_ERR", IBV_WC_GENERAL_ERR, SLUICE_REASON_DEVICE_ERROR, SLUICE_EDEVICE},
    };
    struct pair p;
    char plan[64];
    watched_open(&p, PAIR_LINK());
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
        pair_connect(&p, ONCE);
        snprintf(plan, sizeof plan, "qp=* send=1 status=%s", rows[i].name);
        fault_plan(plan);
        assert_int_equal(pair_send(&p.b, 10, 1, NULL), 0);
        EXPECT_END(&p, &p.b, rows[i].reason, rows[i].status, (uint32_t)rows[i].wc, NOTHING, NOTHING,
                   (int32_t)rows[i].wc, NULL);
        fault_plan(NULL);
        EXPECT_END(&p, &p.a, LOST_LINE);
    }
    watched_close(&p);
}

static int refusal; /* the errno of the next two */

static int no_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad) {
    (void)qp;
    *bad = wr;
    return refusal;
}

static int no_receive(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
    (void)qp;
    *bad = wr;
    return refusal;
}

/*
 * What the device says when it takes a work request no more is handed on. Where the kernel drives the queue pair (iWARP)
 * it is the peer's end if it says that there is no connection, and the device's fault if it says anything else.
 */
TEST(a_device_that_refuses_is_quoted) {
    static const struct {
        bool iwarp;
        int error;
        sluice_reason reason;
        sluice_status status;
    } rows[] = {
        {false, ENOSPC, SLUICE_REASON_DEVICE_ERROR, SLUICE_EDEVICE},
        {false, ENOTCONN, SLUICE_REASON_DEVICE_ERROR, SLUICE_EDEVICE},
        {true, ENOMEM, SLUICE_REASON_DEVICE_ERROR, SLUICE_EDEVICE},
        {true, EINVAL, SLUICE_REASON_DEVICE_ERROR, SLUICE_EDEVICE},
        {true, ENOTCONN, SLUICE_REASON_PEER_LOST, SLUICE_EUNKNOWN},
    };
    for (unsigned k = 0; k < 2 * sizeof rows / sizeof *rows; k++) {
        struct pair p;
        char text[100];
        bool receiving = k & 1;
        refusal = rows[k / 2].error;
        snprintf(text, sizeof text, "the device refused a %s: %s", receiving ? "receive" : "send",
                 strerror(refusal));
        watched_open(&p, PAIR_LINK(.flags = SLUICE_ISOLATED));
        pair_connect(&p, PAIR_LINK(.flags = SLUICE_ONCE | SLUICE_ISOLATED));
        struct ibv_context_ops *ops = &pair_session(&p.b)->connection->qp->context->ops;
        struct ibv_context_ops before = *ops;
        p.b.node->traits.answer_is_up = rows[k / 2].iwarp;
        if (receiving) {
            ops->post_recv = no_receive;
            for (unsigned i = 0; i < 4; i++) /* what it has taken it gives back */
                assert_int_equal(pair_send(&p.a, 10, i, NULL), 0);
        } else {
            ops->post_send = no_send;
            pair_session(&p.b)->framed_end = 0; /* which would go another way into the device */
            assert_int_equal(pair_send(&p.b, 10, 1, NULL), 0);
        }
        EXPECT_END(&p, &p.b, rows[k / 2].reason, rows[k / 2].status, (uint32_t)refusal, NOTHING,
                   NOTHING, NOTHING, text);
        *ops = before;
        EXPECT_END(&p, &p.a, LOST_LINE);
        watched_close(&p);
    }
}

static struct ibv_qp *failed_qp; /* what the device's next event says */
static enum ibv_event_type failed_type = IBV_EVENT_QP_FATAL;

static int one_async_event(struct ibv_context *context, struct ibv_async_event *event) {
    (void)context;
    if (!failed_qp)
        return -1;
    *event = (struct ibv_async_event){.element.qp = failed_qp, .event_type = failed_type};
    failed_qp = NULL;
    return 0;
}

static void no_async_ack(struct ibv_async_event *event) {
    (void)event;
}

/* The device says that the queue pair broke, before its flushed receives are found or after. */
TEST(a_queue_pair_that_broke_is_told_whatever_comes_first) {
    struct pair p;
    watched_open(&p, PAIR_LINK(.flags = SLUICE_ISOLATED)); /* shared receives are not flushed */
    for (int flushes_first = 0; flushes_first < 2; flushes_first++) {
        pair_connect(&p, ONCE);
        struct session *s = pair_session(&p.a);
        struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
        struct cm *cm = p.a.node->cm;
        watched_fabric.get_async_event = one_async_event;
        watched_fabric.ack_async_event = no_async_ack;
        if (flushes_first) {
            uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
            assert_true(connection_modify(s->connection, &attr, IBV_QP_STATE));
            while (s->state < SESSION_RELEASED) {
                assert_int_equal(sluice_poll(p.a.loop, NULL, 0, 0), 0);
                assert_true(env_now(&env_default) < limit);
            }
            assert_int_equal(s->close.reason, SLUICE_REASON_PEER_LOST);
            while (s->connection->cm.owner.state != CM_RELEASED) {
                cm_progress(cm, 0);
                assert_true(env_now(&env_default) < limit);
            }
        }
        failed_qp = s->connection->qp;
        unsigned count;
        cm_async(cm, &count);
        assert_int_equal(count, 1);
        watched_fabric.get_async_event = fabric_soft.get_async_event;
        watched_fabric.ack_async_event = fabric_soft.ack_async_event;
        EXPECT_END(&p, &p.a, SLUICE_REASON_DEVICE_ERROR, SLUICE_EDEVICE, IBV_EVENT_QP_FATAL,
                   NOTHING, NOTHING, flushes_first ? IBV_WC_WR_FLUSH_ERR : NOTHING,
                   "the queue pair failed (event 1)");
        EXPECT_END(&p, &p.b, LOST_LINE);
    }
    watched_close(&p);
}

/* A killed iWARP peer may show first as the answer to its READ, which cannot be sent. */
TEST(a_connection_that_breaks_under_an_answer_is_the_peers_loss) {
    static const struct {
        enum ibv_event_type type;
        bool iwarp;
        sluice_reason reason;
        sluice_status status;
        const char *text;
    } cases[] = {
        {IBV_EVENT_QP_REQ_ERR, true, SLUICE_REASON_PEER_LOST, SLUICE_EUNKNOWN,
         "the connection broke while something was sent (event 2)"},
        {IBV_EVENT_QP_FATAL, true, SLUICE_REASON_PEER_LOST, SLUICE_EUNKNOWN,
         "the connection broke while something was sent (event 1)"},
        {IBV_EVENT_QP_REQ_ERR, false, SLUICE_REASON_DEVICE_ERROR, SLUICE_EDEVICE,
         "the queue pair failed (event 2)"},
    };
    struct pair p;
    watched_open(&p, PAIR_LINK());
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        unsigned count;
        pair_connect(&p, ONCE);
        watched_fabric.get_async_event = one_async_event;
        watched_fabric.ack_async_event = no_async_ack;
        failed_type = cases[i].type;
        failed_qp = pair_session(&p.a)->connection->qp;
        p.a.node->traits.sent_is_local = cases[i].iwarp;
        cm_async(p.a.node->cm, &count);
        p.a.node->traits.sent_is_local = false;
        assert_int_equal(count, 1);
        watched_fabric.get_async_event = fabric_soft.get_async_event;
        watched_fabric.ack_async_event = fabric_soft.ack_async_event;
        EXPECT_END(&p, &p.a, cases[i].reason, cases[i].status, cases[i].type, NOTHING, NOTHING,
                   NOTHING, cases[i].text);
        EXPECT_END(&p, &p.b, LOST_LINE);
    }
    failed_type = IBV_EVENT_QP_FATAL;
    watched_close(&p);
}

/* Fault plans number sends from the beginning of a queue pair; lies are told by altering the liar. */
TEST(a_peer_that_breaks_the_protocol) {
    struct pair p;
    watched_open(&p, PAIR_LINK());
    for (unsigned i = 0; i < 2; i++) {
        pair_connect(&p, ONCE);
        if (i == 0)
            pair_session(&p.b)->connection->tx.sequence += 5;
        else
            pair_session(&p.a)->connection->rx.granted = 0; /* as if the frames had come before */
        assert_int_equal(pair_send(&p.b, 10, 1, NULL), 0);
        EXPECT_END(&p, &p.a, i == 0 ? SLUICE_REASON_PROTOCOL : SLUICE_REASON_CREDITS,
                   SLUICE_EDEVICE, 0, NOTHING, NOTHING, NOTHING, NULL);
        EXPECT_END(&p, &p.b, LOST_LINE);
    }
    watched_close(&p);
}

TEST(the_device_is_removed) {
    for (int i = 0; i < 2; i++) {
        struct pair p;
        watched_open(&p, PAIR_LINK());
        pair_connect(&p, ONCE);
        watched_device(DEVICE_REMOVE, i ? ORDER_FATAL_ONLY : ORDER_REMOVAL_ONLY);
        struct side *sides[] = {&p.a, &p.b};
        for (int k = 0; k < 2; k++) {
            sluice_event event = pair_expect(&p, sides[k], SLUICE_CLOSED);
            sluice_session_info info = pair_info(event.session);
            assert_int_equal(event.reason, SLUICE_REASON_DEVICE_REMOVED);
            assert_int_equal(event.status, SLUICE_EDEVICE);
            /* The queue pair's flushes are told, or not, by who is faster. */
            assert_true(info.wc_status == NOTHING || info.wc_status == IBV_WC_WR_FLUSH_ERR);
            if (i == 0)
                assert_int_equal(info.cm_event, RDMA_CM_EVENT_DEVICE_REMOVAL);
        }
        watched_close(&p);
    }
}

static struct {
    struct pair *pair;
    unsigned looks;
    int order;
    bool closed;
    sluice_event event;
} late;

/*
 * Behind the back of the CM thread, while it has no eye on the device's news: the device goes, the loop sees the
 * flush, and takes each step as soon as the CM thread has answered the one before.
 */
static void loop_is_faster(void) {
    if (++late.looks == 2)
        watched_device(DEVICE_REMOVE, late.order);
    for (int i = 0; i < 10 && !late.closed; i++) {
        late.closed = sluice_poll(late.pair->a.loop, &late.event, 1, 0) == 1;
        if (late.closed)
            pair_note(&late.pair->a, &late.event);
    }
}

TEST(a_removal_is_told_when_the_loop_is_faster_than_the_news) {
    const int orders[] = {ORDER_REMOVAL_ONLY, ORDER_FATAL_ONLY, ORDER_FATAL_FIRST};
    for (unsigned i = 0; i < 3; i++) {
        struct pair p;
        pair_without(WITHOUT_SRQ);
        pair_open(&p, PAIR_NODE(), PAIR_LINK()); /* else there is no flush */
        pair_connect(&p, ONCE);
        cm_progress(p.a.node->cm, 0);
        memset(&late, 0, sizeof late);
        late.pair = &p;
        late.order = orders[i];
        uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
        pair_on_clock = loop_is_faster;
        while (!late.closed && env_now(&env_default) < limit)
            cm_progress(p.a.node->cm, 0);
        pair_on_clock = NULL;
        assert_true(late.closed);
        assert_int_equal(late.event.type, SLUICE_CLOSED);
        assert_int_equal(late.event.reason, SLUICE_REASON_DEVICE_REMOVED);
        assert_int_equal(pair_expect(&p, &p.b, SLUICE_CLOSED).reason, SLUICE_REASON_DEVICE_REMOVED);
        pair_close(&p);
    }
}
