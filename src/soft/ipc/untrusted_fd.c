/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * untrusted_fd.c - judging and closing descriptors that came from another process.
 *
 * `mutex` guards the list of what is to be closed; a leaf, never held across close().
 */
#define _GNU_SOURCE
#include "soft/ipc/untrusted_fd.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/thread.h"

#define LIST 256
#define CLOSERS 4

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int list[LIST];
static unsigned count, closing, closers, started; /* closing: taken from the list, in close() */

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

/* ---- closing ------------------------------------------------------------------------------------- */

static void *closer(void *unused) {
    (void)unused;
    pthread_mutex_lock(&mutex);
    while (count) {
        int fd = list[--count];
        closing++;
        pthread_mutex_unlock(&mutex);
        close(fd);
        pthread_mutex_lock(&mutex);
        closing--;
    }
    closers--;
    pthread_mutex_unlock(&mutex);
    return NULL;
}

/* Mutex held. Detached: it may take as long as it likes, and touches nothing but the above. */
static bool start_closer(void) {
    return thread_start_detached("sluice-close", closer, NULL) == 0;
}

static void close_elsewhere(int fd) {
    pthread_mutex_lock(&mutex);
    bool taken = count < LIST;
    if (taken) {
        list[count++] = fd;
        /* One for what is there, more only where it does not get on. */
        if (closers < CLOSERS && count > closers * (LIST / CLOSERS)) {
            closers++;
            started++;
            if (!start_closer() && --closers == 0) {
                count--;
                taken = false;
            }
        }
    }
    pthread_mutex_unlock(&mutex);
    if (!taken)
        close(fd);
}

unsigned soft_untrusted_fd_closers(void) {
    pthread_mutex_lock(&mutex);
    unsigned n = started;
    pthread_mutex_unlock(&mutex);
    return n;
}

unsigned soft_untrusted_fd_pending(void) {
    pthread_mutex_lock(&mutex);
    unsigned n = count + closing;
    pthread_mutex_unlock(&mutex);
    return n;
}

void soft_untrusted_fd_close(int fd) {
    if (seals_of(fd) >= 0)
        close(fd);
    else
        close_elsewhere(fd);
}

/*
 * Nothing waits in it. A message may be empty and still carry descriptors, which recv() cannot tell
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
    struct ucred who;
    socklen_t len = sizeof who;
    bool own = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) == 0 && who.pid == getpid();
    (void)shutdown(fd, SHUT_RDWR); /* from here on nothing more arrives */
    if (own || drained(fd))
        close(fd);
    else
        close_elsewhere(fd);
}

/* The thread is the parent's; what it had not closed yet is closed again here. */
void soft_untrusted_fd_forked(void) {
    pthread_mutex_init(&mutex, NULL);
    closers = closing = 0;
    for (unsigned i = 0; i < count; i++)
        close(list[i]);
    count = 0;
}
