/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * address_test.c - binding and its conflicts, listening, resolving, options; the state that each
 * call needs and what it says otherwise.
 */
#include "contract/contract.h"

#include <netdb.h>

static struct rdma_event_channel *channel;

static int open_channel(void **state) {
    (void)state;
    channel = rdma_create_event_channel();
    return channel ? 0 : -1;
}

static int close_channel(void **state) {
    (void)state;
    rdma_destroy_event_channel(channel);
    return 0;
}

static int bind_to(struct rdma_cm_id *id, struct sockaddr_in addr) {
    return rdma_bind_addr(id, (struct sockaddr *)&addr);
}

static uint16_t port_of(struct rdma_cm_id *id) {
    return ntohs(rdma_get_src_port(id));
}

static int set_flag(struct rdma_cm_id *id, int name, int value) {
    return rdma_set_option(id, RDMA_OPTION_ID, name, &value, sizeof value);
}

static struct sockaddr_in elsewhere(void) { /* TEST-NET-3: nobody's address */
    struct sockaddr_in addr = {.sin_family = AF_INET};
    assert_int_equal(inet_pton(AF_INET, "203.0.113.77", &addr.sin_addr), 1);
    return addr;
}

/* ---- bind ------------------------------------------------------------------------------------------------ */

#define CHANNEL_TEST(name) TEST_WITH(open_channel, close_channel, name)

CHANNEL_TEST(an_address_binds_the_device) {
    struct rdma_cm_id *id = ct_id(channel);
    assert_null(id->verbs);
    assert_int_equal(bind_to(id, ct_address(0)), 0);
    assert_non_null(id->verbs);
    assert_non_null(id->pd);
    assert_int_equal(id->port_num, 1);
    assert_true(port_of(id) >= 1024);
    assert_int_equal(id->route.addr.src_sin.sin_addr.s_addr, ct_address(0).sin_addr.s_addr);
    ct_destroy(id);
}

CHANNEL_TEST(the_wildcard_binds_no_device) {
    struct rdma_cm_id *id = ct_id(channel);
    assert_int_equal(bind_to(id, ct_any(0)), 0);
    assert_null(id->verbs);
    assert_int_not_equal(port_of(id), 0);
    ct_destroy(id);
}

CHANNEL_TEST(bind_errors) {
    struct rdma_cm_id *id = ct_id(channel);
    struct sockaddr unknown = {.sa_family = AF_UNIX};
    assert_fails(rdma_bind_addr(id, NULL), EINVAL);
    assert_fails(rdma_bind_addr(id, &unknown), EINVAL);
    assert_fails(bind_to(id, elsewhere()), EADDRNOTAVAIL);
    assert_int_equal(bind_to(id, ct_address(0)), 0);
    assert_fails(bind_to(id, ct_address(0)), EINVAL); /* not fresh */
    ct_destroy(id);
}

CHANNEL_TEST(an_exact_clash_is_eaddrinuse) {
    struct rdma_cm_id *a = ct_id(channel), *b = ct_id(channel), *c = ct_id(channel);
    assert_int_equal(bind_to(a, ct_address(0)), 0);
    assert_fails(bind_to(b, ct_address(port_of(a))), EADDRINUSE);
    assert_int_equal(bind_to(c, ct_other_address(port_of(a))), 0);
    ct_destroy(a);
    ct_destroy(b);
    ct_destroy(c);
}

CHANNEL_TEST(a_wildcard_clash_is_eaddrnotavail) {
    struct rdma_cm_id *a = ct_id(channel), *b = ct_id(channel);
    assert_int_equal(bind_to(a, ct_any(0)), 0);
    assert_fails(bind_to(b, ct_address(port_of(a))), EADDRNOTAVAIL);
    assert_fails(bind_to(b, ct_any(port_of(a))), EADDRNOTAVAIL);
    ct_destroy(a);
    assert_int_equal(bind_to(b, ct_address(0)), 0);
    a = ct_id(channel);
    assert_fails(bind_to(a, ct_any(port_of(b))), EADDRNOTAVAIL);
    ct_destroy(a);
    ct_destroy(b);
}

