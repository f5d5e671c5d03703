/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * select.h - fabric_select() with its two fabrics and the environment as arguments, for tests.
 */
#ifndef FABRIC_SELECT_H
#define FABRIC_SELECT_H

#include "fabric/fabric.h"

/* env: the value of SLUICE_DEVICE, NULL when it is not set. Otherwise as fabric_select(). */
int fabric_select_between(const struct fabric_ops *system, const struct fabric_ops *soft,
                          const char *spec, const char *env, struct fabric_choice *choice);

#endif
