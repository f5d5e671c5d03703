/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * untrusted_fd.c - judging, receiving and closing descriptors that came from another process.
 *
 * `mutex` guards the list of descriptors to close; a leaf, never held across close(). A sender of descriptors that do
 * not get closed occupies some of the threads and some of the list, and is read no more
 * (soft_untrusted_fd_burdened()); the rest is for other senders. Only those threads close what is in the list.
 */
#define _GNU_SOURCE
#include "soft/ipc/untrusted_fd.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "common/thread.h"
#include "soft/ipc/own_user.h"

#define LIST 4096 /* more than a process can have open, as a rule */
#define CLOSERS 16
#define CLOSERS_OF_ONE 4
#define LITTLE (8 << 20)
#define RINGS_AT_ONCE 64
#define BURDEN 64 /* waiting of one sender: they cannot be closed, or are too many */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct foreign {
    int fd; /* or, where there are bytes, a mapping */
    void *addr;
    size_t bytes;
    uint64_t who;
} list[LIST];
static uint64_t closing[CLOSERS]; /* the sender of the descriptor that each closing thread closes */
static unsigned count, closing_count, closers, started;

/* ---- what is it ---------------------------------------------------------------------------------- */

/* Only memory files know seals: every other kind fails here, before anything may wait. */
static int seals_of(int fd) {
    return fcntl(fd, F_GET_SEALS);
}

bool soft_untrusted_fd_memory(int fd, size_t bytes) {
    struct stat st;
    struct statfs fs;
    int seals = seals_of(fd);
    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &st) != 0 ||
        (uint64_t)st.st_size != bytes)
        return false;
    /* Of huge pages there may be none left when a hole is filled again, and that is a SIGBUS. */
    return fstatfs(fd, &fs) == 0 && fs.f_type == TMPFS_MAGIC;
}

bool soft_untrusted_fd_bell(int fd) {
    int domain = 0, type = 0;
    socklen_t len = sizeof domain;
    char byte;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) != 0 || domain != AF_UNIX ||
        getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) != 0 || type != SOCK_DGRAM)
        return false;
    (void)shutdown(fd, SHUT_RD);
    return recv(fd, &byte, sizeof byte, MSG_PEEK | MSG_DONTWAIT) < 0;
}

uint64_t soft_untrusted_fd_who(uid_t uid, pid_t pid) {
    return soft_own_user(uid, pid) ? 1ull << 32 | (uint32_t)pid : uid;
}

/* ---- closing ------------------------------------------------------------------------------------- */

static unsigned closing_of(uint64_t who) {
    unsigned n = 0;
    for (unsigned i = 0; i < closing_count; i++)
        n += closing[i] == who;
    return n;
}

static unsigned waiting_of(uint64_t who) {
    unsigned n = 0;
    for (unsigned i = 0; i < count; i++)
        n += list[i].who == who;
    return n;
}

/* The oldest whose sender may have another thread, or `count`. */
static unsigned next(void) {
    unsigned i = 0;
    while (i < count && closing_of(list[i].who) >= CLOSERS_OF_ONE)
        i++;
    return i;
}

static bool pick(struct foreign *out) {
    unsigned i = next();
    if (i == count)
        return false;
    *out = list[i];
    memmove(&list[i], &list[i + 1], (--count - i) * sizeof list[0]);
    return true;
}

static void *closer(void *unused);

/*
 * Mutex held. Those that there are may all be stuck in close(). Detached: it touches nothing but the above. One
 * that cannot be had now is started for the next descriptor, and then serves what waits.
 */
static void start_closer(void) {
    if (next() == count || closers == CLOSERS || closers != closing_count)
        return;
    closers++;
    started++;
    if (thread_start_detached("sluice-close", closer, NULL) != 0)
        closers--;
}

static void *closer(void *unused) {
    (void)unused;
    struct foreign mine;
    pthread_mutex_lock(&mutex);
    while (pick(&mine)) {
        closing[closing_count++] = mine.who;
        start_closer();
        pthread_mutex_unlock(&mutex);
        if (mine.bytes)
            munmap(mine.addr, mine.bytes);
        else
            close(mine.fd);
        pthread_mutex_lock(&mutex);
        unsigned at = 0;
        while (closing[at] != mine.who)
            at++;
        closing[at] = closing[--closing_count];
    }
    closers--;
    pthread_mutex_unlock(&mutex);
    return NULL;
}

static void elsewhere(struct foreign what) {
    pthread_mutex_lock(&mutex);
    if (count < LIST) {
        list[count++] = what;
        start_closer();
    } /* else it stays open: a descriptor that cannot be closed is not waited for */
    pthread_mutex_unlock(&mutex);
}

static void close_elsewhere(int fd, uint64_t who) {
    elsewhere((struct foreign){.fd = fd, .who = who});
}

bool soft_untrusted_fd_burdened(uint64_t who) {
    pthread_mutex_lock(&mutex);
    bool burdened = count >= BURDEN && waiting_of(who) >= BURDEN;
    pthread_mutex_unlock(&mutex);
    return burdened;
}

unsigned soft_untrusted_fd_closers(void) {
    pthread_mutex_lock(&mutex);
    unsigned n = started;
    pthread_mutex_unlock(&mutex);
    return n;
}

