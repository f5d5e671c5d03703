/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * resumable.h - the sessions of a node that their dialers may give another connection, by the id both sides know.
 *
 * The loop of a session puts it in when it is up and takes it out before its slot is free; the CM thread looks for
 * it. Never on the path of a message.
 */
#ifndef CORE_RESUMABLE_H
#define CORE_RESUMABLE_H

#include <stdbool.h>
#include <stdint.h>

struct session;
struct sluice_node;

#define RESUMABLE_BUCKETS 1024u

/* Makes it known, once. */
void resumable_add(struct sluice_node *n, struct session *s, const uint8_t id[16]);
void resumable_remove(struct sluice_node *n, struct session *s);
/*
 * Pins the session with this id (session_ref_put()), for which a connection comes from now on. NULL: there is none; *busy: another
 * connection comes already.
 */
struct session *resumable_take(struct sluice_node *n, const uint8_t id[16], bool *busy);
/* Its loop has that connection, or there is none after all. */
void resumable_taken(struct sluice_node *n, struct session *s);

#endif
