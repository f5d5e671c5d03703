/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* every_call.c - see every_call.h. */
#include "support/every_call.h"

static _Atomic unsigned errors;

static void count_errors(int level, const char *text, void *arg) {
    (void)arg;
    pthread_testcancel(); /* as one that writes */
    if (level != SLUICE_LOG_ERROR)
        return;
    fprintf(stderr, "%s\n", text);
    atomic_fetch_add(&errors, 1);
}

static void answer(struct note *note) {
    if (note->event.type == SLUICE_REQUEST)
        (void)sluice_reply_error(note->event.session, note->event.token, 1);
    note_free(note);
}

/* One message of the main session; what other calls brought about comes before it. */
static void send_and_take(struct scene *s, struct side *from, struct side *to, sluice_session at) {
    struct note note;
    size_t bytes = 4000 + s->seed;
    must(side_send(from, at, bytes, s->seed, 0) == 0);
    for (bool there = false; !there; answer(&note)) {
        must(side_next(to, &note, LIMIT_NS));
        there = note.event.type == SLUICE_MESSAGE && note.msg && sluice_size(note.msg) == bytes;
        must_data(!there || it_matches(note.msg, bytes, s->seed));
    }
    s->seed++;
}

void scene_works(struct scene *s) {
    send_and_take(s, &s->c.b, &s->c.a, s->c.at_b);
    send_and_take(s, &s->c.a, &s->c.b, s->c.at_a);
}

void scene_open(struct scene *s, enum scene_mode mode, const sluice_node_options *given) {
    sluice_node_options o = given ? *given : (sluice_node_options){0};
    o.log = count_errors;
    atomic_store(&errors, 0);
    *s = (struct scene){.mode = mode};
    couple_open(&s->c, mode == SCENE_HANDLERS, &o);
    couple_connect(&s->c, NULL);
    must(sluice_region_open(s->c.a.node, NULL, 4096, it_rights(), &s->region, NULL) == 0);
    must(sluice_region_open(s->c.b.node, NULL, 4096, 0, &s->own, NULL) == 0);
    must(sluice_region_token(s->region, 0, 4096, it_rights(), &s->token) == 0);
}

void scene_close(struct scene *s) {
    scene_works(s);
    couple_close(&s->c);
    must(atomic_load(&errors) == 0);
}

/* ---- the calls ----------------------------------------------------------------------------------- */

static struct side *dialer(struct scene *s) {
    return &s->c.b;
}

static sluice_msg *new_msg(struct scene *s) {
    sluice_msg *msg = NULL;
    must(sluice_alloc(dialer(s)->node, 100, &msg) == 0);
    return msg;
}

