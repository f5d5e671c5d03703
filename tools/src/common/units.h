/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * units.h - numbers as people write them: decimal integers, sizes with a suffix, seconds, and
 * addresses. Parsers take all of the text or nothing, and write their result only on success.
 */
#ifndef UNITS_H
#define UNITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool units_number(const char *text, uint64_t *out);     /* 0..2^64-1, digits only */
bool units_size(const char *text, uint64_t *out);       /* bytes, suffix K M G (powers of 1024) */
bool units_seconds_ns(const char *text, uint64_t *out); /* 5 or 0.25, nine decimals at most */
/* The shortest exact form: 1536 -> "1536", 65536 -> "64K". */
void units_print_size(char *out, size_t out_bytes, uint64_t bytes);

#define ADDRESS_BYTES 300

/*
 * HOST or HOST:PORT, [IPv6] or [IPv6]:PORT, an IPv6 address alone, "sluice://" in front allowed.
 * Writes "HOST:PORT" to out; default_port is used where there is none, and default_port < 0 makes
 * the port obligatory. *had_port (may be NULL) says whether one was written. Returns NULL, or what
 * is wrong, as the end of a sentence.
 */
const char *units_address(const char *text, int64_t default_port, char out[ADDRESS_BYTES],
                          bool *had_port);

#define ADDRESSES_MAX 8
#define ADDRESSES_BYTES (ADDRESSES_MAX * ADDRESS_BYTES)

/* To connect to: several of those with commas, none with port 0. *had_port: one of them has a port. */
const char *units_addresses(const char *text, int64_t default_port, char out[ADDRESSES_BYTES],
                            bool *had_port);

#endif
