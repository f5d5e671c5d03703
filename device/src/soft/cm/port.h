/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * port.h - ports of a port space: which process has reserved one, and which id listens on it.
 *
 * A port asked for by the application is reserved for the whole host by its name (port_name.h). The
 * source port of an id that never asked is only unique in this process: it costs no descriptor, and
 * no peer connects to it. Control lock for everything.
 */
#ifndef SOFT_CM_PORT_H
#define SOFT_CM_PORT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "soft/cm/port_name.h"
#include "soft/ipc/abstract_socket.h"
#include "soft/ipc/peer.h"

struct soft_cm_id;

struct soft_cm_port {
    struct soft_abstract_socket names[2]; /* one in use, the other while the name changes */
    int name;                             /* index in names, -1: none */
    struct soft_cm_port_name taken;       /* what that name says */
    bool ephemeral;                       /* from this process's own range */
    bool linked;
    bool reuse, afonly, afonly_set;
    struct soft_cm_id *next, **link; /* ids with a port, by port */
};

/* This process is a fork's child: nothing is its own yet. */
void soft_cm_port_forked(void);
void soft_cm_port_init(struct soft_cm_port *port);
/* Reserves the id's source address and port (0: any free one). 0 or -errno. */
int soft_cm_port_claim(struct soft_cm_id *id);
/* A source port for an id that connects. 0 or -errno. */
int soft_cm_port_claim_ephemeral(struct soft_cm_id *id);
/* The id's options changed while it is bound: takes the name they ask for. 0 or -errno. */
int soft_cm_port_rename(struct soft_cm_id *id);
void soft_cm_port_release(struct soft_cm_id *id);

/*
 * The listener for an address and port of a port space. Without one, *known says whether an id of this process
 * listens on that port at another address.
 */
struct soft_cm_id *soft_cm_port_listener(int ps, const struct sockaddr *dst, bool *known);

#endif
