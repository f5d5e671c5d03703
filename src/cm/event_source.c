/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * event_source.c - the descriptors that bring events to the CM thread; and the end of all sessions when one fails.
 *
 * A failure to fetch an event is counted, logged once, and followed by a pause (base/epoll_source.h). When it
 * lasts, no events of the connections, or of the queue pairs, arrive any more: every session of the node ends
 * with DEVICE_ERROR, and so does, within a longest pause, each that is begun before the failure is over. A failed
 * channel of lookups ends no session: lookups are answered without it.
 *
 * Owner: the CM thread.
 */
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>

#include "cm/internal.h"
#include "cm/resolver.h"
#include "core/context.h"

static void failed(struct cm *cm, struct event_source *source, int error, const char *what) {
    struct cm_conn *conn;
    if (source != &cm->async_source)
        stats_add(&cm->stats->fetch_failed, 1);
    else
        stats_add(&cm->stats->async_failed, 1);
    switch (event_source_pause(source, cm->now_ns)) {
    case EVENT_SOURCE_SAME:
        break;
    case EVENT_SOURCE_FIRST:
        /* Of a device that is removed this is to be expected. */
        log_write(&cm->node->log, cm->device_lost ? SLUICE_LOG_DEBUG : SLUICE_LOG_WARNING,
                  "%s cannot be fetched: %s; tried again", what, strerror(error));
        break;
    case EVENT_SOURCE_LASTS:
        if (source == &cm->names_source || cm->device_lost)
            break;
        cds_list_for_each_entry(conn, &cm->conns, link)
            cm_fail(cm, conn, SLUICE_REASON_DEVICE_ERROR, (uint32_t)error,
                    "%s cannot be fetched: %s", what, strerror(error));
        break;
    }
}

static const char *name_of(const struct cm *cm, const struct event_source *source) {
    return source == &cm->async_source ? "events of the device"
           : source == &cm->source     ? "events of rdma_cm"
                                       : "lookups of rdma_cm";
}

static void settle(struct cm *cm, struct event_source *source, uint32_t events, unsigned count,
                   int error) {
    error = event_source_result(events, count, error);
    if (error != 0)
        failed(cm, source, error, name_of(cm, source));
    else
        event_source_ok(source);
}

unsigned cm_event_sources_channel(struct cm *cm, uint32_t events) {
    cm_assert_thread(cm);
    int error;
    unsigned count = cm_take_events(cm, cm->channel, &error);
    settle(cm, &cm->source, events, count, error);
    return count;
}

unsigned cm_event_sources_addrinfo(struct cm *cm, uint32_t events) {
    cm_assert_thread(cm);
    int error;
    unsigned count = cm_take_events(cm, resolver_channel(cm->resolver), &error);
    settle(cm, &cm->names_source, events, count, error);
    return count;
}

void cm_event_sources_device(struct cm *cm, uint32_t events) {
    cm_assert_thread(cm);
    unsigned count;
    int error = cm_async(cm, &count);
    if (!cm->device_gone)
        settle(cm, &cm->async_source, events, count, error);
}

/* Before a decision that an event may change: fetches CM and device events. No more once the device is lost. */
void cm_hear_now(struct cm *cm) {
    cm_assert_thread(cm);
    struct pollfd fds[2] = {{.fd = cm->source.out ? -1 : cm->channel->fd, .events = POLLIN}};
    if (cm->device_lost)
        return;
    fds[1] = (struct pollfd){.fd = cm->async_source.out ? -1 : cm->node->context->async_fd,
                             .events = POLLIN};
    if (poll(fds, 2, 0) <= 0)
        return;
    if (fds[0].revents & POLLIN)
        (void)cm_event_sources_channel(cm, EPOLLIN);
    if (fds[1].revents & POLLIN)
        cm_event_sources_device(cm, EPOLLIN);
}

void cm_event_sources_resume(struct cm *cm) {
    cm_assert_thread(cm);
    struct event_source *const sources[] = {&cm->source, &cm->async_source, &cm->names_source};
    for (unsigned i = 0; i < sizeof sources / sizeof sources[0]; i++) {
        int error = event_source_resume(sources[i], cm->now_ns);
        if (error != 0)
            failed(cm, sources[i], error, name_of(cm, sources[i]));
    }
}

uint64_t cm_event_sources_due(const struct cm *cm) {
    cm_assert_thread(cm);
    uint64_t due = event_source_due(&cm->source), device = event_source_due(&cm->async_source);
    uint64_t names = event_source_due(&cm->names_source);
    due = device < due ? device : due;
    return names < due ? names : due;
}
