/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* hole.c - see hole.h. */
#define _GNU_SOURCE
#include "support/hole.h"

#include <sys/mman.h>

bool hole_keep(void *addr, size_t bytes) {
    return mmap(addr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) ==
           addr;
}
