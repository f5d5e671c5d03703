/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* far_flow.c - see far_flow.h. */
#include "support/far_flow.h"

static void far_flow_send(struct far_flow *f) {
    while (!f->closed && !f->full && f->sent - f->back < FLOW_AHEAD) {
        int status = side_send(&f->side, f->session, it_mixed(f->sent), f->sent, f->sent + 1);
        f->full = status == SLUICE_EAGAIN;
        must(status == 0 || f->full || status == SLUICE_ECLOSED);
        if (status == SLUICE_ECLOSED)
            return; /* CLOSED is on its way */
        f->sent += status == 0;
    }
}

static void far_flow_take(struct far_flow *f, struct note *note) {
    switch ((sluice_event_type)note->event.type) {
    case SLUICE_MESSAGE:
        must(it_matches(note->msg, it_mixed(f->back), f->back));
        f->back++;
        break;
    case SLUICE_SENT:
        must(note->event.status == 0 || note->event.status == SLUICE_EUNKNOWN ||
             note->event.status == SLUICE_ECLOSED);
        f->outcomes++;
        f->unknown += note->event.status != 0;
        break;
    case SLUICE_WRITABLE:
        f->full = false;
        break;
    case SLUICE_CLOSED:
        f->closed = true;
        f->end = *note;
        break;
    case SLUICE_UP:
    case SLUICE_WAKE:
    case SLUICE_CONNECT:
    case SLUICE_REQUEST:
    case SLUICE_REPLY:
    case SLUICE_LARGE:
    case SLUICE_DONE:
    case SLUICE_NOTIFIED:
        must(!"an event of this kind");
    }
    note_free(note);
}

void far_flow_on(struct far_flow *f, uint64_t goal, uint64_t until_ns) {
    struct note note;
    while (!f->closed && f->back < goal && sluice_now() < until_ns) {
        far_flow_send(f);
        uint64_t now = sluice_now();
        uint64_t left = until_ns > now ? until_ns - now : 0;
        if (side_next(&f->side, &note, left < FLOW_SILENCE_NS ? left : FLOW_SILENCE_NS))
            far_flow_take(f, &note);
        else
            must(left <= FLOW_SILENCE_NS);
    }
}

bool far_flow_lost(int reason) {
    return reason == SLUICE_REASON_KEEPALIVE || reason == SLUICE_REASON_PEER_LOST;
}

void far_flow_told(const struct far_flow *f, const char *what, uint64_t since_ns) {
    print_message("%s: %s (%s), status %d, cm %d %d, wc %d, after %llu ms\n", what,
                  sluice_reason_text(f->end.event.reason), f->end.info.close_text,
                  f->end.event.status, f->end.info.cm_event, f->end.info.cm_status,
                  f->end.info.wc_status, (unsigned long long)((sluice_now() - since_ns) / MS));
}

void far_flow_messages(struct far_flow *f, uint64_t count) {
    uint64_t goal = f->back + count, begun = sluice_now();
    far_flow_on(f, goal, UINT64_MAX);
    if (f->closed)
        far_flow_told(f, "ended", begun);
    assert_false(f->closed);
    assert_true(f->back >= goal);
}

void far_flow_try(struct far_flow *f, uint64_t keepalive_ns, uint64_t timeout_ns) {
    struct note note;
    far_address(true);
    f->sent = f->back = f->outcomes = f->unknown = 0;
    f->full = f->closed = false;
    f->session =
        side_dial(&f->side, f->port,
                  &(sluice_link_options){.keepalive_ns = keepalive_ns, .timeout_ns = timeout_ns});
    must(side_next(&f->side, &note, FLOW_SILENCE_NS));
    if (note.event.type == SLUICE_CLOSED) {
        f->closed = true;
        f->end = note;
        return;
    }
    must(note.event.type == SLUICE_UP);
    far_expect(&f->peer, "up ");
}

void far_flow_dial(struct far_flow *f, uint64_t keepalive_ns) {
    uint64_t begun = sluice_now();
    far_flow_try(f, keepalive_ns, FLOW_SILENCE_NS);
    if (f->closed)
        far_flow_told(f, "not up", begun);
    assert_false(f->closed);
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
    while (!f->closed && (f->back < f->sent || f->outcomes < f->sent)) {
        must(side_next(&f->side, &note, FLOW_SILENCE_NS));
        far_flow_take(f, &note);
    }
    assert_false(f->closed);
    assert_int_equal(f->unknown, 0);
    sluice_hangup(f->session, 60000 * MS);
    must(side_next(&f->side, &note, FLOW_SILENCE_NS) && note.event.type == SLUICE_CLOSED);
    assert_int_equal(note.event.reason, SLUICE_REASON_LOCAL_CLOSE);
    far_expect(&f->peer, "closed ");
    assert_int_equal(peer_number(&f->peer, "reason"), SLUICE_REASON_PEER_CLOSE);
    assert_int_equal(peer_number(&f->peer, "received"), f->sent);
    /* Where packets are lost, the acknowledgements of its last echoes may be, which are all here. */
    long long unknown = far_was_bad ? peer_number(&f->peer, "unknown") : 0;
    assert_int_equal(peer_number(&f->peer, "succeeded") + unknown, f->sent);
    f->closed = true;
}

void far_flow_close(struct far_flow *f) {
    if (!f->closed)
        far_flow_hang_up(f);
    assert_int_equal(far_end(&f->peer), 0);
    side_close(&f->side, 0);
}
