/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cq_set.c - see cq_set.h.
 *
 * A queue pair leaves the set before it leaves the list of the QPs that the CQ polls, and leaving the list takes the
 * poll_lock: so a queue pair that a poller finds in the set lives while the poller holds that lock.
 */
#include "soft/iwarp/cq_set.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "common/uncancelled.h"
#include "soft/iwarp/qp_tcp.h"
#include "soft/object/cq.h"

int soft_tcp_set_add(struct soft_cq *cq, int fd, struct soft_qp *qp) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = qp};
    int set = ld(cq->tcp_set) - 1;
    if (set < 0) {
        set = epoll_create1(EPOLL_CLOEXEC);
        if (set < 0)
            return errno;
        st(cq->tcp_set, set + 1);
    }
    return epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : errno;
}

void soft_tcp_set_remove(struct soft_cq *cq, int fd) {
    int set = ld(cq->tcp_set) - 1;
    if (set >= 0)
        (void)epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL);
}

unsigned soft_tcp_set_ready(struct soft_cq *cq, struct soft_qp *ready[SOFT_TCP_LOOK]) {
    UNCANCELLED;
    struct epoll_event events[SOFT_TCP_LOOK];
    int n = epoll_wait(ld(cq->tcp_set) - 1, events, SOFT_TCP_LOOK, 0);
    for (int i = 0; i < n; i++)
        ready[i] = events[i].data.ptr;
    return n > 0 ? (unsigned)n : 0;
}

unsigned soft_tcp_set_look(struct soft_cq *cq, struct soft_qp *due[SOFT_TCP_LOOK]) {
    struct soft_qp *ready[SOFT_TCP_LOOK];
    unsigned count = 0, n = soft_tcp_set_ready(cq, ready);
    for (unsigned i = 0; i < n; i++)
        if (soft_tcp_seen(ready[i]))
            due[count++] = ready[i];
    return count;
}

void soft_tcp_set_free(struct soft_cq *cq) {
    if (ld(cq->tcp_set) > 0)
        close(ld(cq->tcp_set) - 1);
}
