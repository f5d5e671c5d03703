/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * port_name.h - the name by which other processes find a bound port.
 *
 * A bound rdma_cm port is an abstract unix socket, so it disappears with its process:
 *
 *   sluice-soft.1/cm/<port space>/<family><address>/<port>
 *   sluice-soft.1/cm/<port space>/<family><address>/<port>/r<process>-<id>
 *
 * family is 4, 6, or o for an IPv6 address whose owner set AFONLY; address is hexadecimal, or "any".
 * The second form is a port bound with REUSEADDR and not listening: it only keeps other processes from the
 * port, and no peer connects to it. Everything a client needs is in the first form, so a connect is a
 * few failed attempts at most; conflicts between wildcards and addresses, which a plain bind does
 * not notice, are found in the kernel's list of unix sockets. No state.
 */
#ifndef SOFT_CM_PORT_NAME_H
#define SOFT_CM_PORT_NAME_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#define SOFT_CM_NAME_BYTES 108

struct soft_cm_port_name {
    int ps; /* enum rdma_port_space */
    struct sockaddr_storage addr;
    uint16_t port; /* host order */
    bool afonly;
    bool reuse;
};

/* unique tells reuse names of one process apart. */
void soft_cm_port_name_format(const struct soft_cm_port_name *name, uint64_t unique,
                              char text[SOFT_CM_NAME_BYTES]);
/*
 * Calls see for every bound name of that port space and port, 0: all ports, until it returns false. 0, or -errno
 * where the kernel's list cannot be read. The list is a snapshot.
 */
int soft_cm_port_name_scan(int ps, uint16_t port,
                           bool (*see)(const char *text, const struct soft_cm_port_name *name,
                                       void *arg),
                           void *arg);
/* How to look for those of our user, but for the second form (name_search.h). */
struct soft_name_search;
void soft_cm_port_name_search(int ps, uint16_t port, struct soft_name_search *what);

#endif
