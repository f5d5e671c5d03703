/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * histogram_test.c - the promises of the tools' histogram: percentiles within 1 % at every
 * magnitude, exact extremes and mean, nothing outside its cells.
 */
#include "support/test.h"

#include <stdlib.h>

#include "../tools/src/common/histogram.h"
#include "../tools/src/common/histogram.c"

static struct histogram h;

static void assert_within_one_percent(double got, double exact) {
    double error = got > exact ? got - exact : exact - got;
    if (error > exact * 0.01)
        fail_msg("%f is more than 1 %% off %f", got, exact);
}

TEST(empty_histogram_answers_zero) {
    histogram_reset(&h);
    assert_true(histogram_percentile(&h, 0.5) == 0);
    assert_true(histogram_mean(&h) == 0);
    assert_int_equal(h.max, 0);
}

TEST(one_value_is_every_percentile) {
    histogram_reset(&h);
    histogram_record(&h, 123456);
    assert_true(histogram_percentile(&h, 0) == 123456);
    assert_true(histogram_percentile(&h, 0.5) == 123456);
    assert_true(histogram_percentile(&h, 1) == 123456);
    assert_true(histogram_mean(&h) == 123456);
}

TEST(small_values_are_exact) {
    histogram_reset(&h);
    for (uint64_t v = 0; v < 2u << HISTOGRAM_BITS; v++)
        histogram_record(&h, v);
    for (uint64_t v = 0; v < 2u << HISTOGRAM_BITS; v++) {
        double fraction = (double)(v + 1) / (double)(2u << HISTOGRAM_BITS);
        assert_true(histogram_percentile(&h, fraction) == (double)v);
    }
}

/* Every power of two and its neighbours, and a walk between them. */
TEST(any_magnitude_is_within_one_percent) {
    for (int bit = 0; bit < HISTOGRAM_MAX_BITS; bit++) {
        for (int step = -1; step < 16; step++) {
            uint64_t power = UINT64_C(1) << bit;
            uint64_t v = step < 0 ? power - 1 : power + power / 16 * (uint64_t)step;
            if (v >= UINT64_C(1) << HISTOGRAM_MAX_BITS)
                continue;
            histogram_reset(&h);
            /* Extremes far away, so that clamping to them cannot hide an error. */
            histogram_record(&h, 0);
            histogram_record(&h, v);
            histogram_record(&h, UINT64_C(1) << 50);
            assert_within_one_percent(histogram_percentile(&h, 0.5), (double)v);
        }
    }
}

TEST(cells_are_ordered_and_bounded) {
    uint32_t before = 0;
    for (uint64_t v = 0; v < 5000000; v += 1 + v / 1000) {
        uint32_t cell = histogram_cell(v);
        assert_true(cell >= before && cell < HISTOGRAM_CELLS);
        before = cell;
    }
    assert_int_equal(histogram_cell(UINT64_MAX), HISTOGRAM_CELLS - 1);
    assert_int_equal(histogram_cell(UINT64_C(1) << HISTOGRAM_MAX_BITS), HISTOGRAM_CELLS - 1);
    assert_int_equal(histogram_cell((UINT64_C(1) << HISTOGRAM_MAX_BITS) - 1), HISTOGRAM_CELLS - 1);
}

TEST(huge_values_keep_exact_extremes) {
    histogram_reset(&h);
    histogram_record(&h, 7);
    histogram_record(&h, UINT64_C(1) << 62);
    assert_int_equal(h.min, 7);
    assert_int_equal(h.max, UINT64_C(1) << 62);
    assert_true(histogram_percentile(&h, 1) == (double)(UINT64_C(1) << 62));
}

static int compare(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* A long-tailed set against the sorted values themselves. */
TEST(percentiles_match_the_sorted_values) {
    enum { COUNT = 20000 };
    static uint64_t values[COUNT];
    static const double fractions[] = {0.001, 0.25, 0.5, 0.9, 0.99, 0.999, 0.9999, 1};
    uint64_t random = 1, sum = 0;
    histogram_reset(&h);
    for (int i = 0; i < COUNT; i++) {
        random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
        uint64_t v = 200 + (random >> 33) % 100;
        if (i % 50 == 0)
            v *= 1 + (random >> 40) % 1000;
        values[i] = v;
        sum += v;
        histogram_record(&h, v);
    }
    qsort(values, COUNT, sizeof values[0], compare);
    for (size_t i = 0; i < sizeof fractions / sizeof fractions[0]; i++) {
        double exact_rank = fractions[i] * COUNT;
        int rank = (int)exact_rank;
        if (rank < exact_rank || rank == 0)
            rank++;
        assert_within_one_percent(histogram_percentile(&h, fractions[i]), (double)values[rank - 1]);
    }
    assert_true(histogram_mean(&h) == (double)sum / COUNT);
    assert_int_equal(h.max, values[COUNT - 1]);
    assert_int_equal(h.min, values[0]);
}

TEST(rank_is_rounded_up) {
    histogram_reset(&h);
    for (uint64_t v = 1; v <= 10; v++)
        histogram_record(&h, v);
    assert_true(histogram_percentile(&h, 0.999) == 10);
    assert_true(histogram_percentile(&h, 0.5) == 5);
    assert_true(histogram_percentile(&h, 0.51) == 6);
}
