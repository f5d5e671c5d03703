/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* resume.c - see resume.h. */
#include "support/resume.h"

#include "support/log.h"

#include "core/session_table.h"
#include "datapath/session/connections.h"
#include "datapath/session/queue_pair.h"
#include "node/guests.h"

struct connection *resume_connection(struct side *side) {
    return session_connection(pair_session(side));
}

void resume_open_with(struct pair *p, const sluice_link_options *link, uint32_t rendezvous) {
    pair_open(p, PAIR_NODE(.log = log_nothing, .rendezvous = rendezvous), link);
    pair_connect(p, link);
}

void resume_open(struct pair *p, const sluice_link_options *link) {
    resume_open_with(p, link, SLUICE_RENDEZVOUS_AUTO);
}

/* The connection ends as if the network had cut it; neither application has done anything. */
void resume_cut(struct side *side) {
    struct connection *c = resume_connection(side);
    assert_int_equal(side->node->fabric->disconnect(c->cm.owner.id), 0);
}

/* This side finds its queue pair broken; the other does not know. */
void resume_break_alone(struct side *side) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    assert_true(connection_modify(resume_connection(side), &attr, IBV_QP_STATE));
}

uint64_t resume_seed;

uint32_t resume_chance(uint32_t below) {
    resume_seed = resume_seed * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(resume_seed >> 33) % below;
}

void resume_lose(struct side *side) {
    if (!resume_connection(side)->qp || pair_session(side)->state != SESSION_UP)
        return;
    if (resume_chance(2))
        resume_cut(side);
    else
        resume_break_alone(side);
}

bool resume_move(struct side *side) {
    struct session *s = pair_session(side);
    return s->state == SESSION_UP && guests_dial(side->node, s, side->loop) == 0;
}

bool resume_moves(struct side *side) {
    const struct session *s = pair_session(side);
    return s->move.step != MOVE_NONE || s->move.guest || atomic_load(&s->has_guest) ||
           session_connection(s)->next;
}

void resume_expect_down(struct pair *p, struct side *side) {
    sluice_event event = pair_expect(p, side, SLUICE_DOWN);
    assert_int_equal(event.reason, SLUICE_REASON_PEER_LOST);
    assert_int_equal(event.session.id, side->session.id);
}

void resume_expect_up(struct pair *p, struct side *side, uint64_t times) {
    sluice_event event = pair_expect(p, side, SLUICE_UP);
    assert_int_equal(event.session.id, side->session.id);
    assert_int_equal(event.tag, times);
    assert_int_equal(pair_info(side->session).up, 1);
    assert_int_equal(pair_info(side->session).resumed, times);
    assert_true(pair_info(side->session).down_ns_total >= event.value);
}

void resume_down_and_up(struct pair *p, uint64_t times) {
    resume_expect_down(p, &p->a);
    resume_expect_down(p, &p->b);
    resume_expect_up(p, &p->b, times);
    resume_expect_up(p, &p->a, times);
}

/* Only this side's loop goes on, and both CM threads; the next event, or none. */
bool resume_goes_on(struct pair *p, struct side *side, sluice_event *event) {
    cm_progress(p->a.node->cm, 0);
    cm_progress(p->b.node->cm, 0);
    int n = sluice_poll(side->loop, event, 1, 0);
    assert_true(n >= 0);
    sched_yield();
    return n == 1;
}

sluice_event resume_alone_next(struct pair *p, struct side *side) {
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    sluice_event event = {0};
    while (!resume_goes_on(p, side, &event))
        assert_true(env_now(&env_default) < limit);
    return event;
}

sluice_event resume_alone(struct pair *p, struct side *side, sluice_event_type type) {
    sluice_event event = resume_alone_next(p, side);
    if (event.type != type)
        fail_msg("%s (%s), expected %s", sluice_event_name(event.type),
                 sluice_reason_text(event.reason), sluice_event_name(type));
    return event;
}
