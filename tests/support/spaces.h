/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * spaces.h - several network namespaces at once, as containers of one host have them.
 */
#ifndef TESTS_SUPPORT_SPACES_H
#define TESTS_SUPPORT_SPACES_H

#include <stdbool.h>

/*
 * Asks in so many processes, each in a network namespace of its own, and all of them alive until the last has
 * answered. False: this process may not have any.
 */
bool spaces_ask(unsigned count, int (*ask)(void), int *answers);

#endif
