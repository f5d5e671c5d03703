/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * untrusted_fd.h - descriptors that came from another process: checking and closing them.
 *
 * A descriptor can be anything, and closing the last reference to some things waits: for a lingering
 * TCP connection to send the rest, for a file system in user space to answer. The descriptor need not even be
 * taken out of the socket it was sent through, for closing that socket closes it. So a descriptor that is not
 * known to be harmless is closed by a thread that exists only while there are such descriptors.
 *
 * Any thread, no lock needed.
 */
#ifndef SOFT_IPC_UNTRUSTED_FD_H
#define SOFT_IPC_UNTRUSTED_FD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Shared memory of exactly this size, which no process can shrink under us. */
bool soft_untrusted_fd_memory(int fd, size_t bytes);
/*
 * A datagram unix socket whose end no process can fill with anything to be thrown away: sending on it
 * with MSG_DONTWAIT does not wait, nor does closing it. From here on nothing can be received on it.
 */
bool soft_untrusted_fd_bell(int fd);

/* The sender: another user as a whole, a process of our own. */
uint64_t soft_untrusted_fd_who(uid_t uid, pid_t pid);
/* Anything that was received. */
void soft_untrusted_fd_close(int fd, uint64_t who);
/* Memory that another process made, and may have left: the last process to unmap it frees it. */
void soft_untrusted_unmap(void *addr, size_t bytes, uint64_t who);
/* An own socket that is connected to another process, which may have sent what was not received. */
void soft_untrusted_fd_close_socket(int fd);
/* Descriptors of this sender do not get closed: take no more from it. */
bool soft_untrusted_fd_burdened(uint64_t who);

#define SOFT_FOREIGN_FDS 253 /* the kernel's limit for one message */
struct soft_untrusted_fd_fds {
    int fd[SOFT_FOREIGN_FDS]; /* -1: the receiving code kept it */
    unsigned count;
    bool has_uid; /* the sender was this user then: of a socket that asks for that */
    uid_t uid;
    pid_t pid;
};
/* One message, without waiting, with whatever it carries. -errno; cut: some of it is lost. */
ssize_t soft_untrusted_fd_recv(int sock, void *data, size_t bytes,
                               struct soft_untrusted_fd_fds *fds, bool *cut);
void soft_untrusted_fd_close_all(struct soft_untrusted_fd_fds *fds, uint64_t who);

/* Our end of a bell: takes the rings, and closes what should not have come with them. False: there may be more. */
bool soft_untrusted_fd_hear(int fd, uint64_t who);
/* Takes the rings where a spin lock is held: nothing is closed here. False: a descriptor came, as from no honest peer. */
bool soft_untrusted_fd_hear_briefly(int fd, uint64_t who);
/* And closes that end, whatever was put into it. */
void soft_untrusted_fd_close_heard(int fd, uint64_t who);

unsigned soft_untrusted_fd_closers(void); /* threads started for it so far */
unsigned soft_untrusted_fd_pending(void); /* descriptors given to them that are still open */
void soft_untrusted_fd_fork(bool begins); /* around a fork; the innermost lock */
void soft_untrusted_fd_forked(void);

#endif
