/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * peer.c - control connections between processes: names, greeting, messages, death.
 *
 * Owner: the engine thread and whoever holds the control lock. A peer's socket, its pidfd and its
 * bell are engine watches. What pollers use without the lock (bell_out, board, mapped regions)
 * stays valid until the last reference is gone, and every linked QP holds one.
 */
#define _GNU_SOURCE
#include "soft/peer.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "soft/peer_internal.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

struct soft_wire {
    uint32_t type, bytes;
};

struct soft_hello {
    uint32_t magic, version;
    uint8_t uuid[16];
    uint32_t fence_free, zero;
};

struct soft_queued {
    struct soft_queued *next;
    int fds[2];
    unsigned fd_count;
    size_t bytes;
    uint8_t data[];
};

struct soft_peer *soft_peers;
struct soft_board *soft_board;
static int board_fd = -1;
uint8_t soft_own_uuid[16];
static uint32_t own_blocks[SOFT_MAX_QP_BLOCKS];
static struct soft_name own_names[SOFT_MAX_QP_BLOCKS];
static unsigned own_block_count;
static bool own_fence_free;

static void peer_drop(struct soft_peer *peer);
static void on_socket(struct soft_watch *watch, uint32_t events);

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
    atomic_fetch_add_explicit(&peer->refs, 1, memory_order_relaxed);
    return peer;
}

