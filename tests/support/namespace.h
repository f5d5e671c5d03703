/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * namespace.h - namespaces that any user may have, where the system allows it. Before the process has threads.
 */
#ifndef TESTS_SUPPORT_NAMESPACE_H
#define TESTS_SUPPORT_NAMESPACE_H

#include <stdbool.h>

/*
 * A user namespace, and others by their CLONE_ flags, in which this process is that user and nobody else is mapped.
 * False: not here.
 */
bool namespace_as_user(int flags, unsigned uid);

#endif
