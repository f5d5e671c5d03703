/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* wipes.c - see wipes.h. */
#include "support/wipes.h"

atomic_uint wipes;
atomic_size_t wipes_secrets;

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
