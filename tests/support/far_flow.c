/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* far_flow.c - see far_flow.h. */
#include "support/far_flow.h"

void far_flow_on(struct far_flow *f, uint64_t goal, uint64_t until_ns) {
    struct note note;
    while (!f->seen.closed && f->seen.received < goal && sluice_now() < until_ns) {
        if (!f->seen.full)
            tally_send(&f->seen, &f->side, f->seen.received + FLOW_AHEAD);
        uint64_t now = sluice_now();
        uint64_t left = until_ns > now ? until_ns - now : 0;
        if (side_next(&f->side, &note, left < FLOW_SILENCE_NS ? left : FLOW_SILENCE_NS))
            tally_note(&f->seen, &note);
        else
            must(left <= FLOW_SILENCE_NS);
    }
}

bool far_flow_lost(int reason) {
    return reason == SLUICE_REASON_KEEPALIVE || reason == SLUICE_REASON_PEER_LOST;
}

void far_flow_told(const struct far_flow *f, const char *what, uint64_t since_ns) {
    print_message("%s: %s (%s), status %d, cm %d %d, wc %d, after %llu ms\n", what,
                  sluice_reason_text(f->seen.end.event.reason), f->seen.end.info.close_text,
                  f->seen.end.event.status, f->seen.end.info.cm_event, f->seen.end.info.cm_status,
                  f->seen.end.info.wc_status, (unsigned long long)((sluice_now() - since_ns) / MS));
}

void far_flow_messages(struct far_flow *f, uint64_t count) {
    uint64_t goal = f->seen.received + count, begun = sluice_now();
    far_flow_on(f, goal, UINT64_MAX);
    if (f->seen.closed)
        far_flow_told(f, "ended", begun);
    assert_false(f->seen.closed);
    assert_true(f->seen.received >= goal);
}

void far_flow_try(struct far_flow *f, uint64_t keepalive_ns, uint64_t timeout_ns) {
    struct note note;
    far_address(true);
    f->seen = (struct tally){.up = true}; /* which is looked at here */
    f->seen.session =
        side_dial(&f->side, f->port,
                  &(sluice_link_options){.keepalive_ns = keepalive_ns, .timeout_ns = timeout_ns});
    must(side_next(&f->side, &note, FLOW_SILENCE_NS));
    if (note.event.type == SLUICE_CLOSED) {
        f->seen.closed = true;
        f->seen.end = note;
        return;
    }
    must(note.event.type == SLUICE_UP);
    far_expect(&f->peer, "up ");
}

void far_flow_dial(struct far_flow *f, uint64_t keepalive_ns) {
    uint64_t begun = sluice_now();
    far_flow_try(f, keepalive_ns, FLOW_SILENCE_NS);
    if (f->seen.closed)
        far_flow_told(f, "not up", begun);
    assert_false(f->seen.closed);
}

void far_flow_begin(struct far_flow *f, uint64_t keepalive_ns) {
    far_was_bad = far_is_bad;
    unsigned ms =
        keepalive_ns == SLUICE_OFF ? 0 : (unsigned)(keepalive_ns / MS); /* one side's is enough */
    far_start(&f->peer, "exec session_peer listen echo handlers keepalive_ms=%u", ms);
    f->port = atoi(peer_expect(&f->peer, "port "));
    far_flow_dial(f, keepalive_ns);
}

void far_flow_open(struct far_flow *f, bool handlers, uint64_t keepalive_ns) {
    memset(f, 0, sizeof *f);
    side_open(&f->side, handlers, NULL);
    far_flow_begin(f, keepalive_ns);
}

void far_flow_hang_up(struct far_flow *f) {
    struct note note;
    while (!f->seen.closed &&
           (f->seen.received < f->seen.accepted || f->seen.outcomes < f->seen.accepted)) {
        must(side_next(&f->side, &note, FLOW_SILENCE_NS));
        tally_note(&f->seen, &note);
    }
    assert_false(f->seen.closed);
    assert_int_equal(f->seen.unknown, 0);
    sluice_hangup(f->seen.session, 60000 * MS);
    must(side_next(&f->side, &note, FLOW_SILENCE_NS) && note.event.type == SLUICE_CLOSED);
    assert_int_equal(note.event.reason, SLUICE_REASON_LOCAL_CLOSE);
    far_expect(&f->peer, "closed ");
    assert_int_equal(peer_number(&f->peer, "reason"), SLUICE_REASON_PEER_CLOSE);
    must_data_equal(peer_number(&f->peer, "received"), f->seen.accepted);
    /* Where packets are lost, the acknowledgements of its last echoes may be, which are all here. */
    long long unknown = far_was_bad ? peer_number(&f->peer, "unknown") : 0;
    must_data_equal(peer_number(&f->peer, "succeeded") + unknown, f->seen.accepted);
    f->seen.closed = true;
}

void far_flow_close(struct far_flow *f) {
    if (!f->seen.closed)
        far_flow_hang_up(f);
    assert_int_equal(far_end(&f->peer), 0);
    side_close(&f->side, 0);
}
