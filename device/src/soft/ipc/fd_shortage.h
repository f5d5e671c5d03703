/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * fd_shortage.h - whether this process lacked file descriptors lately. A peer that is asked for a connection then
 * seems not to answer; only the code that missed the descriptor knows that our own limit is the cause.
 *
 * Any thread.
 */
#ifndef SOFT_IPC_FD_SHORTAGE_H
#define SOFT_IPC_FD_SHORTAGE_H

#include <stdint.h>

/* Descriptors that were sent to us did not arrive: another one than ours may be to blame. */
void soft_files_missed(int any_fd);
/* The errno, if one was missing since that time; else `otherwise`. */
int soft_files_or(uint64_t since_ns, int otherwise);

#endif
