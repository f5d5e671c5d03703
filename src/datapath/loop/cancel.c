/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cancel.c - see cancel.h.
 *
 * What epoll_wait() had found when the thread was cancelled is found again: the descriptors are level-triggered, but for those
 * of the device, and what these report is looked for by every poll before it sleeps.
 */
#include "datapath/loop/cancel.h"

#include "datapath/loop/loop.h"

/* The rest of loop_unmark_polling(). The loop may be another thread's before this one can be cancelled again. */
void loop_unmark_uncancelled(struct sluice_loop *l) {
    int before = loop_cancel_state(l);
    l->uncancelled = 0;
    atomic_store_explicit(&l->poll_busy, 0, memory_order_release);
    uncancelled_end(&before);
}

/* The frames of the application are still there, but nothing is written to its array any more. */
static void leave(void *arg) {
    struct sluice_loop *l = arg;
    uncancelled_begin(); /* this thread is on its way out */
    l->out_max = l->out_count = 0;
    loop_clock(l);
    loop_span_begin(l);
    loop_awake(l);
    if (l->fd_used) { /* it armed nothing: readable once, so that the next poll does */
        wakeup_arm(&l->mailbox.wakeup);
        wakeup_signal_flag(&l->mailbox.wakeup);
    }
    l->uncancelled = 0;
    loop_unmark_polling(l);
}

static bool may_cancel(struct sluice_loop *l) {
    return loop_cancel_state(l) == PTHREAD_CANCEL_ENABLE;
}

int loop_cancel_wait(struct sluice_loop *l, struct epoll_event *events, int max, int timeout_ms) {
    int n;
    if (!may_cancel(l))
        return epoll_wait(l->epoll_fd, events, max, timeout_ms);
    pthread_cleanup_push(leave, l);
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    n = epoll_wait(l->epoll_fd, events, max, timeout_ms);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    pthread_cleanup_pop(0);
    return n;
}

void loop_cancel_test(struct sluice_loop *l) {
    if (!may_cancel(l))
        return;
    pthread_cleanup_push(leave, l);
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    pthread_testcancel();
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    pthread_cleanup_pop(0);
}
