/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cm.h - the connection-management thread: every rdma_cm_id of a node, listeners, timers, device
 * events.
 *
 * One epoll over the event channel, the device's async events, and the thread's wakeup. Events
 * are copied and acknowledged before anything else is done with them, so that rdma_destroy_id()
 * can never wait for this thread itself. What an event does in which state is in cm_table.c. The
 * thread never runs application code and never touches a QP: it tells loops what to do by messages
 * (loop_post) and is told by messages (cm_post). One exception: when the device is gone it lends a
 * hand to loops that nobody polls (device_removal.c).
 *
 * Owner: the CM thread, except where marked. cm_progress() is one round of it and may be called from a
 * test instead of the thread.
 */
#ifndef CM_CM_H
#define CM_CM_H

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/env.h"
#include "base/epoll_source.h"
#include "base/stats.h"
#include "cm/admission.h"
#include "core/connection.h"
#include "core/context.h"
#include "core/listener_end.h"
#include "core/mailbox.h"
#include "core/session.h"
#include "core/session_table.h"

#define CM_EVENT_UNKNOWN 20 /* column of every event number this library does not know */
#define CM_EVENT_COUNT 21
_Static_assert(CM_EVENT_COUNT == STATS_CM_EVENTS, "the statistics page counts the same events");
#define LISTENERS_MAX 256

/* A private copy of an rdma_cm event, taken before it was acknowledged. */
struct cm_event {
    unsigned type; /* column: 0..19, or CM_EVENT_UNKNOWN */
    int status;
    struct rdma_cm_id *id, *listen_id;
    struct cm_owner *owner; /* the id's, or the listener's: read before it was acknowledged */
    uint32_t qp_num;
    uint8_t retry_count, rnr_retry_count; /* the peer's; a response has no retry_count */
    uint32_t data_bytes;
    uint8_t data[256];
};

/* Of a connection's two retry counts, which have three bits: the most, and of an RNR without end. */
#define CM_RETRIES_MAX 7

enum listener_life {
    LISTENER_FREE,
    LISTENER_STARTING,
    LISTENER_LISTENING,
    LISTENER_LOST,     /* the device is gone; its loop tells the application, once */
    LISTENER_TOLD,     /* and has done so */
    LISTENER_STOPPING, /* sluice_unlisten() was called */
    LISTENER_FAILED,
};

/* In a table that lives as long as the process; the handle carries slot and generation. */
struct cm_listener {
    struct cm_owner owner; /* first */
    struct sluice_node *node;
    _Atomic uint64_t word; /* generation << 32 | life */
    uint32_t slot;
    struct mpsc_queue_item item;
    struct link_config link;
    union address address;
    struct sluice_loop *loops[STATS_LOOPS_MAX]; /* what link.loops points to */
    /* written by the CM thread before it answers under the node's lock */
    uint16_t port;
    int os_errno;
    sluice_reason reason;
    char text[160];
};

struct cm_resolver;
struct cm_lookup;
struct cm_connector;

struct cm {
    struct sluice_node *node;
    struct rdma_event_channel *channel;
    int epoll_fd;
    struct cm_conn *conns;
    uint64_t next_deadline_ns; /* no deadline is earlier; may be too early itself */
    uint64_t now_ns;
    struct admission admission;
    const struct cm_event *cause;   /* the event that is being handled, or NULL */
    struct cm_resolver *resolver;   /* NULL until a host name was dialed */
    struct cm_connector *connector; /* NULL: connecting does not block on this device */
    struct event_source source, async_source,
        names_source; /* the last: with a resolver that has a channel */
    /* the device's end (device_removal.c) */
    struct cm_owner watch;   /* an id bound to the device and nothing more */
    struct fabric_mark mark; /* rdma_cm's own context of it */
    bool device_lost, device_gone;
    uint64_t ports_down[4]; /* a bit for each of which it was told (async_event.c) */
    uint64_t moved_ns; /* the last warning of an address that changed (addr_change.c); 0: none */
    uint64_t lost_ns;
    pthread_t thread;
    bool started;
    _Atomic bool stop;
    struct stats_cm *stats;
    struct mailbox *mailbox; /* the node's cm_mailbox */
};

