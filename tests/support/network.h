/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * network.h - a network namespace of this process alone, for tests of processes that cannot reach each other.
 */
#ifndef TESTS_SUPPORT_NETWORK_H
#define TESTS_SUPPORT_NETWORK_H

#include <stdbool.h>

/* This process has a network of its own from now on, a loopback interface. False: it needs root. */
bool network_separate(void);
/* The loopback interface of one that this process has just come to have. */
bool network_up(void);

#endif
