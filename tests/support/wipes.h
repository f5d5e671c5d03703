/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * wipes.h - counts key rings that were wiped, by standing in for libsodium's call that does it. A
 * ring is a range larger than one secret that holds the mark; all its secrets are the mark.
 *
 * Any thread may wipe.
 */
#ifndef TESTS_SUPPORT_WIPES_H
#define TESTS_SUPPORT_WIPES_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <sluice/sluice.h>
#include <sodium.h>

#define WIPES_MARK "the secret that is looked for, 40 bytes."
#define WIPES_MARK_BYTES (sizeof WIPES_MARK - 1)

extern atomic_uint wipes;
extern atomic_size_t wipes_secrets; /* secrets in the ring that was wiped last */

#endif
