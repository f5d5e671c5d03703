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
/* Whoever makes a socket of the internet family in this process is killed from now on. */
void network_forbid(void);
/* Runs it in a process of its own, with that in SLUICE_SOFT_NET, NULL: nothing. It must end well. */
void network_child(const char *setting, void (*body)(void));

#endif
