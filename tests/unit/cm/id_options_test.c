/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Options of a link for rdma_set_option: they reach the ids and QPs, and a refusal is told. */
#include "support/fault.h"
#include "support/pair.h"

#include <arpa/inet.h>

#include "soft/soft.h"

/* ---- what is set ------------------------------------------------------------------------------ */

enum { CALLS = 16, BIND = -1, LISTEN = -2, RESOLVE = -3, ACCEPT = -4 };

/* The calls a node made, in order: options by name, the others by the numbers above. */
static struct {
    struct fabric_ops ops;
    const struct fabric_ops *real;
    int count, name[CALLS], value[CALLS];
    size_t bytes[CALLS];
    int bind_error, listen_error;
} spy;

static void spy_note(int name, int value, size_t bytes) {
    assert_true(spy.count < CALLS);
    spy.name[spy.count] = name;
    spy.value[spy.count] = value;
    spy.bytes[spy.count++] = bytes;
}

static int spy_set_option(struct rdma_cm_id *id, int level, int name, void *value, size_t bytes) {
    assert_int_equal(level, RDMA_OPTION_ID);
    int word = 0;
    if (bytes == sizeof word)
        memcpy(&word, value, sizeof word);
    else
        word = *(uint8_t *)value;
    spy_note(name, word, bytes);
    return spy.real->set_option(id, level, name, value, bytes);
}

static int spy_bind(struct rdma_cm_id *id, struct sockaddr *addr) {
    spy_note(BIND, 0, 0);
    int failed = spy.real->bind_addr(id, addr);
    spy.bind_error = failed ? errno : 0;
    return failed;
}

static int spy_listen(struct rdma_cm_id *id, int backlog) {
    spy_note(LISTEN, 0, 0);
    int failed = spy.real->listen(id, backlog);
    spy.listen_error = failed ? errno : 0;
    return failed;
}

static int spy_resolve(struct rdma_cm_id *id, struct sockaddr *src, struct sockaddr *dst, int ms) {
    spy_note(RESOLVE, 0, 0);
    return spy.real->resolve_addr(id, src, dst, ms);
}

static int spy_accept(struct rdma_cm_id *id, struct rdma_conn_param *param) {
    spy_note(ACCEPT, 0, 0);
    return spy.real->accept(id, param);
}

static void spy_on(sluice_node *n) {
    memset(&spy, 0, sizeof spy);
    spy.real = n->fabric;
    spy.ops = *n->fabric;
    spy.ops.set_option = spy_set_option;
    spy.ops.bind_addr = spy_bind;
    spy.ops.listen = spy_listen;
    spy.ops.resolve_addr = spy_resolve;
    spy.ops.accept = spy_accept;
    n->fabric = &spy.ops;
}

static void spy_is(int at, int name, int value, size_t bytes) {
    assert_true(at < spy.count);
    assert_int_equal(spy.name[at], name);
    assert_int_equal(spy.value[at], value);
    assert_int_equal(spy.bytes[at], bytes);
}

static void open_two(struct pair *p) {
    memset(p, 0, sizeof *p);
    pair_clock = 0;
    pair_open_side(&p->a, PAIR_NODE());
    pair_open_side(&p->b, PAIR_NODE());
}

static int two_opened(void **state) {
    static struct pair of_test;
    *state = &of_test;
    open_two(*state);
    return 0;
}

PAIR_WITH(two_opened, a_listener_sets_them_before_it_binds_and_before_it_accepts) {
    struct pair *p = *state;
    spy_on(p->a.node);
    pair_listen(p, PAIR_LINK(.flags = SLUICE_REUSE, .tos = 184, .ack_timeout = 9));
    assert_int_equal(spy.count, 5);
    spy_is(0, RDMA_OPTION_ID_REUSEADDR, 1, sizeof(int));
    spy_is(1, RDMA_OPTION_ID_TOS, 184, 1);
    spy_is(2, RDMA_OPTION_ID_ACK_TIMEOUT, 9, 1);
    spy_is(3, BIND, 0, 0);
    spy_is(4, LISTEN, 0, 0);
    spy.count = 0;
    pair_connect(p, PAIR_LINK());
    assert_int_equal(spy.count, 3);
    spy_is(0, RDMA_OPTION_ID_TOS, 184, 1);
    spy_is(1, RDMA_OPTION_ID_ACK_TIMEOUT, 9, 1);
    spy_is(2, ACCEPT, 0, 0);
}

