/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * far.h - the other host of a test in the kernel's guest (fabric=hosts, fabric=guests): programs are started
 * there, and the network between the two is told to lose, delay and reorder packets, or is cut.
 *
 * Words before a command (SLUICE_TEST_NS) take it there. Which kind of other host it is makes no difference,
 * but that only another guest can have its power cut (SLUICE_TEST_POWER).
 *
 * A program over there is a struct peer like one over here. What it says on standard error comes with its
 * lines, and the end of its input is the end of it. One thread.
 */
#ifndef TESTS_SUPPORT_FAR_H
#define TESTS_SUPPORT_FAR_H

#include "support/guest.h"
#include "support/peer.h"

#define FAR_MTU 4500u

/* The other host's address. */
const char *far_host(void);
/* The device there speaks iWARP. */
bool far_iwarp(void);
/* What it_address() names is over there, or here again. */
void far_address(bool there);

/*
 * A line of bash over here; its exit status. $THERE stands for the words that take a command to the other host, A
 * and B for the interfaces.
 */
__attribute__((format(printf, 1, 2))) int far_shell(const char *format, ...);

/* ---- the network between ------------------------------------------------------------------------- */

extern bool far_is_bad, far_was_bad; /* there is weather; there was since far_flow_begin() */

/* What netem does to each direction; NULL: nothing. */
void far_weather(const char *netem);
/* A cable behind a switch: the interfaces stay up, and nothing passes. */
void far_cable(bool in);
/* The administrator of the other host takes its interface down. Addresses stay, routes go. */
void far_interface(bool up);
/* The device of the other host, anew. */
void far_device(void);
/* Of the interface over there. */
void far_mtu(unsigned bytes);
/* The hosts do not know each other's MAC any more. */
void far_forget(void);

/* ---- programs over there ------------------------------------------------------------------------- */

/* Programs of the build are found by their names. */
__attribute__((format(printf, 2, 3))) void far_start(struct peer *peer, const char *format, ...);
/* Its input ends, and with it the program; what else it had to say is read. Its exit status. */
int far_end(struct peer *peer);
/* The next line that begins with these words, and is its last; what the library logs is passed over. */
void far_expect(struct peer *peer, const char *words);
/* The number at the end of the first line that begins with these words; others are passed over. */
int far_number(struct peer *peer, const char *words);

/* ---- power ---------------------------------------------------------------------------------------- */

/* Of the other guest: the plug is pulled, or it is put in again. */
void far_power(bool on);
/* Has power, and waits until it takes commands. A boot that hangs is begun again. */
void far_boot(void);

/* ---- set-up and tear-down of the programs --------------------------------------------------------- */

/* Whatever a test that failed left. */
int far_restore(void **state);
/* librdmacm opens each device that an id leads to once, and keeps it. */
int far_warm_up(void **state);

#endif
