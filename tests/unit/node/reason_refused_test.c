/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * reason_refused_test.c - why a dial was refused: by nobody, by an application, by a node that cannot,
 * by a listener that is not of this kind; each with its status, its code, its text and its CM event.
 */
#include "support/reason.h"

#include <fcntl.h>
#include <netinet/in.h>

/* ---- refused ---------------------------------------------------------------------------------- */

TEST(nobody_listens) {
    struct pair p;
    watched_open(&p, PAIR_LINK());
    snprintf(p.address, sizeof p.address, "127.0.0.1:1");
    reason_dial(&p);
    EXPECT_END(&p, &p.b, SLUICE_REASON_NO_LISTENER, SLUICE_EREJECTED, 8, RDMA_CM_EVENT_REJECTED, 8,
               NOTHING, "no listener there, says the peer's stack (status 8)");
    watched_close(&p);
}

TEST(the_application_refuses) {
    struct pair p;
    watched_open(&p, PAIR_LINK(.flags = SLUICE_ASK));
    reason_dial(&p);
    sluice_event event = pair_expect(&p, &p.a, SLUICE_CONNECT);
    assert_int_equal(sluice_refuse(event.session, 4711, "not today"), 0);
    EXPECT_END(&p, &p.b, SLUICE_REASON_REFUSED, SLUICE_EREJECTED, 4711, RDMA_CM_EVENT_REJECTED, 28,
               NOTHING, "not today");
    EXPECT_END(&p, &p.a, SLUICE_REASON_LOCAL_CLOSE, SLUICE_OK, 0, NOTHING, NOTHING, NOTHING,
               "refused by this side's application");
    watched_close(&p);
}

TEST(a_listener_has_its_sessions) {
    struct pair p;
    memset(&p, 0, sizeof p);
    pair_clock = 0;
    pair_open_side(&p.a, PAIR_NODE(.sessions_max = 1));
    pair_open_side(&p.b, PAIR_NODE());
    pair_listen(&p, PAIR_LINK());
    pair_connect(&p, ONCE);
    reason_dial(&p);
    EXPECT_END(&p, &p.b, SLUICE_REASON_BUSY, SLUICE_EREJECTED, 28, RDMA_CM_EVENT_REJECTED, 28,
               NOTHING, "told by the listener: busy, try again");
    pair_close(&p);
}

TEST(a_listener_has_no_memory) {
    struct pair p;
    memset(&p, 0, sizeof p);
    pair_clock = 0;
    pair_open_side(&p.a, PAIR_NODE(.memory_bytes_max = 8 << 20, .message_bytes_max = 2 << 20));
    pair_open_side(&p.b, PAIR_NODE());
    pair_listen(&p, PAIR_LINK(.credits = 64));
    for (size_t bytes = 256 << 10; bytes >= 64; bytes /= 2)
        while (pool_get(p.a.node->rx_pool, NULL, bytes))
            ; /* given back with the node */
    reason_dial(&p);
    EXPECT_END(&p, &p.b, SLUICE_REASON_NO_MEMORY, SLUICE_ENOMEM, 28, RDMA_CM_EVENT_REJECTED, 28,
               NOTHING, "told by the listener: no registered memory for the receive buffers");
    pair_close(&p);
}

TEST(the_listeners_node_is_closed) {
    struct pair p;
    watched_open(&p, PAIR_LINK(.flags = SLUICE_ASK));
    reason_dial(&p);
    pair_expect(&p, &p.a, SLUICE_CONNECT);
    sluice_close(p.a.node, 0);
    sluice_event event;
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    int n;
    while ((n = sluice_poll(p.b.loop, &event, 1, 0)) == 0 && env_now(&env_default) < limit)
        cm_progress(p.b.node->cm, 0);
    assert_int_equal(n, 1);
    assert_int_equal(event.type, SLUICE_CLOSED);
    assert_int_equal(event.reason, SLUICE_REASON_NODE_CLOSED);
    assert_int_equal(event.status, SLUICE_EREJECTED); /* not ours: it is no orderly end to us */
    watched_close(&p);
}

/* ---- a listener of somebody else --------------------------------------------------------------- */

struct raw {
    struct rdma_event_channel *channel;
    struct rdma_cm_id *listener, *request;
};

