/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * stats.h - counters of a live node in shared memory, read by sluice-stat.
 *
 * A memfd named "sluice-stat" that stays open while the node lives; a reader finds it among the
 * descriptors in /proc/PID/fd, so that nothing is left behind by a killed process. Each counter has
 * one writing thread (plain relaxed stores); readers may see counters of slightly different ages.
 * The page is data for a reader of another process: fixed layout, magic and version first.
 */
#ifndef SLUICE_STATS_H
#define SLUICE_STATS_H

#include <stdatomic.h>
#include <stdint.h>

#define STATS_MAGIC 0x53544c53u /* "SLTS" */
#define STATS_VERSION 2u
#define STATS_LOOPS_MAX 64
#define STATS_CM_EVENTS 21 /* 0..19 and "unknown" */

/* X(name, what it counts) - written by the loop's thread */
#define STATS_LOOP_LIST(X)                                                                         \
    X(sessions, "sessions open")                                                                   \
    X(messages_sent, "messages sent")                                                              \
    X(messages_received, "messages received")                                                      \
    X(bytes_sent, "payload bytes sent")                                                            \
    X(bytes_received, "payload bytes received")                                                    \
    X(frames_sent, "frames sent")                                                                  \
    X(frames_received, "frames received")                                                          \
    X(credit_stalls, "times a session had something to send and no credit")                        \
    X(window_full, "sends refused with EAGAIN")                                                    \
    X(memory_stalls, "times a receive waited for memory")                                          \
    X(turns, "loop turns")                                                                         \
    X(empty_turns, "loop turns that found nothing")                                                \
    X(sleeps, "times the loop slept")                                                              \
    X(posts, "post_send calls")                                                                    \
    X(completions, "completions polled")

/* X(name, what it counts) - written by the CM thread */
#define STATS_CM_LIST(X)                                                                           \
    X(dials, "connections started")                                                                \
    X(requests, "connection requests received")                                                    \
    X(accepted, "sessions established as listener")                                                \
    X(connected, "sessions established as dialer")                                                 \
    X(refused, "requests refused by this side")                                                    \
    X(failed, "dials that failed")                                                                 \
    X(closed, "sessions closed")                                                                   \
    X(listeners, "listeners open")                                                                 \
    X(handshakes, "peers being let in now")                                                        \
    X(queued, "requests waiting for that now")                                                     \
    X(busy, "requests refused as busy")                                                            \
    X(evicted, "slow peers that had to make room for others")                                      \
    X(turns, "CM thread turns")

struct stats_loop {
#define STATS_X(name, text) _Atomic uint64_t name;
    STATS_LOOP_LIST(STATS_X)
#undef STATS_X
    _Atomic int64_t cpu;      /* -1 = not pinned */
    _Atomic uint64_t in_use;  /* 0 = slot free */
    _Atomic uint64_t drained; /* 1 = a worker that gets no new sessions; by any thread */
} __attribute__((aligned(256)));

struct stats_cm {
#define STATS_X(name, text) _Atomic uint64_t name;
    STATS_CM_LIST(STATS_X)
#undef STATS_X
    _Atomic uint64_t events[STATS_CM_EVENTS]; /* by rdma_cm event number, last = unknown */
} __attribute__((aligned(256)));

struct stats_page {
    uint32_t magic, version;
    uint64_t bytes; /* of the whole mapping */
    uint64_t start_ns;
    int64_t pid;
    char name[64];
    char device[64];
    _Atomic uint64_t memory_bytes;
    struct stats_cm cm;
    struct stats_loop loops[STATS_LOOPS_MAX];
};

struct stats {
    struct stats_page *page;
    int fd;
};

int stats_open(struct stats *stats, const char *name, const char *device); /* 0 or -errno */
void stats_close(struct stats *stats);

/* One writer a counter: a load and a store, no locked instruction. */
static inline void stats_add(_Atomic uint64_t *counter, uint64_t n) {
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

/*
 * Maps the counters of every node of a process, read-only, up to max; returns how many were found
 * or -errno (ESRCH no such process, EACCES not allowed, ENOENT it has no node, EPROTO a page of
 * another version). Sizes and magic are checked. Unmap with stats_detach().
 */
int stats_attach(int pid, const struct stats_page **pages, int max);
void stats_detach(const struct stats_page *page);

#endif
