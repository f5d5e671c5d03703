/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * status_minus_one_test.c - an rdma_cm event whose status is -1 is reported as errno says, and a call that
 * fails is not blamed on the peer.
 *
 * librdmacm asks the kernel for the addresses of an id before it shows ADDR_RESOLVED; if that fails, the event
 * is an error with status -1 and the reason in errno. The event is made up here in the place of the real one.
 */
#include "support/pair.h"

#include <errno.h>

static struct {
    enum rdma_cm_event_type from, to;
    int status, left_errno;
    bool no_data; /* nor the peer's words */
} altered;

static struct fabric_ops altering;

static int altering_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event) {
    int rc = soft_get_cm_event(channel, event);
    if (rc == 0 && (*event)->event == altered.from) {
        (*event)->event = altered.to;
        (*event)->status = altered.status;
        if (altered.no_data)
            (*event)->param.conn.private_data = NULL;
        errno = altered.left_errno;
    }
    return rc;
}

/* What a dial ends with. */
static void dial_ends(struct pair *p, int status, int left_errno, sluice_reason reason,
                      sluice_session_info *info) {
    memset(p, 0, sizeof *p);
    pair_open(p, PAIR_NODE(), PAIR_LINK());
    altering = fabric_soft;
    altering.get_cm_event = altering_get_cm_event;
    altered.status = status;
    altered.left_errno = left_errno;
    p->b.node->fabric = &altering;
    pair_dial(p, PAIR_LINK(.flags = SLUICE_ONCE));
    sluice_event event = pair_expect(p, &p->b, SLUICE_CLOSED);
    assert_int_equal(event.reason, reason);
    *info = (sluice_session_info){.size = sizeof *info};
    assert_int_equal(sluice_session_get_info(event.session, info), 0);
    assert_null(strstr(info->close_text, "Operation not permitted"));
    p->b.node->fabric = &fabric_soft;
    pair_close(p);
}

TEST(an_address_error_of_minus_one_says_what_errno_says) {
    struct pair p;
    sluice_session_info info;
    altered.from = RDMA_CM_EVENT_ADDR_RESOLVED;
    altered.to = RDMA_CM_EVENT_ADDR_ERROR;
    dial_ends(&p, -1, ENODEV, SLUICE_REASON_ADDRESS, &info);
    assert_non_null(strstr(info.close_text, "no RDMA device leads there"));
    dial_ends(&p, -1, EHOSTUNREACH, SLUICE_REASON_UNREACHABLE, &info);
    assert_non_null(strstr(info.close_text, "No route to host"));
    /* Nobody knows. */
    dial_ends(&p, -1, 0, SLUICE_REASON_ADDRESS, &info);
    assert_non_null(strstr(info.close_text, "the stack gives no reason"));
    /* What errno says beside another status is nobody's word; a positive errno is one. */
    dial_ends(&p, -EHOSTUNREACH, ENODEV, SLUICE_REASON_UNREACHABLE, &info);
    dial_ends(&p, ENETUNREACH, 0, SLUICE_REASON_UNREACHABLE, &info);
}

TEST(a_route_error_of_minus_one_says_what_errno_says) {
    struct pair p;
    sluice_session_info info;
    char status[32];
    altered.from = RDMA_CM_EVENT_ROUTE_RESOLVED;
    altered.to = RDMA_CM_EVENT_ROUTE_ERROR;
    dial_ends(&p, -1, EIO, SLUICE_REASON_UNREACHABLE, &info);
    snprintf(status, sizeof status, "status %d", -EIO);
    assert_non_null(strstr(info.close_text, status));
    dial_ends(&p, -1, 0, SLUICE_REASON_UNREACHABLE, &info);
    assert_non_null(strstr(info.close_text, "the stack gives no reason"));
}

