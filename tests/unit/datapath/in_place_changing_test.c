/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * in_place_changing_test.c - an application that breaks its promise and changes memory while it is sent in place: over TCP, too,
 * the peer gets one content or the other, and the session goes on.
 */
#include "support/pair.h"

#include <stdatomic.h>

#include <sluice/memory.h>

#include "support/rows.h"

#define BYTES (1u << 20)
#define TIMES 20u

static atomic_bool over;
static _Atomic uint64_t rounds;

/* That it is read meanwhile is meant. */
__attribute__((no_sanitize("thread"))) static void *change(void *memory) {
    volatile uint64_t *words = memory;
    for (uint64_t round = 1; !atomic_load(&over); round++) {
        for (size_t i = 0; i < BYTES / sizeof *words; i += 8)
            words[i] = round;
        atomic_store(&rounds, round);
    }
    return NULL;
}

struct place {
    bool region; /* else plain memory, by SLUICE_IN_PLACE */
};

static void no_session_ends_for_memory_that_changes(void **state) {
    const struct place *place = *state;
    struct pair p;
    pthread_t thread;
    sluice_region *region;
    memset(&p, 0, sizeof p);
    pair_open(&p,
              PAIR_NODE(.soft_net = SLUICE_SOFT_NET_REQUIRE,
                        .registrations = SLUICE_REGISTRATIONS_NOTIFIED),
              PAIR_LINK());
    pair_connect(&p, PAIR_LINK());
    void *memory = calloc(1, BYTES);
    assert_non_null(memory);
    assert_int_equal(sluice_region_open(p.b.node, memory, BYTES, 0, &region, NULL), 0);
    const sluice_piece piece = {memory, BYTES, place->region ? region : NULL};
    atomic_store(&over, false);
    assert_int_equal(pthread_create(&thread, NULL, change, memory), 0);
    for (unsigned i = 0; i < TIMES; i++) {
        uint64_t now = atomic_load(&rounds);
        pair_await(&p, atomic_load(&rounds) != now);
        assert_int_equal(
            sluice_send_pieces(p.b.session, &piece, 1,
                               SLUICE_SEND(.tag = 1, .flags = place->region ? 0 : SLUICE_IN_PLACE)),
            0);
        sluice_msg *msg = pair_expect(&p, &p.a, SLUICE_MESSAGE).msg;
        assert_int_equal(sluice_size(msg), BYTES);
        sluice_free(msg);
        assert_int_equal(pair_expect(&p, &p.b, SLUICE_SENT).status, 0);
    }
    atomic_store(&over, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(sluice_region_close(region), 0);
    pair_close(&p);
    free(memory);
}

#define PLACE(name, ...) ROW(name, no_session_ends_for_memory_that_changes, place, __VA_ARGS__)

TEST_CASES(PLACE(a_region_that_changes_ends_no_session, true),
           PLACE(plain_memory_that_changes_ends_no_session, false));
