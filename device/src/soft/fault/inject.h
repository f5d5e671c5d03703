/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * inject.h - faults on demand: the questions that the device asks before it does something, and the log of the
 * answers.
 *
 * Off, each question costs one test of soft_faults_on. On, a plan (plan.h)
 * decides, per object and count: objects in order of their creation since the device was opened,
 * operations by their number on that object. A decision depends on no time and no
 * chance, so the same plan decides the same again and the log of decisions is the same.
 *
 * Plan, counts of calls and logs lie under a spin lock of their own, a leaf.
 */
#ifndef SOFT_FAULT_INJECT_H
#define SOFT_FAULT_INJECT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "soft/fault/plan.h"

extern _Atomic bool soft_faults_on;
static inline bool soft_fault_active(void) {
    return __builtin_expect(atomic_load_explicit(&soft_faults_on, memory_order_relaxed), 0);
}

/* ---- life; control lock --------------------------------------------------------------------------- */

/* The engine starts: numbers begin at 1, the plan of SLUICE_SOFT_FAULTS is read. */
void soft_fault_start(void);
void soft_fault_stop(void);
void soft_fault_forked(void);
/* Takes the plan over (NULL: none), forgets the log of the former one, runs its device actions. */
/* The profile that the environment's plan asks for; NULL: none. Any thread. */
const struct soft_profile *soft_fault_profile(void);
/* False, and why: the profile it is for is not in force, and cannot be any more. */
bool soft_fault_fits(const struct soft_plan *plan, struct soft_plan_error *error);
void soft_fault_install(struct soft_plan *plan);
void soft_fault_clear(void); /* the plan ends, its log stays */
/* Text of the decisions, object by object, at most size - 1 bytes; returns its length. */
size_t soft_fault_log(char *out, size_t size);
unsigned soft_fault_rules(void);
void soft_fault_update(void); /* the port went down or up: is there anything to ask? */
/* Device actions that operations have triggered: engine thread; and those of the plan there was at the start. */
void soft_fault_run(int (*act)(const struct soft_device_action *action));
uint32_t soft_fault_qp_serial(void);
uint32_t soft_fault_id_serial(void);

/* ---- verbs ------------------------------------------------------------------------------------------ */

struct soft_qp;
struct soft_wqe;
struct soft_ring;

/* LOSE: an unreliable message that never arrives. */
enum soft_fault_verdict { SOFT_FAULT_PASS, SOFT_FAULT_HOLD, SOFT_FAULT_BREAK, SOFT_FAULT_LOSE };

/* For how long a device tries before RETRY_EXC_ERR, 10 s at most. */
uint64_t soft_fault_retries_ns(const struct soft_qp *qp);
/* qp->lock. The work request next in line; BREAK: *status is what it ends with. */
enum soft_fault_verdict soft_fault_send(struct soft_qp *qp, int *status);
/* qp->lock. The message next in line, which takes a receive. */
enum soft_fault_verdict soft_fault_receive(struct soft_qp *qp, struct soft_ring *rx, int *status);

int soft_fault_call_slow(enum soft_fault_call call);
/* An errno the call shall fail with, or 0. Any thread, no lock needed. */
static inline int soft_fault_call(enum soft_fault_call call) {
    return soft_fault_active() ? soft_fault_call_slow(call) : 0;
}

/* For cm.c: the rule for the n-th operation of an object, noted in the log. */
bool soft_fault_decide(enum soft_fault_scope scope, uint32_t who, uint32_t number,
                       enum soft_fault_when when, int detail, uint32_t n, struct soft_rule *out);

#endif
