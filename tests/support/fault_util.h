/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * fault_util.h - what the tests of faults on demand share: a plan put in force or refused, the log of
 * its decisions, waiting for an asynchronous event with a limit.
 */
#ifndef TESTS_FAULT_UTIL_H
#define TESTS_FAULT_UTIL_H

#include "support/softverbs_util.h"

#include <poll.h>

#include "base/sanitize.h"
#include "soft/fault/inject.h"
#include "soft/fault/plan.h"
#include "soft/ipc/control_lock.h"
#include "soft/verbs/device_state.h"

/* The thread sanitizer forbids threads in a child forked from a process that has some. */
#ifdef SANITIZE_THREAD
#define FAULT_NO_FORK() skip()
#else
#define FAULT_NO_FORK() ((void)0)
#endif

/* Not every one of these tests polls. */
SV_UNUSED static struct ibv_wc (*const fault_poll_at)(struct ibv_cq *cq, int line) = sv_poll_at;

SV_UNUSED static void fault_plan(const char *text) {
    struct soft_plan_error error;
    struct soft_plan *plan = soft_plan_parse(text, &error);
    if (!plan)
        print_error("%u:%u: %s\n", error.line, error.column, error.reason);
    must(plan);
    soft_lock();
    soft_fault_install(plan);
    soft_unlock();
}

SV_UNUSED static void fault_clear(void) {
    soft_lock();
    soft_fault_clear();
    soft_unlock();
}

SV_UNUSED static void fault_log(char *out, size_t size) {
    soft_lock();
    soft_fault_log(out, size);
    soft_unlock();
}

SV_UNUSED static void fault_log_is(const char *expected) {
    static char log[65536];
    fault_log(log, sizeof log);
    assert_string_equal(log, expected);
}

SV_UNUSED static int fault_device(enum soft_device_what what, enum soft_device_order order) {
    struct soft_device_action action = {.what = what, .order = order};
    soft_lock();
    int rc = soft_device_act(&action);
    soft_unlock();
    return rc;
}

SV_UNUSED static enum ibv_event_type fault_async(struct ibv_context *ctx) {
    struct pollfd fd = {.fd = ctx->async_fd, .events = POLLIN};
    must(poll(&fd, 1, 30000) == 1);
    struct ibv_async_event event;
    must(soft_get_async_event(ctx, &event) == 0);
    soft_ack_async_event(&event);
    return event.event_type;
}

SV_UNUSED static bool fault_async_silent(struct ibv_context *ctx) {
    struct pollfd fd = {.fd = ctx->async_fd, .events = POLLIN};
    return poll(&fd, 1, 0) == 0;
}

#endif
