/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * places.h - a connection (a listener, a watch) brought to a state of the CM thread's table and held
 * there: its node's events are let through one by one, its loop runs last, and everything stops as
 * soon as the state is reached. Then whatever a test wants may happen to it; visit_settle() lets
 * everything go on and sees to it that each session ends exactly once.
 *
 * A new state is a row of places[] and, if it is not on the straight way to UP, a case in visit(). One
 * thread; the clock is the test's.
 */
#ifndef TESTS_SUPPORT_PLACES_H
#define TESTS_SUPPORT_PLACES_H

#include "cm/listen.h"
#include "cm/cm_table.h"
#include "core/auth/keyring.h"
#include "support/watched.h"

enum place_way { ON_THE_WAY, BY_WAITING, BY_BUSY, BY_FAILING, BY_HANGING_UP, OF_THE_NODE };

enum place_greets { SILENTLY, WITH_DATA, WITH_KEY };

struct place {
    uint8_t state;
    bool passive; /* at the listener's side */
    enum place_way way;
    uint32_t link_flags; /* of the listener */
    enum place_greets greets;
};

enum { PLACES = 23 };

extern const struct place places[PLACES];

struct visit {
    struct pair p;
    uint32_t known; /* sessions the listener's application was told of */
    sluice_session dialed[2];
    uint32_t dials;
    uint32_t handshakes_max, requests_max; /* the listener's own */
    struct keyring *keys;                  /* of a listener that has some */
    sluice_event last[2];                  /* CLOSED of a and of b */
    sluice_session_info info[2];
};

/* The side that stops there. */
struct side *place_side(struct visit *v, const struct place *place);
/* The connection that is on its way there, or what is there already; NULL: not yet. */
struct cm_owner *place_owner(struct visit *v, const struct place *place);

/* ---- going there ----------------------------------------------------------------------------- */

/* A new connection, up to there. */
struct cm_owner *visit(struct visit *v, const struct place *place);
/* An event of the place's id, with whatever it says. False: the id has no device any more. */
bool visit_say(struct visit *v, const struct place *place, struct cm_owner *owner,
               struct rdma_cm_event *event, const void *data, size_t bytes);

/* ---- and on ---------------------------------------------------------------------------------- */

/* A turn of both sides; what happens is noted. */
void visit_turn(struct visit *v);
/* Whatever was held back goes on. */
void visit_let_go(struct visit *v);

/*
 * Until nobody has a session. The device does not tell everybody of everything (a listener whose
 * dialer gave up hears of it when it answers): where nothing moves, time passes.
 */
void visit_settle(struct visit *v);
/* Every session comes about, and is accepted where that is asked. */
void visit_come_up(struct visit *v);
/* Everybody hangs up. */
void visit_end(struct visit *v);
/* Two watched nodes, the first listening. */
void visit_open(struct visit *v);
/* Closes them; the rules were kept. */
void visit_close(struct visit *v);

#endif
