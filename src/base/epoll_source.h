/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * epoll_source.h - a descriptor in an epoll set whose events are fetched by a call that may fail.
 *
 * Such a descriptor stays readable when the call fails, or reports an error for ever, and the thread that sleeps
 * on it would spin. So after a failure it leaves the set for a pause, which doubles with each failure in a row.
 * A failure lasts when calls failed for EVENT_SOURCE_LASTS_NS, four times at least: a call may fail once for want
 * of memory, and a failure that passes is no reason to end anything.
 *
 * Owner: the thread that waits on the set.
 */
#ifndef BASE_EPOLL_SOURCE_H
#define BASE_EPOLL_SOURCE_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#define EVENT_SOURCE_PAUSE_NS 1000000ull        /* the first */
#define EVENT_SOURCE_PAUSE_MAX_NS 1024000000ull /* about a second, the longest */
#define EVENT_SOURCE_LASTS_NS 1000000000ull     /* from the first failure in a row */
#define EVENT_SOURCE_LASTS_FAILURES 4u          /* so many of them at least */

struct event_source {
    int epoll_fd, fd;
    void *data;
    bool out;          /* of the set, until again_ns */
    bool told;         /* of a failure, ever */
    unsigned failures; /* in a row */
    uint64_t since_ns, pause_ns, again_ns;
};

enum event_source_news {
    EVENT_SOURCE_SAME,
    EVENT_SOURCE_FIRST, /* the first failure ever: to be logged */
    EVENT_SOURCE_LASTS, /* it lasts; again with each further failure */
};

/* EAGAIN means that there is nothing, EINTR that a signal came. */
static inline bool event_source_failed(int error) {
    return error != 0 && error != EAGAIN && error != EWOULDBLOCK && error != EINTR;
}

/* Puts it into the set. 0 or -errno. */
int event_source_open(struct event_source *source, int epoll_fd, int fd, void *data);
/*
 * The descriptor was reported with these epoll events, and fetching ended with this errno, which may be
 * EAGAIN. An error that epoll reports of the descriptor itself counts as EIO unless something was fetched.
 * Returns the failure, or 0.
 */
int event_source_result(uint32_t events, unsigned fetched, int error);
void event_source_ok(struct event_source *source);
enum event_source_news event_source_pause(struct event_source *source, uint64_t now_ns);
/* When the pause is over it is put into the set again. 0, or the errno of why it cannot be: another failure. */
int event_source_resume(struct event_source *source, uint64_t now_ns);
static inline uint64_t event_source_due(const struct event_source *source) {
    return source->out ? source->again_ns : UINT64_MAX;
}

#endif
