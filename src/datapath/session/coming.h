/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * coming.h - whether another connection is one for a session, and where both sides go on over it.
 *
 * Owner: the thread that owns the loop.
 */
#ifndef DATAPATH_SESSION_COMING_H
#define DATAPATH_SESSION_COMING_H

#include "datapath/loop/loop.h"

/* The first message of a connection that the CM thread has made for the session. */
void coming_arrived(struct sluice_loop *l, struct connection *c, enum loop_msg verb);
/* What both sides agreed on at first holds for that connection as well. */
bool coming_fits(const struct session *s, const struct connection *c);
/* The dialer's answer is there: whether it fits, and then where both sides go on. NULL, or what is wrong. */
const char *coming_agree(struct sluice_loop *l, struct session *s);

#endif
