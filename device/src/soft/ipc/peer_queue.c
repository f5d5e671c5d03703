/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * peer_queue.c - control messages on their way out: sent at once, or queued up to a bound for a peer
 * that does not read. Never blocks. Control lock.
 *
 * A peer that lets its queue fill is dropped, by the engine and a little later, because the sending code goes on using
 * it, and often the list it is in. Messages that are repeated anyway fill half of it at most: a process that dials ten thousand
 * sessions at once must not lose those that it has. Waiting messages may hold copies of our descriptors: few for one peer, and for all
 * of them a share of what the process may have open; a message above that is not sent.
 */
#define _GNU_SOURCE
#include "soft/ipc/peer_queue.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "soft/ipc/control_lock.h"
#include "soft/ipc/engine.h"
#include "soft/ipc/peer.h"
#include "soft/ipc/peer_internal.h"
#include "soft/ipc/peer_limit.h"

#define RETRY_NS 1000000u
#define FDS_OF_STRANGER 128u

static unsigned fds_waiting; /* of all peers */

/* A message that the socket did not take yet. */
struct soft_queued {
    struct cds_list_head link;
    struct soft_queued **known; /* where its sender knows it; NULL: nowhere */
    int fds[2];
    unsigned fd_count;
    size_t bytes;
    uint8_t data[];
};

/* The message to send next; NULL: none waits. */
static struct soft_queued *queued_first(struct soft_peer *peer) {
    if (cds_list_empty(&peer->out))
        return NULL;
    return cds_list_first_entry(&peer->out, struct soft_queued, link);
}

static void queued_free(struct soft_peer *peer, struct soft_queued *q) {
    for (unsigned i = 0; i < q->fd_count; i++)
        close(q->fds[i]);
    peer->out_fds -= q->fd_count;
    fds_waiting -= q->fd_count;
    if (q->known)
        *q->known = NULL;
    free(q);
}

