/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * reports.h - what a pool reports of the misuse of its buffers, line by line, for pool_on_report().
 */
#ifndef TESTS_SUPPORT_REPORTS_H
#define TESTS_SUPPORT_REPORTS_H

extern char reports[256 * 1024]; /* set reports[0] to 0 to forget them */

/* Adds a line. */
void reports_add(const char *text, void *arg);
/* How often these words are in them. */
unsigned reports_count(const char *words);

#endif
