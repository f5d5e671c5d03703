/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * internal.h - what the files of the connection manager share.
 *
 * Owner: the CM thread, except where marked.
 */
#ifndef CM_INTERNAL_H
#define CM_INTERNAL_H

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "cm/cm.h"
#include "cm/cm_table.h"
#include "cm/listen.h"
#include "core/context.h"
#include "core/session.h"
#include "core/upcalls.h"

struct ifaddrs;

/* ---- cm.c -------------------------------------------------------------------------------------- */

/* A message of a connection for its loop. */
static inline void cm_tell_loop(struct cm_conn *conn, enum loop_msg verb) {
    struct connection *c = connection_of_conn(conn);
    c->session->node->upcalls->loop_post(c->loop, c, verb);
}

/*
 * The transport's own number behind a status: errno, reject reason. It may be any int. -1 is no EPERM: it is what
 * a call returns whose errno has the reason; that stands in the status then (cm_take_events), or the reason is
 * not known: 0.
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
 * The reason behind the errno of accept or establish, calls that answer a peer that waits: the peer
 * gave up and the id is past that state (an iWARP device, which answers itself, says so with ECONNRESET or
 * EPIPE); else the fault is on our side.
 */
static inline sluice_reason cm_reason_of_answer(int error) {
    bool gone = error == EINVAL || error == ECONNRESET || error == EPIPE || error == ENOTCONN;
    return gone ? SLUICE_REASON_PEER_LOST : SLUICE_REASON_DEVICE_ERROR;
}

/* False: the dialer has confirmed the connection, or ended it, which is not known here yet. */
bool cm_say_no(struct cm *cm, struct cm_conn *conn, const struct private_data_rej *rej);
void cm_watch(struct cm *cm, struct cm_conn *conn, uint64_t deadline_ns);
void cm_watch_step(struct cm *cm, struct cm_conn *conn, uint64_t step_ns);
/* The events of a channel, up to a limit; how many, and the errno with which it ended, or 0. */
unsigned cm_take_events(struct cm *cm, struct rdma_event_channel *channel, int *error);

/* ---- accept.c ---------------------------------------------------------------------------------- */

void cm_answer(struct cm *cm,
               struct cm_conn *conn); /* admitted: CREATING_QP_PASSIVE, or it fails */
void cm_accept_now(struct cm *cm, struct cm_conn *conn);
void cm_answered(struct cm *cm, struct cm_conn *conn);
void cm_handshake_done(struct cm *cm, struct cm_conn *conn);
void cm_arrived(struct cm *cm, struct cm_conn *conn);

/* ---- async_event.c ----------------------------------------------------------------------------- */

/* Device events that change nothing here: counted, and written to the application's log (async_event.c). */
void cm_async_event_count(struct cm *cm, const struct ibv_async_event *event); /* every event */
void cm_async_event_port(struct cm *cm, const struct ibv_async_event *event);
void cm_async_event_device(struct cm *cm, const struct ibv_async_event *event);

/* ---- connect_call.c ---------------------------------------------------------------------------- */

unsigned cm_take_calls(struct cm *cm); /* of the connector */
/* rdma_connect(), which may be going on when this returns. */
void cm_connect(struct cm *cm, struct cm_conn *conn, struct rdma_conn_param *param);
/* An event says what came of it. */
void cm_decided(struct cm_conn *conn);
/* The try is given up while it goes on. True: its id is gone, and its QP goes with cm_give_left(). */
bool cm_leave(struct cm *cm, struct cm_conn *conn);
void cm_give_left(struct cm *cm, struct cm_conn *conn);
/* A try whose call failed with that errno, or that found so while it looked for the peer's host. */
void cm_connect_failed(struct cm *cm, struct cm_conn *conn, int error);
/* A try that got no answer because of something on this side: no file, no port, no route. */
bool cm_failed_here(struct cm *cm, struct cm_conn *conn, const struct cm_event *event);

/* ---- conn_state.c ------------------------------------------------------------------------------ */

void cm_enter(struct cm *cm, struct cm_conn *conn, enum cm_state state);
void cm_adopt(struct cm *cm, struct cm_conn *conn);
void cm_up(struct cm *cm, struct cm_conn *conn);
/* The connection cannot be or is no more: tells the loop once, and waits for its RELEASE. */
void cm_fail(struct cm *cm, struct cm_conn *conn, sluice_reason reason, uint32_t vendor,
             const char *format, ...) __attribute__((format(printf, 5, 6)));
