/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * log.h - a log for tests that provoke what a node would report.
 */
#ifndef TESTS_SUPPORT_LOG_H
#define TESTS_SUPPORT_LOG_H

/* For the option `log`: what is provoked is not news. */
void log_nothing(int level, const char *text, void *arg);

#endif
