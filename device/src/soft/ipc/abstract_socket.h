/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * abstract_socket.h - abstract unix socket names: bound, so that a process can be found by them, and connected
 * to. The kernel removes a name with its process however that dies, and nothing is ever left in a
 * file system. Control lock for everything; accepted() runs on the engine thread with it held.
 */
#ifndef SOFT_IPC_ABSTRACT_SOCKET_H
#define SOFT_IPC_ABSTRACT_SOCKET_H

#include <stdbool.h>

#include "soft/ipc/engine.h"

struct ucred;

/* Names are given without the leading zero byte; at most 100 characters. */
#define SOFT_NAME_BYTES 108
struct soft_abstract_socket {
    struct soft_watch watch;  /* the listening socket; fd -1 = not bound */
    struct soft_timer retry;  /* out of descriptors: accepts again then, rather than spin */
    void (*accepted)(int fd); /* a process connected; the callee owns the descriptor */
};

/* Binds a name and accepts on it. 0 or -errno (EADDRINUSE). */
int soft_abstract_socket_bind(struct soft_abstract_socket *name, const char *text,
                              void (*accepted)(int fd));
void soft_abstract_socket_unbind(struct soft_abstract_socket *name);
/* Connects to a name, and gives the credentials of that process. */
int soft_name_reach(const char *text, struct ucred *who);

/*
 * Names beside one that all users share, for when a stranger has that: `shared`, the user's id and a random end, so
 * that no process can take them in advance. Processes of the user find them by their beginning (name_search.h).
 */
void soft_name_besides(const char *shared, char text[SOFT_NAME_BYTES]);
int soft_name_bind_besides(struct soft_abstract_socket *name, const char *shared,
                           char text[SOFT_NAME_BYTES], void (*accepted)(int fd));
/* Listened on by a process of our user. Any thread, without the lock too. */
bool soft_name_is_ours(const char *text);

#endif