/* cm_fail() with a failure that is known already; cm_describe() fills one from the event being handled. */
void cm_end(struct cm *cm, struct cm_conn *conn, const struct cm_failure *why);
void cm_describe(const struct cm *cm, struct cm_failure *why, sluice_reason reason, uint32_t vendor,
                 const char *format, va_list args) __attribute__((format(printf, 5, 0)));
/* The loop lets go of it: it is disconnected or rejected, and the loop drains its queue pair. */
void cm_release(struct cm *cm, struct cm_conn *conn);
/* The loop has done so, no queue pair is left: the id goes, and the connection is gone. */
void cm_drained(struct cm *cm, struct cm_conn *conn);

/* ---- device_removal.c -------------------------------------------------------------------------- */

void cm_watch_device(struct cm *cm); /* at opening */
bool cm_watch_by_interface(struct cm *cm, const union ibv_gid *gid, const struct ifaddrs *list);
void cm_device_lost(struct cm *cm); /* it failed or is being removed; again and again is fine */
void cm_detach(struct cm *cm);      /* each round afterwards */

/* ---- dial.c ------------------------------------------------------------------------------------ */

/* Records of loops and of the application. */
void cm_dial(struct cm *cm, struct cm_conn *conn);
void cm_begin(struct cm *cm, struct cm_conn *conn); /* a new connection; its time runs */
void cm_prepared(struct cm *cm, struct cm_conn *conn);
void cm_dial_turn(struct cm *cm, struct cm_conn *conn); /* of a dial that was IN_LINE */
void cm_ready(struct cm *cm, struct cm_conn *conn);

/* ---- dial_hope.c ------------------------------------------------------------------------------- */

enum cm_hope {
    CM_HOPE_NONE,      /* what failed fails everywhere and again */
    CM_HOPE_ELSEWHERE, /* another address may do */
    CM_HOPE_LATER,     /* it may pass */
};

enum cm_hope cm_hope_of(sluice_reason reason); /* of what a peer or its device answered */
/* Of a dial with SLUICE_WAIT: what is not there may come. */
enum cm_hope cm_hope_of_waiting(enum cm_hope hope, sluice_reason reason);

static inline bool cm_waits(const struct cm_conn *conn) {
    const struct connection *c = connection_of_conn((struct cm_conn *)(uintptr_t)conn);
    return conn->resume.on || (c->session->link_config.flags & SLUICE_WAIT);
}

/* One try, at one address. */
static inline bool cm_tries_once(const struct cm_conn *conn) {
    const struct connection *c = connection_of_conn((struct cm_conn *)(uintptr_t)conn);
    return !conn->resume.on && (c->session->link_config.flags & SLUICE_ONCE);
}

/* ---- dial_names.c ------------------------------------------------------------------------------ */

/* A name of this dial is to be looked up before the next round. */
bool cm_names_wanted(const struct cm_conn *conn);
void cm_names_ask(struct cm *cm, struct cm_conn *conn);   /* a round of tries follows */
void cm_names_use(struct cm *cm, struct cm_conn *conn);   /* it begins, with what is known */
void cm_names_leave(struct cm *cm, struct cm_conn *conn); /* no lookup is waited for any longer */
unsigned cm_take_names(struct cm *cm);                    /* of the resolver */

/* ---- dial_race.c ------------------------------------------------------------------------------- */

static inline bool cm_race_may_go_on(enum cm_state state) {
    return state == CM_RESOLVING_NAME || state == CM_BACKOFF || state == CM_RESOLVING_ADDR ||
           state == CM_RESOLVING_ROUTE;
}

/* Asks for its route. 0, or -1 and errno. */
int cm_race_route(struct cm *cm, struct cm_conn *conn);
/* The try that has the connection's place goes on beside it. */
void cm_race_aside(struct cm *cm, struct cm_conn *conn);
/* One that goes on beside it, of which an event came, takes that place, and the one that had it makes way. */
struct cm_owner *cm_race_forward(struct cm *cm, struct cm_owner *owner);
/* The first that was begun takes the place, in which there is none. False: no try is under way. */
bool cm_race_forward_first(struct cm *cm, struct cm_conn *conn);
/* One more may begin: if as many as may be are under way, the first that was begun is given up. */
void cm_race_make_room(struct cm *cm, struct cm_conn *conn);
/* A bit for each candidate that is tried beside the connection's place. */
uint8_t cm_race_under_way(const struct cm_conn *conn);
/* All those are given up, and may be tried again. */
void cm_race_end(struct cm *cm, struct cm_conn *conn);

