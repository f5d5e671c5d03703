/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * close.h - what close.c, which takes a session from state to state, and drain.c share.
 *
 * Owner: the loop's thread.
 */
#ifndef DATAPATH_SESSION_CLOSE_H
#define DATAPATH_SESSION_CLOSE_H

#include "core/session.h"

/* close.c: instead of "lost", what is known by now. */
void close_settle(struct session *s, sluice_reason reason, uint32_t vendor, const char *text);

/* open.c: while it opens the queue pair is done with, and drained. */
void session_renewed(struct sluice_loop *l, struct session *s);

/* drain.c: the queue pair of a session that opens is of no more use. */
void drain_begin(struct sluice_loop *l, struct session *s);

/* drain.c: something came back; and it took too long. */
void drain_progress(struct sluice_loop *l, struct session *s);
void drain_expired(struct sluice_loop *l, struct session *s);

#endif