static void do_open(struct scene *s) {
    must(sluice_open(&s->node, SLUICE_NODE(.device = it_device(), .log = count_errors), NULL) == 0);
}
static void do_close(struct scene *s) {
    sluice_close(s->node, 0);
}
static void do_node_get_info(struct scene *s) {
    (void)side_node_info(dialer(s)->node);
}
static void do_worker_drain(struct scene *s) {
    int status = sluice_worker_drain(dialer(s)->node, 0, 0);
    must(status == (s->mode == SCENE_HANDLERS ? 0 : SLUICE_EINVAL));
}
static void do_worker_set_idle(struct scene *s) {
    int status = sluice_worker_set_idle(dialer(s)->node, 0, SLUICE_IDLE_BLOCK);
    must(status == (s->mode == SCENE_HANDLERS ? 0 : SLUICE_EINVAL));
}
static void do_listen(struct scene *s) {
    (void)side_listen(&s->c.a, &(sluice_link_options){.flags = SLUICE_ASK}, &s->listener);
}
static void do_listener_port(struct scene *s) {
    must(sluice_listener_port(s->listener) > 0);
}
static void do_dial(struct scene *s) {
    s->session = side_dial(dialer(s), s->c.port, NULL);
}
static void do_accept(struct scene *s) {
    must(sluice_accept(s->session, NULL) == 0);
}
static void do_refuse(struct scene *s) {
    must(sluice_refuse(s->session, 1, "no") == 0);
}
static void do_hangup(struct scene *s) {
    sluice_hangup(s->session, 0);
}
static void do_unlisten(struct scene *s) {
    sluice_unlisten(s->listener);
}
static void do_session_get_info(struct scene *s) {
    sluice_session_info info = {.size = sizeof info};
    must(sluice_session_get_info(s->c.at_b, &info) == 0);
}
static void do_loop_open(struct scene *s) {
    must(sluice_loop_open(dialer(s)->node, &s->loop, NULL) == 0);
}
/* Which does not outlive its connection. */
static void do_session_move(struct scene *s) {
    must(sluice_session_move(s->c.at_b, s->loop) == SLUICE_EINVAL);
    must(sluice_session_move_worker(s->c.at_b, 0) == SLUICE_EINVAL);
}
static void do_poll(struct scene *s) {
    must(sluice_poll(s->loop, NULL, 0, 0) == 0);
}
static void do_fd(struct scene *s) {
    must(sluice_fd(s->loop) >= 0);
}
static void do_wake(struct scene *s) {
    sluice_event event;
    sluice_wake(s->loop);
    /* It waits, but not with cancellation: there is something to return. */
    must(sluice_poll(s->loop, &event, 1, SLUICE_OFF) == 1 && event.type == SLUICE_WAKE);
}
static void do_loop_set_idle(struct scene *s) {
    must(sluice_loop_set_idle(s->loop, SLUICE_IDLE_BLOCK) == 0);
}
static void do_loop_close(struct scene *s) {
    must(sluice_loop_close(s->loop) == 0);
}
static void do_alloc(struct scene *s) {
    must(sluice_alloc(dialer(s)->node, 1 << 20, &s->msg) == 0); /* the pool has to grow */
}
static void do_free(struct scene *s) {
    sluice_free(s->msg);
}
static void do_data(struct scene *s) {
    must(sluice_data(s->msg) != NULL);
}
static void do_size(struct scene *s) {
    must(sluice_size(s->msg) == 1 << 20);
}
static void do_trim(struct scene *s) {
    sluice_trim(s->msg, 1 << 20);
}
static void do_keep(struct scene *s) {
    sluice_keep(s->msg);
}
static void do_send(struct scene *s) {
    must(sluice_send(s->c.at_b, new_msg(s), NULL) == 0);
    must(side_send(dialer(s), s->c.at_b, 300000, 1, 7) == 0);
}
static void do_send_copy(struct scene *s) {
    must(sluice_send_copy(s->c.at_b, &s->token, sizeof s->token, NULL) == 0);
}
static void do_send_pieces(struct scene *s) {
    static uint8_t plain[8192];
    const sluice_piece pieces[] = {{plain, sizeof plain, NULL},
                                   {sluice_region_data(s->own), 4096, s->own}};
    const sluice_send_options *o = SLUICE_SEND(.tag = 1, .flags = SLUICE_IN_PLACE);
    must(sluice_send_pieces(s->c.at_b, pieces, 2, o) == 0);
}
static void do_request(struct scene *s) {
    must(sluice_request(s->c.at_b, new_msg(s), SLUICE_SEND(.tag = 2)) == 0);
}
static void do_cancel(struct scene *s) {
    sluice_cancel(s->c.at_b, 2);
}
static void do_request_wanted(struct scene *s) {
    int wanted = sluice_request_wanted(s->session, s->request);
    must(wanted == (s->mode == SCENE_OWNER ? 1 : SLUICE_EINVAL));
}
static void do_reply(struct scene *s) {
    must(sluice_reply(s->session, s->request, s->msg) == 0);
}
static void do_reply_with(struct scene *s) {
    must(sluice_reply_with(s->session, s->request, s->msg, SLUICE_SEND(.flags = 0)) == 0);
}
static void do_reply_error(struct scene *s) {
    must(sluice_reply_error(s->session, s->request, 3) == 0);
}
static void do_region_open(struct scene *s) {
    sluice_region *region;
    must(sluice_region_open(dialer(s)->node, NULL, 4096, 0, &region, NULL) == 0);
    must(sluice_region_close(region) == 0);
}
static void do_region_data(struct scene *s) {
    must(sluice_region_data(s->own) != NULL && sluice_region_size(s->own) == 4096);
}
static void do_region_token(struct scene *s) {
    must(sluice_region_token(s->region, 0, 8, SLUICE_MAY_READ, &(sluice_token){{0}}) == 0);
}
static void do_region_revoke(struct scene *s) {
    must(sluice_region_revoke(s->region, NULL) == 0);
    must(sluice_region_token(s->region, 0, 4096, it_rights(), &s->token) == 0);
}
static void do_put(struct scene *s) {
    must(sluice_put(s->c.at_b, s->own, 0, 64, &s->token, 0, SLUICE_SEND(.tag = 3)) == 0);
}
static void do_get(struct scene *s) {
    must(sluice_get(s->c.at_b, s->own, 0, 64, &s->token, 0, SLUICE_SEND(.tag = 3)) == 0);
}
static void do_put_notify(struct scene *s) {
    must(sluice_put_notify(s->c.at_b, s->own, 0, 64, &s->token, 0, 5, NULL) == 0);
}
static int of_atomics(void) {
    return it_rights() & SLUICE_MAY_ATOMIC ? 0 : SLUICE_EACCESS;
}
static void do_fetch_add(struct scene *s) {
    const sluice_send_options *o = SLUICE_SEND(.tag = 3);
    must(sluice_fetch_add(s->c.at_b, &s->token, 0, 1, o) == of_atomics());
}
static void do_compare_swap(struct scene *s) {
    const sluice_send_options *o = SLUICE_SEND(.tag = 3);
    must(sluice_compare_swap(s->c.at_b, &s->token, 0, 1, 2, o) == of_atomics());
}
static void do_fence(struct scene *s) {
    must(sluice_fence(s->c.at_b, SLUICE_SEND(.tag = 3)) == 0);
}
static void do_receive_into(struct scene *s) {
    must(sluice_receive_into(s->c.at_b, 1, s->own, 0) == SLUICE_EINVAL);
}
static void do_registration_get_info(struct scene *s) {
    sluice_registration_info info = {.size = sizeof info};
    must(sluice_registration_get_info(dialer(s)->node, &info) == 0);
}
static void do_registration_invalidate(struct scene *s) {
    sluice_registration_invalidate(s, sizeof *s);
}
static void do_texts(struct scene *s) {
    (void)s;
    must(sluice_strerror(0) && sluice_reason_text(0) && sluice_event_name(SLUICE_UP));
    must(sluice_version() > 0 && sluice_now() > 0);
}

