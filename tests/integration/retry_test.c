/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Dials that meet a crowded listener, with all the library's threads and the real clock. */
#include "support/side.h"

#define DIALS 12u

struct crowd {
    struct side a, b;
    sluice_session dialed[DIALS], up[DIALS];
    unsigned ups, closed;
};

static void take_all(struct crowd *c) {
    struct note note;
    while (side_next(&c->a, &note, 0)) /* what the listener's side hears is not looked at */
        must(note.event.type == SLUICE_UP || note.event.type == SLUICE_CLOSED);
    while (side_next(&c->b, &note, MS)) {
        if (note.event.type == SLUICE_UP) {
            c->up[c->ups++] = note.event.session;
            continue;
        }
        must(note.event.type == SLUICE_CLOSED);
        if (note.event.reason != SLUICE_REASON_LOCAL_CLOSE)
            fail_msg("%s (%s)", sluice_reason_text(note.event.reason), note.info.close_text);
        c->closed++;
    }
}

static bool somebody_tried_again(struct crowd *c) {
    for (unsigned i = 0; i < DIALS; i++) {
        sluice_session_info info = {.size = sizeof info};
        if (sluice_session_get_info(c->dialed[i], &info) == 0 && info.tries > 1)
            return true;
    }
    return false;
}

BOTH_MODES(everybody_gets_through_a_crowded_listener) {
    struct crowd c;
    memset(&c, 0, sizeof c);
    side_open(&c.a, handlers_of(state), SLUICE_NODE(.sessions_max = 3));
    side_open(&c.b, handlers_of(state), NULL);
    c.a.partner = &c.b;
    c.b.partner = &c.a;
    int port = side_listen(&c.a, NULL, NULL);
    for (unsigned i = 0; i < DIALS; i++)
        c.dialed[i] = side_dial(&c.b, port, &(sluice_link_options){.timeout_ns = 2 * LIMIT_NS});
    uint64_t until = sluice_now() + LIMIT_NS;
    while (c.ups < 3 || !somebody_tried_again(&c)) { /* three stay, so the others must wait */
        take_all(&c);
        must(sluice_now() < until);
    }
    assert_int_equal(c.ups, 3);
    for (unsigned ended = 0; c.closed < DIALS;) {
        while (ended < c.ups)
            sluice_hangup(c.up[ended++], 0);
        take_all(&c);
        must(sluice_now() < until);
    }
    assert_int_equal(c.ups, DIALS);
    side_close(&c.b, 0);
    side_close(&c.a, 0);
}

BOTH_MODES(a_crowded_listener_is_busy_until_time_runs_out) {
    struct couple c;
    couple_open(&c, handlers_of(state), SLUICE_NODE(.sessions_max = 1));
    couple_connect(&c, NULL);
    struct side third;
    side_open(&third, handlers_of(state), NULL);
    third.partner = &c.a;
    uint64_t start = sluice_now();
    side_dial(&third, c.port, &(sluice_link_options){.timeout_ns = 300 * MS});
    struct note note = side_expect(&third, SLUICE_CLOSED);
    assert_int_equal(note.event.reason, SLUICE_REASON_BUSY);
    assert_uint_in_range(sluice_now() - start, 250 * MS, 5000 * MS);
    assert_uint_in_range(note.info.tries, 2, 12); /* pauses of 10 ms at least, and they double */
    assert_int_equal(note.info.cm_event, 8);      /* REJECTED */
    side_close(&third, 0);
    couple_close(&c);
}
