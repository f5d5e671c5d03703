/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * reap.h - sessions that have ended: their slots become free.
 *
 * Owner: the thread that owns the loop.
 */
#ifndef DATAPATH_SESSION_REAP_H
#define DATAPATH_SESSION_REAP_H

#include "datapath/loop/loop.h"

/* CLOSED was delivered (or is not wanted): the slot is free as soon as no thread is inside. */
void session_free(struct sluice_loop *l, struct session *s);
/* Frees what session_free() marked, where no thread is inside any more. */
void session_reap(struct sluice_loop *l);

#endif
