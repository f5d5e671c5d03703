/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * log.c - the log of decisions: the latest of each of a bounded number of objects.
 * Under the spin lock of inject.c, which calls it; nothing is allocated or waited for.
 */
#include "soft/fault/log.h"
#include "soft/fault/names.h"

#include <stdio.h>
#include <string.h>

#define LOGS 256   /* objects with a log of their own */
#define ENTRIES 64 /* the latest decisions of each */

struct entry {
    uint32_t n;
    uint16_t rule;
    int16_t detail;
};

struct log {
    enum soft_fault_scope scope;
    uint32_t who, total;
    struct entry entry[ENTRIES];
};

static struct log logs[LOGS];
static unsigned log_count, unlogged;

void soft_fault_log_clear(void) {
    log_count = unlogged = 0;
}

void soft_fault_log_note(enum soft_fault_scope scope, uint32_t who, unsigned rule, int detail,
                         uint32_t n) {
    struct log *log = NULL;
    for (unsigned i = 0; i < log_count && !log; i++)
        if (logs[i].scope == scope && logs[i].who == who)
            log = &logs[i];
    if (!log && log_count < LOGS) {
        log = &logs[log_count++];
        log->scope = scope;
        log->who = who;
        log->total = 0;
    }
    if (log)
        log->entry[log->total++ % ENTRIES] =
            (struct entry){.n = n, .rule = (uint16_t)rule, .detail = (int16_t)detail};
    else
        unlogged++;
}

static void object_text(char *out, size_t size, const struct log *log, const struct entry *e,
                        const struct soft_rule *rule) {
    switch (log->scope) {
    case FAULT_QP:
        snprintf(out, size, "qp#%u %s %u", log->who, soft_fault_when_name(rule->when), e->n);
        break;
    case FAULT_ID:
        if (rule->when == FAULT_AFTER)
            snprintf(out, size, "id#%u after %s", log->who, soft_fault_event_name(rule->after));
        else
            snprintf(out, size, "id#%u %s %u", log->who, soft_fault_when_name(rule->when), e->n);
        break;
    case FAULT_CM:
    case FAULT_CM_IN:
        snprintf(out, size, "%s id#%u %s %u", log->scope == FAULT_CM ? "cm" : "cm_in", log->who,
                 soft_fault_message_name(e->detail), e->n);
        break;
    case FAULT_CALL:
        snprintf(out, size, "call %s %u", soft_fault_call_name((int)log->who), e->n);
        break;
    case FAULT_DEVICE:
        break;
    }
}

static void what_text(char *out, size_t size, const struct soft_rule *rule) {
    switch (rule->what) {
    case FAULT_STATUS:
        snprintf(out, size, "status %s", soft_fault_status_name((int)rule->value));
        break;
    case FAULT_DELAY:
        snprintf(out, size, "delay %lluus", (unsigned long long)rule->ns / 1000);
        break;
    case FAULT_LOSS:
        snprintf(out, size, rule->value ? "loss %d" : "loss", (int)rule->value);
        break;
    case FAULT_RNR:
        snprintf(out, size, "rnr %d", (int)rule->value);
        break;
    case FAULT_CUT:
        snprintf(out, size, "cut");
        break;
    case FAULT_CORRUPT:
        snprintf(out, size, "corrupt");
        break;
    case FAULT_STALL:
        snprintf(out, size, "stall %lluus", (unsigned long long)rule->ns / 1000);
        break;
    case FAULT_EVENT:
        snprintf(out, size, "event %s %d", soft_fault_event_name(rule->event), (int)rule->value);
        break;
    case FAULT_ERRNO:
        snprintf(out, size, "errno %s", soft_fault_errno_name((int)rule->value));
        break;
    case FAULT_ACTION:
        snprintf(out, size, "device %s", soft_device_what_name(rule->action.what));
        break;
    case FAULT_NONE:
        break;
    }
}

static int entry_text(const struct soft_plan *plan, char *out, size_t size, const struct log *log,
                      const struct entry *e) {
    const struct soft_rule *rule = &plan->rule[e->rule];
    char object[48] = "", what[48] = "";
    object_text(object, sizeof object, log, e, rule);
    what_text(what, sizeof what, rule);
    return snprintf(out, size, "%s: %s (line %u)\n", object, what, rule->line);
}

size_t soft_fault_log_text(const struct soft_plan *plan, char *out, size_t size) {
    size_t at = 0;
    out[0] = '\0';
    /* Objects in the order of their numbers: which one met its first fault first is chance. */
    uint64_t after = 0;
    for (unsigned turn = 0; turn < log_count; turn++) {
        const struct log *log = NULL;
        uint64_t least = UINT64_MAX;
        for (unsigned i = 0; i < log_count; i++) {
            uint64_t key = ((uint64_t)logs[i].scope << 32 | logs[i].who) + 1;
            if (key > after && key < least) {
                least = key;
                log = &logs[i];
            }
        }
        if (!log)
            break;
        after = least;
        uint32_t first = log->total > ENTRIES ? log->total - ENTRIES : 0;
        for (uint32_t i = first; i < log->total; i++) {
            char line[160];
            int n = entry_text(plan, line, sizeof line, log, &log->entry[i % ENTRIES]);
            if (n <= 0 || at + (size_t)n >= size)
                break;
            memcpy(out + at, line, (size_t)n + 1);
            at += (size_t)n;
        }
    }
    return at;
}