void soft_peer_release(struct soft_peer *peer) {
    if (!peer || atomic_fetch_sub_explicit(&peer->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (unsigned i = 0; i < SOFT_MAX_REGIONS; i++) {
        const uint8_t *addr = atomic_load(&peer->regions[i].addr);
        if (addr)
            munmap((void *)(uintptr_t)addr, peer->regions[i].bytes);
    }
    if (peer->board)
        munmap(peer->board, sizeof *peer->board);
    if (atomic_load(&peer->keys))
        munmap((void *)(uintptr_t)atomic_load(&peer->keys), SOFT_KEYS_BYTES);
    if (peer->bell_out >= 0)
        close(peer->bell_out);
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
    peer->uid = cred.uid;
    peer->pid = cred.pid;
    peer->bell_out = peer->death.fd = peer->bell.fd = -1;
    peer->out_tail = &peer->out_head;
    peer->socket = (struct soft_watch){.fd = fd, .fn = on_socket};
    if (soft_watch_add(&peer->socket, EPOLLIN) != 0) {
        free(peer);
        return NULL;
    }
    peer->alive = true;
    peer->next = soft_peers;
    peer->link = &soft_peers;
    if (soft_peers)
        soft_peers->link = &peer->next;
    soft_peers = peer;
    return peer;
}

static void close_watch(struct soft_watch *watch) {
    if (watch->fd < 0)
        return;
    soft_watch_remove(watch);
    close(watch->fd);
    watch->fd = -1;
}

static void queued_free(struct soft_queued *q) {
    for (unsigned i = 0; i < q->fd_count; i++)
        close(q->fds[i]);
    free(q);
}

/* Takes the peer out of service; tells the links and the cm. The struct lives on while held. */
static void peer_drop(struct soft_peer *peer) {
    if (!peer->alive)
        return;
    peer->alive = false;
    *peer->link = peer->next;
    if (peer->next)
        peer->next->link = peer->link;
    close_watch(&peer->socket);
    close_watch(&peer->death);
    close_watch(&peer->bell);
    soft_timer_cancel(&peer->out_retry);
    while (peer->out_head) {
        struct soft_queued *q = peer->out_head;
        peer->out_head = q->next;
        queued_free(q);
    }
    peer->out_tail = &peer->out_head;
    soft_link_on_peer_gone(peer);
    if (peer->greeted)
        soft_cm_on_peer_gone(peer);
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
    peer_drop(peer);
    soft_peer_release(peer);
}

static void on_bell(struct soft_watch *watch, uint32_t events) {
    (void)events;
    uint8_t ring[8];
    struct soft_peer *peer = (struct soft_peer *)((char *)watch - offsetof(struct soft_peer, bell));
    for (int i = 0; i < 64 && recv(watch->fd, ring, sizeof ring, MSG_DONTWAIT) >= 0; i++)
        ;
    soft_link_on_bell(peer);
}

/* ---- sending --------------------------------------------------------------------------------- */

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

/* The socket is full (or too many descriptors are in flight, which gives no readiness event). */
static void want_retry(struct soft_peer *peer, int err) {
    soft_watch_modify(&peer->socket, EPOLLIN | EPOLLOUT);
    if (err == -ETOOMANYREFS || err == -ENOBUFS || err == -ENOMEM)
        soft_timer_arm(&peer->out_retry, soft_now_ns() + 1000000, on_retry);
}

static void flush_queue(struct soft_peer *peer) {
    while (peer->out_head) {
        struct soft_queued *q = peer->out_head;
        int rc = send_now(peer->socket.fd, q->data, q->bytes, q->fds, q->fd_count);
        if (rc == -EAGAIN || rc == -ETOOMANYREFS || rc == -ENOBUFS || rc == -ENOMEM) {
            want_retry(peer, rc);
            return;
        }
        if (rc != 0)
            return; /* the socket's end follows */
        peer->out_head = q->next;
        if (!peer->out_head)
            peer->out_tail = &peer->out_head;
        peer->out_count--;
        queued_free(q);
    }
    soft_watch_modify(&peer->socket, EPOLLIN);
}

static void on_retry(struct soft_timer *timer) {
    flush_queue((struct soft_peer *)((char *)timer - offsetof(struct soft_peer, out_retry)));
}

static int peer_send(struct soft_peer *peer, uint32_t type, const void *data, size_t bytes,
                     const int *fds, unsigned count) {
    uint8_t buf[sizeof(struct soft_wire) + SOFT_MSG_BYTES_MAX];
    if (!peer->alive)
        return -ECONNRESET;
    if (bytes > SOFT_MSG_BYTES_MAX)
        return -EMSGSIZE;
    struct soft_wire wire = {.type = type, .bytes = (uint32_t)bytes};
    memcpy(buf, &wire, sizeof wire);
    if (bytes)
        memcpy(buf + sizeof wire, data, bytes);
    bytes += sizeof wire;
    int rc = peer->out_head ? -EAGAIN : send_now(peer->socket.fd, buf, bytes, fds, count);
    if (rc == 0)
        return 0;
    if (rc != -EAGAIN && rc != -ETOOMANYREFS && rc != -ENOBUFS && rc != -ENOMEM)
        return -ECONNRESET; /* its watch reports the end */
    if (peer->out_count >= SOFT_PEER_QUEUE_MAX) {
        peer_drop(peer);
        return -ENOBUFS;
    }
    struct soft_queued *q = malloc(sizeof *q + bytes);
    if (!q)
        return -ENOMEM;
    q->next = NULL;
    q->bytes = bytes;
    q->fd_count = 0;
    memcpy(q->data, buf, bytes);
    for (unsigned i = 0; i < count; i++) {
        int copy = fcntl(fds[i], F_DUPFD_CLOEXEC, 0);
        if (copy < 0) {
            queued_free(q);
            return -EMFILE;
        }
        q->fds[q->fd_count++] = copy;
    }
    *peer->out_tail = q;
    peer->out_tail = &q->next;
    peer->out_count++;
    want_retry(peer, rc);
    return 0;
}

int soft_peer_send(struct soft_peer *peer, uint32_t type, const void *data, size_t bytes, int fd) {
    return peer_send(peer, type, data, bytes, &fd, fd >= 0);
}

static int send_hello(struct soft_peer *peer) {
    struct soft_hello hello = {.magic = SOFT_WIRE_MAGIC,
                               .version = SOFT_WIRE_VERSION,
                               .fence_free = own_fence_free};
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
    int fds[2] = {pair[1], board_fd};
    int rc = peer_send(peer, SOFT_MSG_HELLO, &hello, sizeof hello, fds, 2);
    close(pair[1]);
    return rc;
}

/* ---- receiving ------------------------------------------------------------------------------- */

/* A file of exactly this size that nobody can shrink under us. */
static bool sealed_file(int fd, size_t bytes) {
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & F_SEAL_SHRINK) && fstat(fd, &st) == 0 &&
           (uint64_t)st.st_size == bytes;
}

static bool on_hello(struct soft_peer *peer, const struct soft_hello *hello, int *fds, unsigned n) {
    if (hello->magic != SOFT_WIRE_MAGIC || hello->version != SOFT_WIRE_VERSION || n != 2 ||
        peer->greeted || !sealed_file(fds[1], sizeof(struct soft_board)))
        return false;
    struct soft_board *board =
        mmap(NULL, sizeof *board, PROT_READ, MAP_SHARED, fds[1], 0);
    if (board == MAP_FAILED)
        return false;
    if (board->magic != SOFT_BOARD_MAGIC || board->version != SOFT_WIRE_VERSION) {
        munmap(board, sizeof *board);
        return false;
    }
    /* Should it be no socket, ringing it fails and harms only the peer. */
    peer->bell_out = fcntl(fds[0], F_DUPFD_CLOEXEC, 0);
    peer->board = board;
    peer->fence_free = own_fence_free && hello->fence_free;
    memcpy(peer->uuid, hello->uuid, sizeof peer->uuid);
    peer->greeted = true;
    if (peer->bell.fd < 0 && send_hello(peer) != 0)
        return false;
    soft_link_announce_keys(peer);
    soft_link_announce_regions(peer);
    return true;
}

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
    if (wire.type >= SOFT_MSG_CM_FIRST && wire.type <= SOFT_MSG_CM_LAST)
        soft_cm_on_message(peer, wire.type, body, bytes);
    else
        soft_link_on_message(peer, wire.type, body, bytes, n ? fds[0] : -1);
    return true;
}

