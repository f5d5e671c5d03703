/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * wipes.h - counts key rings that were wiped, by standing in for libsodium's call that does it. A
 * ring is a range larger than one secret that holds the mark; all its secrets are the mark.
 *
 * Any thread may wipe.
 */
#ifndef TESTS_WIPES_H
#define TESTS_WIPES_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <sluice/sluice.h>
#include <sodium.h>

#define WIPES_MARK "the secret that is looked for, 40 bytes."
#define WIPES_MARK_BYTES (sizeof WIPES_MARK - 1)

static atomic_uint wipes;
static atomic_size_t wipes_secrets; /* secrets in the ring that was wiped last */

void sodium_memzero(void *const at, const size_t bytes) {
    size_t secrets = 0;
    volatile uint8_t *byte = at;
    for (size_t i = 0; i + WIPES_MARK_BYTES <= bytes; i++)
        secrets += memcmp((const char *)at + i, WIPES_MARK, WIPES_MARK_BYTES) == 0;
    for (size_t i = 0; i < bytes; i++)
        byte[i] = 0;
    if (bytes > SLUICE_SECRET_MAX && secrets > 0) {
        atomic_fetch_add(&wipes, 1);
        atomic_store(&wipes_secrets, secrets);
    }
}

#endif
