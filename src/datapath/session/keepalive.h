/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * keepalive.h - an idle session sends keepalive frames, and watches its peer.
 *
 * Owner: the thread that owns the loop, unless a function says otherwise.
 */
#ifndef DATAPATH_SESSION_KEEPALIVE_H
#define DATAPATH_SESSION_KEEPALIVE_H

#include "datapath/loop/loop.h"

/* From now on the session says that it lives, and the peer must. */
void keepalive_start(struct sluice_loop *l, struct session *s);
/* Looks at the sessions if it is time to; l->now_ns was just read. */
void keepalive_check(struct sluice_loop *l);
/* Every 64th turn, l->now_ns just read: whether the turns became too slow to count them. */
void keepalive_pace(struct sluice_loop *l);

#endif
