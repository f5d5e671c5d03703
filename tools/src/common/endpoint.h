/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * endpoint.h - what lat, bw and cat share: a node without workers, one loop that the main thread
 * polls, and one session at a time on it, dialed or accepted.
 *
 * A listening endpoint lets clients queue for a short while where the tool says so, and refuses
 * others with a reason. Whatever ends a session is kept, so that it can be told in one place.
 *
 * Functions that return int return 0, or the exit status after saying what went wrong, unless
 * their comment says otherwise.
 *
 * Owner: the main thread. Invariant: `up` and `closed` speak of `session` only; a borrowed message
 * lives until the next call that polls.
 */
#ifndef ENDPOINT_H
#define ENDPOINT_H

#include <stdbool.h>
#include <stdint.h>

#include <sluice/sluice.h>

#include "common/control.h"
#include "common/many.h"
#include "common/pin.h"
#include "common/tool.h"
#include "common/units.h"

enum endpoint_mode { MODE_SPIN, MODE_ADAPTIVE, MODE_BLOCK };
extern const char *const endpoint_mode_names[]; /* in that order, for OPTION_CHOICE */

#define ENDPOINT_QUEUE_MAX 8
#define ENDPOINT_RESUME_MIN_NS UINT64_C(10000000) /* of --resume */
#define ENDPOINT_RESUME_MAX_NS (UINT64_C(86400) * 1000000000)
#define ENDPOINT_ANSWER_NS UINT64_C(10000000000) /* to wait for an answer */
#define ENDPOINT_POLL_NS UINT64_C(100000000)     /* a usual wait_ns of endpoint_poll() */

struct endpoint_options {
    const char *device; /* NULL = the library's choice */
    uint64_t mode;      /* enum endpoint_mode */
    bool pin;
    bool wait;       /* dial: for a server that is not there yet */
    int64_t cpu;     /* -1 = the first free one */
    uint32_t queue;  /* clients that may wait for their turn, up to ENDPOINT_QUEUE_MAX */
    uint32_t window; /* link options, 0 = default */
    uint32_t credits, requests;
    uint32_t sessions;   /* of this node at a time, more than the default; 0 = default */
    uint32_t without;    /* bits of techniques.h */
    uint64_t resume_ns;  /* link option, 0 = the loss of its connection ends a session */
    uint32_t rendezvous; /* node option, 0 = default */
    uint64_t rendezvous_above;
    enum control_tool tool;
};

struct waiting {
    sluice_session session;
    uint64_t since_ns;
};

struct endpoint {
    struct endpoint_options options;
    struct pin pin;
    sluice_node *node;
    sluice_loop *loop;
    sluice_listener listener;
    bool listening, deaf;          /* deaf: its device is gone */
    bool share_cpu;                /* in spin mode: the peer has the same CPU, so sleep after all */
    uint64_t quiet_since_ns;       /* 0 = something moved lately */
    char address[ADDRESSES_BYTES]; /* of the server, as given */

    sluice_session session;
    bool have_session, up, closed;
    uint32_t down;    /* sessions, that one and those beside it, that are without a connection */
    bool writable;    /* a WRITABLE event came; whoever waits for it clears it first */
    sluice_event end; /* the CLOSED event */
    char end_text[128];
    char peer[64];
    uint64_t message_bytes_max; /* agreed with the peer */
    uint64_t data_size;         /* of data messages: control messages have another length */

    struct many many; /* sessions beside that one */

    struct waiting waiting[ENDPOINT_QUEUE_MAX];
    uint32_t waiting_count;
    uint32_t waiting_looks;
};

int endpoint_open(struct endpoint *ep, const struct endpoint_options *options);
void endpoint_close(struct endpoint *ep);

