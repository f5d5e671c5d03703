/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * peer.c - control connections between processes: found, greeted, heard, dead.
 *
 * Owner: the engine thread and the thread that holds the control lock. A peer's socket, its pidfd and its
 * bell are engine watches. The fields that pollers use without the lock (bell_out, board, mapped regions)
 * stay valid until the last reference is gone, and every linked QP holds one.
 */
#define _GNU_SOURCE
#include "soft/ipc/peer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "soft/ipc/abstract_socket.h"
#include "soft/ipc/control_lock.h"
#include "soft/ipc/engine.h"
#include "soft/ipc/fd_shortage.h"
#include "soft/ipc/own_user.h"
#include "soft/ipc/peer_internal.h"
#include "soft/ipc/peer_limit.h"
#include "soft/ipc/peer_queue.h"
#include "soft/ipc/process_fence.h"
#include "soft/ipc/qpn_directory.h"
#include "soft/ipc/shm_layout.h"
#include "soft/ipc/shm_page.h"
#include "soft/ipc/untrusted_fd.h"
#include "soft/ipc/upcalls.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

struct soft_hello {
    uint32_t magic, version;
    uint8_t uuid[16];
    uint32_t fence_free, can; /* HELLO_BELLS ...; of earlier versions 0 */
};
#define HELLO_BELLS 2u   /* takes bells; 1: of queue pairs, of earlier versions */
#define HELLO_CHANGES 4u /* counts the changes of its board's lines */

CDS_LIST_HEAD(soft_peers);
uint8_t soft_own_uuid[16];

static void on_socket(struct soft_watch *watch, uint32_t events);

uint64_t soft_peer_own_number(void) {
    uint64_t number;
    memcpy(&number, soft_own_uuid, sizeof number);
    return number;
}

/* ---- references ------------------------------------------------------------------------------ */

bool soft_peer_alive(const struct soft_peer *peer) {
    return peer->alive;
}

uid_t soft_peer_uid(const struct soft_peer *peer) {
    return peer->uid;
}

pid_t soft_peer_pid(const struct soft_peer *peer) {
    return peer->pid;
}

struct soft_peer *soft_peer_hold(struct soft_peer *peer) {
    soft_assert_locked();
    unsigned refs = atomic_fetch_add_explicit(&peer->refs, 1, memory_order_relaxed) + 1;
    unsigned room = SOFT_PEER_QUEUE + refs * SOFT_PEER_QUEUE_PER_REF;
    if (room > peer->out_room)
        peer->out_room = room;
    return peer;
}

static uint64_t who(const struct soft_peer *peer) {
    return soft_untrusted_fd_who(peer->uid, peer->pid);
}

void soft_peer_release(struct soft_peer *peer) {
    soft_assert_locked();
    if (!peer || atomic_fetch_sub_explicit(&peer->refs, 1, memory_order_acq_rel) != 1)
        return;
    soft_upcalls.peer_free(peer);
    if (peer->shm_page)
        munmap(peer->shm_page, sizeof *peer->shm_page);
    if (atomic_load(&peer->keys))
        munmap((void *)(uintptr_t)atomic_load(&peer->keys), SOFT_KEYS_BYTES);
    if (peer->bell_out >= 0)
        close(peer->bell_out);
    if (peer->death.fd >= 0)
        close(peer->death.fd);
    free(peer);
}

/* ---- life ------------------------------------------------------------------------------------ */

static struct soft_peer *peer_new(int fd) {
    struct ucred cred;
    socklen_t len = sizeof cred;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) != 0)
        return NULL;
    struct soft_peer *peer = calloc(1, sizeof *peer);
    if (!peer)
        return NULL;
    atomic_init(&peer->refs, 1);
    peer->out_room = SOFT_PEER_QUEUE + SOFT_PEER_QUEUE_PER_REF;
    peer->uid = peer->told_uid = cred.uid;
    peer->pid = cred.pid;
    peer->own = soft_own_user(cred.uid, cred.pid);
    peer->bell_out = peer->death.fd = peer->bell.fd = -1;
    CDS_INIT_LIST_HEAD(&peer->out);
    peer->socket = (struct soft_watch){.fd = fd, .fn = on_socket};
    if (soft_watch_add(&peer->socket, EPOLLIN) != 0) {
        free(peer);
        return NULL;
    }
    peer->alive = true;
    cds_list_add(&peer->link, &soft_peers);
    return peer;
}

