/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * tcp_source.h - the socket that a dial goes out by. Control lock.
 */
#ifndef SOFT_CM_TCP_SOURCE_H
#define SOFT_CM_TCP_SOURCE_H

#include <sys/socket.h>

/*
 * Bound to that address; port 0: TCP chooses one that no other socket has, and the error is EADDRNOTAVAIL when there is
 * none. 0 or an errno.
 */
int soft_cm_tcp_source(const struct sockaddr_storage *src, int *fd);

#endif
