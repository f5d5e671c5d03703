/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * inject.c - the plan in force: which rule fits, and the decision about a queue pair's next operation.
 *
 * `lock` guards plan, logs, counts and pending actions; it is a leaf under the control lock and the
 * QPs' locks, and nothing is allocated or called under it.
 */
#include "soft/fault/inject.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "soft/fault/environment.h"
#include "soft/fault/log.h"
#include "soft/fault/plan.h"
#include "soft/ipc/engine.h"
#include "soft/ipc/spinlock.h"
#include "soft/object/attention.h"
#include "soft/object/device.h"
#include "soft/object/profile.h"
#include "soft/object/qp.h"
#include "soft/object/ring.h"

#define PENDING 16

_Atomic bool soft_faults_on;

static soft_spin lock;
static struct soft_plan *plan; /* kept behind its end, for the log */
static bool in_force;
static _Atomic uint32_t plan_number;
static uint32_t qp_serial, id_serial; /* control lock */
static uint32_t calls[FAULT_CALLS];
static struct soft_device_action pending[PENDING];
static _Atomic unsigned pending_count;

/* ---- plan ------------------------------------------------------------------------------------------- */

void soft_fault_update(void) {
    atomic_store(&soft_faults_on, in_force || atomic_load(&soft_port_down));
}

static void act_later(const struct soft_device_action *action) {
    unsigned count = atomic_load(&pending_count);
    if (count < PENDING)
        pending[count] = *action;
    atomic_store(&pending_count, count < PENDING ? count + 1 : count);
}

void soft_fault_install(struct soft_plan *fresh) {
    spin_lock(&lock);
    struct soft_plan *old = plan;
    plan = fresh;
    in_force = fresh != NULL;
    plan_number++;
    soft_fault_log_clear();
    memset(calls, 0, sizeof calls);
    for (unsigned i = 0; fresh && i < fresh->count; i++)
        if (fresh->rule[i].scope == FAULT_DEVICE)
            act_later(&fresh->rule[i].action);
    soft_fault_update();
    spin_unlock(&lock);
    free(old);
    soft_engine_wake();
}

void soft_fault_clear(void) {
    spin_lock(&lock);
    in_force = false;
    plan_number++;
    soft_fault_update();
    spin_unlock(&lock);
}

unsigned soft_fault_rules(void) {
    return in_force ? plan->count : 0;
}

static bool fits(const struct soft_rule *rule, enum soft_fault_scope scope, uint32_t who,
                 uint32_t number, enum soft_fault_when when, int detail, uint32_t n) {
    if (rule->scope != scope || rule->when != when || n < rule->first || n > rule->last)
        return false;
    switch (scope) {
    case FAULT_QP:
    case FAULT_ID:
        return (!rule->who || rule->who == (rule->by_number ? number : who)) &&
               (when != FAULT_AFTER || rule->after == detail);
    case FAULT_CM:
    case FAULT_CM_IN:
        return !rule->who || rule->who == (uint32_t)detail + 1;
    case FAULT_CALL:
        return rule->who == who;
    case FAULT_DEVICE:
        break;
    }
    return false;
}

bool soft_fault_decide(enum soft_fault_scope scope, uint32_t who, uint32_t number,
                       enum soft_fault_when when, int detail, uint32_t n, struct soft_rule *out) {
    bool found = false, act = false;
    spin_lock(&lock);
    for (unsigned i = 0; in_force && i < plan->count && !found; i++) {
        if (!fits(&plan->rule[i], scope, who, number, when, detail, n))
            continue;
        found = true;
        *out = plan->rule[i];
        soft_fault_log_note(scope, who, i, detail, n);
        act = out->what == FAULT_ACTION;
        if (act)
            act_later(&out->action);
    }
    spin_unlock(&lock);
    if (act)
        soft_engine_wake();
    return found;
}

void soft_fault_run(int (*act)(const struct soft_device_action *action)) {
    if (__builtin_expect(atomic_load_explicit(&pending_count, memory_order_relaxed) == 0, 1))
        return;
    struct soft_device_action todo[PENDING];
    spin_lock(&lock);
    unsigned count = atomic_exchange(&pending_count, 0);
    memcpy(todo, pending, count * sizeof *todo);
    spin_unlock(&lock);
    for (unsigned i = 0; i < count; i++)
        (void)act(&todo[i]);
}