static void close_wakeup(struct soft_peer *peer) {
    if (peer->bell.fd < 0)
        return;
    soft_watch_remove(&peer->bell);
    soft_untrusted_fd_close_heard(peer->bell.fd, who(peer));
    peer->bell.fd = -1;
}

/* Takes the peer out of service; tells the links and the cm. The struct lives on while held. */
void soft_peer_drop(struct soft_peer *peer) {
    soft_assert_locked();
    if (!peer->alive)
        return;
    peer->alive = false;
    cds_list_del(&peer->link);
    bool known =
        peer->greeted || peer->bell.fd >= 0; /* else a stranger that we asked for nothing */
    soft_watch_remove(&peer->socket);
    soft_untrusted_fd_close_socket(peer->socket.fd);
    peer->socket.fd = -1;
    if (peer->death.fd >= 0) /* not closed: rkey_fence.c still waits for the process with it */
        soft_watch_remove(&peer->death);
    close_wakeup(peer);
    soft_peer_queue_drop(peer);
    soft_upcalls.peer_gone(peer, known);
    soft_fence_recount();
    soft_peer_release(peer);
}

/* A process can die while a forked child keeps its socket open: the pidfd tells. */
static void watch_death(struct soft_peer *peer) {
    int fd = -1;
    socklen_t len = sizeof fd;
    if (getsockopt(peer->socket.fd, SOL_SOCKET, SO_PEERPIDFD, &fd, &len) != 0 || fd < 0)
        fd = peer->pid > 0 ? (int)syscall(SYS_pidfd_open, peer->pid, 0) : -1;
    if (fd < 0)
        return; /* the socket's end is then the only sign */
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    peer->death.fd = fd;
    peer->death.fn = NULL;
}

static struct soft_peer *peer_of_death(struct soft_watch *watch) {
    return (struct soft_peer *)((char *)watch - offsetof(struct soft_peer, death));
}

static void on_death(struct soft_watch *watch, uint32_t events) {
    (void)events;
    struct soft_peer *peer = soft_peer_hold(peer_of_death(watch));
    on_socket(&peer->socket, EPOLLIN); /* what it said before it died counts */
    soft_peer_drop(peer);
    soft_peer_release(peer);
}

static void on_bell(struct soft_watch *watch, uint32_t events) {
    (void)events;
    struct soft_peer *peer = (struct soft_peer *)((char *)watch - offsetof(struct soft_peer, bell));
    (void)soft_untrusted_fd_hear(watch->fd, who(peer));
    if (soft_untrusted_fd_burdened(who(peer)))
        soft_peer_drop(peer);
    else
        soft_upcalls.peer_rang(peer);
}

/* ---- greeting --------------------------------------------------------------------------------- */

static int send_hello(struct soft_peer *peer) {
    struct soft_hello hello = {.magic = SOFT_WIRE_MAGIC,
                               .version = SOFT_WIRE_VERSION,
                               .fence_free = soft_fence_able(),
                               .can = HELLO_BELLS | HELLO_CHANGES};
    atomic_store(&peer->fences, hello.fence_free ? SOFT_FENCES_OMITTED : SOFT_FENCES_PUT);
    memcpy(hello.uuid, soft_own_uuid, sizeof hello.uuid);
    /*
     * A datagram socket, not an eventfd: whether a write to it blocks is the writer's own decision
     * at every write, where the flags of an eventfd belong to both sides.
     */
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0)
        return -errno;
    peer->bell.fd = pair[0];
    peer->bell.fn = on_bell;
    if (soft_watch_add(&peer->bell, EPOLLIN) != 0) {
        close(pair[0]);
        close(pair[1]);
        peer->bell.fd = -1;
        return -ENOMEM;
    }
    watch_death(peer);
    if (peer->death.fd >= 0) {
        peer->death.fn = on_death;
        if (soft_watch_add(&peer->death, EPOLLIN) != 0) {
            close(peer->death.fd);
            peer->death.fd = -1;
        }
    }
    int fds[2] = {pair[1], soft_shm_page_fd()};
    int rc = soft_peer_send_fds(peer, SOFT_MSG_HELLO, &hello, sizeof hello, fds, 2);
    close(pair[1]);
    return rc;
}

