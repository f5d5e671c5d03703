/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * own_user.h - whether another process belongs to this one's user. Any thread.
 */
#ifndef SOFT_IPC_OWN_USER_H
#define SOFT_IPC_OWN_USER_H

#include <stdbool.h>
#include <sys/types.h>

/* Looks again at what the user namespace maps: before others are asked for, in each process. Reads files. */
void soft_own_user_start(void);
/* For the uid and pid that the kernel reports of the other end of a socket. */
bool soft_own_user(uid_t uid, pid_t pid);

#endif
