/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * stats.h - counters of a live node in shared memory, read by sluice-stat.
 *
 * A memfd named "sluice-stat" that stays open while the node lives; a reader finds it among the
 * descriptors in /proc/PID/fd, so that nothing is left behind by a killed process. Each counter has
 * one writing thread (plain relaxed stores); readers may see counters of slightly different ages.
 * The page is data for a reader of another process: fixed layout, magic and version first.
 */
#ifndef BASE_STATS_H
#define BASE_STATS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define STATS_MAGIC 0x53544c53u /* "SLTS" */
#define STATS_VERSION 9u
#define STATS_CLASSES 53 /* sizes of buffers; the last: mappings of their own */
#define STATS_LOOPS_MAX 64
#define STATS_CM_EVENTS 21      /* 0..19 and "unknown" */
#define STATS_SESSIONS_MAX 1024 /* that are listed; more are only counted */
#define STATS_PEER_BYTES 64

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
    X(alloc_stalls, "times a session waited for memory")                                           \
    X(retained, "messages the application keeps now")                                              \
    X(srq_limit_events, "times the SRQ limit was reached")                                         \
    X(progress_calls, "calls of the progress function")                                            \
    X(empty_progress_calls, "those of them that found nothing")                                    \
    X(sleeps, "times the loop slept")                                                              \
    X(posts, "post_send calls")                                                                    \
    X(completions, "completions polled")                                                           \
    X(polls, "CQ polls that brought completions")                                                  \
    X(send_wrs, "send work requests posted")                                                       \
    X(receive_posts, "post_recv calls")                                                            \
    X(receive_wrs, "receive work requests posted")                                                 \
    X(longest_busy_ns, "longest time at work without a wait, up to 64 progress calls (ns)")        \
    X(stalls, "times that was longer than 1 ms")                                                   \
    X(fetch_failed, "failures to fetch completion events")

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
    X(handshakes, "handshakes under way now")                                                      \
    X(queued, "requests waiting for a handshake now")                                              \
    X(busy, "requests refused as busy")                                                            \
    X(evicted, "slow peers that had to make room for others")                                      \
    X(address_changed, "tries cut short because an address changed")                               \
    X(fetch_failed, "failures to fetch events of rdma_cm")                                         \
    X(async_failed, "failures to fetch events of the device")                                      \
    X(progress_calls, "iterations of the CM thread")

/* X(name): IBV_EVENT_name, in the order of their numbers; behind them those without a name here. */
#define STATS_ASYNC_LIST(X)                                                                        \
    X(CQ_ERR)                                                                                      \
    X(QP_FATAL)                                                                                    \
    X(QP_REQ_ERR)                                                                                  \
    X(QP_ACCESS_ERR)                                                                               \
    X(COMM_EST)                                                                                    \
    X(SQ_DRAINED)                                                                                  \
    X(PATH_MIG)                                                                                    \
    X(PATH_MIG_ERR)                                                                                \
    X(DEVICE_FATAL)                                                                                \
    X(PORT_ACTIVE)                                                                                 \
    X(PORT_ERR)                                                                                    \
    X(LID_CHANGE)                                                                                  \
    X(PKEY_CHANGE)                                                                                 \
    X(SM_CHANGE)                                                                                   \
    X(SRQ_ERR)                                                                                     \
    X(SRQ_LIMIT_REACHED)                                                                           \
    X(QP_LAST_WQE_REACHED)                                                                         \
    X(CLIENT_REREGISTER)                                                                           \
    X(GID_CHANGE)                                                                                  \
    X(WQ_FATAL)                                                                                    \
    X(DEVICE_SPEED_CHANGE)

enum {
#define STATS_X(name) STATS_ASYNC_##name,
    STATS_ASYNC_LIST(STATS_X)
#undef STATS_X
        STATS_ASYNC_UNKNOWN,
    STATS_ASYNC_EVENTS
};

/* X(name, what it counts) - of one pool; written by whichever loop worked last, from the pool's own */
#define STATS_MEMORY_LIST(X)                                                                       \
    X(bytes, "bytes registered")                                                                   \
    X(bytes_max, "bytes at most")                                                                  \
    X(ordinary, "bytes on ordinary pages")                                                         \
    X(transparent, "bytes for which transparent huge pages were asked")                            \
    X(huge_2m, "bytes on pages of 2 MiB")                                                          \
    X(huge_1g, "bytes on pages of 1 GiB")                                                          \
    X(numa_bound, "bytes bound to the NUMA node wished for")                                       \
    X(huge_missed, "bytes so far that should have been on huge pages")                             \
    X(grown_ahead, "arenas added before they were needed")                                         \
    X(grown_on_demand, "arenas added while a session waited")                                      \
    X(alloc_waits, "times a session waited for memory to come back")                               \
    X(alloc_wakeups, "times such a wait was woken")

/*
 * X(name, what it counts) - how one thread was woken that slept; a signal to one that is awake is none.
 * user_events_written and wakeups_merged are raised by the thread that signals, and shown by the thread that was woken.
 */
#define STATS_WAKEUP_LIST(X)                                                                       \
    X(user_events_written, "wakeups by a user event of rdma_cm")                                   \
    X(user_events_received, "user events received")                                                \
    X(user_events_stray, "user events that no thread wrote")                                       \
    X(user_events_failed, "failures to fetch user events; after one eventfd is used")              \
    X(wakeups_merged, "wakeups while another was on its way")                                      \
    X(wakeups_by_eventfd, "wakeups by eventfd, where user events cannot be had")

