/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* tally.c - see tally.h. */
#include "support/tally.h"

void tally_note(struct tally *t, struct note *note) {
    must_data(!t->closed); /* nothing comes behind it */
    switch ((sluice_event_type)note->event.type) {
    case SLUICE_UP:
        must(!t->up);
        t->up = true;
        t->session = note->event.session;
        break;
    case SLUICE_SENT:
        must(note->event.status == 0 || note->event.status == SLUICE_EUNKNOWN ||
             note->event.status == SLUICE_ECLOSED);
        t->outcomes++;
        t->unknown += note->event.status != 0;
        break;
    case SLUICE_MESSAGE:
        must(it_matches(note->msg, it_mixed(t->received), t->received)); /* torn ones show */
        t->received++;
        break;
    case SLUICE_WRITABLE:
        t->full = false;
        t->writables++;
        break;
    case SLUICE_CLOSED:
        t->closed = true;
        t->end = *note;
        break;
    default:
        must(!"an event of this kind");
    }
    note_free(note);
}

bool tally_send(struct tally *t, struct side *side, uint64_t most) {
    while (t->accepted < most) {
        int status =
            side_send(side, t->session, it_mixed(t->accepted), t->accepted, t->accepted + 1);
        must(status == 0 || status == SLUICE_EAGAIN || status == SLUICE_ECLOSED);
        t->full = status == SLUICE_EAGAIN;
        if (status != 0)
            return false; /* CLOSED is on its way, or WRITABLE */
        t->accepted++;
    }
    return true;
}
