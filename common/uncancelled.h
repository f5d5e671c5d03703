/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * uncancelled.h - holds pthread_cancel() back while a thread of the application is inside of the library.
 *
 * A thread that is cancelled in a read() or a pthread_cond_wait() somewhere below leaves with whatever it had taken: a loop,
 * a lock, a message that was accepted. So every public call that may come to a cancellation point begins with UNCANCELLED.
 * The calls of each message, and sluice_poll(), do not: it would cost them a tenth. They come to a cancellation point only by
 * a system call, a log or a call of the application, and that is made with cancellation held back:
 *   - a function that few messages need begins with UNCANCELLED, as public calls do;
 *   - in one that most need, the system call alone is uncancelled(call);
 *   - sluice_poll() holds it back to its end when it begins something of that kind: loop_uncancelled(), datapath/loop/loop.h.
 * Threads of the library hold it back for good (thread.h). Alone where sluice_poll() waits it is let through, see wait.c there.
 *
 * Cheap (a thread's own word is written), nests, keeps errno. Any thread.
 */
#ifndef COMMON_UNCANCELLED_H
#define COMMON_UNCANCELLED_H

#include <pthread.h>

/* Returns what uncancelled_end() puts back. */
static inline int uncancelled_begin(void) {
    int before;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before;
}

static inline void uncancelled_end(const int *before) {
    pthread_setcancelstate(*before, NULL);
}

/* From here to the end of the block, whichever way it is left. */
#define UNCANCELLED                                                                                \
    __attribute__((cleanup(uncancelled_end), unused)) const int uncancelled_before =               \
        uncancelled_begin()

#define uncancelled(call)                                                                          \
    __extension__({                                                                                \
        UNCANCELLED;                                                                               \
        call;                                                                                      \
    })

#endif