/* ---- receiving ------------------------------------------------------------------------------- */

static bool on_hello(struct soft_peer *peer, const struct soft_hello *hello, int *fds, unsigned n) {
    if (hello->magic != SOFT_WIRE_MAGIC || hello->version != SOFT_WIRE_VERSION || n != 2 ||
        peer->greeted || !soft_untrusted_fd_memory(fds[1], sizeof(struct soft_shm_page)) ||
        !soft_untrusted_fd_bell(fds[0]))
        return false;
    struct soft_shm_page *shm_page = mmap(NULL, sizeof *shm_page, PROT_READ, MAP_SHARED, fds[1], 0);
    if (shm_page == MAP_FAILED)
        return false;
    if (shm_page->magic != SOFT_SHM_PAGE_MAGIC || shm_page->version != SOFT_WIRE_VERSION) {
        munmap(shm_page, sizeof *shm_page);
        return false;
    }
    peer->bell_out = fds[0];
    fds[0] = -1; /* ours now */
    peer->shm_page = shm_page;
    peer->fence_free = soft_fence_able() && hello->fence_free;
    peer->takes_bells = (hello->can & HELLO_BELLS) != 0;
    peer->counts_changes = (hello->can & HELLO_CHANGES) != 0;
    memcpy(peer->uuid, hello->uuid, sizeof peer->uuid);
    peer->greeted = true;
    soft_peer_limit_same(peer);
    if (!peer->alive) /* it was the oldest itself */
        return false;
    if (peer->bell.fd < 0 && send_hello(peer) != 0)
        return false;
    soft_upcalls.peer_greeted(peer);
    return true;
}

/* A descriptor it keeps is -1 afterwards. */
static bool dispatch(struct soft_peer *peer, const uint8_t *buf, size_t got, int *fds, unsigned n) {
    struct soft_wire wire;
    if (got < sizeof wire)
        return false;
    memcpy(&wire, buf, sizeof wire);
    const uint8_t *body = buf + sizeof wire;
    size_t bytes = got - sizeof wire;
    if (wire.bytes != bytes)
        return false;
    if (wire.type == SOFT_MSG_HELLO) {
        struct soft_hello hello;
        if (bytes != sizeof hello)
            return false;
        memcpy(&hello, body, sizeof hello);
        return on_hello(peer, &hello, fds, n);
    }
    if (!peer->greeted)
        return false;
    if (wire.type == SOFT_MSG_FENCE)
        soft_fence_on_ask(peer);
    else if (wire.type == SOFT_MSG_FENCE_OK)
        soft_fence_on_done(peer);
    else
        soft_upcalls.peer_said(peer, wire.type, body, bytes, n ? &fds[0] : NULL);
    return true;
}

/* It is not of our user, whatever it is now. */
static void changed(struct soft_peer *peer, const struct soft_untrusted_fd_fds *fds) {
    peer->own = false;
    if (fds->pid == peer->pid)
        peer->told_uid = fds->uid;
}

static void on_socket(struct soft_watch *watch, uint32_t events) {
    struct soft_peer *peer =
        (struct soft_peer *)((char *)watch - offsetof(struct soft_peer, socket));
    if (!peer->alive)
        return;
    soft_peer_hold(peer);
    bool ok = true;
    /* A batch at a time, so that a flood from one peer does not starve the others. */
    for (int i = 0; i < 64 && ok && peer->alive; i++) {
        uint8_t buf[sizeof(struct soft_wire) + SOFT_MSG_BYTES_MAX + 1];
        struct soft_untrusted_fd_fds fds;
        bool cut;
        ssize_t got = soft_untrusted_fd_recv(peer->socket.fd, buf, sizeof buf, &fds, &cut);
        if (got == -EAGAIN || got == -EINTR)
            break;
        if (got >= 0 && cut) /* before any that came is closed */
            soft_files_missed(peer->socket.fd);
        if (got > 0 && fds.has_uid && fds.uid != peer->uid) /* it has become another user */
            changed(peer, &fds);
        ok = got > 0 && !cut && dispatch(peer, buf, (size_t)got, fds.fd, fds.count);
        soft_untrusted_fd_close_all(&fds, who(peer));
        ok = ok && !soft_untrusted_fd_burdened(who(peer));
    }
    if (ok && peer->alive && (events & EPOLLOUT))
        soft_peer_queue_flush(peer);
    if (!ok)
        soft_peer_drop(peer);
    soft_peer_release(peer);
}

