/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * dropin.h - the software device that the user loaded into this process for programs that do not know of
 * it (libsluice-soft.so, docs/drop-in.md). Then it is the software device of Sluice in this
 * process, too, and the system's libraries show no device but this one.
 */
#ifndef FABRIC_DROPIN_H
#define FABRIC_DROPIN_H

#include "fabric/fabric.h"

#define FABRIC_EXPORT_MARK 0x736c7563736f6674ull
#define FABRIC_EXPORT_SYMBOL "sluice_soft_door"

struct fabric_export {
    uint64_t mark;
    uint64_t size; /* of the table: another release's is not used */
    const struct fabric_ops *ops;
};

/* The tables to choose from in this process. Any thread. */
struct fabric_pair {
    const struct fabric_ops *system, *soft;
};
struct fabric_pair fabric_preloaded_pair(void);

#endif
