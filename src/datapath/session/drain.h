/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * drain.h - the end of a queue pair: into ERR, its completions back, destroyed.
 *
 * Owner: the thread that owns the loop, unless a function says otherwise.
 */
#ifndef DATAPATH_SESSION_DRAIN_H
#define DATAPATH_SESSION_DRAIN_H

#include "datapath/loop/loop.h"

void session_drain(struct sluice_loop *l, struct session *s);
/* The queue pair of a session that opens is of no more use. */
void drain_begin(struct sluice_loop *l, struct session *s);
/* Something came back; and it took too long. */
void drain_progress(struct sluice_loop *l, struct session *s);
void drain_expired(struct sluice_loop *l, struct session *s);

#endif
