/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * reports.h - what pools report of the misuse of their buffers, line by line.
 */
#ifndef TESTS_SUPPORT_REPORTS_H
#define TESTS_SUPPORT_REPORTS_H

extern char reports[256 * 1024]; /* set reports[0] to 0 to forget them */

struct pool;

/* From now on what this pool reports is added to them; before it is used. */
void reports_of(struct pool *pool);
/* How often these words are in them. */
unsigned reports_count(const char *words);

#endif
