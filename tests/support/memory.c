/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* memory.c - see memory.h. */
#include "support/memory.h"

uint32_t memory_rights(const struct memory *m) {
    bool atomics = m->pair.a.node->device_attr.atomic_cap != IBV_ATOMIC_NONE;
    return atomics ? ALL_RIGHTS : ALL_RIGHTS & ~SLUICE_MAY_ATOMIC;
}

void memory_regions(struct memory *m, uint64_t bytes, uint32_t rights) {
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

void memory_open(struct memory *m, uint64_t bytes, const sluice_link_options *link) {
    memset(m, 0, sizeof *m);
    pair_open(&m->pair, PAIR_NODE(.log = log_nothing, .eager_bytes = 1024), PAIR_LINK());
    pair_connect(&m->pair, link);
    memory_regions(m, bytes, ALL_RIGHTS);
}

void memory_close(struct memory *m) {
    pair_close(&m->pair);
}

uint8_t *memory_there(struct memory *m) {
    return sluice_region_data(m->there);
}

uint8_t *memory_here(struct memory *m) {
    return sluice_region_data(m->here);
}

void memory_fill(uint8_t *at, uint64_t bytes, unsigned seed) {
    pair_fill_bytes(at, bytes, seed);
}

bool memory_holds(const uint8_t *at, uint64_t bytes, unsigned seed) {
    return pair_holds(at, bytes, seed);
}

bool memory_untouched(const uint8_t *at, uint64_t bytes) {
    return bytes == 0 || (at[0] == UNTOUCHED && memcmp(at, at + 1, bytes - 1) == 0);
}

sluice_event memory_done(struct memory *m, uint64_t tag, int status) {
    sluice_event event = pair_expect(&m->pair, &m->pair.b, SLUICE_DONE);
    must_data_equal(event.tag, tag);
    assert_int_equal(event.status, status);
    return event;
}
