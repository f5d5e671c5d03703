/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * altered_test.c - negotiation records that another version, or nobody honest, has written.
 *
 * Two real nodes on the software device; what one of them puts into the private data of its connect
 * or accept is altered on the way, in the table of calls the node uses. Either the two agree on what
 * they have in common and a message crosses, or the session never comes up on either side, the
 * dialer is told why, and nothing is left behind.
 */
#include "support/pair.h"

/* ---- the wire -------------------------------------------------------------------------------- */

/* Alters the bytes of a record; returns how many there are afterwards. */
typedef uint8_t alter(uint8_t *data, uint8_t bytes);

struct wire {
    alter *alter;
    uint8_t data[256]; /* as they went, alteration included */
    uint8_t bytes;
    unsigned records;
};
static struct wire req_wire, rep_wire;
static struct fabric_ops altering;

static void pass(struct wire *wire, struct rdma_conn_param *param) {
    memset(wire->data, 0, sizeof wire->data);
    memcpy(wire->data, param->private_data, param->private_data_len);
    wire->bytes = param->private_data_len;
    if (wire->alter)
        wire->bytes = wire->alter(wire->data, wire->bytes);
    wire->records++;
    param->private_data = wire->bytes ? wire->data : NULL;
    param->private_data_len = wire->bytes;
}

static int altered_connect(struct rdma_cm_id *id, struct rdma_conn_param *param) {
    struct rdma_conn_param other = *param;
    pass(&req_wire, &other);
    return fabric_soft.connect(id, &other);
}

static int altered_accept(struct rdma_cm_id *id, struct rdma_conn_param *param) {
    struct rdma_conn_param other = *param;
    pass(&rep_wire, &other);
    return fabric_soft.accept(id, &other);
}

/* A time limit that no test reaches: whatever ends a session here is not the clock. */
#define LINK_LONG(...) PAIR_LINK(.timeout_ns = 1000000000000ull, __VA_ARGS__)

static void open_altering(struct pair *p, alter *req, alter *rep, const sluice_link_options *link) {
    memset(&req_wire, 0, sizeof req_wire);
    memset(&rep_wire, 0, sizeof rep_wire);
    req_wire.alter = req;
    rep_wire.alter = rep;
    altering = fabric_soft;
    altering.connect = altered_connect;
    altering.accept = altered_accept;
    pair_open(p, PAIR_NODE(), link);
    p->a.node->fabric = p->b.node->fabric = &altering;
}

/* Until neither side has a session; no event comes up on the way. */
static void expect_nothing_left(struct pair *p) {
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    while (session_table_used_count(p->a.node->index) + session_table_used_count(p->b.node->index) >
           0) {
        sluice_event event;
        if (env_now(&env_default) >= limit)
            fail_msg("%u and %u sessions do not end", session_table_used_count(p->a.node->index),
                     session_table_used_count(p->b.node->index));
        cm_progress(p->a.node->cm, 0);
        cm_progress(p->b.node->cm, 0);
        assert_int_equal(sluice_poll(p->a.loop, &event, 1, 0), 0);
        assert_int_equal(sluice_poll(p->b.loop, &event, 1, 0), 0);
    }
    pair_expect_nothing(p, &p->a);
    pair_expect_nothing(p, &p->b);
    assert_null(p->a.loop->sessions);
    assert_null(p->b.loop->sessions);
    assert_int_equal(p->a.loop->settling, 0); /* else they would not sleep any more */
    assert_int_equal(p->b.loop->settling, 0);
    assert_true(cds_list_empty(&p->a.node->cm->conns));
    assert_true(cds_list_empty(&p->b.node->cm->conns));
}

static void expect_a_message_crosses(struct pair *p) {
    for (unsigned i = 0; i < 2; i++) {
        struct side *from = i ? &p->a : &p->b, *to = i ? &p->b : &p->a;
        assert_int_equal(pair_send(from, 5000, i, NULL), 0);
        sluice_event event = pair_expect(p, to, SLUICE_MESSAGE);
        assert_true(pair_check(event.msg, 5000, i));
    }
}

