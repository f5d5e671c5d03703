/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* session_rows.c - see session_rows.h. */
#include "session_rows.h"

#include <stdio.h>

#include <sluice/sluice.h>

/* For people, and for programs. */
static const char *const ways[][2] = {
    [SLUICE_TRANSPORT_DEVICE] = {"the device's network", "device"},
    [SLUICE_TRANSPORT_SHARED_MEMORY] = {"shared memory", "shared_memory"},
    [SLUICE_TRANSPORT_TCP] = {"TCP", "tcp"}};

static const char *way(uint64_t transport, int to_program) {
    return transport < sizeof ways / sizeof ways[0] ? ways[transport][to_program] : "unknown";
}

void session_rows_clean(char *text) {
    for (char *at = text; *at != '\0'; at++)
        if ((unsigned char)*at < ' ' || (unsigned char)*at > '~')
            *at = '?';
}

void session_rows_take(struct session_rows *rows, const struct stats_page *page) {
    rows->count = 0;
    for (uint32_t slot = 0; slot < STATS_SESSIONS_MAX; slot++) {
        struct stats_session_row *row = &rows->row[rows->count];
        if (!stats_session_read(row, &page->sessions[slot]))
            continue;
        session_rows_clean(row->peer);
        rows->count++;
    }
}

void session_rows_json(struct json *j, const struct session_rows *rows) {
    json_list(j, "sessions");
    for (uint32_t i = 0; i < rows->count; i++) {
        const struct stats_session_row *row = &rows->row[i];
        json_object(j, NULL);
        json_number(j, "session", row->id);
        json_text(j, "peer", row->peer);
        json_number(j, "loop", row->loop);
        json_text(j, "transport", way(row->transport, 1));
        json_close_object(j);
    }
    json_close_list(j);
}

void session_rows_print(const struct session_rows *rows, uint64_t all) {
    printf("sessions\n");
    for (uint32_t i = 0; i < rows->count; i++) {
        const struct stats_session_row *row = &rows->row[i];
        printf("  %-47s loop %2llu   %s\n", row->peer, (unsigned long long)row->loop,
               way(row->transport, 0));
    }
    /* Read one after the other while both move. */
    if (rows->count == STATS_SESSIONS_MAX || (rows->count > 0 && all > rows->count + 1))
        printf("  %u listed of %llu\n", rows->count, (unsigned long long)all);
}
