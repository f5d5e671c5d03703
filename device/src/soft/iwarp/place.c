/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * place.c - puts payload into its pieces of memory: copies it, or notes that it was read there.
 *
 * Owner: the thread that receives the stream.
 */
#include "soft/iwarp/place.h"

#include <string.h>

#include "common/guarded_copy.h"
#include "soft/iwarp/crc32c.h"

bool iwarp_place_add(struct iwarp_place *place, void *addr, size_t bytes) {
    if (bytes == 0)
        return true;
    if (place->count == IWARP_PLACE_PIECES)
        return false;
    place->piece[place->count++] = (struct iovec){addr, bytes};
    return true;
}

size_t iwarp_place_left(const struct iwarp_place *place) {
    size_t left = 0;
    for (unsigned i = place->at; i < place->count; i++)
        left += place->piece[i].iov_len;
    return left;
}

static void advance(struct iwarp_place *place, size_t bytes) {
    struct iovec *piece = &place->piece[place->at];
    piece->iov_base = (uint8_t *)piece->iov_base + bytes;
    piece->iov_len -= bytes;
    if (piece->iov_len == 0)
        place->at++;
}

bool iwarp_place_put(struct iwarp_place *place, const uint8_t *data, size_t bytes) {
    while (bytes > 0 && place->at < place->count) {
        const struct iovec *piece = &place->piece[place->at];
        size_t n = piece->iov_len < bytes ? piece->iov_len : bytes;
        if (__builtin_expect(!place->guarded, 1))
            memcpy(piece->iov_base, data, n);
        else if (!copy_guarded_to(piece->iov_base, data, n))
            return false;
        advance(place, n);
        data += n;
        bytes -= n;
    }
    return true;
}

void iwarp_place_filled(struct iwarp_place *place, size_t bytes, uint32_t *crc) {
    while (bytes > 0 && place->at < place->count) {
        const struct iovec *piece = &place->piece[place->at];
        size_t n = piece->iov_len < bytes ? piece->iov_len : bytes;
        if (crc)
            *crc = iwarp_crc32c(*crc, piece->iov_base, n);
        advance(place, n);
        bytes -= n;
    }
}

bool iwarp_place_uses(const struct iwarp_place *place, const void *from, size_t bytes) {
    uintptr_t start = (uintptr_t)from;
    for (unsigned i = place->at; i < place->count; i++) {
        uintptr_t at = (uintptr_t)place->piece[i].iov_base;
        if (at < start + bytes && start < at + place->piece[i].iov_len)
            return true;
    }
    return false;
}