static struct private_data_rep sent_rep(void) {
    struct private_data_rep rep;
    assert_int_equal(private_data_rep_decode(&rep, rep_wire.data, rep_wire.bytes),
                     SLUICE_REASON_NONE);
    return rep;
}

/* ---- peers of other versions ----------------------------------------------------------------- */

static uint8_t newer_dialer(uint8_t *data, uint8_t bytes) {
    data[3] = 3;     /* versions 1 to 3 */
    data[5] |= 0x5a; /* and features nobody here has heard of */
    data[6] |= 0x81;
    return bytes;
}

TEST(a_newer_dialer_gets_the_common_subset) {
    struct pair p;
    open_altering(&p, newer_dialer, NULL, LINK_LONG());
    pair_connect(&p, LINK_LONG());
    struct private_data_rep rep = sent_rep();
    assert_int_equal(rep.version, 1);
    assert_int_equal(rep.features, /* all that this version knows of the lower 16 */
                     PRIVATE_DATA_FEATURE_ENDED | PRIVATE_DATA_FEATURE_NUMBERS |
                         PRIVATE_DATA_FEATURE_SHARED | PRIVATE_DATA_FEATURE_ANSWERS |
                         PRIVATE_DATA_FEATURE_PIECES);
    assert_int_equal(pair_session(&p.a)->peer.version, 1);
    expect_a_message_crosses(&p);
    pair_close(&p);
}

/* What a listener of version 3 decides on the proposal that went over the wire. */
static uint8_t newer_listener(uint8_t *data, uint8_t bytes) {
    struct private_data_req req, own;
    struct private_data_rep rep;
    assert_int_equal(private_data_req_decode(&req, req_wire.data, req_wire.bytes),
                     SLUICE_REASON_NONE);
    own = req;
    own.version_max = 3;
    own.features = 0xffff;
    own.eager_log2 = 10;
    own.message_log2 = 20;
    own.credits = 8;
    assert_int_equal(private_data_decide(&rep, &req, &own), SLUICE_REASON_NONE);
    private_data_rep_encode(&rep, data);
    return bytes;
}

/* The record is decided anew, and the one that decides posts as many receives as it says. */
TEST(a_newer_listener_answers_within_the_older_proposal) {
    struct pair p;
    open_altering(&p, NULL, newer_listener, LINK_LONG(.credits = 8));
    pair_connect(&p, LINK_LONG());
    assert_int_equal(sent_rep().version, 1);
    sluice_session_info info = pair_info(p.b.session);
    assert_int_equal(info.eager_bytes, 1024 - FRAME_BYTES);
    assert_int_equal(info.message_bytes_max, 1 << 20);
    assert_int_equal(info.credits, 8);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(pair_send(&p.b, 5000, i, NULL), 0);
        assert_true(pair_check(pair_expect(&p, &p.a, SLUICE_MESSAGE).msg, 5000, i));
    }
    pair_close(&p);
}

/* ---- proposals the listener refuses ---------------------------------------------------------- */

#define ALTER(name, change)                                                                        \
    static uint8_t name(uint8_t *data, uint8_t bytes) {                                            \
        (void)data;                                                                                \
        change;                                                                                    \
        return bytes;                                                                              \
    }

ALTER(req_later_versions_only, (data[2] = 2, data[3] = 3))
ALTER(req_versions_upside_down, (data[2] = 2, data[3] = 1))
ALTER(req_version_zero, data[2] = 0)
ALTER(req_must_feature, data[7] |= 0x80)
ALTER(req_hmac_without_key, (data[7] |= 0x03))
ALTER(req_key_without_hmac, data[36] = 1)
ALTER(req_wrong_length, data[4] = 55)
ALTER(req_wrong_magic, data[0] ^= 0xff)
ALTER(req_no_data, bytes = 0)
ALTER(req_cut, bytes = 10)
ALTER(req_small_frame, data[8] = 3)
ALTER(req_small_message, data[9] = (uint8_t)(data[8] - 1))
ALTER(req_large_message, data[9] = 200)
ALTER(req_no_credits, data[12] = data[13] = 0)
ALTER(req_too_many_credits, data[12] = data[13] = 0xff)
ALTER(req_resume, data[32] = 1)
ALTER(req_authenticate, (data[7] |= 0x03, data[36] = 1))

