/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * lexer.c - reading a plan word by word: KEY or KEY=VALUE, numbers, times, addresses. An
 * error is noted with its line and column. No state, any thread.
 */
#include "soft/fault/lexer.h"
#include "soft/fault/names.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool soft_lexer_error(struct soft_lexer *r, unsigned column, const char *format, ...) {
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
bool soft_lexer_next(struct soft_lexer *r, struct soft_lexer_word *w) {
    while (*r->at == ' ' || *r->at == '\t' || *r->at == '\r')
        r->at++;
    if (ends_word(*r->at))
        return false;
    memset(w, 0, sizeof *w);
    w->column = (unsigned)(r->at - r->line_start) + 1;
    size_t n = 0;
    for (; !ends_word(*r->at) && *r->at != '='; r->at++) {
        if ((unsigned char)*r->at < 0x20 || (unsigned char)*r->at > 0x7e)
            return soft_lexer_error(r, (unsigned)(r->at - r->line_start) + 1,
                                    "a byte that is no text");
        if (n + 1 == sizeof w->key)
            return soft_lexer_error(r, w->column, "no word is that long");
        w->key[n++] = *r->at;
    }
    if (*r->at != '=')
        return true;
    r->at++;
    w->has_value = true;
    w->value_column = (unsigned)(r->at - r->line_start) + 1;
    for (n = 0; !ends_word(*r->at); r->at++) {
        if ((unsigned char)*r->at < 0x20 || (unsigned char)*r->at > 0x7e)
            return soft_lexer_error(r, (unsigned)(r->at - r->line_start) + 1,
                                    "a byte that is no text");
        if (n + 1 == sizeof w->value)
            return soft_lexer_error(r, w->value_column, "no value is that long");
        w->value[n++] = *r->at;
    }
    if (n == 0)
        return soft_lexer_error(r, w->value_column, "the value of %s is missing", w->key);
    return true;
}

/* ---- values ------------------------------------------------------------------------------------- */

bool soft_lexer_look_up(struct soft_lexer *r, const struct soft_lexer_word *w,
                        const struct soft_fault_word *list, int *out) {
    for (; list->text; list++)
        if (strcmp(list->text, w->value) == 0) {
            *out = list->value;
            return true;
        }
    return soft_lexer_error(r, w->value_column, "%s knows no '%s'", w->key, w->value);
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

bool soft_lexer_number(struct soft_lexer *r, const struct soft_lexer_word *w, uint64_t min,
                       uint64_t max, uint64_t *out) {
    const char *at = w->value;
    if (!digits(&at, max, out) || *at || *out < min)
        return soft_lexer_error(r, w->value_column, "%s: '%s' is not a number from %llu to %llu",
                                w->key, w->value, (unsigned long long)min, (unsigned long long)max);
    return true;
}

bool soft_lexer_address_set(struct soft_lexer *r, const struct soft_lexer_word *w,
                            struct soft_rule *rule) {
    uint64_t value = 0;
    rule->by_number = rule->scope == FAULT_QP && strncmp(w->value, "0x", 2) == 0;
    if (strcmp(w->value, "*") != 0 &&
        !soft_lexer_number(r, w, 1, rule->by_number ? 0xffffff : UINT32_MAX, &value))
        return false;
    rule->who = (uint32_t)value;
    return true;
}

/* * | N | N.. | N..M */
bool soft_lexer_range(struct soft_lexer *r, const struct soft_lexer_word *w,
                      struct soft_rule *rule) {
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
        return soft_lexer_error(r, w->value_column, "%s: '%s' is none of N, N..M, N.., *", w->key,
                                w->value);
    rule->first = (uint32_t)first;
    rule->last = (uint32_t)last;
    return true;
}

bool soft_lexer_duration(struct soft_lexer *r, const struct soft_lexer_word *w, uint64_t *ns) {
    const char *at = w->value;
    uint64_t value, unit = 0;
    if (digits(&at, 1000000000, &value))
        unit = !strcmp(at, "us")   ? 1000
               : !strcmp(at, "ms") ? 1000000
               : !strcmp(at, "s")  ? 1000000000
                                   : 0;
    if (!unit || value == 0 || value > 60000000000u / unit)
        return soft_lexer_error(r, w->value_column, "%s: '%s' is no time from 1us to 60s", w->key,
                                w->value);
    *ns = value * unit;
    return true;
}

/* -110, 28, -ETIMEDOUT */
bool soft_lexer_event_status(struct soft_lexer *r, const struct soft_lexer_word *w, int64_t *out) {
    bool minus = w->value[0] == '-';
    const char *at = w->value + minus;
    uint64_t value;
    if (digits(&at, INT32_MAX, &value) && !*at) {
        *out = minus ? -(int64_t)value : (int64_t)value;
        return true;
    }
    for (const struct soft_fault_word *e = soft_fault_errors; e->text; e++)
        if (strcmp(e->text, w->value + minus) == 0) {
            *out = minus ? -e->value : e->value;
            return true;
        }
    return soft_lexer_error(r, w->value_column, "status: '%s' is neither a number nor an errno",
                            w->value);
}

bool soft_lexer_address(struct soft_lexer *r, const struct soft_lexer_word *w,
                        struct sockaddr_storage *out) {
    struct sockaddr_in *v4 = (struct sockaddr_in *)out;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)out;
    memset(out, 0, sizeof *out);
    if (inet_pton(AF_INET, w->value, &v4->sin_addr) == 1)
        out->ss_family = AF_INET;
    else if (inet_pton(AF_INET6, w->value, &v6->sin6_addr) == 1)
        out->ss_family = AF_INET6;
    else
        return soft_lexer_error(r, w->value_column, "address: '%s' is no IP address", w->value);
    return true;
}
