/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * iov.h - messages made of pieces that lie in the application's memory.
 *
 * Owner: the thread that owns the loop, unless a function says otherwise.
 */
#ifndef DATAPATH_TX_IOV_H
#define DATAPATH_TX_IOV_H

#include "datapath/loop/loop.h"
#include "datapath/tx/post.h"

/* Of a message made of pieces: where one lies. */
struct iov_part {
    uint64_t addr, bytes;
    const struct sluice_region *region; /* held; NULL: in the message's block, or reg */
    struct regcache_entry *reg;         /* pinned: of plain memory that is sent in place */
    uint32_t lkey;
};

enum build_result iov_build(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                            struct sluice_msg *msg);
/* The pieces of a frame of it that was posted before, its slices beginning there. Returns how many. */
unsigned iov_again(struct sluice_loop *l, struct session *s, struct sluice_msg *msg, uint64_t from,
                   uint32_t bytes, struct ibv_sge *sge);
void iov_completed(struct sluice_loop *l, struct session *s, struct sluice_msg *msg,
                   sluice_status status);
/* A message of kind PIECES or ONE_SIDED no longer uses its regions. */
void iov_regions_done(struct sluice_msg *msg);

#endif
