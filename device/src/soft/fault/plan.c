/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * plan.c - reading a fault plan. No state, any thread.
 *
 * A rule is a list of words KEY=VALUE (or KEY); the first names the scope, the others the moment and
 * the effect. A word that does not fit is refused with its line and column: a plan that silently has
 * no effect would make a test that cannot fail.
 */
#include "soft/fault/plan.h"

#include <errno.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "soft/fault/lexer.h"
#include "soft/fault/names.h"
#include "soft/object/profile.h"

/* ---- a rule ------------------------------------------------------------------------------------- */

struct draft {
    struct soft_rule rule;
    struct soft_lexer_word what; /* the word that gave the effect */
    bool has_when, has_status;
    unsigned status_column, order_column;
};

static bool take_scope(struct soft_lexer *r, const struct soft_lexer_word *w, struct draft *d) {
    struct soft_rule *rule = &d->rule;
    int value = -1;
    for (const struct soft_fault_word *s = soft_fault_scopes; s->text; s++)
        if (strcmp(s->text, w->key) == 0)
            value = s->value;
    if (value < 0)
        return soft_lexer_error(
            r, w->column, "a rule begins with qp=, id=, cm=, cm_in=, call= or device=, not '%s'",
            w->key);
    if (!w->has_value)
        return soft_lexer_error(r, w->column, "%s needs a value: %s=...", w->key, w->key);
    rule->scope = (enum soft_fault_scope)value;
    rule->first = 1;
    rule->last = UINT32_MAX;
    rule->when = FAULT_NTH;
    switch (rule->scope) {
    case FAULT_QP:
    case FAULT_ID:
        return soft_lexer_address_set(r, w, rule);
    case FAULT_CM:
    case FAULT_CM_IN:
        if (strcmp(w->value, "*") == 0)
            return true;
        if (!soft_lexer_look_up(r, w, soft_fault_messages, &value))
            return false;
        rule->who = (uint32_t)value + 1;
        return true;
    case FAULT_CALL:
        if (!soft_lexer_look_up(r, w, soft_fault_calls, &value))
            return false;
        rule->who = (uint32_t)value;
        return true;
    case FAULT_DEVICE:
        if (!soft_lexer_look_up(r, w, soft_fault_actions, &value))
            return false;
        rule->what = FAULT_ACTION;
        rule->action.what = (enum soft_device_what)value;
        d->what = *w;
        return true;
    }
    return false;
}

static bool when_fits(enum soft_fault_scope scope, enum soft_fault_when when) {
    switch (scope) {
    case FAULT_QP:
        return when == FAULT_SEND || when == FAULT_RECV;
    case FAULT_ID:
        return when >= FAULT_RESOLVE_ADDR && when <= FAULT_AFTER;
    case FAULT_CM:
    case FAULT_CM_IN:
    case FAULT_CALL:
        return when == FAULT_NTH;
    case FAULT_DEVICE:
        break;
    }
    return false;
}

static bool take_when(struct soft_lexer *r, const struct soft_lexer_word *w, struct draft *d,
                      enum soft_fault_when when) {
    if (!when_fits(d->rule.scope, when))
        return soft_lexer_error(r, w->column, "%s= does not go with %s=", w->key,
                                soft_fault_name_of(soft_fault_scopes, (int)d->rule.scope));
    if (d->has_when)
        return soft_lexer_error(r, w->column, "the moment is given twice");
    d->has_when = true;
    d->rule.when = when;
    if (when == FAULT_AFTER)
        return soft_lexer_look_up(r, w, soft_fault_events, &d->rule.after);
    return soft_lexer_range(r, w, &d->rule);
}

static bool take_what(struct soft_lexer *r, const struct soft_lexer_word *w, struct draft *d) {
    struct soft_rule *rule = &d->rule;
    uint64_t count = 0;
    int value = 0;
    bool ok = false;
    if (rule->what != FAULT_NONE)
        return soft_lexer_error(r, w->column, "the effect is given twice");
    d->what = *w;
    if (strcmp(w->key, "loss") == 0) {
        rule->what = FAULT_LOSS;
        ok = !w->has_value || soft_lexer_number(r, w, 1, 100, &count);
        rule->value = (int64_t)count;
        return ok;
    }
    if (!w->has_value && (strcmp(w->key, "cut") == 0 || strcmp(w->key, "corrupt") == 0)) {
        rule->what = w->key[1] == 'u' ? FAULT_CUT : FAULT_CORRUPT;
        return true;
    }
    if (!w->has_value)
        return soft_lexer_error(r, w->column, "'%s' means nothing here", w->key);
    if (strcmp(w->key, "delay") == 0 || strcmp(w->key, "stall") == 0) {
        rule->what = w->key[0] == 'd' ? FAULT_DELAY : FAULT_STALL;
        return soft_lexer_duration(r, w, &rule->ns);
    }
    if (strcmp(w->key, "rnr") == 0) {
        rule->what = FAULT_RNR;
        ok = soft_lexer_number(r, w, 1, 1000, &count);
        rule->value = (int64_t)count;
        return ok;
    }
    if (strcmp(w->key, "errno") == 0) {
        rule->what = FAULT_ERRNO;
        ok = soft_lexer_look_up(r, w, soft_fault_errors, &value);
        rule->value = ok ? value : 0;
        return ok;
    }
    if (strcmp(w->key, "event") == 0) {
        rule->what = FAULT_EVENT;
        return soft_lexer_look_up(r, w, soft_fault_events, &rule->event);
    }
    if (strcmp(w->key, "device") == 0) {
        rule->what = FAULT_ACTION;
        ok = soft_lexer_look_up(r, w, soft_fault_actions, &value);
        rule->action.what = ok ? (enum soft_device_what)value : DEVICE_REMOVE;
        return ok;
    }
    return soft_lexer_error(r, w->column, "'%s' means nothing here", w->key);
}