static void on_socket(struct soft_watch *watch, uint32_t events) {
    struct soft_peer *peer = (struct soft_peer *)((char *)watch - offsetof(struct soft_peer, socket));
    if (!peer->alive)
        return;
    soft_peer_hold(peer);
    bool ok = true;
    /* A batch at a time, so that a flood from one peer does not starve the others. */
    for (int i = 0; i < 64 && ok && peer->alive; i++) {
        uint8_t buf[sizeof(struct soft_wire) + SOFT_MSG_BYTES_MAX + 1];
        char control[CMSG_SPACE(4 * sizeof(int))];
        struct iovec iov = {.iov_base = buf, .iov_len = sizeof buf};
        struct msghdr msg = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
        ssize_t got = recvmsg(peer->socket.fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            break;
        int fds[4];
        unsigned n = 0;
        if (got >= 0) /* descriptors come with empty messages too */
            for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c))
                if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
                    n = (unsigned)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
                    n = n > 4 ? 4 : n;
                    memcpy(fds, CMSG_DATA(c), n * sizeof(int));
                }
        ok = got > 0 && !(msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) &&
             dispatch(peer, buf, (size_t)got, fds, n);
        for (unsigned k = 0; k < n; k++)
            close(fds[k]);
    }
    if (ok && peer->alive && (events & EPOLLOUT))
        flush_queue(peer);
    if (!ok)
        peer_drop(peer);
    soft_peer_release(peer);
}

/* ---- names ----------------------------------------------------------------------------------- */

static int name_address(struct sockaddr_un *sun, const char *text, socklen_t *len) {
    size_t n = strlen(text);
    if (n > sizeof sun->sun_path - 1)
        return -ENAMETOOLONG;
    memset(sun, 0, sizeof *sun);
    sun->sun_family = AF_UNIX;
    memcpy(sun->sun_path + 1, text, n);
    *len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
    return 0;
}

static int name_connect(const char *text) {
    struct sockaddr_un sun;
    socklen_t len;
    int rc = name_address(&sun, text, &len);
    if (rc != 0)
        return rc;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    if (connect(fd, (struct sockaddr *)&sun, len) != 0) {
        rc = -errno;
        close(fd);
        return rc;
    }
    return fd;
}

static void on_name(struct soft_watch *watch, uint32_t events) {
    (void)events;
    for (int i = 0; i < 64; i++) {
        int fd = accept4(watch->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            return;
        if (!peer_new(fd))
            close(fd);
    }
}

int soft_name_bind(struct soft_name *name, const char *text) {
    struct sockaddr_un sun;
    socklen_t len;
    name->watch.fd = -1;
    int rc = name_address(&sun, text, &len);
    if (rc != 0)
        return rc;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    if (bind(fd, (struct sockaddr *)&sun, len) != 0 || listen(fd, 4096) != 0) {
        rc = -errno;
        close(fd);
        return rc;
    }
    name->watch = (struct soft_watch){.fd = fd, .fn = on_name};
    rc = soft_watch_add(&name->watch, EPOLLIN);
    if (rc != 0) {
        close(fd);
        name->watch.fd = -1;
    }
    return rc;
}

void soft_name_unbind(struct soft_name *name) {
    close_watch(&name->watch);
}

bool soft_name_exists(const char *text) {
    int fd = name_connect(text);
    if (fd >= 0)
        close(fd);
    return fd >= 0 || fd == -EAGAIN;
}

/*
 * A process that closed the device and opened it again is found by its pid on a connection whose
 * end our engine has not seen yet: what we said there would be lost.
 */
static bool usable(const struct soft_peer *peer) {
    struct pollfd p = {.fd = peer->socket.fd, .events = POLLRDHUP};
    return peer->bell.fd >= 0 && poll(&p, 1, 0) == 0;
}

int soft_peer_by_name(const char *text, struct soft_peer **out) {
    int fd = name_connect(text);
    if (fd < 0)
        return fd;
    struct ucred cred;
    socklen_t len = sizeof cred;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) == 0 && cred.pid > 0)
        for (struct soft_peer *peer = soft_peers; peer; peer = peer->next)
            if (peer->pid == cred.pid && peer->uid == cred.uid && usable(peer)) {
                close(fd); /* known: the probe ends here */
                *out = soft_peer_hold(peer);
                return 0;
            }
    struct soft_peer *peer = peer_new(fd);
    if (!peer) {
        close(fd);
        return -ENOMEM;
    }
    int rc = send_hello(peer);
    if (rc != 0) {
        peer_drop(peer);
        return rc;
    }
    *out = soft_peer_hold(peer);
    return 0;
}

