/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* fault.c - see fault.h. */
#include "support/fault.h"
#include "soft/control/device_state.h"

void fault_plan(const char *text) {
    struct soft_plan_error error;
    struct soft_plan *plan = text ? soft_plan_parse(text, &error) : NULL;
    if (text && !plan)
        print_error("%s: %u:%u: %s\n", text, error.line, error.column, error.reason);
    must(plan || !text);
    soft_lock();
    soft_fault_install(plan);
    soft_unlock();
}

void fault_clear(void) {
    soft_lock();
    soft_fault_clear();
    soft_unlock();
}

void fault_log(char *out, size_t size) {
    soft_lock();
    soft_fault_log(out, size);
    soft_unlock();
}

void fault_log_is(const char *expected) {
    static char log[65536];
    fault_log(log, sizeof log);
    assert_string_equal(log, expected);
}

int fault_device(enum soft_device_what what, enum soft_device_order order) {
    struct soft_device_action action = {.what = what, .order = order};
    soft_lock();
    int rc = soft_device_act(&action);
    soft_unlock();
    return rc;
}

enum ibv_event_type fault_async(struct ibv_context *ctx) {
    struct pollfd fd = {.fd = ctx->async_fd, .events = POLLIN};
    must(poll(&fd, 1, 30000) == 1);
    struct ibv_async_event event;
    must(soft_get_async_event(ctx, &event) == 0);
    soft_ack_async_event(&event);
    return event.event_type;
}

bool fault_async_silent(struct ibv_context *ctx) {
    struct pollfd fd = {.fd = ctx->async_fd, .events = POLLIN};
    return poll(&fd, 1, 0) == 0;
}
