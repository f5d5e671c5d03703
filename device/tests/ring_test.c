/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* ring_test.c - layout of the shared ring and its small arithmetic, which two builds must agree on. */
#include "support/test.h"

#include "soft/object/ring.h"

TEST(header_and_slots_fill_the_file_exactly) {
    assert_int_equal(sizeof(struct soft_ring), SOFT_RING_BYTES);
    assert_int_equal(sizeof(struct soft_slot), SOFT_SLOT_BYTES);
    assert_int_equal(offsetof(struct soft_ring, slot) + SOFT_RING_SLOTS * SOFT_SLOT_BYTES,
                     SOFT_RING_BYTES);
    assert_int_equal(offsetof(struct soft_slot, data), SOFT_SLOT_BYTES - SOFT_SLOT_PAYLOAD);
    assert_int_equal(offsetof(struct soft_slot, seq), 0);
}

/* What one side writes shares no cache line with what the other writes. */
TEST(writers_do_not_share_lines) {
    assert_int_equal(offsetof(struct soft_ring, rx) % 64, 0);
    assert_int_equal(offsetof(struct soft_ring, tx) % 64, 0);
    assert_true(offsetof(struct soft_ring, tx) - offsetof(struct soft_ring, rx) >= 64);
    assert_int_equal(offsetof(struct soft_ring, slot) % 128, 0);
}

TEST(a_word_holds_every_operation_flag_and_length) {
    for (unsigned op = SOFT_OP_SEND; op < 256; op *= 2)
        for (unsigned f = 0; f < 256; f = f * 2 + 1)
            for (unsigned len = 0; len <= SOFT_SEGMENT_MAX; len++) {
                uint32_t word = soft_word(op, f, len);
                assert_int_equal(word & 0xff, op);
                assert_int_equal(word >> 8 & 0xff, f);
                assert_int_equal(word >> 16, len);
            }
}

TEST(a_span_holds_its_payload_and_no_slot_more) {
    assert_int_equal(soft_span(0), 1); /* a message without payload still takes a slot */
    for (unsigned bytes = 1; bytes <= SOFT_SEGMENT_MAX; bytes++) {
        unsigned span = soft_span(bytes);
        assert_true(span * SOFT_SLOT_PAYLOAD >= bytes);
        assert_true((span - 1) * SOFT_SLOT_PAYLOAD < bytes);
        assert_true(span <= SOFT_SPAN_MAX);
    }
    assert_true(SOFT_SPAN_MAX < SOFT_RING_SLOTS);
}

TEST(slots_follow_each_other_in_a_circle) {
    unsigned index = 0;
    for (unsigned i = 0; i < 3 * SOFT_RING_SLOTS; i++) {
        assert_int_equal(index, i % SOFT_RING_SLOTS);
        index = soft_slot_next(index);
    }
}