/* Listens and says "listening on HOST:PORT" on standard error. */
int endpoint_listen(struct endpoint *ep, const char *address);
/* Waits for the next client, as long as it takes. */
int endpoint_accept(struct endpoint *ep);
int endpoint_dial(struct endpoint *ep, const char *address);
/* What a session of this endpoint has. */
sluice_link_options endpoint_link_options(const struct endpoint *ep);
/* Keeps why the session, or one beside it, ended: for endpoint_fail_closed(). */
void endpoint_ended(struct endpoint *ep, const sluice_event *event);
/* The session, or one beside it, lost its connection (DOWN), or is up: then it may have another one. */
void endpoint_down(struct endpoint *ep, const sluice_event *event, const char *which);
/* Ends the session: what was sent is delivered first. Waits for its end, for a bounded time. */
void endpoint_hangup(struct endpoint *ep);
/* The session ended when it should not have: says why. Returns TOOL_FAILED. */
int endpoint_fail_closed(struct endpoint *ep, const char *during);
/* The peer spins on the same CPU. A server that was not told where to run moves away; else sleeping for a while is right. */
void endpoint_share_cpu(struct endpoint *ep);
/* "spin", "adaptive" or "block", as it really is. */
const char *endpoint_mode_name(const struct endpoint *ep);

/* Every event that is not a MESSAGE goes here. */
void endpoint_event(struct endpoint *ep, const sluice_event *event);

void endpoint_look_at_waiting(struct endpoint *ep);
int endpoint_poll_slow(struct endpoint *ep, sluice_event *events, int max, uint64_t wait_ns);

/*
 * The polling call of the data phase, which waits in the endpoint's mode: returns the number of
 * events, 0 after wait_ns, or -1: a stop signal, or nothing moved for half a minute (said).
 *
 * The wait is the library's even while spinning: a poll that returns with nothing leaves the loop's
 * descriptor armed, and then every message of the peer pays for waking somebody who is awake.
 */
static inline int endpoint_poll(struct endpoint *ep, sluice_event *events, int max,
                                uint64_t wait_ns) {
    if (!ep->share_cpu && tool_stopped() == 0) {
        int n = sluice_poll(ep->loop, events, max, wait_ns);
        if (n > 0) {
            ep->quiet_since_ns = 0;
            if (ep->waiting_count > 0)
                endpoint_look_at_waiting(ep);
            return n;
        }
    }
    return endpoint_poll_slow(ep, events, max, wait_ns);
}

/*
 * Sleeps until there is an event: 1 with *event, which endpoint_event() has seen. 0: until_ns
 * (absolute, SLUICE_OFF = no limit) has passed, or other_fd (-1 = none) is ready, then *other_ready
 * is true. -1: a stop signal, or the loop failed (said).
 */
int endpoint_wait(struct endpoint *ep, sluice_event *event, uint64_t until_ns, int other_fd,
                  short other_events, bool *other_ready);

int endpoint_send_slow(struct endpoint *ep, sluice_session session, sluice_msg *msg, bool borrowed,
                       int status);

/* Sends and waits for room if need be; the message is gone in every case. */
static inline int endpoint_send_on(struct endpoint *ep, sluice_session session, sluice_msg *msg,
                                   bool borrowed) {
    int status = sluice_send(session, msg, NULL);
    return status == 0 ? 0 : endpoint_send_slow(ep, session, msg, borrowed, status);
}

static inline int endpoint_send(struct endpoint *ep, sluice_msg *msg, bool borrowed) {
    return endpoint_send_on(ep, ep->session, msg, borrowed);
}

/* Sends a control message; waits for room if need be. */
int endpoint_say(struct endpoint *ep, const struct control *control);
/* A message with the control message in it, ready to be sent, or NULL (said). */
sluice_msg *endpoint_compose(struct endpoint *ep, const struct control *control);
/* Says it here and to the peer. Returns TOOL_FAILED. */
int endpoint_fail_both(struct endpoint *ep, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/*
 * Sleeps until a message comes, limit_ns at most (SLUICE_OFF = no limit), or until the peer hangs
 * up: then *ended, or a failure when ended is NULL.
 */
int endpoint_await(struct endpoint *ep, sluice_event *event, uint64_t limit_ns, bool *ended);
/* endpoint_await() for a control message of this kind, ENDPOINT_ANSWER_NS at most. */
int endpoint_hear(struct endpoint *ep, struct control *out, unsigned kind, bool *ended);
/*
 * Decodes a MESSAGE that must be a control message of this kind, 0 = data was due. The peer's FAILED
 * is told as an error.
 */
int endpoint_decode(struct endpoint *ep, const sluice_event *event, struct control *out,
                    unsigned kind);

#endif