CHANNEL_TEST(port_spaces_do_not_clash) {
    struct rdma_cm_id *a = ct_id(channel), *b = ct_ud_id(channel);
    assert_int_equal(bind_to(a, ct_address(0)), 0);
    assert_int_equal(bind_to(b, ct_address(port_of(a))), 0);
    ct_destroy(a);
    ct_destroy(b);
}

CHANNEL_TEST(a_port_is_free_again_after_destroy) {
    struct rdma_cm_id *a = ct_id(channel), *b = ct_id(channel);
    uint16_t port = ct_listen(a, 1);
    ct_destroy(a);
    assert_int_equal(bind_to(b, ct_address(port)), 0);
    ct_destroy(b);
}

CHANNEL_TEST(reuseaddr_shares_a_port_until_somebody_listens) {
    struct rdma_cm_id *a = ct_id(channel), *b = ct_id(channel), *c = ct_id(channel);
    assert_int_equal(set_flag(a, RDMA_OPTION_ID_REUSEADDR, 1), 0);
    assert_int_equal(set_flag(b, RDMA_OPTION_ID_REUSEADDR, 1), 0);
    assert_int_equal(bind_to(a, ct_address(0)), 0);
    assert_int_equal(bind_to(b, ct_address(port_of(a))), 0);
    assert_fails(bind_to(c, ct_address(port_of(a))), EADDRINUSE); /* both must want it */
    assert_fails(rdma_listen(a, 1), EADDRINUSE);                  /* a listener is alone */
    ct_destroy(b);
    assert_int_equal(rdma_listen(a, 1), 0);
    assert_int_equal(set_flag(c, RDMA_OPTION_ID_REUSEADDR, 1), 0);
    assert_fails(bind_to(c, ct_address(port_of(a))), EADDRINUSE); /* it lost the flag */
    assert_fails(set_flag(a, RDMA_OPTION_ID_REUSEADDR, 1), EINVAL);
    ct_destroy(a);
    ct_destroy(c);
}

CHANNEL_TEST(reuseaddr_may_be_set_while_bound_but_not_taken_back) {
    struct rdma_cm_id *a = ct_id(channel), *b = ct_id(channel);
    assert_int_equal(bind_to(a, ct_address(0)), 0);
    assert_int_equal(set_flag(a, RDMA_OPTION_ID_REUSEADDR, 1), 0);
    assert_fails(set_flag(a, RDMA_OPTION_ID_REUSEADDR, 0), EINVAL);
    assert_int_equal(set_flag(b, RDMA_OPTION_ID_REUSEADDR, 1), 0);
    assert_int_equal(bind_to(b, ct_address(port_of(a))), 0);
    ct_destroy(a);
    ct_destroy(b);
}

/* ---- listen ------------------------------------------------------------------------------------------------ */

CHANNEL_TEST(listen_binds_by_itself) {
    struct rdma_cm_id *id = ct_id(channel);
    assert_int_equal(rdma_listen(id, 1), 0);
    assert_int_not_equal(port_of(id), 0);
    assert_fails(rdma_listen(id, 1), EINVAL); /* listens already */
    ct_destroy(id);
}

CHANNEL_TEST(a_resolved_id_does_not_listen) {
    struct rdma_cm_id *id = ct_id(channel);
    ct_resolve_addr(id, 4711);
    assert_fails(rdma_listen(id, 1), EINVAL);
    ct_destroy(id);
}

/* ---- resolve ------------------------------------------------------------------------------------------------- */

