/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * socket_calls.h - the system calls in which the device reads and writes sockets, for tests that count them. A program that
 * uses this has a syscall() of its own.
 */
#ifndef TESTS_SUPPORT_SOCKET_CALLS_H
#define TESTS_SUPPORT_SOCKET_CALLS_H

#include <sys/syscall.h>
#include <sys/types.h>

/* Called after each of SYS_sendto, SYS_sendmsg, SYS_recvfrom and SYS_recvmsg, on its thread; set before there are others. */
extern void (*socket_call_made)(long number, ssize_t result);

#endif
