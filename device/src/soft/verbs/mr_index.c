/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * mr_index.c - see mr_index.h.
 *
 * Owner: the control lock.
 */
#include "soft/verbs/mr_index.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/random.h>

#include "soft/ipc/control_lock.h"
#include "soft/object/mr.h"

#define LIMIT_FIRST 4096u
#define TRIES 32u /* of a random place, before the next free one must do */
/* Indexes beside each other: a page of soft_mr_table, eight of the keys that peers see. */
#define BLOCK 512u
_Static_assert(SOFT_MAX_MR / BLOCK <= 256, "a block's number is a byte");

/* Places below the limit are handed out; it doubles once half of them are taken. */
static uint32_t next, limit = LIMIT_FIRST, alive;
static uint8_t blocks[SOFT_MAX_MR / BLOCK]; /* places to indexes, once shuffled */
static bool shuffled;

/* Four bytes that cannot be guessed. */
static uint32_t randoms[64];
static unsigned randoms_left;

static int random_get(uint32_t *random) {
    if (randoms_left == 0) {
        if (getrandom(randoms, sizeof randoms, 0) != sizeof randoms)
            return EIO;
        randoms_left = sizeof randoms / sizeof randoms[0];
    }
    *random = randoms[--randoms_left];
    randoms[randoms_left] = 0;
    return 0;
}

static int shuffle_blocks(void) {
    const uint32_t count = sizeof blocks / sizeof blocks[0];
    for (uint32_t i = 0; i < count; i++) { /* each of those before it, or itself */
        uint32_t random;
        if (random_get(&random) != 0)
            return EIO;
        blocks[i] = blocks[random % (i + 1)];
        blocks[random % (i + 1)] = (uint8_t)i;
    }
    shuffled = true;
    return 0;
}

/* 0: it is taken, or not one at all. */
static uint32_t free_index(uint32_t place) {
    uint32_t index = blocks[place / BLOCK] * BLOCK + place % BLOCK;
    return atomic_load_explicit(&soft_mr_table[index], memory_order_relaxed) ? 0 : index;
}

/* Of those that are random the place is not that behind others, as far as that can be. 0: all are taken. */
static uint32_t find_index(bool hidden) {
    uint32_t index = 0, random;
    for (unsigned n = 0; hidden && n < TRIES && random_get(&random) == 0; n++)
        if ((index = free_index(random % limit)) != 0)
            return index;
    for (uint32_t n = 0; n < limit && index == 0; n++) {
        index = free_index(next);
        next = (next + 1) % limit;
    }
    return index;
}

int soft_mr_index_take(bool hidden, uint32_t *key) {
    soft_assert_locked();
    uint32_t random;
    if (alive >= limit / 2 && limit < SOFT_MAX_MR)
        limit *= 2;
    if ((!shuffled && shuffle_blocks() != 0) || random_get(&random) != 0)
        return EIO;
    uint32_t index = find_index(hidden);
    if (index == 0)
        return ENOMEM;
    *key = index << 16 | (random & 0xffff);
    alive++;
    return 0;
}

void soft_mr_index_free(void) {
    soft_assert_locked();
    alive--;
}

void soft_mr_index_forked(void) {
    next = 0;
    shuffled = false;
    limit = LIMIT_FIRST;
    alive = 0;
    randoms_left = 0; /* the parent hands out the others */
}
