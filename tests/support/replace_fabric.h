/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * replace_fabric.h - gives an open node, whose threads read it, another table of the device's calls.
 */
#ifndef TESTS_SUPPORT_REPLACE_FABRIC_H
#define TESTS_SUPPORT_REPLACE_FABRIC_H

#include "node/node.h"

/* Both tables do alike with what is on its way: a thread may read either. */
__attribute__((no_sanitize("thread"), unused)) static void
replace_fabric(sluice_node *n, const struct fabric_ops *ops) {
    n->fabric = ops;
}

#endif
