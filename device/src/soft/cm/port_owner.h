/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * port_owner.h - the process that is asked for a connection to a port of this host. Control lock.
 *
 * Names of a port whose addresses overlap cannot belong to different processes that are honest: the later one gives way.
 * One that does not give way has a name that another user's listener includes, or is included by. So a process of our own
 * user comes first, whatever its name covers. Among other users' it cannot be known who was first; they are asked in turn,
 * the widest name first: a listener at the wildcard of both families loses no connection to a user with another name,
 * and who refuses, or answers nothing, only passes the request on to the next.
 */
#ifndef SOFT_CM_PORT_OWNER_H
#define SOFT_CM_PORT_OWNER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

struct soft_peer;

/* How far a request has come with the other users that hold names of its port. Zero: not at all. */
struct soft_cm_port_turn {
    uint8_t holders; /* above 1: disputed */
    uint8_t at;      /* the one that was asked last */
    uint8_t silent;  /* requests in a row that it did not answer */
    uint8_t refused; /* holders that say that they do not listen */
};

/*
 * The process that owns a destination's port: whose turn it is. 0 and a held peer, or -errno: ECONNREFUSED no process.
 * Where only another address of that port is bound, its owner of our user, which will refuse. EINPROGRESS:
 * names are being read to find that out; ask again in SOFT_CM_NAMES_AGAIN_NS.
 */
#define SOFT_CM_NAMES_AGAIN_NS 1000000
int soft_cm_port_owner(int ps, const struct sockaddr *dst, struct soft_cm_port_turn *turn,
                       struct soft_peer **peer);
/* The one that was asked said nothing, and does not listen. True: the next one is to be asked instead. */
bool soft_cm_port_turn_silent(struct soft_cm_port_turn *turn);
bool soft_cm_port_turn_refused(struct soft_cm_port_turn *turn);

#endif
