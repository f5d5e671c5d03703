/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* socket_calls.c - see socket_calls.h. */
#define _GNU_SOURCE
#include "support/socket_calls.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/socket.h>

#include "common/sanitize.h"

void (*socket_call_made)(long number, ssize_t result);

static long made(long number, ssize_t result) {
    int error = errno;
    if (socket_call_made && (number == SYS_sendto || number == SYS_sendmsg ||
                             number == SYS_recvfrom || number == SYS_recvmsg))
        socket_call_made(number, result);
    errno = error;
    return result;
}

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
    return made(number, of_library(number, argument[0], argument[1], argument[2], argument[3],
                                   argument[4], argument[5]));
}

#ifdef SANITIZE_THREAD /* there the device calls these instead; the next ones are the sanitizer's */
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t send(int fd, const void *data, size_t bytes, int flags) {
    return made(SYS_sendto, NEXT(send)(fd, data, bytes, flags));
}

ssize_t sendmsg(int fd, const struct msghdr *msg, int flags) {
    return made(SYS_sendmsg, NEXT(sendmsg)(fd, msg, flags));
}

ssize_t recv(int fd, void *data, size_t bytes, int flags) {
    return made(SYS_recvfrom, NEXT(recv)(fd, data, bytes, flags));
}

ssize_t recvmsg(int fd, struct msghdr *msg, int flags) {
    return made(SYS_recvmsg, NEXT(recvmsg)(fd, msg, flags));
}
#endif