static bool take_word(struct soft_lexer *r, const struct soft_lexer_word *w, struct draft *d) {
    struct soft_rule *rule = &d->rule;
    int value = 0;
    for (const struct soft_fault_word *n = soft_fault_whens; n->text; n++)
        if (strcmp(n->text, w->key) == 0 && w->has_value)
            return take_when(r, w, d, (enum soft_fault_when)n->value);
    if (!w->has_value)
        return take_what(r, w, d);
    if (strcmp(w->key, "status") == 0) {
        if (d->has_status)
            return soft_lexer_error(r, w->column, "status is given twice");
        d->has_status = true;
        d->status_column = w->column;
        if (rule->scope == FAULT_ID)
            return soft_lexer_event_status(r, w, &rule->value);
        if (rule->what != FAULT_NONE)
            return soft_lexer_error(r, w->column, "the effect is given twice");
        rule->what = FAULT_STATUS;
        d->what = *w;
        if (!soft_lexer_look_up(r, w, soft_fault_statuses, &value))
            return false;
        rule->value = value;
        return true;
    }
    if (strcmp(w->key, "order") == 0) {
        if (rule->what != FAULT_ACTION || rule->action.what != DEVICE_REMOVE)
            return soft_lexer_error(r, w->column, "order= goes with device=remove");
        if (!soft_lexer_look_up(r, w, soft_fault_orders, &value))
            return false;
        rule->action.order = (enum soft_device_order)value;
        return true;
    }
    if (strcmp(w->key, "address") == 0) {
        if (rule->what != FAULT_ACTION || rule->action.what != DEVICE_ADDRESS_CHANGE)
            return soft_lexer_error(r, w->column, "address= goes with device=address-change");
        return soft_lexer_address(r, w, &rule->action.address);
    }
    return take_what(r, w, d);
}

static bool what_fits(const struct soft_rule *rule) {
    bool message = rule->scope == FAULT_CM || rule->scope == FAULT_CM_IN;
    switch (rule->what) {
    case FAULT_NONE:
        return false;
    case FAULT_STATUS:
        return rule->scope == FAULT_QP;
    case FAULT_DELAY:
        return rule->scope == FAULT_QP || message;
    case FAULT_LOSS:
        return (rule->scope == FAULT_QP && rule->when == FAULT_SEND) ||
               (message && rule->value == 0);
    case FAULT_RNR:
        return rule->scope == FAULT_QP && rule->when == FAULT_RECV;
    case FAULT_CUT:
    case FAULT_CORRUPT:
        return rule->scope == FAULT_QP && rule->when == FAULT_SEND;
    case FAULT_STALL:
        return rule->scope == FAULT_QP;
    case FAULT_EVENT:
        return rule->scope == FAULT_ID;
    case FAULT_ERRNO:
        return rule->scope == FAULT_CALL;
    case FAULT_ACTION:
        return rule->scope == FAULT_QP || rule->scope == FAULT_ID || rule->scope == FAULT_DEVICE;
    }
    return false;
}

/* An event that a call fails with names the call, where none was named. */
static bool settle_event(struct soft_lexer *r, struct draft *d) {
    struct soft_rule *rule = &d->rule;
    bool addr = rule->event == RDMA_CM_EVENT_ADDR_ERROR;
    bool route = rule->event == RDMA_CM_EVENT_ROUTE_ERROR;
    bool conn = rule->event == RDMA_CM_EVENT_UNREACHABLE || rule->event == RDMA_CM_EVENT_REJECTED ||
                rule->event == RDMA_CM_EVENT_CONNECT_ERROR;
    if (!d->has_when && (addr || route || conn)) {
        rule->when = addr ? FAULT_RESOLVE_ADDR : route ? FAULT_RESOLVE_ROUTE : FAULT_CONNECT;
        d->has_when = true;
    }
    if (!d->has_when)
        return soft_lexer_error(r, d->what.column, "when: after=EVENT is missing");
    if (rule->event == RDMA_CM_EVENT_CONNECT_REQUEST)
        return soft_lexer_error(r, d->what.value_column, "a request cannot be made up");
    bool fits = rule->when == FAULT_AFTER || (rule->when == FAULT_RESOLVE_ADDR && addr) ||
                (rule->when == FAULT_RESOLVE_ROUTE && route) ||
                ((rule->when == FAULT_CONNECT || rule->when == FAULT_ACCEPT) && conn);
    return fits ||
           soft_lexer_error(r, d->what.value_column, "%s does not end with %s",
                            soft_fault_when_name(rule->when), soft_fault_event_name(rule->event));
}

