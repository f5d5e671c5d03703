/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* iwarp_crc32c_test.c - the check value of frames: known values, and every way of computing it gives the same. */
#include "support/test.h"

#include <string.h>
#include <time.h>

#include "soft/iwarp/crc32c.h"
#include "support/pattern.h"
#include "support/rows.h"

#define LENGTHS 300u
#define LONG 1300u /* three times what is computed in one go, and more */
#define ALIGNMENTS 16u

/* As the definition says it, a bit at a time. */
static uint32_t by_definition(const uint8_t *at, size_t bytes) {
    uint32_t state = UINT32_MAX;
    for (size_t i = 0; i < bytes; i++) {
        state ^= at[i];
        for (int bit = 0; bit < 8; bit++)
            state = state >> 1 ^ (state & 1 ? 0x82f63b78u : 0);
    }
    return ~state;
}

struct known {
    const char *bytes;
    size_t count;
    uint8_t stored[IWARP_CRC_BYTES];
};

static void a_known_value_comes_out(void **state) {
    const struct known *k = *state;
    uint8_t stored[IWARP_CRC_BYTES];
    for (int way = IWARP_CRC_TABLE; way < IWARP_CRC_WAYS; way++) {
        if (!iwarp_crc32c_has(way))
            continue;
        iwarp_crc32c_put(stored, iwarp_crc32c_by(way, 0, k->bytes, k->count));
        assert_memory_equal(stored, k->stored, sizeof stored);
    }
    assert_int_equal(iwarp_crc32c_get(stored), iwarp_crc32c(0, k->bytes, k->count));
}

static void assert_all(const uint8_t *at, size_t bytes) {
    uint32_t right = by_definition(at, bytes);
    assert_int_equal(iwarp_crc32c(0, at, bytes), right);
    for (int way = IWARP_CRC_TABLE; way < IWARP_CRC_WAYS; way++)
        if (iwarp_crc32c_has(way))
            assert_int_equal(iwarp_crc32c_by(way, 0, at, bytes), right);
}

TEST(all_ways_agree_at_every_alignment_and_length) {
    static uint8_t bytes[ALIGNMENTS + LONG];
    pattern_fill(bytes, 0, sizeof bytes, 7);
    for (unsigned from = 0; from < ALIGNMENTS; from++)
        for (unsigned n = 0; n <= LENGTHS; n++)
            assert_all(bytes + from, n);
    for (unsigned n = LENGTHS; n <= LONG; n++)
        assert_all(bytes + n % ALIGNMENTS, n);
}

TEST(the_value_of_pieces_is_that_of_the_whole) {
    static uint8_t bytes[LONG];
    pattern_fill(bytes, 0, sizeof bytes, 11);
    uint32_t right = iwarp_crc32c(0, bytes, sizeof bytes);
    for (unsigned first = 0; first <= LONG; first++)
        for (int way = IWARP_CRC_TABLE; way < IWARP_CRC_WAYS; way++) {
            if (!iwarp_crc32c_has(way))
                continue;
            uint32_t crc = iwarp_crc32c_by(way, 0, bytes, first);
            crc = iwarp_crc32c_by(way, crc, bytes + first, LONG - first);
            assert_int_equal(crc, right);
        }
}

TEST(every_changed_bit_changes_the_value) {
    uint8_t bytes[64];
    pattern_fill(bytes, 0, sizeof bytes, 3);
    uint32_t right = iwarp_crc32c(0, bytes, sizeof bytes);
    for (unsigned bit = 0; bit < 8 * sizeof bytes; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_not_equal(iwarp_crc32c(0, bytes, sizeof bytes), right);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

/* Of many times the shortest, which a busy machine leaves alone. */
static uint64_t shortest_ns(enum iwarp_crc_way way) {
    static uint8_t bytes[8192];
    uint64_t least = UINT64_MAX;
    for (unsigned round = 0; round < 200; round++) {
        struct timespec before, after;
        clock_gettime(CLOCK_MONOTONIC, &before);
        bytes[0] = (uint8_t)iwarp_crc32c_by(way, 0, bytes, sizeof bytes);
        clock_gettime(CLOCK_MONOTONIC, &after);
        uint64_t took = (uint64_t)(after.tv_sec - before.tv_sec) * 1000000000u +
                        (uint64_t)after.tv_nsec - (uint64_t)before.tv_nsec;
        least = took < least ? took : least;
    }
    return least;
}

/* Where the CPU is emulated too, whose instruction may be the slower way. */
TEST(no_way_is_much_faster_than_the_one_taken) {
    uint64_t taken = shortest_ns(iwarp_crc32c_way());
    for (int way = IWARP_CRC_TABLE; way < IWARP_CRC_WAYS; way++) {
        if (!iwarp_crc32c_has(way))
            continue;
        uint64_t other = shortest_ns(way);
        print_message("way %d: %lu ns, taken %d: %lu ns\n", way, other, iwarp_crc32c_way(), taken);
        assert_true(taken < 2 * other);
    }
}

#define KNOWN(name, text, ...)                                                                     \
    ROW(a_known_value_comes_out__##name, a_known_value_comes_out, known, text, sizeof text - 1,    \
        __VA_ARGS__)

TEST_CASES(KNOWN(nothing, "", {0, 0, 0, 0}), KNOWN(digits, "123456789", {0x83, 0x92, 0x06, 0xe3}),
           /* RFC 3720, B.4: 32 bytes of zero, and of ones */
           KNOWN(zeros, "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
                 {0xaa, 0x36, 0x91, 0x8a}),
           KNOWN(ones,
                 "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"
                 "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
                 {0x43, 0xab, 0xa8, 0x62}),
           /* A frame of Linux's Soft-iWARP: a SEND of "hello!" with its pad. */
           KNOWN(send,
                 "\x00\x18\x41\x43\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0hello!\0"
                 "\0",
                 {0xa0, 0x0a, 0xcd, 0x2d}),
           /* RFC 5044, figures 5 and 6: frames with a marker in front and inside */
           KNOWN(rfc5044_figure_5,
                 "\0\0\0\0\x00\x2a\x41\x43\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0"
                 "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
                 {0x52, 0x23, 0x99, 0x83}),
           KNOWN(rfc5044_figure_6,
                 "\x00\x2a\x41\x43\0\0\0\0\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x14"
                 "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
                 {0x84, 0x92, 0x58, 0x98}),
           KNOWN(empty_write,
                 "\x00\x0e\xc1\x40\0\0\0\x01\0\0\0\0\0\0\0"
                 "\0",
                 {0xeb, 0xd3, 0x4c, 0x5f}));
