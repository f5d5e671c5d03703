/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * fault_plan.c - reading a fault plan. No state, any thread.
 *
 * A rule is a list of words KEY=VALUE (or KEY); the first names the scope, the others the moment and
 * the effect. Whatever does not fit is refused with its line and column: a plan that silently does
 * nothing would make a test that cannot fail.
 */
#include "soft/fault_plan.h"

#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- names -------------------------------------------------------------------------------------- */

struct name {
    const char *text;
    int value;
};

#define WC(name)                                                                                   \
    { #name, IBV_WC_##name }
static const struct name statuses[] = {WC(LOC_LEN_ERR),        WC(LOC_QP_OP_ERR),
                                       WC(LOC_EEC_OP_ERR),     WC(LOC_PROT_ERR),
                                       WC(WR_FLUSH_ERR),       WC(MW_BIND_ERR),
                                       WC(BAD_RESP_ERR),       WC(LOC_ACCESS_ERR),
                                       WC(REM_INV_REQ_ERR),    WC(REM_ACCESS_ERR),
                                       WC(REM_OP_ERR),         WC(RETRY_EXC_ERR),
                                       WC(RNR_RETRY_EXC_ERR),  WC(LOC_RDD_VIOL_ERR),
                                       WC(REM_INV_RD_REQ_ERR), WC(REM_ABORT_ERR),
                                       WC(INV_EECN_ERR),       WC(INV_EEC_STATE_ERR),
                                       WC(FATAL_ERR),          WC(RESP_TIMEOUT_ERR),
                                       WC(GENERAL_ERR),        {NULL, 0}};
#undef WC

#define EV(name)                                                                                   \
    { #name, RDMA_CM_EVENT_##name }
static const struct name events[] = {EV(ADDR_RESOLVED),
                                     EV(ADDR_ERROR),
                                     EV(ROUTE_RESOLVED),
                                     EV(ROUTE_ERROR),
                                     EV(CONNECT_REQUEST),
                                     EV(CONNECT_RESPONSE),
                                     EV(CONNECT_ERROR),
                                     EV(UNREACHABLE),
                                     EV(REJECTED),
                                     EV(ESTABLISHED),
                                     EV(DISCONNECTED),
                                     EV(DEVICE_REMOVAL),
                                     EV(MULTICAST_JOIN),
                                     EV(MULTICAST_ERROR),
                                     EV(ADDR_CHANGE),
                                     EV(TIMEWAIT_EXIT),
                                     {"ADDRINFO_RESOLVED", 16},
                                     {"ADDRINFO_ERROR", 17},
                                     {"INTERNAL", 19},
                                     {NULL, 0}};
#undef EV

#define ER(name)                                                                                   \
    { #name, name }
static const struct name errors[] = {
    ER(ENOMEM),      ER(EAGAIN),        ER(EACCES),     ER(EBUSY),   ER(ECONNREFUSED),
    ER(ECONNRESET),  ER(EINTR),         ER(EINVAL),     ER(EIO),     ER(EMFILE),
    ER(ENETUNREACH), ER(EHOSTUNREACH),  ER(ENFILE),     ER(ENOBUFS), ER(ENODEV),
    ER(ENOSPC),      ER(ENXIO),         ER(EOPNOTSUPP), ER(EPERM),   ER(ETIMEDOUT),
    ER(EADDRINUSE),  ER(EADDRNOTAVAIL), {NULL, 0}};
#undef ER

#define SOFT_FAULT_X(name) {#name, FAULT_CALL_##name},
static const struct name calls[] = {SOFT_FAULT_CALLS(SOFT_FAULT_X){NULL, 0}};
#undef SOFT_FAULT_X

/* In the order of enum cm_wire_type. */
static const struct name messages[] = {{"REQ", 0},      {"MRA", 1},  {"REP", 2},  {"RTU", 3},
                                       {"REJ", 4},      {"DREQ", 5}, {"DREP", 6}, {"SIDR_REQ", 7},
                                       {"SIDR_REP", 8}, {NULL, 0}};
static const struct name actions[] = {{"remove", DEVICE_REMOVE},
                                      {"restore", DEVICE_RESTORE},
                                      {"port-down", DEVICE_PORT_DOWN},
                                      {"port-up", DEVICE_PORT_UP},
                                      {"address-change", DEVICE_ADDRESS_CHANGE},
                                      {NULL, 0}};
static const struct name orders[] = {{"fatal-first", ORDER_FATAL_FIRST},
                                     {"removal-first", ORDER_REMOVAL_FIRST},
                                     {"fatal-only", ORDER_FATAL_ONLY},
                                     {"removal-only", ORDER_REMOVAL_ONLY},
                                     {NULL, 0}};
static const struct name scopes[] = {{"qp", FAULT_QP},         {"id", FAULT_ID},
                                     {"cm", FAULT_CM},         {"call", FAULT_CALL},
                                     {"device", FAULT_DEVICE}, {NULL, 0}};
static const struct name whens[] = {{"send", FAULT_SEND},
                                    {"recv", FAULT_RECV},
                                    {"resolve_addr", FAULT_RESOLVE_ADDR},
                                    {"resolve_route", FAULT_RESOLVE_ROUTE},
                                    {"connect", FAULT_CONNECT},
                                    {"accept", FAULT_ACCEPT},
                                    {"after", FAULT_AFTER},
                                    {"n", FAULT_NTH},
                                    {NULL, 0}};

static const char *name_of(const struct name *list, int value) {
    for (; list->text; list++)
        if (list->value == value)
            return list->text;
    return "?";
}

const char *soft_fault_when_name(enum soft_fault_when when) {
    return name_of(whens, (int)when);
}
const char *soft_fault_status_name(int status) {
    return name_of(statuses, status);
}
const char *soft_fault_event_name(int event) {
    return name_of(events, event);
}
const char *soft_fault_errno_name(int error) {
    return name_of(errors, error);
}
const char *soft_fault_call_name(int call) {
    return name_of(calls, call);
}
const char *soft_fault_message_name(int type) {
    return name_of(messages, type);
}
const char *soft_device_what_name(enum soft_device_what what) {
    return name_of(actions, (int)what);
}

/* ---- words -------------------------------------------------------------------------------------- */

struct word { /* KEY or KEY=VALUE, copied out of the text */
    char key[24], value[80];
    bool has_value;
    unsigned column, value_column;
};

struct reader {
    const char *at, *line_start;
    unsigned line;
    struct soft_plan_error *error;
};

static bool wrong(struct reader *r, unsigned column, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static bool wrong(struct reader *r, unsigned column, const char *format, ...) {
    va_list args;
    va_start(args, format);
    r->error->line = r->line;
    r->error->column = column;
    vsnprintf(r->error->reason, sizeof r->error->reason, format, args);
    va_end(args);
    return false;
}

static bool ends_word(char c) {
    return c == '\0' || c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == ';' || c == '#';
}

/* The next word of this rule. False: there is none, or it is wrong (error->line is set then). */
static bool next_word(struct reader *r, struct word *w) {
    while (*r->at == ' ' || *r->at == '\t' || *r->at == '\r')
        r->at++;
    if (ends_word(*r->at))
        return false;
    memset(w, 0, sizeof *w);
    w->column = (unsigned)(r->at - r->line_start) + 1;
    size_t n = 0;
    for (; !ends_word(*r->at) && *r->at != '='; r->at++) {
        if ((unsigned char)*r->at < 0x20 || (unsigned char)*r->at > 0x7e)
            return wrong(r, (unsigned)(r->at - r->line_start) + 1, "a byte that is no text");
        if (n + 1 == sizeof w->key)
            return wrong(r, w->column, "no word is that long");
        w->key[n++] = *r->at;
    }
    if (*r->at != '=')
        return true;
    r->at++;
    w->has_value = true;
    w->value_column = (unsigned)(r->at - r->line_start) + 1;
    for (n = 0; !ends_word(*r->at); r->at++) {
        if ((unsigned char)*r->at < 0x20 || (unsigned char)*r->at > 0x7e)
            return wrong(r, (unsigned)(r->at - r->line_start) + 1, "a byte that is no text");
        if (n + 1 == sizeof w->value)
            return wrong(r, w->value_column, "no value is that long");
        w->value[n++] = *r->at;
    }
    if (n == 0)
        return wrong(r, w->value_column, "the value of %s is missing", w->key);
    return true;
}

/* ---- values ------------------------------------------------------------------------------------- */

static bool look_up(struct reader *r, const struct word *w, const struct name *list, int *out) {
    for (; list->text; list++)
        if (strcmp(list->text, w->value) == 0) {
            *out = list->value;
            return true;
        }
    return wrong(r, w->value_column, "%s knows no '%s'", w->key, w->value);
}

/* Digits (or 0x and hex digits) at *text, up to max; leaves *text behind them. */
static bool digits(const char **text, uint64_t max, uint64_t *out) {
    bool hex = (*text)[0] == '0' && (*text)[1] == 'x';
    const char *at = *text + (hex ? 2 : 0);
    if (hex ? !strchr("0123456789abcdefABCDEF", *at) || !*at : *at < '0' || *at > '9')
        return false;
    char *end;
    errno = 0;
    unsigned long long value = strtoull(at, &end, hex ? 16 : 10);
    if (errno || value > max)
        return false;
    *text = end;
    *out = value;
    return true;
}

static bool number(struct reader *r, const struct word *w, uint64_t min, uint64_t max,
                   uint64_t *out) {
    const char *at = w->value;
    if (!digits(&at, max, out) || *at || *out < min)
        return wrong(r, w->value_column, "%s: '%s' is not a number from %llu to %llu", w->key,
                     w->value, (unsigned long long)min, (unsigned long long)max);
    return true;
}

static bool who(struct reader *r, const struct word *w, struct soft_rule *rule) {
    uint64_t value = 0;
    rule->by_number = rule->scope == FAULT_QP && strncmp(w->value, "0x", 2) == 0;
    if (strcmp(w->value, "*") != 0 &&
        !number(r, w, 1, rule->by_number ? 0xffffff : UINT32_MAX, &value))
        return false;
    rule->who = (uint32_t)value;
    return true;
}

/* * | N | N.. | N..M */
static bool range(struct reader *r, const struct word *w, struct soft_rule *rule) {
    const char *at = w->value;
    uint64_t first = 1, last = UINT32_MAX;
    bool ok = strcmp(at, "*") == 0;
    if (!ok && digits(&at, UINT32_MAX, &first) && first > 0) {
        last = first;
        ok = *at == '\0';
        if (strncmp(at, "..", 2) == 0) {
            at += 2;
            last = UINT32_MAX;
            ok = *at == '\0' || (digits(&at, UINT32_MAX, &last) && !*at && last >= first);
        }
    }
    if (!ok)
        return wrong(r, w->value_column, "%s: '%s' is none of N, N..M, N.., *", w->key, w->value);
    rule->first = (uint32_t)first;
    rule->last = (uint32_t)last;
    return true;
}

static bool duration(struct reader *r, const struct word *w, uint64_t *ns) {
    const char *at = w->value;
    uint64_t value, unit = 0;
    if (digits(&at, 1000000000, &value))
        unit = !strcmp(at, "us")   ? 1000
               : !strcmp(at, "ms") ? 1000000
               : !strcmp(at, "s")  ? 1000000000
                                   : 0;
    if (!unit || value == 0 || value > 60000000000u / unit)
        return wrong(r, w->value_column, "%s: '%s' is no time from 1us to 60s", w->key, w->value);
    *ns = value * unit;
    return true;
}

/* -110, 28, -ETIMEDOUT */
static bool event_status(struct reader *r, const struct word *w, int64_t *out) {
    bool minus = w->value[0] == '-';
    const char *at = w->value + minus;
    uint64_t value;
    if (digits(&at, INT32_MAX, &value) && !*at) {
        *out = minus ? -(int64_t)value : (int64_t)value;
        return true;
    }
    for (const struct name *e = errors; e->text; e++)
        if (strcmp(e->text, w->value + minus) == 0) {
            *out = minus ? -e->value : e->value;
            return true;
        }
    return wrong(r, w->value_column, "status: '%s' is neither a number nor an errno", w->value);
}

static bool address(struct reader *r, const struct word *w, struct sockaddr_storage *out) {
    struct sockaddr_in *v4 = (struct sockaddr_in *)out;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)out;
    memset(out, 0, sizeof *out);
    if (inet_pton(AF_INET, w->value, &v4->sin_addr) == 1)
        out->ss_family = AF_INET;
    else if (inet_pton(AF_INET6, w->value, &v6->sin6_addr) == 1)
        out->ss_family = AF_INET6;
    else
        return wrong(r, w->value_column, "address: '%s' is no IP address", w->value);
    return true;
}

/* ---- a rule ------------------------------------------------------------------------------------- */

struct draft {
    struct soft_rule rule;
    struct word what; /* the word that gave the effect */
    bool has_when, has_status;
    unsigned status_column, order_column;
};

static bool take_scope(struct reader *r, const struct word *w, struct draft *d) {
    struct soft_rule *rule = &d->rule;
    int value = -1;
    for (const struct name *s = scopes; s->text; s++)
        if (strcmp(s->text, w->key) == 0)
            value = s->value;
    if (value < 0)
        return wrong(r, w->column, "a rule begins with qp=, id=, cm=, call= or device=, not '%s'",
                     w->key);
    if (!w->has_value)
        return wrong(r, w->column, "%s needs a value: %s=...", w->key, w->key);
    rule->scope = (enum soft_fault_scope)value;
    rule->first = 1;
    rule->last = UINT32_MAX;
    rule->when = FAULT_NTH;
    switch (rule->scope) {
    case FAULT_QP:
    case FAULT_ID:
        return who(r, w, rule);
    case FAULT_CM:
        if (strcmp(w->value, "*") == 0)
            return true;
        if (!look_up(r, w, messages, &value))
            return false;
        rule->who = (uint32_t)value + 1;
        return true;
    case FAULT_CALL:
        if (!look_up(r, w, calls, &value))
            return false;
        rule->who = (uint32_t)value;
        return true;
    case FAULT_DEVICE:
        if (!look_up(r, w, actions, &value))
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
    case FAULT_CALL:
        return when == FAULT_NTH;
    case FAULT_DEVICE:
        break;
    }
    return false;
}

static bool take_when(struct reader *r, const struct word *w, struct draft *d,
                      enum soft_fault_when when) {
    if (!when_fits(d->rule.scope, when))
        return wrong(r, w->column, "%s= does not go with %s=", w->key,
                     name_of(scopes, (int)d->rule.scope));
    if (d->has_when)
        return wrong(r, w->column, "the moment is given twice");
    d->has_when = true;
    d->rule.when = when;
    if (when == FAULT_AFTER)
        return look_up(r, w, events, &d->rule.after);
    return range(r, w, &d->rule);
}

static bool take_what(struct reader *r, const struct word *w, struct draft *d) {
    struct soft_rule *rule = &d->rule;
    uint64_t count = 0;
    int value = 0;
    bool ok = false;
    if (rule->what != FAULT_NONE)
        return wrong(r, w->column, "the effect is given twice");
    d->what = *w;
    if (strcmp(w->key, "loss") == 0) {
        rule->what = FAULT_LOSS;
        ok = !w->has_value || number(r, w, 1, 100, &count);
        rule->value = (int64_t)count;
        return ok;
    }
    if (!w->has_value)
        return wrong(r, w->column, "'%s' means nothing here", w->key);
    if (strcmp(w->key, "delay") == 0) {
        rule->what = FAULT_DELAY;
        return duration(r, w, &rule->ns);
    }
    if (strcmp(w->key, "rnr") == 0) {
        rule->what = FAULT_RNR;
        ok = number(r, w, 1, 1000, &count);
        rule->value = (int64_t)count;
        return ok;
    }
    if (strcmp(w->key, "errno") == 0) {
        rule->what = FAULT_ERRNO;
        ok = look_up(r, w, errors, &value);
        rule->value = ok ? value : 0;
        return ok;
    }
    if (strcmp(w->key, "event") == 0) {
        rule->what = FAULT_EVENT;
        return look_up(r, w, events, &rule->event);
    }
    if (strcmp(w->key, "device") == 0) {
        rule->what = FAULT_ACTION;
        ok = look_up(r, w, actions, &value);
        rule->action.what = ok ? (enum soft_device_what)value : DEVICE_REMOVE;
        return ok;
    }
    return wrong(r, w->column, "'%s' means nothing here", w->key);
}

static bool take_word(struct reader *r, const struct word *w, struct draft *d) {
    struct soft_rule *rule = &d->rule;
    int value = 0;
    for (const struct name *n = whens; n->text; n++)
        if (strcmp(n->text, w->key) == 0 && w->has_value)
            return take_when(r, w, d, (enum soft_fault_when)n->value);
    if (!w->has_value)
        return take_what(r, w, d);
    if (strcmp(w->key, "status") == 0) {
        if (d->has_status)
            return wrong(r, w->column, "status is given twice");
        d->has_status = true;
        d->status_column = w->column;
        if (rule->scope == FAULT_ID)
            return event_status(r, w, &rule->value);
        if (rule->what != FAULT_NONE)
            return wrong(r, w->column, "the effect is given twice");
        rule->what = FAULT_STATUS;
        d->what = *w;
        if (!look_up(r, w, statuses, &value))
            return false;
        rule->value = value;
        return true;
    }
    if (strcmp(w->key, "order") == 0) {
        if (rule->what != FAULT_ACTION || rule->action.what != DEVICE_REMOVE)
            return wrong(r, w->column, "order= goes with device=remove");
        if (!look_up(r, w, orders, &value))
            return false;
        rule->action.order = (enum soft_device_order)value;
        return true;
    }
    if (strcmp(w->key, "address") == 0) {
        if (rule->what != FAULT_ACTION || rule->action.what != DEVICE_ADDRESS_CHANGE)
            return wrong(r, w->column, "address= goes with device=address-change");
        return address(r, w, &rule->action.address);
    }
    return take_what(r, w, d);
}

static bool what_fits(const struct soft_rule *rule) {
    switch (rule->what) {
    case FAULT_NONE:
        return false;
    case FAULT_STATUS:
        return rule->scope == FAULT_QP;
    case FAULT_DELAY:
        return rule->scope == FAULT_QP || rule->scope == FAULT_CM;
    case FAULT_LOSS:
        return (rule->scope == FAULT_QP && rule->when == FAULT_SEND) ||
               (rule->scope == FAULT_CM && rule->value == 0);
    case FAULT_RNR:
        return rule->scope == FAULT_QP && rule->when == FAULT_RECV;
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
static bool settle_event(struct reader *r, struct draft *d) {
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
        return wrong(r, d->what.column, "when: after=EVENT is missing");
    if (rule->event == RDMA_CM_EVENT_CONNECT_REQUEST)
        return wrong(r, d->what.value_column, "a request cannot be made up");
    bool fits = rule->when == FAULT_AFTER || (rule->when == FAULT_RESOLVE_ADDR && addr) ||
                (rule->when == FAULT_RESOLVE_ROUTE && route) ||
                ((rule->when == FAULT_CONNECT || rule->when == FAULT_ACCEPT) && conn);
    return fits || wrong(r, d->what.value_column, "%s does not end with %s",
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

static bool settle(struct reader *r, struct draft *d, unsigned end_column) {
    struct soft_rule *rule = &d->rule;
    if (rule->what == FAULT_NONE && !d->has_status)
        return wrong(r, end_column, "the rule has no effect");
    if (rule->scope == FAULT_ID && d->has_status && rule->what != FAULT_EVENT)
        return wrong(r, d->status_column, "status= goes with event=");
    if (rule->scope == FAULT_ID && rule->what == FAULT_EVENT && !settle_event(r, d))
        return false;
    if (rule->what == FAULT_EVENT && !d->has_status)
        rule->value = usual_status(rule->event);
    if ((rule->scope == FAULT_QP || rule->scope == FAULT_ID) && !d->has_when)
        return wrong(r, end_column,
                     rule->scope == FAULT_QP ? "when: send=N or recv=N is missing"
                                             : "when: the call or after=EVENT is missing");
    return what_fits(rule) || wrong(r, d->what.column, "%s does not go with %s", d->what.key,
                                    rule->scope == FAULT_QP ? soft_fault_when_name(rule->when)
                                                            : name_of(scopes, (int)rule->scope));
}

/* One rule, or nothing at all: *some says which. */
static bool take_rule(struct reader *r, struct soft_rule *out, bool *some) {
    struct draft d = {.rule = {.line = r->line}};
    struct word w;
    *some = next_word(r, &w);
    if (!*some)
        return r->error->line == 0;
    if (!take_scope(r, &w, &d))
        return false;
    while (next_word(r, &w))
        if (!take_word(r, &w, &d))
            return false;
    if (r->error->line || !settle(r, &d, (unsigned)(r->at - r->line_start) + 1))
        return false;
    *out = d.rule;
    return true;
}

struct soft_plan *soft_plan_parse(const char *text, struct soft_plan_error *error) {
    memset(error, 0, sizeof *error);
    struct reader r = {.at = text, .line_start = text, .line = 1, .error = error};
    struct soft_plan *plan = calloc(1, sizeof *plan + SOFT_PLAN_RULES * sizeof plan->rule[0]);
    if (!plan) {
        snprintf(error->reason, sizeof error->reason, "no memory");
        return NULL;
    }
    while (*r.at) {
        struct soft_rule rule;
        bool some;
        if (!take_rule(&r, &rule, &some))
            goto refuse;
        if (some && plan->count == SOFT_PLAN_RULES) {
            wrong(&r, 1, "more than %d rules", SOFT_PLAN_RULES);
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
    if (plan->count)
        return plan;
    wrong(&r, 1, "the plan is empty");
refuse:
    free(plan);
    return NULL;
}
