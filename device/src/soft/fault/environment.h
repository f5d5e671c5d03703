/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * environment.h - the plan of SLUICE_SOFT_FAULTS, a text or "@" and the name of a file. One that cannot be read is
 * refused when the device is looked for: a program must not pass for one that withstood its faults. What is told is
 * told once in a process, on standard error. Any thread.
 */
#ifndef SOFT_FAULT_ENVIRONMENT_H
#define SOFT_FAULT_ENVIRONMENT_H

#include <stdbool.h>

struct soft_plan;
struct soft_plan_error;

/* The plan, the caller's to free(); NULL: there is none, or none that can be read. */
struct soft_plan *soft_fault_environment(void);
/* There is one that cannot be read: it is told, and errno is EINVAL. */
bool soft_fault_refused(void);
/* Tells what became of the plan, and why. */
void soft_fault_tell(const char *outcome, const struct soft_plan_error *error);

#endif