static void raw_listen(struct raw *raw, struct pair *p) {
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000001)};
    memset(raw, 0, sizeof *raw);
    raw->channel = soft_create_event_channel();
    assert_non_null(raw->channel);
    assert_int_equal(fcntl(raw->channel->fd, F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(soft_create_id(raw->channel, &raw->listener, NULL, RDMA_PS_TCP), 0);
    assert_int_equal(soft_bind_addr(raw->listener, (struct sockaddr *)&any), 0);
    assert_int_equal(soft_listen(raw->listener, 8), 0);
    snprintf(p->address, sizeof p->address, "127.0.0.1:%d",
             ntohs(soft_get_src_port(raw->listener)));
}

/* The pair's dialer asks; the request's private data go into asked. */
static void raw_asked(struct raw *raw, struct pair *p, uint8_t asked[PRIVATE_DATA_REQ_BYTES]) {
    struct rdma_cm_event *event;
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    reason_dial(p);
    while (soft_get_cm_event(raw->channel, &event) != 0) {
        assert_true(env_now(&env_default) < limit);
        pair_turn(p);
    }
    assert_int_equal(event->event, RDMA_CM_EVENT_CONNECT_REQUEST);
    raw->request = event->id;
    memcpy(asked, event->param.conn.private_data, PRIVATE_DATA_REQ_BYTES);
    soft_ack_cm_event(event);
}

static void raw_close(struct raw *raw) {
    struct rdma_cm_event *event;
    if (raw->request)
        soft_destroy_id(raw->request);
    raw->request = NULL;
    if (!raw->listener)
        return;
    while (soft_get_cm_event(raw->channel, &event) == 0)
        soft_ack_cm_event(event);
    soft_destroy_id(raw->listener);
    soft_destroy_event_channel(raw->channel);
}

TEST(a_reject_says_what_it_means) {
    static const char foreign[] = "HTTP/1.1 400 Bad Request";
    struct pair p;
    struct raw raw;
    uint8_t asked[PRIVATE_DATA_REQ_BYTES], data[PRIVATE_DATA_REJ_BYTES];
    watched_open(&p, PAIR_LINK());
    raw_listen(&raw, &p);
    raw_asked(&raw, &p, asked);
    assert_int_equal(soft_reject(raw.request, foreign, sizeof foreign), 0);
    EXPECT_END(&p, &p.b, SLUICE_REASON_NOT_SLUICE, SLUICE_EREJECTED, 28, RDMA_CM_EVENT_REJECTED, 28,
               NOTHING, "rejected with private data of another program (status 28)");
    soft_destroy_id(raw.request);
    raw_asked(&raw, &p, asked);
    assert_int_equal(soft_reject(raw.request, NULL, 0), 0);
    EXPECT_END(&p, &p.b, SLUICE_REASON_NO_LISTENER, SLUICE_EREJECTED, 28, RDMA_CM_EVENT_REJECTED,
               28, NOTHING, "rejected without private data (status 28)");
    soft_destroy_id(raw.request);
#define SLUICE_X(name, value, text) SLUICE_REASON_##name,
    static const sluice_reason reasons[] = {SLUICE_REASON_LIST(SLUICE_X)};
#undef SLUICE_X
    for (unsigned i = 1; i < sizeof reasons / sizeof *reasons; i++) {
        struct private_data_rej rej = {
            .reason = (uint16_t)reasons[i], .code = 99, .text = "a text"};
        /* That somebody closed himself is not for another one to say. */
        bool closed =
            reasons[i] == SLUICE_REASON_LOCAL_CLOSE || reasons[i] == SLUICE_REASON_PEER_CLOSE;
        sluice_reason reason = closed ? SLUICE_REASON_REFUSED : reasons[i];
        bool refused = reason == SLUICE_REASON_REFUSED;
        sluice_status status = reason_status(reason);
        raw_asked(&raw, &p, asked);
        size_t bytes = private_data_rej_encode(&rej, data);
        assert_int_equal(soft_reject(raw.request, data, (uint8_t)bytes), 0);
        EXPECT_END(&p, &p.b, reason, status == SLUICE_OK ? SLUICE_EREJECTED : status,
                   refused ? 99 : 28, RDMA_CM_EVENT_REJECTED, 28, NOTHING,
                   refused ? "a text" : "told by the listener: a text");
        soft_destroy_id(raw.request);
    }
    raw.request = NULL;
    raw_close(&raw);
    watched_close(&p);
}

TEST(a_wrong_acceptance_says_what_is_wrong) {
    static const struct {
        unsigned at, value;
        sluice_reason reason;
        const char *text;
    } wrongs[] = {
        {0, 'X', SLUICE_REASON_NOT_SLUICE,
         "the listener's answer: the peer does not speak this protocol"},
        {2, 77, SLUICE_REASON_VERSION, "the listener's answer: no protocol version in common"},
        {7, 1, SLUICE_REASON_MALFORMED, "the listener's answer: malformed private data"},
    };
    struct pair p;
    struct raw raw;
    uint8_t asked[PRIVATE_DATA_REQ_BYTES], data[PRIVATE_DATA_REP_BYTES];
    watched_open(&p, PAIR_LINK());
    raw_listen(&raw, &p);
    for (unsigned i = 0; i < sizeof wrongs / sizeof *wrongs; i++) {
        struct private_data_req req;
        struct private_data_rep rep;
        raw_asked(&raw, &p, asked);
        assert_int_equal(private_data_req_decode(&req, asked, sizeof asked), 0);
        assert_int_equal(private_data_decide(&rep, &req, &req), 0);
        private_data_rep_encode(&rep, data);
        data[wrongs[i].at] = (uint8_t)wrongs[i].value;
        struct rdma_conn_param param = {
            .private_data = data, .private_data_len = sizeof data, .qp_num = 77};
        assert_int_equal(soft_accept(raw.request, &param), 0);
        EXPECT_END(&p, &p.b, wrongs[i].reason, SLUICE_EREJECTED, 0, RDMA_CM_EVENT_CONNECT_RESPONSE,
                   0, NOTHING, wrongs[i].text);
        soft_destroy_id(raw.request);
    }
    raw.request = NULL;
    raw_close(&raw);
    watched_close(&p);
}
