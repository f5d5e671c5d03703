/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * addr.h - socket addresses as rdma_cm uses them: AF_INET and AF_INET6 only.
 *
 * Every address of this host, loopback included, belongs to the software device. Pure functions
 * but for soft_cm_addr_is_local, _outside and _has_family, which ask the kernel.
 */
#ifndef SOFT_CM_ADDR_H
#define SOFT_CM_ADDR_H

#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

/* Bytes of the sockaddr, 0 for a family we do not know. */
socklen_t soft_cm_addr_bytes(const struct sockaddr *addr);
void soft_cm_addr_copy(struct sockaddr_storage *to, const struct sockaddr *from);
/* The wildcard or loopback address of a family, port 0. */
void soft_cm_addr_any(struct sockaddr_storage *addr, int family);
void soft_cm_addr_loopback(struct sockaddr_storage *addr, int family);

bool soft_cm_addr_is_any(const struct sockaddr *addr);
bool soft_cm_addr_is_loopback(const struct sockaddr *addr);
bool soft_cm_addr_is_group(const struct sockaddr *addr);                     /* multicast */
bool soft_cm_addr_equal(const struct sockaddr *a, const struct sockaddr *b); /* ports aside */
/* 1 local, 0 not, -errno where the interfaces could not be listed. */
int soft_cm_addr_is_local(const struct sockaddr *addr);
bool soft_cm_addr_is_link_local(const struct sockaddr *addr); /* it needs sin6_scope_id */

/* The first address of that family by which others may reach this host, port 0. False: there is none. */
bool soft_cm_addr_outside(struct sockaddr_storage *addr, int family);

/* False: the system has no such family; one whose addresses are all switched off it has. */
bool soft_cm_addr_has_family(int family);

uint16_t soft_cm_addr_port(const struct sockaddr *addr); /* host order */
void soft_cm_addr_set_port(struct sockaddr_storage *addr, uint16_t port);
/* False for a privileged port and a process that may not bind one. */
bool soft_cm_addr_port_allowed(uint16_t port);

/* The address as a GID: IPv6 as it is, IPv4 mapped. */
void soft_cm_addr_gid(const struct sockaddr *addr, union ibv_gid *gid);

#endif
