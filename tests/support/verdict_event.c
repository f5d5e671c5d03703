/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* verdict_event.c - see verdict_event.h. */
#include "support/verdict_event.h"

#include <stdbool.h>

#include "support/verdict.h"

static bool is_message(int type) {
    return type == SLUICE_MESSAGE || type == SLUICE_REQUEST || type == SLUICE_REPLY;
}

void verdict_event(const sluice_event *event, int expected) {
    if (!event && is_message(expected))
        verdict_wrong_data("no %s came", sluice_event_name(expected));
    if (event && is_message(event->type) &&
        (expected == 0 || expected == SLUICE_UP || expected == SLUICE_CLOSED))
        verdict_wrong_data("a %s came, expected %s", sluice_event_name(event->type),
                           expected ? sluice_event_name(expected) : "nothing");
}
