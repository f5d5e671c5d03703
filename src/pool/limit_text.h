/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * limit_text.h - the text for a user whose memory could not be had: the limit that was in the way, how
 * much was needed, and what to do. Any thread.
 */
#ifndef POOL_LIMIT_TEXT_H
#define POOL_LIMIT_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct limit_text {
    uint64_t need;      /* bytes that were asked for */
    uint64_t bytes_max; /* the pool's cap, UINT64_MAX: there is none */
    int error;          /* errno of what failed */
    bool locks;         /* the device locks what is registered, as NICs do */
    uint8_t huge_log2;  /* huge pages of that size were not there; 0: not about them */
};

/* One sentence or two, less than 160 bytes. */
void limit_text_explain(char *text, size_t size, const struct limit_text *limit);

#endif