/* ---- queue pair numbers ------------------------------------------------------------------------ */

static void block_name(char *text, size_t size, uint32_t block) {
    snprintf(text, size, "sluice-soft.%u/q/%u", SOFT_WIRE_VERSION, block);
}

int soft_peer_claim_block(uint32_t *block) {
    if (own_block_count == SOFT_MAX_QP_BLOCKS)
        return -ENOMEM;
    for (int tries = 0; tries < 1000; tries++) {
        char text[64];
        uint32_t random;
        if (getrandom(&random, sizeof random, 0) != sizeof random)
            return -EIO;
        random = 1 + random % 16382;
        block_name(text, sizeof text, random);
        int rc = soft_name_bind(&own_names[own_block_count], text);
        if (rc == -EADDRINUSE)
            continue;
        if (rc != 0)
            return rc;
        own_blocks[own_block_count++] = random;
        *block = random;
        return 0;
    }
    return -EADDRINUSE;
}

int soft_peer_by_qpn(uint32_t qpn, struct soft_peer **out) {
    uint32_t block = qpn / SOFT_QP_BLOCK;
    for (struct soft_peer *peer = soft_peers; peer; peer = peer->next)
        for (unsigned i = 0; i < peer->block_count; i++)
            if (peer->blocks[i] == block && usable(peer)) {
                *out = soft_peer_hold(peer);
                return 0;
            }
    char text[64];
    block_name(text, sizeof text, block);
    int rc = soft_peer_by_name(text, out);
    if (rc == 0 && (*out)->block_count < SOFT_PEER_BLOCKS)
        (*out)->blocks[(*out)->block_count++] = block;
    return rc;
}

/* ---- start and stop ------------------------------------------------------------------------------ */

static int board_create(void) {
    int fd = memfd_create("sluice-board", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -errno;
    if (ftruncate(fd, sizeof(struct soft_board)) != 0)
        goto fail;
    struct soft_board *board =
        mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (board == MAP_FAILED)
        goto fail;
    board->magic = SOFT_BOARD_MAGIC;
    board->version = SOFT_WIRE_VERSION;
    memcpy(board->uuid, soft_own_uuid, sizeof board->uuid);
    /* From here on nobody can map it writable any more; our own mapping stays. */
    if (fcntl(fd, F_ADD_SEALS,
              F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) != 0) {
        munmap(board, sizeof *board);
        goto fail;
    }
    soft_board = board;
    board_fd = fd;
    return 0;
fail:;
    int rc = -errno;
    close(fd);
    return rc;
}

int soft_peer_start(void) {
    if (getrandom(soft_own_uuid, sizeof soft_own_uuid, 0) != sizeof soft_own_uuid)
        return -EIO;
    own_fence_free = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
    /* The board outlives a stopped engine: CQs may still point at their words. */
    return soft_board ? 0 : board_create();
}

void soft_peer_stop(void) {
    while (soft_peers)
        peer_drop(soft_peers);
    for (unsigned i = 0; i < own_block_count; i++)
        soft_name_unbind(&own_names[i]);
    own_block_count = 0;
    soft_qp_numbers_reset();
    soft_tick_stop();
}

bool soft_own_fence_free(void) {
    return own_fence_free;
}

void soft_peer_forked(void) {
    soft_peers = NULL;
    own_block_count = 0;
    soft_board = NULL; /* the child makes its own; the inherited mapping is the parent's */
    if (board_fd >= 0)
        close(board_fd);
    board_fd = -1;
}
