/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * tcp_port.h - a listener's TCP port, and connections whose request is not whole yet, or waits for room in the backlog.
 *
 * Every host that can reach the port gets so far. A connection has 5 s for its request; 64 of a listener may be without
 * one; of more, the oldest of the address that has most is closed. Of those with one 64 may wait for room, and what
 * was accepted before they had all been read (64 at most); then no more are accepted.
 *
 * Control lock for everything.
 */
#ifndef SOFT_CM_TCP_PORT_H
#define SOFT_CM_TCP_PORT_H

#include <stdbool.h>
#include <stdint.h>

#include "soft/cm/wire.h"
#include "soft/ipc/engine.h"

struct iwarp_handshake;
struct soft_cm_id;
struct soft_cm_tcp;

/*
 * Takes the TCP port of the id's source address, which no peer reaches yet. 0 (also if it needs none) or -errno.
 * Harmless when repeated.
 */
int soft_cm_tcp_port_reserve(struct soft_cm_id *id);
int soft_cm_tcp_port_listen(struct soft_cm_id *id); /* the same, and connections are accepted */
void soft_cm_tcp_port_close(struct soft_cm_id *id);
void soft_cm_tcp_port_forked(void); /* the ports are the parent's: this process has none */

/* Of connections without an id, from tcp_offer.c. */
struct soft_cm_tcp *soft_cm_tcp_port_find(uint64_t serial);
void soft_cm_tcp_port_asked(struct soft_cm_tcp *tcp, const struct iwarp_handshake *request);
void soft_cm_tcp_port_take(struct soft_cm_tcp *tcp, const struct soft_cm_wire_req *req);
void soft_cm_tcp_port_drop(struct soft_cm_tcp *tcp);
void soft_cm_tcp_port_due(struct soft_cm_tcp *tcp);

#endif
