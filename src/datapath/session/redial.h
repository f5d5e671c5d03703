/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * redial.h - a dial whose listener answered, and gave the connection up before the session was up, goes on.
 *
 * Owner: the thread that owns the loop.
 */
#ifndef DATAPATH_SESSION_REDIAL_H
#define DATAPATH_SESSION_REDIAL_H

#include "datapath/loop/loop.h"

/* Its connection is of no more use. True: the dial goes on with another one. False: the session ends. */
bool redial_begin(struct sluice_loop *l, struct session *s, sluice_reason reason, uint32_t vendor,
                  const char *text);
/*
 * A completion says that the peer is gone, before the session is up. True: what the CM thread hears is awaited, for a listener that is busy
 * may have said so, and its queue pair has gone before.
 */
bool redial_awaits(struct sluice_loop *l, struct session *s);
/* It heard nothing in time. */
void redial_gone(struct sluice_loop *l, struct session *s);
/* The connection is drained: the next one may be made. */
void redial_drained(struct sluice_loop *l, struct session *s, struct connection *before);
/* Where it may be dialed goes on from one connection to the next. The CM thread dials over neither. */
void redial_take_places(struct connection *c, struct connection *before);
/* All that the dial knows does. */
void redial_take(struct connection *c, struct connection *before);

#endif
