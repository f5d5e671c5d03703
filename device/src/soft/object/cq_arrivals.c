/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cq_arrivals.c - the cache lines of peers' boards that a completion queue listens to.
 *
 * Owner: the CQ's poll lock.
 */
#include "soft/object/cq_arrivals.h"

#include <stddef.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "soft/object/cq_lines.h"
#include "soft/object/qp.h"

/* ---- reading ------------------------------------------------------------------------------------- */

#if defined(__SANITIZE_THREAD__) || !defined(__SSE2__)
static inline bool line_differs(const struct soft_cq *cq, uint32_t line) {
    const uint64_t *seen = cq->arrivals[line].seen.word;
    const _Atomic uint64_t *told = cq->boards[line];
    uint64_t differ = 0;
    for (unsigned i = 0; i < SOFT_TOLD_WORDS; i++)
        differ |= ld(told[i]) ^ seen[i];
    return differ != 0;
}
#else
/* Compares in pieces of 16 bytes. The result is a hint only: take_word() reads the words again. */
static inline bool line_differs(const struct soft_cq *cq, uint32_t line) {
    const volatile __m128i *told = (const volatile __m128i *)cq->boards[line];
    const __m128i *seen = (const __m128i *)cq->arrivals[line].seen.word;
    __m128i differ = _mm_setzero_si128();
    for (unsigned i = 0; i < 4; i++)
        differ = _mm_or_si128(differ, _mm_xor_si128(told[i], seen[i]));
    return _mm_movemask_epi8(_mm_cmpeq_epi8(differ, _mm_setzero_si128())) != 0xffff;
}
#endif

/* Lists the entries that differ among `span` entries from `at` on, which lie in one word. */
static inline unsigned take_word(const struct soft_cq *cq, uint32_t at, uint32_t span,
                                 struct soft_arrival *out) {
    uint32_t word = at / SOFT_TOLD_WORD, first = at % SOFT_TOLD_WORD;
    uint64_t told = word_of(cq, word),
             seen = cq->arrivals[at / SOFT_TOLD_LINE].seen.word[word % SOFT_TOLD_WORDS];
    unsigned n = 0;
    if (told == seen)
        return 0;
    for (uint32_t i = first; i < first + span; i++) {
        uint16_t one = (uint16_t)(told >> (16 * i));
        if (one != (uint16_t)(seen >> (16 * i)))
            out[n++] = (struct soft_arrival){
                .at = word * SOFT_TOLD_WORD + i, .pos = (uint8_t)one, .news = (uint8_t)(one >> 8)};
    }
    return n;
}

/* How many entries from i on, of `rest`, need no look: lines that are not due, or in which nothing differs. */
static inline uint32_t nothing_in(struct soft_cq *cq, uint32_t i, uint32_t rest, const bool due) {
    const uint32_t each = (uint32_t)SOFT_TOLD_LINE, line = i / each;
    if (i % each != 0 || rest < each)
        return 0;
    uint32_t end = line + rest / each;
    end = end < cq->arrival_lines ? end : cq->arrival_lines;
    uint32_t next = due ? soft_lines_due(cq, line, end) : line;
    if (next > line)
        return (next - line) * each;
    if (line_differs(cq, line))
        return 0;
    if (due)
        soft_line_done(cq, line);
    return each;
}

static inline unsigned next_of(struct soft_cq *cq, uint32_t *at, uint32_t *left,
                               struct soft_arrival *out, const bool due) {
    uint32_t end = cq->arrival_lines * (uint32_t)SOFT_TOLD_LINE, i = *at, rest = *left;
    unsigned n = 0;
    while (rest > 0 && n < SOFT_ARRIVAL_BATCH) {
        uint32_t span = nothing_in(cq, i, rest, due);
        if (span == 0) {
            span = SOFT_TOLD_WORD - i % SOFT_TOLD_WORD;
            span = span < rest ? span : rest;
            n += take_word(cq, i, span, out + n);
        }
        rest -= span;
        i = i + span < end ? i + span : 0;
    }
    *at = i;
    *left = rest;
    return n;
}

unsigned soft_arrivals_next(struct soft_cq *cq, uint32_t *at, uint32_t *left,
                            struct soft_arrival *out) {
    return next_of(cq, at, left, out, false);
}

unsigned soft_arrivals_due(struct soft_cq *cq, uint32_t *at, uint32_t *left,
                           struct soft_arrival *out) {
    return next_of(cq, at, left, out, true);
}

/* ---- the QPs behind the entries --------------------------------------------------------------------- */

bool soft_arrivals_add(struct soft_cq *cq, struct soft_qp *qp) {
    spin_assert_held(&cq->poll_lock);
    const struct soft_told *told = atomic_load_explicit(&qp->heard, memory_order_acquire);
    if (!told || ld(qp->arrival) != 0 || qp->ibv.recv_cq != &cq->ibv || qp->ibv.send_cq != &cq->ibv)
        return false;
    unsigned line = soft_line_of(cq, qp), i = qp->heard_at % (unsigned)SOFT_TOLD_LINE;
    if (line >= cq->arrival_lines) {
        line = cq->arrival_lines;
        if (line == cq->arrival_capacity)
            return false;
        cq->arrivals[line] = (struct soft_arrivals){.qp = {NULL}};
        soft_line_add(cq, qp);
    }
    struct soft_arrivals *arrivals = &cq->arrivals[line];
    if (arrivals->qp[i]) /* a peer named one entry for two QPs */
        return false;
    arrivals->qp[i] = qp;
    arrivals->seen.one[i].pos = (uint8_t)ld(qp->rx_pos);
    arrivals->seen.one[i].news = (uint8_t)(ld(told->news) - 1); /* differs: the QP is looked at */
    soft_line_set_due(cq, line);
    st(qp->arrival, line * (uint32_t)SOFT_TOLD_LINE + i + 1);
    cq->arrival_count++;
    if (ld(qp->rx_told) != ld(qp->rx_pos))
        soft_cq_owing_lost(cq);
    return true;
}

void soft_arrivals_remove(struct soft_cq *cq, struct soft_qp *qp) {
    spin_assert_held(&cq->poll_lock);
    uint32_t at = ld(qp->arrival) - 1;
    if (at == UINT32_MAX || qp->ibv.recv_cq != &cq->ibv)
        return;
    unsigned line = at / (unsigned)SOFT_TOLD_LINE, last = cq->arrival_lines - 1;
    struct soft_arrivals *arrivals = &cq->arrivals[line];
    arrivals->qp[at % SOFT_TOLD_LINE] = NULL;
    st(qp->arrival, 0);
    cq->arrival_count--;
    for (unsigned i = 0; i < SOFT_TOLD_LINE; i++)
        if (arrivals->qp[i])
            return;
    /* No QP uses the line any more: the last line moves into its place. */
    *arrivals = cq->arrivals[last];
    soft_line_remove(cq, line);
    for (unsigned i = 0; line != last && i < SOFT_TOLD_LINE; i++)
        if (arrivals->qp[i])
            st(arrivals->qp[i]->arrival, line * (uint32_t)SOFT_TOLD_LINE + i + 1);
    cq->arrival_next = 0;
    if (cq->owing_count > 0)
        soft_cq_owing_lost(cq);
    cq->owing_count = 0;
}
