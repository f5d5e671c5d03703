/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * tasks.h - the threads of this process. One that was joined may still be in the kernel's list: whoever
 * joins it is woken while it ends, not when it is gone. It is marked as ending by then.
 */
#ifndef TESTS_SUPPORT_TASKS_H
#define TESTS_SUPPORT_TASKS_H

unsigned tasks_alive(void);
unsigned tasks_named(const char *name); /* of them those of this name, of 15 characters at most */
unsigned tasks_not_named(const char *name); /* and the others */

/*
 * How busy they are while the caller sleeps for so long: percent of a CPU, of the time that passed, however late the
 * machine woke us. Nothing is waited for: this is how long somebody could have spun.
 */
unsigned tasks_busy(unsigned ms);

#endif
