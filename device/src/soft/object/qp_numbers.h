/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * qp_numbers.h - the numbers of this process's queue pairs, and the queue pair of a number.
 *
 * Owner: the control lock.
 */
#ifndef SOFT_OBJECT_QP_NUMBERS_H
#define SOFT_OBJECT_QP_NUMBERS_H

#include <stdatomic.h>
#include <stdint.h>

#include "soft/ipc/shm_layout.h"

struct soft_qp;

extern struct soft_qp_block {
    uint32_t block;
    uint32_t next;
    struct soft_qp *_Atomic qps[SOFT_QP_BLOCK];
} * soft_qp_blocks[SOFT_MAX_QP_BLOCKS];
extern unsigned soft_qp_block_count;

/* Gives the QP a number, into own_qpn and ibv.qp_num. 0 or an errno. */
int soft_qp_number_take(struct soft_qp *qp);
void soft_qp_number_return(struct soft_qp *qp);
struct soft_qp *soft_qp_find(uint32_t qpn);
uint32_t soft_qp_place(uint32_t qpn); /* of one of ours, below SOFT_SHM_PAGE_QPS */
void soft_qp_each(void (*then)(struct soft_qp *qp));
void soft_qp_quiesce(void); /* waits until no QP lock holder from before is left */
void soft_qp_numbers_reset(void);
void soft_qp_numbers_forked(void);

#endif
