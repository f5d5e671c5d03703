/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * fuzz.h - what the fuzz targets share: an assertion that is always on, and numbers taken from the
 * front of the input, so that a target's other operand comes from the fuzzer too.
 *
 * A record under test always ends where the input ends: the address sanitizer sees a read behind it.
 */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROVE(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);              \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

struct fuzz_input {
    const uint8_t *at;
    size_t left;
};

/* Little endian; missing bytes are zero. */
static inline uint64_t fuzz_take(struct fuzz_input *in, unsigned bytes) {
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes && in->left > 0; i++, in->at++, in->left--)
        value |= (uint64_t)*in->at << 8 * i;
    return value;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
