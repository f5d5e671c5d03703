/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * rx_segment.h - what a segment is to the stream it arrives in: whether it may come now, where its payload goes, and
 * what has arrived with its end. For rx.c alone.
 *
 * Owner: as rx.h.
 */
#ifndef SOFT_IWARP_RX_SEGMENT_H
#define SOFT_IWARP_RX_SEGMENT_H

#include <stdbool.h>

#include "soft/iwarp/terminate.h"

struct iwarp_rx;

/* The header was read. False: it needs a receive, and there is none now. Else *refusal, or rx->place is set. */
bool iwarp_rx_segment_begin(struct iwarp_rx *rx, enum iwarp_refusal *refusal);
/* Its payload is read by the device itself, into rx->body. */
bool iwarp_rx_segment_is_own(const struct iwarp_rx *rx);
/* All of it is there and right. */
enum iwarp_refusal iwarp_rx_segment_end(struct iwarp_rx *rx);

#endif