/* ---- what has to be there first, and what comes of it --------------------------------------------- */

/* Outcomes of earlier calls may come before it: the peer took a message before its sender heard so. */
static struct note expect(struct side *side, sluice_event_type type) {
    for (;;) {
        struct note note;
        must(side_next(side, &note, LIMIT_NS));
        if (note.event.type == type)
            return note;
        if (note.event.type != SLUICE_DONE)
            must(side_is(&note, SLUICE_SENT));
    }
}
static void expect_closed(struct side *side, sluice_reason reason) {
    assert_int_equal(expect(side, SLUICE_CLOSED).event.reason, reason);
}

static void asked(struct scene *s) {
    (void)side_dial(dialer(s), sluice_listener_port(s->listener), NULL);
    s->session = expect(&s->c.a, SLUICE_CONNECT).event.session;
}
static void accepted(struct scene *s) {
    (void)expect(&s->c.a, SLUICE_UP);
    sluice_hangup(expect(dialer(s), SLUICE_UP).event.session, 0);
    (void)expect(dialer(s), SLUICE_CLOSED);
    (void)expect(&s->c.a, SLUICE_CLOSED);
}
static void refused(struct scene *s) {
    expect_closed(dialer(s), SLUICE_REASON_REFUSED);
    (void)expect(&s->c.a, SLUICE_CLOSED);
}
static void dialed(struct scene *s) {
    must(expect(dialer(s), SLUICE_UP).event.session.id == s->session.id);
    (void)expect(&s->c.a, SLUICE_UP);
}
static void hung_up(struct scene *s) {
    expect_closed(dialer(s), SLUICE_REASON_LOCAL_CLOSE);
    expect_closed(&s->c.a, SLUICE_REASON_PEER_CLOSE);
}
/* The listener has a request, whose message is the answer. */
static void requested(struct scene *s) {
    must(sluice_request(s->c.at_b, new_msg(s), NULL) == 0);
    struct note note = expect(&s->c.a, SLUICE_REQUEST);
    s->session = note.event.session;
    s->request = note.event.token;
    s->msg = note.msg;
}
static void request_answered(struct scene *s) {
    struct note note = expect(dialer(s), SLUICE_REPLY);
    note_free(&note);
}
static void answered_by_error(struct scene *s) {
    sluice_free(s->msg);
    request_answered(s);
}
static void wanted(struct scene *s) {
    do_reply_error(s);
    answered_by_error(s);
}
static void message_came(struct scene *s) {
    must(side_send(dialer(s), s->c.at_b, 1 << 20, 1, 0) == 0);
    s->msg = expect(&s->c.a, SLUICE_MESSAGE).msg;
}

