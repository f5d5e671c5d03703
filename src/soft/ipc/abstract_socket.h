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
    void (*accepted)(int fd); /* who connected; takes the descriptor over */
};

/* Binds a name and accepts on it. 0 or -errno (EADDRINUSE). */
int soft_abstract_socket_bind(struct soft_abstract_socket *name, const char *text,
                              void (*accepted)(int fd));
void soft_abstract_socket_unbind(struct soft_abstract_socket *name);
/* The same, and who that is. */
int soft_name_reach(const char *text, struct ucred *who);
/*
 * Calls see for the names that begin like this and are listened on, until it returns false. 0, or -errno where the
 * kernel's list cannot be read. The list is a snapshot. Anybody can put names into it: what is seen of them is to be
 * bounded.
 */
int soft_name_scan(const char *begin, bool (*see)(const char *text, void *arg), void *arg);

/*
 * Names beside one that all users share, for when a stranger has that: `shared`, the user's id and a random end, so
 * that nobody can take them in advance. Who belongs to the user finds them, among at most SOFT_NAME_LOOKS lookalikes.
 */
#define SOFT_NAME_LOOKS 1024
int soft_name_bind_besides(struct soft_abstract_socket *name, const char *shared,
                           char text[SOFT_NAME_BYTES], void (*accepted)(int fd));
/* Calls see for those of our user but `mine` until it returns false. */
void soft_name_find_besides(const char *shared, const char *mine,
                            bool (*see)(const char *text, void *arg), void *arg);
/* Listened on by a process of our user. */
bool soft_name_is_ours(const char *text);

#endif
