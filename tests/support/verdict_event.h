/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * verdict_event.h - which events say that data is wrong (verdict.h). Public interface only.
 */
#ifndef TESTS_SUPPORT_VERDICT_EVENT_H
#define TESTS_SUPPORT_VERDICT_EVENT_H

#include <sluice/sluice.h>

/*
 * An event came where another type was expected (0: none), or NULL, none came. What says that a message is there twice, or is
 * lost, is wrong data: one before an end or where nothing comes, since all that was sent had come; one that is waited for in
 * vain, for much longer than it takes.
 */
void verdict_event(const sluice_event *event, int expected);

#endif
