/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * abstract_socket.h - abstract unix socket names: bound, so that a process can be found by them, and connected
 * to. The kernel removes a name with its process however that dies, and nothing is ever left in a
 * file system. Control lock for everything; accepted() runs on the engine thread with it held.
 */
#ifndef SOFT_IPC_ABSTRACT_SOCKET_H
#define SOFT_IPC_ABSTRACT_SOCKET_H

#include "soft/ipc/engine.h"

/* Names are given without the leading zero byte; at most 100 characters. */
struct soft_name {
    struct soft_watch watch;  /* the listening socket; fd -1 = not bound */
    struct soft_timer retry;  /* out of descriptors: accepts again then, rather than spin */
    void (*accepted)(int fd); /* who connected; takes the descriptor over */
};

/* Binds a name and accepts on it. 0 or -errno (EADDRINUSE). */
int soft_name_bind(struct soft_name *name, const char *text, void (*accepted)(int fd));
void soft_name_unbind(struct soft_name *name);
/* A socket connected to whoever has the name, or -errno: ECONNREFUSED nobody, EAGAIN queue full. */
int soft_name_connect(const char *text);

#endif
