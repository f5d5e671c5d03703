/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* places.c - see places.h. */
#include "support/places.h"

#include "support/usage.h"

const struct place places[] = {
    {CM_RESOLVING_ADDR, false, ON_THE_WAY, 0, SILENTLY},
    {CM_RESOLVING_ROUTE, false, ON_THE_WAY, 0, SILENTLY},
    {CM_CREATING_QP, false, ON_THE_WAY, 0, SILENTLY},
    {CM_CONNECTING, false, ON_THE_WAY, 0, SILENTLY},
    {CM_BACKOFF, false, BY_BUSY, 0, SILENTLY},
    {CM_MODIFYING_QP, false, ON_THE_WAY, 0, SILENTLY},
    {CM_AWAITING_APP, true, ON_THE_WAY, SLUICE_ASK, SILENTLY},
    {CM_AWAITING_APP, true, ON_THE_WAY, SLUICE_ASK, WITH_DATA}, /* after HELLO */
    {CM_QUEUED, true, BY_WAITING, 0, SILENTLY},
    {CM_CREATING_QP_PASSIVE, true, ON_THE_WAY, 0, SILENTLY},
    {CM_ACCEPTING, true, ON_THE_WAY, 0, SILENTLY},
    {CM_HANDSHAKE, false, ON_THE_WAY, 0, WITH_DATA},
    {CM_HANDSHAKE, true, ON_THE_WAY, 0, WITH_DATA},
    {CM_HANDSHAKE, false, ON_THE_WAY, 0, WITH_KEY},
    {CM_HANDSHAKE, true, ON_THE_WAY, SLUICE_ASK, WITH_KEY},
    {CM_UP, false, ON_THE_WAY, 0, SILENTLY},
    {CM_UP, true, ON_THE_WAY, 0, SILENTLY},
    {CM_FAILED, false, BY_FAILING, 0, SILENTLY},
    {CM_FAILED, true, BY_FAILING, 0, SILENTLY},
    {CM_RELEASED, false, BY_HANGING_UP, 0, SILENTLY},
    {CM_RELEASED, true, BY_HANGING_UP, 0, SILENTLY},
    {CM_LISTENING, true, OF_THE_NODE, 0, SILENTLY},
    {CM_REMOVAL_WATCH, false, OF_THE_NODE, 0, SILENTLY},
};

struct side *place_side(struct visit *v, const struct place *place) {
    return place->passive ? &v->p.a : &v->p.b;
}

static uint32_t visit_listener_slot(const struct visit *v) {
    return ((uint32_t)(v->p.listener.id >> 32) & 0xffffff) ^ LISTENER_SLOT;
}

struct cm_owner *place_owner(struct visit *v, const struct place *place) {
    struct cm *cm = place_side(v, place)->node->cm;
    if (place->state == CM_REMOVAL_WATCH)
        return &cm->watch;
    if (place->state == CM_LISTENING)
        return &cm_listener_at(cm, visit_listener_slot(v))->owner;
    if (!place->passive)
        return &pair_session(&v->p.b)->connection->cm.owner;
    /* The last dial's: a request of a dialer that is gone may still be on its way. */
    const struct private_data_req *req = &pair_session(&v->p.b)->connection->cm.req;
    struct cm_conn *conn;
    cds_list_for_each_entry(conn, &cm->conns, link) {
        if (memcmp(conn->req.session_id, req->session_id, sizeof req->session_id) == 0)
            return &conn->owner;
    }
    return NULL;
}

static bool visit_at(struct visit *v, const struct place *place, enum cm_state state) {
    struct cm_owner *owner = place_owner(v, place);
    return owner && owner->state == state;
}

/* ---- going there ----------------------------------------------------------------------------- */

/* One step of the side that is to stop somewhere. */
static bool visit_step(struct visit *v, const struct place *place, enum cm_state state) {
    struct side *side = place_side(v, place);
    cm_progress(side->node->cm, 0); /* records alone */
    if (visit_at(v, place, state))
        return true;
    watched.let_through = 1;
    watched_nudge(side->node);
    cm_progress(side->node->cm, 0);
    watched.let_through = 0;
    if (visit_at(v, place, state))
        return true;
    /* The loop is as slow as it can be: the route is resolved before the queue pair is made. */
    if (!visit_at(v, place, CM_RESOLVING_ADDR) && !visit_at(v, place, CM_RESOLVING_ROUTE))
        assert_true(sluice_poll(side->loop, NULL, 0, 0) >= 0);
    return visit_at(v, place, state);
}

static void visit_go(struct visit *v, const struct place *place, enum cm_state state) {
    struct side *other = place->passive ? &v->p.b : &v->p.a;
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    while (!visit_at(v, place, state) && !visit_step(v, place, state)) {
        cm_progress(other->node->cm, 0);
        assert_true(sluice_poll(other->loop, NULL, 0, 0) >= 0);
        if (env_now(&env_default) >= limit)
            fail_msg("never waits for %s", cm_state_name(state));
    }
}