/* ---- finding ----------------------------------------------------------------------------------- */

void soft_peer_accepted(int fd) {
    soft_assert_locked();
    struct soft_peer *peer = peer_new(fd);
    if (peer && (soft_untrusted_fd_burdened(who(peer)) || !soft_peer_limit_foreign(peer)))
        soft_peer_drop(peer);
    else if (peer)
        soft_peer_limit_ungreeted();
    else
        soft_untrusted_fd_close_socket(fd);
}

/*
 * A process that closed the device and opened it again is found by its pid on a connection whose
 * end our engine has not seen yet: what we said there would be lost.
 */
bool soft_peer_usable(const struct soft_peer *peer) {
    soft_assert_locked();
    struct pollfd p = {.fd = peer->socket.fd, .events = POLLRDHUP};
    return peer->alive && !peer->doomed && peer->bell.fd >= 0 && poll(&p, 1, 0) == 0;
}

/* Known already? Else fd, which leads to it, becomes a peer's. */
static int meet(int fd, const struct ucred *cred, struct soft_peer **out) {
    struct soft_peer *peer;
    cds_list_for_each_entry(peer, &soft_peers, link) {
        if (cred->pid > 0 && peer->pid == cred->pid && peer->uid == cred->uid &&
            soft_peer_usable(peer)) {
            soft_untrusted_fd_close_socket(fd); /* the probe ends here */
            *out = soft_peer_hold(peer);
            return 0;
        }
    }
    peer = peer_new(fd);
    if (!peer) {
        soft_untrusted_fd_close_socket(fd);
        return -ENOMEM;
    }
    int rc = soft_peer_limit_foreign(peer) ? send_hello(peer) : -EAGAIN;
    if (rc != 0) {
        soft_peer_drop(peer);
        return rc;
    }
    *out = soft_peer_hold(peer);
    return 0;
}

int soft_peer_by_name(const char *text, struct soft_peer **out) {
    soft_assert_locked();
    struct ucred cred;
    int fd = soft_name_reach(text, &cred);
    return fd < 0 ? fd : meet(fd, &cred, out);
}

int soft_peer_own_by_name(const char *text, struct ucred *who, struct soft_peer **out) {
    soft_assert_locked();
    int fd = soft_name_reach(text, who);
    if (fd < 0)
        return fd;
    if (soft_own_user(who->uid, who->pid))
        return meet(fd, who, out);
    soft_untrusted_fd_close_socket(fd);
    return -EPERM;
}

/* ---- start and stop ------------------------------------------------------------------------------ */

int soft_peer_start(void) {
    soft_assert_locked();
    if (getrandom(soft_own_uuid, sizeof soft_own_uuid, 0) != sizeof soft_own_uuid)
        return -EIO;
    soft_fence_start();
    return soft_shm_page_start();
}

void soft_peer_stop(void) {
    soft_assert_locked();
    soft_upcalls.peers_stop();
    while (!cds_list_empty(&soft_peers))
        soft_peer_drop(cds_list_first_entry(&soft_peers, struct soft_peer, link));
    soft_qpn_directory_stop();
    soft_upcalls.peers_stopped();
}

void soft_peer_forked(void) {
    CDS_INIT_LIST_HEAD(&soft_peers);
    soft_peer_queues_forked();
    soft_qpn_directory_forked();
    soft_fence_forked();
    soft_shm_page_forked();
}
