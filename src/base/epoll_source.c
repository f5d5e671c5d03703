/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * epoll_source.c - takes a descriptor that fails out of its epoll set, and puts it back after a pause.
 *
 * Owner: the thread that waits on the set.
 */
#include "base/epoll_source.h"

#include <stddef.h>
#include <sys/epoll.h>

int source_open(struct source *source, int epoll_fd, int fd, void *data) {
    struct epoll_event interest = {.events = EPOLLIN, .data.ptr = data};
    *source = (struct source){.epoll_fd = epoll_fd, .fd = fd, .data = data};
    return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &interest) != 0 ? -errno : 0;
}

int source_verdict(uint32_t events, unsigned fetched, int error) {
    if (source_failed(error))
        return error;
    return fetched == 0 && events & (EPOLLERR | EPOLLHUP) ? EIO : 0;
}

void source_fine(struct source *source) {
    source->failures = 0;
}

enum source_news source_pause(struct source *source, uint64_t now_ns) {
    /* In the set for long and quiet: what was before is another story. */
    if (source->failures > 0 && now_ns > source->again_ns + SOURCE_LASTS_NS)
        source->failures = 0;
    if (source->failures++ == 0) {
        source->since_ns = now_ns;
        source->pause_ns = SOURCE_PAUSE_NS;
    } else if (source->pause_ns < SOURCE_PAUSE_MAX_NS) {
        source->pause_ns *= 2;
    }
    /* EBADF: it left the set when it was closed. */
    (void)epoll_ctl(source->epoll_fd, EPOLL_CTL_DEL, source->fd, NULL);
    source->out = true;
    source->again_ns = now_ns + source->pause_ns;
    if (source->failures >= SOURCE_LASTS_FAILURES && now_ns - source->since_ns >= SOURCE_LASTS_NS)
        return SOURCE_LASTS;
    bool first = !source->told;
    source->told = true;
    return first ? SOURCE_FIRST : SOURCE_SAME;
}

int source_resume(struct source *source, uint64_t now_ns) {
    if (!source->out || now_ns < source->again_ns)
        return 0;
    struct epoll_event interest = {.events = EPOLLIN, .data.ptr = source->data};
    if (epoll_ctl(source->epoll_fd, EPOLL_CTL_ADD, source->fd, &interest) != 0 && errno != EEXIST)
        return errno;
    source->out = false;
    return 0;
}
