/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * net.h - whether the device reaches other hosts, and which addresses go over TCP.
 *
 *   SLUICE_SOFT_NET=off       no socket of the internet family is made; another host is EREMOTE
 *                   on        the default: an address of this host goes through shared memory, any other over TCP
 *                   require   over TCP within the host, too: for tests, and for measuring
 *
 * The channel that an id is made on may override it (soft_cm_set_net() of soft.h): nodes of a process may differ.
 *
 *   SLUICE_SOFT_CRC=off       frames have no check values, unless the peer asks for them; else this end asks for them
 *
 * Reliable connections of the port space TCP only. A device that is like iWARP (SLUICE_SOFT_PROFILE) reaches this host
 * alone. Read from the environment when first needed, constant from then on; any other value counts as off, so
 * that a misspelt "off" opens no port. Any thread.
 */
#ifndef SOFT_CM_NET_H
#define SOFT_CM_NET_H

#include <stdbool.h>
#include <sys/socket.h>

struct soft_cm_id;

/* Whether that id's connections go over TCP within the host, too, if they may at all. */
bool soft_cm_net_requires(const struct soft_cm_id *id);
/* Whether this end asks for the check values of frames. */
bool soft_cm_net_asks_crc(void);
/* Whether a connection of that id may go over TCP at all. */
bool soft_cm_net_allows(const struct soft_cm_id *id);
/* Whether a listener at that address is to be reached by other hosts. */
bool soft_cm_net_opens_port(const struct soft_cm_id *id, const struct sockaddr *addr);
/* The address of this host from which that one is reached, port 0. 0, or an errno: no route. Asks only the kernel. */
int soft_cm_net_source(const struct sockaddr *dst, struct sockaddr_storage *src);

#endif
