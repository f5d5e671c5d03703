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
/*
 * One that its session does not send over is ended: the CM thread disconnects it (RELEASE), it is drained (DRAIN), its id
 * destroyed (DRAINED), and it waits for connections_reap() (GONE).
 */
void connection_retire(struct sluice_loop *l, struct connection *c);
void connection_drain(struct sluice_loop *l, struct connection *c);
/* The peer has said good-bye, and the application has not looked at all that came before. */
bool drain_said_bye(const struct session *s);
/* What a connection had that is drained: its send queue, and its headers. */
void drain_free_queues(struct sluice_loop *l, struct connection *c);
/* Something came back; and it may have taken too long: l->now_ns was just read. */
void drain_progress(struct sluice_loop *l, struct connection *c);
void drain_timer(struct sluice_loop *l, struct connection *c);

#endif
