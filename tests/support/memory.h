/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * memory.h - a pair with a region on each side: b operates on a's memory. Bytes nobody wrote are 0xee.
 */
#ifndef TESTS_SUPPORT_MEMORY_H
#define TESTS_SUPPORT_MEMORY_H

#include "support/pair.h"
#include "support/log.h"

#include <sluice/memory.h>

#define ALL_RIGHTS (SLUICE_MAY_READ | SLUICE_MAY_WRITE | SLUICE_MAY_ATOMIC)
#define UNTOUCHED 0xee

struct memory {
    struct pair pair;
    sluice_region *there, *here; /* a's and b's */
    sluice_token token;          /* all of a's */
    uint64_t bytes;
};

/* All that the device can give. */
uint32_t memory_rights(const struct memory *m);
/* Opens a region of that many bytes on each side. */
void memory_regions(struct memory *m, uint64_t bytes, uint32_t rights);
/* Two nodes, one session, two regions. */
void memory_open(struct memory *m, uint64_t bytes, const sluice_link_options *link);
/* Closes the nodes, and all that is theirs. */
void memory_close(struct memory *m);
/* a's bytes. */
uint8_t *memory_there(struct memory *m);
/* b's bytes. */
uint8_t *memory_here(struct memory *m);
/* Writes the pattern. */
void memory_fill(uint8_t *at, uint64_t bytes, unsigned seed);
/* Whether it is there. */
bool memory_holds(const uint8_t *at, uint64_t bytes, unsigned seed);
/* The first byte is, and each is like the one before it. */
bool memory_untouched(const uint8_t *at, uint64_t bytes);
/* The next event of b is the outcome with this tag. */
sluice_event memory_done(struct memory *m, uint64_t tag, int status);

#endif