static const sluice_key visit_key = {.id = 7, .bytes = 16, .secret = "sixteen letters."};

static struct cm_listener *visit_listener(struct visit *v) {
    return cm_listener_at(v->p.a.node->cm, visit_listener_slot(v));
}

static void visit_dial(struct visit *v, const struct place *place) {
    sluice_link_options o = {.flags = place->way == BY_BUSY ? 0 : SLUICE_ONCE};
    if (place->greets == WITH_DATA) {
        o.private_data = "who I am";
        o.private_bytes = 8;
    } else if (place->greets == WITH_KEY) {
        o.keys = &visit_key;
        o.key_count = 1;
    }
    pair_dial(&v->p, &o);
    v->dialed[v->dials++] = v->p.b.session;
}

/* What the listener is like until the place is left. */
static void visit_furnish(struct visit *v, const struct place *place) {
    struct cm_listener *listener = visit_listener(v);
    struct keyring *keys = place->greets == WITH_KEY ? v->keys : NULL;
    keyring_hold(keys);
    keyring_drop(listener->link.keys);
    listener->link.keys = keys;
    listener->link.flags = place->link_flags;
    if (place->way == BY_BUSY)
        v->p.a.node->options.handshakes_max = v->p.a.node->options.requests_max = 0;
    if (place->way == BY_WAITING)
        v->p.a.node->options.handshakes_max = 1;
}

/* The first takes the only handshake, and its loop does nothing for it; the second waits. */
static void visit_wait(struct visit *v, const struct place *place) {
    struct cm *cm = v->p.a.node->cm;
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    visit_go(v, place, CM_CREATING_QP_PASSIVE);
    cm->admission.due_ns = UINT64_MAX / 2; /* nobody makes room, however slow this host is */
    visit_dial(v, place);
    while (!visit_at(v, place, CM_QUEUED)) {
        watched.let_through = 1;
        watched_nudge(v->p.a.node);
        cm_progress(cm, 0);
        watched.let_through = 0;
        cm_progress(v->p.b.node->cm, 0);
        assert_true(sluice_poll(v->p.b.loop, NULL, 0, 0) >= 0);
        assert_true(env_now(&env_default) < limit);
    }
}

struct cm_owner *visit(struct visit *v, const struct place *place) {
    struct side *side = place_side(v, place);
    v->known = v->dials = v->p.a.closed = v->p.b.closed = 0;
    v->p.a.session.id = 0;
    pair_frozen =
        env_now(&env_default); /* nobody's pause or patience ends, however slow this host is */
    visit_furnish(v, place);
    watched.held = side->node->cm->channel;
    watched.let_through = 0;
    visit_dial(v, place);
    struct cm_owner *owner;
    switch (place->way) {
    case ON_THE_WAY:
    case BY_BUSY:
        visit_go(v, place, (enum cm_state)place->state);
        break;
    case BY_WAITING:
        visit_wait(v, place);
        break;
    case BY_FAILING:
        visit_go(v, place, CM_UP);
        owner = place_owner(v, place);
        assert_true(watched_forge(&(struct rdma_cm_event){.id = owner->id,
                                                          .event = RDMA_CM_EVENT_DISCONNECTED,
                                                          .status = -ETIMEDOUT},
                                  NULL, 0));
        cm_progress(side->node->cm, 0);
        break;
    case BY_HANGING_UP:
        visit_go(v, place, CM_UP);
        owner = place_owner(v, place);
        sluice_hangup((sluice_session){session_of_conn((struct cm_conn *)(void *)owner)->id}, 0);
        visit_go(v, place, CM_RELEASED);
        break;
    case OF_THE_NODE:
        watched.held = NULL; /* it is there all the time */
        break;
    }
    owner = place_owner(v, place);
    assert_non_null(owner);
    assert_int_equal(owner->state, place->state);
    if (place->state == CM_AWAITING_APP)
        assert_int_equal(((struct cm_conn *)(void *)owner)->established, place->greets != SILENTLY);
    if (place->state == CM_BACKOFF)
        assert_null(owner->id); /* that of the last try is gone */
    else
        assert_non_null(owner->id);
    return owner;
}

/* What the place's node has to hear now, and nothing else. */
static void visit_hear(struct visit *v, const struct place *place) {
    cm_progress(place_side(v, place)->node->cm, 0);
}

bool visit_say(struct visit *v, const struct place *place, struct cm_owner *owner,
               struct rdma_cm_event *event, const void *data, size_t bytes) {
    struct cm *cm = place_side(v, place)->node->cm;
    struct rdma_cm_id *stray = NULL;
    event->id = owner->id;
    /* Between two tries there is no id, only what somebody may have in hand of the last one's. */
    if (!owner->id) {
        assert_int_equal(soft_create_id(cm->channel, &stray, owner, RDMA_PS_TCP), 0);
        event->id = stray;
    } else if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST && owner->state == CM_LISTENING) {
        /* Only this event brings an id of its own. */
        event->listen_id = owner->id;
        assert_int_equal(soft_create_id(cm->channel, &event->id, owner, RDMA_PS_TCP), 0);
    }
    bool said = watched_forge(event, data, bytes);
    if (said)
        visit_hear(v, place);
    if (stray)
        soft_destroy_id(stray);
    return said;
}

