/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * where.h - where the tests run: on the software device, on one that it is told to be like, or on what the environment
 * names; and what differs there. Public interface only.
 */
#ifndef TESTS_SUPPORT_WHERE_H
#define TESTS_SUPPORT_WHERE_H

#include <stdbool.h>
#include <stdint.h>

/* The device of the nodes. */
const char *it_device(void);
/* A long search by hand (SLUICE_TEST_LONG=1), not one for every change. */
bool it_long(void);
/* It is the software device. */
bool it_soft(void);
/* It is the software device with all connections over TCP. */
bool it_tcp(void);

/*
 * The target of a request that was refused hears why. Soft-RoCE's does on some kernels; on iWARP the end of the
 * connection may be there first.
 */
bool it_tells_target(void);

/*
 * Soft-iWARP, or the software device being like it: a connection is there when a listener is asked, because the
 * two have greeted; and there are no atomics and no windows.
 */
bool it_iwarp(void);
/* What was sent is acknowledged, up to the credits, whether the peer's process runs or not. */
bool it_answers_alone(void);
/* All that a region can give on that device. */
uint32_t it_rights(void);
/* The address of that device, numeric. The software device has every address of the host. */
const char *it_host(void);
/* A name of that address. */
const char *it_name(void);
/* "HOST:PORT", valid until the next call. */
const char *it_address(int port);

extern bool it_rnr_provoked; /* a test brought about that messages find no receive posted */

/* How often that happened in this process, as its software device says; 0 where there is none. */
unsigned long long it_rnr(void);

#endif