PAIR_WITH(two_opened, a_dialer_sets_them_before_it_resolves) {
    struct pair *p = *state;
    pair_listen(p, PAIR_LINK());
    spy_on(p->b.node);
    pair_connect(p, PAIR_LINK(.tos = 255, .ack_timeout = 31));
    assert_int_equal(spy.count, 3);
    spy_is(0, RDMA_OPTION_ID_TOS, 255, 1);
    spy_is(1, RDMA_OPTION_ID_ACK_TIMEOUT, 31, 1);
    spy_is(2, RESOLVE, 0, 0);
}

PAIR_WITH(two_opened, nothing_is_set_that_was_not_asked_for) {
    struct pair *p = *state;
    spy_on(p->a.node);
    pair_listen(p, PAIR_LINK());
    pair_connect(p, PAIR_LINK());
    assert_int_equal(spy.count, 3);
    spy_is(0, BIND, 0, 0);
    spy_is(1, LISTEN, 0, 0);
    spy_is(2, ACCEPT, 0, 0);
}

/* ---- what comes of it -------------------------------------------------------------------------- */

static struct ibv_qp_attr queried(struct side *side) {
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    assert_int_equal(
        soft_query_qp(pair_session(side)->connection->qp, &attr, IBV_QP_TIMEOUT | IBV_QP_AV, &init),
        0);
    return attr;
}

TEST(the_queue_pairs_have_them) {
    struct pair p;
    struct ibv_qp_attr listener, dialer;
    pair_open(&p, PAIR_NODE(), PAIR_LINK(.tos = 40, .ack_timeout = 10));
    pair_connect(&p, PAIR_LINK(.tos = 96, .ack_timeout = 21)); /* each side its own */
    listener = queried(&p.a);
    dialer = queried(&p.b);
    assert_int_equal(listener.timeout, 10);
    assert_int_equal(listener.ah_attr.grh.traffic_class, 40);
    assert_int_equal(dialer.timeout, 21);
    assert_int_equal(dialer.ah_attr.grh.traffic_class, 96);
    pair_close(&p);
    pair_open(&p, PAIR_NODE(), PAIR_LINK());
    pair_connect(&p, PAIR_LINK());
    listener = queried(&p.a);
    assert_int_equal(listener.timeout, 17); /* rdma_cm's own choice */
    assert_int_equal(listener.ah_attr.grh.traffic_class, 0);
    pair_close(&p);
}

static int listen_at(struct side *side, uint16_t port, uint32_t flags, sluice_error *e) {
    sluice_listener listener;
    char address[64];
    snprintf(address, sizeof address, "127.0.0.1:%u", port);
    return sluice_listen(side->node, address, SLUICE_LINK(.loop = side->loop, .flags = flags),
                         &listener, e);
}

/*
 * An id that shares its address, bound and not listening: with REUSE the listener binds beside it, without
 * it does not. It is alone once it listens, so it has to wait until the other is gone.
 */
PAIR_WITH(two_opened, reuse_binds_beside_another_and_listens_when_that_is_gone) {
    struct pair *p = *state;
    sluice_error e = {0};
    spy_on(p->a.node);
    struct rdma_event_channel *channel = soft_create_event_channel();
    struct rdma_cm_id *other;
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int reuse = 1;
    assert_int_equal(soft_create_id(channel, &other, NULL, RDMA_PS_TCP), 0);
    assert_int_equal(
        soft_set_option(other, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &reuse, sizeof reuse), 0);
    assert_int_equal(soft_bind_addr(other, (struct sockaddr *)&in), 0);
    uint16_t port = ntohs(soft_get_src_port(other));
    assert_int_equal(listen_at(&p->a, port, 0, &e), SLUICE_EADDRESS);
    assert_int_equal(spy.bind_error, EADDRINUSE);
    assert_int_equal(listen_at(&p->a, port, SLUICE_REUSE, &e), SLUICE_EADDRESS);
    assert_int_equal(spy.bind_error, 0);
    assert_int_equal(spy.listen_error, EADDRINUSE);
    assert_int_equal(soft_destroy_id(other), 0);
    assert_int_equal(listen_at(&p->a, port, SLUICE_REUSE, &e), 0);
    assert_int_equal(listen_at(&p->a, port, SLUICE_REUSE, &e), SLUICE_EADDRESS); /* not twice */
    soft_destroy_event_channel(channel);
}

