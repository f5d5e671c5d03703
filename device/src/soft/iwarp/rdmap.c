/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * rdmap.c - READ requests, atomic requests and their responses to bytes and back.
 *
 * Pure; any thread.
 */
#include "soft/iwarp/rdmap.h"

#include "soft/iwarp/wire.h"

void iwarp_read_put(uint8_t out[IWARP_READ_BYTES], const struct iwarp_read *read) {
    iwarp_put32(out, read->sink_stag);
    iwarp_put64(out + 4, read->sink_offset);
    iwarp_put32(out + 12, read->bytes);
    iwarp_put32(out + 16, read->source_stag);
    iwarp_put64(out + 20, read->source_offset);
}

void iwarp_read_get(struct iwarp_read *read, const uint8_t in[IWARP_READ_BYTES]) {
    read->sink_stag = iwarp_get32(in);
    read->sink_offset = iwarp_get64(in + 4);
    read->bytes = iwarp_get32(in + 12);
    read->source_stag = iwarp_get32(in + 16);
    read->source_offset = iwarp_get64(in + 20);
}

/* The masks: an addition carries through all bits; a comparison and a swap take all bits. */
void iwarp_atomic_put(uint8_t out[IWARP_ATOMIC_BYTES], const struct iwarp_atomic *atomic) {
    bool swap = atomic->kind == IWARP_COMPARE_AND_SWAP;
    iwarp_put32(out, (uint32_t)atomic->kind);
    iwarp_put32(out + 4, atomic->id);
    iwarp_put32(out + 8, atomic->stag);
    iwarp_put64(out + 12, atomic->offset);
    iwarp_put64(out + 20, atomic->value);
    iwarp_put64(out + 28, swap ? UINT64_MAX : 0);
    iwarp_put64(out + 36, swap ? atomic->compare : 0);
    iwarp_put64(out + 44, UINT64_MAX);
}

bool iwarp_atomic_get(struct iwarp_atomic *atomic, const uint8_t in[IWARP_ATOMIC_BYTES]) {
    uint32_t kind = iwarp_get32(in) & 15;
    uint64_t mask = iwarp_get64(in + 28), compare_mask = iwarp_get64(in + 44);
    if (kind == IWARP_COMPARE_AND_SWAP ? mask != UINT64_MAX || compare_mask != UINT64_MAX
                                       : kind != IWARP_FETCH_AND_ADD || mask != 0)
        return false;
    *atomic = (struct iwarp_atomic){.kind = (enum iwarp_atomic_kind)kind,
                                    .id = iwarp_get32(in + 4),
                                    .stag = iwarp_get32(in + 8),
                                    .offset = iwarp_get64(in + 12),
                                    .value = iwarp_get64(in + 20),
                                    .compare = iwarp_get64(in + 36)};
    return true;
}

void iwarp_atomic_response_put(uint8_t out[IWARP_ATOMIC_RESPONSE_BYTES],
                               const struct iwarp_atomic_response *response) {
    iwarp_put32(out, response->id);
    iwarp_put64(out + 4, response->before);
}

void iwarp_atomic_response_get(struct iwarp_atomic_response *response,
                               const uint8_t in[IWARP_ATOMIC_RESPONSE_BYTES]) {
    response->id = iwarp_get32(in);
    response->before = iwarp_get64(in + 4);
}
