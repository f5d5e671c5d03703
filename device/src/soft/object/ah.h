/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * ah.h - address handles: two addresses and what else a GRH has. Constant once made.
 */
#ifndef SOFT_OBJECT_AH_H
#define SOFT_OBJECT_AH_H

#include <infiniband/verbs.h>
#include <stdint.h>

/* Address handle: the addresses are copied into the work request that names it. */
struct soft_ah {
    struct ibv_ah ibv;
    uint8_t zero[64];
    uint32_t generation;
    union ibv_gid sgid, dgid;
    uint32_t tclass_flow; /* as in a GRH */
    uint8_t hop_limit, sl;
};

#define soft_ah_of(p) ((struct soft_ah *)(p))

#endif
