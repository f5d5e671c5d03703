/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cq_arrivals.h - of many queue pairs, those whose peers have said something: read off the peers' boards, where each QP
 * tells what it has sent (shm_layout.h), 32 of them in a cache line.
 *
 * A CQ keeps the lines in which QPs of its own are told of, and what it has seen there. What differs names the QPs that
 * have to be looked at. Nothing there is believed: a QP is looked at as a whole, and a few are in every poll whatever
 * is told of them, so that a peer which tells lies has its own messages seen late.
 *
 * Owner: the CQ's poll lock. A board is mapped as long as a QP is linked by it, and one is linked longer than it is in
 * the CQ's lists.
 */
#ifndef SOFT_VERBS_CQ_ARRIVALS_H
#define SOFT_VERBS_CQ_ARRIVALS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "soft/ipc/shm_layout.h"
#include "soft/ipc/spinlock.h"
#include "soft/verbs/cq.h"

#define SOFT_TOLD_WORDS 8u /* of a line */
#define SOFT_TOLD_WORD 4u  /* QPs in a word */

struct soft_arrivals { /* of one line */
    union {
        uint64_t word[SOFT_TOLD_WORDS];
        struct {
            uint8_t pos, news;
        } one[SOFT_TOLD_LINE];
    } seen;
    struct soft_qp *qp[SOFT_TOLD_LINE]; /* NULL: none of ours */
} __attribute__((aligned(64)));
_Static_assert(SOFT_TOLD_WORDS *SOFT_TOLD_WORD == SOFT_TOLD_LINE, "a line");

/* A place that differs from what was seen, and what it says. */
struct soft_arrival {
    uint32_t at;
    uint8_t pos, news;
};
#define SOFT_ARRIVAL_BATCH 32u
#define SOFT_ARRIVAL_MAX (SOFT_ARRIVAL_BATCH + SOFT_TOLD_WORD - 1)

/* Partners: slot.h, slot_tell(), and requester.h, soft_qp_news(). */
static inline uint64_t word_of(const struct soft_cq *cq, uint32_t word) {
    return atomic_load_explicit(&cq->boards[word / SOFT_TOLD_WORDS][word % SOFT_TOLD_WORDS],
                                memory_order_acquire);
}

static inline struct soft_qp *soft_arrival_qp(const struct soft_cq *cq, uint32_t at) {
    return cq->arrivals[at / SOFT_TOLD_LINE].qp[at % SOFT_TOLD_LINE];
}

/* The next of those that differ from *at on, of *left places at most; fills in SOFT_ARRIVAL_MAX at most. */
unsigned soft_arrivals_next(const struct soft_cq *cq, uint32_t *at, uint32_t *left,
                            struct soft_arrival *out);
/* Listens to a QP that both receives and sends by this CQ. False: it is not told of, or there is no room. */
bool soft_arrivals_add(struct soft_cq *cq, struct soft_qp *qp);
void soft_arrivals_remove(struct soft_cq *cq, struct soft_qp *qp);

#endif
