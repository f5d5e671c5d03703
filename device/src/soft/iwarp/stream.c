/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * stream.c - frames to and from a socket.
 *
 * Owner: one thread at a time. Bytes that a peer sends after the end are read and dropped in bounded turns.
 */
#define _GNU_SOURCE
#include "soft/iwarp/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/sanitize.h"
#include "common/uncancelled.h"
#include "soft/iwarp/fpdu.h"
#include "soft/iwarp/rx.h"
#include "soft/iwarp/tx.h"

#define ETHERNET_SEGMENT 1460 /* if TCP does not say */
#define AWAY_BYTES 4096u
#define AWAY_TURNS 64u

/*
 * The C library's functions are cancellation points, where a process with threads has two locked operations for each call;
 * these calls never wait, and so need none. The thread sanitizer knows only those functions: what a thread wrote before it
 * sent, another may read when it has received.
 */
#ifdef SANITIZE_THREAD
#define SEND(fd, at, bytes, flags) send(fd, at, bytes, flags)
#define RECV(fd, at, bytes, flags) recv(fd, at, bytes, flags)
#define SENDMSG(fd, msg, flags) sendmsg(fd, msg, flags)
#define RECVMSG(fd, msg, flags) recvmsg(fd, msg, flags)
#else
#define SEND(fd, at, bytes, flags) syscall(SYS_sendto, fd, at, bytes, flags, NULL, 0)
#define RECV(fd, at, bytes, flags) syscall(SYS_recvfrom, fd, at, bytes, flags, NULL, NULL)
#define SENDMSG(fd, msg, flags) syscall(SYS_sendmsg, fd, msg, flags)
#define RECVMSG(fd, msg, flags) syscall(SYS_recvmsg, fd, msg, flags)
#endif

int iwarp_stream_prepare(int fd) {
    int flags = fcntl(fd, F_GETFL), one = 1;
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 ||
        fcntl(fd, F_SETFD, FD_CLOEXEC) != 0)
        return errno;
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) != 0 && errno != EOPNOTSUPP &&
        errno != ENOPROTOOPT)
        return errno;
    return 0;
}

unsigned iwarp_stream_mulpdu(int fd) {
    int segment = 0;
    socklen_t bytes = sizeof segment;
    if (getsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &segment, &bytes) != 0 || segment <= 0)
        segment = ETHERNET_SEGMENT;
    return iwarp_mulpdu((unsigned)segment);
}

void iwarp_stream_patience(int fd, unsigned sent_ms) {
    static const struct {
        int level, option, value;
    } idle[] = {{SOL_SOCKET, SO_KEEPALIVE, 1},
                {IPPROTO_TCP, TCP_KEEPIDLE, 10},
                {IPPROTO_TCP, TCP_KEEPINTVL, 3},
                {IPPROTO_TCP, TCP_KEEPCNT, 3}};
    for (size_t i = 0; i < sizeof idle / sizeof *idle; i++)
        (void)setsockopt(fd, idle[i].level, idle[i].option, &idle[i].value, sizeof idle[i].value);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &sent_ms, sizeof sent_ms);
}

/* Most messages are small, and a small message is one piece, for which send() costs the kernel less than sendmsg(). */
static ssize_t send_pieces(int fd, const struct iovec *iov, unsigned count) {
    const int flags = MSG_NOSIGNAL | MSG_DONTWAIT;
    if (count == 1)
        return SEND(fd, iov->iov_base, iov->iov_len, flags);
    struct msghdr msg = {.msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = count};
    return SENDMSG(fd, &msg, flags);
}

static ssize_t receive_pieces(int fd, struct iovec *iov, unsigned count) {
    if (count == 1)
        return RECV(fd, iov->iov_base, iov->iov_len, MSG_DONTWAIT);
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = count};
    return RECVMSG(fd, &msg, MSG_DONTWAIT);
}

int iwarp_stream_send(int fd, struct iwarp_tx *tx, size_t most) {
    uint64_t before = tx->sent;
    for (;;) {
        const struct iovec *iov;
        unsigned count = iwarp_tx_next(tx, &iov);
        if (count == 0 || tx->sent - before >= most)
            return 0;
        ssize_t n = send_pieces(fd, iov, count);
        if (n >= 0)
            iwarp_tx_sent(tx, (size_t)n);
        else if (errno != EINTR)
            return errno == EWOULDBLOCK ? EAGAIN : errno;
    }
}

/*
 * Reads into the inbox. Without check values it first fills the place of the current payload; with them it does not, as
 * the application may write to that place before the payload there is summed. 0 and *got, or an errno. *all: the socket
 * had no more.
 */
static int read_more(int fd, struct iwarp_rx *rx, struct iwarp_inbox *inbox, size_t *got,
                     bool *all) {
    struct iovec iov[IWARP_PLACE_PIECES + 1];
    const struct iovec *place;
    unsigned count = rx->crc ? 0 : iwarp_rx_want(rx, IWARP_STREAM_STRAIGHT, &place);
    size_t straight = 0;
    for (unsigned i = 0; i < count; i++) {
        iov[i] = place[i];
        straight += place[i].iov_len;
    }
    iov[count] = (struct iovec){inbox->bytes, inbox->size};
    ssize_t n;
    do
        n = receive_pieces(fd, iov, count + 1);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EFAULT && count > 0) { /* the place is gone: what comes goes nowhere */
        iwarp_rx_withdraw(rx, IWARP_LOCAL_CATASTROPHIC);
        *got = 0;
        return 0;
    }
    if (n < 0)
        return errno == EWOULDBLOCK ? EAGAIN : errno;
    if (n == 0)
        return ENODATA;
    *got = (size_t)n;
    *all = *got < straight + inbox->size;
    straight = straight < *got ? straight : *got;
    iwarp_rx_filled(rx, straight);
    inbox->at = 0;
    inbox->end = *got - straight;
    return 0;
}

int iwarp_stream_receive(int fd, struct iwarp_rx *rx, struct iwarp_inbox *inbox, size_t most,
                         size_t *moved) {
    bool all = false;
    *moved = 0;
    for (;;) {
        inbox->at += iwarp_rx_feed(rx, inbox->bytes + inbox->at, inbox->end - inbox->at);
        if (rx->status != IWARP_RX_OPEN || *moved >= most)
            return 0;
        if (all) /* another read of a socket that was just emptied would only delay what came */
            return EAGAIN;
        size_t got;
        int error = read_more(fd, rx, inbox, &got, &all);
        if (error != 0)
            return error;
        *moved += got;
    }
}

void iwarp_stream_finish(int fd) {
    shutdown(fd, SHUT_WR);
}

bool iwarp_stream_finished(int fd) {
    UNCANCELLED;
    uint8_t away[AWAY_BYTES];
    for (unsigned turn = 0; turn < AWAY_TURNS; turn++) {
        ssize_t n = recv(fd, away, sizeof away, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK))
            return true;
        if (n < 0 && errno != EINTR)
            return false;
    }
    return false;
}
