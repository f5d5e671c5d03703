/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * move.h - a session goes on over a connection that was made beside its own.
 *
 * Owner: the thread that owns the loop.
 */
#ifndef DATAPATH_SESSION_MOVE_H
#define DATAPATH_SESSION_MOVE_H

#include "datapath/loop/loop.h"

/* Messages of a guest for the loop of its host. */
void move_guest_ready(struct sluice_loop *l, struct session *guest);
void move_guest_lost(struct sluice_loop *l, struct session *guest);
/* SWITCH came over the connection. NULL, or what is wrong. */
const char *move_heard(struct sluice_loop *l, struct connection *c);
/* This side wants its session on another loop, or the peer does. */
void move_ask(struct sluice_loop *l, struct session *s);
const char *move_asked(struct sluice_loop *l, struct connection *c);
/* What is awaited may have come: at the end of a turn in which anything of it moved. */
void move_progress(struct sluice_loop *l, struct session *s);
/* The connection that is left is drained. False: this is no move. */
bool move_drained(struct sluice_loop *l, struct session *s);
/* hand_over.c: a session that waits for that may be handed over now. True: it was. */
bool move_hands_over(struct sluice_loop *l, struct session *s);
/* And this loop has it. */
void move_handed_over(struct sluice_loop *l, struct session *s);
/* Something that was posted over the session's connection, to which nothing is added, is done. */
void move_completed(struct sluice_loop *l, struct session *s);
/* The connection failed, or seems to: true: it was about to be left, and is now. */
bool move_broken(struct sluice_loop *l, struct session *s);
/* The first frame over the connection that it moved to: up to this number the peer has what was sent. NULL, or what is wrong. */
const char *move_confirmed(struct sluice_loop *l, struct connection *c, uint32_t received);
/* Its own connection is lost, or it ends: there is no move any more. */
void move_abandon(struct sluice_loop *l, struct session *s);
/* It is hung up, and has time: nothing is begun any more. */
void move_hungup(struct sluice_loop *l, struct session *s);
void move_timer(struct sluice_loop *l, struct session *s);

#endif
