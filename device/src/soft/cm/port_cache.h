/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * port_cache.h - the process that was found at a port lately. Asking the kernel for the owner of a name takes a
 * connection; most requests go where the last one went. An entry is a guess: the process
 * may have given the port up. It then refuses, and the requester looks the port up again. Control lock.
 */
#ifndef SOFT_CM_PORT_CACHE_H
#define SOFT_CM_PORT_CACHE_H

#include <sys/socket.h>

struct soft_peer;

/* A held peer that still can be reached, or NULL. */
struct soft_peer *soft_cm_port_cache_recall(int ps, const struct sockaddr *dst);
void soft_cm_port_cache_note(int ps, const struct sockaddr *dst, struct soft_peer *peer);
void soft_cm_port_cache_forget(int ps, const struct sockaddr *dst);
void soft_cm_port_cache_forget_peer(const struct soft_peer *peer);
void soft_cm_port_cache_forked(void); /* all of it is the parent's */

#endif
