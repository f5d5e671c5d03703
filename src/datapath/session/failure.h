/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * failure.h - what a completion or a post that failed says of the peer or of the device. The session ends by it.
 *
 * Owner: the thread that owns the loop.
 */
#ifndef DATAPATH_SESSION_FAILURE_H
#define DATAPATH_SESSION_FAILURE_H

#include "datapath/loop/loop.h"

/* A completion failed: what that says of the peer or the device. */
void session_wc_error(struct sluice_loop *l, struct session *s, const struct ibv_wc *wc);
/* Of one of its connections: one that it does not send over is drained, and the session goes on. */
void connection_wc_error(struct sluice_loop *l, struct connection *c, const struct ibv_wc *wc);
/* The peer's device did not allow an operation of the application. */
void session_access_error(struct sluice_loop *l, struct session *s, const struct ibv_wc *wc);
/* The peer's device did not allow a large message that was announced, or gave no memory for one. */
void session_withdrawn(struct sluice_loop *l, struct session *s, const struct ibv_wc *wc);

#endif
