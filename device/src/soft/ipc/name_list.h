/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * name_list.h - the kernel's list of abstract unix socket names that are listened on.
 *
 * Any user can make any number of names, and each of them takes time here: a fraction of a microsecond where the kernel
 * lists sockets over netlink (sock_diag(7)), some microseconds where it has to be read out of /proc. Any thread, never with
 * the control lock.
 */
#ifndef SOFT_IPC_NAME_LIST_H
#define SOFT_IPC_NAME_LIST_H

#include <stdbool.h>
#include <sys/types.h>

/* One of the list. `text` is without the leading zero byte. */
struct soft_listed_name {
    const char *text;
    bool has_uid; /* else only its owner can be asked (abstract_socket.h) */
    uid_t uid;    /* of who made the socket: a hint, which a connection has to confirm */
};

/*
 * Calls see for the names that begin like this, until it returns false. 0, or -errno where the kernel has no list for
 * us. The list is a snapshot; a name may be seen twice.
 */
int soft_name_scan(const char *begin, bool (*see)(const struct soft_listed_name *name, void *arg),
                   void *arg);
/* By one of the two ways in which the kernel lists names; -errno: it does not have this way. soft_name_scan() takes the first that it has. */
int soft_name_scan_netlink(const char *begin,
                           bool (*see)(const struct soft_listed_name *name, void *arg), void *arg);
int soft_name_scan_proc(const char *begin,
                        bool (*see)(const struct soft_listed_name *name, void *arg), void *arg);

#endif
