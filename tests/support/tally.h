/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * tally.h - what a session has told its side: how many of the mixed stream (it_mixed()) were accepted, how many had an outcome, and
 * how many came back or came, each in its order and unchanged. CLOSED is the last that it tells. One thread.
 */
#ifndef TESTS_SUPPORT_TALLY_H
#define TESTS_SUPPORT_TALLY_H

#include "support/side.h"

struct tally {
    sluice_session session;
    uint64_t accepted, outcomes, unknown, received,
        writables; /* unknown: outcomes that are no success */
    bool up, full, closed;
    struct note end; /* CLOSED */
};

/* Counts an event, which may be one of this session's that were asked for, and frees its message. */
void tally_note(struct tally *t, struct note *note);
/* Sends the stream up to number `most`; false: the window is full, or the session has ended. */
bool tally_send(struct tally *t, struct side *side, uint64_t most);

#endif
