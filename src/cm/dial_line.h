/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * dial_line.h - how many dials of a node ask one address at a time, and which wait for their turn.
 *
 * A listener answers one request after the other. Of thousands that come at once each is sent again and again meanwhile, which
 * makes all of them later, and what waits there is a reason to give those up that are slow. So twice as many dials to an address as a
 * listener has handshakes by default (handshakes_max) are under way, from their request to the end of their handshake, and the others stand in a line (IN_LINE), within the time that each has. An address
 * that does not answer makes only those wait that want to go there as well.
 *
 * Only cm_enter() moves a connection from state to state, and it calls dial_line_move(), so a turn is given back exactly once,
 * however a dial ends.
 *
 * Owner: the CM thread.
 */
#ifndef CM_DIAL_LINE_H
#define CM_DIAL_LINE_H

#include <stdint.h>
#include <urcu/list.h>

#include "core/cm_conn.h"

#define DIAL_LINE_ASKING 256u /* to one address at a time */
#define DIAL_LINE_CHAINS 64u

struct cm;

struct dial_lines {
    struct cds_list_head chains[DIAL_LINE_CHAINS]; /* lines, by address */
    struct cds_list_head due;                      /* those of which a turn was given back */
    uint32_t most;                                 /* DIAL_LINE_ASKING */
};

void dial_lines_init(struct cm *cm);
/* At the end, of dials that were given up as well. */
void dial_lines_close(struct cm *cm);
/* A dial to that address would have to wait for its turn. */
bool dial_line_is_full(struct cm *cm, const union address *address);
/* The request of this dial may be sent. True: now; false: it is IN_LINE, and cm_dial_turn() follows. */
bool dial_line_join(struct cm *cm, struct cm_conn *conn);
/* cm_enter() only: before conn->owner.state becomes `state`. */
void dial_line_move(struct cm *cm, struct cm_conn *conn, enum cm_state state);
/* Once a round: turns that were given back go to those that wait. Returns how many. */
unsigned dial_lines_progress(struct cm *cm);

#endif