struct sluice_node;

/* 0 or a negative status with *e. thread false: the caller drives cm_progress(). */
int cm_open(struct cm *cm, struct sluice_node *node, bool thread, sluice_error *e);
/* Every session is gone; listeners that are left are closed. */
void cm_close(struct cm *cm);
/* One round; sleeps up to wait_ns when there is nothing. Returns how many things it did. */
unsigned cm_progress(struct cm *cm, uint64_t wait_ns);

_Static_assert(CM_MSG_UNLISTEN < WAKEUP_VERBS, "the wakeup carries them");

/* A message of a session for its loop. */
static inline void cm_tell_loop(struct session *s, enum loop_msg verb) {
    s->node->upcalls->loop_post(atomic_load(&s->loop), s, verb);
}

/*
 * The transport's own number behind a status: errno, reject reason. It may be any int. -1 is no EPERM: the
 * library says it where its errno has the reason, which stands in the status then (cm_take_events), or where
 * nobody knows one: 0.
 */
static inline uint32_t cm_code(int status) {
    if (status == -1)
        return 0;
    return status < 0 ? 0u - (uint32_t)status : (uint32_t)status;
}

/* A status in a text, with what it means if it is an errno: for the format and for its arguments. */
#define CM_STATUS_FORMAT "status %d%s%s"
#define CM_STATUS(status) (status), cm_colon(status), cm_meaning(status)

static inline const char *cm_colon(int status) {
    return status == -1 ? ", " : status < 0 ? ": " : "";
}

static inline const char *cm_meaning(int status) {
    return status == -1 ? "the stack gives no reason"
           : status < 0 ? strerror((int)cm_code(status))
                        : "";
}

/*
 * What the errno of a call says that speaks to a peer who is waiting for it, accept or establish: the peer
 * gave up and the id is past all that (an iWARP device, which answers itself, says so with ECONNRESET or
 * EPIPE); else it is our side.
 */
static inline sluice_reason cm_reason_of_answer(int error) {
    bool gone = error == EINVAL || error == ECONNRESET || error == EPIPE || error == ENOTCONN;
    return gone ? SLUICE_REASON_PEER_LOST : SLUICE_REASON_DEVICE_ERROR;
}

/* ---- listeners, any thread (listen.c) -------------------------------------------------------- */
/* Set in the slot of a listener's handle: it never looks like a session's. */
#define LISTENER_SLOT 0x800000u
_Static_assert(SESSION_TABLE_MAX <= LISTENER_SLOT, "and no session's like a listener's");

/* A fork waits until nobody is inside: before it, and on both sides after it. */
void listeners_fork(bool begins);
struct cm_listener *listener_take(struct sluice_node *node); /* STARTING; NULL: none free */
/* LISTENING, LOST or TOLD, which is written to *life; NULL: stale. */
struct cm_listener *listener_find(uint64_t id, enum listener_life *life);
uint64_t listener_handle(struct cm_listener *listener);
void listener_stop(struct cm_listener *listener, uint32_t generation);
void listener_give_back(struct cm_listener *listener);

/* For the loop's thread: upcalls.h. */
enum listener_news listener_next_end(struct sluice_node *node, const struct sluice_loop *l,
                                     bool array, bool handlers, struct listener_end *out);

/* ---- the table (cm_table.c) ------------------------------------------------------------------ */
typedef void cm_run(struct cm *cm, struct cm_owner *owner, const struct cm_event *event);
struct cm_cell {
    cm_run *run;
    const char *ignored; /* why nothing has to be done */
};
extern const struct cm_cell cm_table[CM_STATE_COUNT][CM_EVENT_COUNT];
const char *cm_state_name(unsigned state);
const char *cm_event_name(unsigned type);

/* ---- between the files of src/cm: the CM thread only ----------------------------------------- */

