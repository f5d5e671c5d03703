/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * error.h - errors of calls: a status, the reason behind it, errno, and a sentence.
 *
 * Any thread.
 */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include <sluice/sluice.h>

/* Fills *e (may be NULL) and returns status. */
int error_set(sluice_error *e, sluice_status status, sluice_reason reason, int os_errno,
              const char *format, ...) __attribute__((format(printf, 5, 6)));
/* The status of a session that ended for this reason. */
sluice_status reason_status(sluice_reason reason);

#endif
