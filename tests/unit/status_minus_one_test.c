/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * status_minus_one_test.c - an rdma_cm event whose status is -1 is reported as errno says.
 *
 * librdmacm asks the kernel for the addresses of an id before it shows ADDR_RESOLVED; if that fails, the event
 * is an error with status -1 and the reason in errno. The event is made up here in the place of the real one.
 */
#include "pair.h"

#include <errno.h>

static struct {
    enum rdma_cm_event_type from, to;
    int status, left_errno;
} altered;

static struct fabric_ops altering;

static int altering_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event) {
    int rc = soft_get_cm_event(channel, event);
    if (rc == 0 && (*event)->event == altered.from) {
        (*event)->event = altered.to;
        (*event)->status = altered.status;
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
    pair_dial(p, PAIR_LINK());
    sluice_event event = pair_expect(p, &p->b, SLUICE_CLOSED);
    assert_int_equal(event.reason, reason);
    *info = (sluice_session_info){.size = sizeof *info};
    assert_int_equal(sluice_session_get_info(event.session, info), 0);
    assert_null(strstr(info->close_text, "Operation not permitted"));
    p->b.node->fabric = &fabric_soft;
    pair_close(p);
}

static void an_address_error_of_minus_one_says_what_errno_says(void **state) {
    (void)state;
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

static void a_route_error_of_minus_one_says_what_errno_says(void **state) {
    (void)state;
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_address_error_of_minus_one_says_what_errno_says),
        cmocka_unit_test(a_route_error_of_minus_one_says_what_errno_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
