/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * place.h - the memory that the payload of one segment goes to, piece by piece, and how far it has come.
 *
 * Owner: who receives the stream.
 */
#ifndef SOFT_IWARP_PLACE_H
#define SOFT_IWARP_PLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define IWARP_PLACE_PIECES 32u /* of one receive, or of one READ */

struct iwarp_place {
    unsigned at, count;
    struct iovec piece[IWARP_PLACE_PIECES]; /* what is left of each */
};

static inline void iwarp_place_nowhere(struct iwarp_place *place) {
    place->at = place->count = 0;
}

/* False: there are that many pieces already. Pieces of nothing are left out. */
bool iwarp_place_add(struct iwarp_place *place, void *addr, size_t bytes);
size_t iwarp_place_left(const struct iwarp_place *place);
/* Copies as far as there is a place; the rest goes nowhere. */
void iwarp_place_put(struct iwarp_place *place, const uint8_t *data, size_t bytes);
/* So many bytes were read straight into it, at most what was left. crc: goes on with them, or NULL. */
void iwarp_place_filled(struct iwarp_place *place, size_t bytes, uint32_t *crc);
/* What is still to be written lies in this memory. */
bool iwarp_place_uses(const struct iwarp_place *place, const void *from, size_t bytes);

#endif