struct refusal {
    const char *name;
    alter *alter;
    sluice_reason reason; /* what the dialer is told */
};

static const struct refusal refused_reqs[] = {
    {"no version in common", req_later_versions_only, SLUICE_REASON_VERSION},
    {"lowest above highest", req_versions_upside_down, SLUICE_REASON_VALUE},
    {"version 0", req_version_zero, SLUICE_REASON_VALUE},
    {"a feature that must be understood", req_must_feature, SLUICE_REASON_UNSUPPORTED},
    {"HMAC without a key", req_hmac_without_key, SLUICE_REASON_VALUE},
    {"a key without HMAC", req_key_without_hmac, SLUICE_REASON_VALUE},
    {"length", req_wrong_length, SLUICE_REASON_MALFORMED},
    {"magic", req_wrong_magic, SLUICE_REASON_NOT_SLUICE},
    {"no private data", req_no_data, SLUICE_REASON_NOT_SLUICE},
    {"cut and padded", req_cut, SLUICE_REASON_VALUE},
    {"frame too small", req_small_frame, SLUICE_REASON_VALUE},
    {"message below frame", req_small_message, SLUICE_REASON_VALUE},
    {"message too large", req_large_message, SLUICE_REASON_VALUE},
    {"no credits", req_no_credits, SLUICE_REASON_VALUE},
    {"too many credits", req_too_many_credits, SLUICE_REASON_VALUE},
    {"wants to resume", req_resume, SLUICE_REASON_UNSUPPORTED},
    {"has a key, the listener none", req_authenticate, SLUICE_REASON_AUTH_KEY},
};

/* The dialer's CLOSED: reason, status, the event that brought it, and a text for people. */
static void expect_closed(struct pair *p, const char *name, sluice_reason reason,
                          enum rdma_cm_event_type said) {
    sluice_event event = pair_expect(p, &p->b, SLUICE_CLOSED);
    if (event.reason != reason)
        fail_msg("%s: closed with \"%s\"", name, sluice_reason_text(event.reason));
    assert_int_equal(event.status,
                     reason == SLUICE_REASON_PROTOCOL ? SLUICE_EDEVICE : SLUICE_EREJECTED);
    assert_int_equal(event.vendor, said == RDMA_CM_EVENT_REJECTED ? 28 : 0);
    sluice_session_info info = pair_info(event.session);
    assert_int_equal(info.cm_event, said);
    assert_int_equal(info.cm_status, said == RDMA_CM_EVENT_REJECTED ? 28 : 0);
    assert_int_equal(info.wc_status, -1);
    if (!strstr(info.close_text, sluice_reason_text((int)reason)))
        fail_msg("%s: \"%s\" does not say \"%s\"", name, info.close_text,
                 sluice_reason_text((int)reason));
}

TEST(a_wrong_proposal_is_refused_with_its_reason) {
    struct pair p;
    open_altering(&p, NULL, NULL, LINK_LONG());
    for (size_t i = 0; i < sizeof refused_reqs / sizeof refused_reqs[0]; i++) {
        const struct refusal *r = &refused_reqs[i];
        req_wire.alter = r->alter;
        uint64_t refused = atomic_load(&p.a.node->cm->stats->refused);
        pair_dial(&p, LINK_LONG());
        expect_closed(&p, r->name, r->reason, RDMA_CM_EVENT_REJECTED);
        expect_nothing_left(&p);
        assert_int_equal(atomic_load(&p.a.node->cm->stats->refused), refused + 1);
    }
    assert_int_equal(rep_wire.records, 0); /* nothing was ever accepted */
    req_wire.alter = NULL;
    pair_connect(&p, LINK_LONG()); /* the listener is as it was */
    expect_a_message_crosses(&p);
    pair_close(&p);
}

