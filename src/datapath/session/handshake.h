/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * handshake.h - HELLO, WELCOME and REFUSE.
 *
 * Owner: the thread that owns the loop, unless a function says otherwise.
 */
#ifndef DATAPATH_SESSION_HANDSHAKE_H
#define DATAPATH_SESSION_HANDSHAKE_H

#include "datapath/loop/loop.h"

struct frame;

/* Listener, before it answers: its proof, into conn->rep. NONE, or why the peer is refused. */
sluice_reason handshake_prove(struct session *s);
/* Dialer, before its QP can receive: whether the listener has proven itself. */
sluice_reason handshake_verify(struct session *s);
extern const char greet_no_key[]; /* to prove with */
/* The connection is there: the dialer says HELLO, the listener looks whether it came already. */
void handshake_begin(struct sluice_loop *l, struct session *s);
/* NULL, or what is wrong with this frame during the handshake. */
const char *handshake_check(const struct session *s, const struct frame *f);
void handshake_arrived(struct sluice_loop *l, struct session *s, struct sluice_msg *msg);
/* Dialer: what it said has had no answer for a while. */
void handshake_nudge(struct sluice_loop *l, struct session *s);
/* The application's answer. */
void handshake_answered(struct sluice_loop *l, struct session *s);

#endif
