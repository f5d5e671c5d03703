/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cq_set.c - see cq_set.h.
 *
 * A queue pair leaves the set before it leaves the CQ's list of those that are polled, which waits for the poll_lock: so
 * what a poller is told of lives as long as it looks.
 */
#include "soft/iwarp/cq_set.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "soft/iwarp/qp_tcp.h"
#include "soft/verbs/cq.h"

#define AT_ONCE 16

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

void soft_tcp_set_look(struct soft_cq *cq) {
    struct epoll_event events[AT_ONCE];
    int n = epoll_wait(ld(cq->tcp_set) - 1, events, AT_ONCE, 0);
    for (int i = 0; i < n; i++)
        soft_tcp_seen(events[i].data.ptr);
}

void soft_tcp_set_free(struct soft_cq *cq) {
    if (ld(cq->tcp_set) > 0)
        close(ld(cq->tcp_set) - 1);
}