/* ---- refusals ---------------------------------------------------------------------------------- */

PAIR_WITH(two_opened, values_out_of_range_are_refused_at_once) {
    struct pair *p = *state;
    sluice_session s;
    sluice_listener l;
    sluice_error e = {0};
    const sluice_link_options *bad[] = {
        SLUICE_LINK(.loop = p->a.loop, .tos = 256),
        SLUICE_LINK(.loop = p->a.loop, .tos = UINT32_MAX),
        SLUICE_LINK(.loop = p->a.loop, .ack_timeout = 32),
        SLUICE_LINK(.loop = p->a.loop, .ack_timeout = UINT32_MAX),
        SLUICE_LINK(.loop = p->a.loop, .flags = 1u << 31),
    };
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(sluice_dial(p->a.node, "127.0.0.1:1", bad[i], &s, &e), SLUICE_EINVAL);
        assert_int_equal(sluice_listen(p->a.node, "127.0.0.1:0", bad[i], &l, &e), SLUICE_EINVAL);
    }
}

/* Every option in turn; n: which call of set_option is refused. */
TEST(a_listen_that_cannot_set_an_option_fails_and_names_it) {
    static const struct {
        const char *plan, *text;
        int error;
    } cases[] = {{"call=set_option n=1 errno=EINVAL", "reuse", EINVAL},
                 {"call=set_option n=2 errno=ENOMEM", "type of service", ENOMEM},
                 {"call=set_option n=3 errno=EPERM", "ACK timeout", EPERM}};
    struct pair p;
    open_two(&p);
    for (unsigned i = 0; i < 3; i++) {
        sluice_listener l;
        sluice_error e = {0};
        const sluice_link_options *link =
            SLUICE_LINK(.loop = p.a.loop, .flags = SLUICE_REUSE, .tos = 8, .ack_timeout = 12);
        fault_plan(cases[i].plan);
        assert_int_equal(sluice_listen(p.a.node, "127.0.0.1:0", link, &l, &e), SLUICE_EDEVICE);
        assert_int_equal(e.os_errno, cases[i].error);
        assert_int_equal(e.reason, SLUICE_REASON_DEVICE_ERROR);
        if (!strstr(e.text, cases[i].text))
            fail_msg("%s", e.text);
        fault_clear();
        assert_int_equal(atomic_load(&p.a.loop->assigned), 0);
    }
    pair_close(&p);
}

static void closed_with(struct pair *p, struct side *side, const char *text) {
    sluice_event event = pair_expect(p, side, SLUICE_CLOSED);
    sluice_session_info info = {.size = sizeof info};
    assert_int_equal(event.reason, SLUICE_REASON_DEVICE_ERROR);
    assert_int_equal(sluice_session_get_info(event.session, &info), 0);
    if (!strstr(info.close_text, text))
        fail_msg("%s", info.close_text);
}

PAIR_WITH(pair_opened, a_dial_that_cannot_set_an_option_ends_and_names_it) {
    struct pair *p = *state;
    static const struct {
        const char *plan, *text;
    } cases[] = {{"call=set_option n=1 errno=EINVAL", "type of service"},
                 {"call=set_option n=2 errno=ENOMEM", "ACK timeout"}};
    for (unsigned i = 0; i < 2; i++) {
        fault_plan(cases[i].plan);
        pair_dial(p, PAIR_LINK(.tos = 8, .ack_timeout = 12, .flags = SLUICE_ONCE));
        closed_with(p, &p->b, cases[i].text);
        fault_clear();
    }
    pair_connect(p, PAIR_LINK(.tos = 8, .ack_timeout = 12)); /* nothing is left behind */
}

TEST(a_request_whose_option_is_refused_is_refused_itself) {
    struct pair p;
    pair_open(&p, PAIR_NODE(), PAIR_LINK(.tos = 8));
    fault_plan("call=set_option n=1 errno=ENOMEM");
    pair_dial(&p, PAIR_LINK(.flags = SLUICE_ONCE));
    sluice_event event = pair_expect(&p, &p.b, SLUICE_CLOSED);
    assert_int_not_equal(event.reason, SLUICE_REASON_NONE);
    pair_expect_nothing(&p, &p.a); /* that application never heard of it */
    fault_clear();
    pair_connect(&p, PAIR_LINK());
    pair_close(&p);
}