static int usual_status(int event) {
    switch (event) {
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_MULTICAST_ERROR:
        return -ETIMEDOUT;
    case RDMA_CM_EVENT_REJECTED:
        return 28; /* by the consumer */
    default:
        return 0;
    }
}

static bool settle(struct soft_lexer *r, struct draft *d, unsigned end_column) {
    struct soft_rule *rule = &d->rule;
    if (rule->what == FAULT_NONE && !d->has_status)
        return soft_lexer_error(r, end_column, "the rule has no effect");
    if (rule->scope == FAULT_ID && d->has_status && rule->what != FAULT_EVENT)
        return soft_lexer_error(r, d->status_column, "status= goes with event=");
    if (rule->scope == FAULT_ID && rule->what == FAULT_EVENT && !settle_event(r, d))
        return false;
    if (rule->what == FAULT_EVENT && !d->has_status)
        rule->value = usual_status(rule->event);
    if ((rule->scope == FAULT_QP || rule->scope == FAULT_ID) && !d->has_when)
        return soft_lexer_error(r, end_column,
                                rule->scope == FAULT_QP
                                    ? "when: send=N or recv=N is missing"
                                    : "when: the call or after=EVENT is missing");
    return what_fits(rule) ||
           soft_lexer_error(r, d->what.column, "%s does not go with %s", d->what.key,
                            rule->scope == FAULT_QP
                                ? soft_fault_when_name(rule->when)
                                : soft_fault_name_of(soft_fault_scopes, (int)rule->scope));
}

/* profile=NAME, by itself: not a rule, but what they are all about. */
static bool take_profile(struct soft_lexer *r, const struct soft_lexer_word *w,
                         struct soft_plan *plan) {
    struct soft_lexer_word more;
    if (plan->profile)
        return soft_lexer_error(r, w->column, "the profile is given twice");
    plan->profile = w->has_value ? soft_profile_find(w->value) : NULL;
    if (!plan->profile)
        return soft_lexer_error(r, w->has_value ? w->value_column : w->column,
                                "a profile is one of %s", soft_profile_names());
    if (soft_lexer_next(r, &more))
        return soft_lexer_error(r, more.column, "nothing goes with profile=");
    return r->error->line == 0;
}

/* One rule, or nothing at all: *some says which. */
static bool take_rule(struct soft_lexer *r, struct soft_plan *plan, struct soft_rule *out,
                      bool *some) {
    struct draft d = {.rule = {.line = r->line}};
    struct soft_lexer_word w;
    *some = soft_lexer_next(r, &w);
    if (!*some)
        return r->error->line == 0;
    if (strcmp(w.key, "profile") == 0) {
        *some = false;
        return take_profile(r, &w, plan);
    }
    if (!take_scope(r, &w, &d))
        return false;
    while (soft_lexer_next(r, &w))
        if (!take_word(r, &w, &d))
            return false;
    if (r->error->line || !settle(r, &d, (unsigned)(r->at - r->line_start) + 1))
        return false;
    *out = d.rule;
    return true;
}

struct soft_plan *soft_plan_parse(const char *text, struct soft_plan_error *error) {
    memset(error, 0, sizeof *error);
    struct soft_lexer r = {.at = text, .line_start = text, .line = 1, .error = error};
    struct soft_plan *plan = calloc(1, sizeof *plan + SOFT_PLAN_RULES * sizeof plan->rule[0]);
    if (!plan) {
        snprintf(error->reason, sizeof error->reason, "no memory");
        return NULL;
    }
    while (*r.at) {
        struct soft_rule rule;
        bool some;
        if (!take_rule(&r, plan, &rule, &some))
            goto refuse;
        if (some && plan->count == SOFT_PLAN_RULES) {
            soft_lexer_error(&r, 1, "more than %d rules", SOFT_PLAN_RULES);
            goto refuse;
        }
        if (some)
            plan->rule[plan->count++] = rule;
        if (*r.at == '#')
            r.at += strcspn(r.at, "\n");
        if (*r.at == '\n') {
            r.line++;
            r.line_start = r.at + 1;
        }
        if (*r.at)
            r.at++; /* the newline or semicolon */
    }
    if (plan->count || plan->profile)
        return plan;
    soft_lexer_error(&r, 1, "the plan is empty");
refuse:
    free(plan);
    return NULL;
}
