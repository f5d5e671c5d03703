/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * process_copy.h - copying to and from private memory of another process, by threads that may wait.
 *
 * process_vm_readv and process_vm_writev wait for what lies behind the other process's memory: its page faults, which a
 * file system in user space or the process itself may serve, and the lock of its address space, which other threads of it
 * hold for as long as they change a large mapping. So no thread of the application and not the engine makes these
 * calls. A thread of this file makes them, without any lock, for one piece of one access at a time, and then makes
 * the progress of the queue pair. What cannot be given to a thread is not waited for either: it goes through the ring, and
 * the owner of the memory executes it.
 *
 * One exception: a program of the drop-in that has no other process for a peer copies itself, in the call that posts and
 * with no lock held, in a fifth of the time. It waits for its only peer; who comes later finds the engine at work.
 *
 * Bounds: PROCESS_COPY_THREADS threads, PROCESS_COPY_OF_ONE of them for one process, and none more for a process whose
 * memory has kept one waiting. A thread is started by the engine when one was missing, and ends with the engine.
 *
 * Owner: the QP's lock.
 */
#ifndef SOFT_RC_PROCESS_COPY_H
#define SOFT_RC_PROCESS_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct soft_qp;

#define PROCESS_COPY_THREADS 16
#define PROCESS_COPY_OF_ONE 4

/* What is known of a process's memory: whether the kernel lets us reach it, and the pid is of the process we talk to. */
enum process_reach { PROCESS_UNKNOWN, PROCESS_REACHED, PROCESS_CLOSED };

struct process_piece {
    bool write;
    bool inlined;            /* iov[0] is memory of the queue pair, and at most SOFT_MAX_INLINE */
    unsigned count;          /* of iov: memory here */
    const struct iovec *iov; /* copied */
    uint8_t *addr;           /* memory there */
    uint32_t bytes;
};

/*
 * Gives it to a thread: then qp->copy is set until soft_process_copy_take() or soft_process_copy_leave(), and the QP has
 * said that it is inside of the peer's memory until the thread is done. False: no thread may have it now.
 */
bool soft_process_copy_give(struct soft_qp *qp, const struct process_piece *piece);

/* Copies what this thread was to copy itself: qp->copies_here was set when it was given. Gives the lock up meanwhile. */
void soft_process_copy_here(struct soft_qp *qp);

enum process_copy_end {
    PROCESS_COPY_UNDER_WAY, /* qp->copy stays */
    PROCESS_COPY_DONE,
    PROCESS_COPY_FAULT, /* the target has unmapped what it registered */
    PROCESS_COPY_DEAD,  /* there is no such process any more */
    PROCESS_COPY_CLOSED /* the kernel does not let us, or it is another process */
};
/* How it ended, and how many bytes it had. */
enum process_copy_end soft_process_copy_take(struct soft_qp *qp, uint32_t *bytes);
/*
 * What was posted is about to be flushed, or fails. True: no thread copies for this QP any more, or one has been
 * waiting for the peer's memory for a second since this was asked first: the QP goes on without it then.
 */
bool soft_process_copy_leave(struct soft_qp *qp);
/* The QP, or memory here, is about to be given back: waits until no thread copies for it, 80 ms at most. */
void soft_process_copy_wait(struct soft_qp *qp); /* no lock */
void soft_process_copy_wait_memory(const void *addr,
                                   size_t bytes); /* control lock, given up meanwhile */

/* The engine's; control lock. */
void soft_process_copy_if_wanted(void);
void soft_process_copy_stop(void);
void soft_process_copy_fork(bool begins); /* around a fork; a leaf */
void soft_process_copy_forked(void);

#endif
