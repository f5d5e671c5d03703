/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * landing.h - memory for messages that arrive in parts.
 *
 * Owner: the thread that owns the loop, unless a function says otherwise.
 */
#ifndef DATAPATH_RX_LANDING_H
#define DATAPATH_RX_LANDING_H

#include "datapath/loop/loop.h"

/* A buffer in which a message of this size is received; NULL: no memory now, or EMSGSIZE never. */
struct sluice_msg *landing_get(struct sluice_loop *l, uint64_t bytes);
/*
 * A buffer for a message that this session's peer takes its time for, until landing_done(). It counts as the peer's until
 * its memory is free.
 */
struct sluice_msg *landing_for(struct sluice_loop *l, struct session *s, uint64_t bytes);
/* A buffer for a message that is whole at once; of a session that holds nothing. */
struct sluice_msg *landing_passing(struct sluice_loop *l, struct session *s, uint64_t bytes);
void landing_done(struct sluice_loop *l, struct session *s, uint64_t bytes);
/* A buffer of such a message is free: pool_on_return(), any thread. */
void landing_returned(const struct pool_buffer *buffer, uint16_t account, void *node);
/* The session is up: its peer is known from now on, to any thread that is inside of it. */
void landing_meet(struct sluice_loop *l, struct session *s);
/*
 * A message of this session's is to be sent on by the thread that has it, which is inside of the session. False: its
 * peer holds its share. And it was: it counts until it is free, if it did not anyway.
 */
bool landing_may_pass(const struct session *s, const struct sluice_msg *msg);
void landing_passed(struct session *s, struct sluice_msg *msg);
/* The session has ended, and holds nothing. */
void landing_forget(struct sluice_loop *l, struct session *s);
/* Whether a session that has a landing may have another one. */
bool landing_may(const struct sluice_loop *l, uint64_t bytes);

/* One of the messages in frames that were held has its memory: those behind it may have some. */
void landing_found(struct sluice_loop *l, struct session *s);
/* There is none for the receives of a new session. */
void landing_missed(struct sluice_loop *l);

/* Now and then: whether the peer goes on. */
void landing_check(struct sluice_loop *l, struct session *s);

#endif