const struct every_call every_call[] = {
    {"open", do_open, NULL, NULL},
    {"close", do_close, NULL, NULL},
    {"node_get_info", do_node_get_info, NULL, NULL},
    {"worker_drain", do_worker_drain, NULL, NULL},
    {"worker_set_idle", do_worker_set_idle, NULL, NULL},
    {"listen", do_listen, NULL, NULL},
    {"listener_port", do_listener_port, NULL, NULL},
    {"accept", do_accept, asked, accepted},
    {"refuse", do_refuse, asked, refused},
    {"unlisten", do_unlisten, NULL, NULL},
    {"dial", do_dial, NULL, dialed},
    {"hangup", do_hangup, NULL, hung_up},
    {"session_get_info", do_session_get_info, NULL, NULL},
    {"loop_open", do_loop_open, NULL, NULL},
    {"session_move session_move_worker", do_session_move, NULL, NULL},
    {"poll", do_poll, NULL, NULL},
    {"loop_set_idle", do_loop_set_idle, NULL, NULL},
    {"fd", do_fd, NULL, NULL},
    {"wake poll", do_wake, NULL, NULL},
    {"loop_close", do_loop_close, NULL, NULL},
    {"alloc", do_alloc, NULL, NULL},
    {"data", do_data, NULL, NULL},
    {"size", do_size, NULL, NULL},
    {"trim", do_trim, NULL, NULL},
    {"free", do_free, NULL, NULL},
    {"keep", do_keep, message_came, NULL},
    {"free", do_free, NULL, NULL},
    {"send", do_send, NULL, NULL},
    {"send_copy", do_send_copy, NULL, NULL},
    {"send_pieces", do_send_pieces, NULL, NULL},
    {"request", do_request, NULL, NULL},
    {"cancel", do_cancel, NULL, NULL},
    {"request_wanted", do_request_wanted, requested, wanted},
    {"reply", do_reply, requested, request_answered},
    {"reply_with", do_reply_with, requested, request_answered},
    {"reply_error", do_reply_error, requested, answered_by_error},
    {"region_open region_close", do_region_open, NULL, NULL},
    {"region_data region_size", do_region_data, NULL, NULL},
    {"region_token", do_region_token, NULL, NULL},
    {"region_revoke", do_region_revoke, NULL, NULL},
    {"put", do_put, NULL, NULL},
    {"get", do_get, NULL, NULL},
    {"put_notify", do_put_notify, NULL, NULL},
    {"fetch_add", do_fetch_add, NULL, NULL},
    {"compare_swap", do_compare_swap, NULL, NULL},
    {"fence", do_fence, NULL, NULL},
    {"receive_into", do_receive_into, NULL, NULL},
    {"registration_get_info", do_registration_get_info, NULL, NULL},
    {"registration_invalidate", do_registration_invalidate, NULL, NULL},
    {"strerror reason_text event_name version now", do_texts, NULL, NULL},
};

const size_t every_call_count = sizeof every_call / sizeof *every_call;