/* Handlers of the table. */
cm_run cm_on_request, cm_on_addr_resolved, cm_on_addr_error, cm_on_route_resolved,
    cm_on_route_error, cm_on_response, cm_on_rejected, cm_on_lost, cm_on_connect_error,
    cm_on_established, cm_on_closed_early, cm_on_disconnected, cm_on_device_removal,
    cm_on_listener_removal, cm_on_watch_removal, cm_on_addrinfo_resolved, cm_on_addrinfo_error,
    cm_on_addr_change;

/* Records of loops and of the application. */
void cm_dial(struct cm *cm, struct cm_conn *conn);
unsigned cm_take_names(struct cm *cm);              /* of the resolver */
unsigned cm_take_calls(struct cm *cm);              /* of the connector */
void cm_begin(struct cm *cm, struct cm_conn *conn); /* a new connection; its time runs */
void cm_answer(struct cm *cm,
               struct cm_conn *conn); /* its turn has come: CREATING_QP_PASSIVE, or it fails */
void cm_accept_now(struct cm *cm, struct cm_conn *conn);
void cm_prepared(struct cm *cm, struct cm_conn *conn);
void cm_ready(struct cm *cm, struct cm_conn *conn);
void cm_answered(struct cm *cm, struct cm_conn *conn);
void cm_release(struct cm *cm, struct cm_conn *conn);
void cm_drained(struct cm *cm, struct cm_conn *conn);
void cm_handshake_done(struct cm *cm, struct cm_conn *conn);
/* rdma_connect(), which may be going on when this returns (connect_call.c); and what its errno means. */
void cm_connect(struct cm *cm, struct cm_conn *conn, struct rdma_conn_param *param);
void cm_connect_failed(struct cm *cm, struct cm_conn *conn, int error);
/* An event says what came of it. */
void cm_decided(struct cm_conn *conn);
/* The try is given up while it goes on. True: its id is gone, and its QP goes with cm_give_left(). */
bool cm_leave(struct cm *cm, struct cm_conn *conn);
void cm_give_left(struct cm *cm, struct cm_conn *conn);
void cm_listen(struct cm *cm, struct cm_listener *listener);
void cm_unlisten(struct cm *cm, struct cm_listener *listener);
/*
 * Sets what the link asks for (id_options.c). NULL, or the name of the option the stack refused, and errno.
 * cm_conn_options: false: the connection has failed for that.
 */
const char *cm_set_options(struct cm *cm, struct rdma_cm_id *id, const struct link_config *link,
                           bool listening);
bool cm_conn_options(struct cm *cm, struct cm_conn *conn);
void cm_unlisten_all(struct cm *cm); /* any thread: posts the messages */
void cm_listeners_lost(struct cm *cm);
struct cm_listener *cm_listener_at(struct cm *cm, uint32_t slot);

void cm_enter(struct cm *cm, struct cm_conn *conn, enum cm_state state);
void cm_watch(struct cm *cm, struct cm_conn *conn, uint64_t deadline_ns);
void cm_watch_step(struct cm *cm, struct cm_conn *conn, uint64_t step_ns);
void cm_adopt(struct cm *cm, struct cm_conn *conn);
void cm_arrived(struct cm *cm, struct cm_conn *conn);
void cm_up(struct cm *cm, struct cm_conn *conn);
/* A try that got no answer because this process may open no more files. */
bool cm_short_of_files(struct cm *cm, struct cm_conn *conn, const struct cm_event *event);
extern const char cm_no_random[]; /* instead of a nonce that could be guessed */
/* The connection cannot be or is no more: tells the loop once, and waits for its RELEASE. */
void cm_fail(struct cm *cm, struct cm_conn *conn, sluice_reason reason, uint32_t vendor,
             const char *format, ...) __attribute__((format(printf, 5, 6)));
/* The same with what is known already; cm_describe() fills it from the event being handled. */
void cm_end(struct cm *cm, struct cm_conn *conn, const struct cm_failure *why);
void cm_describe(const struct cm *cm, struct cm_failure *why, sluice_reason reason, uint32_t vendor,
                 const char *format, va_list args) __attribute__((format(printf, 5, 0)));
