/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* guests.h - sessions that no application knows: each makes a connection for another one (datapath/session/guest.h). */
#ifndef NODE_GUESTS_H
#define NODE_GUESTS_H

#include "core/session.h"

/*
 * A guest of that session, which the caller has pinned and which dialed, on that loop: it dials the peer that the session has. 0; EAGAIN: the
 * session has a guest; ELIMIT, ENOMEM, EADDRESS. Any thread.
 */
int guests_dial(sluice_node *n, struct session *host, struct sluice_loop *l);
/* Those of that worker that can move begin to, to others. In a call of the node. */
void guests_move_away(sluice_node *n, struct sluice_loop *from);
/* For the peer's MOVE, on the session's own loop. */
void guests_asked(sluice_node *n, struct session *host);
/* For a request, see core/upcalls.h: on the loop of the session with that id. */
struct session *guests_join(sluice_node *n, const uint8_t id[16], bool *busy);

#endif
