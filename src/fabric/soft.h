/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * soft.h - the software device's calls as a fabric: this library's own copy (fabric_soft of fabric.h), or another one.
 */
#ifndef FABRIC_SOFT_H
#define FABRIC_SOFT_H

#include "fabric/fabric.h"

struct soft_calls;

/* That fabric over the drop-in's copy, which the process uses from then on. Once, before any node. */
const struct fabric_ops *fabric_soft_of_dropin(const struct soft_calls *calls);

#endif
