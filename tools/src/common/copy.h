/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * copy.h - the speed of memcpy(), for comparison with a bandwidth of the same run.
 */
#ifndef COPY_H
#define COPY_H

#include <stddef.h>

/* Bytes per second between two warm buffers of this size on this CPU, -1 without memory. */
double copy_bytes_per_s(size_t bytes);

#endif