/* ---- queue pairs ------------------------------------------------------------------------------------ */

#define LIMIT_NS 10000000000ull /* of whatever a wrong timeout would make longer */

static uint64_t timeout_ns(const struct soft_qp *qp, uint64_t times) {
    if (qp->attr.timeout == 0)
        return LIMIT_NS; /* "for ever" on a device */
    uint64_t ns = (4096ull << qp->attr.timeout) * times;
    return ns < LIMIT_NS ? ns : LIMIT_NS;
}

uint64_t soft_fault_retries_ns(const struct soft_qp *qp) {
    return timeout_ns(qp, qp->attr.retry_cnt + 1u);
}

/* So many times, 0: each. */
static void lose(const struct soft_qp *qp, uint64_t times, struct soft_fault_step *turn) {
    turn->lost = qp->unreliable;
    if (turn->lost)
        return;
    if (times == 0 || times > qp->attr.retry_cnt) {
        times = qp->attr.retry_cnt + 1u;
        turn->then = IBV_WC_RETRY_EXC_ERR;
    }
    turn->until_ns = soft_now_ns() + timeout_ns(qp, times);
}

static void apply(const struct soft_qp *qp, const struct soft_rule *rule,
                  struct soft_fault_step *turn) {
    uint64_t now = soft_now_ns(), lost = (uint64_t)rule->value;
    switch (rule->what) {
    case FAULT_STATUS:
        turn->then = (int)rule->value;
        return;
    case FAULT_STALL:
        turn->stall = true;
        turn->until_ns = now + rule->ns;
        return;
    case FAULT_DELAY:
        turn->until_ns = now + rule->ns;
        return;
    case FAULT_CUT:
        turn->cut = true;
        turn->lost = qp->unreliable;
        turn->then = IBV_WC_RETRY_EXC_ERR;
        return;
    case FAULT_CORRUPT: /* of a packet with a check value of its own nothing arrives: it is sent again */
        turn->corrupt = qp->tcp != NULL;
        if (!turn->corrupt)
            lose(qp, 1, turn);
        return;
    case FAULT_LOSS:
        lose(qp, lost, turn);
        return;
    case FAULT_RNR: { /* of UC and UD: a receiver that is late */
        turn->rnr = true;
        uint64_t ns = soft_rnr_ns(qp->attr.min_rnr_timer) * lost;
        turn->until_ns = now + (ns < 6 * LIMIT_NS ? ns : 6 * LIMIT_NS);
        return;
    }
    case FAULT_NONE:
    case FAULT_EVENT:
    case FAULT_ERRNO:
    case FAULT_ACTION:
        return;
    }
}

static enum soft_fault_verdict verdict(const struct soft_fault_step *turn, int *status) {
    if (turn->until_ns && soft_now_ns() < turn->until_ns)
        return SOFT_FAULT_HOLD;
    if (turn->lost)
        return SOFT_FAULT_LOSE;
    *status = turn->then;
    return turn->then ? SOFT_FAULT_BREAK : SOFT_FAULT_PASS;
}

/* Decides once for each operation, however often it is asked for. True: this was the first time. */
static bool decide_step(struct soft_qp *qp, enum soft_fault_when when, uint32_t n,
                        struct soft_fault_step *turn, struct soft_rule *rule) {
    uint32_t number = atomic_load(&plan_number); /* a plan that changes meanwhile: asked again */
    if (turn->op == n && turn->plan == number)
        return false;
    *turn = (struct soft_fault_step){.op = n, .plan = number};
    if (!soft_fault_decide(FAULT_QP, qp->fault.serial, qp->ibv.qp_num, when, 0, n, rule))
        return false;
    apply(qp, rule, turn);
    return true;
}

