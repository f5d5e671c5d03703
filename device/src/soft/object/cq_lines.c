/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cq_lines.c - see cq_lines.h.
 *
 * Owner: the CQ's poll lock.
 */
#include "soft/object/cq_lines.h"

#include <stdatomic.h>

#include "soft/ipc/spinlock.h"
#include "soft/object/qp.h"

#define BYTES sizeof(uint64_t)
#define WORDS (SOFT_GROUP_LINES / BYTES)
#define IN_TURN 128u /* polls that look at all lines, whatever is counted */
#define FEW 8u /* lines: reading them all is faster than reading first which of them have changed */

/* ---- which are due ------------------------------------------------------------------------------- */

static void set_due(struct soft_cq *cq, const struct soft_line_group *group, unsigned i) {
    if (group->line[i] != 0)
        soft_line_set_due(cq, group->line[i] - 1);
}

/* Partner: soft_told_changed() (shm_page.h). What the line says is read behind this. */
static void look_at(struct soft_cq *cq, struct soft_line_group *group) {
    for (unsigned w = 0; w < WORDS; w++) {
        uint64_t now = atomic_load_explicit(&group->changes->word[w], memory_order_acquire);
        uint64_t differ = now ^ group->seen[w];
        if (__builtin_expect(differ == 0, 1))
            continue;
        group->seen[w] = now;
        while (differ != 0) {
            unsigned byte = (unsigned)__builtin_ctzll(differ) / 8;
            set_due(cq, group, w * (unsigned)BYTES + byte);
            differ &= ~(0xffull << 8 * byte);
        }
    }
}

void soft_lines_look(struct soft_cq *cq) {
    spin_assert_held(&cq->poll_lock);
    if (cq->arrival_lines <= FEW) {
        cq->lines_due[0] = (1ull << cq->arrival_lines) - 1;
        return;
    }
    for (unsigned g = 0; g < cq->line_group_count; g++) {
        struct soft_line_group *group = &cq->line_groups[g];
        if (__builtin_expect(group->changes != NULL, 1))
            look_at(cq, group);
        else
            for (unsigned i = 0; i < SOFT_GROUP_LINES; i++)
                set_due(cq, group, i);
    }
    for (unsigned i = 0; i <= cq->arrival_lines / IN_TURN; i++) {
        cq->line_turn = cq->line_turn + 1 < cq->arrival_lines ? cq->line_turn + 1 : 0;
        soft_line_set_due(cq, cq->line_turn);
    }
}

unsigned soft_lines_due(const struct soft_cq *cq, unsigned line, unsigned end) {
    for (unsigned word = line / 64; line < end; line = 64 * ++word) {
        uint64_t due = cq->lines_due[word] >> line % 64;
        if (due == 0)
            continue;
        line += (unsigned)__builtin_ctzll(due);
        return line < end ? line : end;
    }
    return end;
}

/* ---- the lines ----------------------------------------------------------------------------------- */

static const struct soft_told *first_of(const struct soft_qp *qp) {
    return ld(qp->heard) - qp->heard_at;
}

/* Searched from the end, as it is mostly the last. NULL: the CQ listens to none of its lines. */
static struct soft_line_group *find_group(struct soft_cq *cq, const struct soft_told *first) {
    for (unsigned g = cq->line_group_count; g > 0; g--)
        if (cq->line_groups[g - 1].first == first)
            return &cq->line_groups[g - 1];
    return NULL;
}

unsigned soft_line_of(struct soft_cq *cq, const struct soft_qp *qp) {
    const struct soft_line_group *group = find_group(cq, first_of(qp));
    return (group ? group->line[qp->heard_at / SOFT_TOLD_LINE] : 0) -
           1; /* none: the highest number */
}

void soft_line_add(struct soft_cq *cq, const struct soft_qp *qp) {
    spin_assert_held(&cq->poll_lock);
    ASSERT(cq->arrival_lines < cq->arrival_capacity);
    unsigned i = qp->heard_at / (unsigned)SOFT_TOLD_LINE;
    struct soft_line_group *group = find_group(cq, first_of(qp));
    if (!group) { /* there are never more of them than lines */
        group = &cq->line_groups[cq->line_group_count++];
        *group = (struct soft_line_group){.first = first_of(qp), .changes = qp->heard_changes};
    }
    cq->boards[cq->arrival_lines] = (const _Atomic uint64_t *)(group->first + i * SOFT_TOLD_LINE);
    group->line[i] = ++cq->arrival_lines;
    group->lines++;
}

/* The group that has this line, and where. */
static struct soft_line_group *group_of(struct soft_cq *cq, unsigned line, unsigned *i) {
    uintptr_t board = (uintptr_t)cq->boards[line];
    struct soft_line_group *group = cq->line_groups;
    while (board - (uintptr_t)group->first >= SOFT_GROUP_QPS * sizeof *group->first)
        group++;
    *i = (unsigned)(board - (uintptr_t)group->first) / 64;
    ASSERT(group < cq->line_groups + cq->line_group_count && group->line[*i] == line + 1);
    return group;
}

void soft_line_remove(struct soft_cq *cq, unsigned line) {
    spin_assert_held(&cq->poll_lock);
    unsigned last = cq->arrival_lines - 1, i;
    struct soft_line_group *group = group_of(cq, line, &i);
    group->line[i] = 0;
    if (line != last) {
        group_of(cq, last, &i)->line[i] = line + 1;
        cq->boards[line] = cq->boards[last];
        soft_line_set_due(cq, line);
    }
    if (--group->lines == 0)
        *group = cq->line_groups[--cq->line_group_count];
    soft_line_done(cq, last);
    cq->arrival_lines = last;
}