/* ---- dial_retry.c ------------------------------------------------------------------------------ */

void cm_try_first(struct cm *cm, struct cm_conn *conn); /* a dial begins */
/* It goes on, with a pause, over another connection. */
void cm_try_again(struct cm *cm, struct cm_conn *conn);
/* The addresses are known, or more of them may become known: then it is not the last round. */
void cm_round_begin(struct cm *cm, struct cm_conn *conn, bool more_may_come);
/* A step towards the peer failed: the next address, a pause, or the end of the dial. */
void cm_try_failed(struct cm *cm, struct cm_conn *conn, enum cm_hope hope, sluice_reason reason,
                   uint32_t vendor, const char *format, ...) __attribute__((format(printf, 6, 7)));
/* What failed was no try yet: it is kept as the last failure, and what follows is the caller's. */
void cm_try_note(struct cm *cm, struct cm_conn *conn, enum cm_hope hope, sluice_reason reason,
                 uint32_t vendor, const char *format, ...) __attribute__((format(printf, 6, 7)));
/* The listener wants a handshake: the same address again with one. False: it had one, or this is no try any more. */
bool cm_try_greeting(struct cm *cm, struct cm_conn *conn);
/* The queue pair broke. False: of no try; the caller ends the connection. */
bool cm_try_broke(struct cm *cm, struct cm_conn *conn, sluice_reason reason, uint32_t vendor,
                  const char *what);
void cm_try_share(struct cm *cm,
                  struct cm_conn *conn); /* its request is sent: its time for an answer begins */
void cm_try_show(struct cm *cm, struct cm_conn *conn);    /* its address, as the session's */
void cm_step_over(struct cm *cm, struct cm_conn *conn);   /* step_ns passed */
void cm_time_over(struct cm *cm, struct cm_conn *conn);   /* deadline_ns passed */
int cm_milliseconds(struct cm *cm, struct cm_conn *conn); /* left for the dial */

/* ---- event_source.c ---------------------------------------------------------------------------- */

unsigned cm_event_sources_channel(struct cm *cm, uint32_t events); /* epoll reported these */
unsigned cm_event_sources_addrinfo(struct cm *cm, uint32_t events);
void cm_event_sources_device(struct cm *cm, uint32_t events);
void cm_hear_now(struct cm *cm);                    /* what was said until now, ahead of epoll */
void cm_event_sources_resume(struct cm *cm);        /* each round: pauses that are over */
uint64_t cm_event_sources_due(const struct cm *cm); /* the first of them, or UINT64_MAX */
#define CM_EVENTS_MAX 64 /* taken in one round; the descriptor stays readable */

/* ---- id_options.c ------------------------------------------------------------------------------ */

/*
 * Sets what the link asks for (id_options.c). NULL, or the name of the option the stack refused, and errno.
 * cm_conn_options: false: the connection has failed for that.
 */
const char *cm_set_options(struct cm *cm, struct rdma_cm_id *id, const struct link_config *link,
                           bool listening);
bool cm_conn_options(struct cm *cm, struct cm_conn *conn);

/* ---- qp_attr.c --------------------------------------------------------------------------------- */

/* Of a connection's two retry counts, which have three bits: the most, and of an RNR without end. */
#define CM_RETRIES_MAX 7
extern const char cm_no_random[]; /* instead of a nonce that could be guessed */
bool cm_same_device(struct cm *cm, struct rdma_cm_id *id);
/* Attributes of one QP state from rdma_cm, with what it leaves at bad values set right. */
bool cm_attributes(struct cm *cm, struct cm_conn *conn, enum ibv_qp_state state,
                   struct ibv_qp_attr *attr, int *mask);
/*
 * Also names a byte to the peer, where a peer may have to READ it to learn what has arrived although this device's
 * own completions say that to most peers. Without memory for the byte none is named.
 */
void cm_offer_probe(struct cm *cm, struct private_data_req *out);
void cm_proposal(struct cm *cm, const struct link_config *link, struct private_data_req *out);
int cm_async(struct cm *cm, unsigned *count); /* device events; the errno it ended with */

#endif
