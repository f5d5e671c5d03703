/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * epoll_source.c - takes a descriptor that fails out of its epoll set, and puts it back after a pause.
 *
 * Owner: the thread that waits on the set.
 */
#include "base/epoll_source.h"

#include <stddef.h>
#include <sys/epoll.h>

int event_source_open(struct event_source *source, int epoll_fd, int fd, void *data) {
    struct epoll_event interest = {.events = EPOLLIN, .data.ptr = data};
    *source = (struct event_source){.epoll_fd = epoll_fd, .fd = fd, .data = data};
    return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &interest) != 0 ? -errno : 0;
}

int event_source_result(uint32_t events, unsigned fetched, int error) {
    if (event_source_failed(error))
        return error;
    return fetched == 0 && events & (EPOLLERR | EPOLLHUP) ? EIO : 0;
}

void event_source_ok(struct event_source *source) {
    source->failures = 0;
}

enum event_source_news event_source_pause(struct event_source *source, uint64_t now_ns) {
    /* In the set for long and quiet: what was before is another story. */
    if (source->failures > 0 && now_ns > source->again_ns + EVENT_SOURCE_LASTS_NS)
        source->failures = 0;
    if (source->failures++ == 0) {
        source->since_ns = now_ns;
        source->pause_ns = EVENT_SOURCE_PAUSE_NS;
    } else if (source->pause_ns < EVENT_SOURCE_PAUSE_MAX_NS) {
        source->pause_ns *= 2;
    }
    /* EBADF: it left the set when it was closed. */
    (void)epoll_ctl(source->epoll_fd, EPOLL_CTL_DEL, source->fd, NULL);
    source->out = true;
    source->again_ns = now_ns + source->pause_ns;
    if (source->failures >= EVENT_SOURCE_LASTS_FAILURES &&
        now_ns - source->since_ns >= EVENT_SOURCE_LASTS_NS)
        return EVENT_SOURCE_LASTS;
    bool first = !source->told;
    source->told = true;
    return first ? EVENT_SOURCE_FIRST : EVENT_SOURCE_SAME;
}

int event_source_resume(struct event_source *source, uint64_t now_ns) {
    if (!source->out || now_ns < source->again_ns)
        return 0;
    struct epoll_event interest = {.events = EPOLLIN, .data.ptr = source->data};
    if (epoll_ctl(source->epoll_fd, EPOLL_CTL_ADD, source->fd, &interest) != 0 && errno != EEXIST)
        return errno;
    source->out = false;
    return 0;
}
