/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cq_arrivals.h - finds, among many queue pairs of a CQ, those whose peers have sent something: each QP announces what
 * it has sent in an entry on its process's board (shm_layout.h), 32 entries in a cache line.
 *
 * A CQ listens to a QP: it keeps the line of the peer's board with the entry for that QP, and the value that it has
 * seen there. The entries that differ name the QPs to look at. The CQ does not trust an entry: the poller reads the
 * QP's ring itself, and polls look at a few QPs in turn whatever their entries say, so a peer with false entries only has
 * its own messages seen late.
 *
 * Owner: the CQ's poll lock. A board is mapped while a QP is linked through it, and a QP is linked for longer than it
 * is in the CQ's lists.
 */
#ifndef SOFT_OBJECT_CQ_ARRIVALS_H
#define SOFT_OBJECT_CQ_ARRIVALS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "soft/ipc/shm_layout.h"
#include "soft/ipc/spinlock.h"
#include "soft/object/cq.h"

#define SOFT_TOLD_WORDS 8u /* of a line */
#define SOFT_TOLD_WORD 4u  /* QPs in a word */

struct soft_arrivals { /* of one line */
    union {
        uint64_t word[SOFT_TOLD_WORDS];
        struct {
            uint8_t pos, news;
        } one[SOFT_TOLD_LINE];
    } seen;
    struct soft_qp *qp[SOFT_TOLD_LINE]; /* NULL: the entry is for no QP of this CQ */
} __attribute__((aligned(64)));
_Static_assert(SOFT_TOLD_WORDS *SOFT_TOLD_WORD == SOFT_TOLD_LINE, "a line");

/* An entry that differs from the value seen before, with its index and its value. */
struct soft_arrival {
    uint32_t at;
    uint8_t pos, news;
};
#define SOFT_ARRIVAL_BATCH 32u
#define SOFT_ARRIVAL_MAX (SOFT_ARRIVAL_BATCH + SOFT_TOLD_WORD - 1)

/* Pairs with the stores in slot_tell() (slot.h) and soft_qp_news() (requester.h). */
static inline uint64_t word_of(const struct soft_cq *cq, uint32_t word) {
    return atomic_load_explicit(&cq->boards[word / SOFT_TOLD_WORDS][word % SOFT_TOLD_WORDS],
                                memory_order_acquire);
}

static inline struct soft_qp *soft_arrival_qp(const struct soft_cq *cq, uint32_t at) {
    return cq->arrivals[at / SOFT_TOLD_LINE].qp[at % SOFT_TOLD_LINE];
}

/* Lists the next entries that differ, from *at on, among *left entries at most; SOFT_ARRIVAL_MAX of them at most. */
unsigned soft_arrivals_next(struct soft_cq *cq, uint32_t *at, uint32_t *left,
                            struct soft_arrival *out);
/* Lists those in lines that are due alone (cq_lines.h): may miss some, which a later poll finds. */
unsigned soft_arrivals_due(struct soft_cq *cq, uint32_t *at, uint32_t *left,
                           struct soft_arrival *out);
/* Listens to a QP that has this CQ for receives and sends. False: no peer's entry for it is known, or no room. */
bool soft_arrivals_add(struct soft_cq *cq, struct soft_qp *qp);
void soft_arrivals_remove(struct soft_cq *cq, struct soft_qp *qp);

#endif