/* ---- decisions the dialer refuses ------------------------------------------------------------ */

ALTER(rep_later_version, data[2] = 2)
ALTER(rep_version_zero, data[2] = 0)
ALTER(rep_optional_feature, data[5] |= 0x10)
ALTER(rep_must_feature, data[6] |= 0x80)
ALTER(rep_greeting_unasked, data[6] |= 0x01)
ALTER(rep_wrong_length, data[3] = 84)
ALTER(rep_wrong_magic, data[1] ^= 0xff)
ALTER(rep_no_data, bytes = 0)
ALTER(rep_unused_byte, data[7] = 1)
ALTER(rep_padding, data[bytes++] = 1)
ALTER(rep_no_credits, data[12] = data[13] = 0)
ALTER(rep_frame_too_large, data[8] = 17)
ALTER(rep_frame_above, (data[8] = (uint8_t)(req_wire.data[8] + 1)))
ALTER(rep_message_above, (data[9] = (uint8_t)(req_wire.data[9] + 1)))
ALTER(rep_depth_in_above, (data[10] = (uint8_t)(req_wire.data[11] + 1)))
ALTER(rep_depth_out_above, (data[11] = (uint8_t)(req_wire.data[10] + 1)))
ALTER(rep_keepalive_shorter, (data[14] = 1, data[15] = 0))
ALTER(rep_other_session, data[31] ^= 1)
ALTER(rep_resumed, data[32] = 1)
ALTER(rep_mac_unasked, data[83] = 1)
ALTER(rep_check_unasked, data[99] = 1)

static uint8_t old_answer[256];
ALTER(rep_replayed, memcpy(data, old_answer, PRIVATE_DATA_REP_BYTES))

static const struct refusal refused_reps[] = {
    {"later version", rep_later_version, SLUICE_REASON_VERSION},
    {"version 0", rep_version_zero, SLUICE_REASON_VERSION},
    {"a feature not proposed", rep_optional_feature, SLUICE_REASON_UNSUPPORTED},
    {"an unknown feature", rep_must_feature, SLUICE_REASON_UNSUPPORTED},
    {"HANDSHAKE not proposed", rep_greeting_unasked, SLUICE_REASON_UNSUPPORTED},
    {"length", rep_wrong_length, SLUICE_REASON_MALFORMED},
    {"magic", rep_wrong_magic, SLUICE_REASON_NOT_SLUICE},
    {"no private data", rep_no_data, SLUICE_REASON_NOT_SLUICE},
    {"unused byte", rep_unused_byte, SLUICE_REASON_MALFORMED},
    {"padding", rep_padding, SLUICE_REASON_MALFORMED},
    {"no credits", rep_no_credits, SLUICE_REASON_VALUE},
    {"frame out of range", rep_frame_too_large, SLUICE_REASON_VALUE},
    {"frame above the proposal", rep_frame_above, SLUICE_REASON_VALUE},
    {"message above the proposal", rep_message_above, SLUICE_REASON_VALUE},
    {"depth in above the proposal", rep_depth_in_above, SLUICE_REASON_VALUE},
    {"depth out above the proposal", rep_depth_out_above, SLUICE_REASON_VALUE},
    {"keepalive not proposed", rep_keepalive_shorter, SLUICE_REASON_VALUE},
    {"another session's", rep_other_session, SLUICE_REASON_PROTOCOL},
    {"an answer of yesterday", rep_replayed, SLUICE_REASON_PROTOCOL},
    {"a resumed session", rep_resumed, SLUICE_REASON_PROTOCOL},
    {"a proof nobody asked for", rep_mac_unasked, SLUICE_REASON_PROTOCOL},
    {"a key check nobody asked for", rep_check_unasked, SLUICE_REASON_PROTOCOL},
};

