/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * dropin.h - the software device that the user loaded into this process for programs that do not know of
 * it (libsluice-soft.so, device/docs/drop-in.md). Then it is the software device of Sluice in this
 * process, too, and the system's libraries show no device but this one. Looked for once.
 */
#ifndef FABRIC_DROPIN_H
#define FABRIC_DROPIN_H

#include "fabric/fabric.h"

/* The tables to choose from in this process. Any thread. */
struct fabric_pair {
    const struct fabric_ops *system, *soft;
};
struct fabric_pair fabric_preloaded_pair(void);

#endif