unsigned soft_untrusted_fd_pending(void) {
    pthread_mutex_lock(&mutex);
    unsigned n = count + closing_count;
    pthread_mutex_unlock(&mutex);
    return n;
}

/* The last process to unmap or close memory frees its pages, a gigabyte in a tenth of a second. This cannot grow. */
static bool is_little_memory(int fd) {
    struct stat st;
    int seals = seals_of(fd);
    return seals >= 0 && (seals & F_SEAL_GROW) && fstat(fd, &st) == 0 && st.st_size <= LITTLE;
}

void soft_untrusted_unmap(void *addr, size_t bytes, uint64_t who) {
    if (bytes <= LITTLE)
        munmap(addr, bytes);
    else
        elsewhere((struct foreign){.fd = -1, .addr = addr, .bytes = bytes, .who = who});
}

void soft_untrusted_fd_close(int fd, uint64_t who) {
    if (is_little_memory(fd))
        close(fd);
    else
        close_elsewhere(fd, who);
}

/*
 * True: no message waits in it. A message may be empty and still carry descriptors, which recv() cannot tell
 * from the end; asked for its credentials every message has them, and the end has none.
 */
static bool drained(int fd) {
    int on = 1;
    char byte, control[CMSG_SPACE(sizeof(struct ucred))];
    struct iovec iov = {.iov_base = &byte, .iov_len = sizeof byte};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    if (setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0)
        return false;
    ssize_t got = recvmsg(fd, &msg, MSG_PEEK | MSG_DONTWAIT);
    return got < 0 || (got == 0 && msg.msg_controllen == 0 && !(msg.msg_flags & MSG_CTRUNC));
}

void soft_untrusted_fd_close_socket(int fd) {
    struct ucred cred = {.uid = geteuid()};
    socklen_t len = sizeof cred;
    bool own = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) == 0 && cred.pid == getpid();
    (void)shutdown(fd, SHUT_RDWR); /* from here on nothing more arrives */
    if (own || drained(fd))
        close(fd);
    else
        close_elsewhere(fd, soft_untrusted_fd_who(cred.uid, cred.pid));
}

/* ---- receiving ------------------------------------------------------------------------------------ */

ssize_t soft_untrusted_fd_recv(int sock, void *data, size_t bytes,
                               struct soft_untrusted_fd_fds *fds, bool *cut) {
    /* Room for all that can come: what does not fit is closed by the kernel, on this thread. */
    char control[CMSG_SPACE(SOFT_FOREIGN_FDS * sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
    struct iovec iov = {.iov_base = data, .iov_len = bytes};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    fds->count = 0;
    fds->has_uid = false;
    ssize_t got = recvmsg(sock, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0)
        return -errno;
    *cut = (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
            unsigned n = (unsigned)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
            fds->count = n > SOFT_FOREIGN_FDS ? SOFT_FOREIGN_FDS : n;
            memcpy(fds->fd, CMSG_DATA(c), fds->count * sizeof(int));
        } else if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_CREDENTIALS) {
            struct ucred cred;
            memcpy(&cred, CMSG_DATA(c), sizeof cred);
            fds->has_uid = true;
            fds->uid = cred.uid;
            fds->pid = cred.pid;
        }
    return got;
}

void soft_untrusted_fd_close_all(struct soft_untrusted_fd_fds *fds, uint64_t who) {
    for (unsigned i = 0; i < fds->count; i++)
        if (fds->fd[i] >= 0)
            soft_untrusted_fd_close(fds->fd[i], who);
    fds->count = 0;
}

/* briefly: nothing is closed here, and nothing is taken behind a descriptor. False: there may be more. */
static bool hear(int fd, uint64_t who, bool briefly) {
    uint8_t ring[8];
    struct soft_untrusted_fd_fds fds;
    bool cut;
    for (int i = 0; i < RINGS_AT_ONCE; i++) {
        if (soft_untrusted_fd_recv(fd, ring, sizeof ring, &fds, &cut) < 0)
            return true;
        for (unsigned k = 0; briefly && k < fds.count; k++)
            close_elsewhere(fds.fd[k], who);
        if (briefly && fds.count > 0)
            return false;
        soft_untrusted_fd_close_all(&fds, who);
    }
    return briefly;
}

bool soft_untrusted_fd_hear(int fd, uint64_t who) {
    return hear(fd, who, false);
}

bool soft_untrusted_fd_hear_briefly(int fd, uint64_t who) {
    return hear(fd, who, true);
}

void soft_untrusted_fd_close_heard(int fd, uint64_t who) {
    (void)shutdown(fd, SHUT_RDWR);
    if (soft_untrusted_fd_hear(fd, who))
        close(fd);
    else
        soft_untrusted_fd_close(fd, who);
}

/* ---- fork ------------------------------------------------------------------------------------------ */

/* The child's list is whole: no thread is in the middle of changing it. */
void soft_untrusted_fd_fork(bool begins) {
    if (begins)
        pthread_mutex_lock(&mutex);
    else
        pthread_mutex_unlock(&mutex);
}

/*
 * The threads are the parent's. Descriptors they had not closed yet are open here too, and may be as slow to close:
 * it waits for the first thread that is started here.
 */
void soft_untrusted_fd_forked(void) {
    closers = closing_count = 0;
    soft_untrusted_fd_fork(false); /* of this thread, as in the parent */
}
