/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * dial_names.c - the addresses that the places of a dial stand for: those of its names, and numbers.
 *
 *   RESOLVING_NAME -> candidates -> first round of tries -> ... -> all failed -> pause -> the next round
 *                                     with SLUICE_WAIT, or without an answer so far: RESOLVING_NAME again
 *
 * A dial with SLUICE_WAIT looks its names up before each round, so it finds a listener that comes up, or comes back, at another
 * address. Tries that are under way meanwhile go on, unless the candidates are others now. A lookup that fails leaves
 * its place the addresses it had. One that takes long delays the first round by SOON_NS, where another place has an
 * address (RFC 8305 (3), "resolution delay"), and a later one by LATER_NS; the next round asks again.
 *
 * Owner: the CM thread.
 */
#include <errno.h>
#include <netdb.h>
#include <string.h>

#include "cm/dial_places.h"
#include "cm/internal.h"
#include "cm/resolver.h"
#include "core/context.h"
#include "core/failure_text.h"

#define SOON_NS 50000000ull
#define LATER_NS 2000000000ull

/* At the first name. */
static int open_resolver(struct cm *cm) {
    int error = resolver_open(&cm->resolver, cm->mailbox, cm->node->fabric, &cm->node->env);
    struct rdma_event_channel *channel = error == 0 ? resolver_channel(cm->resolver) : NULL;
    /* If it cannot be watched, its events wait until their lookups are answered. */
    if (channel)
        (void)event_source_open(&cm->names_source, cm->epoll_fd, channel->fd, cm->resolver);
    return error;
}

static bool is_wanted(const struct cm_conn *conn, const struct cm_place *place) {
    return place->host[0] && (cm_waits(conn) || (place->count == 0 && !place->failed));
}

bool cm_names_wanted(const struct cm_conn *conn) {
    bool wanted = false;
    for (unsigned i = 0; conn->places && i < conn->places->count; i++)
        wanted |= is_wanted(conn, &conn->places->at[i]);
    return wanted;
}

void cm_names_leave(struct cm *cm, struct cm_conn *conn) {
    cm_assert_thread(cm);
    conn->naming = false;
    for (unsigned i = 0; conn->places && i < conn->places->count; i++)
        resolver_leave(cm->resolver, &conn->places->at[i]);
}

static unsigned pending(const struct cm_conn *conn) {
    unsigned count = 0;
    for (unsigned i = 0; i < conn->places->count; i++)
        count += conn->places->at[i].lookup != NULL;
    return count;
}

static unsigned known(const struct cm_conn *conn) {
    unsigned count = 0;
    for (unsigned i = 0; i < conn->places->count; i++)
        count += conn->places->at[i].count;
    return count;
}

static bool has_all(const struct cm_conn *conn, const union address *found, unsigned count) {
    unsigned same = 0;
    for (unsigned i = 0; i < count; i++)
        for (unsigned k = 0; k < conn->candidate_count; k++)
            same += address_equal(&found[i], &conn->candidates[k]);
    return same == count;
}

void cm_names_use(struct cm *cm, struct cm_conn *conn) {
    cm_assert_thread(cm);
    union address found[CM_CANDIDATES];
    cm_names_leave(cm, conn);
    if (conn->owner.id) /* a try came forward while the names were looked up */
        cm_race_aside(cm, conn);
    unsigned count = dial_places_candidates(conn->places, found);
    /* Name servers turn their lists round: then the order is as it was, and so are the numbers of the tries. */
    if (count != conn->candidate_count || !has_all(conn, found, count)) {
        cm_race_end(cm, conn);
        memcpy(conn->candidates, found, count * sizeof *found);
        conn->candidate_count = (uint8_t)count;
    }
    cm_round_begin(cm, conn, cm_names_wanted(conn));
}

static void failed(struct cm *cm, struct cm_place *place, sluice_reason reason, int error,
                   const char *text) {
    struct cm_conn *conn = place->conn;
    place->failed = true;
    cm_try_note(cm, conn, cm_waits(conn) ? CM_HOPE_LATER : CM_HOPE_ELSEWHERE, reason,
                (uint32_t)error, "%.80s: %s", place->host, text);
}

/* 0 or -errno. */
static int ask(struct cm *cm, struct cm_place *place) {
    int error = cm->resolver ? 0 : open_resolver(cm);
    return error == 0 ? resolver_ask(cm->resolver, place) : error;
}

void cm_names_ask(struct cm *cm, struct cm_conn *conn) {
    cm_assert_thread(cm);
    bool first = conn->candidate_count == 0;
    conn->pausing = false;
    conn->naming = true;
    cm_enter(cm, conn, CM_RESOLVING_NAME);
    for (unsigned i = 0; i < conn->places->count; i++) {
        struct cm_place *place = &conn->places->at[i];
        int error = is_wanted(conn, place) ? ask(cm, place) : 0;
        if (error != 0)
            failed(cm, place, failure_text_reason_of_call(-error), -error, strerror(-error));
    }
    if (pending(conn) == 0)
        cm_names_use(cm, conn);
    else
        cm_watch_step(cm, conn, known(conn) > 0 ? cm->now_ns + (first ? SOON_NS : LATER_NS) : 0);
}

static void not_found(struct cm *cm, struct cm_place *place, const struct cm_names *names) {
    int own = names->error == EAI_MEMORY ? ENOMEM : names->os_errno;
    failed(cm, place, own ? failure_text_reason_of_call(own) : SLUICE_REASON_ADDRESS, own,
           names->os_errno ? strerror(own) : resolver_text(names->error));
}

static void found(struct cm_place *place, const struct cm_names *names) {
    place->failed = false;
    place->count = (uint8_t)names->count;
    memcpy(place->addresses, names->addresses, names->count * sizeof *names->addresses);
    for (unsigned i = 0; i < names->count; i++)
        place->addresses[i].v4.sin_port = htons(place->port); /* the same place in both families */
}

static void answered(struct cm *cm, struct cm_place *place, const struct cm_names *names) {
    struct cm_conn *conn = place->conn;
    if (names->error != 0)
        not_found(cm, place, names);
    else
        found(place, names);
    if (pending(conn) == 0)
        cm_names_use(cm, conn);
    else if (known(conn) > 0 && conn->step_ns == 0)
        cm_watch_step(cm, conn, cm->now_ns + SOON_NS);
}

unsigned cm_take_names(struct cm *cm) {
    cm_assert_thread(cm);
    unsigned count = 0;
    struct cm_names names;
    struct cm_lookup *lookup;
    struct cm_place *place;
    while (cm->resolver && (lookup = resolver_take(cm->resolver))) {
        struct rdma_event_channel *channel = resolver_channel(cm->resolver);
        int error;
        count++;
        /* rdma_cm's event for the lookup may not have been reported as readable yet. */
        while (channel && cm_take_events(cm, channel, &error) > 0)
            ;
        resolver_answer(cm->resolver, lookup, &names);
        while ((place = resolver_next(lookup)))
            answered(cm, place, &names);
    }
    return count;
}