CHANNEL_TEST(resolve_errors) {
    struct rdma_cm_id *id = ct_id(channel), *other = ct_id(channel);
    struct sockaddr_in dst = ct_address(4711), far = elsewhere();
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    struct sockaddr unknown = {.sa_family = AF_UNIX};
    assert_fails(rdma_resolve_addr(id, NULL, NULL, 2000), EINVAL);
    assert_fails(rdma_resolve_addr(id, NULL, &unknown, 2000), EINVAL);
    assert_fails(rdma_resolve_addr(other, (struct sockaddr *)&six, (struct sockaddr *)&dst, 2000),
                 EINVAL);
    ct_destroy(other); /* the kernel leaves it bound to the source */
    assert_fails(rdma_resolve_addr(id, (struct sockaddr *)&far, (struct sockaddr *)&dst, 2000),
                 EADDRNOTAVAIL);
    assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&dst, 2000), 0);
    assert_int_equal(ct_take(channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
    assert_fails(rdma_resolve_addr(id, NULL, (struct sockaddr *)&dst, 2000), EINVAL);
    assert_fails(rdma_resolve_route(id, 0), EINVAL);
    ct_silent(channel);
    ct_destroy(id);
}

CHANNEL_TEST(resolve_keeps_what_was_bound) {
    struct rdma_cm_id *id = ct_id(channel);
    ct_bind(id, 0);
    uint16_t port = port_of(id);
    ct_resolve_addr(id, 4711);
    assert_int_equal(port_of(id), port);
    ct_destroy(id);
}

CHANNEL_TEST(the_source_given_to_resolve_is_bound) {
    struct rdma_cm_id *id = ct_id(channel);
    struct sockaddr_in src = ct_address(0), dst = ct_address(4711);
    assert_int_equal(rdma_resolve_addr(id, (struct sockaddr *)&src, (struct sockaddr *)&dst, 2000),
                     0);
    assert_int_equal(ct_take(channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
    assert_int_equal(id->route.addr.src_sin.sin_addr.s_addr, src.sin_addr.s_addr);
    assert_fails(bind_to(id, ct_address(0)), EINVAL);
    ct_destroy(id);
}

/* An address that the device cannot reach: the call or the event says so, and the id tries again. */
CHANNEL_TEST(a_failed_resolution_may_be_repeated) {
    if (facts.reaches_elsewhere)
        skip();
    struct rdma_cm_id *id = ct_id(channel);
    struct sockaddr_in dst = elsewhere();
    if (facts.resolve_elsewhere_call) {
        assert_fails(rdma_resolve_addr(id, NULL, (struct sockaddr *)&dst, 1000),
                     facts.resolve_elsewhere_call);
    } else {
        assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&dst, 1000), 0);
        assert_int_equal(ct_take(channel, RDMA_CM_EVENT_ADDR_ERROR), facts.resolve_elsewhere_event);
    }
    assert_null(id->verbs);
    ct_resolve(id, 4711);
    ct_destroy(id);
}

/* ---- what needs another state ---------------------------------------------------------------------------------- */

CHANNEL_TEST(calls_that_need_a_device_are_einval_without) {
    if (facts.crashes_without_device)
        ct_skip("the library looks at a device that is not there, and crashes");
    struct rdma_cm_id *id = ct_id(channel);
    struct rdma_conn_param param = ct_param(NULL, 0);
    struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC};
    assert_fails(rdma_connect(id, &param), EINVAL);
    assert_fails(rdma_accept(id, &param), EINVAL);
    assert_fails(rdma_resolve_route(id, 2000), EINVAL);
    assert_fails(rdma_create_qp(id, NULL, &attr), EINVAL);
    ct_destroy(id);
}

CHANNEL_TEST(calls_on_a_fresh_id_are_einval) {
    struct rdma_cm_id *id = ct_id(channel);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT};
    int mask;
    assert_fails(rdma_reject(id, NULL, 0), EINVAL);
    assert_fails(rdma_disconnect(id), EINVAL);
    assert_fails(rdma_establish(id), EINVAL);
    assert_fails(rdma_notify(id, IBV_EVENT_COMM_EST), EINVAL);
    assert_fails(rdma_init_qp_attr(id, &attr, &mask), EINVAL);
    ct_silent(channel);
    ct_destroy(id);
}

