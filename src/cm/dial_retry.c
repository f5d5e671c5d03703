/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * dial_retry.c - the dialer's tries: one address after the other, pauses between the rounds, the limits.
 *
 *   try -> fails -> next address -> ... -> all tried -> one failure may pass? -> pause -> first address
 *
 * A try has an id of its own, a session id and a nonce of its own; the QP, still in INIT and not on
 * any id, is the session's and stays. After a listener has answered, the next try is that of another connection
 * (datapath/session/redial.c).
 *
 * Pauses double from PAUSE_FIRST_NS to PAUSE_LAST_NS, each stretched by a random factor between one
 * half and one and a half, so that dialers refused together do not come back together.
 *
 * Of several addresses one whose host does not answer has a head start of HEAD_START_NS (RFC 8305 (5), "connection attempt
 * delay"), and twice that in each round that follows. Then the next one begins beside it (dial_race.c), and the first to
 * have a route sends its request: from then on it is alone. So there is one request at a time, and a listener that is
 * reached by two addresses gets no two. While other addresses of the round are left, the answer has its share of the time
 * that is left, and no more.
 *
 * Owner: the CM thread.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cm/internal.h"
#include "core/context.h"
#include "core/failure_text.h"

#define PAUSE_FIRST_NS 20000000ull
#define PAUSE_LAST_NS 2000000000ull
#define HEAD_START_NS 250000000ull
#define HEAD_START_LAST_NS 16000000000ull
#define UNLIMITED_MS 10000 /* for one step of a dial without a deadline */
#define WAITING_MS 5000 /* and of one with SLUICE_WAIT: looking anew notices a host that comes up */
#define ASK_MOST_NS 30000000000ull /* for an answer to a request, of those two */
#define SLICE_FIRST_MS 50          /* of looking for an address */
#define SLICE_LAST_MS 1000
#define SLICE_EARLY_NS 12000000u /* a tick of the slowest kernel, by which it may be early */

/* A bit for each candidate that was not tried in this round. */
static unsigned untried(const struct cm_conn *conn) {
    return ((1u << conn->candidate_count) - 1) & ~(unsigned)conn->begun;
}

/* ---- time ------------------------------------------------------------------------------------ */

int cm_milliseconds(struct cm *cm, struct cm_conn *conn) {
    cm_assert_thread(cm);
    uint64_t due = conn->deadline_ns;
    uint64_t most = cm_waits(conn) ? WAITING_MS : due == 0 ? UNLIMITED_MS : 600000;
    if (due == 0)
        return (int)most;
    uint64_t left = due > cm->now_ns ? (due - cm->now_ns) / 1000000 : 0;
    return left < 1 ? 1 : left > most ? (int)most : (int)left;
}

/* When this try has had its part of the time that is left; 0: it has all of it. */
static uint64_t share_end(const struct cm *cm, const struct cm_conn *conn) {
    unsigned left = 1 + (unsigned)__builtin_popcount(untried(conn));
    bool never = conn->deadline_ns == 0;
    if ((left == 1 && !cm_waits(conn)) || (!never && conn->deadline_ns <= cm->now_ns))
        return 0;
    uint64_t most = never || cm_waits(conn) ? ASK_MOST_NS : UINT64_MAX;
    uint64_t share = never ? most : (conn->deadline_ns - cm->now_ns) / left;
    return cm->now_ns + (share < most ? share : most);
}

void cm_try_share(struct cm *cm, struct cm_conn *conn) {
    cm_assert_thread(cm);
    bool in_line =
        conn->owner.state == CM_IN_LINE; /* for long perhaps, and no address is to blame */
    conn->pausing = false;
    cm_watch_step(cm, conn, in_line && untried(conn) == 0 ? 0 : share_end(cm, conn));
}

static void give_head_start(struct cm *cm, struct cm_conn *conn) {
    uint64_t share = share_end(cm, conn), due = cm->now_ns + conn->head_start_ns;
    if (share != 0 && share < due)
        due = share;
    conn->pausing = false;
    cm_watch_step(cm, conn, conn->candidate_count > 1 ? due : 0);
}

static bool trying(const struct cm_conn *conn) {
    unsigned state = conn->owner.state;
    return !conn->passive &&
           (state == CM_RESOLVING_NAME || state == CM_BACKOFF || state == CM_RESOLVING_ADDR ||
            state == CM_RESOLVING_ROUTE || state == CM_CREATING_QP || state == CM_IN_LINE ||
            state == CM_CONNECTING);
}

/* ---- a try ----------------------------------------------------------------------------------- */

/* A user with a second machine has to learn that it is the device, not the network, that ends here. */
static void address_elsewhere(struct cm *cm, struct cm_conn *conn) {
    union address *address = &conn->candidates[conn->search.candidate];
    char host[INET6_ADDRSTRLEN] = "the address";
    inet_ntop(address->any.sa_family,
              address->any.sa_family == AF_INET ? (void *)&address->v4.sin_addr
                                                : (void *)&address->v6.sin6_addr,
              host, sizeof host);
    bool option = cm->node->options.soft_net == SLUICE_SOFT_NET_OFF;
    cm_try_failed(cm, conn, CM_HOPE_ELSEWHERE, SLUICE_REASON_ADDRESS, EREMOTE,
                  "%s is another host, and %s keeps the device in this one: docs/two-hosts.md",
                  host, option ? "soft_net" : "SLUICE_SOFT_NET");
}

/* The call says some of this, the event the rest, depending on the kernel. */
static void address_failed(struct cm *cm, struct cm_conn *conn, int error) {
    if (error == EREMOTE && cm->node->traits.keeps_to_host) {
        address_elsewhere(cm, conn);
        return;
    }
    if (failure_text_short_of_files(error) || error == ENOMEM || error == ENOBUFS) {
        cm_try_failed(cm, conn,
                      failure_text_short_of_files(error) ? CM_HOPE_LATER : CM_HOPE_ELSEWHERE,
                      failure_text_reason_of_call(error), (uint32_t)error,
                      "the address cannot be looked at: %s", strerror(error));
        return;
    }
    if (error == EADDRNOTAVAIL) {
        cm_try_failed(cm, conn, CM_HOPE_LATER, SLUICE_REASON_DEVICE_ERROR, EADDRNOTAVAIL, "%s",
                      failure_text_no_port);
        return;
    }
    bool unreachable = error == ETIMEDOUT || error == ENETUNREACH || error == EHOSTUNREACH;
    cm_try_failed(cm, conn, error == ETIMEDOUT ? CM_HOPE_LATER : CM_HOPE_ELSEWHERE,
                  unreachable ? SLUICE_REASON_UNREACHABLE : SLUICE_REASON_ADDRESS, (uint32_t)error,
                  "the address cannot be resolved: %s",
                  error == ENODEV ? "no RDMA device leads there"
                  : error == 0    ? "the stack gives no reason"
                                  : strerror(error));
}

/*
 * Linux 7.x may look at a neighbour that has answered only when the time it was given is over. So it is given
 * little at first, and asked again: its own questions to the neighbour go on meanwhile.
 */
static bool search(struct cm *cm, struct cm_conn *conn) {
    struct cm_search *at = &conn->search;
    union address *address = &conn->candidates[at->candidate];
    uint64_t left = at->until_ns > cm->now_ns ? (at->until_ns - cm->now_ns) / 1000000 : 0;
    int ms = left < 1 ? 1 : left < at->slice_ms ? (int)left : (int)at->slice_ms;
    at->slice_ns = cm->now_ns;
    return cm->node->fabric->resolve_addr(conn->owner.id, NULL, &address->any, ms) == 0;
}

static bool slice_is_over(const struct cm *cm, const struct cm_search *at) {
    return cm->now_ns - at->slice_ns + SLICE_EARLY_NS >= at->slice_ms * 1000000ull &&
           cm->now_ns + SLICE_EARLY_NS <= at->until_ns;
}

void cm_on_addr_error(struct cm *cm, struct cm_owner *owner, const struct cm_event *event) {
    struct cm_conn *conn = (struct cm_conn *)(void *)owner;
    int error = (int)cm_code(event->status);
    cm->now_ns = env_now(&cm->node->env);
    struct cm_search *at = &conn->search;
    if (error == ETIMEDOUT && slice_is_over(cm, at)) {
        at->slice_ms = at->slice_ms < SLICE_LAST_MS / 2 ? at->slice_ms * 2 : SLICE_LAST_MS;
        if (search(cm, conn))
            return;
        error = errno;
    }
    address_failed(cm, conn, error);
}

void cm_try_show(struct cm *cm, struct cm_conn *conn) {
    cm_assert_thread(cm);
    pthread_mutex_lock(&cm->node->lock);
    address_format(&conn->candidates[conn->search.candidate].any,
                   session_of_conn(conn)->peer.address);
    pthread_mutex_unlock(&cm->node->lock);
}

static void try_candidate(struct cm *cm, struct cm_conn *conn, unsigned candidate) {
    const struct fabric_ops *fabric = cm->node->fabric;
    struct session *s = session_of_conn(conn);
    cm->cause = NULL; /* what comes now is not the doing of the event that ended the last try */
    conn->down.code = 0;
    pthread_mutex_lock(&cm->node->lock);
    conn->search = (struct cm_search){.candidate = (uint8_t)candidate, .number = ++s->info.tries};
    pthread_mutex_unlock(&cm->node->lock);
    conn->begun |= (uint8_t)(1u << candidate);
    cm_try_show(cm, conn);
    cm_enter(cm, conn, CM_RESOLVING_ADDR);
    give_head_start(cm, conn);
    if (fabric->create_id(cm->channel, &conn->owner.id, &conn->owner, RDMA_PS_TCP) != 0) {
        int error = errno;
        conn->owner.id = NULL;
        cm_try_failed(cm, conn,
                      failure_text_short_of_files(error) ? CM_HOPE_LATER : CM_HOPE_ELSEWHERE,
                      failure_text_reason_of_call(error), (uint32_t)error, "no rdma_cm id: %s",
                      strerror(error));
        return;
    }
    if (!cm_conn_options(cm, conn))
        return;
    /* A little less than there is: ADDR_ERROR says more than our own deadline would. */
    uint64_t time = (uint64_t)cm_milliseconds(cm, conn) * 1000000;
    conn->search.until_ns = cm->now_ns + time - time / 8;
    conn->search.slice_ms = SLICE_FIRST_MS;
    if (!search(cm, conn))
        address_failed(cm, conn, errno);
}

/* ---- what else to try ------------------------------------------------------------------------ */

static void pause_round(struct cm *cm, struct cm_conn *conn) {
    const struct sluice_env *env = &cm->node->env;
    uint32_t spread;
    env->random_bytes(env->arg, &spread, sizeof spread);
    uint64_t pause = conn->pause_ns / 2 + (conn->pause_ns * spread >> 32);
    conn->pause_ns = conn->pause_ns < PAUSE_LAST_NS / 2 ? conn->pause_ns * 2 : PAUSE_LAST_NS;
    if (conn->head_start_ns < HEAD_START_LAST_NS)
        conn->head_start_ns *= 2;
    cm_enter(cm, conn, CM_BACKOFF);
    conn->pausing = true;
    cm_watch_step(cm, conn, cm->now_ns + pause);
}

/* The place of the connection is empty: its try failed, or goes on beside it. */
static void go_on(struct cm *cm, struct cm_conn *conn) {
    unsigned left = untried(conn), all = (1u << conn->candidate_count) - 1;
    if (conn->naming) {
        cm_enter(cm, conn,
                 CM_RESOLVING_NAME); /* a try failed meanwhile; the next round has not begun */
    } else if (left != 0) {
        cm_race_make_room(cm, conn);
        try_candidate(cm, conn, (unsigned)__builtin_ctz(left)); /* so deep as there are, at most */
    } else if (conn->pausing) {
        cm_enter(cm, conn, CM_BACKOFF); /* likewise */
    } else if (conn->may_pass && (all == 0 || cm_race_under_way(conn) != all)) {
        pause_round(cm, conn);
    } else if (!cm_race_forward_first(cm, conn)) {
        cm_end(cm, conn, &conn->last);
    }
}

/* Tries that are under way go on, so their addresses are not tried again. */
void cm_round_begin(struct cm *cm, struct cm_conn *conn, bool more_may_come) {
    cm_assert_thread(cm);
    if (conn->candidate_count > 1 && cm_tries_once(conn))
        conn->candidate_count = 1;
    conn->begun = cm_race_under_way(conn);
    conn->may_pass =
        conn->begun != 0 || more_may_come; /* their silence, or that of a name server */
    conn->pausing = false;
    go_on(cm, conn);
}

void cm_try_first(struct cm *cm, struct cm_conn *conn) {
    cm_assert_thread(cm);
    conn->pause_ns = PAUSE_FIRST_NS;
    conn->head_start_ns = HEAD_START_NS;
    if (conn->places)
        cm_names_ask(cm, conn);
    else
        cm_round_begin(cm, conn, false);
}

void cm_try_again(struct cm *cm, struct cm_conn *conn) {
    cm_assert_thread(cm);
    pause_round(cm, conn);
}

/* The pause is over. */
static void next_round(struct cm *cm, struct cm_conn *conn) {
    if (cm_names_wanted(conn))
        cm_names_ask(cm, conn);
    else
        cm_round_begin(cm, conn, false);
}

/* The id of this try, and with it every event of it that was not fetched. */
static void drop_id(struct cm *cm, struct cm_conn *conn) {
    if (conn->call)
        (void)cm_leave(cm, conn);
    if (conn->owner.id)
        cm->node->fabric->destroy_id(conn->owner.id);
    conn->owner.id = NULL;
    conn->rejectable = conn->established = conn->unread = false;
}

/* What the dial ends with if no try succeeds. */
static void note(struct cm *cm, struct cm_conn *conn, enum cm_hope hope,
                 const struct cm_failure *why) {
    struct session *s = session_of_conn(conn);
    char line[256];
    failure_text_of_end(line, sizeof line, why->reason, why->text);
    log_write(&cm->node->log, SLUICE_LOG_DEBUG, "try %u, %s: %s", conn->search.number,
              s->peer.address, line);
    /* A busy address keeps a dial going, so its error is the one that a dial in vain ends with. The error of an
     * address of this host is reported rather than that another address is not of this host. */
    bool elsewhere = why->reason == SLUICE_REASON_ADDRESS && why->vendor == EREMOTE;
    if (hope == CM_HOPE_LATER ||
        (!conn->may_pass && (!elsewhere || conn->last.reason == SLUICE_REASON_NONE)))
        conn->last = *why;
    conn->may_pass |= hope == CM_HOPE_LATER;
    pthread_mutex_lock(&cm->node->lock);
    if (s->close.reason == SLUICE_REASON_NONE) /* its loop has ended it by now, and said why */
        snprintf(s->info.close_text, sizeof s->info.close_text, "%s", why->text);
    pthread_mutex_unlock(&cm->node->lock);
}

void cm_try_failed(struct cm *cm, struct cm_conn *conn, enum cm_hope hope, sluice_reason reason,
                   uint32_t vendor, const char *format, ...) {
    cm_assert_thread(cm);
    struct cm_failure why = {.code = conn->down.code};
    if (conn->reported)
        return;
    if (cm_waits(conn))
        hope = cm_hope_of_waiting(hope, reason);
    va_list args;
    va_start(args, format);
    cm_describe(cm, &why, reason, vendor, format, args);
    va_end(args);
    if (!trying(conn) || hope == CM_HOPE_NONE || cm_tries_once(conn)) {
        cm_end(cm, conn, &why);
        return;
    }
    note(cm, conn, hope, &why);
    drop_id(cm, conn);
    go_on(cm, conn);
}

void cm_try_note(struct cm *cm, struct cm_conn *conn, enum cm_hope hope, sluice_reason reason,
                 uint32_t vendor, const char *format, ...) {
    cm_assert_thread(cm);
    struct cm_failure why = {.code = conn->down.code};
    va_list args;
    va_start(args, format);
    cm_describe(cm, &why, reason, vendor, format, args);
    va_end(args);
    note(cm, conn, hope, &why);
}

/*
 * A listener on another kind of device than ours may not send first (accept.c), so it asks for the dialer's first
 * frame. It is the same try, so SLUICE_ONCE does not forbid it.
 */
bool cm_try_greeting(struct cm *cm, struct cm_conn *conn) {
    cm_assert_thread(cm);
    if (conn->req.features & PRIVATE_DATA_FEATURE_HANDSHAKE || !trying(conn) || conn->reported)
        return false;
    conn->greets = true;
    drop_id(cm, conn);
    try_candidate(cm, conn, conn->search.candidate);
    return true;
}

bool cm_try_broke(struct cm *cm, struct cm_conn *conn, sluice_reason reason, uint32_t vendor,
                  const char *what) {
    cm_assert_thread(cm);
    if (!trying(conn))
        return false;
    conn->used_up = true; /* the next try makes another one */
    if (conn->owner.state == CM_CONNECTING || conn->owner.state == CM_IN_LINE)
        cm_try_failed(cm, conn, CM_HOPE_LATER, reason, vendor, "%s (event %u)", what, vendor);
    return true;
}

/* Its head start is over: the next one may begin, and this one goes on. */
static void step_aside(struct cm *cm, struct cm_conn *conn) {
    struct cm_failure silent = {.reason = SLUICE_REASON_UNREACHABLE, .cm_event = -1};
    snprintf(silent.text, sizeof silent.text, "no answer in its head start (it waited for %s)",
             cm_state_name(conn->owner.state));
    note(cm, conn, CM_HOPE_LATER, &silent);
    cm_race_aside(cm, conn);
}

void cm_step_over(struct cm *cm, struct cm_conn *conn) {
    cm_assert_thread(cm);
    conn->step_ns = 0;
    if (conn->unread) {
        bool confirms = conn->owner.state == CM_MODIFYING_QP;
        cm_fail(cm, conn, confirms ? cm_reason_of_answer(EINVAL) : SLUICE_REASON_DEVICE_ERROR,
                EINVAL, "%s: %s",
                confirms ? "establish" : "no RTR or RTS attributes, and no end of the connection",
                strerror(EINVAL));
        return;
    }
    if (!cm_race_may_go_on(conn->owner.state)) {
        cm_try_failed(cm, conn, CM_HOPE_LATER, SLUICE_REASON_UNREACHABLE, 0,
                      "no answer in its share of the time (it waited for %s)",
                      cm_state_name(conn->owner.state));
        return;
    }
    if (conn->owner.id)
        step_aside(cm, conn);
    if (conn->naming)
        cm_names_use(cm, conn);
    else if (conn->pausing)
        next_round(cm, conn);
    else
        go_on(cm, conn);
}

void cm_time_over(struct cm *cm, struct cm_conn *conn) {
    cm_assert_thread(cm);
    if (admission_prolongs(cm, conn))
        return;
    if (!trying(conn) || conn->last.reason == SLUICE_REASON_NONE) {
        cm_fail(cm, conn, SLUICE_REASON_TIMEOUT, 0, "not established in time (it waited for %s)",
                cm_state_name(conn->owner.state));
        return;
    }
    struct cm_failure why = conn->last;
    char tries[24] = ""; /* none: the name has no address */
    if (session_of_conn(conn)->info.tries > 0)
        snprintf(tries, sizeof tries, ", try %u", session_of_conn(conn)->info.tries);
    snprintf(why.text, sizeof why.text, "%.80s (and time ran out%s)", conn->last.text, tries);
    cm_end(cm, conn, &why);
}