enum soft_fault_verdict soft_fault_send(struct soft_qp *qp, int *status) {
    struct soft_fault_qp *f = &qp->fault;
    struct soft_rule rule;
    decide_step(qp, FAULT_SEND, qp->sq_next + 1, &f->send, &rule);
    enum soft_fault_verdict v = verdict(&f->send, status);
    if (v == SOFT_FAULT_PASS && qp->unreliable) {
        if (atomic_load(&soft_port_down))
            v = SOFT_FAULT_LOSE;
    } else if (v == SOFT_FAULT_PASS && atomic_load(&soft_port_down)) {
        uint64_t now = soft_now_ns();
        if (!f->dark_since_ns)
            f->dark_since_ns = now;
        bool over = now - f->dark_since_ns > timeout_ns(qp, qp->attr.retry_cnt + 1u);
        *status = IBV_WC_RETRY_EXC_ERR;
        v = over ? SOFT_FAULT_BREAK : SOFT_FAULT_HOLD;
    } else if (v == SOFT_FAULT_PASS) {
        f->dark_since_ns = 0;
    }
    if (v == SOFT_FAULT_HOLD) { /* the poller tries again, and the engine */
        soft_qp_attend(qp);
        st(qp->need_tick, true);
        soft_qp_timer_want();
    }
    return v;
}

enum soft_fault_verdict soft_fault_receive(struct soft_qp *qp, struct soft_ring *rx, int *status) {
    struct soft_fault_qp *f = &qp->fault;
    struct soft_rule rule;
    uint32_t n = (qp->srq ? qp->srq_received : qp->rq.head) + 1;
    if (decide_step(qp, FAULT_RECV, n, &f->recv, &rule) && rule.what == FAULT_RNR && rx) {
        f->stalled = true;
        atomic_store_explicit(&rx->rx.stalled, ld(qp->rx_pos) + 1, memory_order_release);
    }
    enum soft_fault_verdict v = verdict(&f->recv, status);
    f->holding = v == SOFT_FAULT_HOLD;
    if (v == SOFT_FAULT_HOLD) {
        st(qp->need_tick, true);
        soft_qp_timer_want();
    } else if (f->stalled) {
        f->stalled = false;
        atomic_store_explicit(&rx->rx.stalled, 0, memory_order_release);
    }
    return v;
}

int soft_fault_call_slow(enum soft_fault_call call) {
    struct soft_rule rule;
    spin_lock(&lock);
    uint32_t n = ++calls[call];
    spin_unlock(&lock);
    return soft_fault_decide(FAULT_CALL, call, 0, FAULT_NTH, 0, n, &rule) ? (int)rule.value : 0;
}

/* ---- life -------------------------------------------------------------------------------------------- */

uint32_t soft_fault_qp_serial(void) {
    return ++qp_serial;
}

uint32_t soft_fault_id_serial(void) {
    return ++id_serial;
}

const struct soft_profile *soft_fault_profile(void) {
    struct soft_plan *wanted = soft_fault_environment();
    const struct soft_profile *profile = wanted ? wanted->profile : NULL;
    free(wanted);
    return profile;
}

bool soft_fault_fits(const struct soft_plan *wanted, struct soft_plan_error *error) {
    if (!wanted->profile || wanted->profile == soft_profile())
        return true;
    *error = (struct soft_plan_error){1, 1, "another profile is in force, or none"};
    return false;
}

void soft_fault_start(void) {
    qp_serial = id_serial = 0;
    struct soft_plan_error error;
    struct soft_plan *fresh = soft_fault_environment();
    if (fresh && soft_fault_fits(fresh, &error)) {
        soft_fault_install(fresh);
    } else if (fresh) {
        soft_fault_tell("ignored", &error);
        free(fresh);
    }
}

void soft_fault_stop(void) {
    soft_fault_clear();
    atomic_store(&pending_count, 0);
}

void soft_fault_forked(void) {
    atomic_store(&lock, 0);
    in_force = false;
    atomic_store(&pending_count, 0);
    soft_fault_update();
}

size_t soft_fault_log(char *out, size_t size) {
    spin_lock(&lock);
    size_t n = soft_fault_log_text(plan, out, size);
    spin_unlock(&lock);
    return n;
}
