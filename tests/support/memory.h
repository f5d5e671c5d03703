/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * memory.h - a pair with a region on each side: b operates on a's memory. Bytes nobody wrote are 0xee.
 */
#ifndef TESTS_MEMORY_H
#define TESTS_MEMORY_H

#include "support/pair.h"

#include <sluice/memory.h>

#define ALL_RIGHTS (SLUICE_MAY_READ | SLUICE_MAY_WRITE | SLUICE_MAY_ATOMIC)
#define UNTOUCHED 0xee
#define MEMORY_UNUSED __attribute__((unused))

struct memory {
    struct pair pair;
    sluice_region *there, *here; /* a's and b's */
    sluice_token token;          /* all of a's */
    uint64_t bytes;
};

/* All that the device can give. */
static uint32_t memory_rights(const struct memory *m) {
    bool atomics = m->pair.a.node->device_attr.atomic_cap != IBV_ATOMIC_NONE;
    return atomics ? ALL_RIGHTS : ALL_RIGHTS & ~SLUICE_MAY_ATOMIC;
}

static void memory_regions(struct memory *m, uint64_t bytes, uint32_t rights) {
    sluice_error e = {0};
    m->bytes = bytes;
    rights &= memory_rights(m);
    if (sluice_region_open(m->pair.a.node, NULL, bytes, rights, &m->there, &e) != 0 ||
        sluice_region_open(m->pair.b.node, NULL, bytes, 0, &m->here, &e) != 0)
        fail_msg("%s", e.text);
    if (rights)
        assert_int_equal(sluice_region_token(m->there, 0, bytes, rights, &m->token), 0);
    memset(sluice_region_data(m->there), UNTOUCHED, bytes);
    memset(sluice_region_data(m->here), UNTOUCHED, bytes);
}

/* What is provoked is not news. */
static void memory_log(int level, const char *text, void *arg) {
    (void)level, (void)text, (void)arg;
}

MEMORY_UNUSED static void memory_open(struct memory *m, uint64_t bytes,
                                      const sluice_link_options *link) {
    memset(m, 0, sizeof *m);
    pair_open(&m->pair, PAIR_NODE(.log = memory_log, .eager_bytes = 1024), PAIR_LINK());
    pair_connect(&m->pair, link);
    memory_regions(m, bytes, ALL_RIGHTS);
}

MEMORY_UNUSED static void memory_close(struct memory *m) {
    pair_close(&m->pair);
}

MEMORY_UNUSED static uint8_t *there(struct memory *m) {
    return sluice_region_data(m->there);
}

MEMORY_UNUSED static uint8_t *here(struct memory *m) {
    return sluice_region_data(m->here);
}

MEMORY_UNUSED static void memory_fill(uint8_t *at, uint64_t bytes, unsigned seed) {
    pair_fill_bytes(at, bytes, seed);
}

MEMORY_UNUSED static bool memory_holds(const uint8_t *at, uint64_t bytes, unsigned seed) {
    return pair_holds(at, bytes, seed);
}

/* The first byte is, and each is like the one before it. */
MEMORY_UNUSED static bool memory_untouched(const uint8_t *at, uint64_t bytes) {
    return bytes == 0 || (at[0] == UNTOUCHED && memcmp(at, at + 1, bytes - 1) == 0);
}

/* The next event of b is the outcome with this tag. */
MEMORY_UNUSED static sluice_event memory_done(struct memory *m, uint64_t tag, int status) {
    sluice_event event = pair_expect(&m->pair, &m->pair.b, SLUICE_DONE);
    assert_int_equal(event.tag, tag);
    assert_int_equal(event.status, status);
    return event;
}

#endif
