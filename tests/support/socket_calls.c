/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* socket_calls.c - see socket_calls.h. */
#define _GNU_SOURCE
#include "support/socket_calls.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>

void (*socket_call_made)(long number, ssize_t result);

long syscall(long number, ...) {
    static long (*of_library)(long, ...);
    long argument[6];
    va_list list;
    va_start(list, number);
    for (unsigned i = 0; i < 6; i++)
        argument[i] = va_arg(list, long);
    va_end(list);
    if (!of_library)
        *(void **)&of_library = dlsym(RTLD_NEXT, "syscall");
    long result = of_library(number, argument[0], argument[1], argument[2], argument[3],
                             argument[4], argument[5]);
    int error = errno;
    if (socket_call_made && (number == SYS_sendto || number == SYS_sendmsg ||
                             number == SYS_recvfrom || number == SYS_recvmsg))
        socket_call_made(number, result);
    errno = error;
    return result;
}
