/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* large_flow.c - see large_flow.h. */
#include "support/large_flow.h"
#include "support/log.h"

const char *const flow_ways[] = {"read", "write", "place", "put", "request"};

static size_t flow_size(const struct flow *f, uint64_t i) {
    static const size_t sizes[] = {300001, 100, FLOW_MIB, 5 * FLOW_MIB / 2 + 5};
    return f->bytes ? f->bytes : sizes[i % 4];
}

/* How many of the first i messages are large. */
static uint64_t flow_large(uint64_t i) {
    return i - (i + 2) / 4;
}

uint64_t flow_progress(const struct flow *f) {
    return f->outcomes + f->received;
}

bool flow_busy(const struct flow *f) {
    return f->gives ? f->accepted > f->outcomes : f->larges > flow_large(f->received);
}

const sluice_node_options *flow_node(enum flow_way way, size_t bytes) {
    static sluice_node_options o;
    o = (sluice_node_options){
        .size = sizeof o,
        .rendezvous_bytes = FLOW_RENDEZVOUS,
        .rendezvous = way == FLOW_READ    ? SLUICE_RENDEZVOUS_READ
                      : way == FLOW_WRITE ? SLUICE_RENDEZVOUS_WRITE
                                          : SLUICE_RENDEZVOUS_AUTO,
        .memory_bytes_max = bytes ? 4 * bytes : 0,
        .message_bytes_max = bytes,
        .log = log_nothing,
    };
    return &o;
}

void flow_begin(struct flow *f, struct side *side, enum flow_way way, bool gives, int port) {
    sluice_link_options link = {
        .flags = way == FLOW_PLACE && !gives ? SLUICE_RECEIVE_INTO : 0,
        .window_bytes = 4 * FLOW_MIB,
    };
    size_t bytes = f->bytes;
    memset(f, 0, sizeof *f);
    *f = (struct flow){.side = side, .way = way, .gives = gives, .bytes = bytes};
    if (way == FLOW_PUTS || (way == FLOW_PLACE && !gives)) {
        uint32_t rights = way == FLOW_PUTS && !gives ? SLUICE_MAY_WRITE : 0;
        size_t size = way == FLOW_PUTS ? FLOW_PUT : FLOW_SLOTS * FLOW_SLOT;
        must(sluice_region_open(side->node, NULL, size, rights, &f->region, NULL) == 0);
        for (size_t i = 0; way == FLOW_PUTS && gives && i < size; i += IT_PART)
            memcpy((uint8_t *)sluice_region_data(f->region) + i, it_pattern(i, IT_PART, 1),
                   IT_PART);
        if (rights)
            must(sluice_region_token(f->region, 0, size, rights, &f->token) == 0);
    }
    if (port)
        f->session = side_dial(side, port, &link);
    else
        side_listen(side, &link, &f->listener);
}

/* ---- the side that gives -------------------------------------------------------------------------- */

static int flow_give_one(struct flow *f) {
    uint64_t i = f->accepted;
    const sluice_send_options *o = SLUICE_SEND(.tag = i + 1);
    sluice_msg *msg;
    if (f->way == FLOW_PUTS)
        return i % 4 == 3 ? sluice_put_notify(f->session, f->region, 0, FLOW_PUT, &f->token, 0,
                                              (uint32_t)i, o)
                          : sluice_put(f->session, f->region, 0, FLOW_PUT, &f->token, 0, o);
    int status = sluice_alloc(f->side->node, flow_size(f, i), &msg);
    if (status != 0)
        return status;
    it_fill(msg, i);
    status = f->way == FLOW_REQUEST ? sluice_request(f->session, msg, o)
                                    : sluice_send(f->session, msg, o);
    if (status != 0)
        sluice_free(msg);
    return status;
}

static void flow_give(struct flow *f) {
    if (f->way == FLOW_PUTS && !f->known)
        return;
    while (f->gives && f->up && !f->full && !f->closed && !f->stopped) {
        must(f->accepted < FLOW_TAGS);
        int status = flow_give_one(f);
        must(status == 0 || status == SLUICE_EAGAIN || status == SLUICE_ECLOSED ||
             status == SLUICE_ENOMEM);
        if (status == SLUICE_ECLOSED)
            return;
        f->accepted += status == 0;
        f->starved = status == SLUICE_ENOMEM;
        f->stopped = f->starved || (f->bytes && status == 0);
        f->full = status == SLUICE_EAGAIN;
    }
}

static void flow_outcome(struct flow *f, const struct note *note) {
    uint64_t tag = note->event.tag;
    int status = note->event.status;
    must_data(f->gives && tag >= 1 && tag <= f->accepted);
    must_data(f->told[tag - 1]++ == 0);
    if (status != 0 && status != SLUICE_EUNKNOWN && status != SLUICE_ECLOSED)
        fprintf(stderr, "outcome %d\n", status);
    must(status == 0 || status == SLUICE_EUNKNOWN || status == SLUICE_ECLOSED);
    if (f->way == FLOW_REQUEST && status == 0)
        must(it_matches(note->msg, flow_size(f, tag - 1), tag - 1));
    f->outcomes++;
    f->good += status == 0;
}

/* ---- the side that takes -------------------------------------------------------------------------- */

/* Every fifth goes to memory of the node after all. */
static bool flow_goes_to_region(uint64_t large) {
    return large % 5 != 4;
}

