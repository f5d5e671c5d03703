/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cq_lines.h - the cache lines of peers' boards that a completion queue listens to, and which of them are due: changed since
 * they were looked at. A poll that looked at all lines would take longer the more queue pairs there are.
 *
 * A peer counts the changes of each line (shm_layout.h): the counts of 32 lines lie in one line. They are not believed: every
 * poll looks at some lines whatever their counts say, so that a count which two threads of the peer stored at once, or which is a
 * lie, delays what it stands for and no more.
 *
 * Owner: the CQ's poll lock.
 */
#ifndef SOFT_OBJECT_CQ_LINES_H
#define SOFT_OBJECT_CQ_LINES_H

#include <stdbool.h>
#include <stdint.h>

#include "soft/ipc/shm_layout.h"
#include "soft/object/cq.h"

struct soft_qp;

struct soft_line_group { /* the lines of a peer's board for 1,024 of its QPs */
    const struct soft_changes
        *changes; /* NULL: an earlier version does not count: all are due in every poll */
    uint64_t seen[SOFT_GROUP_LINES / sizeof(uint64_t)];
    const struct soft_told *first;
    uint32_t
        line[SOFT_GROUP_LINES]; /* its index in the CQ, and 1; 0: the CQ does not listen to it */
    unsigned lines;
};

/* Finds which lines are due. */
void soft_lines_look(struct soft_cq *cq);

/* The first line that is due, from this one on; end: none is before it. */
unsigned soft_lines_due(const struct soft_cq *cq, unsigned line, unsigned end);

static inline void soft_line_set_due(struct soft_cq *cq, unsigned line) {
    cq->lines_due[line / 64] |= 1ull << line % 64;
}

static inline void soft_line_done(struct soft_cq *cq, unsigned line) {
    cq->lines_due[line / 64] &= ~(1ull << line % 64);
}

/* The index of the line with the entry for this QP. At least arrival_lines: the CQ did not listen to it before. */
unsigned soft_line_of(struct soft_cq *cq, const struct soft_qp *qp);
/* The CQ listens to the line of that QP from now on: arrival_lines. */
void soft_line_add(struct soft_cq *cq, const struct soft_qp *qp);
/* To this one no more: the last line has its place. */
void soft_line_remove(struct soft_cq *cq, unsigned line);

#endif