static int send_now(int sock, const void *data, size_t bytes, const int *fds, unsigned count) {
    char control[CMSG_SPACE(2 * sizeof(int))] = {0};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = bytes};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    if (count) {
        msg.msg_control = control;
        msg.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);
        cmsg->cmsg_level = SOL_SOCKET;
        cmsg->cmsg_type = SCM_RIGHTS;
        cmsg->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(cmsg), fds, count * sizeof(int));
    }
    return sendmsg(sock, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static void on_retry(struct soft_timer *timer);

/*
 * The socket is full, which its readiness ends; or something else is, of which nothing tells the end
 * (too many descriptors in flight, memory): then the socket seems ready all the time.
 */
static void recv_queue_retry(struct soft_peer *peer, int err) {
    soft_watch_modify(&peer->socket, err == -EAGAIN ? EPOLLIN | EPOLLOUT : EPOLLIN);
    if (err != -EAGAIN)
        soft_timer_arm(&peer->out_retry, soft_now_ns() + RETRY_NS, on_retry);
}

static bool later(int rc) {
    return rc == -EAGAIN || rc == -ETOOMANYREFS || rc == -ENOBUFS || rc == -ENOMEM;
}

void soft_peer_queue_flush(struct soft_peer *peer) {
    soft_assert_locked();
    struct soft_queued *q;
    while ((q = queued_first(peer))) {
        int rc = send_now(peer->socket.fd, q->data, q->bytes, q->fds, q->fd_count);
        if (later(rc)) {
            recv_queue_retry(peer, rc);
            return;
        }
        if (rc != 0)
            return; /* the socket's end follows */
        cds_list_del(&q->link);
        peer->out_count--;
        queued_free(peer, q);
    }
    soft_watch_modify(&peer->socket, EPOLLIN);
}

static void on_retry(struct soft_timer *timer) {
    struct soft_peer *peer =
        (struct soft_peer *)((char *)timer - offsetof(struct soft_peer, out_retry));
    if (peer->doomed)
        soft_peer_drop(peer);
    else
        soft_peer_queue_flush(peer);
}

static void doom(struct soft_peer *peer) {
    peer->doomed = true;
    soft_timer_arm(&peer->out_retry, soft_now_ns(), on_retry);
}

/* Copies of the descriptors go into q. 0 or -errno. */
static int take_fds(struct soft_peer *peer, struct soft_queued *q, const int *fds, unsigned count) {
    unsigned limit = soft_peer_fd_limit();
    unsigned most = peer->own ? limit / 2 : FDS_OF_STRANGER;
    bool ourselves = peer->pid == getpid(); /* the engine reads it, as soon as it comes to that */
    if (count && !ourselves &&
        (peer->out_fds + count > most || fds_waiting + count > limit / 4 * 3))
        return -ENOBUFS;
    for (unsigned i = 0; i < count; i++) {
        int copy = fcntl(fds[i], F_DUPFD_CLOEXEC, 0);
        if (copy < 0)
            return -EMFILE;
        q->fds[q->fd_count++] = copy;
        peer->out_fds++;
        fds_waiting++;
    }
    return 0;
}

static int send_or_queue(struct soft_peer *peer, uint32_t type, const void *data, size_t bytes,
                         const int *fds, unsigned count, struct soft_queued **known) {
    uint8_t buf[sizeof(struct soft_wire) + SOFT_MSG_BYTES_MAX];
    if (!peer->alive || peer->doomed)
        return -ECONNRESET;
    if (bytes > SOFT_MSG_BYTES_MAX)
        return -EMSGSIZE;
    struct soft_wire wire = {.type = type, .bytes = (uint32_t)bytes};
    memcpy(buf, &wire, sizeof wire);
    if (bytes)
        memcpy(buf + sizeof wire, data, bytes);
    bytes += sizeof wire;
    int rc = queued_first(peer) ? -EAGAIN : send_now(peer->socket.fd, buf, bytes, fds, count);
    if (rc == 0)
        return 0;
    if (!later(rc))
        return -ECONNRESET; /* its watch reports the end */
    if (peer->out_count >= peer->out_room) {
        doom(peer);
        return -ENOBUFS;
    }
    struct soft_queued *q = malloc(sizeof *q + bytes);
    if (!q)
        return -ENOMEM;
    q->bytes = bytes;
    q->fd_count = 0;
    q->known = NULL;
    memcpy(q->data, buf, bytes);
    int error = take_fds(peer, q, fds, count);
    if (error) {
        queued_free(peer, q);
        return error;
    }
    q->known = known;
    if (known)
        *known = q;
    cds_list_add_tail(&q->link, &peer->out);
    peer->out_count++;
    if (q == queued_first(peer)) /* else a message waits already, and its retry is armed */
        recv_queue_retry(peer, rc);
    return 0;
}

int soft_peer_send_fds(struct soft_peer *peer, uint32_t type, const void *data, size_t bytes,
                       const int *fds, unsigned count) {
    soft_assert_locked();
    return send_or_queue(peer, type, data, bytes, fds, count, NULL);
}

int soft_peer_send_revocable(struct soft_peer *peer, uint32_t type, const void *data, size_t bytes,
                             int fd, struct soft_queued **waits) {
    soft_assert_locked();
    *waits = NULL;
    return send_or_queue(peer, type, data, bytes, &fd, fd >= 0, waits);
}

void soft_peer_revoke(struct soft_peer *peer, struct soft_queued *message) {
    soft_assert_locked();
    cds_list_del(&message->link);
    peer->out_count--;
    queued_free(peer, message);
}

int soft_peer_send_repeated(struct soft_peer *peer, uint32_t type, const void *data, size_t bytes) {
    soft_assert_locked();
    if (peer->out_count >= SOFT_PEER_QUEUE / 2) /* it is sent again in any case */
        return peer->alive && !peer->doomed ? -ENOBUFS : -ECONNRESET;
    return soft_peer_send_fds(peer, type, data, bytes, NULL, 0);
}

int soft_peer_send(struct soft_peer *peer, uint32_t type, const void *data, size_t bytes, int fd) {
    soft_assert_locked();
    return soft_peer_send_fds(peer, type, data, bytes, &fd, fd >= 0);
}

/* Messages that will not be sent any more. */
void soft_peer_queue_drop(struct soft_peer *peer) {
    soft_assert_locked();
    soft_timer_cancel(&peer->out_retry);
    struct soft_queued *q, *next;
    cds_list_for_each_entry_safe(q, next, &peer->out, link)
        queued_free(peer, q);
    CDS_INIT_LIST_HEAD(&peer->out);
    peer->out_count = 0;
}

void soft_peer_queues_forked(void) {
    fds_waiting = 0;
}
