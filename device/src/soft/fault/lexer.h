/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * lexer.h - the words of a plan's text. All return false and note line, column and reason in
 * the reader's error where the text is wrong.
 */
#ifndef SOFT_FAULT_LEXER_H
#define SOFT_FAULT_LEXER_H

#include "soft/fault/names.h"
#include "soft/fault/plan.h"

struct soft_lexer_word { /* KEY or KEY=VALUE, copied out of the text */
    char key[24], value[80];
    bool has_value;
    unsigned column, value_column;
};

struct soft_lexer {
    const char *at, *line_start;
    unsigned line;
    struct soft_plan_error *error;
};

bool soft_lexer_error(struct soft_lexer *r, unsigned column, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The next word of this rule. False also where there is none: error->line is 0 then. */
bool soft_lexer_next(struct soft_lexer *r, struct soft_lexer_word *w);
/* Its value, as one of a list; a number; which object; when; a time; the status of an event. */
bool soft_lexer_look_up(struct soft_lexer *r, const struct soft_lexer_word *w,
                        const struct soft_fault_word *list, int *out);
bool soft_lexer_number(struct soft_lexer *r, const struct soft_lexer_word *w, uint64_t min,
                       uint64_t max, uint64_t *out);
bool soft_lexer_address_set(struct soft_lexer *r, const struct soft_lexer_word *w,
                            struct soft_rule *rule);
bool soft_lexer_range(struct soft_lexer *r, const struct soft_lexer_word *w,
                      struct soft_rule *rule);
bool soft_lexer_duration(struct soft_lexer *r, const struct soft_lexer_word *w, uint64_t *ns);
bool soft_lexer_event_status(struct soft_lexer *r, const struct soft_lexer_word *w, int64_t *out);
bool soft_lexer_address(struct soft_lexer *r, const struct soft_lexer_word *w,
                        struct sockaddr_storage *out);

#endif
