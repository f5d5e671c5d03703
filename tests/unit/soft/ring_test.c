/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* ring_test.c - layout of the shared ring and its small arithmetic, which two builds must agree on. */
#include "support/test.h"

#include "soft/rc/ring.h"

static void header_and_slots_fill_the_file_exactly(void **state) {
    (void)state;
    assert_int_equal(sizeof(struct soft_ring), SOFT_RING_BYTES);
    assert_int_equal(sizeof(struct soft_slot), SOFT_SLOT_BYTES);
    assert_int_equal(offsetof(struct soft_ring, slot) + SOFT_RING_SLOTS * SOFT_SLOT_BYTES,
                     SOFT_RING_BYTES);
    assert_int_equal(offsetof(struct soft_slot, data), SOFT_SLOT_BYTES - SOFT_SLOT_PAYLOAD);
    assert_int_equal(offsetof(struct soft_slot, seq), 0);
}

/* What one side writes shares no cache line with what the other writes. */
static void writers_do_not_share_lines(void **state) {
    (void)state;
    assert_int_equal(offsetof(struct soft_ring, rx) % 64, 0);
    assert_int_equal(offsetof(struct soft_ring, tx) % 64, 0);
    assert_true(offsetof(struct soft_ring, tx) - offsetof(struct soft_ring, rx) >= 64);
    assert_int_equal(offsetof(struct soft_ring, slot) % 128, 0);
}

static void a_word_holds_every_operation_flag_and_length(void **state) {
    (void)state;
    for (unsigned op = SOFT_OP_SEND; op < 256; op *= 2)
        for (unsigned f = 0; f < 256; f = f * 2 + 1)
            for (unsigned len = 0; len <= SOFT_SEGMENT_MAX; len++) {
                uint32_t word = soft_word(op, f, len);
                assert_int_equal(word & 0xff, op);
                assert_int_equal(word >> 8 & 0xff, f);
                assert_int_equal(word >> 16, len);
            }
}

static void a_span_holds_its_payload_and_no_slot_more(void **state) {
    (void)state;
    assert_int_equal(soft_span(0), 1); /* a message without payload still takes a slot */
    for (unsigned bytes = 1; bytes <= SOFT_SEGMENT_MAX; bytes++) {
        unsigned span = soft_span(bytes);
        assert_true(span * SOFT_SLOT_PAYLOAD >= bytes);
        assert_true((span - 1) * SOFT_SLOT_PAYLOAD < bytes);
        assert_true(span <= SOFT_SPAN_MAX);
    }
    assert_true(SOFT_SPAN_MAX < SOFT_RING_SLOTS);
}

static void slots_follow_each_other_in_a_circle(void **state) {
    (void)state;
    unsigned index = 0;
    for (unsigned i = 0; i < 3 * SOFT_RING_SLOTS; i++) {
        assert_int_equal(index, i % SOFT_RING_SLOTS);
        index = soft_slot_next(index);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(header_and_slots_fill_the_file_exactly),
        cmocka_unit_test(writers_do_not_share_lines),
        cmocka_unit_test(a_word_holds_every_operation_flag_and_length),
        cmocka_unit_test(a_span_holds_its_payload_and_no_slot_more),
        cmocka_unit_test(slots_follow_each_other_in_a_circle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