TEST(a_wrong_decision_is_refused_and_the_listener_hears_of_it) {
    struct pair p;
    open_altering(&p, NULL, NULL, LINK_LONG());
    pair_connect(&p, LINK_LONG());
    memcpy(old_answer, rep_wire.data, PRIVATE_DATA_REP_BYTES);
    sluice_hangup(p.b.session, 0);
    pair_expect(&p, &p.a, SLUICE_CLOSED);
    pair_expect(&p, &p.b, SLUICE_CLOSED);
    for (size_t i = 0; i < sizeof refused_reps / sizeof refused_reps[0]; i++) {
        const struct refusal *r = &refused_reps[i];
        rep_wire.alter = r->alter;
        pair_dial(&p, LINK_LONG());
        expect_closed(&p, r->name, r->reason, RDMA_CM_EVENT_CONNECT_RESPONSE);
        expect_nothing_left(&p); /* the listener's never came up: no event there */
    }
    rep_wire.alter = NULL;
    pair_connect(&p, LINK_LONG());
    expect_a_message_crosses(&p);
    pair_close(&p);
}

/* An application that was asked, and said yes, is told why it came to nothing. */
TEST(an_application_that_accepted_is_told) {
    struct pair p;
    open_altering(&p, NULL, rep_later_version, LINK_LONG(.flags = SLUICE_ASK));
    pair_dial(&p, LINK_LONG());
    pair_expect(&p, &p.a, SLUICE_CONNECT);
    assert_int_equal(sluice_accept(p.a.session, NULL), 0);
    expect_closed(&p, "later version", SLUICE_REASON_VERSION, RDMA_CM_EVENT_CONNECT_RESPONSE);
    sluice_event event = pair_expect(&p, &p.a, SLUICE_CLOSED);
    assert_int_equal(event.reason, SLUICE_REASON_VERSION);
    expect_nothing_left(&p);
    pair_close(&p);
}

/* ---- depths ---------------------------------------------------------------------------------- */

static void expect_depths(struct side *side, unsigned served, unsigned outstanding) {
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    struct ibv_qp *qp = pair_session(side)->connection->qp;
    assert_int_equal(
        fabric_soft.query_qp(qp, &attr, IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC, &init),
        0);
    assert_int_equal(attr.max_dest_rd_atomic, served);
    assert_int_equal(attr.max_rd_atomic, outstanding);
}

/* What one side has outstanding the other one serves, whichever of the two dials. */
TEST(depths_are_seen_from_both_ends) {
    const struct {
        int a_in, a_out, b_in, b_out; /* what the devices can */
        unsigned a_serves, b_serves;
    } cases[] = {{5, 3, 2, 7, 5, 2}, {5, 3, 9, 4, 4, 3}, {1, 8, 6, 1, 1, 6}, {7, 2, 3, 7, 7, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct pair p;
        open_altering(&p, NULL, NULL, LINK_LONG());
        p.a.node->device_attr.max_qp_rd_atom = cases[i].a_in;
        p.a.node->device_attr.max_qp_init_rd_atom = cases[i].a_out;
        p.b.node->device_attr.max_qp_rd_atom = cases[i].b_in;
        p.b.node->device_attr.max_qp_init_rd_atom = cases[i].b_out;
        pair_connect(&p, LINK_LONG());
        assert_int_equal(req_wire.data[10], cases[i].b_in);
        assert_int_equal(req_wire.data[11], cases[i].b_out);
        assert_int_equal(rep_wire.data[10], cases[i].a_serves);
        assert_int_equal(rep_wire.data[11], cases[i].b_serves);
        expect_depths(&p.a, cases[i].a_serves, cases[i].b_serves);
        expect_depths(&p.b, cases[i].b_serves, cases[i].a_serves);
        pair_close(&p);
    }
}
