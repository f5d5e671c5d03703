/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * dial_race.c - several tries of one dial at a time, each towards another address (RFC 8305 (5), "happy eyeballs").
 *
 * One try has the place of the connection: its id is the connection's. A try whose head start is over without an
 * answer goes on aside, and leaves that place to the next one. When an event comes for a try aside, the two change places
 * first; so what is done about an event (dial.c, dial_retry.c) knows one try, and it is the one that the event is about.
 *
 * They race for the address, and for the route. On the software device over TCP that includes an answer of the peer's
 * host, that is TCP's connection (`reach` of fabric/fabric.h). None of them has sent a request: the one that has its route
 * first sends it, and by then cm_enter() has ended all others. A try that is given up is an id that is destroyed;
 * what it leaves at a peer is at most a TCP connection that was closed before it said anything.
 *
 * Owner: the CM thread.
 */
#include "cm/internal.h"
#include "core/context.h"
#include "fabric/fast.h"

/* The context is what the events of the id go to. */
static void settle(struct cm_owner *owner, struct rdma_cm_id *id) {
    owner->id = id;
    if (id)
        id->context = owner;
}

static struct cm_aside *first(struct cm_conn *conn) {
    struct cm_aside *found = NULL;
    for (unsigned i = 0; i < CM_RACE; i++) {
        struct cm_aside *at = &conn->asides[i];
        if (at->owner.id && (!found || at->search.number < found->search.number))
            found = at;
    }
    return found;
}

static void give_up(struct cm *cm, struct cm_aside *at) {
    cm->node->fabric->destroy_id(at->owner.id); /* with it every event that was not fetched */
    at->owner.id = NULL;
}

/*
 * A dial to one address has no use for the host's answer ahead of the listener's. But one that waits for a host to come up asks
 * it again and again for a short time, and TCP would ask at growing intervals. One that will stand in line asks nothing: a
 * listener drops connections without a request.
 */
int cm_race_route(struct cm *cm, struct cm_conn *conn) {
    cm_assert_thread(cm);
    const struct fabric_ops *fabric = cm->node->fabric;
    int ms = cm_milliseconds(cm, conn);
    const union address *address = &conn->candidates[conn->search.candidate];
    bool reaches = conn->candidate_count > 1 || (cm_waits(conn) && !dial_line_is_full(cm, address));
    int rc = reaches ? fabric_reach(fabric, conn->owner.id, ms)
                     : fabric->resolve_route(conn->owner.id, ms);
    conn->search.reaches = rc > 0;
    return rc < 0 ? -1 : 0;
}

uint8_t cm_race_under_way(const struct cm_conn *conn) {
    unsigned bits = 0;
    for (unsigned i = 0; i < CM_RACE; i++)
        if (conn->asides[i].owner.id)
            bits |= 1u << conn->asides[i].search.candidate;
    return (uint8_t)bits;
}

void cm_race_make_room(struct cm *cm, struct cm_conn *conn) {
    cm_assert_thread(cm);
    if (__builtin_popcount(cm_race_under_way(conn)) == CM_RACE)
        give_up(cm, first(conn));
}

/* There is room: the try in the connection's place was begun when there was, and is one of CM_RACE. */
void cm_race_aside(struct cm *cm, struct cm_conn *conn) {
    cm_assert_thread(cm);
    for (unsigned i = 0; i < CM_RACE; i++) {
        struct cm_aside *at = &conn->asides[i];
        if (at->owner.id)
            continue;
        *at = (struct cm_aside){.owner = {.state = conn->owner.state, .aside = true},
                                .conn = conn,
                                .search = conn->search};
        settle(&at->owner, conn->owner.id);
        conn->owner.id = NULL;
        return;
    }
    ASSERT(false);
}

struct cm_owner *cm_race_forward(struct cm *cm, struct cm_owner *owner) {
    cm_assert_thread(cm);
    struct cm_aside *at = (struct cm_aside *)(void *)owner;
    struct cm_conn *conn = at->conn;
    struct rdma_cm_id *id = owner->id, *other = conn->owner.id;
    struct cm_search search = at->search;
    uint8_t state = owner->state;
    ASSERT(cm_race_may_go_on(conn->owner.state));
    at->search = conn->search;
    owner->state = conn->owner.state;
    settle(owner, other);
    conn->search = search;
    settle(&conn->owner, id);
    cm_enter(cm, conn, state);
    cm_try_show(cm, conn);
    return &conn->owner;
}

bool cm_race_forward_first(struct cm *cm, struct cm_conn *conn) {
    cm_assert_thread(cm);
    struct cm_aside *at = first(conn);
    if (at)
        (void)cm_race_forward(cm, &at->owner);
    return at != NULL;
}

void cm_race_end(struct cm *cm, struct cm_conn *conn) {
    cm_assert_thread(cm);
    conn->begun &= (uint8_t)~cm_race_under_way(conn);
    for (struct cm_aside *at; (at = first(conn));)
        give_up(cm, at);
}
