/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * session_rows.h - the sessions of a statistics page, for sluice-stat: which way each of them goes. One thread.
 *
 * A row is another process's word: its text is cleaned, and a number that is no way is shown as unknown.
 */
#ifndef SESSION_ROWS_H
#define SESSION_ROWS_H

#include <stdint.h>

#include "base/stats.h"
#include "json.h"

struct session_rows {
    uint32_t count;
    struct stats_session_row row[STATS_SESSIONS_MAX];
};

void session_rows_take(struct session_rows *rows, const struct stats_page *page);
void session_rows_json(struct json *j, const struct session_rows *rows);
/* all: how many there are, with those that are not listed. */
void session_rows_print(const struct session_rows *rows, uint64_t all);

/* What another process says, without what a terminal would take for more than text. It ends. */
void session_rows_clean(char *text);

#endif