/* Answers a LARGE when a slot is free: what is in it was seen. */
static void flow_place(struct flow *f) {
    if (!f->waiting || f->closed || f->placed - flow_large(f->received) >= FLOW_SLOTS)
        return;
    sluice_region *region = flow_goes_to_region(f->placed) ? f->region : NULL;
    int status = sluice_receive_into(f->session, f->waiting, region,
                                     region ? f->placed % FLOW_SLOTS * FLOW_SLOT : 0);
    must(status == 0 || status == SLUICE_ECLOSED);
    f->placed += status == 0;
    f->waiting = 0;
}

static bool flow_region_matches(const struct flow *f, size_t from, size_t bytes, uint64_t seed) {
    const uint8_t *at = (const uint8_t *)sluice_region_data(f->region) + from;
    for (size_t i = 0; i < bytes; i += IT_PART) {
        size_t n = bytes - i < IT_PART ? bytes - i : IT_PART;
        if (memcmp(at + i, it_pattern(i, n, seed), n) != 0)
            return false;
    }
    return true;
}

static void flow_message(struct flow *f, const struct note *note) {
    uint64_t i = f->received, large = flow_large(i);
    size_t bytes = flow_size(f, i);
    if (f->way == FLOW_PUTS) { /* the token is all that is sent there */
        must(f->gives && !f->known && sluice_size(note->msg) == sizeof f->token);
        memcpy(&f->token, sluice_data(note->msg), sizeof f->token);
        f->known = true;
        return;
    }
    must(!f->gives);
    if (f->way == FLOW_PLACE && bytes > FLOW_RENDEZVOUS && flow_goes_to_region(large)) {
        must(!note->event.msg);
        must_data(note->event.value == bytes && large < f->placed);
        must_data(flow_region_matches(f, large % FLOW_SLOTS * FLOW_SLOT, bytes, i));
    } else {
        must(it_matches(note->msg, bytes, i));
    }
    f->received++;
    flow_place(f);
}

static void flow_answer(struct flow *f, struct note *request) {
    if (!request->msg)
        return;
    int status = sluice_reply(f->session, request->event.token, request->msg);
    must(status == 0 || status == SLUICE_ECLOSED);
    if (status == 0)
        request->msg = NULL;
    note_free(request);
}

static void flow_request(struct flow *f, struct note *note) {
    must(!f->gives && it_matches(note->msg, flow_size(f, f->received), f->received));
    flow_answer(f, &f->held);
    if (f->received++ % 3 == 0) {
        f->held = *note;
        note->msg = NULL;
    } else {
        flow_answer(f, note);
    }
}

/* ---- both ------------------------------------------------------------------------------------------ */

static void flow_up(struct flow *f, const struct note *note) {
    must(!f->up && (f->session.id == 0 || f->session.id == note->event.session.id));
    f->session = note->event.session;
    f->up = true;
    if (f->way == FLOW_PUTS && !f->gives)
        must(sluice_send_copy(f->session, &f->token, sizeof f->token, NULL) == 0);
}

/* Everything was told before, and nothing is used any more. */
static void flow_closed(struct flow *f, const struct note *note) {
    f->closed = true;
    f->end = *note;
    must_data(f->outcomes == f->accepted);
    must(!f->starved || note->event.reason == SLUICE_REASON_DEVICE_REMOVED);
    note_free(&f->held);
    must(sluice_region_close(f->region) == 0);
    f->region = NULL;
    must(sluice_send_copy(f->session, "x", 1, NULL) == SLUICE_ECLOSED);
}

static void flow_note(struct flow *f, struct note *note) {
    must_data(!f->closed); /* nothing comes behind it */
    must(note->event.type == SLUICE_UP || note->event.session.id == f->session.id);
    switch ((sluice_event_type)note->event.type) {
    case SLUICE_UP:
        flow_up(f, note);
        break;
    case SLUICE_CLOSED:
        flow_closed(f, note);
        break;
    case SLUICE_MESSAGE:
        flow_message(f, note);
        break;
    case SLUICE_REQUEST:
        flow_request(f, note);
        break;
    case SLUICE_SENT:
    case SLUICE_REPLY:
    case SLUICE_DONE:
        flow_outcome(f, note);
        break;
    case SLUICE_DOWN:
    case SLUICE_MOVED:
    case SLUICE_NOTIFIED:
        must(!f->gives);
        must_data_equal(note->event.value, 4 * f->received + 3);
        must_data(flow_region_matches(f, 0, FLOW_PUT, 1));
        f->received++;
        break;
    case SLUICE_LARGE:
        must(f->way == FLOW_PLACE && !f->gives && !f->waiting);
        f->larges++;
        f->waiting = note->event.token;
        flow_place(f);
        break;
    case SLUICE_WRITABLE:
        must(f->full);
        f->full = false;
        break;
    case SLUICE_WAKE:
    case SLUICE_CONNECT:
        must(!"an event of this kind");
    }
    note_free(note);
}

void flow_turn(struct flow *f, uint64_t wait_ns) {
    struct note note;
    flow_give(f);
    if (side_take(f->side, &note) || (wait_ns && side_next(f->side, &note, wait_ns)))
        flow_note(f, &note);
    else if (!f->closed)
        flow_answer(f, &f->held);
}
