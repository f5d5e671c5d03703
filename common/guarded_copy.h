/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * guarded_copy.h - access to memory that its owner may have unmapped, which then fails and does not end the process.
 *
 * As the kernel's own copies to and from user memory: nothing is asked before, and a fault in the middle is taken to
 * where the access began. That needs a handler of SIGSEGV and SIGBUS, which passes every other fault, and every such signal
 * that is sent, to the handler that was there before, or to the default. Where the program sets a handler of its own
 * later, or blocks these signals in the thread, a fault is the program's, as without this file.
 *
 * Any thread, but where marked. An access is a short function that takes no lock and calls nothing but memcpy(): it may be
 * left anywhere.
 */
#ifndef COMMON_GUARDED_COPY_H
#define COMMON_GUARDED_COPY_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Sets the handlers, if they are not there: before memory is used that may be unmapped. One thread at a time: the device's
 * control lock. Two system calls.
 */
void guarded_copy_arm(void);

/* Calls run(arg). False: a byte of [at, at + bytes) was not there for it, and it was left in the middle. */
bool guarded_run(void (*run)(void *arg), void *arg, const void *at, size_t bytes);

/* memcpy() into memory, or out of memory, that may not be there. */
bool copy_guarded_to(void *to, const void *from, size_t bytes);
bool copy_guarded_from(void *to, const void *from, size_t bytes);

#endif
