/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * fault.h - what the tests of faults on demand share: a plan put in force or refused, the log of
 * its decisions, waiting for an asynchronous event with a limit.
 */
#ifndef TESTS_SUPPORT_FAULT_H
#define TESTS_SUPPORT_FAULT_H

#include "support/softverbs.h"

#include <poll.h>

#include "common/sanitize.h"
#include "soft/fault/inject.h"
#include "soft/fault/plan.h"
#include "soft/ipc/control_lock.h"

/* The thread sanitizer forbids threads in a child forked from a process that has some. */
#ifdef SANITIZE_THREAD
#define FAULT_NO_FORK() skip()
#else
#define FAULT_NO_FORK() ((void)0)
#endif

/* Puts a plan in force, which must be right; NULL: none. */
void fault_plan(const char *text);
/* No plan any more. */
void fault_clear(void);
/* The log of the plan's decisions. */
void fault_log(char *out, size_t size);
/* It is exactly this. */
void fault_log_is(const char *expected);
/* Does that to the device; the status of it. */
int fault_device(enum soft_device_what what, enum soft_device_order order);
/* The next asynchronous event, acknowledged. */
enum ibv_event_type fault_async(struct ibv_context *ctx);
/* There is none. */
bool fault_async_silent(struct ibv_context *ctx);

#endif
