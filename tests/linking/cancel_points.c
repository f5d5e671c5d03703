/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cancel_points.c - preloaded into a test: the library comes to no cancellation point at which pthread_cancel() would act, on
 * whichever thread, but where sluice_poll() waits. Ends the process where it does, and says which it was.
 *
 * It stands in front of the C library's cancellation points that the library, or what it uses, calls. Some are called inside
 * of the C library, which cannot be seen here; then what calls them there is listed in their place.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define LIBRARY "/libsluice.so"
#define FRAMES 64

static __thread bool looking; /* what this file calls is not looked at */

static bool is_library(const void *address) {
    Dl_info of;
    return dladdr(address, &of) && of.dli_fname && strstr(of.dli_fname, LIBRARY);
}

__attribute__((noinline)) static void look(const char *name, const void *caller, bool may) {
    void *frame[FRAMES];
    int state, count;
    if (looking)
        return;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    looking = true;
    count = state == PTHREAD_CANCEL_ENABLE && !(may && is_library(caller))
                ? backtrace(frame, FRAMES)
                : 0;
    for (int i = 0; i < count; i++)
        if (is_library(frame[i])) {
            fprintf(stderr, "%s() acts upon pthread_cancel(), called by the library:\n", name);
            backtrace_symbols_fd(frame, count, STDERR_FILENO);
            abort();
        }
    looking = false;
    pthread_setcancelstate(state, NULL);
}

#define NEXT(name)                                                                                 \
    static __typeof__(&name) next;                                                                 \
    if (!next)                                                                                     \
    next = (__typeof__(&name))dlsym(RTLD_NEXT, #name)
#define FRONT(type, name, parameters, arguments, may)                                              \
    type name parameters {                                                                         \
        NEXT(name);                                                                                \
        look(#name, __builtin_return_address(0), may);                                             \
        return next arguments;                                                                     \
    }

FRONT(ssize_t, read, (int fd, void *at, size_t n), (fd, at, n), false)
FRONT(ssize_t, write, (int fd, const void *at, size_t n), (fd, at, n), false)
FRONT(ssize_t, pread, (int fd, void *at, size_t n, off_t from), (fd, at, n, from), false)
FRONT(ssize_t, pwrite, (int fd, const void *at, size_t n, off_t to), (fd, at, n, to), false)
FRONT(ssize_t, readv, (int fd, const struct iovec *iov, int n), (fd, iov, n), false)
FRONT(ssize_t, writev, (int fd, const struct iovec *iov, int n), (fd, iov, n), false)
FRONT(ssize_t, preadv2, (int fd, const struct iovec *iov, int n, off_t from, int flags),
      (fd, iov, n, from, flags), false)
FRONT(ssize_t, send, (int fd, const void *at, size_t n, int flags), (fd, at, n, flags), false)
FRONT(ssize_t, recv, (int fd, void *at, size_t n, int flags), (fd, at, n, flags), false)
FRONT(ssize_t, sendmsg, (int fd, const struct msghdr *msg, int flags), (fd, msg, flags), false)
FRONT(ssize_t, recvmsg, (int fd, struct msghdr *msg, int flags), (fd, msg, flags), false)
FRONT(int, poll, (struct pollfd * fds, nfds_t n, int ms), (fds, n, ms), false)
FRONT(int, epoll_wait, (int fd, struct epoll_event *events, int n, int ms), (fd, events, n, ms),
      ms != 0)
FRONT(int, close, (int fd), (fd), false)
FRONT(int, accept4, (int fd, struct sockaddr *from, socklen_t *n, int flags), (fd, from, n, flags),
      false)
FRONT(int, nanosleep, (const struct timespec *for_, struct timespec *left), (for_, left), false)
FRONT(int, pthread_cond_wait, (pthread_cond_t * c, pthread_mutex_t *m), (c, m), false)
FRONT(int, pthread_cond_timedwait,
      (pthread_cond_t * c, pthread_mutex_t *m, const struct timespec *until), (c, m, until), false)
FRONT(int, pthread_join, (pthread_t thread, void **result), (thread, result), false)
FRONT(FILE *, fopen, (const char *path, const char *mode), (path, mode), false)
FRONT(int, fclose, (FILE * file), (file), false)
FRONT(char *, fgets, (char *at, int n, FILE *file), (at, n, file), false)
FRONT(size_t, fread, (void *at, size_t size, size_t n, FILE *file), (at, size, n, file), false)
FRONT(ssize_t, getrandom, (void *at, size_t n, unsigned flags), (at, n, flags), false)
FRONT(int, getaddrinfo,
      (const char *name, const char *port, const struct addrinfo *hints, struct addrinfo **out),
      (name, port, hints, out), false)

#define FRONT_OPEN(name, parameters, ...)                                                          \
    int name parameters {                                                                          \
        NEXT(name);                                                                                \
        va_list list;                                                                              \
        va_start(list, flags);                                                                     \
        mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(list, mode_t) : 0;                  \
        va_end(list);                                                                              \
        look(#name, __builtin_return_address(0), false);                                           \
        return next(__VA_ARGS__, flags, mode);                                                     \
    }

FRONT_OPEN(open, (const char *path, int flags, ...), path)
FRONT_OPEN(open64, (const char *path, int flags, ...), path)
FRONT_OPEN(openat, (int at, const char *path, int flags, ...), at, path)

int fprintf(FILE *file, const char *format, ...) {
    va_list list;
    look("fprintf", __builtin_return_address(0), false);
    va_start(list, format);
    int n = vfprintf(file, format, list);
    va_end(list);
    return n;
}

int __fprintf_chk(FILE *file, int level, const char *format, ...);
int __fprintf_chk(FILE *file, int level, const char *format, ...) {
    va_list list;
    (void)level;
    look("fprintf", __builtin_return_address(0), false);
    va_start(list, format);
    int n = vfprintf(file, format, list);
    va_end(list);
    return n;
}
