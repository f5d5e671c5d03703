/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * histogram.h - counts of values by magnitude: log-linear, 128 cells to a power of two, so that a
 * percentile is off by less than 1 % at any magnitude. Recording is a handful of instructions
 * without branch on the value's history, allocation or system call.
 *
 * Owner: one thread. Values from 2^40 on (18 minutes in nanoseconds) share the last cell; the
 * largest, the smallest and the sum stay exact.
 */
#ifndef HISTOGRAM_H
#define HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_BITS 7 /* of resolution: cells per power of two = 1 << HISTOGRAM_BITS */
#define HISTOGRAM_MAX_BITS 40
#define HISTOGRAM_CELLS (((HISTOGRAM_MAX_BITS - HISTOGRAM_BITS) + 1) << HISTOGRAM_BITS)

struct histogram {
    uint64_t count, sum, min, max;
    uint64_t cells[HISTOGRAM_CELLS];
};

void histogram_reset(struct histogram *h);

static inline uint32_t histogram_cell(uint64_t value) {
    if (value < (1u << HISTOGRAM_BITS))
        return (uint32_t)value;
    if (value >= UINT64_C(1) << HISTOGRAM_MAX_BITS)
        return HISTOGRAM_CELLS - 1;
    /* The leading one chooses the row, the HISTOGRAM_BITS after it the cell. */
    uint32_t shift = 63u - (uint32_t)__builtin_clzll(value) - HISTOGRAM_BITS;
    return ((shift + 1) << HISTOGRAM_BITS) +
           ((uint32_t)(value >> shift) & ((1u << HISTOGRAM_BITS) - 1));
}

static inline void histogram_record(struct histogram *h, uint64_t value) {
    h->count++;
    h->sum += value;
    if (value > h->max)
        h->max = value;
    if (value < h->min)
        h->min = value;
    h->cells[histogram_cell(value)]++;
}

/*
 * The value that `fraction` (0..1) of the records do not exceed: the middle of its cell, never
 * above the largest record nor below the smallest. 0 without records.
 */
double histogram_percentile(const struct histogram *h, double fraction);
double histogram_mean(const struct histogram *h);

#endif
