/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * name_server.h - what the tests' own name servers share: lookups that stay inside until they are let go. Any thread.
 */
#ifndef TESTS_SUPPORT_NAME_SERVER_H
#define TESTS_SUPPORT_NAME_SERVER_H

#include <stdbool.h>

/* Lookups that hang go on, or hang again, from now on; then no answer has been counted. */
void name_server_go(bool go);
/* A lookup: counted, and while nobody lets it go it stays here if it hangs. */
void name_server_lookup(bool hangs);
/* Lookups that are in there, and those that have come out since they were made to hang. */
unsigned name_server_inside(void);
unsigned name_server_answered(void);

#endif
