/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * rx_segment.h - a segment as a part of its stream: whether it may come now, where its payload goes, and which message
 * its end completes. For rx.c alone.
 *
 * Owner: as rx.h.
 */
#ifndef SOFT_IWARP_RX_SEGMENT_H
#define SOFT_IWARP_RX_SEGMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "soft/iwarp/terminate.h"

struct iwarp_rx;

enum iwarp_rx_whole {
    IWARP_RX_WHOLE_NOT, /* not a plain message of one segment that is in order and has a place: nothing happened */
    IWARP_RX_WHOLE_WAITS, /* the message needs a receive, and there is none now */
    IWARP_RX_WHOLE_DELIVERED,
};

/* After the header of a segment whose payload is here, in a frame with the right check value: begin and end in one. */
enum iwarp_rx_whole iwarp_rx_segment_whole(struct iwarp_rx *rx, const uint8_t *payload);
/* After the header. False: the segment needs a receive, and there is none now. True: sets *refusal, or rx->place. */
bool iwarp_rx_segment_begin(struct iwarp_rx *rx, enum iwarp_refusal *refusal);
/* The device reads the payload itself, into rx->body. */
bool iwarp_rx_segment_is_own(const struct iwarp_rx *rx);
/* After the whole frame, with the right check value. */
enum iwarp_refusal iwarp_rx_segment_end(struct iwarp_rx *rx);

#endif
