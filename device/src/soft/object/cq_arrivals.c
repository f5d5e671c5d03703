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

unsigned soft_arrivals_next(const struct soft_cq *cq, uint32_t *at, uint32_t *left,
                            struct soft_arrival *out) {
    uint32_t end = cq->arrival_lines * (uint32_t)SOFT_TOLD_LINE, i = *at, rest = *left;
    unsigned n = 0;
    while (rest > 0 && n < SOFT_ARRIVAL_BATCH) {
        uint32_t span = SOFT_TOLD_WORD - i % SOFT_TOLD_WORD;
        if (i % SOFT_TOLD_LINE == 0 && rest >= SOFT_TOLD_LINE &&
            !line_differs(cq, i / (uint32_t)SOFT_TOLD_LINE)) {
            span = SOFT_TOLD_LINE;
        } else {
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

/* ---- the QPs behind the entries --------------------------------------------------------------------- */

/* The index of this line of a board; arrival_lines: not there yet. Searched from the end, as it is mostly the last. */
static unsigned find_line(const struct soft_cq *cq, const _Atomic uint64_t *board) {
    for (unsigned i = cq->arrival_lines; i > 0; i--)
        if (cq->boards[i - 1] == board)
            return i - 1;
    return cq->arrival_lines;
}

bool soft_arrivals_add(struct soft_cq *cq, struct soft_qp *qp) {
    spin_assert_held(&cq->poll_lock);
    const struct soft_told *told = atomic_load_explicit(&qp->heard, memory_order_acquire);
    if (!told || ld(qp->arrival) != 0 || qp->ibv.recv_cq != &cq->ibv || qp->ibv.send_cq != &cq->ibv)
        return false;
    uintptr_t first = (uintptr_t)told & ~(uintptr_t)63;
    const _Atomic uint64_t *board = (const _Atomic uint64_t *)first;
    unsigned line = find_line(cq, board), i = (unsigned)(((uintptr_t)told - first) / sizeof *told);
    struct soft_arrivals *arrivals = &cq->arrivals[line];
    if (line == cq->arrival_lines) {
        if (line == cq->arrival_capacity)
            return false;
        *arrivals = (struct soft_arrivals){.qp = {NULL}};
        cq->boards[line] = board;
        cq->arrival_lines++;
    }
    if (arrivals->qp[i]) /* a peer named one entry for two QPs */
        return false;
    arrivals->qp[i] = qp;
    arrivals->seen.one[i].pos = (uint8_t)ld(qp->rx_pos);
    arrivals->seen.one[i].news = (uint8_t)(ld(told->news) - 1); /* differs: the QP is looked at */
    st(qp->arrival, line * (uint32_t)SOFT_TOLD_LINE + i + 1);
    cq->arrival_count++;
    cq->owing_lost |= ld(qp->rx_told) != ld(qp->rx_pos);
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
    cq->boards[line] = cq->boards[last];
    cq->arrival_lines = last;
    for (unsigned i = 0; line != last && i < SOFT_TOLD_LINE; i++)
        if (arrivals->qp[i])
            st(arrivals->qp[i]->arrival, line * (uint32_t)SOFT_TOLD_LINE + i + 1);
    cq->arrival_next = 0;
    cq->owing_lost |=
        cq->owing_count > 0; /* these peers get their acknowledgements when all are looked at */
    cq->owing_count = 0;
}
