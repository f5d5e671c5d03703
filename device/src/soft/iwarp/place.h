/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * place.h - the memory that the payload of one segment goes to, piece by piece, and how much of it is filled.
 *
 * Owner: the thread that receives the stream.
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
    bool guarded; /* some of it is the application's own memory, which may be unmapped */
    struct iovec piece[IWARP_PLACE_PIECES]; /* the part of each that is not filled */
};

static inline void iwarp_place_nowhere(struct iwarp_place *place) {
    place->at = place->count = 0;
    place->guarded = false;
}

/* False: there are IWARP_PLACE_PIECES already. Empty pieces are left out. */
bool iwarp_place_add(struct iwarp_place *place, void *addr, size_t bytes);
size_t iwarp_place_left(const struct iwarp_place *place);
/* Copies until the pieces are full, and drops the rest. False: memory of a guarded place is not there. */
bool iwarp_place_put(struct iwarp_place *place, const uint8_t *data, size_t bytes);
/* The caller read so many bytes into the pieces, at most what was left. crc: is extended by them; or NULL. */
void iwarp_place_filled(struct iwarp_place *place, size_t bytes, uint32_t *crc);
/* Bytes that are still to be filled lie in this memory. */
bool iwarp_place_uses(const struct iwarp_place *place, const void *from, size_t bytes);

#endif
