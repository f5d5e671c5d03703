/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * rsocket.c - sockets over RDMA are not part of this device: opening one fails, so no other call can
 * follow. Waiting (rpoll, rselect) is also used on other descriptors, and works on those.
 */
#include <errno.h>
#include <poll.h>
#include <rdma/rsocket.h>
#include <sys/select.h>

#include "dropin/dropin.h"

EXPORT int rpoll(struct pollfd *fds, nfds_t nfds, int timeout) {
    return poll(fds, nfds, timeout);
}

EXPORT int rselect(int nfds, fd_set *readfds, fd_set *writefds, fd_set *exceptfds,
                   struct timeval *timeout) {
    return select(nfds, readfds, writefds, exceptfds, timeout);
}

EXPORT int rsocket(int domain, int type, int protocol) {
    (void)domain, (void)type, (void)protocol;
    errno = EOPNOTSUPP;
    return -1;
}

static int no_rsocket(void) {
    errno = EBADF;
    return -1;
}

#define NO_RSOCKET(type, name, ...)                                                                \
    EXPORT type name(__VA_ARGS__) {                                                                \
        return (type)no_rsocket();                                                                 \
    }

#pragma GCC diagnostic ignored "-Wunused-parameter"
NO_RSOCKET(int, rbind, int s, const struct sockaddr *addr, socklen_t len)
NO_RSOCKET(int, rlisten, int s, int backlog)
NO_RSOCKET(int, raccept, int s, struct sockaddr *addr, socklen_t *len)
NO_RSOCKET(int, rconnect, int s, const struct sockaddr *addr, socklen_t len)
NO_RSOCKET(int, rshutdown, int s, int how)
NO_RSOCKET(int, rclose, int s)
NO_RSOCKET(ssize_t, rrecv, int s, void *buf, size_t len, int flags)
NO_RSOCKET(ssize_t, rrecvfrom, int s, void *buf, size_t len, int flags, struct sockaddr *from,
           socklen_t *from_len)
NO_RSOCKET(ssize_t, rrecvmsg, int s, struct msghdr *msg, int flags)
NO_RSOCKET(ssize_t, rsend, int s, const void *buf, size_t len, int flags)
NO_RSOCKET(ssize_t, rsendto, int s, const void *buf, size_t len, int flags,
           const struct sockaddr *to, socklen_t to_len)
NO_RSOCKET(ssize_t, rsendmsg, int s, const struct msghdr *msg, int flags)
NO_RSOCKET(ssize_t, rread, int s, void *buf, size_t count)
NO_RSOCKET(ssize_t, rreadv, int s, const struct iovec *iov, int count)
NO_RSOCKET(ssize_t, rwrite, int s, const void *buf, size_t count)
NO_RSOCKET(ssize_t, rwritev, int s, const struct iovec *iov, int count)
NO_RSOCKET(int, rgetpeername, int s, struct sockaddr *addr, socklen_t *len)
NO_RSOCKET(int, rgetsockname, int s, struct sockaddr *addr, socklen_t *len)
NO_RSOCKET(int, rsetsockopt, int s, int level, int name, const void *value, socklen_t len)
NO_RSOCKET(int, rgetsockopt, int s, int level, int name, void *value, socklen_t *len)
NO_RSOCKET(int, rfcntl, int s, int cmd, ...)
NO_RSOCKET(off_t, riomap, int s, void *buf, size_t len, int prot, int flags, off_t offset)
NO_RSOCKET(int, riounmap, int s, void *buf, size_t len)
NO_RSOCKET(size_t, riowrite, int s, const void *buf, size_t count, off_t offset, int flags)
