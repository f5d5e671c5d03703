/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * grace.h - waiting until no lookup of registrations from before looks at anything.
 */
#ifndef TESTS_SUPPORT_GRACE_H
#define TESTS_SUPPORT_GRACE_H

#include "pool/regcache/index.h"

/* Waits for a grace period from now on. Not inside of a read-side section. */
void grace_settle(struct regcache_index *table);

#endif
