/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * log.h - the log of decisions, for inject.c only and under its lock.
 */
#ifndef SOFT_FAULT_LOG_H
#define SOFT_FAULT_LOG_H

#include "soft/fault/plan.h"

void soft_fault_log_clear(void);
/* The n-th operation of an object was decided by that rule of the plan. */
void soft_fault_log_note(enum soft_fault_scope scope, uint32_t who, unsigned rule, int detail,
                         uint32_t n);
/* Object by object, at most size - 1 bytes; the length. plan: the one the notes are about. */
size_t soft_fault_log_text(const struct soft_plan *plan, char *out, size_t size);

#endif
