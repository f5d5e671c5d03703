/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * hole.h - addresses that a test mapped, that are free now, and that it wants to map again. Another
 * thread's memory may have come there: the device's, the C library's, a sanitizer's. MAP_FIXED would take
 * it away from them.
 */
#ifndef TESTS_SUPPORT_HOLE_H
#define TESTS_SUPPORT_HOLE_H

#include <stdbool.h>
#include <stddef.h>

/* Mapped without access, so that nobody else comes there. False: somebody is there already. */
bool hole_keep(void *addr, size_t bytes);

#endif
