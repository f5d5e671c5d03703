/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * ah.h - which addresses datagrams and connections without rdma_cm reach.
 */
#ifndef SOFT_VERBS_AH_H
#define SOFT_VERBS_AH_H

#include <infiniband/verbs.h>
#include <stdbool.h>

/* A multicast group, or an address that this host has now. Without a connection of rdma_cm nothing goes elsewhere. */
bool soft_gid_is_reached(const union ibv_gid *gid);

#endif
