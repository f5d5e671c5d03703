/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * copy.c - see copy.h. The best of many copies counts: what disturbs one only makes it slower.
 */
#include "copy.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"

#define COPY_NS UINT64_C(4000000)

double copy_bytes_per_s(size_t bytes) {
    char *from = malloc(bytes), *to = malloc(bytes);
    double result = -1;
    if (from != NULL && to != NULL) {
        memset(from, 1, bytes);
        memset(to, 2, bytes);
        uint64_t best = UINT64_MAX, start = clock_monotonic_ns();
        do {
            uint64_t before = clock_monotonic_ns();
            memcpy(to, from, bytes);
            __asm__ volatile("" : : "r"(to) : "memory"); /* the copy is wanted for itself */
            uint64_t took = clock_monotonic_ns() - before;
            if (took > 0 && took < best)
                best = took;
        } while (clock_monotonic_ns() - start < COPY_NS);
        if (best != UINT64_MAX)
            result = (double)bytes * 1e9 / (double)best;
    }
    free(from);
    free(to);
    return result;
}
