/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * iwarp.h - the owner of an iWARP stream for tests: receives, a window for WRITEs, a sink for READs, and a log of all that
 * the stream tells, so that two ways of feeding it can be compared. And frames made by hand. One thread.
 */
#ifndef TESTS_SUPPORT_IWARP_H
#define TESTS_SUPPORT_IWARP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "soft/iwarp/rx.h"

#define IWARP_END_RECEIVES 16u
#define IWARP_END_ROOM 4096u /* of a receive */
#define IWARP_END_STAG 0x77u /* of the window; that can be written, and invalidated once */
#define IWARP_END_BASE 0x10000u
#define IWARP_END_WINDOW 65536u
#define IWARP_END_SINK 65536u
#define IWARP_END_READS 4u

struct iwarp_end {
    struct iwarp_rx rx;
    unsigned receives, taken, delivered; /* posted; of these */
    unsigned takes;                      /* how often a receive was asked for */
    unsigned reads, answered;            /* asked; of these */
    struct iwarp_read read[IWARP_END_READS];
    uint32_t read_at[IWARP_END_READS]; /* in the sink */
    bool window_closed;
    unsigned mistake; /* of the owner: so many bytes of place too few */
    uint8_t receive[IWARP_END_RECEIVES][IWARP_END_ROOM];
    uint8_t window[IWARP_END_WINDOW];
    uint8_t sink[IWARP_END_SINK];
    size_t log_bytes;
    char log[16384];
};

/* With so many receives, and nothing asked. Freed by free(). */
struct iwarp_end *iwarp_end(unsigned receives, bool crc, bool extended);
/* Asks for a READ: its answer will go to the sink. */
void iwarp_end_read(struct iwarp_end *end, uint32_t stag, uint64_t offset, uint32_t bytes);
/* Both were told the same, and have the same memory written. */
void iwarp_end_assert_same(const struct iwarp_end *a, const struct iwarp_end *b);

/* Numbers that only look random. */
uint32_t iwarp_random(uint32_t *seed);
/*
 * Feeds it in pieces of `piece` bytes, 0: of random sizes, straight into the memory that is wanted where that is `least`
 * bytes or more (0: never). Receives that it waits for come one at a time if `post`. Returns how much was taken.
 */
size_t iwarp_end_feed(struct iwarp_end *end, const uint8_t *data, size_t bytes, size_t piece,
                      size_t least, bool post);

/* One frame. Returns its bytes. */
size_t iwarp_frame(uint8_t *out, const struct iwarp_ddp *ddp, const void *payload, size_t bytes);
/* Around a segment that need not be one. */
size_t iwarp_frame_raw(uint8_t *out, const void *segment, size_t bytes);

#endif
