/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * connections.h - the connections of a session: making one, moving it up, going over to another, retiring it.
 *
 * Owner: the thread that owns the loop.
 */
#ifndef DATAPATH_SESSION_CONNECTIONS_H
#define DATAPATH_SESSION_CONNECTIONS_H

#include "datapath/loop/loop.h"

/*
 * Its queue pair on the loop's CQ, in INIT, with the first receives: c->cm.init says how. NULL, or what failed, for which
 * reason; DEVICE_ERROR: errno. Then it may have a queue pair all the same, to be drained.
 */
const char *connection_build(struct sluice_loop *l, struct connection *c, sluice_reason *reason);
/* Sets what follows from what both sides agreed on, before the first frame can come or go. */
void connection_agree(struct connection *c);
/* RTR and RTS, as c->cm says. False: errno. */
bool connection_up(struct connection *c);
/* The dialer is welcome: regions are open to it. False: the device refuses. */
bool connection_admit(struct connection *c);

/*
 * Another one of this session, to be built and moved up; nothing is sent over it before connection_switch(). NULL: no memory.
 */
struct connection *connection_add(struct sluice_loop *l, struct session *s);
/*
 * The session sends over this one from now on. What arrives over the earlier one is delivered, what was sent over it completes;
 * between the two there is no order, which is the callers' to see to. False: a message is half sent, or a request, a large
 * message or a one-sided operation needs the connection that there is; or the session is not up.
 */
bool connection_switch(struct sluice_loop *l, struct session *s, struct connection *c);
/* This one, which is behind another, is what the session sends over from now on, and the one before it comes behind. */
void connection_put_first(struct session *s, struct connection *c);
/* The numbers go on where those of the connection before ended. */
void connection_go_on_counting(struct connection *c, const struct connection *before);
/* Whether all that it does not send over have ended. */
bool connections_are_over(const struct session *s);
/* Frees those that connection_retire() has drained (drain.h), and that nothing speaks of. */
void connections_reap(struct sluice_loop *l);

#endif