bool cm_same_device(struct cm *cm, struct rdma_cm_id *id);
/* Attributes of one QP state from rdma_cm, with what it leaves at bad values set right. */
bool cm_attributes(struct cm *cm, struct cm_conn *conn, enum ibv_qp_state state,
                   struct ibv_qp_attr *attr, int *mask);
void cm_proposal(struct cm *cm, const struct link_config *link, struct private_data_req *out);
int cm_async(struct cm *cm, unsigned *count); /* device events; the errno it ended with */
/* What a device says that changes nothing here: counted, and told to the application's log (async_event.c). */
void cm_async_event_count(struct cm *cm, const struct ibv_async_event *event); /* every event */
void cm_async_event_port(struct cm *cm, const struct ibv_async_event *event);
void cm_async_event_device(struct cm *cm, const struct ibv_async_event *event);

/* ---- descriptors that fail (event_source.c) --------------------------------------------------------- */
unsigned cm_event_sources_channel(struct cm *cm, uint32_t events); /* epoll reported these */
unsigned cm_event_sources_addrinfo(struct cm *cm, uint32_t events);
void cm_event_sources_device(struct cm *cm, uint32_t events);
void cm_hear_now(struct cm *cm);                    /* what was said until now, ahead of epoll */
void cm_event_sources_resume(struct cm *cm);        /* each round: pauses that are over */
uint64_t cm_event_sources_due(const struct cm *cm); /* the first of them, or UINT64_MAX */

/* ---- the end of a device (device_removal.c) ------------------------------------------------------------ */
void cm_watch_device(struct cm *cm); /* at opening */
/* By the addresses of the interface that a GID names by its hardware address, among these. */
struct ifaddrs;
bool cm_watch_by_hardware(struct cm *cm, const union ibv_gid *gid, const struct ifaddrs *list);
void cm_device_lost(struct cm *cm); /* it failed or is being removed; again and again is fine */
void cm_detach(struct cm *cm);      /* each round afterwards */

/* ---- the dialer's tries (dial_retry.c) ------------------------------------------------------------ */
enum cm_hope {
    CM_HOPE_NONE,      /* what failed fails everywhere and again */
    CM_HOPE_ELSEWHERE, /* another address may do */
    CM_HOPE_LATER,     /* it may pass */
};
void cm_try_first(struct cm *cm, struct cm_conn *conn); /* the addresses are known */
/* A step towards the peer failed: the next address, a pause, or the end of the dial. */
void cm_try_failed(struct cm *cm, struct cm_conn *conn, enum cm_hope hope, sluice_reason reason,
                   uint32_t vendor, const char *format, ...) __attribute__((format(printf, 6, 7)));
enum cm_hope cm_hope_of(sluice_reason reason);          /* of what a peer or its device answered */
void cm_try_share(struct cm *cm, struct cm_conn *conn); /* this candidate's time begins */
void cm_step_over(struct cm *cm, struct cm_conn *conn); /* step_ns passed */
void cm_time_over(struct cm *cm, struct cm_conn *conn); /* deadline_ns passed */
int cm_milliseconds(struct cm *cm, struct cm_conn *conn); /* left for this step */

/* ---- connecting where that blocks (connector.c) ----------------------------------------------- */
struct cm_connect; /* one call, of one try */

/* Starts no thread. 0 or -errno. */
int connector_open(struct cm_connector **out, struct mailbox *wake,
                   const struct fabric_ops *fabric);
/* rdma_connect() of conn's id, by somebody else. NULL: no memory, or no thread, and errno. */
struct cm_connect *connector_connect(struct cm_connector *c, struct cm_conn *conn,
                                     const struct rdma_conn_param *param);
bool connector_has_answers(struct cm_connector *c);
/* Whose call has returned, and the errno it failed with or 0; NULL: nobody's. */
struct cm_conn *connector_answer(struct cm_connector *c, int *error);
/* It has returned, and what came of it is known: nothing about the id or the QP blocks any more. */
void connector_end(struct cm_connect *call);
/*
 * The try is given up. True: the id is the connector's, and so is the queue pair, which it waits for by
 * connector_give(). False: nothing is under way; the call is ended, and both are the caller's as ever.
 */