/* ---- and on ---------------------------------------------------------------------------------- */

static void visit_note(struct visit *v, int which, const sluice_event *event) {
    struct side *side = which ? &v->p.b : &v->p.a;
    uint64_t seen = side->session.id;
    pair_note(side, event);
    if (pair_of_listener(event))
        return;
    if (which == 0 && side->session.id != seen)
        v->known++;
    if (event->type != SLUICE_CLOSED)
        return;
    v->last[which] = *event;
    v->info[which].size = sizeof v->info[which];
    assert_int_equal(sluice_session_get_info(event->session, &v->info[which]), 0);
}

void visit_turn(struct visit *v) {
    struct side *sides[] = {&v->p.a, &v->p.b};
    for (int i = 0; i < 2; i++) {
        sluice_event event;
        cm_progress(sides[i]->node->cm, 0);
        int n = sluice_poll(sides[i]->loop, &event, 1, 0);
        assert_true(n >= 0);
        if (n == 1)
            visit_note(v, i, &event);
    }
}

void visit_let_go(struct visit *v) {
    v->p.a.node->options.handshakes_max = v->handshakes_max;
    v->p.a.node->options.requests_max = v->requests_max;
    v->p.a.node->cm->admission.due_ns = 0;
    pair_frozen = 0;
    pair_clock += 100000000; /* a pause is over */
    watched.held = NULL;
    watched_nudge(v->p.a.node);
    watched_nudge(v->p.b.node);
}

static unsigned visit_sessions(struct visit *v) {
    return session_table_used_count(v->p.a.node->index) +
           session_table_used_count(v->p.b.node->index);
}

/* But those of the shared receives, which go with the device. */
static void expect_no_entries(const struct sluice_loop *l) {
    const struct recv_queue *shared = &l->srq.queue;
    assert_int_equal(l->cq_used, shared->srq ? shared->depth : 0);
}

void visit_settle(struct visit *v) {
    uint64_t start = env_now(&env_default), patience = start + 100000000;
    uint64_t ran = usage_processor_ns();
    visit_let_go(v);
    for (uint64_t now = start; visit_sessions(v) > 0; now = env_now(&env_default)) {
        visit_turn(v);
        /* What goes on by itself had its time, and the device's thread was run: the rest needs the clock. */
        if (now >= patience && usage_processor_ns() - ran >= 100000000) {
            pair_clock += 15000000000ull;
            patience = now + 100000000;
            ran = usage_processor_ns();
        }
        if (now - start >= PAIR_LIMIT_NS)
            fail_msg("%u sessions of the listener and %u of the dialer do not end",
                     session_table_used_count(v->p.a.node->index),
                     session_table_used_count(v->p.b.node->index));
    }
    assert_int_equal(v->p.b.closed, v->dials);
    assert_int_equal(v->p.a.closed, v->known);
    const struct admission *admit = &v->p.a.node->cm->admission;
    assert_int_equal(admit->open.count + admit->queue.count + admit->asking, 0);
    expect_no_entries(v->p.a.loop);
    expect_no_entries(v->p.b.loop);
    assert_true(cds_list_empty(&v->p.a.node->cm->conns));
    assert_true(cds_list_empty(&v->p.b.node->cm->conns));
}

void visit_come_up(struct visit *v) {
    for (; v->known < v->dials; v->known++) {
        sluice_event event;
        assert_true(pair_next(&v->p, &v->p.a, &event));
        if (event.type == SLUICE_CONNECT) {
            assert_int_equal(sluice_accept(event.session, NULL), 0);
            event = pair_expect(&v->p, &v->p.a, SLUICE_UP);
        }
        assert_int_equal(event.type, SLUICE_UP);
        pair_expect(&v->p, &v->p.b, SLUICE_UP);
    }
}

void visit_end(struct visit *v) {
    visit_let_go(v);
    for (int i = 0; i < 4; i++)
        visit_turn(v);
    for (uint32_t i = 0; i < v->dials; i++)
        sluice_hangup(v->dialed[i], 0);
    sluice_hangup(v->p.a.session, 0);
    visit_settle(v);
}

void visit_open(struct visit *v) {
    memset(v, 0, sizeof *v);
    watched_open(&v->p, PAIR_LINK());
    v->handshakes_max = v->p.a.node->options.handshakes_max;
    v->requests_max = v->p.a.node->options.requests_max;
    sluice_link_options o = {.keys = &visit_key, .key_count = 1};
    assert_int_equal(keyring_make(&v->keys, &o, false, NULL), 0);
}

void visit_close(struct visit *v) {
    watched_close(&v->p);
    keyring_drop(v->keys);
}