struct stats_wakeup {
#define STATS_X(name, text) _Atomic uint64_t name;
    STATS_WAKEUP_LIST(STATS_X)
#undef STATS_X
};

/* Buffers of one size: handed out so far, and returned. */
struct stats_buffers {
    _Atomic uint64_t gets, puts;
};

/* Memory for sending and sluice_alloc() is in one pool, memory for receiving in another. */
enum stats_pool { STATS_SEND, STATS_RECEIVE, STATS_POOLS };

struct stats_memory {
#define STATS_X(name, text) _Atomic uint64_t name;
    STATS_MEMORY_LIST(STATS_X)
#undef STATS_X
    _Atomic int64_t numa; /* the NUMA node it is to be on, -1 = none */
    /* by threads that poll no loop, and by loops that were closed */
    struct stats_buffers buffers[STATS_CLASSES];
} __attribute__((aligned(256)));

struct stats_loop {
#define STATS_X(name, text) _Atomic uint64_t name;
    STATS_LOOP_LIST(STATS_X)
#undef STATS_X
    struct stats_wakeup wakeup;
    _Atomic int64_t cpu;      /* -1 = not pinned */
    _Atomic uint64_t in_use;  /* 0 = slot free */
    _Atomic uint64_t drained; /* 1 = a worker that gets no new sessions; by any thread */
    _Atomic uint64_t idle;    /* sluice_idle in force; by any thread */
    _Atomic int64_t numa;     /* NUMA node of the CPU, -1 = not pinned, or not known */
    struct stats_buffers buffers[STATS_POOLS][STATS_CLASSES];
} __attribute__((aligned(256)));

struct stats_cm {
#define STATS_X(name, text) _Atomic uint64_t name;
    STATS_CM_LIST(STATS_X)
#undef STATS_X
    struct stats_wakeup wakeup;
    _Atomic uint64_t events[STATS_CM_EVENTS];   /* by rdma_cm event number, last = unknown */
    _Atomic uint64_t async[STATS_ASYNC_EVENTS]; /* the device's, likewise */
} __attribute__((aligned(256)));

/* A session that is up; written by its loop's thread, when it comes and when it goes. */
struct stats_session {
    _Atomic uint64_t id;                         /* 0: none, or the row is being written */
    _Atomic uint64_t loop, transport;            /* enum sluice_transport */
    _Atomic uint64_t peer[STATS_PEER_BYTES / 8]; /* its address, as text */
};

struct stats_page {
    uint32_t magic, version;
    uint64_t bytes; /* of the whole mapping */
    uint64_t start_ns;
    int64_t pid;
    char name[64];
    char device[64];
    _Atomic uint64_t memory_bytes;
    uint64_t class_bytes[STATS_CLASSES]; /* payload a buffer has room for; 0: any */
    struct stats_memory memory[STATS_POOLS];
    struct stats_cm cm;
    struct stats_loop loops[STATS_LOOPS_MAX];
    struct stats_session sessions[STATS_SESSIONS_MAX]; /* by their slot in the node's table */
};

struct stats {
    struct stats_page *page;
    int fd;
};

int stats_open(struct stats *stats, const char *name, const char *device); /* 0 or -errno */
void stats_forked(struct stats *stats); /* the page is the parent's: the child has none */
void stats_close(struct stats *stats);

/* One writer a counter: a load and a store, no locked instruction. */
static inline void stats_add(_Atomic uint64_t *counter, uint64_t n) {
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

/* A row's owner. A session whose slot has no row is not listed. */
void stats_session_up(struct stats_page *page, uint32_t slot, uint64_t id, uint32_t loop,
                      uint32_t transport, const char *peer);
void stats_session_down(struct stats_page *page, uint32_t slot);

/* A private copy of a row; the text is what the other process says, and ends. */
struct stats_session_row {
    uint64_t id, loop, transport;
    char peer[STATS_PEER_BYTES];
};
/* False: there is no session, or it came or went meanwhile. */
static inline bool stats_session_read(struct stats_session_row *row,
                                      const struct stats_session *from) {
    uint64_t text[STATS_PEER_BYTES / 8];
    row->id = atomic_load_explicit(&from->id, memory_order_acquire);
    if (row->id == 0)
        return false;
    row->loop = atomic_load_explicit(&from->loop, memory_order_relaxed);
    row->transport = atomic_load_explicit(&from->transport, memory_order_relaxed);
    for (unsigned i = 0; i < STATS_PEER_BYTES / 8; i++)
        text[i] = atomic_load_explicit(&from->peer[i], memory_order_relaxed);
    memcpy(row->peer, text, sizeof row->peer);
    row->peer[sizeof row->peer - 1] = '\0';
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&from->id, memory_order_relaxed) == row->id;
}

/*
 * Maps the counters of every node of a process, read-only, up to max; returns how many were found
 * or -errno (ESRCH no such process, EACCES not allowed, ENOENT it has no node, EPROTO a page of
 * another version). Sizes and magic are checked. Unmap with stats_detach().
 */
int stats_attach(int pid, const struct stats_page **pages, int max);
void stats_detach(const struct stats_page *page);

#endif
