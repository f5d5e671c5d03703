/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * open.h - the way of a session to UP, in step with the CM thread.
 *
 * Owner: the thread that owns the loop, unless a function says otherwise.
 */
#ifndef DATAPATH_SESSION_OPEN_H
#define DATAPATH_SESSION_OPEN_H

#include "datapath/loop/loop.h"

void session_prepare(struct sluice_loop *l, struct session *s);
void session_apply(struct sluice_loop *l, struct session *s);
void session_adopt(struct sluice_loop *l, struct session *s);
void session_arrived(struct sluice_loop *l, struct session *s); /* before it was adopted; once */
void session_begin(struct sluice_loop *l, struct session *s);
/* A peer waits for the application's decision: CONNECT. */
void session_ask(struct sluice_loop *l, struct session *s);
void session_attach(struct sluice_loop *l, struct session *s);
/* While it opens the queue pair is done with, and drained. */
void session_renewed(struct sluice_loop *l, struct session *s);

#endif
