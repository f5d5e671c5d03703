/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * stage.h - large sends from private memory: copied into blocks of a region that peers have mapped, and described there.
 *
 * Through the ring such a message goes in laps of 7 KiB, with a hand-over for each. A block holds 32 KiB, and a queue
 * pair has up to eight of them on their way, so that most messages are handed over at once, and of larger ones the
 * receiver copies a part while the sender copies the next. The region is made when it is first missed, by the
 * engine; until a peer has mapped it, and when all blocks are taken, messages go through the ring.
 *
 * Owner: the QP's lock for its own blocks; the control lock for the region.
 */
#ifndef SOFT_RC_STAGE_H
#define SOFT_RC_STAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "soft/object/qp.h"
#include "soft/object/ring.h"

#define SOFT_STAGE_BYTES (32u << 10) /* of a block */
#define SOFT_STAGE_BLOCKS 256u
#define SOFT_STAGE_MIN 4096u /* a message of fewer bytes is as well in the ring */
#define SOFT_STAGE_QP 8u     /* blocks of one queue pair */
#define SOFT_STAGE_PEER (SOFT_STAGE_BLOCKS / 2) /* and of all those that lead to one process */

enum soft_stage {
    SOFT_STAGE_NONE = -1, /* through the ring, then */
    SOFT_STAGE_WAIT = -2, /* for the peer, which has not taken what is on its way */
};

/* A block to be filled, or one of enum soft_stage. */
int soft_stage_take(struct soft_qp *qp);
uint8_t *soft_stage_memory(int block);
/* It is on its way, up to this slot position; its bytes are named. */
struct soft_desc soft_stage_describe(struct soft_qp *qp, int block, uint32_t bytes, uint32_t end);
/* It was not filled. */
void soft_stage_give_back(struct soft_qp *qp, int block);

/* Blocks that the peer has taken are free again. */
void soft_stage_reclaim(struct soft_qp *qp);
/* So are all, as the peer was told that nothing of this QP is to be read any more. */
void soft_stage_release(struct soft_qp *qp);

void soft_stage_if_wanted(void); /* the engine's turn */
void soft_stage_stop(void);      /* the control lock, no QP is left */
void soft_stage_forked(void);

#endif