bool connector_leave(struct cm_connector *c, struct cm_connect *call);
/* Drained, and of no more use to anybody; NULL: there is none. The call is ended. */
void connector_give(struct cm_connector *c, struct cm_connect *call, struct ibv_qp *qp);
/* Any thread. Calls were left whose queue pairs are there still, or will be given. */
bool connector_busy(struct cm_connector *c);
/* Where it is busy: true, and what its queue pairs or ids hold goes when they have gone. */
bool connector_inherit_cq(struct cm_connector *c, struct ibv_cq *cq,
                          struct ibv_comp_channel *completions);
bool connector_inherit_channel(struct cm_connector *c, struct rdma_event_channel *channel);
/* No answers any more. */
void connector_detach_wakeup(struct cm_connector *c);
/* The same of a node, which may have none. A loop's thread. */
bool cm_connect_inherits(struct sluice_node *n, struct ibv_cq *cq,
                         struct ibv_comp_channel *completions);
/* Waits for nobody. True: PD and context are left to it as well. */
bool connector_close(struct cm_connector *c, struct ibv_pd *pd, struct ibv_context *context);

/* ---- the resolver (resolver.c) --------------------------------------------------------------- */
struct cm_names {
    uint64_t id;
    int error;    /* of getaddrinfo(), or 0 and at least one address, with port 0 */
    int os_errno; /* behind that error, or 0 */
    unsigned count;
    union address addresses[CM_CANDIDATES];
};
/*
 * Starts no thread. 0 or -errno. rdma_cm is asked too where it can be: if it takes user events (then the
 * wakeup of `wake` is one), and if nobody has a resolver of his own in env.
 */
int resolver_open(struct cm_resolver **out, struct mailbox *wake, const struct fabric_ops *fabric,
                  const struct sluice_env *env);
/* Where rdma_cm's events of lookups come; NULL: it is not asked. As long as the resolver is open. */
struct rdma_event_channel *resolver_channel(struct cm_resolver *resolver);
/* Never waits for a name server: lookups under way are left to themselves. */
void resolver_close(struct cm_resolver *resolver);
/* 0 or -errno. id comes back with the answer. */
int resolver_ask(struct cm_resolver *resolver, uint64_t id, const char *host);
/*
 * Next lookup that is done, in the order in which they came, or NULL. If rdma_cm was asked, its event is in
 * the channel by then; the lookup ends with resolver_answer().
 */
struct cm_lookup *resolver_take(struct cm_resolver *resolver);
void resolver_answer(struct cm_resolver *resolver, struct cm_lookup *lookup, struct cm_names *out);
bool resolver_has_answers(struct cm_resolver *resolver);
const char *resolver_text(int error);

/* ---- what rdma_cm knows of a name (addrinfo.c) -------------------------------------------------- */
struct cm_addrinfo_query {
    struct cm_owner owner; /* first; its id is there from the call to the answer */
    union address found;   /* of no family: nothing was */
};
/* A resolver thread, for as long as it takes. 0: an event is on its way, or was taken; or -errno. */
int cm_addrinfo_ask(struct cm_addrinfo_query *query, const struct fabric_ops *fabric,
                    struct rdma_event_channel *channel, const char *host);
void cm_addrinfo_end(struct cm_addrinfo_query *query, const struct fabric_ops *fabric);
/* What rdma_cm found comes first, if it is among them. */
void cm_addrinfo_prefer(const struct cm_addrinfo_query *query, struct cm_names *names);
bool cm_same_host(const union address *a, const union address *b);
#define CM_EVENTS_MAX 64 /* taken in one round; the descriptor stays readable */
/* The events of a channel, up to a limit; how many, and the errno with which it ended, or 0. */
unsigned cm_take_events(struct cm *cm, struct rdma_event_channel *channel, int *error);

#endif