TEST(any_other_failure_of_minus_one_says_that_nobody_knows) {
    static const struct {
        enum rdma_cm_event_type to;
        int status, left_errno;
        sluice_reason reason;
        const char *text;
    } rows[] = {
        {RDMA_CM_EVENT_CONNECT_ERROR, -1, 0, SLUICE_REASON_DEVICE_ERROR,
         "could not be made (status -1, the stack gives no reason)"},
        {RDMA_CM_EVENT_CONNECT_ERROR, -1, EIO, SLUICE_REASON_DEVICE_ERROR,
         "could not be made (status -5: Input/output error)"},
        {RDMA_CM_EVENT_CONNECT_ERROR, ENOMEM, 0, SLUICE_REASON_DEVICE_ERROR,
         "could not be made (status 12)"},
        {RDMA_CM_EVENT_UNREACHABLE, -1, 0, SLUICE_REASON_UNREACHABLE,
         "did not answer (status -1, the stack gives no reason)"},
        {RDMA_CM_EVENT_REJECTED, -1, 0, SLUICE_REASON_REFUSED,
         "rejected the connection (status -1, the stack gives no reason)"},
        /* No resources, say: that is no word of an application. */
        {RDMA_CM_EVENT_REJECTED, 3, 0, SLUICE_REASON_REFUSED,
         "the peer's stack rejected the connection (status 3)"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct pair p;
        sluice_session_info info;
        altered.from = RDMA_CM_EVENT_CONNECT_RESPONSE;
        altered.to = rows[i].to;
        altered.no_data = true;
        dial_ends(&p, rows[i].status, rows[i].left_errno, rows[i].reason, &info);
        if (!strstr(info.close_text, rows[i].text))
            fail_msg("\"%s\" is not in \"%s\"", rows[i].text, info.close_text);
    }
    altered.no_data = false;
}

/* ---- calls ------------------------------------------------------------------------------------- */

static int call_errno; /* what the call fails with */

static int failing_accept(struct rdma_cm_id *id, struct rdma_conn_param *param) {
    (void)id, (void)param;
    errno = call_errno;
    return -1;
}

static int failing_establish(struct rdma_cm_id *id) {
    (void)id;
    errno = call_errno;
    return -1;
}

static int failing_route(struct rdma_cm_id *id, int ms) {
    (void)id, (void)ms;
    errno = call_errno;
    return -1;
}

static void expect_end(struct pair *p, struct side *side, sluice_reason reason, const char *text) {
    sluice_event event = pair_expect(p, side, SLUICE_CLOSED);
    sluice_session_info info = pair_info(event.session);
    assert_int_equal(event.reason, reason);
    assert_int_equal(event.vendor, call_errno);
    if (!strstr(info.close_text, text) || !strstr(info.close_text, strerror(call_errno)))
        fail_msg("%s: %s", text, info.close_text);
}

/* EINVAL: the id is past all this, since the peer gave up. Anything else is no doing of the peer's. */
TEST(a_call_that_answers_a_peer_blames_whom_it_may) {
    static const int errors[] = {EINVAL, ENOMEM, EIO, ENXIO};
    for (unsigned i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        struct pair p;
        sluice_reason reason = i == 0 ? SLUICE_REASON_PEER_LOST : SLUICE_REASON_DEVICE_ERROR;
        altering = fabric_soft;
        altering.accept = failing_accept;
        altering.establish = failing_establish;
        call_errno = errors[i];
        pair_open(&p, PAIR_NODE(), PAIR_LINK(.flags = SLUICE_ASK));
        p.a.node->fabric = &altering;
        pair_dial(&p, PAIR_LINK(.flags = SLUICE_ONCE));
        sluice_event event = pair_expect(&p, &p.a, SLUICE_CONNECT);
        assert_int_equal(sluice_accept(event.session, NULL), 0);
        expect_end(&p, &p.a, reason, "accept: ");
        pair_expect(&p, &p.b, SLUICE_CLOSED);
        p.a.node->fabric = &fabric_soft;
        p.b.node->fabric = &altering;
        pair_dial(&p, PAIR_LINK(.flags = SLUICE_ONCE));
        event = pair_expect(&p, &p.a, SLUICE_CONNECT);
        assert_int_equal(sluice_accept(event.session, NULL), 0);
        expect_end(&p, &p.b, reason, "establish: ");
        pair_expect(&p, &p.a, SLUICE_CLOSED);
        p.b.node->fabric = &fabric_soft;
        pair_close(&p);
    }
}

TEST(a_route_that_cannot_be_asked_for_is_no_unreachable_peer) {
    static const int errors[] = {ENETUNREACH, ENOMEM, EINVAL};
    for (unsigned i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        struct pair p;
        altering = fabric_soft;
        altering.resolve_route = failing_route;
        call_errno = errors[i];
        pair_open(&p, PAIR_NODE(), PAIR_LINK());
        p.b.node->fabric = &altering;
        pair_dial(&p, PAIR_LINK(.flags = SLUICE_ONCE));
        expect_end(&p, &p.b, i == 0 ? SLUICE_REASON_UNREACHABLE : SLUICE_REASON_DEVICE_ERROR,
                   i == 0 ? "no route: " : "the route cannot be looked up: ");
        p.b.node->fabric = &fabric_soft;
        pair_close(&p);
    }
}

static unsigned connects, failing; /* calls, of which so many fail */

static int failing_connect(struct rdma_cm_id *id, struct rdma_conn_param *param) {
    if (connects++ >= failing)
        return soft_connect(id, param);
    errno = call_errno;
    return -1;
}

static const struct {
    int error;
    sluice_reason reason;
    bool may_pass;
    const char *text;
} refusals[] = {
    {ECONNREFUSED, SLUICE_REASON_NO_LISTENER, false, "no listener there"},
    {ETIMEDOUT, SLUICE_REASON_UNREACHABLE, true, NULL},
    {EHOSTUNREACH, SLUICE_REASON_UNREACHABLE, true, NULL},
    {ECONNRESET, SLUICE_REASON_UNREACHABLE, true, NULL},
    {ENETUNREACH, SLUICE_REASON_UNREACHABLE, false, NULL},
    {EHOSTDOWN, SLUICE_REASON_UNREACHABLE, false, NULL},
    {ENETDOWN, SLUICE_REASON_UNREACHABLE, false, NULL},
    {ECONNABORTED, SLUICE_REASON_UNREACHABLE, false, NULL},
    {EMFILE, SLUICE_REASON_DEVICE_ERROR, true, NULL},
    {ENFILE, SLUICE_REASON_DEVICE_ERROR, true, NULL},
    {ENOMEM, SLUICE_REASON_NO_MEMORY, false, NULL},
    {ENOBUFS, SLUICE_REASON_NO_MEMORY, false, NULL},
    {EAGAIN, SLUICE_REASON_NO_MEMORY, false, NULL},
    {EIO, SLUICE_REASON_DEVICE_ERROR, false, NULL},
};

/* rdma_connect() itself says what of the peer, where it asks him (iWARP). What may pass is tried again. */
TEST(a_connect_that_fails_says_why_and_whether_it_is_tried_again) {
    for (unsigned i = 0; i < 2 * sizeof refusals / sizeof refusals[0]; i++) {
        struct pair p;
        bool once = i & 1;
        char text[100];
        altering = fabric_soft;
        altering.connect = failing_connect;
        call_errno = refusals[i / 2].error;
        connects = 0, failing = 2;
        pair_open(&p, PAIR_NODE(), PAIR_LINK());
        p.b.node->fabric = &altering;
        pair_dial(&p, PAIR_LINK(.flags = once ? SLUICE_ONCE : 0));
        if (!once && refusals[i / 2].may_pass) {
            pair_expect(&p, &p.b, SLUICE_UP);
            assert_int_equal(pair_info(p.b.session).tries, 3);
        } else {
            sluice_event event = pair_expect(&p, &p.b, SLUICE_CLOSED);
            assert_int_equal(event.reason, refusals[i / 2].reason);
            assert_int_equal(event.vendor, call_errno);
            snprintf(text, sizeof text, "connect: %s",
                     refusals[i / 2].text ? refusals[i / 2].text : strerror(call_errno));
            assert_string_equal(pair_info(event.session).close_text, text);
            assert_int_equal(connects, 1);
        }
        p.b.node->fabric = &fabric_soft;
        pair_close(&p);
    }
}