CHANNEL_TEST(calls_out_of_order_are_einval) {
    struct rdma_cm_id *id = ct_id(channel);
    struct rdma_conn_param param = ct_param(NULL, 0);
    ct_bind(id, 0);
    assert_fails(rdma_connect(id, &param), EINVAL);
    assert_fails(rdma_accept(id, &param), EINVAL);
    assert_fails(rdma_disconnect(id), EINVAL);
    assert_fails(rdma_resolve_route(id, 2000), EINVAL);
    ct_resolve_addr(id, 4711);
    assert_fails(rdma_connect(id, &param), EINVAL); /* no route */
    assert_int_equal(rdma_resolve_route(id, 2000), 0);
    ct_take(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
    assert_fails(rdma_resolve_route(id, 2000), EINVAL);
    assert_fails(rdma_accept(id, &param), EINVAL);
    assert_fails(rdma_reject(id, NULL, 0), EINVAL);
    assert_fails(rdma_disconnect(id), EINVAL); /* never connected */
    ct_silent(channel);
    ct_destroy(id);
}

CHANNEL_TEST(a_listener_does_not_connect) {
    struct rdma_cm_id *id = ct_id(channel);
    struct rdma_conn_param param = ct_param(NULL, 0);
    struct sockaddr_in dst = ct_address(4711);
    ct_listen(id, 1);
    assert_fails(rdma_connect(id, &param), EINVAL);
    assert_fails(rdma_accept(id, &param), EINVAL);
    assert_fails(rdma_resolve_addr(id, NULL, (struct sockaddr *)&dst, 2000), EINVAL);
    if (facts.listeners_disconnect)
        assert_int_equal(rdma_disconnect(id), 0); /* and does nothing */
    else
        assert_fails(rdma_disconnect(id), EINVAL);
    ct_silent(channel);
    ct_destroy(id);
}

/* ---- options --------------------------------------------------------------------------------------------------- */

CHANNEL_TEST(option_errors) {
    struct rdma_cm_id *id = ct_id(channel), *ud = ct_ud_id(channel);
    uint8_t byte = 10;
    int word = 1;
    assert_int_equal(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &byte, 1), 0);
    assert_fails(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &word, 4), EINVAL);
    assert_fails(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &byte, 1), EINVAL);
    assert_fails(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &byte, 1), EINVAL);
    assert_fails(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &word, 4), EINVAL);
    assert_int_equal(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &byte, 1), 0);
    assert_fails(rdma_set_option(ud, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &byte, 1), EINVAL);
    assert_fails(rdma_set_option(id, RDMA_OPTION_ID, 77, &word, 4), ENOSYS);
    assert_fails(rdma_set_option(id, RDMA_OPTION_IB, 77, &word, 4), ENOSYS);
    assert_fails(rdma_set_option(id, 77, 0, &word, 4), ENOSYS);
    ct_resolve(id, 4711);
    assert_fails(set_flag(id, RDMA_OPTION_ID_AFONLY, 1), EINVAL); /* too late */
    ct_destroy(id);
    ct_destroy(ud);
}

CHANNEL_TEST(getaddrinfo_gives_what_the_calls_take) {
    struct rdma_addrinfo *res, hints = {.ai_flags = RAI_NUMERICHOST, .ai_port_space = RDMA_PS_TCP};
    char text[INET_ADDRSTRLEN];
    struct sockaddr_in addr = ct_address(0);
    assert_non_null(inet_ntop(AF_INET, &addr.sin_addr, text, sizeof text));
    assert_int_equal(rdma_getaddrinfo(text, "4711", &hints, &res), 0);
    assert_int_equal(res->ai_family, AF_INET);
    assert_int_equal(res->ai_qp_type, IBV_QPT_RC);
    assert_int_equal(res->ai_port_space, RDMA_PS_TCP);
    assert_non_null(res->ai_dst_addr);
    const struct sockaddr_in *dst = (const void *)res->ai_dst_addr;
    assert_int_equal(ntohs(dst->sin_port), 4711);
    assert_int_equal(dst->sin_addr.s_addr, addr.sin_addr.s_addr);
    rdma_freeaddrinfo(res);
    hints.ai_flags |= RAI_PASSIVE;
    assert_int_equal(rdma_getaddrinfo(text, "4711", &hints, &res), 0);
    assert_null(res->ai_dst_addr);
    const struct sockaddr_in *src = (const void *)res->ai_src_addr;
    assert_int_equal(src->sin_addr.s_addr, addr.sin_addr.s_addr);
    rdma_freeaddrinfo(res);
    assert_int_equal(rdma_getaddrinfo("no address", "4711", &hints, &res), EAI_NONAME);
}

int main(void) {
    return ct_run();
}
