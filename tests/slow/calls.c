/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * calls.c - loaded before a test's program (LD_PRELOAD), it makes each of the program's system calls slower by
 * SLUICE_SLOW_CALLS_NS nanoseconds of its CPU's time. On some virtual machines they are: a test that holds there has to
 * wait and to count, and may not rely on how many calls fit into a millisecond.
 *
 * Only calls that the program makes through libc's functions are slower, and not what libc calls for itself. Each
 * function here takes as many words as the longest one that it stands for, and passes them on; what a shorter one would
 * not have is whatever was there. Any thread; calls of a signal handler, too, since all that is needed is looked up
 * before main().
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

/* Not among them: vfork(), whose caller may not return from here, and what asks only for the time. */
#define CALLS(X)                                                                                   \
    X(accept)                                                                                      \
    X(accept4)                                                                                     \
    X(bind)                                                                                        \
    X(clock_nanosleep)                                                                             \
    X(close)                                                                                       \
    X(connect)                                                                                     \
    X(dup)                                                                                         \
    X(dup2)                                                                                        \
    X(dup3)                                                                                        \
    X(epoll_create1)                                                                               \
    X(epoll_ctl)                                                                                   \
    X(epoll_pwait)                                                                                 \
    X(epoll_pwait2)                                                                                \
    X(epoll_wait)                                                                                  \
    X(eventfd)                                                                                     \
    X(fcntl)                                                                                       \
    X(fcntl64)                                                                                     \
    X(fork)                                                                                        \
    X(fstat)                                                                                       \
    X(fstat64)                                                                                     \
    X(ftruncate)                                                                                   \
    X(ftruncate64)                                                                                 \
    X(getpeername)                                                                                 \
    X(getsockname)                                                                                 \
    X(getsockopt)                                                                                  \
    X(ioctl)                                                                                       \
    X(kill)                                                                                        \
    X(listen)                                                                                      \
    X(lseek)                                                                                       \
    X(lseek64)                                                                                     \
    X(madvise)                                                                                     \
    X(memfd_create)                                                                                \
    X(mlock)                                                                                       \
    X(mmap)                                                                                        \
    X(mmap64)                                                                                      \
    X(mprotect)                                                                                    \
    X(mremap)                                                                                      \
    X(munmap)                                                                                      \
    X(nanosleep)                                                                                   \
    X(open)                                                                                        \
    X(open64)                                                                                      \
    X(openat)                                                                                      \
    X(openat64)                                                                                    \
    X(pidfd_open)                                                                                  \
    X(pipe)                                                                                        \
    X(pipe2)                                                                                       \
    X(poll)                                                                                        \
    X(ppoll)                                                                                       \
    X(pread)                                                                                       \
    X(pread64)                                                                                     \
    X(process_vm_readv)                                                                            \
    X(process_vm_writev)                                                                           \
    X(pwrite)                                                                                      \
    X(pwrite64)                                                                                    \
    X(read)                                                                                        \
    X(readv)                                                                                       \
    X(recv)                                                                                        \
    X(recvfrom)                                                                                    \
    X(recvmmsg)                                                                                    \
    X(recvmsg)                                                                                     \
    X(sched_setaffinity)                                                                           \
    X(sched_yield)                                                                                 \
    X(select)                                                                                      \
    X(send)                                                                                        \
    X(sendmmsg)                                                                                    \
    X(sendmsg)                                                                                     \
    X(sendto)                                                                                      \
    X(setsockopt)                                                                                  \
    X(shutdown)                                                                                    \
    X(socket)                                                                                      \
    X(socketpair)                                                                                  \
    X(syscall)                                                                                     \
    X(timerfd_create)                                                                              \
    X(timerfd_settime)                                                                             \
    X(waitid)                                                                                      \
    X(waitpid)                                                                                     \
    X(write)                                                                                       \
    X(writev)

typedef long call(long, long, long, long, long, long, long);

enum {
#define NUMBER(name) CALL_##name,
    CALLS(NUMBER) CALL_COUNT
};
static const char *const names[CALL_COUNT] = {
#define NAME(name) #name,
    CALLS(NAME)};
static call *real[CALL_COUNT];
static int64_t slower_ns;

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

__attribute__((constructor)) static void look_up(void) {
    for (int i = 0; i < CALL_COUNT; i++)
        if (!real[i])
            real[i] = (call *)dlsym(RTLD_NEXT, names[i]);
    const char *text = getenv("SLUICE_SLOW_CALLS_NS");
    slower_ns = text ? strtol(text, NULL, 10) : 0;
}

/* A test's own clock_gettime() may make a call, which is not late then. Volatile, as headers say that it makes none. */
static _Thread_local volatile bool waits;

/* Libraries that begin before this one call as well. */
static call *late(int number) {
    if (!real[number])
        real[number] = (call *)dlsym(RTLD_NEXT, names[number]);
    if (slower_ns > 0 && !waits) {
        waits = true;
        for (int64_t end = now_ns() + slower_ns; now_ns() < end;)
            ;
        waits = false;
    }
    return real[number];
}

/* By its name for the linker alone: headers know it with other words. */
#define DEFINE(name)                                                                               \
    long late_##name(long a, long b, long c, long d, long e, long f, long g) __asm__(#name);       \
    long late_##name(long a, long b, long c, long d, long e, long f, long g) {                     \
        return late(CALL_##name)(a, b, c, d, e, f, g);                                             \
    }
CALLS(DEFINE)
