/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * histogram.c - reading a histogram; see histogram.h.
 */
#include "histogram.h"

#include <string.h>

void histogram_reset(struct histogram *h) {
    memset(h, 0, sizeof *h);
    h->min = UINT64_MAX;
}

/* The middle of a cell's values. A cell of the first two rows holds one value: that value. */
static double cell_middle(uint32_t cell) {
    uint32_t row = cell >> HISTOGRAM_BITS;
    uint64_t within = cell & ((1u << HISTOGRAM_BITS) - 1);
    if (row == 0)
        return (double)within;
    uint32_t shift = row - 1;
    uint64_t first = ((UINT64_C(1) << HISTOGRAM_BITS) + within) << shift;
    return (double)first + (double)((UINT64_C(1) << shift) - 1) / 2;
}

double histogram_percentile(const struct histogram *h, double fraction) {
    if (h->count == 0)
        return 0;
    /* The rank is rounded up: p99.9 of 10 records is the largest, not the ninth. */
    double exact = fraction * (double)h->count;
    uint64_t rank = exact <= 1 ? 1 : exact >= (double)h->count ? h->count : (uint64_t)exact;
    if ((double)rank < exact && rank < h->count)
        rank++;
    if (rank == h->count)
        return (double)h->max;
    uint64_t seen = 0;
    for (uint32_t cell = 0; cell < HISTOGRAM_CELLS - 1; cell++) {
        seen += h->cells[cell];
        if (seen >= rank) {
            double value = cell_middle(cell);
            if (value > (double)h->max)
                value = (double)h->max;
            return value < (double)h->min ? (double)h->min : value;
        }
    }
    return (double)h->max;
}

double histogram_mean(const struct histogram *h) {
    return h->count == 0 ? 0 : (double)h->sum / (double)h->count;
}
