/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * qp_numbers.c - the numbers of this process's queue pairs, and the queue pair of a number.
 *
 * A number is block << 10 | index: the block's abstract name leads other processes to this one.
 * Numbers are handed out round robin, so that one is not used again soon after its QP died.
 *
 * Owner: the control lock.
 */
#include "soft/object/qp_numbers.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "soft/ipc/control_lock.h"
#include "soft/ipc/qpn_directory.h"
#include "soft/ipc/shm_layout.h"
#include "soft/ipc/spinlock.h"
#include "soft/object/qp.h"

struct soft_qp_block *soft_qp_blocks[SOFT_MAX_QP_BLOCKS];
unsigned soft_qp_block_count;

int soft_qp_number_take(struct soft_qp *qp) {
    soft_assert_locked();
    for (unsigned b = 0; b < soft_qp_block_count; b++) {
        struct soft_qp_block *block = soft_qp_blocks[b];
        for (unsigned n = 0; n < SOFT_QP_BLOCK; n++) {
            uint32_t i = block->next++ % SOFT_QP_BLOCK;
            if (!ld(block->qps[i])) {
                st(block->qps[i], qp);
                qp->own_qpn = qp->ibv.qp_num = block->block * SOFT_QP_BLOCK + i;
                return 0;
            }
        }
    }
    if (soft_qp_block_count == SOFT_MAX_QP_BLOCKS)
        return ENOMEM;
    struct soft_qp_block *block = calloc(1, sizeof *block);
    if (!block)
        return ENOMEM;
    int rc = soft_qpn_directory_claim(&block->block);
    if (rc != 0) {
        free(block);
        return rc == -EAGAIN ? soft_qp_number_take(qp) : -rc;
    }
    soft_qp_blocks[soft_qp_block_count++] = block;
    return soft_qp_number_take(qp);
}

void soft_qp_number_return(struct soft_qp *qp) {
    soft_assert_locked();
    for (unsigned b = 0; b < soft_qp_block_count; b++)
        if (soft_qp_blocks[b]->block == qp->ibv.qp_num / SOFT_QP_BLOCK)
            st(soft_qp_blocks[b]->qps[qp->ibv.qp_num % SOFT_QP_BLOCK], NULL);
}

struct soft_qp *soft_qp_find(uint32_t qpn) {
    soft_assert_locked();
    for (unsigned b = 0; b < soft_qp_block_count; b++)
        if (soft_qp_blocks[b]->block == qpn / SOFT_QP_BLOCK)
            return ld(soft_qp_blocks[b]->qps[qpn % SOFT_QP_BLOCK]);
    return NULL;
}

_Static_assert(SOFT_MAX_QP_BLOCKS *SOFT_QP_BLOCK == SOFT_SHM_PAGE_QPS, "each has its place");

uint32_t soft_qp_place(uint32_t qpn) {
    soft_assert_locked();
    unsigned b = 0;
    while (b + 1 < soft_qp_block_count && soft_qp_blocks[b]->block != qpn / SOFT_QP_BLOCK)
        b++;
    return b * SOFT_QP_BLOCK + qpn % SOFT_QP_BLOCK;
}

/* The blocks' names belong to the engine; without it the numbers are void. Control lock. */
void soft_qp_numbers_reset(void) {
    soft_assert_locked();
    for (unsigned b = 0; b < soft_qp_block_count; b++)
        free(soft_qp_blocks[b]);
    soft_qp_block_count = 0;
}

void soft_qp_numbers_forked(void) {
    soft_qp_block_count = 0;
}

void soft_qp_each(void (*then)(struct soft_qp *qp)) {
    soft_assert_locked();
    for (unsigned b = 0; b < soft_qp_block_count; b++)
        for (unsigned i = 0; i < SOFT_QP_BLOCK; i++) {
            struct soft_qp *qp = ld(soft_qp_blocks[b]->qps[i]);
            if (qp)
                then(qp);
        }
}

static void pass_lock(struct soft_qp *qp) {
    spin_lock(&qp->lock);
    spin_unlock(&qp->lock);
}

/* Every lock holder of before is gone once each lock was free or taken anew. */
void soft_qp_quiesce(void) {
    soft_assert_locked();
    soft_qp_each(pass_lock);
}
