/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * guest.h - a guest: a session that no application knows, and that makes a connection for another one, its host.
 *
 * The host has a connection, and goes on over that of the guest once both sides are ready (move.c). It is dialed and accepted like any
 * session (node/guests.c), on a loop that need not be the host's, and says to the host's that it is up. From then on it waits: frames that
 * come early are held as they are. Its end, without a host that took its connection, is told likewise.
 *
 * Each of the two messages to the host counts among the guest's (session_ref.h), so its slot is not freed before they are taken.
 *
 * Owner: the thread that owns the guest's loop, unless a function says otherwise.
 */
#ifndef DATAPATH_SESSION_GUEST_H
#define DATAPATH_SESSION_GUEST_H

#include "datapath/loop/loop.h"

static inline bool session_is_guest(const struct session *s) {
    return s->host_id != 0;
}

/* In place of UP: its connection is there. */
void guest_ready(struct sluice_loop *l, struct session *s);
/* It has ended, for whatever reason. */
void guest_ended(struct session *s);
/* A frame came while its connection waits. False: it cannot be held. */
bool guest_holds(struct sluice_loop *l, struct connection *c, struct sluice_msg *msg,
                 const struct ibv_wc *wc);
/* A frame that was held, and not looked at. */
void guest_give_up(struct sluice_loop *l, struct sluice_msg *msg);
/* All that a connection holds. */
void guest_drop(struct sluice_loop *l, struct connection *c);
/* The host's loop has taken the message, and finds nothing to do with the guest: it ends, if it has not. Any thread. */
void guest_let_go(struct session *s);
/* As guest_let_go() of a guest that has ended, or ends by itself. */
void guest_release(struct session *s);
/* It waits for its host. Its own loop. */
bool guest_waits(const struct session *s);
/* The node hangs up, and it is the host's, which does so as well: it ends when that lets it go. */
bool guest_stays(struct session *s);
/* Its connection is that of the host from now on, which is on this loop and has an unused one in its place: the guest ends. */
struct connection *guest_give(struct sluice_loop *l, struct session *s, struct session *host);

#endif
