/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * checksum.h - 64 bits over a stream that both sides see in the same pieces. Four independent
 * lanes of multiply and rotate, so that it runs at memory speed; it finds loss, damage and
 * re-ordering, it is no defence against somebody who wants to deceive.
 */
#ifndef CHECKSUM_H
#define CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

#define CHECKSUM_START UINT64_C(0x736c756963653031)

/* Continues `sum` with one piece. The order and the lengths of the pieces count. */
uint64_t checksum_add(uint64_t sum, const void *data, size_t bytes);

#endif
