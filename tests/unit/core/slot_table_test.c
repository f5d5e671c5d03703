/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* slot_table_test.c - slots are numbered, stay where they are, and are found by any number. */
#include <stdlib.h>
#include <string.h>

#include "core/slot_table.h"
#include "support/test.h"

struct slot {
    uint64_t mark;
    char rest[SLOT_ALIGN - sizeof(uint64_t)];
};

static void prepare(void *slot) {
    ((struct slot *)slot)->mark = 7;
}

static struct slot_table *open(void) {
    struct slot_table *t = calloc(1, sizeof *t);
    assert_non_null(t);
    return t;
}

static void close(struct slot_table *t) {
    for (unsigned i = 0; i < SLOT_CHUNKS; i++)
        free(atomic_load(&t->chunk[i]));
    free(t);
}

TEST(a_slot_has_a_number_and_stays_where_it_is) {
    struct slot_table *t = open();
    void *at[3 * SLOT_CHUNK];
    for (uint32_t i = 0; i < 3 * SLOT_CHUNK; i++) {
        uint32_t number;
        at[i] = slot_table_take(t, sizeof(struct slot), prepare, &number);
        assert_int_equal(number, i);
        assert_int_equal((uintptr_t)at[i] % SLOT_ALIGN, 0);
        assert_int_equal(((struct slot *)at[i])->mark, 7);
    }
    for (uint32_t i = 0; i < 3 * SLOT_CHUNK; i++) {
        assert_ptr_equal(slot_table_at(t, i, sizeof(struct slot)), at[i]);
        assert_ptr_equal(slot_table_find(t, i, sizeof(struct slot)), at[i]);
    }
    close(t);
}

TEST(a_number_that_no_slot_has_finds_none) {
    struct slot_table *t = open();
    uint32_t number;
    assert_null(slot_table_find(t, 0, sizeof(struct slot)));
    assert_non_null(slot_table_take(t, sizeof(struct slot), prepare, &number));
    assert_null(slot_table_find(t, SLOT_CHUNK, sizeof(struct slot)));
    assert_null(slot_table_find(t, SLOTS_MAX, sizeof(struct slot)));
    assert_null(slot_table_find(t, UINT32_MAX, sizeof(struct slot)));
    /* Near one that was used it is there, as `prepare` left it. */
    const struct slot *next = slot_table_find(t, 1, sizeof(struct slot));
    assert_non_null(next);
    assert_int_equal(next->mark, 7);
    close(t);
}

TEST(slots_given_back_are_taken_again_the_last_one_first) {
    struct slot_table *t = open();
    uint32_t number;
    for (uint32_t i = 0; i < 2 * SLOT_CHUNK; i++)
        ((struct slot *)slot_table_take(t, sizeof(struct slot), prepare, &number))->mark = i;
    const uint32_t given[] = {3, SLOT_CHUNK + 5, 0};
    for (unsigned i = 0; i < 3; i++)
        slot_table_give(t, sizeof(struct slot), given[i]);
    for (unsigned i = 3; i > 0; i--) {
        const struct slot *slot = slot_table_take(t, sizeof(struct slot), prepare, &number);
        assert_int_equal(number, given[i - 1]);
        assert_int_equal(slot->mark, number); /* with the bytes that it had */
    }
    assert_non_null(slot_table_take(t, sizeof(struct slot), prepare, &number));
    assert_int_equal(number, 2 * SLOT_CHUNK);
    close(t);
}

TEST(a_full_table_gives_no_slot) {
    struct slot_table *t = open();
    uint32_t number;
    for (uint32_t i = 0; i < SLOTS_MAX; i++)
        assert_non_null(slot_table_take(t, sizeof(struct slot), NULL, &number));
    assert_null(slot_table_take(t, sizeof(struct slot), NULL, &number));
    slot_table_give(t, sizeof(struct slot), 9);
    assert_non_null(slot_table_take(t, sizeof(struct slot), NULL, &number));
    assert_int_equal(number, 9);
    close(t);
}
