/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * fence.h - operations on memory that were on their way when the connection was lost, and what was accepted behind them.
 *
 * Owner: the thread that owns the loop.
 */
#ifndef DATAPATH_SESSION_FENCE_H
#define DATAPATH_SESSION_FENCE_H

#include "datapath/loop/loop.h"

/* A request of a one-sided operation that has not ended. */
static inline bool fence_is_operation(const struct sq_entry *entry) {
    return entry->msg && (entry->bytes >> SQ_WHAT_SHIFT & SQ_WHAT_MASK) == SQ_ONE_SIDED;
}

/* An operation ends with an error that says what became of it. */
static inline void fence_failed(struct connection *c, uint32_t at) {
    if (!c->unacked.failed)
        c->unacked.failed_at = at;
    c->unacked.failed = true;
}

/* The connection is lost: what is accepted before the application knows is behind the operations that are on their way. */
void fence_begin(struct session *s);
/* The application is about to be told that the session is down, or up again. */
void fence_told(struct sluice_loop *l, struct session *s);
/*
 * The session has another connection, and up to `received` the peer has what was sent: what it has ends, and so do operations, and what
 * is fenced off by them. Before anything is sent again.
 */
void fence_settle(struct sluice_loop *l, struct session *s, uint32_t received);
/* Nothing that waits is behind anything any more. */
void fence_forget(struct session *s);

#endif
